//! Field sections of one connection: the first byte of each piece is the length of its section.
//!
//! Accepted requests keep their promises. A small section never decodes to much.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_h3::{Connection, Event, HeadBuffer, HeaderBlock, Limits, StreamId};

fuzz_target!(|input: &[u8]| {
    let limits = Limits { streams: 100, head: 4096, fields: 50, connect_protocol: true, resets: 1_000_000 };
    let (mut connection, mut head) = (Connection::new(limits.clone()), HeadBuffer::default());
    let (mut rest, mut stream) = (input, 0);
    while let Some((length, tail)) = rest.split_first() {
        let (section, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        // HEADERS, with a length of two bytes and the prefix of a section.
        let mut frame = vec![1, 0x40 | (section.len() + 2 >> 8) as u8, (section.len() + 2) as u8, 0, 0];
        frame.extend_from_slice(section);
        let id = StreamId::new(stream);
        stream += 4;
        connection.open(id).expect("no limit is reached");
        match connection.receive(id, &mut &frame[..], true, &mut head) {
            Ok(Some(Event::Request { stream, .. })) => {
                check(&head, limits.fields);
                connection.release(stream);
            }
            Ok(Some(Event::TooLarge { stream, .. })) => {
                let _ = head.request().to_request();
                connection.release(stream);
            }
            Ok(_) => {}
            Err(_) => return,
        }
        while connection.next_command().is_some() {}
        assert!(head.memory() < 64 * 1024 && connection.memory() < 32 * 1024);
    }
});

fn check(head: &HeadBuffer, max_fields: usize) {
    let request = head.request();
    assert!(!request.method.is_empty());
    assert!(request.path.is_some_and(|path| path.starts_with('/') || path == "*") || request.method == "CONNECT");
    let mut block = HeaderBlock::default();
    let mut fields = 0;
    for (name, value) in request.fields.iter() {
        let name = std::str::from_utf8(name).expect("a name that is a token");
        let is_valid = |byte: u8| byte.is_ascii_graphic() && byte != b':' && !byte.is_ascii_uppercase();
        assert!(!name.is_empty() && name.bytes().all(is_valid));
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        block.field(name, value);
        fields += 1;
    }
    assert!(fields <= max_fields);
    let _ = request.to_request();
}
