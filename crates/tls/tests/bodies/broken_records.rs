//! Records that no correct client sends. The server responds to each with the alert of the RFC, on either path.

use sealion_testkit::{Client, Suite};
use sealion_tls::record::ContentType;
use sealion_tls::{AlertDescription, Error, Part, Version};

use crate::support;

/// Sends the bytes of `make` after a working exchange, asserts that the server responds with `alert` and FIN only, and
/// returns the server's error.
pub(super) fn refused(suite: Suite, alert: AlertDescription, make: impl FnOnce(&mut Client) -> Vec<u8>) -> Error {
    let serving = support::Server::new(support::limits()).serve(async |mut stream| {
        support::take(&mut stream, 4).await.unwrap();
        stream.respond(&[Part::Bytes(b"pong")]).await.unwrap();
        let (_, result) = support::read_to_end(&mut stream).await;
        let error = result.expect_err("the server refuses what came");
        if let Some(alert) = error.alert() {
            stream.abort(alert).await;
        }
        error
    });
    let mut client = support::connect(&serving, suite);
    client.send(b"ping").unwrap();
    assert_eq!(client.read(4).unwrap(), b"pong");
    let bytes = make(&mut client);
    client.write(&bytes).unwrap();
    let ending = client.read_to_end().unwrap();
    assert!(ending.data.is_empty());
    ending.assert_alert(alert);
    drop(client);
    serving.finish()
}

#[test]
fn a_changed_bit_anywhere_behind_the_header() {
    for suite in Suite::all() {
        for from_end in [1, 17, 60] {
            let error = refused(suite, AlertDescription::BAD_RECORD_MAC, |client| {
                let mut record = client.seal(ContentType::ApplicationData, &[5; 50]);
                let at = record.len() - from_end;
                record[at] ^= 0x10;
                record
            });
            assert!(matches!(error, Error::Record(_)), "{error:?}");
        }
    }
}

#[test]
fn a_record_that_was_left_out() {
    for suite in Suite::all() {
        refused(suite, AlertDescription::BAD_RECORD_MAC, |client| {
            drop(client.seal(ContentType::ApplicationData, b"lost"));
            client.seal(ContentType::ApplicationData, b"next")
        });
    }
}

#[test]
fn a_record_shorter_than_its_tag() {
    for suite in Suite::all() {
        refused(suite, AlertDescription::BAD_RECORD_MAC, |_| vec![23, 3, 3, 0, 4, 1, 2, 3, 4]);
    }
}

#[test]
fn a_header_that_announces_too_much() {
    for (suite, len) in [(Suite::TLS13, 16_384u16 + 257), (Suite::TLS12, 16_384 + 2_049)] {
        // The body need not arrive before the rejection.
        let [hi, lo] = len.to_be_bytes();
        refused(suite, AlertDescription::RECORD_OVERFLOW, |_| vec![23, 3, 3, hi, lo]);
    }
}

#[test]
fn a_record_with_too_much_inside() {
    for suite in Suite::all() {
        refused(suite, AlertDescription::RECORD_OVERFLOW, |client| match suite.version {
            Version::Tls13 => {
                let mut inner = vec![1; 16_385];
                inner.push(23);
                client.seal_inner(23, &inner)
            }
            Version::Tls12 => client.seal_inner(23, &[1; 16_385]),
        });
    }
}

/// RFC 8446 §5.4: the whole inner plaintext counts, including type and padding.
#[test]
fn a_record_with_too_much_padding() {
    refused(Suite::TLS13, AlertDescription::RECORD_OVERFLOW, |client| {
        client.seal_padded(ContentType::ApplicationData, b"x", 16_384)
    });
}

