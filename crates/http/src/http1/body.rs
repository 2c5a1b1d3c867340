//! The content of a request (RFC 9112 §6, §7): finds its end, and removes its framing.

use serde::{Deserialize, Serialize};

use super::head::{Framing, Reject, is_token};
use crate::status::Status;

/// Finds the end of a request's content, independent of how its bytes are split.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BodyDrain {
    state: State,
    /// Bytes that may still be read. Chunk sizes, extensions and trailers count too.
    allowance: u64,
    /// Bytes of chunk sizes and extensions that may still be read. Content adds to it.
    framing: u64,
}

/// The result of [`BodyDrain::feed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All bytes belong to the content, which is not complete.
    NeedMore,
    /// The content is complete; the remaining bytes belong to the next request.
    Done {
        /// Number of bytes that belong to the content.
        consumed: usize,
    },
    /// The content is longer than allowed: send the response with `Connection: close`, and close.
    TooLong,
    /// The framing is malformed, so the start of the next request is unknown.
    Broken(Reject),
}

impl BodyDrain {
    /// A drain that accepts at most `cap` bytes.
    pub fn new(framing: Framing, cap: u64) -> Self {
        let state = match framing {
            Framing::None => State::Done,
            Framing::Length(length) => State::Content { length },
            Framing::Chunked => State::SizeStart,
        };
        BodyDrain { state, allowance: cap, framing: MAX_FRAMING }
    }

    /// Whether the content is already known to be too long, so that waiting for it is pointless.
    pub fn is_too_long(&self) -> bool {
        match self.state {
            State::Content { length } => length > self.allowance,
            // The chunk's data, its line end, the last chunk and the final line end: CRLF 0 CRLF CRLF.
            State::Data { length } => length.saturating_add(7) > self.allowance,
            _ => false,
        }
    }

    /// Consumes `input`. After any result but [`Drained::NeedMore`], further calls return the same result and consume nothing.
    pub fn feed(&mut self, input: &[u8]) -> Drained {
        self.decode(input, |_| ())
    }

    /// As [`Self::feed`], but passes the content, without framing and trailers, to `content`.
    pub fn decode(&mut self, input: &[u8], content: impl FnMut(&[u8])) -> Drained {
        self.decode_with_trailers(input, content, |_| ())
    }

    /// As [`Self::decode`], but also passes the bytes of the trailer lines, including line ends, to `trailers`.
    pub fn decode_with_trailers(
        &mut self,
        input: &[u8],
        mut content: impl FnMut(&[u8]),
        mut trailers: impl FnMut(u8),
    ) -> Drained {
        let mut at = 0;
        loop {
            match self.state {
                State::Done => return Drained::Done { consumed: at },
                State::Broken(Fault(why)) => return Drained::Broken(Reject { status: Status::BAD_REQUEST, why }),
                State::Content { length: 0 } => {
                    self.state = State::Done;
                    continue;
                }
                State::Data { length: 0 } => {
                    self.state = State::DataCr;
                    continue;
                }
                _ if self.is_too_long() => return Drained::TooLong,
                _ => {}
            }
            let Some(&byte) = input.get(at) else { return Drained::NeedMore };
            if self.allowance == 0 {
                return Drained::TooLong;
            }
            let taken = match &mut self.state {
                State::Content { length } | State::Data { length } => {
                    let taken = (*length).min((input.len() - at) as u64);
                    *length -= taken;
                    content(&input[at..at + taken as usize]);
                    self.framing = taken.saturating_mul(FRAMING_PER_BYTE).saturating_add(self.framing).min(MAX_FRAMING);
                    taken
                }
                state => {
                    let was_trailer = matches!(state, State::TrailerName | State::TrailerValue | State::TrailerLf);
                    *state = state.step(byte);
                    if was_trailer || *state == State::TrailerName {
                        trailers(byte);
                    } else if self.framing == 0 {
                        *state =
                            State::Broken(Fault("its chunks have too long sizes and extensions for their content"));
                        continue;
                    } else {
                        self.framing -= 1;
                    }
                    1
                }
            };
            self.allowance -= taken;
            at += taken as usize;
        }
    }
}

