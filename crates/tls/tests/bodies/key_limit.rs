//! A key seals no more records than allowed: it is changed in time, or the connection ends.

use sealion_testkit::{Client, Event, Suite, pattern};
use sealion_tls::record::ContentType;
use sealion_tls::{AlertDescription, Error, Limits, Part};

use crate::support::{self, FILE, FILE_LEN};

/// Slightly more than the records of a turn, which the kernel path seals by one call.
const LIMIT: u64 = 70;

fn limits() -> Limits {
    Limits { records_per_key: LIMIT, ..support::limits() }
}

/// The number of records under each key, including KeyUpdate and alerts, and all data and alerts.
fn records_by_key(client: &mut Client) -> (Vec<u64>, Vec<u8>, Vec<Event>) {
    let ending = client.read_to_end().unwrap();
    let mut by_key = vec![0];
    for record in client.received() {
        *by_key.last_mut().unwrap() += 1;
        // A session ticket is longer.
        if record.content_type == ContentType::Handshake && record.len == 5 {
            by_key.push(0);
        }
    }
    assert_eq!(by_key.len(), client.key_updates() + 1);
    assert_eq!(ending.events.last(), Some(&Event::Fin));
    (by_key, ending.data, ending.events)
}

#[test]
fn the_key_changes_in_the_middle_of_a_large_response_or_the_response_fails() {
    for suite in Suite::all() {
        let serving = support::Server::new(limits()).serve(async |mut stream| {
            let file = Part::File { file: &FILE, range: 10..FILE_LEN };
            let sent = stream.respond(&[Part::Bytes(&pattern::bytes(0..10)), file]).await;
            match &sent {
                Ok(()) => stream.shutdown().await.unwrap(),
                Err(error) => stream.abort(error.alert().unwrap()).await,
            }
            sent
        });
        let mut client = support::connect(&serving, suite);
        let (by_key, data, alerts) = records_by_key(&mut client);
        pattern::assert_starts(&data, 0);
        // Neither KeyUpdate nor the last alert counts.
        assert!(by_key.iter().all(|&records| records <= LIMIT + 1), "{suite}: {by_key:?}");
        drop(client);
        let sent = serving.finish();
        if support::can_update(suite) {
            sent.unwrap();
            assert_eq!(data.len() as u64, FILE_LEN, "{suite}");
            assert!(by_key.len() >= 3, "{suite}: {by_key:?}");
            assert_eq!(alerts[0], Event::Alert(AlertDescription::CLOSE_NOTIFY));
        } else {
            assert!(matches!(sent, Err(Error::KeyExhausted)), "{suite}: {sent:?}");
            assert_eq!(alerts[0], Event::Alert(AlertDescription::INTERNAL_ERROR));
        }
    }
}

#[test]
fn a_connection_that_cannot_change_its_key_says_so_in_time() {
    for suite in Suite::all() {
        let serving = support::Server::new(limits()).serve(async |mut stream| {
            let mut sent = 0;
            while !stream.should_close() && sent < 3 * LIMIT {
                stream.respond(&[Part::Bytes(b"small")]).await.unwrap();
                sent += 1;
            }
            // The response being prepared is still sent.
            stream.respond(&[Part::Bytes(b"last.")]).await.unwrap();
            let mut failure = None;
            while failure.is_none() && sent < 3 * LIMIT {
                failure = stream.respond(&[Part::Bytes(b"small")]).await.err();
                sent += 1;
            }
            match &failure {
                None => stream.shutdown().await.unwrap(),
                Some(error) => stream.abort(error.alert().unwrap()).await,
            }
            (sent, failure)
        });
        let mut client = support::connect(&serving, suite);
        let (by_key, data, alerts) = records_by_key(&mut client);
        drop(client);
        let (sent, failure) = serving.finish();
        assert!(data.windows(5).any(|word| word == b"last."), "{suite}");
        if support::can_update(suite) {
            assert!(failure.is_none(), "{suite}: {failure:?}");
            assert_eq!(sent, 3 * LIMIT, "{suite}: it never wants to close");
            assert_eq!(data.len() as u64, (3 * LIMIT + 1) * 5, "{suite}");
            assert!(by_key.len() >= 3, "{suite}: {by_key:?}");
            assert_eq!(alerts[0], Event::Alert(AlertDescription::CLOSE_NOTIFY));
        } else {
            assert!(matches!(failure, Some(Error::KeyExhausted)), "{suite}: {failure:?}");
            assert!(by_key[0] <= LIMIT + 1, "{suite}: {by_key:?}");
            assert_eq!(alerts[0], Event::Alert(AlertDescription::INTERNAL_ERROR));
        }
    }
}
