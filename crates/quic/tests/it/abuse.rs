//! Clients that cost more than they pay (RFC 9000 §21).

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use quinn_proto::ConnectionError;
use sealion_quic::{Limits, Secrets};

use crate::network::Network;

fn spoofed(number: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(203, 0, 113, (number % 250) as u8).into(), 1000 + number)
}

/// Sends the first packets of clients with spoofed addresses.
fn flood(network: &mut Network, count: u16) {
    for number in 0..count {
        let first = network.first_datagram();
        network.send(None, spoofed(number), None, &first);
    }
    network.run_for(Duration::from_millis(50));
}

/// The type of a packet with a long header.
fn kind(datagram: &[u8]) -> Option<u8> {
    (datagram[0] & 0x80 != 0).then(|| datagram[0] >> 4 & 3)
}

const RETRY: u8 = 3;

#[test]
fn clients_without_a_validated_address_take_few_places() {
    let mut network = Network::new(Limits { unvalidated: 10, ..Limits::default() });
    flood(&mut network, 50);
    assert_eq!(network.server.endpoint.connections(), 10);
    let retried = network.stray.iter().filter(|(_, datagram)| kind(datagram) == Some(RETRY)).count();
    assert_eq!((retried, network.server.endpoint.totals().retries), (40, 40));
    // A real client passes, by a round trip more.
    network.connected();
    assert_eq!(network.server.endpoint.connections(), 11);
    // The places become free when their handshakes end.
    network.run_for(Duration::from_secs(30));
    network.stray.clear();
    flood(&mut network, 5);
    assert!(network.stray.iter().all(|(_, datagram)| kind(datagram) != Some(RETRY)));
}

#[test]
fn clients_that_wait_for_the_driver_count_too() {
    let mut network = Network::new(Limits { unvalidated: 10, incoming: 20, ..Limits::default() });
    network.server.accepts = false;
    flood(&mut network, 50);
    assert_eq!(network.server.endpoint.connections(), 0);
    assert_eq!(network.stray.len(), 40);
    let mut waiting = 0;
    while let Some(incoming) = network.server.endpoint.next_incoming() {
        assert!(!incoming.is_validated());
        assert_eq!(incoming.local(), Some(crate::network::SERVER.ip()));
        network.server.endpoint.ignore(incoming);
        waiting += 1;
    }
    assert_eq!(waiting, 10);
    network.stray.clear();
    flood(&mut network, 10);
    assert_eq!(network.stray.len(), 0, "all places are free");
}

#[test]
fn the_queue_of_new_clients_is_bounded() {
    let mut network = Network::new(Limits { incoming: 20, ..Limits::default() });
    network.server.accepts = false;
    flood(&mut network, 50);
    let waiting = std::iter::from_fn(|| network.server.endpoint.next_incoming());
    let waiting: Vec<_> = waiting.collect();
    assert_eq!(waiting.len(), 20);
    waiting.into_iter().for_each(|incoming| network.server.endpoint.ignore(incoming));
}

#[test]
fn no_more_connections_than_the_limit() {
    let mut network = Network::new(Limits { connections: 1, ..Limits::default() });
    network.connected();
    let refused = network.connect();
    network.run(|network| network.clients[refused].lost().is_some());
    assert!(matches!(network.clients[refused].lost(), Some(ConnectionError::ConnectionClosed(_))));
}

/// RFC 9000 §8.1: at most three times what a client with an unvalidated address has sent.
#[test]
fn a_spoofed_address_gets_little() {
    let mut network = Network::new(Limits::default());
    let first = network.first_datagram();
    network.send(None, spoofed(1), None, &first);
    network.run_for(Duration::from_secs(60));
    let sent: usize = network.stray.iter().map(|(_, datagram)| datagram.len()).sum();
    assert!(sent > 0 && sent <= 3 * first.len(), "{sent} for {}", first.len());
}

/// A fleet behind one address shares the secrets.
#[test]
fn a_token_is_valid_at_all_endpoints_that_share_the_secrets() {
    let shared = Secrets::random();
    for (secrets, passes) in [(shared.clone(), true), (Secrets::random(), false)] {
        let mut network = Network::with_secrets(Limits { unvalidated: 0, ..Limits::default() }, shared.clone());
        let client = network.connect();
        // The Retry of the first endpoint arrives; then another one takes over.
        network.run(|network| network.server.transmits.len() == 1);
        network.server.endpoint =
            crate::network::endpoint(Limits { unvalidated: 0, ..Limits::default() }, secrets, network.now);
        network.run_for(Duration::from_secs(5));
        assert_eq!(network.clients[client].is_connected(), passes);
    }
}

#[test]
fn garbage_causes_nothing() {
    let mut network = Network::new(Limits::default());
    for length in 0..1500usize {
        let bytes: Vec<u8> = (0..length).map(|_| network.random.below(256) as u8).collect();
        network.send(None, spoofed(length as u16), None, &bytes);
    }
    network.run_for(Duration::from_secs(1));
    assert_eq!(network.server.endpoint.connections(), 0);
    let sent: usize = network.stray.iter().map(|(_, datagram)| datagram.len()).sum();
    assert!(sent < 1500 * 750, "less than arrived: {sent}");
    network.connected();
}
