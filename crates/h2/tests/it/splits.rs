//! The bytes of a client have the same meaning however they are split.

use sealion_h2::Limits;

use crate::support::*;

/// A connection with frames of every kind.
fn conversation() -> Vec<u8> {
    [
        settings(&[(4, 70_000)]),
        post(1),
        frame(DATA, 0, 1, b"hello"),
        frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 9]),
        get_with(3, &[("cookie", "a=1"), ("cookie", "b=2"), ("x-y", "z")]),
        frame(DATA, PADDED, 1, b"\x03abc\0\0\0"),
        frame(DATA, PADDED, 1, b"\x01\0"),
        window_update(0, 5000),
        window_update(3, 5000),
        frame(SETTINGS, ACK, 0, &[]),
        frame(PING, 0, 0, b"12345678"),
        frame(99, 1, 0, b"whatever"),
        frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x03u=1, i"),
        frame(HEADERS, END_STREAM, 5, &GET[..5]),
        frame(CONTINUATION, 0, 5, b""),
        frame(CONTINUATION, END_HEADERS, 5, &GET[5..]),
        get_with(7, &[("connection", "close")]),
        frame(HEADERS, END, 1, b"\x00\x01s\x011"),
        reset(3),
        frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0bye"),
        get(9),
    ]
    .concat()
}

/// The events, with content that arrived in pieces joined.
fn joined(events: Vec<Seen>) -> Vec<Seen> {
    let mut joined: Vec<Seen> = Vec::new();
    for event in events {
        match (joined.last_mut(), &event) {
            (Some(Seen::Data { stream, data, end }), Seen::Data { stream: next, data: more, end: ends })
                if stream == next =>
            {
                data.extend_from_slice(more);
                *end |= ends;
            }
            _ => joined.push(event),
        }
    }
    joined
}

/// All events and control frames of the conversation in `pieces`.
fn converse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Seen>, Vec<Frame>) {
    let mut server = Server::new(Limits::default());
    let mut events = Vec::new();
    pieces.for_each(|piece| events.extend(server.receive(piece).unwrap()));
    (joined(events), server.control())
}

#[test]
fn every_split_means_the_same() {
    let bytes = conversation();
    let whole = converse([&bytes[..]].into_iter());
    assert_eq!(whole.0.len(), 12, "{:?}", whole.0);
    assert_eq!(converse(bytes.chunks(1)), whole);
    for at in 0..bytes.len() {
        let (first, second) = bytes.split_at(at);
        assert_eq!(converse([first, second].into_iter()), whole, "split at {at}");
    }
    for length in 2..50 {
        assert_eq!(converse(bytes.chunks(length)), whole, "pieces of {length}");
    }
}
