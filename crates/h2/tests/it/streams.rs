//! States of streams (RFC 9113 §5.1).

use sealion_h2::{By, ErrorCode, HeaderBlock, Limits, PREFACE, StreamClosed};

use crate::support::*;

fn request(stream: u32, end: bool) -> Seen {
    Seen::Request { stream, end, fields: Vec::new() }
}

#[test]
fn a_get_is_answered() {
    let mut server = Server::new(Limits::default());
    assert_eq!(server.receive(&get(1)).unwrap(), [request(1, true)]);
    assert_eq!(server.head.request().authority, Some("a.example"));
    let (id, mut out) = (server.id(1), Vec::new());
    let mut block = HeaderBlock::response(200);
    block.field("server", b"~");
    server.connection.respond(id, &[block.as_bytes(), &[0x0f, 13, 1, b'~']], false, &mut out).unwrap();
    // The first block of a connection announces that there is no dynamic table.
    let payload = [0x20, 0x88, 0x0f, 39, 1, b'~', 0x0f, 13, 1, b'~'].to_vec();
    assert_eq!(frames(&out), [Frame { kind: HEADERS, flags: END_HEADERS, stream: 1, payload }]);
    server.connection.offer(id, 5, true).unwrap();
    assert!(server.connection.has_frame());
    let data = server.connection.next_frame(RECORD).unwrap();
    assert_eq!((data.header, data.length, data.end), ([0, 0, 5, DATA, END_STREAM, 0, 0, 0, 1], 5, true));
    assert!(!server.connection.is_idle(), "the slot is held until the content is sent");
    server.connection.release(id);
    assert!(server.connection.is_idle() && server.control().is_empty());

    server.receive(&get(3)).unwrap();
    let (id, mut out) = (server.id(3), Vec::new());
    server.connection.respond(id, &[HeaderBlock::response(204).as_bytes()], true, &mut out).unwrap();
    assert_eq!(out, frame(HEADERS, END, 3, &[0x89]));
}

#[test]
fn a_response_has_one_head_and_one_end() {
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    let (id, mut out) = (server.id(1), Vec::new());
    let early = HeaderBlock::response(103);
    server.connection.informational(id, &[early.as_bytes()], &mut out).unwrap();
    server.connection.informational(id, &[early.as_bytes()], &mut out).unwrap();
    assert_eq!(server.connection.offer(id, 1, false), Err(StreamClosed), "before the head");
    assert_eq!(server.connection.trailers(id, &[], &mut out), Err(StreamClosed));
    server.respond(1, 10);
    let length = out.len();
    assert_eq!(server.connection.informational(id, &[], &mut out), Err(StreamClosed));
    assert_eq!(server.connection.respond(id, &[], true, &mut out), Err(StreamClosed));
    assert_eq!(server.connection.offer(id, 1, true), Err(StreamClosed), "behind the end");
    assert_eq!(server.connection.trailers(id, &[], &mut out), Err(StreamClosed));
    assert_eq!(out.len(), length, "an error writes nothing");
    assert_eq!(server.content(), [(1, 10, true)]);
    assert_eq!(server.connection.offer(id, 1, true), Err(StreamClosed), "released");
}

#[test]
fn trailers_end_a_response_whose_content_is_sent() {
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    let (id, mut out) = (server.id(1), Vec::new());
    server.connection.respond(id, &[&[0x88]], false, &mut out).unwrap();
    server.connection.offer(id, 7, false).unwrap();
    server.connection.offer(id, 3, false).unwrap();
    assert_eq!(server.connection.trailers(id, &[b"\x00\x01a\x01b"], &mut out), Err(StreamClosed));
    assert_eq!(server.content(), [(1, 10, false)]);
    out.clear();
    server.connection.trailers(id, &[b"\x00\x01a\x01b"], &mut out).unwrap();
    assert_eq!(out, frame(HEADERS, END, 1, b"\x00\x01a\x01b"));
    server.connection.release(id);
    assert!(server.control().is_empty() && server.connection.is_idle());
}

