//! The sending side moves into the kernel in the middle of a connection.

use std::sync::LazyLock;

use sealion_testkit::ktls::expect_tx_sw_delta;
use sealion_testkit::{Client, Connector, Suite, pattern};
use sealion_tls::record::{Aead, ContentType};
use sealion_tls::{Limits, MoveError, Part, SealedBy, TlsStream, Version};

use crate::support::{self, FILE, FILE_LEN, PKI, Server};

async fn small(stream: &mut TlsStream, at: u64) {
    stream.respond(&[Part::Bytes(&pattern::bytes(at..at + 700))]).await.unwrap();
}

async fn large(stream: &mut TlsStream, at: u64) {
    let head = pattern::bytes(at..at + 333);
    let file = Part::File { file: &FILE, range: at + 333..at + 1_500_001 };
    stream.respond(&[Part::Bytes(&head), file]).await.unwrap();
}

fn read_small(client: &mut Client, at: u64) {
    pattern::assert_equal(&client.read(700).unwrap(), at..at + 700);
}

fn read_large(client: &mut Client, at: u64) {
    pattern::assert_equal(&client.read(1_500_001).unwrap(), at..at + 1_500_001);
}

#[test]
fn small_and_large_responses_around_the_move() {
    // The probe that it runs changes the counters too.
    LazyLock::force(&support::KERNEL_REKEYS);
    for suite in Suite::all() {
        expect_tx_sw_delta(1, || {
            let serving = Server::new(support::limits()).serve_unmoved(async |mut stream| {
                for at in 0..5 {
                    small(&mut stream, at).await;
                }
                assert_eq!(stream.path(), SealedBy::User);
                stream.move_to_kernel(1_500_001).await.unwrap();
                assert_eq!(stream.path(), SealedBy::Kernel);
                large(&mut stream, 5).await;
                small(&mut stream, 6).await;
                large(&mut stream, 7).await;
                stream.shutdown().await.unwrap();
            });
            let mut client = support::connect(&serving, suite);
            for at in 0..5 {
                read_small(&mut client, at);
            }
            read_large(&mut client, 5);
            read_small(&mut client, 6);
            read_large(&mut client, 7);
            let ending = client.read_to_end().unwrap();
            assert!(ending.data.is_empty());
            ending.assert_orderly();
            let lengths = client.data_lengths(0);
            assert_eq!(lengths[..5], [700; 5]);
            assert!(lengths[6..].contains(&700), "the small one between the large ones has its own record");
            if suite.has_explicit_nonce() {
                client.tap().assert_nonces_distinct(1 + 6 + 2 * 92 + 1);
            }
            drop(client);
            serving.finish();
        });
    }
}

