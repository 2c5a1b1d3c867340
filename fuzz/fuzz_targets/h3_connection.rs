//! A client and a driver in turns: a byte below 128 is what the driver does next, others are bytes or a frame on a stream of the client.
//!
//! No order of calls panics; a response has one end; no more content is sent than was announced; memory is bounded.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sealion_h3::{Command, Connection, ErrorCode, Event, HeadBuffer, HeaderBlock, Limits, Priority, StreamId};

/// The client's control stream, two other unidirectional streams, five requests.
const STREAMS: [u64; 8] = [2, 6, 10, 0, 4, 8, 12, 16];

/// The beginnings of frames: none, DATA, HEADERS, SETTINGS, GOAWAY, MAX_PUSH_ID, PRIORITY_UPDATE, a reserved type.
const KINDS: [&[u8]; 8] = [&[], &[0], &[1], &[4], &[7], &[0xd], &[0x80, 0xf, 7, 0], &[0x21]];

/// A response, as the driver has sent it.
#[derive(Default)]
struct Sent {
    /// Bytes that are missing from the current DATA frame.
    left: u64,
    /// No frame follows the current one.
    is_last: bool,
    has_ended: bool,
}

fuzz_target!(|input: &[u8]| {
    let (mut connection, mut head) = (
        Connection::new(Limits { streams: 4, head: 2000, connect_protocol: true, ..Limits::default() }),
        HeadBuffer::default(),
    );
    for stream in STREAMS {
        connection.open(StreamId::new(stream)).expect("few streams");
    }
    let mut begin = &[0, 4, 0][..];
    assert_eq!(connection.receive(StreamId::new(2), &mut begin, false, &mut head), Ok(Some(Event::Settings)));
    let mut responses: BTreeMap<StreamId, Sent> = BTreeMap::new();
    let (mut out, block) = (Vec::new(), HeaderBlock::response(200));
    let mut rest = input;
    while let [action, argument, tail @ ..] = rest {
        rest = tail;
        let known = responses.keys().nth(usize::from(*argument) % responses.len().max(1)).copied();
        match (action, known) {
            (128.., _) => {
                let (payload, tail) = rest.split_at(usize::from(*argument & 0x3f).min(rest.len()));
                rest = tail;
                let kind = KINDS[usize::from(action >> 4 & 7)];
                let length = [payload.len() as u8];
                let bytes = [kind, if kind.is_empty() { &[] } else { &length[..] }, payload].concat();
                let stream = StreamId::new(STREAMS[usize::from(action & 7)]);
                if receive(&mut connection, stream, &bytes, action & 8 != 0, &mut responses).is_err() {
                    return;
                }
            }
            (127, _) => {
                let stream = StreamId::new(STREAMS[usize::from(argument & 7)]);
                match connection.cancelled(stream, ErrorCode(u64::from(*argument))) {
                    Ok(Some(Event::Reset { stream, .. })) => {
                        responses.get_mut(&stream).expect("a slot").has_ended = true
                    }
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
            (0..64, Some(stream)) => send(&mut connection, stream, (*action, *argument), &mut responses, &mut out),
            (64..72, Some(stream)) => {
                connection.reset(stream, ErrorCode::H3_INTERNAL_ERROR);
                responses.get_mut(&stream).expect("a slot").has_ended = true;
            }
            (72..88, Some(stream)) => {
                connection.release(stream);
                responses.remove(&stream);
            }
            (88..92, Some(stream)) => drop(connection.informational(stream, &[block.as_bytes()], &mut out)),
            (92..96, Some(stream)) => {
                connection.set_priority(stream, Priority { urgency: argument & 7, incremental: argument & 8 != 0 })
            }
            (96, _) => connection.drain(),
            (97, _) => connection.drain_now(),
            (98, _) => connection.shrink(),
            _ => connection.write_control(&mut out),
        }
        while let Some(command) = connection.next_command() {
            if let Command::Prioritize { level, .. } = command {
                assert!((-20..=20).contains(&level));
            }
        }
        assert_eq!(connection.open_streams(), responses.len() + connection.awaiting_heads().count());
        assert!(connection.memory() < 64 * 1024);
        out.clear();
    }
});

/// Hands bytes of the client in, and notes the requests.
fn receive(
    connection: &mut Connection,
    stream: StreamId,
    mut bytes: &[u8],
    fin: bool,
    responses: &mut BTreeMap<StreamId, Sent>,
) -> Result<(), sealion_h3::ConnectionError> {
    let mut head = HeadBuffer::default();
    while let Some(event) = connection.receive(stream, &mut bytes, fin, &mut head)? {
        match event {
            Event::Request { stream, .. } | Event::TooLarge { stream, .. } => {
                assert!(responses.insert(stream, Sent::default()).is_none());
                assert!(responses.len() <= 4);
            }
            Event::Reset { stream, .. } => responses.get_mut(&stream).expect("a slot").has_ended = true,
            Event::Data { stream, .. } | Event::Trailers { stream } => assert!(responses.contains_key(&stream)),
            _ => {}
        }
    }
    Ok(())
}

/// Sends a part of a response. A call that the connection accepts fits the calls before.
fn send(
    connection: &mut Connection,
    stream: StreamId,
    (action, argument): (u8, u8),
    responses: &mut BTreeMap<StreamId, Sent>,
    out: &mut Vec<u8>,
) {
    let (block, sent) = (HeaderBlock::response(200), responses.get_mut(&stream).expect("a slot"));
    let is_last = action & 1 != 0;
    match action {
        0..16 => {
            if connection.respond(stream, &[block.as_bytes()], is_last, out).is_ok() {
                assert!(!sent.has_ended && sent.left == 0);
                sent.has_ended = is_last;
            }
        }
        16..32 => {
            let length = u64::from(argument) * 200;
            if connection.data(stream, length, is_last, out).is_ok() {
                assert!(!sent.has_ended && sent.left == 0);
                *sent = Sent { left: length, is_last, has_ended: is_last && length == 0 };
            }
        }
        32..56 => {
            let bytes = (u64::from(argument) * 100).min(sent.left);
            connection.sent(stream, bytes);
            sent.left -= bytes;
            sent.has_ended |= sent.is_last && sent.left == 0;
        }
        _ => {
            if connection.trailers(stream, &[block.as_bytes()], out).is_ok() {
                assert!(!sent.has_ended && sent.left == 0);
                sent.has_ended = true;
            }
        }
    }
}