#[test]
fn a_response_that_breaks_off_is_reset_and_never_ends() {
    // The content cannot be read, so the last frame is taken back.
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    server.respond(1, 20_000);
    assert_eq!(server.connection.next_frame(RECORD).map(|frame| frame.length), Some(16_375));
    let last = server.connection.next_frame(RECORD).unwrap();
    assert!(last.end);
    server.connection.withdraw(last);
    assert_eq!(server.connection.progress(last.stream), 16_375);
    server.connection.reset(last.stream, ErrorCode::INTERNAL_ERROR);
    server.connection.release(last.stream);
    let control = server.control();
    assert_eq!((control.len(), control[0].kind, control[0].code()), (1, RST_STREAM, ErrorCode::INTERNAL_ERROR));
    // The window bytes of content that was not sent are available again.
    server.receive(&get(3)).unwrap();
    server.receive(&window_update(3, 1 << 20)).unwrap();
    server.respond(3, 1 << 20);
    let sent: usize = server.content().iter().map(|(_, length, _)| length).sum();
    assert_eq!(sent, 65_535 - 16_375);

    // The driver releases the stream without a response, in every state of the response.
    for state in 0..3 {
        let mut server = Server::new(Limits::default());
        server.receive(&get(1)).unwrap();
        let (id, mut out) = (server.id(1), Vec::new());
        if state > 0 {
            server.connection.respond(id, &[&[0x88]], false, &mut out).unwrap();
        }
        if state > 1 {
            server.connection.offer(id, 10, true).unwrap();
            let frame = server.connection.next_frame(RECORD).unwrap();
            server.connection.withdraw(frame);
        }
        server.connection.release(id);
        let control = server.control();
        assert_eq!((control.len(), control[0].kind, control[0].code()), (1, RST_STREAM, ErrorCode::INTERNAL_ERROR));
        assert_eq!(server.connection.next_frame(RECORD), None);
    }
}

#[test]
fn content_that_is_not_needed_is_cancelled_behind_the_response() {
    let mut server = Server::new(Limits::default());
    server.receive(&post(1)).unwrap();
    server.complete(1);
    let control = server.control();
    assert_eq!((control.len(), control[0].kind, control[0].code()), (1, RST_STREAM, ErrorCode::NO_ERROR));
    // Content in flight is discarded, and the client can continue with other streams.
    for _ in 0..4 {
        assert_eq!(server.receive(&frame(DATA, 0, 1, &[0; 16_384])).unwrap(), []);
    }
    let control = server.control();
    assert_eq!((control[0].kind, control[0].stream), (WINDOW_UPDATE, 0));
    assert_eq!(server.receive(&frame(HEADERS, END, 1, &[0x82])).unwrap(), []);
}

/// Closes many streams from `first` on, so that earlier streams are forgotten.
fn close_many(server: &mut Server, first: u32) {
    for at in 0..40 {
        let stream = first + 2 * at;
        server.receive(&get(stream)).unwrap();
        server.complete(stream);
    }
    assert!(server.control().is_empty());
}

#[test]
fn frames_on_a_stream_that_was_reset_long_ago_are_dropped_and_decoded() {
    let mut server = Server::new(Limits::default());
    server.receive(&post(1)).unwrap();
    server.complete(1);
    server.control();
    close_many(&mut server, 3);
    // Small frames, as of a client that forwards data as it reads it.
    for _ in 0..1000 {
        assert_eq!(server.receive(&frame(DATA, 0, 1, b"abc")).unwrap(), []);
    }
    assert!(server.control().is_empty(), "nothing is replied");
    // Padding counts against the connection's window, which opens again.
    for _ in 0..8 {
        assert_eq!(server.receive(&frame(DATA, PADDED, 1, &[9; 16_384])).unwrap(), []);
    }
    let control = server.control();
    assert!(control.iter().all(|frame| (frame.kind, frame.stream) == (WINDOW_UPDATE, 0)), "{control:?}");
    assert!(!control.is_empty());
    // Trailers in two frames add entries to the table, and the next request refers to them.
    let trailers = [frame(HEADERS, END_STREAM, 1, b"\x40\x01x"), frame(CONTINUATION, END_HEADERS, 1, b"\x01y")];
    assert_eq!(server.receive_all(&trailers).unwrap(), []);
    let request = frame(HEADERS, END, 101, &[GET, b"\xbe"].concat());
    let fields = vec![("x".to_owned(), "y".to_owned())];
    assert_eq!(server.receive(&request).unwrap(), [Seen::Request { stream: 101, end: true, fields }]);
    assert_eq!(server.receive(&[window_update(1, 9), reset(1)].concat()).unwrap(), []);
    assert!(server.control().is_empty());
}

#[test]
fn a_client_may_have_each_of_its_uploads_refused() {
    for refused in ["by a response", "by a reset", "for want of a slot"] {
        let mut server = Server::new(Limits { streams: 1, ..Limits::default() });
        let uploads = if refused == "for want of a slot" { 200 } else { 1000 };
        if refused == "for want of a slot" {
            server.receive(&get(1)).unwrap();
        }
        for at in 1..=uploads {
            let stream = 2 * at + 1;
            server.receive(&post(stream)).unwrap();
            match refused {
                "by a response" => server.complete(stream),
                "by a reset" => {
                    server.connection.reset(server.id(stream), ErrorCode::CANCEL);
                    server.connection.release(server.id(stream));
                }
                _ => {}
            }
            server.control();
            // As many bytes as the stream's window, sent before the client read the reset.
            for length in [16_384, 16_384, 16_384, 16_383] {
                server.receive(&frame(DATA, 0, stream, &vec![0; length])).unwrap();
            }
            server.receive(&frame(HEADERS, END, stream, b"\x00\x01x\x01y")).unwrap();
        }
    }
}

