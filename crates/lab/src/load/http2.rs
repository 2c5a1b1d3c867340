//! Frames of HTTP/2 (RFC 9113) for a cheap client. No socket; the clock only records times of arrival.
//!
//! The client announces a dynamic table of size 0 and the largest possible windows, so that it need not decode heads
//! and seldom opens a window. It checks the status of a response, counts its content, and compares the length with the
//! first response.

use std::sync::Arc;
use std::time::Instant;

use super::Read;
use super::failure::{Failure, Kind};
use super::receiving::{Done, ReceivedBody, Reference};

/// The streams of a connection.
pub(super) struct Frames {
    read: Read,
    reference: Arc<Reference>,
    /// The beginning of a frame header, or of the payload of a frame other than DATA.
    carry: Vec<u8>,
    /// DATA that is being received.
    data: Option<Data>,
    next: u32,
    open: Vec<Stream>,
    answered: Vec<Answered>,
    /// Frames to be sent.
    outgoing: Vec<u8>,
    /// Bytes of content received since the connection's window was last opened.
    consumed: u32,
    /// The server accepts no more requests.
    ended: bool,
}

#[derive(Clone, Copy)]
struct Data {
    stream: u32,
    left: usize,
    end: bool,
}

struct Stream {
    id: u32,
    due: Instant,
    sent: Instant,
    begun: Option<Instant>,
    body: ReceivedBody,
}

/// A correct response and its times.
pub(super) struct Answered {
    pub(super) due: Instant,
    pub(super) sent: Instant,
    pub(super) begun: Instant,
    pub(super) body_began: Option<Instant>,
    pub(super) done: Done,
}

impl Frames {
    /// The state of a new connection. The client's preface is sent first.
    pub(super) fn new(read: Read, reference: Arc<Reference>) -> Self {
        let mut outgoing = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let mut settings = Vec::new();
        for (setting, value) in [(HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, LARGEST_WINDOW)] {
            settings.extend_from_slice(&u16::to_be_bytes(setting));
            settings.extend_from_slice(&u32::to_be_bytes(value));
        }
        frame(&mut outgoing, SETTINGS, 0, 0, &settings);
        frame(&mut outgoing, WINDOW_UPDATE, 0, 0, &(LARGEST_WINDOW - DEFAULT_WINDOW).to_be_bytes());
        Self {
            read,
            reference,
            carry: Vec::new(),
            data: None,
            next: 1,
            open: Vec::new(),
            answered: Vec::new(),
            outgoing,
            consumed: 0,
            ended: false,
        }
    }

    /// Requests `target` of `authority` on a new stream. `due`: its intended start.
    pub(super) fn request(&mut self, authority: &[u8], target: &[u8], due: Instant) {
        // GET and https of the static table; :authority and :path are literals (RFC 7541 §6.1, §6.2.2).
        let mut block = vec![0x82, 0x87];
        for (name, value) in [(1, authority), (4, target)] {
            block.push(name);
            integer_of_7_bits(&mut block, value.len());
            block.extend_from_slice(value);
        }
        frame(&mut self.outgoing, HEADERS, END_HEADERS | END_STREAM, self.next, &block);
        let body = ReceivedBody::new(&self.reference, self.read);
        let sent = Instant::now();
        self.open.push(Stream { id: self.next, due, sent, begun: None, body });
        self.next += 2;
    }

    /// The number of requests without a complete response.
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether the connection accepts no more requests.
    pub(super) fn ended(&self) -> bool {
        self.ended || self.next >= LAST_STREAM
    }

