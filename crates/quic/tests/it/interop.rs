//! The cases of quic-interop-runner, by the names in docs/http3.md. Those that need more than a transport are tests of the server.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::quic::ServerConnection;
use rustls::server::ClientHello;
use rustls::{CipherSuite, HandshakeKind};
use sealion_quic::{Config, Endpoint, Handshake, Handshakes, Limits, Secrets, TlsConfig};

use crate::network::{IDENTITY, Identity, Network, client_config, route, rustls_config, rustls_config_of};

/// One configuration for all clients. The result of a handshake is its kind and its suite.
#[derive(Clone)]
struct Observed(Arc<rustls::ServerConfig>);

type Outcome = (Option<HandshakeKind>, Option<CipherSuite>);

impl Handshakes for Observed {
    fn needs_client_hello(&self) -> bool {
        false
    }

    fn begin(&self, _hello: Option<&ClientHello<'_>>) -> Option<Box<dyn Handshake>> {
        Some(Box::new(self.clone()))
    }
}

impl Handshake for Observed {
    fn config(&self) -> Arc<rustls::ServerConfig> {
        self.0.clone()
    }

    fn result(&self, connection: &ServerConnection) -> Option<Box<dyn Any + Send>> {
        let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
        let outcome: Outcome = (connection.handshake_kind(), suite);
        Some(Box::new(outcome))
    }
}

fn network(config: rustls::ServerConfig) -> Network {
    let mut network = Network::new(Limits::default());
    let tls = TlsConfig::chosen_by(Arc::new(Observed(Arc::new(config)))).unwrap();
    let config = Config { tls, limits: Limits::default(), secrets: Secrets::random(), route: route() };
    network.server.endpoint = Endpoint::new(config, network.now, SystemTime::UNIX_EPOCH);
    network
}

fn outcome(network: &mut Network, client: usize) -> Outcome {
    let key = network.server.keys[client];
    network.server.endpoint.connection(key).unwrap().handshake_result().expect("the handshake has ended")
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 253) as u8).collect()
}

/// The client sends content, and has it back.
fn echo(network: &mut Network, client: usize, length: usize) {
    let stream = network.clients[client].send(content(length));
    network.run(|network| network.clients[client].received[&stream].1);
    assert!(network.clients[client].received[&stream].0 == content(length));
}

#[test]
fn longrtt() {
    let mut network = Network::new(Limits::default());
    network.delay = 750;
    let client = network.connected();
    echo(&mut network, client, 300_000);
    let key = network.server.keys[client];
    assert!(network.server.endpoint.connection(key).unwrap().round_trip() >= Duration::from_millis(1500));
}

#[test]
fn chacha20() {
    let mut provider = default_provider();
    provider.cipher_suites = vec![cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    let mut network = network(rustls_config_of(&IDENTITY, provider));
    let client = network.connected();
    echo(&mut network, client, 100_000);
    let suite = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    assert_eq!(outcome(&mut network, client), (Some(HandshakeKind::Full), Some(suite)));
}

/// More streams than are permitted at a time.
#[test]
fn multiplexing() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    let mut streams = Vec::new();
    network.run(|network| {
        while streams.len() < 1000
            && let Some(stream) = network.clients[client].try_send(content(100))
        {
            streams.push(stream);
        }
        assert!(streams.len() >= 100);
        streams.len() == 1000 && network.clients[client].received.values().all(|(_, ended)| *ended)
    });
    assert!(streams.iter().all(|stream| network.clients[client].received[stream].0 == content(100)));
}

#[test]
fn retry() {
    let mut network = Network::new(Limits { unvalidated: 0, ..Limits::default() });
    let client = network.connected();
    assert_eq!(network.server.endpoint.totals().retries, 1);
    echo(&mut network, client, 100_000);
}

#[test]
fn resumption() {
    let mut network = network(rustls_config());
    network.client_config = Some(client_config(&IDENTITY));
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let client = network.connected();
        assert_eq!(outcome(&mut network, client).0, Some(kind));
        // The ticket comes.
        echo(&mut network, client, 1000);
    }
}

#[test]
fn blackhole() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    let stream = network.clients[client].send(content(1_000_000));
    network.run(|network| network.clients[client].received[&stream].0.len() > 200_000);
    network.loss = 1000;
    network.run_for(Duration::from_secs(5));
    let before = network.clients[client].received[&stream].0.len();
    assert!(before < 1_000_000);
    network.loss = 0;
    network.run(|network| network.clients[client].received[&stream].1);
    assert!(network.clients[client].received[&stream].0 == content(1_000_000));
}

#[test]
fn keyupdate() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    for _ in 0..3 {
        echo(&mut network, client, 50_000);
        network.clients[client].connection.force_key_update();
    }
    echo(&mut network, client, 50_000);
}

/// Routers that mark packets slow the server as losses do.
#[test]
fn ecn() {
    let [unmarked, marked] = [0, 20].map(|marks| {
        let mut network = Network::new(Limits::default());
        network.marks = marks;
        let client = network.connected();
        echo(&mut network, client, 1_000_000);
        assert_eq!(network.server.endpoint.totals().lost_bytes, 0);
        let key = network.server.keys[client];
        network.server.endpoint.connection(key).unwrap().congestion_window()
    });
    assert!(marked < unmarked / 2, "{marked}, {unmarked}");
}

/// The certificate is longer than a client without a validated address may be sent.
#[test]
fn amplificationlimit() {
    let names = (0..300).map(|number| format!("{number}.example")).chain(["a.example".to_owned()]);
    let identity = Identity::for_names(names);
    let mut network = network(rustls_config_of(&identity, default_provider()));
    network.client_config = Some(client_config(&identity));
    let client = network.connect();
    network.run(|network| !network.server.transmits.is_empty());
    let sent = |network: &Network| network.server.transmits.iter().map(|transmit| transmit.size).sum::<usize>();
    // The client's replies are lost, and both sides go on after it.
    network.loss = 1000;
    network.run_for(Duration::from_millis(500));
    let before = sent(&network);
    assert!(before > 1200 && before <= 3 * 1200, "{before}");
    network.loss = 0;
    network.run(|network| network.clients[client].is_connected());
    assert!(sent(&network) > 3 * 1200, "the certificate is long");
    echo(&mut network, client, 10_000);
}

#[test]
fn corruption() {
    for seed in 1..6 {
        let mut network = Network::new(Limits::default());
        (network.random.0, network.corruption) = (seed, 20 * seed);
        let client = network.connected();
        echo(&mut network, client, 200_000);
        assert!(network.server.endpoint.totals().lost_bytes > 0);
    }
}

/// The client knows nothing of its new address, as behind a router.
#[test]
fn rebind_addr() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    echo(&mut network, client, 1000);
    let address = network.relocate(client);
    echo(&mut network, client, 200_000);
    let key = network.server.keys[client];
    assert_eq!(network.server.endpoint.connection(key).unwrap().remote(), address);
}

/// The client changes its address, and with it the connection ID.
#[test]
fn connectionmigration() {
    let mut network = Network::new(Limits::default());
    let client = network.connected();
    echo(&mut network, client, 1000);
    let address = network.relocate(client);
    network.clients[client].connection.local_address_changed();
    echo(&mut network, client, 200_000);
    let key = network.server.keys[client];
    let connection = network.server.endpoint.connection(key).unwrap();
    assert_eq!((connection.remote(), connection.statistics().retired_ids), (address, 1));
}