#[test]
fn frames_on_streams_that_were_never_opened_end_the_connection() {
    for frame in [
        frame(DATA, 0, 1, b"a"),
        reset(1),
        window_update(1, 1),
        frame(DATA, 0, 2, b"a"),
        window_update(2, 1),
        frame(HEADERS, END, 2, GET),
        frame(HEADERS, END, 0, GET),
        frame(DATA, 0, 0, b"a"),
        reset(0),
        frame(CONTINUATION, END_HEADERS, 1, GET),
        frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2]),
        frame(PRIORITY, 0, 0, &[0; 5]),
        frame(PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 2]),
        frame(PRIORITY_UPDATE, 0, 0, &[0, 0, 0, 0]),
        frame(SETTINGS, 0, 1, &[]),
        frame(PING, 0, 1, &[0; 8]),
        frame(GOAWAY, 0, 1, &[0; 8]),
        window_update(0, 0),
    ] {
        let mut server = Server::new(Limits::default());
        let error = server.receive(&frame).unwrap_err();
        assert_eq!(error.code, ErrorCode::PROTOCOL_ERROR, "{frame:?}");
        assert!(!server.connection.wants_read());
        let control = server.control();
        assert_eq!((control.len(), control[0].kind, control[0].code()), (1, GOAWAY, ErrorCode::PROTOCOL_ERROR));
        assert_eq!(server.connection.receive(&mut &get(1)[..], &mut server.head), Err(error), "it stays closed");
        assert!(server.control().is_empty());
    }
}

#[test]
fn frames_of_a_wrong_length_end_the_connection() {
    for frame in [
        frame(RST_STREAM, 0, 1, &[0; 3]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 5]),
        frame(PING, 0, 0, &[0; 7]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(SETTINGS, ACK, 0, &[0; 6]),
        frame(PRIORITY, 0, 1, &[0; 4]),
        frame(PRIORITY_UPDATE, 0, 0, &[0; 3]),
        frame(DATA, PADDED, 1, &[]),
        frame(DATA, 0, 1, &[0; 16_385]),
        frame(HEADERS, 0x20 | END, 3, &[0; 4]),
        frame(99, 0, 1, &[0; 16_385]),
    ] {
        let mut server = Server::new(Limits::default());
        server.receive(&post(1)).unwrap();
        match server.receive(&frame) {
            Ok(events) => {
                let expected = Seen::Reset { stream: 1, code: ErrorCode::FRAME_SIZE_ERROR, by: By::Server };
                assert_eq!((frame[3], events), (PRIORITY, vec![expected]), "a fault of its stream only");
            }
            Err(error) => assert_eq!(error.code, ErrorCode::FRAME_SIZE_ERROR, "{frame:?}"),
        }
    }
}

#[test]
fn nothing_comes_between_the_frames_of_a_header_block() {
    for other in [frame(PING, 0, 0, &[0; 8]), frame(CONTINUATION, END_HEADERS, 3, &[]), get(3), frame(99, 0, 0, &[])] {
        let mut server = Server::new(Limits::default());
        server.receive(&frame(HEADERS, END_STREAM, 1, &GET[..3])).unwrap();
        assert_eq!(server.receive(&other).unwrap_err().code, ErrorCode::PROTOCOL_ERROR);
    }
    let mut server = Server::new(Limits::default());
    let continued = [
        frame(HEADERS, END_STREAM, 1, &GET[..3]),
        frame(CONTINUATION, 0, 1, &[]),
        frame(CONTINUATION, 0, 1, &GET[3..5]),
        frame(CONTINUATION, END_HEADERS, 1, &GET[5..]),
    ];
    assert_eq!(server.receive_all(&continued).unwrap(), [request(1, true)]);
}

