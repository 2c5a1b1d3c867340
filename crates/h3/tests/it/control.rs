//! Unidirectional streams (RFC 9114 §6.2 and §7.2, RFC 9204 §4.2).

use sealion_h3::{ErrorCode, Limits, PeerSettings};

use crate::support::*;

#[test]
fn the_control_stream_begins_with_settings() {
    let mut connection = sealion_h3::Connection::new(Limits { head: 100, connect_protocol: true, ..Limits::default() });
    let mut out = Vec::new();
    connection.write_control(&mut out);
    assert_eq!(out, [0, 4, 5, 6, 0x40, 100, 8, 1]);

    let mut server = Server::without_settings(Limits::default());
    assert_eq!(server.connection.peer_settings(), None);
    server.open(CONTROL).unwrap();
    let bytes = [varint(0), frame(SETTINGS, &[6, 7, 0x21, 1]), frame(RESERVED, b"abc")].concat();
    assert_eq!(server.receive(CONTROL, &bytes), Ok(vec![Seen::Settings]));
    assert_eq!(server.connection.peer_settings(), Some(&PeerSettings { max_field_section: 7 }));
}

#[test]
fn requests_may_arrive_before_settings() {
    let mut server = Server::without_settings(Limits::default());
    server.get(0);
}

#[test]
fn errors_on_the_control_stream_end_the_connection() {
    let settings = frame(SETTINGS, &[]);
    let after = |bytes: Vec<u8>| [settings.clone(), bytes].concat();
    for (bytes, code) in [
        (frame(RESERVED, &[]), ErrorCode::H3_MISSING_SETTINGS),
        (frame(GOAWAY, &[0]), ErrorCode::H3_MISSING_SETTINGS),
        (after(settings.clone()), ErrorCode::H3_FRAME_UNEXPECTED),
        (after(frame(DATA, b"a")), ErrorCode::H3_FRAME_UNEXPECTED),
        (after(get()), ErrorCode::H3_FRAME_UNEXPECTED),
        (after(frame(PUSH_PROMISE, &[0])), ErrorCode::H3_FRAME_UNEXPECTED),
        (after(frame(2, &[])), ErrorCode::H3_FRAME_UNEXPECTED),
        (after(frame(6, &[])), ErrorCode::H3_FRAME_UNEXPECTED),
        (after(frame(8, &[])), ErrorCode::H3_FRAME_UNEXPECTED),
        (after(frame(9, &[])), ErrorCode::H3_FRAME_UNEXPECTED),
        (frame(SETTINGS, &[6]), ErrorCode::H3_FRAME_ERROR),
        (frame(SETTINGS, &[2, 1]), ErrorCode::H3_SETTINGS_ERROR),
        (frame(SETTINGS, &[8, 2]), ErrorCode::H3_SETTINGS_ERROR),
        (after(frame(GOAWAY, &[])), ErrorCode::H3_FRAME_ERROR),
        (after(frame(GOAWAY, &[0, 0])), ErrorCode::H3_FRAME_ERROR),
        (after(frame(GOAWAY, &[0; 9])), ErrorCode::H3_FRAME_ERROR),
        (after(frame(MAX_PUSH_ID, &[0x40])), ErrorCode::H3_FRAME_ERROR),
        (after(frame(PRIORITY_UPDATE, &[])), ErrorCode::H3_FRAME_ERROR),
        (after([frame(GOAWAY, &[1]), frame(GOAWAY, &[2])].concat()), ErrorCode::H3_ID_ERROR),
        (after([frame(MAX_PUSH_ID, &[2]), frame(MAX_PUSH_ID, &[1])].concat()), ErrorCode::H3_ID_ERROR),
        (after(frame(CANCEL_PUSH, &[0])), ErrorCode::H3_ID_ERROR),
        (after(priority_update(2, "u=1")), ErrorCode::H3_ID_ERROR),
        (after(frame(PRIORITY_UPDATE_OF_PUSH, &[0])), ErrorCode::H3_ID_ERROR),
    ] {
        for split in [false, true] {
            let mut server = Server::without_settings(Limits::default());
            server.open(CONTROL).unwrap();
            let bytes = [varint(0), bytes.clone()].concat();
            let pieces = bytes.chunks(if split { 1 } else { bytes.len() });
            let error = pieces.map(|piece| server.receive(CONTROL, piece)).find_map(Result::err);
            assert_eq!(error.map(|error| error.code), Some(code), "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn nothing_is_pushed_whatever_the_client_permits() {
    let mut server = Server::new(Limits::default());
    let bytes = [frame(MAX_PUSH_ID, &[1]), frame(MAX_PUSH_ID, &[1]), frame(GOAWAY, &[9]), frame(GOAWAY, &[9])].concat();
    assert_eq!(server.receive(CONTROL, &bytes), Ok(vec![Seen::GoAway, Seen::GoAway]));
    server.get(0);
    assert!(server.control().is_empty());
}

#[test]
fn each_critical_stream_exists_once_and_stays_open() {
    for kind in 0..4 {
        let mut server = Server::without_settings(Limits::default());
        server.open(2).unwrap();
        server.open(6).unwrap();
        let first = server.receive(2, &varint(kind));
        if kind == 1 {
            assert_eq!(first.unwrap_err().code, ErrorCode::H3_STREAM_CREATION_ERROR, "a push stream of a client");
            continue;
        }
        assert_eq!(first, Ok(vec![]));
        let error = server.receive(6, &varint(kind)).unwrap_err();
        assert_eq!(error.code, ErrorCode::H3_STREAM_CREATION_ERROR);
        for by_reset in [false, true] {
            let mut server = Server::without_settings(Limits::default());
            server.open(2).unwrap();
            server.receive(2, &varint(kind)).unwrap();
            let error = if by_reset { server.cancelled(2).unwrap_err() } else { server.finish(2, &[]).unwrap_err() };
            assert_eq!(error.code, ErrorCode::H3_CLOSED_CRITICAL_STREAM);
        }
    }
    let mut server = Server::new(Limits::default());
    assert_eq!(server.cancelled(3).unwrap_err().code, ErrorCode::H3_CLOSED_CRITICAL_STREAM, "the server's own");
}

#[test]
fn unknown_streams_are_stopped_and_may_end() {
    let mut server = Server::new(Limits::default());
    server.open(UNI).unwrap();
    assert_eq!(server.receive(UNI, &[0x40]), Ok(vec![]));
    assert_eq!(server.receive(UNI, &[0x54, 1, 2, 3]), Ok(vec![]));
    assert_eq!(server.commands(), [stop(UNI, ErrorCode::H3_STREAM_CREATION_ERROR)]);
    assert_eq!(server.receive(UNI, &[0; 100]), Ok(vec![]));
    assert_eq!(server.finish(UNI, &[]), Ok(vec![]));
    // Before their type is known.
    server.open(10).unwrap();
    assert_eq!(server.finish(10, &[]), Ok(vec![]));
    server.open(14).unwrap();
    assert_eq!(server.receive(14, &[0xc0, 0, 0]), Ok(vec![]));
    assert_eq!(server.cancelled(14), Ok(None));
    assert_eq!(server.commands(), []);
}

/// RFC 9204 §4.3 and §4.4.
#[test]
fn the_streams_of_qpack_stay_empty() {
    for (kind, bytes, code) in [
        (2, &[0x3f, 0x01][..], Some(ErrorCode::QPACK_ENCODER_STREAM_ERROR)),
        (2, &[0x80, 0, 0], Some(ErrorCode::QPACK_ENCODER_STREAM_ERROR)),
        (2, &[0x41, b'a', 0], Some(ErrorCode::QPACK_ENCODER_STREAM_ERROR)),
        (2, &[0x00], Some(ErrorCode::QPACK_ENCODER_STREAM_ERROR)),
        (2, &[0x20, 0x20], None),
        (3, &[0x80], Some(ErrorCode::QPACK_DECODER_STREAM_ERROR)),
        (3, &[0x01], Some(ErrorCode::QPACK_DECODER_STREAM_ERROR)),
        (3, &[0x44, 0x7f, 0x85, 0x01, 0x40], None),
    ] {
        let mut server = Server::new(Limits::default());
        server.open(UNI).unwrap();
        server.receive(UNI, &varint(kind)).unwrap();
        let error = bytes.iter().find_map(|byte| server.receive(UNI, &[*byte]).err());
        assert_eq!(error.map(|error| error.code), code, "{bytes:x?}");
    }
}
