//! Sending and receiving at once, and waiting for a peer that leaves.

use std::future::poll_fn;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use sealion_testkit::{Connector, Suite, pattern};
use sealion_tls::{AlertDescription, Error, Limits, Part, Source};

use crate::support::{self, FILE, FILE_LEN, PKI};

/// More bytes than sockets take from a sender whose peer does not read.
fn megabytes() -> [Part<'static>; 5] {
    std::array::from_fn(|_| Part::File { file: &FILE, range: 0..FILE_LEN })
}

/// Long enough to fill TCP and put the server's task to sleep.
fn let_tcp_fill_up() {
    std::thread::sleep(Duration::from_millis(300));
}

/// The peer reads nothing before the server has received its data, including a key update.
#[test]
fn what_a_peer_sends_is_seen_while_a_send_waits_for_it() {
    for suite in Suite::all() {
        let (tell, told) = mpsc::channel();
        let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
            let parts = megabytes();
            let mut source = Source::new(&parts);
            stream.begin().await.unwrap();
            let mut seen = false;
            poll_fn(|cx| {
                while let Poll::Ready(came) = stream.poll_read_more(cx) {
                    assert_ne!(came.unwrap(), 0, "the client stays");
                }
                if !seen && stream.buffered() == b"WINDOW_UPDATE" {
                    seen = true;
                    tell.send(stream.payload_sent()).unwrap();
                }
                stream.poll_send(cx, &mut source)
            })
            .await
            .unwrap();
            stream.finish().unwrap();
            assert!(seen);
            stream.shutdown().await.unwrap();
        });
        let connector = Connector::new(&PKI, suite).receive_buffer(8_192);
        let mut client = support::connect_with(&connector, &serving);
        let_tcp_fill_up();
        let updates = suite.version == sealion_tls::Version::Tls13;
        client.send(b"WINDOW").unwrap();
        if updates {
            client.key_update(true).unwrap();
        }
        client.send(b"_UPDATE").unwrap();
        let sent = told.recv().expect("seen without a byte being read");
        assert!(0 < sent && sent < 5 * FILE_LEN, "{suite}: {sent}");
        let ending = client.read_to_end().unwrap();
        ending.assert_orderly();
        assert_eq!(ending.data.len() as u64, 5 * FILE_LEN);
        ending.data.chunks(FILE_LEN as usize).for_each(|body| pattern::assert_equal(body, 0..FILE_LEN));
        assert_eq!(client.key_updates(), usize::from(updates && support::can_update(suite)), "{suite}");
        drop(client);
        serving.finish();
    }
}

/// Receiving does not count as progress of sending.
#[test]
fn a_peer_that_sends_and_takes_nothing_is_stalled() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let limits = Limits { stall: Duration::from_millis(500), ..support::limits() };
        let serving = support::Server::new(limits).serve(async |mut stream| {
            let parts = megabytes();
            let mut source = Source::new(&parts);
            stream.begin().await.unwrap();
            poll_fn(|cx| {
                while let Poll::Ready(came) = stream.poll_read_more(cx) {
                    assert_ne!(came.unwrap(), 0, "the client stays");
                }
                stream.poll_send(cx, &mut source)
            })
            .await
        });
        let connector = Connector::new(&PKI, suite).receive_buffer(4_096);
        let mut client = support::connect_with(&connector, &serving);
        while !serving.is_finished() {
            // The server may be gone by now.
            let _ = client.send(b"ping");
            std::thread::sleep(Duration::from_millis(20));
        }
        let sent = serving.finish();
        assert!(matches!(sent, Err(Error::Stalled(_))), "{suite}: {sent:?}");
    }
}

#[test]
fn a_source_that_was_dropped_is_not_replaced_by_another() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let (dropped, when_dropped) = mpsc::channel();
        let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
            let parts = megabytes();
            let mut source = Source::new(&parts);
            stream.begin().await.unwrap();
            let send = poll_fn(|cx| stream.poll_send(cx, &mut source));
            let sent = tokio::time::timeout(Duration::from_millis(300), send).await;
            assert!(sent.is_err(), "a peer that does not read took it all: {sent:?}");
            dropped.send(()).unwrap();
            let next = stream.send(&[Part::Bytes(b"next")]).await;
            assert!(matches!(next, Err(Error::Unfinished)), "{next:?}");
            assert!(matches!(stream.finish(), Err(Error::Unfinished)));
            stream.abort(AlertDescription::INTERNAL_ERROR).await;
        });
        let connector = Connector::new(&PKI, suite).receive_buffer(8_192);
        let mut client = support::connect_with(&connector, &serving);
        when_dropped.recv().unwrap();
        let ending = client.read_to_end().unwrap();
        ending.assert_alert(AlertDescription::INTERNAL_ERROR);
        ending.data.chunks(FILE_LEN as usize).for_each(|body| pattern::assert_starts(body, 0));
        drop(client);
        serving.finish();
    }
}

#[test]
fn a_peer_that_leaves_is_noticed_behind_what_it_sent() {
    for suite in Suite::all() {
        for how in ["close_notify", "FIN", "RST"] {
            let (tell, told) = mpsc::channel();
            let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
                let early = tokio::time::timeout(Duration::from_millis(50), stream.peer_gone()).await;
                assert!(early.is_err(), "it has not left: {early:?}");
                tell.send(()).unwrap();
                let gone = stream.peer_gone().await;
                assert_eq!(stream.buffered(), b"request", "nothing is lost");
                // A peer that closed only one direction is still there.
                let answered = stream.respond(&[Part::Bytes(b"answer")]).await;
                if how != "RST" {
                    answered.unwrap();
                    stream.shutdown().await.unwrap();
                }
                gone
            });
            let mut client = support::connect(&serving, suite);
            client.send(b"requ").unwrap();
            told.recv().unwrap();
            client.send(b"est").unwrap();
            // The data is read before the reset can overtake it.
            let_tcp_fill_up();
            match how {
                "close_notify" => client.close_notify().unwrap(),
                "FIN" => client.fin().unwrap(),
                _ => {
                    client.reset().unwrap();
                    let gone = serving.finish();
                    assert!(matches!(gone, Err(Error::Io(_))), "{suite}: {gone:?}");
                    continue;
                }
            }
            let ending = client.read_to_end().unwrap();
            ending.assert_orderly();
            assert_eq!(ending.data, b"answer");
            drop(client);
            let gone = serving.finish();
            match how {
                "FIN" => assert!(matches!(gone, Err(Error::Truncated)), "{suite}: {gone:?}"),
                _ => gone.unwrap(),
            }
        }
    }
}

#[test]
fn a_peer_that_sends_on_is_read_up_to_a_bound_and_no_further() {
    const LEN: u64 = 1 << 20;
    let serving = support::Server::new(support::limits()).serve(async |mut stream| {
        // As long as the client needs to send so much, on an emulated machine that others keep busy.
        let kept = loop {
            let early = tokio::time::timeout(Duration::from_millis(300), stream.peer_gone()).await;
            assert!(early.is_err(), "its end lies behind the bound: {early:?}");
            match stream.buffered().len() {
                0..16_384 => {}
                kept => break kept,
            }
        };
        assert!(kept < 65_536, "{kept}");
        let (all, ended) = support::read_to_end(&mut stream).await;
        ended.unwrap();
        pattern::assert_equal(&all, 0..LEN);
        stream.peer_gone().await.unwrap();
    });
    let mut client = support::connect(&serving, Suite::TLS13);
    client.send(&pattern::bytes(0..LEN)).unwrap();
    client.close_notify().unwrap();
    serving.finish();
}
