//! The life of a connection: handshake, end, drain.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::ConnectionError;
use sealion_quic::{CloseReason, Event, Limits, TlsConfig, UnusableTls};

use crate::network::{Network, code, rustls_config};

fn closed(network: &Network) -> Vec<CloseReason> {
    let reasons = network.server.events.iter().filter_map(|(_, event)| match event {
        Event::Closed(reason) => Some((**reason).clone()),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn a_handshake_tells_who_and_what_was_asked_for() {
    let mut network = Network::new(Limits::default());
    network.connected();
    let key = network.server.keys[0];
    network.run(|network| network.server.events.contains(&(key, Event::Connected)));
    let now = network.now;
    let connection = network.server.endpoint.connection(key).unwrap();
    assert_eq!(connection.server_name().as_deref(), Some("a.example"));
    assert_eq!(connection.protocol().as_deref(), Some(&b"h3"[..]));
    assert_eq!((connection.is_handshaking(), connection.peer_certificates()), (false, None));
    assert_eq!(connection.local(), Some(crate::network::SERVER.ip()));
    let statistics = connection.statistics();
    assert!(statistics.sent > 1200 && statistics.received > 1200 && statistics.congestion_window > 0, "{statistics:?}");
    assert!((10..100).contains(&connection.round_trip().as_millis()));
    assert!(network.server.endpoint.next_timeout().unwrap() > now);
}

#[test]
fn early_data_is_refused_by_the_configuration() {
    let mut config = rustls_config();
    config.max_early_data_size = u32::MAX;
    assert_eq!(TlsConfig::try_from(Arc::new(config)).unwrap_err(), UnusableTls::EarlyData);
}

#[test]
fn a_client_that_closes_is_told_with_its_code() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    let now = network.now;
    network.clients[client].connection.close(now, code(0x100), b"bye"[..].into());
    network.run(|network| !closed(network).is_empty());
    let reason = CloseReason::ClosedByApplication { code: 0x100, reason: b"bye"[..].into() };
    assert_eq!(closed(&network), [reason]);
    assert!(network.server.endpoint.connection(network.server.keys[0]).is_none(), "the key is not valid any more");
}

#[test]
fn a_server_that_closes_is_not_told() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    let (now, key) = (network.now, network.server.keys[0]);
    network.server.endpoint.close(now, key, 0x107, b"too much");
    network.server.endpoint.close(now, key, 0x100, b"once");
    network.run(|network| network.clients[client].lost().is_some());
    match network.clients[client].lost() {
        Some(ConnectionError::ApplicationClosed(close)) => {
            assert_eq!((close.error_code, &close.reason[..]), (code(0x107), &b"too much"[..]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(closed(&network), []);
    network.run_for(Duration::from_secs(5));
    assert_eq!(network.server.endpoint.connections(), 0, "late packets were waited for");
    network.connected();
    assert_eq!(network.server.keys, [key, key], "the key is used again");
}

#[test]
fn silence_ends_a_connection() {
    let mut network = Network::new(Limits { idle: Duration::from_secs(20), ..Limits::default() });
    network.connected();
    network.loss = 1000;
    network.run_for(Duration::from_secs(19));
    assert_eq!(closed(&network), []);
    network.run_for(Duration::from_secs(60));
    assert_eq!(closed(&network), [CloseReason::TimedOut]);
    assert_eq!(network.server.endpoint.connections(), 0);
}

#[test]
fn a_handshake_has_its_time() {
    let mut network = Network::new(Limits { handshake: Duration::from_secs(3), ..Limits::default() });
    let first = network.first_datagram();
    network.send(None, "203.0.113.1:1".parse().unwrap(), None, &first);
    network.run_for(Duration::from_secs(2));
    assert_eq!((network.server.keys.len(), closed(&network)), (1, vec![]));
    network.run_for(Duration::from_secs(2));
    assert_eq!(closed(&network), [CloseReason::HandshakeTimedOut]);
    network.run_for(Duration::from_secs(20));
    assert_eq!(network.server.endpoint.connections(), 0);
}

#[test]
fn a_server_that_drains_serves_its_clients_and_refuses_new_ones() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    network.server.accepts = false;
    let waiting = network.connect();
    network.run_for(Duration::from_millis(100));
    network.server.endpoint.refuse_new();
    let late = network.connect();
    for refused in [waiting, late] {
        network.run(|network| network.clients[refused].lost().is_some());
        match network.clients[refused].lost() {
            Some(ConnectionError::ConnectionClosed(close)) => assert_eq!(u64::from(close.error_code), 2),
            other => panic!("{other:?}"),
        }
    }
    let stream = network.clients[client].send(vec![7; 50_000]);
    network.run(|network| network.clients[client].received[&stream].1);
    let now = network.now;
    assert_eq!(network.server.endpoint.keys().count(), 1);
    network.server.endpoint.close_all(now, 0x100, b"");
    network.run(|network| network.clients[client].lost().is_some());
    assert_eq!(network.server.endpoint.keys().count(), 0);
}
