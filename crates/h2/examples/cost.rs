//! Measures the cost of a request in this crate: a browser's GET requests with responses of 1000 bytes, on one
//! connection.
//!
//! ```text
//! cargo build --release -p sealion-h2 --example cost
//! valgrind --tool=callgrind target/release/examples/cost 1000
//! valgrind --tool=callgrind target/release/examples/cost 11000
//! ```
//!
//! The difference between the runs, divided by 10,000, is the cost of one request. A second argument is the number of
//! requests in one record.

use sealion_h2::{Connection, Event, HEADER_LEN, HeadBuffer, HeaderBlock, Limits, PREFACE, RECORD_PAYLOAD, StreamId};

/// The fields of a request by a browser that visits the site again: all but the path are in the dynamic table.
const FIELDS: [(&str, &str); 8] = [
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "image/avif,image/webp,image/png,image/svg+xml,image/*;q=0.8,*/*;q=0.5"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://a.example/"),
    ("sec-fetch-dest", "image"),
    ("sec-fetch-mode", "no-cors"),
    ("priority", "u=5, i"),
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let requests: u32 = arguments.next().unwrap_or(1000);
    let at_a_time: u32 = arguments.next().unwrap_or(1);

    let mut connection = Connection::new(Limits::default());
    let mut head = HeadBuffer::default();
    let mut block = HeaderBlock::response(200);
    for (name, value) in [
        ("server", "sealion"),
        ("content-type", "text/html; charset=utf-8"),
        ("content-length", "1000"),
        ("last-modified", "Sun, 22 Nov 2026 07:00:00 GMT"),
        ("etag", "\"65f0a1b2-3e8\""),
        ("accept-ranges", "bytes"),
    ] {
        block.field(name, value.as_bytes());
    }
    let mut date = HeaderBlock::default();
    date.field("date", b"Sun, 22 Nov 2026 07:00:00 GMT");

    let mut out = Vec::new();
    let mut opening = PREFACE.to_vec();
    opening.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    opening.extend(request(1, true));
    let mut stream = 1;
    drive(&mut connection, &mut head, &opening, &[block.as_bytes(), date.as_bytes()], &mut out);
    // Built once: only the stream numbers change.
    let mut record = request(0, false).repeat(at_a_time as usize);
    let length = record.len() / at_a_time as usize;
    while stream < 2 * requests {
        for request in record.chunks_exact_mut(length) {
            stream += 2;
            request[5..9].copy_from_slice(&stream.to_be_bytes());
        }
        drive(&mut connection, &mut head, &record, &[block.as_bytes(), date.as_bytes()], &mut out);
        out.clear();
        // The client reads, and so opens the window.
        drive(&mut connection, &mut head, &window_update(1000 * at_a_time), &[], &mut out);
    }
    assert!(connection.is_idle());
    println!("{requests} requests, {} bytes in the connection", connection.memory());
}

/// Feeds in a record, and builds the outgoing records without content.
fn drive(connection: &mut Connection, head: &mut HeadBuffer, mut record: &[u8], block: &[&[u8]], out: &mut Vec<u8>) {
    while let Some(event) = connection.receive(&mut record, head).expect("the client keeps the rules") {
        match event {
            Event::Request { stream, .. } => answer(connection, head, stream, block, out),
            Event::WindowOpened { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    while let Some(frame) = connection.next_frame(HEADER_LEN + RECORD_PAYLOAD) {
        out.extend_from_slice(&frame.header);
        if frame.end {
            connection.release(frame.stream);
        }
    }
    connection.write_control(out);
}

fn answer(connection: &mut Connection, head: &HeadBuffer, stream: StreamId, block: &[&[u8]], out: &mut Vec<u8>) {
    assert_eq!(std::hint::black_box(head.request()).method, "GET");
    connection.respond(stream, block, false, out).expect("the stream is open");
    connection.offer(stream, 1000, true).expect("the stream is open");
}

fn window_update(increment: u32) -> [u8; 13] {
    let [a, b, c, d] = increment.to_be_bytes();
    [0, 0, 4, 8, 0, 0, 0, 0, 0, a, b, c, d]
}

/// GET of a path; the first request fills the dynamic table.
fn request(stream: u32, is_first: bool) -> Vec<u8> {
    // A literal path in Huffman code, as a client would send it.
    let mut path = HeaderBlock::default();
    path.field(":path", b"/images/0.png");
    let mut block = [&[0x82, 0x87], path.as_bytes()].concat();
    if is_first {
        block.extend_from_slice(b"\x41\x09a.example");
        for (name, value) in FIELDS {
            block.push(0x40);
            for string in [name, value] {
                block.push(string.len() as u8);
                block.extend_from_slice(string.as_bytes());
            }
        }
    } else {
        // The newest entry is the last field.
        block.push(0x80 | (62 + FIELDS.len() as u8));
        block.extend((0..FIELDS.len() as u8).rev().map(|index| 0x80 | (62 + index)));
    }
    let mut frame = vec![0, (block.len() >> 8) as u8, block.len() as u8, 1, 5];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend(block);
    frame
}
