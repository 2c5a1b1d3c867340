//! A client and a driver in turns: a byte below 128 is what the driver does next, others begin a frame of the client.
//!
//! No order of calls panics; a frame fits its room and its record; a stream has one end; no more is sent than was offered and than the windows
//! allow in sum.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sealion_h2::{
    Connection, ErrorCode, Event, HEADER_LEN, HeadBuffer, HeaderBlock, Limits, PREFACE, RECORD_PAYLOAD, StreamId,
};

/// The bytes that a stream may still send, and whether it has ended.
#[derive(Default)]
struct Offered {
    left: u64,
    ended: bool,
}

fuzz_target!(|input: &[u8]| {
    let limits = Limits { streams: 8, stream_window: 1000, ..Limits::default() };
    let (mut connection, mut head) = (Connection::new(limits), HeadBuffer::default());
    let mut opening = PREFACE.to_vec();
    opening.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    assert_eq!(connection.receive(&mut &opening[..], &mut head), Ok(None));
    let mut streams: BTreeMap<StreamId, Offered> = BTreeMap::new();
    let (mut window, mut out, block) = (65_535u64, Vec::new(), HeaderBlock::response(200));
    let mut rest = input;
    while let [action, argument, tail @ ..] = rest {
        rest = tail;
        let stream = streams.keys().nth(usize::from(*argument) % streams.len().max(1)).copied();
        match (action, stream) {
            (128.., _) => {
                // A frame of the type `action` on a stream of small number, whose payload follows.
                let length = usize::from(*argument).min(rest.len());
                let (payload, tail) = rest.split_at(length);
                rest = tail;
                let kind = action & 0xf;
                let flags = action >> 4 & 7;
                let (number, payload) = payload.split_at(usize::from(!payload.is_empty()));
                let number = number.first().map_or(0, |number| u32::from(*number));
                let mut frame = vec![0, 0, payload.len() as u8, kind, flags & 1 | flags & 2 << 2 | flags & 4];
                frame.extend_from_slice(&number.to_be_bytes());
                frame.extend_from_slice(payload);
                if kind == 8 && number == 0 && payload.len() == 4 {
                    window += u64::from(u32::from_be_bytes(payload.try_into().expect("four octets")) & 0x7fff_ffff);
                }
                let mut input = &frame[..];
                loop {
                    match connection.receive(&mut input, &mut head) {
                        Ok(Some(Event::Request { stream, .. } | Event::TooLarge { stream, .. })) => {
                            assert!(streams.insert(stream, Offered::default()).is_none());
                            assert!(streams.len() <= 8);
                        }
                        Ok(Some(Event::Reset { stream, .. })) => streams.get_mut(&stream).expect("a slot").ended = true,
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => return,
                    }
                }
            }
            (0..16, Some(stream)) => drop(connection.respond(stream, &[block.as_bytes()], action & 1 != 0, &mut out)),
            (16..32, Some(stream)) => {
                let octets = u64::from(*argument) * 200;
                if connection.offer(stream, octets, action & 1 != 0).is_ok() {
                    streams.get_mut(&stream).expect("a slot").left += octets;
                }
            }
            (32..48, _) => {
                let room = usize::from(*argument) * 100;
                if let Some(frame) = connection.next_frame(room) {
                    let offered = streams.get_mut(&frame.stream).expect("a slot");
                    assert!(frame.length <= RECORD_PAYLOAD && HEADER_LEN + frame.length <= room && !offered.ended);
                    offered.left = offered.left.checked_sub(frame.length as u64).expect("more than was offered");
                    offered.ended = frame.end;
                    window = window.checked_sub(frame.length as u64).expect("more than the window");
                    if action & 3 == 3 {
                        connection.withdraw(frame);
                        window += frame.length as u64;
                        connection.reset(frame.stream, ErrorCode::INTERNAL_ERROR);
                        offered.ended = true;
                    }
                }
            }
            (48..56, Some(stream)) => connection.consume(stream, usize::from(*argument) * 10),
            (56..64, Some(stream)) => connection.reset(stream, ErrorCode::CANCEL),
            (64..80, Some(stream)) => {
                connection.release(stream);
                streams.remove(&stream);
            }
            (80..88, Some(stream)) => drop(connection.trailers(stream, &[], &mut out)),
            (88..92, Some(stream)) => drop(connection.informational(stream, &[block.as_bytes()], &mut out)),
            (92, _) => connection.drain(),
            (93, _) => connection.drain_now(),
            (94, _) => connection.shrink(),
            _ => connection.write_control(&mut out),
        }
        assert_eq!(connection.open_streams(), streams.len());
        assert!(connection.memory() < 128 * 1024);
        out.clear();
    }
});