/// The position in the grammar of RFC 9112 §7.1:
///
/// ```text
/// SizeStart ─► Size ─► [BeforeExtension ─►] [Extension ─►] SizeLf
///   size > 0:  SizeLf ─► Data ─► DataCr ─► DataLf ─► SizeStart
///   size 0:    SizeLf ─► TrailerStart ─► TrailerName ─► TrailerValue ─► TrailerLf ─► TrailerStart
///                        TrailerStart ─► EndLf ─► Done
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    Content {
        length: u64,
    },
    SizeStart,
    Size {
        length: u64,
    },
    /// Whitespace after the size; only an extension may follow.
    BeforeExtension {
        length: u64,
    },
    Extension {
        length: u64,
    },
    SizeLf {
        length: u64,
    },
    Data {
        length: u64,
    },
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
    #[serde(skip)]
    Broken(Fault),
}

/// Why content is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fault(&'static str);

impl State {
    fn step(self, byte: u8) -> State {
        match self {
            State::SizeStart => match hex(byte) {
                Some(digit) => State::Size { length: digit },
                None => State::Broken(Fault("a chunk has no size")),
            },
            State::Size { length } => match (byte, hex(byte)) {
                (_, Some(digit)) => match length.checked_mul(16) {
                    Some(length) => State::Size { length: length | digit },
                    None => State::Broken(Fault("a chunk's size exceeds 64 bits")),
                },
                (b'\r', _) => State::SizeLf { length },
                (b';', _) => State::Extension { length },
                (b' ' | b'\t', _) => State::BeforeExtension { length },
                _ => State::Broken(Fault("a chunk's size is not hexadecimal")),
            },
            State::BeforeExtension { length } => match byte {
                b' ' | b'\t' => self,
                b';' => State::Extension { length },
                _ => State::Broken(Fault("whitespace after a chunk's size")),
            },
            State::Extension { length } => match byte {
                b'\r' => State::SizeLf { length },
                _ if is_field_content(byte) => self,
                _ => State::Broken(Fault("a control character in a chunk extension")),
            },
            State::SizeLf { length } => match (byte, length) {
                (b'\n', 0) => State::TrailerStart,
                (b'\n', _) => State::Data { length },
                _ => State::Broken(Fault("a CR without LF after a chunk's size")),
            },
            State::DataCr if byte == b'\r' => State::DataLf,
            State::DataLf if byte == b'\n' => State::SizeStart,
            State::DataCr | State::DataLf => State::Broken(Fault("a chunk does not end where its size says")),
            State::TrailerStart => match byte {
                b'\r' => State::EndLf,
                _ if is_token(byte) => State::TrailerName,
                _ => State::Broken(Fault("a trailer line does not begin with a field name")),
            },
            State::TrailerName => match byte {
                b':' => State::TrailerValue,
                _ if is_token(byte) => self,
                _ => State::Broken(Fault("a trailer field name is not a token")),
            },
            State::TrailerValue => match byte {
                b'\r' => State::TrailerLf,
                _ if is_field_content(byte) => self,
                _ => State::Broken(Fault("a control character in a trailer")),
            },
            State::TrailerLf if byte == b'\n' => State::TrailerStart,
            State::EndLf if byte == b'\n' => State::Done,
            State::TrailerLf | State::EndLf => State::Broken(Fault("a CR without LF in the trailers")),
            State::Content { .. } | State::Data { .. } | State::Done | State::Broken(_) => self,
        }
    }
}

/// The maximum number of bytes of chunk sizes and extensions between two bytes of content. A peer that sends little
/// content in much framing costs as much as a peer that sends much content.
const MAX_FRAMING: u64 = 16 << 10;

/// The number of bytes by which a byte of content raises the rest of [`MAX_FRAMING`]. The framing of a one-byte chunk
/// has at least five bytes, or twelve if its size has eight digits.
const FRAMING_PER_BYTE: u64 = 16;

