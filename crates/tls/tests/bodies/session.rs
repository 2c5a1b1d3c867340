//! Responses sent piece by piece.

use std::future::poll_fn;

use sealion_testkit::{Client, Connector, Suite, pattern};
use sealion_tls::{AlertDescription, Error, Part, Source, TlsStream};

use crate::support::{self, FILE, FILE_LEN, PKI};

/// Ends of the pieces of [`FILE`]: nothing, a byte, part of a record, full records, several turns.
const ENDS: [u64; 6] = [0, 1, 5_000, 5_000 + 16_384, 200_000, FILE_LEN];

fn file(start: u64, end: u64) -> Part<'static> {
    Part::File { file: &FILE, range: start..end }
}

/// Waits for the client's message.
async fn word(stream: &mut TlsStream) {
    assert_eq!(support::take(stream, 2).await.unwrap(), b"ok");
}

/// The client has each piece before the next is sent.
fn read_pieces(client: &mut Client) {
    let mut start = 0;
    for end in ENDS {
        pattern::assert_equal(&client.read((end - start) as usize).unwrap(), start..end);
        client.send(b"ok").unwrap();
        start = end;
    }
}

#[test]
fn every_send_of_a_response_arrives_before_the_next() {
    for suite in Suite::all() {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            for in_memory in [false, true] {
                let bytes = pattern::bytes(0..FILE_LEN);
                stream.begin().await.unwrap();
                let mut start = 0;
                for end in ENDS {
                    let memory = Part::Bytes(&bytes[start as usize..end as usize]);
                    let piece = if in_memory { memory } else { file(start, end) };
                    stream.send(&[piece]).await.unwrap();
                    word(&mut stream).await;
                    start = end;
                }
                stream.finish().unwrap();
            }
            assert_eq!(stream.payload_sent(), 2 * FILE_LEN);
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        read_pieces(&mut client);
        read_pieces(&mut client);
        client.read_to_end().unwrap().assert_orderly();
        drop(client);
        serving.finish();
    }
}

#[test]
fn calls_out_of_order_are_refused_and_change_nothing() {
    fn refused(done: Result<(), Error>) {
        assert!(matches!(done, Err(Error::Unfinished)), "{done:?}");
    }
    for suite in [Suite::TLS13, Suite::TLS12] {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            refused(stream.finish());
            refused(stream.send(&[Part::Bytes(b"before it began")]).await);
            stream.begin().await.unwrap();
            stream.send(&[Part::Bytes(b"one, ")]).await.unwrap();
            refused(stream.begin().await);
            refused(stream.respond(&[Part::Bytes(b"another")]).await);
            refused(stream.shutdown().await);
            stream.send(&[Part::Bytes(b"two")]).await.unwrap();
            stream.finish().unwrap();
            refused(stream.finish());
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        let ending = client.read_to_end().unwrap();
        assert_eq!(ending.data, b"one, two");
        ending.assert_orderly();
        drop(client);
        serving.finish();
    }
}

#[test]
fn a_response_without_its_end_ends_in_an_alert() {
    for suite in Suite::all() {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            stream.begin().await.unwrap();
            stream.send(&[Part::Bytes(b"head"), file(0, 100_000)]).await.unwrap();
            let shutdown = stream.shutdown().await;
            assert!(matches!(shutdown, Err(Error::Unfinished)), "{shutdown:?}");
            stream.abort(AlertDescription::INTERNAL_ERROR).await;
        });
        let mut client = support::connect(&serving, suite);
        let ending = client.read_to_end().unwrap();
        ending.assert_alert(AlertDescription::INTERNAL_ERROR);
        assert_eq!(ending.data.len(), 100_004);
        drop(client);
        serving.finish();
    }
}

/// A protocol with many responses per connection continues without the response whose file is too short, unless a frame
/// was begun.
#[test]
fn a_send_of_frames_that_fails_because_of_a_file_can_be_followed_by_another() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            stream.begin().await.unwrap();
            let parts = [Part::Bytes(b"a frame's head"), file(FILE_LEN - 10, FILE_LEN + 1)];
            let mut source = Source::frames(&parts, 16_384);
            let error = poll_fn(|cx| stream.poll_send(cx, &mut source)).await.unwrap_err();
            assert!(matches!(error, Error::FileShrank { .. }), "{error:?}");
            let unread = stream.resume(&source).expect("it is because of a file");
            assert!(unread.sent == 0 && std::ptr::eq(unread.file, &*FILE), "{unread:?}");
            assert!(stream.resume(&source).is_none(), "it goes on already");
            stream.send(&[Part::Bytes(b"another frame")]).await.unwrap();
            stream.finish().unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        let ending = client.read_to_end().unwrap();
        ending.assert_orderly();
        assert_eq!(ending.data, b"another frame", "{suite}");
        drop(client);
        serving.finish();
    }
}

#[test]
fn a_send_that_fails_leaves_no_way_to_finish() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            stream.begin().await.unwrap();
            let error = stream.send(&[file(0, FILE_LEN + 1)]).await.unwrap_err();
            assert!(matches!(error, Error::FileShrank { .. }), "{error:?}");
            let next = stream.send(&[Part::Bytes(b"more")]).await;
            assert!(matches!(next, Err(Error::Unfinished)), "{next:?}");
            assert!(matches!(stream.finish(), Err(Error::Unfinished)));
            stream.abort(error.alert().unwrap()).await;
        });
        let mut client = support::connect(&serving, suite);
        client.read_to_end().unwrap().assert_alert(AlertDescription::INTERNAL_ERROR);
        drop(client);
        serving.finish();
    }
}

#[test]
fn an_update_requested_within_a_response_is_answered_before_its_next_data() {
    for suite in Suite::all().into_iter().filter(|&suite| suite.version == sealion_tls::Version::Tls13) {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            stream.begin().await.unwrap();
            for _ in 0..3 {
                stream.send(&[file(0, 50_000)]).await.unwrap();
                word(&mut stream).await;
            }
            stream.send(&[Part::Bytes(b"end")]).await.unwrap();
            stream.finish().unwrap();
            let wants_to_close = stream.should_close();
            stream.shutdown().await.unwrap();
            wants_to_close
        });
        let connector = Connector::new(&PKI, suite);
        let mut client = support::connect_with(&connector, &serving);
        for round in 0..3 {
            pattern::assert_equal(&client.read(50_000).unwrap(), 0..50_000);
            assert_eq!(client.key_updates(), if support::can_update(suite) { round } else { 0 });
            client.key_update(true).unwrap();
            client.send(b"ok").unwrap();
        }
        assert_eq!(client.read(3).unwrap(), b"end");
        client.read_to_end().unwrap().assert_orderly();
        drop(client);
        assert_eq!(serving.finish(), !support::can_update(suite), "{suite}");
    }
}