    /// Frames to be sent.
    pub(super) fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Completed responses.
    pub(super) fn take_answered(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answered)
    }

    /// Processes the content of a record.
    pub(super) fn receive(&mut self, mut payload: &[u8]) -> Result<(), Failure> {
        loop {
            if let Some(data) = &mut self.data {
                let (content, rest) = payload.split_at(data.left.min(payload.len()));
                data.left -= content.len();
                payload = rest;
                let data = *data;
                self.content(data, content)?;
                if data.left > 0 {
                    return Ok(());
                }
                self.data = None;
            }
            let missing = |carry: &Vec<u8>| match carry.first_chunk::<HEADER>() {
                None => HEADER - carry.len(),
                Some(head) if head[3] == DATA => 0,
                Some(head) => HEADER + length(head) - carry.len(),
            };
            // The header, then the rest.
            for _ in 0..2 {
                let (more, rest) = payload.split_at(missing(&self.carry).min(payload.len()));
                self.carry.extend_from_slice(more);
                payload = rest;
            }
            if self.carry.len() < HEADER || missing(&self.carry) > 0 {
                return Ok(());
            }
            let carry = std::mem::take(&mut self.carry);
            self.whole(&carry)?;
            self.carry = carry;
            self.carry.clear();
        }
    }

    /// Processes a whole frame, or the header of DATA.
    fn whole(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some((head, payload)) = bytes.split_first_chunk::<HEADER>() else { return Ok(()) };
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & LARGEST_WINDOW;
        let code = |at: usize| {
            payload.get(at..at + 4).map_or(0, |code| u32::from_be_bytes(code.try_into().unwrap_or_default()))
        };
        match kind {
            DATA if flags & PADDED != 0 => {
                Err(Failure::new(Kind::Body, "the server pads DATA, which this client does not read"))
            }
            DATA => {
                self.data = Some(Data { stream, left: length(head), end: flags & END_STREAM != 0 });
                Ok(())
            }
            HEADERS => {
                self.head(stream, payload)?;
                if flags & END_STREAM != 0 { self.end(stream) } else { Ok(()) }
            }
            SETTINGS if flags & ACK == 0 => {
                frame(&mut self.outgoing, SETTINGS, ACK, 0, &[]);
                Ok(())
            }
            PING if flags & ACK == 0 => {
                frame(&mut self.outgoing, PING, ACK, 0, payload);
                Ok(())
            }
            GOAWAY if code(4) == 0 => {
                self.ended = true;
                Ok(())
            }
            GOAWAY => Err(Failure::new(Kind::Io, format!("the server ended the connection: HTTP/2 error {}", code(4)))),
            RST_STREAM => Err(Failure::new(Kind::Body, format!("the server reset a stream: HTTP/2 error {}", code(0)))),
            _ if length(head) > LARGEST_FRAME => Err(Failure::new(Kind::Body, "no frame of HTTP/2")),
            _ => Ok(()),
        }
    }

    /// The head of a response, or trailers.
    fn head(&mut self, stream: u32, block: &[u8]) -> Result<(), Failure> {
        let Some(stream) = self.open.iter_mut().find(|open| open.id == stream) else { return Ok(()) };
        if stream.begun.replace(Instant::now()).is_some() {
            return Ok(());
        }
        // After updates of the table size (RFC 7541 §6.3), :status 200 is one byte.
        let updates = block.iter().take_while(|byte| **byte & 0xe0 == 0x20).count();
        match block.get(updates) {
            Some(&STATUS_200) => Ok(()),
            _ => Err(Failure::new(Kind::Status, "a status other than 200")),
        }
    }

    fn content(&mut self, data: Data, content: &[u8]) -> Result<(), Failure> {
        self.consumed += content.len() as u32;
        if self.consumed > LARGEST_WINDOW / 2 {
            frame(&mut self.outgoing, WINDOW_UPDATE, 0, 0, &self.consumed.to_be_bytes());
            self.consumed = 0;
        }
        let Some(stream) = self.open.iter_mut().find(|open| open.id == data.stream) else {
            return Err(Failure::new(Kind::Body, "content after the end of a response"));
        };
        stream.body.add(content);
        if data.end && data.left == 0 { self.end(data.stream) } else { Ok(()) }
    }

    fn end(&mut self, stream: u32) -> Result<(), Failure> {
        let Some(index) = self.open.iter().position(|open| open.id == stream) else { return Ok(()) };
        let Stream { due, sent, begun, body, .. } = self.open.swap_remove(index);
        let body_began = body.began;
        let done = body.end(&self.reference)?;
        let begun = begun.unwrap_or_else(Instant::now);
        self.answered.push(Answered { due, sent, begun, body_began, done });
        Ok(())
    }
}

