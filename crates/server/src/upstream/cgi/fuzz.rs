//! The checks of `fuzz/` on the bytes that a server sends.

use bytes::BytesMut;
use http::{HeaderMap, header};
use sealion_http::Status;

use super::fastcgi::{Ended, Event, RequestId};
use super::framing::{Framing, Gateway};

/// The response that a client would get, and the output for the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    head: Option<(Status, HeaderMap)>,
    content: Vec<u8>,
    stderr: Vec<u8>,
    end: Option<Result<Ended, String>>,
}

/// Checks the bytes of a FastCGI server.
#[cfg(fuzzing)]
pub(crate) fn fastcgi(octets: &[u8], at_a_time: usize) {
    answer(Gateway::Fastcgi, octets, at_a_time);
}

/// Checks the bytes of a uwsgi server.
#[cfg(fuzzing)]
pub(crate) fn uwsgi(octets: &[u8], at_a_time: usize) {
    answer(Gateway::Uwsgi, octets, at_a_time);
}

/// A response means the same however its bytes are split. `at_a_time`: bytes per read.
fn answer(gateway: Gateway, octets: &[u8], at_a_time: usize) {
    let whole = read(gateway, octets, usize::MAX);
    for size in [1, at_a_time.max(1)] {
        assert_eq!(read(gateway, octets, size), whole, "by {size}");
    }
    if gateway == Gateway::Uwsgi
        && let Some((_, fields)) = &whole.head
        && let Some(length) =
            fields.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok())
    {
        let is_whole = whole.content.len() as u64 == length;
        assert_eq!(whole.end == Some(Ok(Ended::Complete(0))), is_whole, "{whole:?}");
    }
    if let Some((status, fields)) = &whole.head {
        assert!(status.code() >= 200, "{status} is not a status of a response");
        assert!(fields.get_all(header::CONTENT_LENGTH).iter().count() <= 1, "{fields:?}");
        assert!(!fields.contains_key("status"), "{fields:?}");
    }
}

fn read(gateway: Gateway, octets: &[u8], at_a_time: usize) -> Read {
    let (mut framing, mut buffer, mut head, mut found) = (
        Framing::new(gateway, RequestId { number: 1, keeps: false }),
        BytesMut::new(),
        gateway.response_head(),
        Read::default(),
    );
    for part in octets.chunks(at_a_time) {
        buffer.extend_from_slice(part);
        loop {
            match framing.next(&mut buffer) {
                Ok(None) => break,
                Ok(Some(Event::Stdout(part))) if found.head.is_some() => found.content.extend_from_slice(&part),
                Ok(Some(Event::Stdout(part))) => match head.add(&part) {
                    Ok(None) => {}
                    Ok(Some(whole)) => {
                        match framing.begin_content(&whole.fields, whole.content) {
                            Ok(first) => found.content.extend_from_slice(&first),
                            Err(error) => return Read { end: Some(Err(error)), ..found },
                        }
                        found.head = Some((whole.status, whole.fields));
                    }
                    Err(error) => return Read { end: Some(Err(error)), ..found },
                },
                Ok(Some(Event::Stderr(text))) => found.stderr.extend_from_slice(&text),
                Ok(Some(Event::End(ended))) => return Read { end: Some(Ok(ended)), ..found },
                Err(bad) => return Read { end: Some(Err(bad)), ..found },
            }
        }
    }
    let closed = framing.closed().map(|_| Ok(Ended::Complete(0)));
    Read { end: closed, ..found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_mean_the_same_however_they_come_also_with_an_octet_changed() {
        for (name, gateway) in [("fastcgi", Gateway::Fastcgi), ("uwsgi", Gateway::Uwsgi)] {
            let seeds = format!("{}/../../fuzz/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
            for seed in std::fs::read_dir(seeds).unwrap() {
                let octets = std::fs::read(seed.unwrap().path()).unwrap();
                let (size, octets) = octets.split_first().unwrap();
                answer(gateway, octets, usize::from(*size));
                for at in 0..octets.len() {
                    for octet in [0, 3, b'\n', b':', 255] {
                        let mut changed = octets.to_vec();
                        changed[at] = octet;
                        answer(gateway, &changed, usize::from(*size));
                    }
                }
            }
        }
    }
}