fn hex(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

/// HTAB, SP, VCHAR and obs-text (RFC 9110 §5.5).
fn is_field_content(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: u64 = 100;

    /// Feeds `input` in pieces of `step` bytes. Returns the length of the content, or the result that ended it.
    fn drain(framing: Framing, input: &[u8], step: usize) -> Result<usize, Drained> {
        let mut drain = BodyDrain::new(framing, CAP);
        let mut before = 0;
        for piece in input.chunks(step) {
            match drain.feed(piece) {
                Drained::NeedMore => before += piece.len(),
                Drained::Done { consumed } => return Ok(before + consumed),
                ended => return Err(ended),
            }
        }
        Err(drain.feed(b""))
    }

    fn check(framing: Framing, input: &[u8], expected: Result<usize, Drained>) {
        for step in 1..=input.len().max(1) {
            let found = drain(framing, input, step);
            // If there is no byte to feed, the first empty read may already return the end.
            let found = if found == Err(Drained::Done { consumed: 0 }) { Ok(input.len()) } else { found };
            assert_eq!(found, expected, "{} in pieces of {step}", input.escape_ascii());
        }
    }

    #[test]
    fn length() {
        check(Framing::None, b"", Ok(0));
        check(Framing::None, b"GET", Ok(0));
        check(Framing::Length(0), b"GET", Ok(0));
        check(Framing::Length(3), b"abcGET", Ok(3));
        check(Framing::Length(3), b"ab", Err(Drained::NeedMore));
        check(Framing::Length(CAP), &[b'x'; 101], Ok(100));
        check(Framing::Length(CAP + 1), b"", Err(Drained::TooLong));
        check(Framing::Length(u64::MAX), b"x", Err(Drained::TooLong));
    }

    #[test]
    fn chunked_content_ends_where_rfc_9112_section_7_1_says() {
        for content in [
            "0\r\n\r\n",
            "000\r\n\r\n",
            "5\r\nabcde\r\n0\r\n\r\n",
            "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
            "0000000000000000000001\r\nx\r\n0\r\n\r\n",
            "2\r\n\r\n\r\n0\r\n\r\n",
            "1;a=b\r\nx\r\n0;c\r\n\r\n",
            "1 \t; a=\"b;c\"\r\nx\r\n0\r\n\r\n",
            "1;\r\nx\r\n0\r\n\r\n",
            "0\r\nA: b\r\nC:\r\n\r\n",
            "0\r\nContent-Length: 5\r\n\r\n",
        ] {
            check(Framing::Chunked, format!("{content}GET / HTTP/1.1\r\n").as_bytes(), Ok(content.len()));
            check(Framing::Chunked, &content.as_bytes()[..content.len() - 1], Err(Drained::NeedMore));
        }
    }

    #[test]
    fn sizes_and_extensions_are_bounded_by_the_content() {
        let read = |chunk: &str, times: usize| {
            let mut body = BodyDrain::new(Framing::Chunked, u64::MAX);
            body.feed(chunk.repeat(times).as_bytes())
        };
        let extension = |length: usize| format!("1;{}\r\nx\r\n", "e".repeat(length));
        // The shortest framing, and padded framing.
        for chunk in ["1\r\nx\r\n", "00000001\r\nx\r\n", "00000001  ;\r\nx\r\n"] {
            assert_eq!(read(chunk, 100_000), Drained::NeedMore, "{chunk:?}");
        }
        // One long line, even after much content, and many lines of some length.
        let large = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
        for chunks in [extension(MAX_FRAMING as usize), large + &extension(MAX_FRAMING as usize)] {
            assert!(matches!(read(&chunks, 1), Drained::Broken(_)));
        }
        assert_eq!(read(&extension(100), 10), Drained::NeedMore);
        assert!(matches!(read(&extension(100), 1000), Drained::Broken(_)));
        // With enough content the same framing is accepted.
        let chunk = format!("64;{}\r\n{}\r\n", "e".repeat(1000), "x".repeat(100));
        assert_eq!(read(&chunk, 10_000), Drained::NeedMore);
    }

    #[test]
    fn broken_chunks() {
        for (content, why) in [
            ("\r\n", "a chunk has no size"),
            (";a\r\n", "a chunk has no size"),
            ("-1\r\n", "a chunk has no size"),
            ("+1\r\n", "a chunk has no size"),
            (" 1\r\n", "a chunk has no size"),
            ("g\r\n", "a chunk has no size"),
            ("0x1\r\n", "a chunk's size is not hexadecimal"),
            ("1_0\r\n", "a chunk's size is not hexadecimal"),
            ("1\n", "a chunk's size is not hexadecimal"),
            ("1,1\r\n", "a chunk's size is not hexadecimal"),
            ("1 \r\n", "whitespace after a chunk's size"),
            ("1 1\r\n", "whitespace after a chunk's size"),
            ("10000000000000000\r\n", "a chunk's size exceeds 64 bits"),
            ("1;a\nx\r\n", "a control character in a chunk extension"),
            ("1;\0\r\n", "a control character in a chunk extension"),
            ("1\rx", "a CR without LF after a chunk's size"),
            ("1;a\rb\r\n", "a CR without LF after a chunk's size"),
            ("1\r\nxy\r\n", "a chunk does not end where its size says"),
            ("1\r\nx\n0\r\n", "a chunk does not end where its size says"),
            ("1\r\nx\rx", "a chunk does not end where its size says"),
            ("1\r\nx0\r\n", "a chunk does not end where its size says"),
            ("0\r\n\n", "a trailer line does not begin with a field name"),
            ("0\r\n A: b\r\n", "a trailer line does not begin with a field name"),
            ("0\r\n: b\r\n", "a trailer line does not begin with a field name"),
            ("0\r\nA : b\r\n", "a trailer field name is not a token"),
            ("0\r\nA\r\n", "a trailer field name is not a token"),
            ("0\r\nGET / HTTP/1.1\r\n", "a trailer field name is not a token"),
            ("0\r\nA: b\nC: d\r\n", "a control character in a trailer"),
            ("0\r\nA: b\rC: d\r\n", "a CR without LF in the trailers"),
            ("0\r\n\r\r\n", "a CR without LF in the trailers"),
        ] {
            check(
                Framing::Chunked,
                content.as_bytes(),
                Err(Drained::Broken(Reject { status: Status::BAD_REQUEST, why })),
            );
        }
    }

    #[test]
    fn decoding_leaves_the_content_alone() {
        for (framing, input, expected) in [
            (Framing::Length(3), "abcGET", "abc"),
            (Framing::Chunked, "2;a=b\r\nab\r\n3\r\n\r\nc\r\n0\r\nA: b\r\n\r\nGET", "ab\r\nc"),
            (Framing::None, "GET", ""),
        ] {
            for step in 1..=input.len() {
                let mut content = Vec::new();
                let mut body = BodyDrain::new(framing, CAP);
                for piece in input.as_bytes().chunks(step) {
                    body.decode(piece, |bytes| content.extend_from_slice(bytes));
                }
                assert_eq!(String::from_utf8(content).unwrap(), expected, "in pieces of {step}");
            }
        }
    }

    #[test]
    fn trailers_are_passed_on_as_lines() {
        for (input, expected) in [
            ("2\r\nab\r\n0\r\n\r\nGET", ""),
            ("2\r\nab\r\n0;x=y\r\nA: b\r\nC:\td \r\n\r\nE: f\r\n", "A: b\r\nC:\td \r\n"),
        ] {
            for step in 1..=input.len() {
                let (mut content, mut trailers) = (Vec::new(), Vec::new());
                let mut body = BodyDrain::new(Framing::Chunked, CAP);
                for piece in input.as_bytes().chunks(step) {
                    let add = |bytes: &[u8]| content.extend_from_slice(bytes);
                    body.decode_with_trailers(piece, add, |byte| trailers.push(byte));
                }
                assert_eq!(String::from_utf8(trailers).unwrap(), expected, "in pieces of {step}");
                assert_eq!(content, b"ab");
            }
        }
    }

    #[test]
    fn every_byte_counts_against_the_cap() {
        let exactly = |length: usize| format!("{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length));
        // 100 bytes: size line 4, data, CRLF, last chunk 5.
        check(Framing::Chunked, exactly(89).as_bytes(), Ok(100));
        check(Framing::Chunked, exactly(90).as_bytes(), Err(Drained::TooLong));
        check(Framing::Chunked, b"59\r\n", Err(Drained::NeedMore));
        check(Framing::Chunked, b"5a\r\n", Err(Drained::TooLong));
        check(Framing::Chunked, b"ffffffffffffffff\r\n", Err(Drained::TooLong));
        check(Framing::Chunked, format!("1;{}", "e".repeat(99)).as_bytes(), Err(Drained::TooLong));
        check(Framing::Chunked, format!("0\r\nA:{}", "t".repeat(96)).as_bytes(), Err(Drained::TooLong));
        check(Framing::Chunked, format!("{}1\r\n", "0".repeat(100)).as_bytes(), Err(Drained::TooLong));
        check(Framing::Chunked, "1\r\nx\r\n".repeat(17).as_bytes(), Err(Drained::TooLong));
    }

    #[test]
    fn final_results_are_repeated() {
        for (framing, input, ended) in [
            (Framing::Length(1), &b"x"[..], Drained::Done { consumed: 0 }),
            (Framing::Length(CAP + 1), b"x", Drained::TooLong),
        ] {
            let mut drain = BodyDrain::new(framing, CAP);
            drain.feed(input);
            assert_eq!(drain.feed(b"0\r\n\r\n"), ended);
        }
        let mut drain = BodyDrain::new(Framing::Chunked, CAP);
        let broken = drain.feed(b"z");
        assert!(matches!(broken, Drained::Broken(_)));
        assert_eq!(drain.feed(b"0\r\n\r\n"), broken);
    }
}
