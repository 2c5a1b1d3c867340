//! However the bytes of streams are split, the events are the same.

use sealion_h3::{Limits, StreamId};

use crate::support::*;

/// A small generator whose seed reproduces a failure (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) as usize % limit
    }

    fn frame(&mut self) -> Vec<u8> {
        let value = "v".repeat(self.below(90));
        match self.below(12) {
            0 | 1 => get_with(&[("x", &value), ("cookie", "a"), ("cookie", "b")]),
            2 => post_with(&[("content-length", "10")]),
            3 | 4 => frame(DATA, &vec![7; self.below(20)]),
            5 => headers(&[("x-trailer", &value)]),
            6 => frame(RESERVED, value.as_bytes()),
            7 => frame(DATA, &[1; 10]),
            8 => headers(&[("X", "1")].map(|(_, value)| ("x", value))),
            9 => frame(HEADERS, &[0, 0, 0xff, 0x24][..self.below(4)]),
            10 => frame(GOAWAY, &[0]),
            _ => get()[..self.below(8)].to_vec(),
        }
    }
}

/// Everything that a stream causes, content put together.
fn receive<'a>(pieces: impl Iterator<Item = &'a [u8]>, fin: bool) -> (Vec<String>, Vec<u8>, String) {
    let mut server = Server::new(Limits { head: 500, ..Limits::default() });
    server.open(0).unwrap();
    let (mut events, mut content) = (Vec::new(), Vec::new());
    let mut pieces = pieces.peekable();
    let mut ended = false;
    while let Some(mut piece) = pieces.next() {
        let last = fin && pieces.peek().is_none();
        loop {
            match server.connection.receive(StreamId::new(0), &mut piece, last, &mut server.head) {
                Ok(Some(event)) => match Seen::new(event, &server.head) {
                    Seen::Data { data, end, .. } => {
                        content.extend(data);
                        ended |= end;
                    }
                    // Whether the end is known with the head depends on the pieces.
                    Seen::Request { end, fields, .. } => {
                        events.push(format!("request {fields:?}"));
                        ended |= end;
                    }
                    Seen::TooLarge { end, .. } => {
                        events.push("too large".to_owned());
                        ended |= end;
                    }
                    // A request whose content is missing may have been passed to the driver.
                    Seen::Malformed(_) | Seen::Reset { .. } => events.push("failed".to_owned()),
                    other => events.push(format!("{other:?}")),
                },
                Ok(None) => break,
                Err(error) => {
                    events.push(error.to_string());
                    return (events, content, String::new());
                }
            }
        }
        assert!(piece.is_empty());
    }
    (events, content, format!("{ended}"))
}

#[test]
fn events_do_not_depend_on_how_the_input_is_split() {
    for seed in 1..3000 {
        let mut random = Random(seed);
        let bytes: Vec<u8> = (0..random.below(6)).flat_map(|_| random.frame()).collect();
        let fin = random.below(2) == 0;
        let whole = receive([&bytes[..]].into_iter(), fin);
        for size in [1, 2, 3, 7, 50] {
            let pieces = bytes.chunks(size).chain([&[][..]]);
            let mut split = receive(pieces, fin);
            // With the whole request at hand, one without its content is malformed at once.
            if whole.0 == ["failed"] && split.0.len() == 2 && split.0[1] == "failed" {
                split.0.remove(0);
            }
            assert_eq!(split, whole, "seed {seed}, pieces of {size}: {}", bytes.escape_ascii());
        }
    }
}
