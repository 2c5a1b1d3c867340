//! Peers that take little or nothing.

use std::time::Duration;

use sealion_testkit::{Connector, Suite, pattern};
use sealion_tls::{Error, LeastRate, Limits, Part};

use crate::support::{self, FILE, FILE_LEN, PKI};

fn whole_file_often() -> [Part<'static>; 5] {
    std::array::from_fn(|_| Part::File { file: &FILE, range: 0..FILE_LEN })
}

#[test]
fn a_peer_that_takes_nothing_is_given_up_and_holds_up_nobody() {
    for suite in Suite::all() {
        let limits = Limits { stall: Duration::from_millis(500), ..support::limits() };
        let serving = support::Server::new(limits).serve_handshakes(2, async |accepted| {
            let mut streams: Vec<_> = accepted.into_iter().map(Result::unwrap).collect();
            let (mut lively, mut stalled) = (streams.pop().unwrap(), streams.pop().unwrap());
            support::prepare(&mut lively).await;
            support::prepare(&mut stalled).await;
            let parts = whole_file_often();
            let echo = async {
                for _ in 0..50 {
                    let word = support::take(&mut lively, 4).await.unwrap();
                    lively.respond(&[Part::Bytes(&word)]).await.unwrap();
                }
                lively
            };
            let (sent, lively) = tokio::join!(stalled.respond(&parts), echo);
            (sent, lively, stalled)
        });
        let connector = Connector::new(&PKI, suite);
        let mut silent = connector.clone().receive_buffer(4_096).connect(serving.address);
        let mut lively = support::connect_with(&connector, &serving);
        for _ in 0..50 {
            lively.send(b"ping").unwrap();
            assert_eq!(lively.read(4).unwrap(), b"ping");
        }
        let (sent, _, stalled) = serving.finish();
        assert!(matches!(sent, Err(Error::Stalled(_))), "{suite}: {sent:?}");
        drop(stalled);
        // With FIN, the kernel would keep the rest until the peer reads it.
        let end = (0..FILE_LEN).find_map(|_| silent.read(1).err()).expect("the response is cut");
        assert!(end.to_string().starts_with("Reset"), "{suite}: {end}");
    }
}

/// The whole response takes longer than a peer may stall, but no single pause does.
#[test]
fn a_slow_peer_is_not_a_stalled_one() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let stall = Duration::from_secs(2);
        let limits = Limits { stall, ..support::limits() };
        let serving = support::Server::new(limits).serve(async |mut stream| {
            stream.respond(&whole_file_often()).await?;
            stream.shutdown().await
        });
        let connector = Connector::new(&PKI, suite).receive_buffer(65_536);
        let mut client = support::connect_with(&connector, &serving);
        let started = std::time::Instant::now();
        let mut at = 0;
        while at + 200_000 < FILE_LEN * 5 && started.elapsed() < stall * 2 {
            let body = client.read(200_000).expect("the server goes on while we read");
            at += body.len() as u64;
            std::thread::sleep(stall / 20);
        }
        let rest = client.read_to_end().unwrap();
        rest.assert_orderly();
        assert_eq!(at + rest.data.len() as u64, FILE_LEN * 5, "{suite}");
        drop(client);
        serving.finish().unwrap();
    }
}

/// The peer takes something before each check, but less than required.
#[test]
fn a_peer_that_takes_a_trickle_is_given_up() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let least_rate = LeastRate { bytes_per_second: 100 << 20, window: Duration::from_millis(500) };
        let limits = Limits { least_rate: Some(least_rate), ..support::limits() };
        let serving = support::Server::new(limits)
            .serve(async |mut stream| (stream.respond(&whole_file_often()).await, stream.shutdown().await));
        let connector = Connector::new(&PKI, suite).receive_buffer(65_536);
        let mut client = support::connect_with(&connector, &serving);
        while !serving.is_finished() {
            // Fails when the server has timed out.
            let _ = client.read(1000);
            std::thread::sleep(Duration::from_millis(10));
        }
        let (sent, closed) = serving.finish();
        assert!(matches!(sent, Err(Error::TooSlow { .. })), "{suite}: {sent:?}");
        assert!(matches!(closed, Err(Error::Unfinished)), "{suite}: {closed:?}");
    }
}

/// Closing after a send that waited does not wait once more.
#[test]
fn a_body_is_whole_after_every_kind_of_pause() {
    for pause in [0, 1, 10, 100] {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            stream.respond(&[Part::File { file: &FILE, range: 1..FILE_LEN }]).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let connector = Connector::new(&PKI, Suite::TLS13).receive_buffer(16_384);
        let mut client = support::connect_with(&connector, &serving);
        let mut body = Vec::new();
        for _ in 0..20 {
            body.extend(client.read(10_001).unwrap());
            std::thread::sleep(Duration::from_millis(pause));
        }
        let rest = client.read_to_end().unwrap();
        rest.assert_orderly();
        body.extend(rest.data);
        pattern::assert_equal(&body, 1..FILE_LEN);
        drop(client);
        serving.finish();
    }
}
