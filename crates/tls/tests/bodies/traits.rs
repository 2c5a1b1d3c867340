//! The stream as tokio's AsyncRead and AsyncWrite.

use std::io;

use sealion_testkit::{Suite, pattern};
use sealion_tls::Part;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support;

const LEN: u64 = 700_001;

#[test]
fn copy_in_both_directions() {
    for suite in Suite::all() {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            let mut received = Vec::new();
            tokio::io::copy(&mut stream, &mut received).await.unwrap();
            tokio::io::copy(&mut &received[..], &mut stream).await.unwrap();
            stream.flush().await.unwrap();
            AsyncWriteExt::shutdown(&mut stream).await.unwrap();
            // The client's FIN follows its close_notify.
            drop(stream);
        });
        let mut client = support::connect(&serving, suite);
        client.send(&pattern::bytes(0..LEN)).unwrap();
        client.close_notify().unwrap();
        client.fin().unwrap();
        let ending = client.read_to_end().unwrap();
        pattern::assert_equal(&ending.data, 0..LEN);
        ending.assert_orderly();
        serving.finish();
    }
}

#[test]
fn writes_reads_and_responses_mix() {
    for suite in Suite::all() {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            for round in 0..40u64 {
                let mut word = [0; 3];
                stream.read_exact(&mut word).await.unwrap();
                assert_eq!(word, *b"go\n");
                let at = round * 20_000;
                stream.write_all(&pattern::bytes(at..at + 1)).await.unwrap();
                let body = pattern::bytes(at + 1..at + 10_000);
                stream.respond(&[Part::Bytes(&body)]).await.unwrap();
                stream.write_all(&pattern::bytes(at + 10_000..at + 20_000)).await.unwrap();
                stream.flush().await.unwrap();
            }
            assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 0, "close_notify is the end");
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        for round in 0..40 {
            // One record for two reads, and vice versa.
            match round % 2 {
                0 => client.send_records(&[b"g", b"o", b"\n"]).unwrap(),
                _ => client.send(b"go\n").unwrap(),
            }
            let body = client.read(20_000).unwrap();
            pattern::assert_equal(&body, round * 20_000..(round + 1) * 20_000);
        }
        client.close_notify().unwrap();
        client.read_to_end().unwrap().assert_orderly();
        drop(client);
        serving.finish();
    }
}

#[test]
fn a_key_is_updated_between_writes() {
    let limits = sealion_tls::Limits { records_per_key: 20, ..support::limits() };
    let suite = Suite::TLS13;
    let serving = support::Server::new(limits).serve(async |mut stream| {
        for at in 0..100 {
            if let Err(error) = stream.write_all(&pattern::bytes(at..at + 1)).await {
                return (at, Err(error));
            }
        }
        (100, AsyncWriteExt::shutdown(&mut stream).await)
    });
    let mut client = support::connect(&serving, suite);
    let ending = client.read_to_end().unwrap();
    pattern::assert_starts(&ending.data, 0);
    let (written, result) = serving.finish();
    assert_eq!(ending.data.len() as u64, written);
    if support::can_update(suite) {
        result.unwrap();
        ending.assert_orderly();
        assert!(client.key_updates() >= 4, "{}", client.key_updates());
    } else {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Other);
        assert!((10..=20).contains(&written), "{written}");
    }
}

#[test]
fn truncation_is_an_error_of_reading() {
    let serving = support::Server::new(support::limits()).serve(async |mut stream| {
        let mut received = Vec::new();
        (stream.read_to_end(&mut received).await.unwrap_err().kind(), received)
    });
    let mut client = support::connect(&serving, Suite::TLS12);
    client.send(b"half a requ").unwrap();
    client.fin().unwrap();
    assert_eq!(serving.finish(), (io::ErrorKind::UnexpectedEof, b"half a requ".to_vec()));
}

/// `close_notify` would tell the peer that the data is complete.
#[test]
fn nothing_is_called_complete_after_a_write_that_failed() {
    let suite = Suite::TLS13;
    let limits = sealion_tls::Limits { stall: std::time::Duration::from_millis(300), ..support::limits() };
    let (failed, has_failed) = std::sync::mpsc::channel();
    let serving = support::Server::new(limits).serve(async move |mut stream| {
        let piece = vec![7; 1 << 20];
        let mut written = Ok(());
        for _ in 0..20 {
            written = stream.write_all(&piece).await;
            if written.is_err() {
                break;
            }
        }
        failed.send(()).unwrap();
        (written, AsyncWriteExt::shutdown(&mut stream).await)
    });
    let connector = sealion_testkit::Connector::new(&support::PKI, suite).receive_buffer(4096);
    let mut client = support::connect_with(&connector, &serving);
    has_failed.recv().unwrap();
    if let Ok(ending) = client.read_to_end() {
        assert!(
            !ending.events.iter().any(|event| matches!(event, sealion_testkit::Event::Alert(_))),
            "it is not complete"
        );
    }
    let (written, shut_down) = serving.finish();
    assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(shut_down.unwrap_err().to_string().contains("not sent to its end"));
}
