//! Content of requests: DATA, padding, trailers, content-length, and the windows for it.

use sealion_h2::{By, ErrorCode, HeaderBlock, Limits};

use crate::support::*;

fn data(stream: u32, data: &[u8], end: bool) -> Seen {
    Seen::Data { stream, data: data.to_vec(), end }
}

fn post_of(stream: u32, length: usize) -> Vec<u8> {
    let mut block = HeaderBlock::default();
    block.field("content-length", length.to_string().as_bytes());
    frame(HEADERS, END_HEADERS, stream, &[POST, block.as_bytes()].concat())
}

#[test]
fn content_arrives_without_its_padding() {
    let mut server = Server::new(Limits::default());
    server.receive(&post(1)).unwrap();
    assert_eq!(server.receive(&frame(DATA, 0, 1, b"abc")).unwrap(), [data(1, b"abc", false)]);
    assert_eq!(server.receive(&frame(DATA, PADDED, 1, b"\x02de\0\0")).unwrap(), [data(1, b"de", false)]);
    assert_eq!(server.receive(&frame(DATA, PADDED, 1, b"\x02\0\0")).unwrap(), [], "padding alone");
    assert_eq!(server.receive(&frame(DATA, 0, 1, b"")).unwrap(), []);
    assert_eq!(server.receive(&frame(DATA, PADDED | END_STREAM, 1, b"\x01f\0")).unwrap(), [data(1, b"f", true)]);
    server.receive(&post(3)).unwrap();
    assert_eq!(server.receive(&frame(DATA, END_STREAM, 3, b"")).unwrap(), [data(3, b"", true)]);
    server.receive(&post(5)).unwrap();
    assert_eq!(server.receive(&frame(DATA, END_STREAM | PADDED, 5, b"\x01\0")).unwrap(), [data(5, b"", true)]);
    server.receive(&post(7)).unwrap();
    assert_eq!(server.receive(&frame(DATA, PADDED, 7, b"\x03ab")).unwrap_err().code, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn trailers_end_the_content() {
    let mut server = Server::new(Limits::default());
    server.receive_all(&[post_of(1, 3), frame(DATA, 0, 1, b"abc")]).unwrap();
    let fields = vec![("x".to_owned(), "y".to_owned())];
    assert_eq!(
        server.receive(&frame(HEADERS, END, 1, b"\x00\x01x\x01y")).unwrap(),
        [Seen::Trailers { stream: 1, fields }]
    );
    server.complete(1);
    assert!(server.control().is_empty());
    for (payload, flags) in [(&b"\x00\x01x\x01y"[..], END_HEADERS), (b"\x82", END), (b"\x00\x01X\x01y", END)] {
        let mut server = Server::new(Limits::default());
        server.receive(&post(1)).unwrap();
        let expected = Seen::Reset { stream: 1, code: ErrorCode::PROTOCOL_ERROR, by: By::Server };
        assert_eq!(server.receive(&frame(HEADERS, flags, 1, payload)).unwrap(), [expected]);
    }
}

#[test]
fn content_has_the_length_that_was_said() {
    let reset = Seen::Reset { stream: 1, code: ErrorCode::PROTOCOL_ERROR, by: By::Server };
    for (frames, expected) in [
        (vec![frame(DATA, END_STREAM, 1, b"abc")], vec![data(1, b"abc", true)]),
        (
            vec![frame(DATA, 0, 1, b"abc"), frame(DATA, END_STREAM, 1, b"")],
            vec![data(1, b"abc", false), data(1, b"", true)],
        ),
        (vec![frame(DATA, PADDED | END_STREAM, 1, b"\x01abc\0")], vec![data(1, b"abc", true)]),
        (vec![frame(DATA, END_STREAM, 1, b"ab")], vec![reset.clone()]),
        (vec![frame(DATA, 0, 1, b"abcd")], vec![reset.clone()]),
        (vec![frame(DATA, PADDED | END_STREAM, 1, b"\x01ab\0")], vec![reset.clone()]),
        (vec![frame(DATA, 0, 1, b"ab"), frame(HEADERS, END, 1, b"")], vec![data(1, b"ab", false), reset.clone()]),
        (vec![frame(DATA, 0, 1, b"abcd"), frame(DATA, END_STREAM, 1, b"e")], vec![reset]),
    ] {
        let mut server = Server::new(Limits::default());
        server.receive(&post_of(1, 3)).unwrap();
        assert_eq!(server.receive_all(&frames).unwrap(), expected, "{frames:?}");
    }
}

#[test]
fn a_client_may_send_no_more_than_its_windows() {
    let limits = Limits { stream_window: 10, ..Limits::default() };
    let mut server = Server::new(limits.clone());
    server.receive_all(&[post(1), frame(DATA, 0, 1, &[0; 10])]).unwrap();
    let expected = Seen::Reset { stream: 1, code: ErrorCode::FLOW_CONTROL_ERROR, by: By::Server };
    assert_eq!(server.receive(&frame(DATA, 0, 1, b"a")).unwrap(), [expected]);

    // Padding counts (RFC 9113 §6.9.1).
    let mut server = Server::new(limits);
    server.receive(&post(1)).unwrap();
    let events = server.receive(&frame(DATA, PADDED, 1, b"\x0a\0\0\0\0\0\0\0\0\0\0")).unwrap();
    assert!(matches!(events[..], [Seen::Reset { code: ErrorCode::FLOW_CONTROL_ERROR, .. }]));

    let limits = Limits { connection_window: 65_535, stream_window: 1 << 20, ..Limits::default() };
    let mut server = Server::new(limits);
    server.receive(&post(1)).unwrap();
    (0..4).for_each(|_| drop(server.receive(&frame(DATA, 0, 1, &[0; 16_383])).unwrap()));
    server.receive(&frame(DATA, 0, 1, &[0; 3])).unwrap();
    let error = server.receive(&frame(DATA, 0, 1, b"a")).unwrap_err();
    assert_eq!(error.code, ErrorCode::FLOW_CONTROL_ERROR);
}

/// The bytes that WINDOW_UPDATE frames allow: on the stream, on the connection.
fn updates(control: &[Frame], stream: u32) -> (u32, u32) {
    let sum = |wanted| {
        let updates = control.iter().filter(|frame| frame.kind == WINDOW_UPDATE && frame.stream == wanted);
        updates.map(Frame::number).sum()
    };
    (sum(stream), sum(0))
}

#[test]
fn windows_are_renewed_as_content_is_consumed() {
    let limits = Limits { stream_window: 1000, connection_window: 65_535, largest_window: 1000, ..Limits::default() };
    let mut server = Server::new(limits);
    server.receive_all(&[post(1), frame(DATA, 0, 1, &[0; 1000])]).unwrap();
    let id = server.id(1);
    server.connection.consume(id, 499);
    assert!(server.control().is_empty());
    server.connection.consume(id, 1);
    assert_eq!(updates(&server.control(), 1), (500, 0));
    server.connection.consume(id, 5000);
    assert_eq!(updates(&server.control(), 1), (500, 0), "no more than was received");

    // No update for a stream that has ended, but the connection's window is still renewed.
    let mut sent = 1000;
    while sent < 32_768 {
        server.receive(&frame(DATA, 0, 1, &[0; 500])).unwrap();
        server.connection.consume(id, 500);
        sent += 500;
        if sent < 32_768 {
            assert_eq!(updates(&server.control(), 1), (500, 0));
        }
    }
    assert_eq!(updates(&server.control(), 1), (500, sent));
    server.receive(&frame(DATA, END_STREAM, 1, &[0; 1000])).unwrap();
    server.connection.consume(id, 1000);
    assert!(server.control().is_empty());
}

#[test]
fn content_that_nobody_consumed_is_given_back_with_the_stream() {
    let mut server = Server::new(Limits { connection_window: 65_535, ..Limits::default() });
    for stream in [1, 3, 5, 7, 9, 11] {
        server.receive_all(&[post(stream), frame(DATA, 0, stream, &[0; 16_000]), reset(stream)]).unwrap();
        let id = server.id(stream);
        server.connection.release(id);
        server.connection.consume(id, 16_000);
        server.control();
    }
    // Released while a DATA frame is in flight: its rest is not given back twice.
    server.receive(&post(13)).unwrap();
    let whole = frame(DATA, 0, 13, &[0; 16_000]);
    server.receive(&whole[..5000]).unwrap();
    server.connection.release(server.id(13));
    server.control();
    assert_eq!(server.receive(&whole[5000..]).unwrap(), []);
    let mut window = 0;
    server.receive(&post(15)).unwrap();
    while server.receive(&frame(DATA, 0, 15, &[0; 1000])).is_ok() {
        window += 1000;
        assert!(window < 100_000);
    }
    assert!(window <= 65_535, "{window}");
}

#[test]
fn windows_grow_with_what_a_round_trip_carries() {
    let mut server = Server::new(Limits::default());
    server.receive(&post(1)).unwrap();
    let id = server.id(1);
    let (mut window, mut widest) = (65_535i64, 0);
    for _round_trip in 0..12 {
        // The client fills the window, then reads the server's pending frames.
        let mut ping = None;
        widest = widest.max(window);
        while window > 0 {
            let length = window.min(16_384);
            server.receive(&frame(DATA, 0, 1, &vec![0; length as usize])).unwrap();
            server.connection.consume(id, length as usize);
            window -= length;
        }
        let mut control = server.control();
        if let Some(at) = control.iter().position(|frame| frame.kind == PING) {
            ping = Some(control[at].payload.clone());
        }
        if let Some(ping) = ping {
            server.receive(&frame(PING, ACK, 0, &ping)).unwrap();
            assert!(server.control().is_empty(), "windows grow when the driver permits it");
            server.permit();
            control.extend(server.control());
        }
        window += i64::from(updates(&control, 1).0);
    }
    assert!((8_000_000..=8 << 20).contains(&widest), "{widest} of the largest window of the limits");
    assert!(!server.control().iter().any(|frame| frame.kind == PING), "nothing is left to measure");
}

#[test]
fn contents_that_wait_leave_room_to_others_within_what_is_permitted() {
    let mut server = Server::new(Limits::default());
    let first = server.connection.permitted_window();
    let fill = |server: &mut Server, stream| {
        server.receive(&post(stream)).unwrap();
        for length in [16_384, 16_384, 16_384, 16_383] {
            server.receive(&frame(DATA, 0, stream, &vec![0; length])).unwrap();
        }
    };
    fill(&mut server, 1);
    fill(&mut server, 3);
    let wanted = server.connection.wanted_window().expect("no byte is left to send");
    assert_eq!((wanted.least, wanted.measured), (2 * first, 2 * first));
    assert_eq!(updates(&server.control(), 1), (0, 0));
    server.permit();
    assert_eq!(updates(&server.control(), 1), (0, first));
    assert_eq!((server.connection.wanted_window(), server.connection.reduce_window(1)), (None, 0));
    // A round trip that carried much widens the windows of contents that are taken alone.
    server.receive_all(&[post(5), frame(DATA, 0, 5, &[0; 16_384])]).unwrap();
    server.connection.consume(server.id(5), 16_384);
    server.receive(&post(7)).unwrap();
    server.receive(&frame(PING, ACK, 0, b"sealion0")).unwrap();
    server.permit();
    let control = server.control();
    assert_eq!([1, 3, 7].map(|stream| updates(&control, stream).0), [0; 3]);
    assert!(updates(&control, 5).0 >= 65_535);
    // When contents are taken, their room is given back.
    let permitted = server.connection.permitted_window();
    for stream in [1, 3] {
        server.connection.consume(server.id(stream), 65_535);
    }
    let reduced = server.connection.reduce_window(1);
    assert!(reduced > 0 && server.connection.permitted_window() == permitted - reduced, "{reduced} of {permitted}");
}

#[test]
fn a_window_stays_where_a_round_trip_carries_little() {
    let mut server = Server::new(Limits::default());
    server.receive(&post(1)).unwrap();
    let id = server.id(1);
    for _ in 0..100 {
        server.receive(&frame(DATA, 0, 1, &[0; 10_000])).unwrap();
        server.connection.consume(id, 10_000);
        for ping in server.control().iter().filter(|frame| frame.kind == PING) {
            server.receive(&frame(PING, ACK, 0, &ping.payload)).unwrap();
        }
        assert!(updates(&server.control(), 1).0 < 65_535);
    }
}
