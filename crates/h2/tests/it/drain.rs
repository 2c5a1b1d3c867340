//! The end of a connection (RFC 9113 §6.8).

use sealion_h2::{ErrorCode, Limits};

use crate::support::*;

#[test]
fn a_drain_takes_two_go_aways() {
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    server.connection.drain();
    server.connection.drain();
    let control = server.control();
    assert_eq!(control.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [GOAWAY, PING]);
    assert_eq!((control[0].number(), control[0].code()), ((1 << 31) - 1, ErrorCode::NO_ERROR));
    // Requests that crossed the GOAWAY get responses.
    assert!(matches!(server.receive(&get(3)).unwrap()[..], [Seen::Request { stream: 3, .. }]));
    server.receive(&frame(PING, ACK, 0, b"whatever")).unwrap();
    assert!(server.control().is_empty());
    server.receive(&frame(PING, ACK, 0, &control[1].payload)).unwrap();
    let last = server.control();
    assert_eq!((last.len(), last[0].kind, last[0].number()), (1, GOAWAY, 3));
    assert!(!server.connection.is_drained());
    // Later requests do not, and cost no frame.
    assert_eq!(server.receive(&get(5)).unwrap(), [Seen::Refused(5)]);
    assert_eq!(server.receive(&frame(DATA, 0, 5, b"a")).unwrap(), []);
    assert!(server.control().is_empty());
    server.complete(1);
    server.complete(3);
    assert!(server.connection.is_drained() && server.connection.wants_read());
    server.connection.close(ErrorCode::NO_ERROR, "drained");
    assert_eq!(server.control()[0].number(), 3, "the number in GOAWAY never rises");
}

#[test]
fn a_drain_can_be_cut_short() {
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    server.connection.drain();
    server.connection.drain_now();
    server.connection.drain_now();
    let control = server.control();
    assert_eq!(control.iter().map(|frame| frame.kind).collect::<Vec<_>>(), [GOAWAY, PING, GOAWAY]);
    assert_eq!(control[2].number(), 1);
    server.receive(&frame(PING, ACK, 0, &control[1].payload)).unwrap();
    assert!(server.control().is_empty());
}

#[test]
fn a_client_that_goes_away_is_answered_to_the_end() {
    let mut server = Server::new(Limits::default());
    let goaway = frame(GOAWAY, 0, 0, &[&[0; 8][..], b"because"].concat());
    server.receive(&get(1)).unwrap();
    assert_eq!(server.receive(&goaway).unwrap(), [Seen::GoAway(ErrorCode::NO_ERROR)]);
    server.respond(1, 10);
    assert_eq!(server.content(), [(1, 10, true)]);
    assert!(server.connection.is_idle());
}

#[test]
fn a_deadline_ends_the_connection_with_its_code() {
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    server.connection.close(ErrorCode::SETTINGS_TIMEOUT, "the client did not acknowledge SETTINGS in time");
    let control = server.control();
    assert_eq!((control[0].kind, control[0].number(), control[0].code()), (GOAWAY, 1, ErrorCode::SETTINGS_TIMEOUT));
    assert!(!server.connection.wants_read());
    server.receive(&get(3)).unwrap_err();
}

#[test]
fn pings_and_settings_are_answered_in_order() {
    let mut server = Server::new(Limits::default());
    assert!(!server.connection.settings_acknowledged());
    let events = server.receive_all(&[
        frame(PING, 0, 0, b"12345678"),
        settings(&[]),
        frame(SETTINGS, ACK, 0, &[]),
        frame(99, 0xff, 7, b"x"),
    ]);
    assert_eq!(events.unwrap(), [Seen::SettingsAcknowledged]);
    assert!(server.connection.settings_acknowledged() && !server.connection.wants_read());
    assert_eq!(server.control(), frames(&[frame(PING, ACK, 0, b"12345678"), frame(SETTINGS, ACK, 0, &[])].concat()));
    assert!(server.connection.wants_read());
}
