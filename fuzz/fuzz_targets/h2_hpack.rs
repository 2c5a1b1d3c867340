//! Header blocks of one connection: the first byte of each piece gives the length of its block.
//!
//! An accepted block keeps its promises; a small block never decodes to much; the decoder goes on behind a malformed request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_h2::{Connection, Event, HeadBuffer, HeaderBlock, Limits, PREFACE};

const LIMITS: Limits = Limits {
    streams: 100,
    head: 4096,
    fields: 50,
    header_table: 4096,
    stream_window: 65_535,
    connection_window: 65_535,
    largest_window: 65_535,
    connect_protocol: true,
    resets: 1_000_000,
};

fuzz_target!(|input: &[u8]| {
    let (mut connection, mut head) = (Connection::new(LIMITS), HeadBuffer::default());
    let mut opening = PREFACE.to_vec();
    opening.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    assert_eq!(connection.receive(&mut &opening[..], &mut head), Ok(None));
    let (mut rest, mut stream) = (input, 1u32);
    while let Some((length, tail)) = rest.split_first() {
        let (block, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        let mut frame = vec![0, 0, block.len() as u8, 1, 5];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(block);
        stream += 2;
        match connection.receive(&mut &frame[..], &mut head) {
            Ok(Some(Event::Request { stream, .. })) => {
                check(&head);
                connection.release(stream);
            }
            Ok(Some(Event::TooLarge { stream, .. })) => {
                let _ = head.request().to_request();
                connection.release(stream);
            }
            Ok(_) => {}
            Err(_) => return,
        }
        // Each malformed request is answered by RST_STREAM.
        connection.write_control(&mut Vec::new());
        assert!(head.memory() < 64 * 1024 && connection.memory() < 32 * 1024);
    }
});

fn check(head: &HeadBuffer) {
    let request = head.request();
    assert!(!request.method.is_empty());
    assert!(request.path.is_some_and(|path| path.starts_with('/') || path == "*") || request.method == "CONNECT");
    let mut block = HeaderBlock::default();
    let mut fields = 0;
    for (name, value) in request.fields.iter() {
        let name = std::str::from_utf8(name).expect("a name that is a token");
        assert!(
            !name.is_empty()
                && name.bytes().all(|octet| octet.is_ascii_graphic() && octet != b':' && !octet.is_ascii_uppercase())
        );
        assert!(!value.iter().any(|octet| matches!(octet, b'\r' | b'\n' | 0)));
        block.field(name, value);
        fields += 1;
    }
    assert!(fields <= LIMITS.fields);
    let _ = request.to_request();
}
