//! What `fuzz/` checks of the octets that a server sends.

use bytes::BytesMut;
use http::{HeaderMap, header};
use sealion_http::Status;

use super::head::Head;
use super::record::{Ended, Event, Records};

/// What a client would get, and the log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    head: Option<(Status, HeaderMap)>,
    content: Vec<u8>,
    stderr: Vec<u8>,
    end: Option<Result<Ended, String>>,
}

/// An answer means the same however its octets come. `at_a_time`: how many.
pub(crate) fn answer(octets: &[u8], at_a_time: usize) {
    let whole = read(octets, usize::MAX);
    for size in [1, at_a_time.max(1)] {
        assert_eq!(read(octets, size), whole, "by {size}");
    }
    if let Some((status, fields)) = &whole.head {
        assert!(status.code() >= 200, "{status} is no status of an answer");
        assert!(fields.get_all(header::CONTENT_LENGTH).iter().count() <= 1, "{fields:?}");
        assert!(!fields.contains_key("status"), "{fields:?}");
    }
}

fn read(octets: &[u8], at_a_time: usize) -> Read {
    let (mut records, mut buffer, mut head, mut found) =
        (Records::default(), BytesMut::new(), Head::default(), Read::default());
    for part in octets.chunks(at_a_time) {
        buffer.extend_from_slice(part);
        loop {
            match records.next(&mut buffer) {
                Ok(None) => break,
                Ok(Some(Event::Stdout(part))) if found.head.is_some() => found.content.extend_from_slice(&part),
                Ok(Some(Event::Stdout(part))) => match head.add(&part) {
                    Ok(None) => {}
                    Ok(Some(whole)) => {
                        found.content.extend_from_slice(&whole.content);
                        found.head = Some((whole.status, whole.fields));
                    }
                    Err(error) => return Read { end: Some(Err(error)), ..found },
                },
                Ok(Some(Event::Stderr(text))) => found.stderr.extend_from_slice(&text),
                Ok(Some(Event::End(ended))) => return Read { end: Some(Ok(ended)), ..found },
                Err(bad) => return Read { end: Some(Err(bad.to_string())), ..found },
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_mean_the_same_however_they_come_also_with_an_octet_changed() {
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/fastcgi");
        for seed in std::fs::read_dir(seeds).unwrap() {
            let octets = std::fs::read(seed.unwrap().path()).unwrap();
            let (size, octets) = octets.split_first().unwrap();
            answer(octets, usize::from(*size));
            for at in 0..octets.len() {
                for octet in [0, 3, b'\n', b':', 255] {
                    let mut changed = octets.to_vec();
                    changed[at] = octet;
                    answer(&changed, usize::from(*size));
                }
            }
        }
    }
}
