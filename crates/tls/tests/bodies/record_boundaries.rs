//! The records of a response: one for a small response, a short one and full ones for a large response.

use sealion_testkit::{Client, Suite, pattern};
use sealion_tls::{Part, SealedBy};

use crate::SENDER;
use crate::support::{self, FILE};

const RECORD: u64 = 16_384;
const TURN: u64 = 512 << 10;
/// Plaintext of the first record of a larger response.
const FIRST: u64 = 4096;

#[test]
fn a_response_that_fits_is_one_record() {
    for suite in Suite::all() {
        const CASES: &[(u64, u64)] = &[(0, 1), (1, 0), (300, 0), (300, 700), (1, 16_383), (8_192, 8_192), (16_384, 0)];
        for (lengths, (head, file)) in records_of(suite, CASES).iter().zip(CASES) {
            assert_eq!(*lengths, [(head + file) as usize], "{suite}: head {head}, file {file}");
        }
    }
}

#[test]
fn a_larger_response_has_full_records_but_for_the_first_and_the_last() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        const CASES: &[(u64, u64)] = &[
            (300, RECORD - 299),
            (0, RECORD + 1),
            (300, 4 * RECORD),
            (16_385, 1),
            (300, TURN - 300),
            (300, TURN - 299),
            (300, TURN),
            (RECORD, TURN),
            (17_000, TURN + 7),
            (1, 3 * TURN + 1),
            (0, 2 * TURN),
        ];
        for (lengths, (head, file)) in records_of(suite, CASES).iter().zip(CASES) {
            // The kernel gives the bytes before a file separate records: one, together with the file's first page, if
            // that fits.
            let runs: &[u64] = match SENDER {
                SealedBy::Kernel if head + FIRST <= RECORD => &[head + FIRST, file - FIRST],
                SealedBy::Kernel => &[*head, *file],
                SealedBy::User => &[FIRST, head + file - FIRST],
                SealedBy::Nobody => unreachable!("without TLS there are no records"),
            };
            let mut expected = Vec::new();
            for run in runs {
                expected.extend(std::iter::repeat_n(RECORD as usize, (run / RECORD) as usize));
                expected.extend(Some((run % RECORD) as usize).filter(|rest| *rest > 0));
            }
            if closes_records_early() {
                assert_eq!(lengths.iter().sum::<usize>() as u64, head + file);
                let calls = file.div_ceil(TURN) as usize + 1;
                assert!(lengths.len() <= expected.len() + 2 * calls, "{suite}: head {head}, file {file}: {lengths:?}");
            } else {
                assert_eq!(*lengths, expected, "{suite}: head {head}, file {file}");
            }
        }
    }
}

/// At first the peer of a new connection gets only the first packets, and cannot open an incomplete record.
#[test]
fn while_the_window_is_small_a_response_near_it_begins_with_a_short_record() {
    let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
        let memory = pattern::bytes(0..40_000);
        for (idle, len) in PAGES {
            if idle {
                stream.expect_small_window();
            }
            stream.respond(&[Part::Bytes(&memory[..len])]).await.unwrap();
            support::take(&mut stream, 1).await.unwrap();
        }
    });
    // New, then busy, then idle for a while.
    const PAGES: [(bool, usize); 6] =
        [(false, 15_000), (false, 15_000), (true, 12_000), (true, 12_001), (false, 15_000), (true, 40_000)];
    let short = FIRST as usize;
    let expected: [&[usize]; 6] = [
        &[short, 15_000 - short],
        &[15_000],
        &[12_000],
        &[short, 12_001 - short],
        &[15_000],
        &[short, 16_384, 16_384, 40_000 - short - 2 * 16_384],
    ];
    let mut client = support::connect(&serving, Suite::TLS13);
    for ((_, len), expected) in PAGES.iter().zip(expected) {
        assert_eq!(response(&mut client, *len as u64, 0), expected, "{len}");
    }
    serving.finish();
}

/// Before Linux 6.5 a record ends after every 16 pages of a sendfile(2), full or not.
fn closes_records_early() -> bool {
    SENDER == SealedBy::Kernel && sealion_testkit::ktls::guest_series().as_deref() == Some("6.1")
}

#[test]
fn no_explicit_nonce_comes_twice() {
    for suite in Suite::all().into_iter().filter(|suite| suite.has_explicit_nonce()) {
        let serving = support::Server::new(support::limits()).serve_unmoved(async |mut stream| {
            for _ in 0..20 {
                stream.respond(&[Part::Bytes(b"small, from user space")]).await.unwrap();
            }
            support::prepare(&mut stream).await;
            for _ in 0..20 {
                stream.respond(&[Part::Bytes(b"small")]).await.unwrap();
                let large = Part::File { file: &FILE, range: 1..100_000 };
                stream.respond(&[Part::Bytes(b"head"), large]).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        client.read_to_end().unwrap().assert_orderly();
        // Finished, 20 small ones, 20 times 1 + 1 + 6, close_notify.
        client.tap().assert_nonces_distinct(1 + 20 + 20 * 8 + 1);
        drop(client);
        serving.finish();
    }
}

/// Sends each (head, file) as one response and returns the lengths of its records.
fn records_of(suite: Suite, cases: &'static [(u64, u64)]) -> Vec<Vec<usize>> {
    let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
        for &(head, file) in cases {
            let memory = pattern::bytes(0..head);
            let file = Part::File { file: &FILE, range: 0..file };
            stream.respond(&[Part::Bytes(&memory), file]).await.unwrap();
            support::take(&mut stream, 1).await.unwrap();
        }
    });
    let mut client = support::connect(&serving, suite);
    let lengths = cases.iter().map(|&(head, file)| response(&mut client, head, file)).collect();
    serving.finish();
    lengths
}

fn response(client: &mut Client, head: u64, file: u64) -> Vec<usize> {
    let from = client.received().len();
    let body = client.read((head + file) as usize).unwrap();
    pattern::assert_equal(&body[..head as usize], 0..head);
    pattern::assert_equal(&body[head as usize..], 0..file);
    client.send(b".").unwrap();
    client.data_lengths(from)
}
