//! KeyUpdate (RFC 8446 §4.6.3) as a client may send it, and as it must not.

use sealion_testkit::{Client, Suite};
use sealion_tls::record::{Aead, ContentType};
use sealion_tls::{AlertDescription, Error, Part, SealedBy, TlsStream, Version};

use super::broken_records::refused;
use crate::{SENDER, support};

const NOT_REQUESTED: [u8; 5] = [24, 0, 0, 1, 0];

fn tls13() -> impl Iterator<Item = Suite> {
    Aead::ALL.into_iter().map(|aead| Suite { version: Version::Tls13, aead })
}

/// Echoes every four bytes, and sends a large body after `mark`. Returns whether it wanted to close in the end.
async fn echo(mut stream: TlsStream) -> bool {
    let mut wanted_to_close = false;
    loop {
        while stream.buffered().len() < 4 {
            if stream.read_more().await.unwrap() == 0 {
                stream.shutdown().await.unwrap();
                return wanted_to_close;
            }
        }
        let word = support::take(&mut stream, 4).await.unwrap();
        let large = vec![7; if word == b"mark" { 300_000 } else { 0 }];
        stream.respond(&[Part::Bytes(&word), Part::Bytes(&large)]).await.unwrap();
        wanted_to_close = stream.should_close();
    }
}

fn say(client: &mut Client, word: &[u8; 4]) {
    client.send(word).unwrap();
    hear(client, word);
}

fn hear(client: &mut Client, word: &[u8; 4]) {
    assert_eq!(client.read(4).unwrap(), word);
    if word == b"mark" {
        assert!(client.read(300_000).unwrap().iter().all(|&byte| byte == 7));
    }
}

fn goodbye(mut client: Client) -> Client {
    client.close_notify().unwrap();
    let ending = client.read_to_end().unwrap();
    assert!(ending.data.is_empty());
    ending.assert_orderly();
    client
}

#[test]
fn a_requested_update_is_answered_before_the_next_data() {
    for suite in tls13() {
        let serving = support::Server::new(support::limits()).serve(echo);
        let mut client = support::connect(&serving, suite);
        say(&mut client, b"mark");
        for round in 1..4 {
            client.key_update(true).unwrap();
            if !support::can_update(suite) {
                break;
            }
            say(&mut client, b"mark");
            say(&mut client, b"more");
            assert_eq!(client.key_updates(), round, "{suite}");
        }
        drop(goodbye(client));
        assert!(!serving.finish(), "{suite}");
    }
}

/// RFC 8446 §4.6.3 requires the update before the next data, but a kernel before Linux 6.14 cannot make it.
#[test]
fn an_update_that_cannot_be_made_ends_the_connection_after_the_response_in_progress() {
    if support::can_update(Suite::TLS13) {
        return;
    }
    // Between responses: the connection ends at once, and data after the update gets no response.
    let serving = support::Server::new(support::limits()).serve(echo);
    let mut client = support::connect(&serving, Suite::TLS13);
    say(&mut client, b"ping");
    let mut bytes = client.seal(ContentType::ApplicationData, b"one.");
    bytes.extend(client.seal_key_update(true));
    bytes.extend(client.seal(ContentType::ApplicationData, b"two."));
    client.write(&bytes).unwrap();
    let ending = client.read_to_end().unwrap();
    assert!(ending.data.is_empty());
    ending.assert_orderly();
    drop(client);
    serving.finish();

    // During a response: the connection ends when the response is complete.
    let serving = support::Server::new(support::limits()).serve(async |mut stream| {
        stream.begin().await.unwrap();
        stream.send(&[Part::Bytes(b"half")]).await.unwrap();
        assert_eq!(support::take(&mut stream, 4).await.unwrap(), b"more");
        stream.send(&[Part::Bytes(b" and half")]).await.unwrap();
        stream.finish().unwrap();
        assert!(stream.should_close());
        assert_eq!(stream.read_more().await.unwrap(), 0);
        stream.shutdown().await.unwrap();
    });
    let mut client = support::connect(&serving, Suite::TLS13);
    assert_eq!(client.read(4).unwrap(), b"half");
    client.key_update(true).unwrap();
    client.send(b"more").unwrap();
    let ending = client.read_to_end().unwrap();
    assert_eq!(ending.data, b" and half");
    ending.assert_orderly();
    drop(client);
    serving.finish();
}

#[test]
fn an_update_without_request_is_followed_and_not_answered() {
    for suite in tls13() {
        let serving = support::Server::new(support::limits()).serve(echo);
        let mut client = support::connect(&serving, suite);
        for _ in 0..3 {
            client.key_update(false).unwrap();
            say(&mut client, b"mark");
        }
        assert_eq!(goodbye(client).key_updates(), 0, "{suite}");
        assert!(!serving.finish(), "{suite}: there is no reason to close");
    }
}