#[test]
fn requests_that_came_early_and_half_a_record_survive_the_move() {
    for suite in Suite::all() {
        let serving = Server::new(support::limits()).serve_unmoved(async |mut stream| {
            assert_eq!(support::take(&mut stream, 3).await.unwrap(), b"one");
            stream.move_to_kernel(FILE_LEN).await.unwrap();
            large(&mut stream, 0).await;
            assert_eq!(support::take(&mut stream, 3).await.unwrap(), b"two");
            small(&mut stream, 1).await;
            assert_eq!(support::take(&mut stream, 5).await.unwrap(), b"three");
            large(&mut stream, 2).await;
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        let mut bytes = client.seal(ContentType::ApplicationData, b"one");
        bytes.extend(client.seal(ContentType::ApplicationData, b"two"));
        let third = client.seal(ContentType::ApplicationData, b"three");
        bytes.extend(&third[..7]);
        client.write(&bytes).unwrap();
        read_large(&mut client, 0);
        read_small(&mut client, 1);
        client.write(&third[7..]).unwrap();
        read_large(&mut client, 2);
        client.read_to_end().unwrap().assert_orderly();
        drop(client);
        serving.finish();
    }
}

/// Even a kernel that cannot change keys takes over with new keys.
#[test]
fn an_update_requested_before_the_move_is_answered_from_user_space() {
    for aead in Aead::ALL {
        let suite = Suite { version: Version::Tls13, aead };
        let serving = Server::new(support::limits()).serve_unmoved(async |mut stream| {
            small(&mut stream, 0).await;
            assert_eq!(support::take(&mut stream, 2).await.unwrap(), b"go");
            stream.move_to_kernel(FILE_LEN).await.unwrap();
            assert!(!stream.should_close());
            large(&mut stream, 1).await;
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        read_small(&mut client, 0);
        client.key_update(true).unwrap();
        client.send(b"go").unwrap();
        read_large(&mut client, 1);
        assert_eq!(client.key_updates(), 1);
        client.read_to_end().unwrap().assert_orderly();
        drop(client);
        serving.finish();
    }
}

#[test]
fn a_connection_moves_once() {
    let serving = Server::new(support::limits()).serve_unmoved(async |mut stream| {
        stream.move_to_kernel(0).await.unwrap();
        let again = stream.move_to_kernel(0).await;
        assert!(matches!(again, Err(MoveError::AlreadyMoved)), "{again:?}");
        large(&mut stream, 0).await;
    });
    let mut client = support::connect(&serving, Suite::TLS13);
    read_large(&mut client, 0);
    serving.finish();
}

#[test]
fn a_peer_that_has_closed_its_half_is_served_from_user_space() {
    LazyLock::force(&support::KERNEL_REKEYS);
    for suite in Suite::all() {
        expect_tx_sw_delta(0, || {
            let serving = Server::new(support::limits()).serve_unmoved(async |mut stream| {
                let (request, result) = support::read_to_end(&mut stream).await;
                result.unwrap();
                assert_eq!(request, b"last");
                // close_notify and FIN may arrive in two segments.
                stream.socket().readable().await.unwrap();
                let moved = stream.move_to_kernel(FILE_LEN).await;
                assert!(matches!(moved, Err(MoveError::Refused(_))), "{moved:?}");
                large(&mut stream, 0).await;
                stream.shutdown().await.unwrap();
            });
            let mut client = support::connect(&serving, suite);
            let mut bytes = client.seal(ContentType::ApplicationData, b"last");
            bytes.extend(client.seal(ContentType::Alert, &[1, 0]));
            // Corked, so that FIN travels with the data.
            socket2::SockRef::from(client.socket()).set_tcp_cork(true).unwrap();
            client.write(&bytes).unwrap();
            client.fin().unwrap();
            let ending = client.read_to_end().unwrap();
            pattern::assert_equal(&ending.data, 0..1_500_001);
            ending.assert_orderly();
            drop(client);
            serving.finish();
        });
    }
}

#[test]
fn a_resumed_connection_moves_too() {
    for suite in Suite::all() {
        let server = Server::new(support::limits());
        let connector = Connector::new(&PKI, suite);
        for round in 0..2 {
            let serving = server.serve(async move |mut stream| {
                assert_eq!(stream.info().unwrap().resumed, round > 0);
                large(&mut stream, 9).await;
                stream.shutdown().await.unwrap();
            });
            let mut client = connector.connect(serving.address);
            read_large(&mut client, 9);
            client.read_to_end().unwrap().assert_orderly();
            if suite.has_explicit_nonce() {
                client.tap().assert_nonces_distinct(1 + 92 + 1);
            }
            drop(client);
            serving.finish();
        }
    }
}

#[test]
fn a_key_that_would_wear_out_on_the_way_stays() {
    for suite in Suite::all() {
        let limits = Limits { records_per_key: 300, ..support::limits() };
        let serving = Server::new(limits).serve_unmoved(async move |mut stream| {
            // Fewer than 100 records are left.
            for _ in 0..200 {
                small(&mut stream, 0).await;
            }
            let moved = stream.move_to_kernel(2 << 20).await;
            if support::can_update(suite) {
                moved.unwrap();
            } else {
                assert!(matches!(moved, Err(MoveError::KeyWorn)), "{moved:?}");
                assert_eq!(stream.path(), SealedBy::User);
                stream.move_to_kernel(1_000_000).await.unwrap();
            }
            small(&mut stream, 0).await;
            assert_eq!(stream.path(), SealedBy::Kernel);
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        let ending = client.read_to_end().unwrap();
        ending.assert_orderly();
        drop(client);
        serving.finish();
    }
}
