//! Frames from the bytes of a client, behind its preface.
//!
//! However the bytes are split, the events and the replies are the same; what is kept of them is bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_h2::{Connection, Event, HeadBuffer, Limits, PREFACE};

/// Everything that `pieces` cause, content put together.
fn receive<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Vec<u8>) {
    let (mut connection, mut head) = (Connection::new(Limits::default()), HeadBuffer::default());
    let (mut events, mut out, mut content) = (Vec::new(), Vec::new(), Vec::new());
    'pieces: for mut piece in [&PREFACE[..]].into_iter().chain(pieces) {
        loop {
            match connection.receive(&mut piece, &mut head) {
                Ok(Some(Event::Data { stream, data, end })) => {
                    content.extend_from_slice(data);
                    connection.consume(stream, data.len());
                    if !end {
                        continue;
                    }
                    events.push(format!("end of {stream}"));
                }
                Ok(Some(event)) => events.push(format!("{event:?} {:?}", head.fields())),
                Ok(None) => break,
                Err(error) => {
                    events.push(error.to_string());
                    break 'pieces;
                }
            }
        }
        assert!(piece.is_empty(), "input is left over without an event");
        assert!(connection.memory() < 128 * 1024, "{}", connection.memory());
    }
    events.push(format!("{} octets of content", content.len()));
    connection.write_control(&mut out);
    assert!(out.len() < 64 * 1024);
    // Bytes that are consumed in pieces open windows in other steps.
    let out = out.chunks(9).map(|chunk| chunk.len() as u8).collect();
    (events, if content.is_empty() { out } else { Vec::new() })
}

fuzz_target!(|input: &[u8]| {
    let whole = receive([input].into_iter());
    assert_eq!(receive(input.chunks(1)), whole);
    assert_eq!(receive(input.chunks(7)), whole);
});
