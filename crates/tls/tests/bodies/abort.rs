//! Responses that cannot be finished: the client must notice.

use std::fs::File;

use sealion_testkit::{Connector, Suite, pattern};
use sealion_tls::{AlertDescription, Error, Part, TlsStream};
use tokio::sync::oneshot;

use crate::support::{self, FILE, FILE_LEN, PKI};

#[test]
fn a_file_shorter_than_promised() {
    for suite in Suite::all() {
        for (start, len) in [(FILE_LEN - 100, 101), (FILE_LEN - 100_000, 100_001), (FILE_LEN, 1)] {
            let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
                let file = Part::File { file: &FILE, range: start..start + len };
                let head = pattern::bytes(start - 7..start);
                let error = stream.respond(&[Part::Bytes(&head), file]).await.unwrap_err();
                stream.abort(error.alert().unwrap()).await;
                error
            });
            let mut client = support::connect(&serving, suite);
            let ending = client.read_to_end().unwrap();
            ending.assert_alert(AlertDescription::INTERNAL_ERROR);
            pattern::assert_starts(&ending.data, start - 7);
            assert!(ending.data.len() as u64 <= 7 + FILE_LEN - start, "{suite}");
            drop(client);
            match serving.finish() {
                Error::FileShrank { at, end } => {
                    assert_eq!((at, end), (FILE_LEN, start + len), "{suite}");
                }
                other => panic!("{suite}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_file_truncated_while_it_is_sent() {
    const LEN: u64 = 12 << 20;
    for (round, suite) in [Suite::TLS13, Suite::TLS12].into_iter().enumerate() {
        let path = PKI.directory().join(format!("truncated-{round}"));
        let file = pattern::file(&path, LEN);
        let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
            let part = Part::File { file: &file, range: 0..LEN };
            let error = stream.respond(&[part]).await.unwrap_err();
            stream.abort(error.alert().unwrap()).await;
            error
        });
        // A small window: the server waits for the client in the middle of the file.
        let connector = Connector::new(&PKI, suite).receive_buffer(8_192);
        let mut client = support::connect_with(&connector, &serving);
        pattern::assert_equal(&client.read(100_000).unwrap(), 0..100_000);
        // After all bytes that can be in flight, inside a page.
        let shorter = LEN - (1 << 20) - 1_234;
        File::options().write(true).open(&path).unwrap().set_len(shorter).unwrap();
        let ending = client.read_to_end().unwrap();
        ending.assert_alert(AlertDescription::INTERNAL_ERROR);
        pattern::assert_starts(&ending.data, 100_000);
        drop(client);
        match serving.finish() {
            Error::FileShrank { at, end } => assert_eq!((at, end), (shorter, LEN), "{suite}"),
            other => panic!("{suite}: {other:?}"),
        }
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_read() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        for len in [100, 100_000] {
            let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
                // A directory opens and cannot be read.
                let file = File::open(PKI.directory()).unwrap();
                let part = Part::File { file: &file, range: 0..len };
                let error = stream.respond(&[Part::Bytes(b"head"), part]).await.unwrap_err();
                if let Some(alert) = error.alert() {
                    stream.abort(alert).await;
                }
                error
            });
            let mut client = support::connect(&serving, suite);
            let ending = client.read_to_end().unwrap();
            drop(client);
            let error = serving.finish();
            assert!(matches!(error, Error::File(_)), "{suite} {len}: {error:?}");
            ending.assert_alert(AlertDescription::INTERNAL_ERROR);
        }
    }
}

#[test]
fn a_send_that_was_dropped_leaves_the_stream_unfinished() {
    for suite in Suite::all() {
        let (dropped, when_dropped) = std::sync::mpsc::channel();
        let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
            let (_keep, never) = oneshot::channel::<()>();
            drop_in_the_middle(&mut stream, never).await;
            dropped.send(()).unwrap();
            let again = stream.respond(&[Part::Bytes(b"again")]).await;
            assert!(matches!(again, Err(Error::Unfinished)), "{again:?}");
            let shutdown = stream.shutdown().await;
            assert!(matches!(shutdown, Err(Error::Unfinished)), "{shutdown:?}");
            stream.abort(AlertDescription::INTERNAL_ERROR).await;
        });
        let connector = Connector::new(&PKI, suite).receive_buffer(8_192);
        let mut client = support::connect_with(&connector, &serving);
        when_dropped.recv().unwrap();
        let ending = client.read_to_end().unwrap();
        ending.assert_alert(AlertDescription::INTERNAL_ERROR);
        // The file arrived several times.
        ending.data.chunks(FILE_LEN as usize).for_each(|body| pattern::assert_starts(body, 0));
        drop(client);
        serving.finish();
    }
}

/// Begins sends until TCP takes no more, then drops the send that waits.
async fn drop_in_the_middle(stream: &mut TlsStream, never: oneshot::Receiver<()>) {
    let whole = Part::File { file: &FILE, range: 0..FILE_LEN };
    let parts = [whole.clone(), whole.clone(), whole.clone(), whole];
    tokio::select! {
        biased;
        sent = stream.respond(&parts) => panic!("a peer that does not read took it all: {sent:?}"),
        _ = never => {}
        () = tokio::time::sleep(std::time::Duration::from_millis(300)) => {}
    }
}
