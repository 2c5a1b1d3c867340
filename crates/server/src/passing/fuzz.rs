//! An offer or a packet of another version, or a damaged one: it is refused, or has all that it needs.

use std::os::fd::OwnedFd;

use sealion_h2::Connection;
use sealion_http::{FieldSection, Status};

use super::relay::{Packet, Word};
use super::under_way::UnderWay;
use super::words::{Driver, Resting};

/// Reads the content of an offer that came with `files` descriptors of files.
pub(crate) fn offer(content: &[u8], files: usize) {
    let Ok((mut resting, _)) = postcard::take_from_bytes::<Resting>(content) else { return };
    let files = (0..files).map(|_| OwnedFd::from(std::fs::File::open("/dev/null").expect("a descriptor")));
    if !resting.take_files(files) {
        return;
    }
    match resting.driver {
        Driver::Http1(Some(mut under_way)) => {
            assert!(UnderWay::head_of(&under_way.request).is_some());
            let rest = std::mem::take(&mut under_way.rest);
            let _ = (under_way.files.unpack_content(rest), under_way.line.path_reason());
        }
        Driver::Http2(rest, Some(streams)) => {
            for response in streams.responses {
                let _ = response.request.as_ref().map(|head| head.request()).map(|head| head.to_request().is_some());
                let _ = streams.files.unpack_content(response.rest);
            }
            assert!(Connection::resume(*rest).can_rest());
        }
        Driver::Http2(rest, None) => assert!(Connection::resume(*rest).is_idle()),
        Driver::Http1(None) => {}
    }
}

/// Reads a packet of a relay.
pub(crate) fn packet(content: &[u8]) {
    let Ok(Packet { word, payload }) = Packet::from_bytes(content) else { return };
    match word {
        Word::Head(head) => {
            let _ = (head.line.path_reason(), head.line.upstream.map(|upstream| upstream.trace()));
        }
        Word::End | Word::Interim(_) | Word::ContentEnd => {
            let _ = FieldSection::from_lines(&payload).iter().count();
        }
        Word::ContentFailed(status) => {
            let _ = Status::new(status);
        }
        Word::Piece | Word::Failed | Word::Wanted(_) | Word::Closed | Word::Content => {}
    }
}

#[cfg(test)]
mod tests {
    use sealion_h2::{Event, HeadBuffer, HeaderBlock, Limits, PREFACE};
    use sealion_http::http1::framing::ResponseFraming;

    use super::super::relay::{Ends, RelayedHead};
    use super::super::under_way::{Files, Line, Segment, StreamUnderWay, Streams};
    use super::*;
    use crate::limits::Moment;

    fn resting(driver: Driver) -> Vec<u8> {
        let resting = Resting {
            listener: "127.0.0.1:443".into(),
            peer: "192.0.2.1:40000".parse().unwrap(),
            idle_since: Moment::now(),
            requests: 7,
            forgone: 1,
            moved_at: Some(5),
            paced: Some(1000),
            driver,
        };
        resting.to_bytes()
    }

    fn line() -> Line {
        Line {
            site: Some("a".into()),
            began: Some(std::time::Instant::now().into()),
            status: 200,
            encoding: None,
            user: Some("user".into()),
            upstream: None,
            cache: None,
            is_unlogged: false,
            route: Some((1, "/a".into())),
            reason: Some("small".into()),
            set_up: None,
            counts: (1, 2),
        }
    }

    fn rest() -> Vec<Segment> {
        vec![Segment::Bytes(b"content".to_vec()), Segment::File { number: 0, range: 3..9 }]
    }

    /// A connection with a response under way.
    fn streams() -> Driver {
        let mut connection = Connection::new(Limits::default());
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let acknowledged = [0, 0, 0, 4, 1, 0, 0, 0, 0];
        let request = [0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x87];
        let input = [&PREFACE[..], &settings, &acknowledged, &request].concat();
        let (mut input, mut head, mut out) = (&input[..], HeadBuffer::default(), Vec::new());
        let mut responses = Vec::new();
        while let Some(event) = connection.receive(&mut input, &mut head).unwrap() {
            if let Event::Request { stream, .. } = event {
                connection.respond(stream, &[HeaderBlock::response(200).as_bytes()], false, &mut out).unwrap();
                connection.offer(stream, 100, true).unwrap();
                let request = Some(Box::new(std::mem::take(&mut head)));
                let under_way = StreamUnderWay {
                    stream,
                    request,
                    line: line(),
                    ended: false,
                    filled: false,
                    ends: Ends::Usual,
                    rest: rest(),
                    trailers: Some(b"x-sum: 7\r\n".to_vec()),
                    stall: None,
                    relayed: None,
                };
                responses.push(under_way);
            }
        }
        connection.write_control(&mut out);
        let _ = connection.take_resets();
        let streams =
            Streams { frames: rest(), begun: 3, is_responding: true, upcoming: 0, responses, files: Files::default() };
        Driver::Http2(Box::new(connection.to_rest().expect("it waits")), Some(Box::new(streams)))
    }

    #[test]
    fn an_offer_that_was_changed_is_refused_or_whole() {
        let request = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec();
        let under_way =
            UnderWay { request, persists: true, line: line(), rest: rest(), relayed: None, files: Files::default() };
        for content in [Driver::Http1(None), Driver::Http1(Some(Box::new(under_way))), streams()].map(resting) {
            offer(&content, 1);
            for at in 0..content.len() {
                offer(&content[..at], 1);
                for flipped in [1, 0x20, 0x80, 0xff] {
                    let mut changed = content.clone();
                    changed[at] ^= flipped;
                    offer(&changed, usize::from(flipped & 3));
                }
            }
        }
    }

    #[test]
    fn a_packet_that_was_changed_is_refused_or_whole() {
        let (framing, ends) = (ResponseFraming::Chunked, Ends::Usual);
        let head = Box::new(RelayedHead { line: line(), framing, length: Some(7), ends });
        let of_response = [Word::Piece, Word::End, Word::Failed, Word::Head(head), Word::Interim(103)];
        let of_request = [Word::Wanted(7), Word::Closed, Word::Content, Word::ContentEnd, Word::ContentFailed(400)];
        let payload = b"x-sum: 7\r\n";
        for word in of_response.into_iter().chain(of_request) {
            let content = [&Packet::new(word, &b""[..]).word_to_bytes()[..], payload].concat();
            assert_eq!(Packet::from_bytes(&content).unwrap().payload, payload[..]);
            packet(&content);
            for at in 0..content.len() {
                packet(&content[..at]);
                for flipped in [1, 0x20, 0x80, 0xff] {
                    let mut changed = content.clone();
                    changed[at] ^= flipped;
                    packet(&changed);
                }
            }
        }
        assert!(Packet::from_bytes(&[99]).is_err(), "a word of another version");
    }

    #[test]
    fn files_that_did_not_come_are_missed() {
        let content = resting(streams());
        let (mut resting, _) = postcard::take_from_bytes::<Resting>(&content).unwrap();
        assert!(!resting.take_files(std::iter::empty()));
    }
}
