//! Packets for this endpoint and for others at the same address.

use std::time::Duration;

use sealion_quic::{CONNECTION_ID_LEN, Limits, Route, SHARES};

use crate::network::{Network, route};

/// The connection ID that the server chose, as a client's packets carry it.
fn id_of_server(network: &mut Network) -> Vec<u8> {
    // The source connection ID of a long header (RFC 8999 §5.1).
    let (_, datagram) = network.stray.iter().find(|(_, datagram)| datagram[0] & 0x80 != 0).expect("a handshake");
    let length = usize::from(datagram[5]);
    let at = 6 + length;
    assert_eq!(usize::from(datagram[at]), CONNECTION_ID_LEN);
    datagram[at + 1..][..CONNECTION_ID_LEN].to_vec()
}

fn short_packet(id: &[u8]) -> Vec<u8> {
    [&[0x40], id, &[0x55; 60]].concat()
}

#[test]
fn connection_ids_lead_back_to_their_endpoint() {
    let mut network = Network::new(Limits::default());
    let first = network.first_datagram();
    network.send(None, "203.0.113.1:1".parse().unwrap(), None, &first);
    network.run_for(Duration::from_millis(50));
    let id = id_of_server(&mut network);
    assert_eq!(route().steer(&short_packet(&id)), Some(route().slot()));
    let successor = Route { share: 1, ..route() };
    assert_eq!(successor.steer(&short_packet(&id)), Some(route().slot()), "until the connection ends");
    assert_eq!(successor.steer(&first).map(|slot| slot >= 4), Some(true), "new ones go to the successor");
}

/// A stateless reset for a packet that strayed would end a connection that is alive elsewhere.
#[test]
fn packets_of_other_endpoints_connections_cause_nothing() {
    let mut network = Network::new(Limits::default());
    let address = "203.0.113.1:1".parse().unwrap();
    let slots = SHARES * route().workers;
    for word in 0..u32::from(u8::MAX) {
        network.now += Duration::from_secs(1);
        let id = [word.to_be_bytes(), [9; 4]].concat();
        network.send(None, address, None, &short_packet(&id));
        network.run_for(Duration::from_millis(100));
        let is_own = word % slots == route().slot();
        assert_eq!(std::mem::take(&mut network.stray).len(), usize::from(is_own), "a stateless reset for {word}");
    }
}