fn length(head: &[u8; HEADER]) -> usize {
    u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// RFC 7541 §5.1, for a length below 127 + 2^14.
pub(super) fn integer_of_7_bits(out: &mut Vec<u8>, value: usize) {
    match value.checked_sub(127) {
        None => out.push(value as u8),
        Some(rest) if rest < 128 => out.extend_from_slice(&[127, rest as u8]),
        Some(rest) => out.extend_from_slice(&[127, rest as u8 | 0x80, (rest >> 7) as u8]),
    }
}

const HEADER: usize = 9;
const LARGEST_FRAME: usize = 1 << 14;
const DEFAULT_WINDOW: u32 = 65_535;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
const LAST_STREAM: u32 = 1 << 30;
const STATUS_200: u8 = 0x88;

/// Frame types.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Flags.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// Settings.
const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(read: Read) -> Frames {
        let mut frames = Frames::new(read, Arc::default());
        frames.take_outgoing();
        frames
    }

    fn ask(frames: &mut Frames) {
        frames.request(b"localhost:1", b"/1k", Instant::now());
    }

    /// SETTINGS, then responses on streams 1 and 3 whose frames alternate.
    fn two_responses(of_third: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(&mut bytes, SETTINGS, 0, 0, &[]);
        frame(&mut bytes, HEADERS, END_HEADERS, 1, &[0x20, STATUS_200, 0]);
        frame(&mut bytes, HEADERS, END_HEADERS, 3, &[STATUS_200]);
        frame(&mut bytes, DATA, 0, 1, b"con");
        frame(&mut bytes, DATA, 0, 3, b"cont");
        frame(&mut bytes, DATA, END_STREAM, 1, b"tent");
        frame(&mut bytes, DATA, END_STREAM, 3, of_third);
        bytes
    }

    #[test]
    fn streams_are_taken_apart_however_records_cut_them() {
        let bytes = two_responses(b"ent");
        for cut in 1..bytes.len() {
            let mut frames = frames(Read::Verify);
            ask(&mut frames);
            ask(&mut frames);
            assert_eq!(frames.open(), 2);
            frames.take_outgoing();
            for record in bytes.chunks(cut) {
                frames.receive(record).unwrap();
            }
            let bodies: Vec<u64> = frames.take_answered().iter().map(|answered| answered.done.body).collect();
            assert_eq!((bodies, frames.open()), (vec![7, 7], 0), "{cut}");
            let mut reply = Vec::new();
            frame(&mut reply, SETTINGS, ACK, 0, &[]);
            assert_eq!(frames.take_outgoing(), reply);
        }
    }

    #[test]
    fn a_response_unlike_the_first_is_a_failure() {
        let failure = |read: Read, bytes: &[u8]| {
            let mut frames = frames(read);
            ask(&mut frames);
            ask(&mut frames);
            frames.receive(bytes).unwrap_err().kind
        };
        assert_eq!(failure(Read::Drain, &two_responses(b"en")), Kind::Body);
        assert_eq!(failure(Read::Verify, &two_responses(b"ENT")), Kind::Body);
        let of = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
            let mut bytes = Vec::new();
            frame(&mut bytes, kind, flags, stream, payload);
            bytes
        };
        assert_eq!(failure(Read::Drain, &of(HEADERS, END_HEADERS, 1, &[0x8d])), Kind::Status);
        assert_eq!(failure(Read::Drain, &of(RST_STREAM, 0, 1, &[0, 0, 0, 2])), Kind::Body);
        assert_eq!(failure(Read::Drain, &of(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11])), Kind::Io);
    }
}
