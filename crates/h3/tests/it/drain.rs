//! The end of a connection (RFC 9114 §5.2).

use sealion_h3::{ErrorCode, Limits, Opened};

use crate::support::*;

#[test]
fn requests_under_way_are_served_until_the_second_goaway() {
    let mut server = Server::new(Limits::default());
    server.get(0);
    server.connection.drain();
    server.connection.drain();
    assert_eq!(server.control(), frame(GOAWAY, &varint((1 << 62) - 4)));
    server.get(4);
    assert!(!server.connection.is_drained());
    server.connection.drain_now();
    server.connection.drain_now();
    assert_eq!(server.control(), frame(GOAWAY, &[8]));
    assert_eq!(server.open(8), Ok(Opened::Refused));
    let code = ErrorCode::H3_REQUEST_REJECTED;
    assert_eq!(server.commands(), [reset(8, code), stop(8, code)]);
    server.complete(0);
    assert!(!server.connection.is_drained());
    server.complete(4);
    assert!(server.connection.is_drained());
}

#[test]
fn a_connection_without_requests_drains_at_once() {
    let mut server = Server::new(Limits::default());
    server.connection.drain_now();
    assert_eq!(server.control(), frame(GOAWAY, &[0]));
    assert!(server.connection.is_drained());
}
