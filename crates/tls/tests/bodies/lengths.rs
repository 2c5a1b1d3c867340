//! Whole bodies, from memory, from a file and from both, at every length where the behaviour changes.

use sealion_testkit::{Suite, pattern};
use sealion_tls::{Part, TlsStream};

use crate::support::{self, FILE, FILE_LEN};

const LENGTHS: [u64; 12] = [0, 1, 2, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 262_143, 262_145, (1 << 20) + 7];

/// Where bodies begin in the file: aligned neither to a page nor to a word.
const ODD: u64 = 4_097 + 1_234;

#[test]
fn from_memory() {
    whole_bodies(async |stream, len| {
        let body = pattern::bytes(ODD..ODD + len);
        stream.respond(&[Part::Bytes(&body)]).await.expect("the client reads");
    });
}

#[test]
fn from_a_file_at_an_odd_offset() {
    whole_bodies(async |stream, len| {
        stream.respond(&[file(ODD, ODD + len)]).await.expect("the client reads");
    });
}

#[test]
fn from_a_head_in_memory_and_a_file() {
    whole_bodies(async |stream, len| {
        let head = pattern::bytes(ODD..ODD + len.min(301));
        let parts = [Part::Bytes(&head), file(ODD + len.min(301), ODD + len)];
        stream.respond(&parts).await.expect("the client reads");
    });
}

#[test]
fn from_many_parts_with_empty_ones_between() {
    whole_bodies(async |stream, len| {
        // Memory and file in turn, as in a multipart response. The parts grow, so that ends of parts and ends of
        // records meet in many ways.
        let mut bounds = vec![0];
        let mut step = 1;
        while *bounds.last().unwrap() < len {
            bounds.push((bounds.last().unwrap() + step).min(len));
            step = step * 3 / 2 + 1;
        }
        let ranges: Vec<_> = bounds.windows(2).map(|w| ODD + w[0]..ODD + w[1]).collect();
        let memory: Vec<_> = ranges.iter().map(|range| pattern::bytes(range.clone())).collect();
        let mut parts = vec![Part::Bytes(b""), file(7, 7)];
        for (at, (range, memory)) in ranges.iter().zip(&memory).enumerate() {
            match at % 2 {
                0 => parts.push(Part::Bytes(memory)),
                _ => parts.extend([file(range.start, range.end), file(FILE_LEN, FILE_LEN)]),
            }
            parts.push(Part::Bytes(b""));
        }
        stream.respond(&parts).await.expect("the client reads");
    });
}

/// Sends a body of every length on one connection of every suite, and compares all bytes.
fn whole_bodies(send: impl AsyncFn(&mut TlsStream, u64) + Clone + Send + 'static) {
    for suite in Suite::all() {
        let send = send.clone();
        let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
            for len in LENGTHS {
                send(&mut stream, len).await;
                assert_eq!(support::take(&mut stream, 4).await.unwrap(), b"next");
            }
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        for len in LENGTHS {
            let body = client.read(len as usize).unwrap_or_else(|e| panic!("{suite}, {len}: {e}"));
            pattern::assert_equal(&body, ODD..ODD + len);
            client.send(b"next").unwrap();
        }
        let ending = client.read_to_end().unwrap();
        assert!(ending.data.is_empty(), "{suite}: {} bytes too many", ending.data.len());
        ending.assert_orderly();
        drop(client);
        serving.finish();
    }
}

fn file(start: u64, end: u64) -> Part<'static> {
    Part::File { file: &FILE, range: start..end }
}