#[test]
fn an_update_may_come_in_pieces_and_with_its_neighbours() {
    let serving = support::Server::new(support::limits()).serve(echo);
    let mut client = support::connect(&serving, Suite::TLS13);
    for cut in 1..5 {
        // First both pieces in one write, then each in a write of its own with a pause for reading.
        for separately in [false, true] {
            let first = client.seal(ContentType::Handshake, &NOT_REQUESTED[..cut]);
            let second = client.seal(ContentType::Handshake, &NOT_REQUESTED[cut..]);
            client.next_sending_key();
            if separately {
                client.write(&first).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                client.write(&second).unwrap();
            } else {
                client.write(&[first, second].concat()).unwrap();
            }
            say(&mut client, b"ping");
        }
    }
    // Data, update, data, update, data: five records in one write.
    let mut bytes = client.seal(ContentType::ApplicationData, b"one.");
    bytes.extend(client.seal_key_update(false));
    bytes.extend(client.seal(ContentType::ApplicationData, b"two."));
    bytes.extend(client.seal_key_update(false));
    bytes.extend(client.seal(ContentType::ApplicationData, b"tri."));
    client.write(&bytes).unwrap();
    for word in [b"one.", b"two.", b"tri."] {
        hear(&mut client, word);
    }
    drop(goodbye(client));
    serving.finish();
}

#[test]
fn many_requests_are_answered_once() {
    let serving = support::Server::new(support::limits()).serve(echo);
    let mut client = support::connect(&serving, Suite::TLS13);
    say(&mut client, b"ping");
    if !support::can_update(Suite::TLS13) {
        drop(goodbye(client));
        serving.finish();
        return;
    }
    // Two rounds: the data between them resets the limit.
    for round in 1..3 {
        let mut bytes = Vec::new();
        for _ in 0..32 {
            bytes.extend(client.seal_key_update(true));
        }
        bytes.extend(client.seal(ContentType::ApplicationData, b"mark"));
        client.write(&bytes).unwrap();
        hear(&mut client, b"mark");
        assert_eq!(client.key_updates(), round);
    }
    drop(goodbye(client));
    assert!(!serving.finish());
}

#[test]
fn a_storm_of_updates_is_refused() {
    for requested in [false, true] {
        refused(Suite::TLS13, AlertDescription::UNEXPECTED_MESSAGE, |client| {
            (0..33).flat_map(|_| client.seal_key_update(requested)).collect()
        });
    }
}

#[test]
fn malformed_updates_are_refused() {
    let cases: [(&[u8], AlertDescription); 8] = [
        (&[24, 0, 0, 1, 2], AlertDescription::ILLEGAL_PARAMETER),
        (&[24, 0, 0, 2, 0, 0], AlertDescription::DECODE_ERROR),
        (&[24, 0, 0, 0], AlertDescription::DECODE_ERROR),
        // The second message would have to be under the next key.
        (&[24, 0, 0, 1, 0, 24, 0, 0, 1, 0], AlertDescription::UNEXPECTED_MESSAGE),
        (&[24, 0, 0, 1, 0, 0], AlertDescription::UNEXPECTED_MESSAGE),
        // ClientHello, NewSessionTicket: no client may send them now.
        (&[1, 0, 0, 1, 0], AlertDescription::UNEXPECTED_MESSAGE),
        (&[4, 0, 0, 1, 0], AlertDescription::UNEXPECTED_MESSAGE),
        (&[], AlertDescription::UNEXPECTED_MESSAGE),
    ];
    for (message, alert) in cases {
        refused(Suite::TLS13, alert, |client| client.seal(ContentType::Handshake, message));
    }
}

#[test]
fn data_inside_an_update_is_refused() {
    refused(Suite::TLS13, AlertDescription::UNEXPECTED_MESSAGE, |client| {
        let mut bytes = client.seal(ContentType::Handshake, &NOT_REQUESTED[..3]);
        bytes.extend(client.seal(ContentType::ApplicationData, b"in between"));
        bytes
    });
}

#[test]
fn data_under_the_old_key_is_refused() {
    refused(Suite::TLS13, AlertDescription::BAD_RECORD_MAC, |client| {
        let mut bytes = client.seal(ContentType::Handshake, &NOT_REQUESTED);
        bytes.extend(client.seal(ContentType::ApplicationData, b"still the old key"));
        bytes
    });
}

#[test]
fn tls12_does_not_renegotiate() {
    for aead in Aead::ALL {
        let suite = Suite { version: Version::Tls12, aead };
        // The beginning of a ClientHello.
        let error = refused(suite, AlertDescription::NO_RENEGOTIATION, |client| {
            client.seal(ContentType::Handshake, &[1, 0, 0, 2, 3, 3])
        });
        assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    }
}

#[test]
fn the_path_is_the_one_under_test() {
    let serving = support::Server::new(support::limits()).serve(async |stream: TlsStream| stream.path());
    drop(support::connect(&serving, Suite::TLS13));
    let expected = match SENDER {
        SealedBy::Nobody => "plain",
        SealedBy::User => "user",
        SealedBy::Kernel => "kernel",
    };
    assert_eq!(serving.finish().as_str(), expected);
}