#[test]
fn a_connection_begins_with_the_preface_and_settings() {
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        [&PREFACE[..], &get(1)].concat(),
        [&PREFACE[..], &frame(SETTINGS, ACK, 0, &[])].concat(),
    ] {
        let mut connection = sealion_h2::Connection::new(Limits::default());
        let error = connection.receive(&mut &bytes[..], &mut Default::default()).unwrap_err();
        assert_eq!(error.code, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn frames_behind_the_end_of_a_stream() {
    // Half closed: the client sent END_STREAM, and the response is in progress.
    for late in [frame(DATA, 0, 1, b"a"), get(1)] {
        let mut server = Server::new(Limits::default());
        server.receive(&get(1)).unwrap();
        let expected = Seen::Reset { stream: 1, code: ErrorCode::STREAM_CLOSED, by: By::Server };
        assert_eq!(server.receive(&late).unwrap(), [expected]);
        assert_eq!(server.receive(&late).unwrap(), [], "reset by us: frames may be under way");
        assert_eq!(server.control().len(), 1);
    }
    // Closed by END_STREAM on both sides.
    for late in [frame(DATA, 0, 1, b"a"), get(1)] {
        let mut server = Server::new(Limits::default());
        server.receive(&get(1)).unwrap();
        server.complete(1);
        assert_eq!(server.receive(&[window_update(1, 9), reset(1)].concat()).unwrap(), [], "they may cross the end");
        assert_eq!(server.receive(&late).unwrap_err().code, ErrorCode::STREAM_CLOSED);
    }
    // Reset by the client, before and after its slot is freed.
    for released in [false, true] {
        for late in [frame(DATA, 0, 1, b"a"), get(1)] {
            let mut server = Server::new(Limits::default());
            server.receive(&get(1)).unwrap();
            let expected = Seen::Reset { stream: 1, code: ErrorCode::CANCEL, by: By::Client };
            assert_eq!(server.receive(&reset(1)).unwrap(), [expected]);
            if released {
                server.connection.release(server.id(1));
            }
            assert_eq!(server.receive(&late).unwrap(), []);
            let control = server.control();
            assert_eq!((control.len(), control[0].kind, control[0].code()), (1, RST_STREAM, ErrorCode::STREAM_CLOSED));
        }
    }
    // Never opened, and below a stream that was opened.
    for after in 0..2 {
        let mut server = Server::new(Limits::default());
        server.receive(&get(5)).unwrap();
        if after == 1 {
            server.complete(5);
        }
        assert_eq!(server.receive(&get(3)).unwrap_err().code, ErrorCode::PROTOCOL_ERROR);
    }
    // Never opened, and above all opened streams, however many they are.
    for late in [frame(DATA, 0, 201, b"a"), window_update(201, 1), reset(201)] {
        let mut server = Server::new(Limits::default());
        close_many(&mut server, 1);
        assert_eq!(server.receive(&late).unwrap_err().code, ErrorCode::PROTOCOL_ERROR);
    }
}

#[test]
fn malformed_requests_cost_their_stream_only() {
    let mut server = Server::new(Limits::default());
    let malformed = [
        frame(HEADERS, END, 1, b"\x82\x84"),
        get_with(3, &[("connection", "close")]),
        get_with(5, &[("content-length", "1")]),
        frame(HEADERS, END | 0x20, 7, &[&[0, 0, 0, 7, 0], GET].concat()),
    ];
    let events = server.receive_all(&malformed).unwrap();
    assert_eq!(events, [1, 3, 5, 7].map(Seen::Malformed));
    assert!(server.control().iter().all(|frame| (frame.kind, frame.code()) == (RST_STREAM, ErrorCode::PROTOCOL_ERROR)));
    assert!(server.connection.is_idle());
    assert_eq!(server.receive(&get(9)).unwrap(), [request(9, true)]);
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut server = Server::new(Limits { streams: 2, ..Limits::default() });
    assert_eq!(
        server.receive_all(&[get(1), get(3), get(5)]).unwrap(),
        [request(1, true), request(3, true), Seen::Refused(5)]
    );
    let control = server.control();
    assert_eq!((control[0].stream, control[0].code()), (5, ErrorCode::REFUSED_STREAM));
    server.complete(1);
    assert_eq!(server.receive(&get(7)).unwrap(), [request(7, true)]);
}

#[test]
fn connect_with_a_protocol_is_understood_where_it_is_announced() {
    let mut block = HeaderBlock::default();
    for (name, value) in [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/c"),
        (":authority", "a.example"),
    ] {
        block.field(name, value.as_bytes());
    }
    let connect = frame(HEADERS, END_HEADERS, 1, block.as_bytes());
    let mut server = Server::new(Limits { connect_protocol: true, ..Limits::default() });
    assert_eq!(server.receive(&connect).unwrap(), [request(1, false)]);
    let head = server.head.request();
    assert_eq!((head.method, head.protocol, head.path), ("CONNECT", Some("websocket"), Some("/c")));
    assert_eq!(Server::new(Limits::default()).receive(&connect).unwrap(), [Seen::Malformed(1)]);
}
