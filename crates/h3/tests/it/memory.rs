//! Input of a client costs memory only within the limits.

use sealion_h3::{Limits, StreamId};

use crate::support::*;

#[test]
fn an_idle_connection_is_small() {
    let mut server = Server::new(Limits::default());
    for number in 0..100 {
        server.get(number * 4);
    }
    for number in 0..100 {
        server.complete(number * 4);
    }
    server.commands();
    server.connection.shrink();
    assert!(server.connection.memory() < 2000, "{}", server.connection.memory());
}

#[test]
fn all_that_a_client_can_leave_behind_is_bounded() {
    let limits = Limits::default();
    let mut server = Server::new(limits.clone());
    for number in 0..limits.streams.into() {
        server.open(number * 4).unwrap();
        server.receive(number * 4, &[&varint(HEADERS)[..], &varint(30_000), &[0; 1000]].concat()).unwrap();
    }
    for number in 1..16 {
        server.open(CONTROL + number * 4).unwrap();
        server.receive(CONTROL + number * 4, &[0xc0, 0, 0]).unwrap();
    }
    server.receive(CONTROL, &[&varint(PRIORITY_UPDATE)[..], &varint(1000), &[0; 900]].concat()).unwrap();
    assert!(server.connection.memory() < 5 * limits.head + 64 * 1024, "{}", server.connection.memory());
    for number in 0..limits.streams.into() {
        server.cancelled(number * 4).unwrap();
        server.commands();
    }
    server.connection.shrink();
    assert!(server.connection.is_idle() && server.connection.memory() < 8000, "{}", server.connection.memory());
}

#[test]
fn content_is_not_kept() {
    let mut server = Server::new(Limits::default());
    server.open(0).unwrap();
    server.receive(0, &headers(&POST)).unwrap();
    for _ in 0..1000 {
        server.receive(0, &frame(DATA, &[7; 5000])).unwrap();
    }
    server.connection.release(StreamId::new(0));
    assert!(server.connection.memory() < 4000, "{}", server.connection.memory());
}