#[test]
fn types_that_cannot_come() {
    let alert = AlertDescription::UNEXPECTED_MESSAGE;
    for outer in [0u8, 24, 99, b'G'] {
        for suite in [Suite::TLS13, Suite::TLS12] {
            refused(suite, alert, |_| vec![outer, 3, 3, 0, 1, 1]);
        }
    }
    // RFC 8446 §5: everything is protected by now, so the outer type is application data.
    for outer in [20u8, 21, 22] {
        refused(Suite::TLS13, alert, |_| vec![outer, 3, 3, 0, 2, 1, 0]);
    }
    for inner in [20u8, 24, 99] {
        refused(Suite::TLS13, alert, |client| client.seal_inner(23, &[1, inner]));
    }
    // Padding without a type.
    for inner in [&[][..], &[0; 100]] {
        refused(Suite::TLS13, alert, |client| client.seal_inner(23, inner));
    }
    refused(Suite::TLS12, alert, |client| client.seal_inner(20, &[1]));
}

#[test]
fn a_version_that_is_none() {
    refused(Suite::TLS12, AlertDescription::DECODE_ERROR, |_| vec![23, 2, 0, 0, 20]);
    // RFC 8446 §5.1: the version is ignored. It is authenticated with the record, which is not sealed here.
    let unsealed = [&[23, 2, 0, 0, 20][..], &[0; 20]].concat();
    refused(Suite::TLS13, AlertDescription::BAD_RECORD_MAC, |_| unsealed);
}

#[test]
fn an_alert_of_the_wrong_length() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        for payload in [&[1][..], &[1, 0, 0], &[]] {
            refused(suite, AlertDescription::DECODE_ERROR, |client| client.seal(ContentType::Alert, payload));
        }
    }
}

#[test]
fn a_storm_of_empty_records() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        refused(suite, AlertDescription::UNEXPECTED_MESSAGE, |client| {
            (0..33).flat_map(|_| client.seal(ContentType::ApplicationData, b"")).collect()
        });
    }
    refused(Suite::TLS13, AlertDescription::UNEXPECTED_MESSAGE, |client| {
        (0..33).flat_map(|_| client.seal_padded(ContentType::ApplicationData, b"", 100)).collect()
    });
    // Warnings without a meaning for the server.
    for (suite, warning) in [(Suite::TLS12, [1, 112]), (Suite::TLS13, [1, 90])] {
        refused(suite, AlertDescription::UNEXPECTED_MESSAGE, |client| {
            (0..33).flat_map(|_| client.seal(ContentType::Alert, &warning)).collect()
        });
    }
}

#[test]
fn a_fatal_alert_ends_the_connection_without_an_answer() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let serving =
            support::Server::new(support::limits()).serve(async |mut stream| support::read_to_end(&mut stream).await.1);
        let mut client = support::connect(&serving, suite);
        client.alert(AlertDescription::BAD_CERTIFICATE).unwrap();
        let error = serving.finish().unwrap_err();
        assert!(matches!(error, Error::PeerAlert(AlertDescription::BAD_CERTIFICATE)), "{suite}: {error:?}");
        assert_eq!(error.alert(), None);
    }
}

#[test]
fn what_looks_odd_but_is_allowed() {
    for suite in Suite::all() {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            let received = support::take(&mut stream, 16_384 + 10).await.unwrap();
            stream.respond(&[Part::Bytes(&received)]).await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        let mut sent = Vec::new();
        // As many empty records as allowed, then a full record, and ten of one byte.
        for _ in 0..32 {
            sent.extend(client.seal(ContentType::ApplicationData, b""));
        }
        sent.extend(client.seal(ContentType::ApplicationData, &[3; 16_384]));
        if suite.version == Version::Tls13 {
            // As much padding as allowed.
            sent.extend(client.seal_padded(ContentType::ApplicationData, b"", 16_384));
        }
        for byte in 0..10 {
            let zeros = if suite.version == Version::Tls13 { 255 * usize::from(byte) } else { 0 };
            sent.extend(client.seal_padded(ContentType::ApplicationData, &[byte], zeros));
        }
        // In pieces that end anywhere.
        for piece in sent.chunks(997) {
            client.write(piece).unwrap();
        }
        let body = client.read(16_384 + 10).unwrap();
        assert!(body[..16_384].iter().all(|&byte| byte == 3), "{suite}");
        assert_eq!(body[16_384..], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "{suite}");
        serving.finish();
    }
}
