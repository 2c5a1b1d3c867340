//! Bytes on the streams of a client. Each piece begins with a byte that names its stream and whether it ends, and one that is its length.
//!
//! However the bytes are split, the events are the same. The memory they cost is bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_h3::{Command, Connection, Event, HeadBuffer, Limits, Opened, StreamId};

/// The client's control stream, two other unidirectional streams, five requests.
const STREAMS: [u64; 8] = [2, 6, 10, 0, 4, 8, 12, 16];

/// Everything that the pieces cause, content put together. `size`: the largest part of a piece that is read at once.
fn receive(mut input: &[u8], size: usize) -> (Vec<String>, Vec<u8>) {
    let (mut connection, mut head) =
        (Connection::new(Limits { streams: 4, head: 2000, ..Limits::default() }), HeadBuffer::default());
    let (mut events, mut content) = (Vec::new(), Vec::new());
    for stream in STREAMS {
        let opened = connection.open(StreamId::new(stream)).expect("few streams");
        assert_eq!(opened == Opened::Refused, stream == 16);
    }
    // The first control stream has its type, so that small inputs reach its frames.
    let mut begin = &[0, 4, 0][..];
    assert_eq!(connection.receive(StreamId::new(2), &mut begin, false, &mut head), Ok(Some(Event::Settings)));
    while let [first, length, rest @ ..] = input {
        let stream = StreamId::new(STREAMS[usize::from(first & 7)]);
        let (piece, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        input = rest;
        let fin = first & 8 != 0;
        let parts = piece.len().div_ceil(size).max(1);
        for (number, mut part) in
            (0..parts).map(|number| (number, &piece[number * size..piece.len().min((number + 1) * size)]))
        {
            let fin = fin && number + 1 == parts;
            loop {
                match connection.receive(stream, &mut part, fin, &mut head) {
                    // Whether the end is known with the head or the content depends on the parts.
                    Ok(Some(Event::Data { data, .. })) => content.extend_from_slice(data),
                    Ok(Some(Event::Request { stream, .. })) => {
                        events.push(format!("request {stream} {:?}", head.request()))
                    }
                    Ok(Some(Event::TooLarge { stream, .. })) => events.push(format!("too large {stream}")),
                    // Without its content, a request is malformed at once where all of it is there.
                    Ok(Some(Event::Malformed { .. } | Event::Reset { .. })) => {}
                    Ok(Some(event)) => events.push(format!("{event:?} {:?}", head.fields())),
                    Ok(None) => break,
                    // Which of two errors comes first may depend on the parts.
                    Err(_) => {
                        events.push("error".to_owned());
                        return (events, content);
                    }
                }
            }
            assert!(part.is_empty(), "input is left over without an event");
            while let Some(command) = connection.next_command() {
                if let Command::Prioritize { level, .. } = command {
                    assert!((-20..=20).contains(&level));
                }
            }
            assert!(connection.memory() < 64 * 1024, "{}", connection.memory());
        }
    }
    (events, content)
}

fuzz_target!(|input: &[u8]| {
    let mut whole = receive(input, 256);
    for size in [1, 7] {
        let mut split = receive(input, size);
        // A request whose content is missing is passed to the driver only if its end comes later.
        for (events, _) in [&mut whole, &mut split] {
            events.retain(|event| !event.starts_with("request ") || !event.contains("content_length: Some"));
        }
        assert_eq!(split, whole);
    }
});
