//! Frames of HTTP/3 (RFC 9114) for a cheap client: a request out, its response in. No socket; the clock only records
//! times of arrival.
//!
//! The client allows no dynamic table of QPACK (RFC 9204), so that a head needs no other stream. It checks the status of
//! a response, counts its content, and compares the length with Content-Length and with the first response.

use std::sync::Arc;
use std::time::Instant;

use super::Read;
use super::failure::{Failure, Kind};
use super::http2::integer_of_7_bits;
use super::qpack::Fields;
use super::receiving::{Done, ReceivedBody, Reference};

/// The beginning of the client's control stream: its type, and SETTINGS without settings.
pub(super) const CONTROL_STREAM: [u8; 3] = [0, SETTINGS as u8, 0];

/// The HEADERS frame of a request for `target` of `authority`.
pub(super) fn request(authority: &[u8], target: &[u8]) -> Vec<u8> {
    // No dynamic table; GET and https of the static table; :authority and :path are literals (RFC 9204 §4.5).
    let mut block = vec![0, 0, 0xd1, 0xd7];
    for (name, value) in [(0x50, authority), (0x51, target)] {
        block.push(name);
        integer_of_7_bits(&mut block, value.len());
        block.extend_from_slice(value);
    }
    let mut frame = vec![HEADERS as u8];
    // RFC 9000 §16, in four bytes.
    frame.extend_from_slice(&(block.len() as u32 | 0x8000_0000).to_be_bytes());
    frame.extend_from_slice(&block);
    frame
}

/// A variable-length integer (RFC 9000 §16) and its length in bytes; `None` if it is incomplete.
pub(super) fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let len = 1 << (first >> 6);
    let rest = bytes.get(1..len)?;
    Some((rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)), len))
}

/// Type and length at the beginning of a frame; `None` if they are incomplete.
pub(super) fn frame_header(bytes: &[u8]) -> Option<(u64, u64)> {
    let (kind, len) = integer(bytes)?;
    Some((kind, integer(&bytes[len..])?.0))
}

/// The length of a frame with its header; `None` if the header is incomplete.
pub(super) fn frame_len(bytes: &[u8]) -> Option<usize> {
    let (_, kind) = integer(bytes)?;
    let (payload, length) = integer(&bytes[kind..])?;
    Some(kind + length + usize::try_from(payload).ok()?)
}

/// A response that is being received.
pub(super) struct Response {
    reference: Arc<Reference>,
    /// The beginning of a frame's header, or of HEADERS.
    carry: Vec<u8>,
    /// The frame that is being received, and its bytes still to come. `None`: the next bytes are a frame's header.
    frame: Option<(u64, u64)>,
    begun: Option<Instant>,
    content_length: Option<u64>,
    body: ReceivedBody,
}

/// A complete response and its times.
pub(super) struct Received {
    pub(super) done: Done,
    pub(super) begun: Option<Instant>,
    pub(super) body_began: Option<Instant>,
}

impl Response {
    pub(super) fn new(read: Read, reference: Arc<Reference>) -> Self {
        let body = ReceivedBody::new(&reference, read);
        Self { reference, carry: Vec::new(), frame: None, begun: None, content_length: None, body }
    }

    /// Processes bytes of the stream.
    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while let Some((first, behind)) = bytes.split_first() {
            let Some((kind, left)) = self.frame else {
                self.carry.push(*first);
                bytes = behind;
                if let Some((kind, length)) = frame_header(&self.carry) {
                    self.carry.clear();
                    self.begin(kind, length)?;
                }
                continue;
            };
            let (part, rest) = bytes.split_at(left.min(bytes.len() as u64) as usize);
            let left = left - part.len() as u64;
            bytes = rest;
            match kind {
                DATA => self.body.add(part),
                HEADERS => self.carry.extend_from_slice(part),
                _ => {}
            }
            self.frame = (left > 0).then_some((kind, left));
            if kind == HEADERS && left == 0 {
                let block = std::mem::take(&mut self.carry);
                self.head(&block)?;
            }
        }
        Ok(())
    }

    /// The header of a frame was received.
    fn begin(&mut self, kind: u64, length: u64) -> Result<(), Failure> {
        match kind {
            DATA if self.begun.is_none() => {
                return Err(Failure::new(Kind::Body, "content before the head of a response"));
            }
            HEADERS if length > MAX_HEAD => {
                return Err(Failure::new(Kind::Body, format!("a head of {length} bytes")));
            }
            HEADERS if length == 0 => return Err(Failure::new(Kind::Body, "an empty head")),
            CANCEL_PUSH | SETTINGS | PUSH_PROMISE | GOAWAY => {
                return Err(Failure::new(Kind::Body, format!("a frame of type {kind} on the stream of a request")));
            }
            // Frames of unknown types are skipped (RFC 9114 §9).
            _ => {}
        }
        self.frame = (length > 0).then_some((kind, length));
        Ok(())
    }

    /// The head of a response, an interim response, or trailers.
    fn head(&mut self, block: &[u8]) -> Result<(), Failure> {
        if self.begun.is_some() {
            return Ok(());
        }
        let fields = Fields::decode(block).map_err(|why| Failure::new(Kind::Body, format!("a head that is {why}")))?;
        match fields.status {
            200 => {
                self.begun = Some(Instant::now());
                self.content_length = fields.content_length;
                Ok(())
            }
            100..=199 => Ok(()),
            status => Err(Failure::new(Kind::Status, format!("status {status}"))),
        }
    }

    /// The end of the stream.
    pub(super) fn end(self) -> Result<Received, Failure> {
        if self.begun.is_none() {
            return Err(Failure::new(Kind::Body, "the stream ended without a response"));
        }
        if self.frame.is_some() || !self.carry.is_empty() {
            return Err(Failure::new(Kind::Body, "the stream ended within a frame"));
        }
        if let Some(length) = self.content_length.filter(|length| *length != self.body.len()) {
            let words = format!("a body of {} bytes, and Content-Length is {length}", self.body.len());
            return Err(Failure::new(Kind::Body, words));
        }
        let body_began = self.body.began;
        let done = self.body.end(&self.reference)?;
        Ok(Received { done, begun: self.begun, body_began })
    }
}

/// The maximum length of a head; servers send a few hundred bytes.
const MAX_HEAD: u64 = 16 << 10;

/// Frame types.
const DATA: u64 = 0;
const HEADERS: u64 = 1;
const CANCEL_PUSH: u64 = 3;
const SETTINGS: u64 = 4;
const PUSH_PROMISE: u64 = 5;
pub(super) const GOAWAY: u64 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u16 | 0x4000).to_be_bytes();
        [&[kind][..], &length, payload].concat()
    }

    /// 103, then 200 with Content-Length, a frame of an unknown type, content in two frames, trailers.
    fn response(content_length: &str) -> Vec<u8> {
        let length = [&[0, 0, 0xd9, 0x54, content_length.len() as u8], content_length.as_bytes()].concat();
        let frames = [frame(1, &[0, 0, 0xd8]), frame(1, &length), frame(33, b"grease"), frame(0, b"con")];
        [frames.concat(), frame(0, b""), frame(0, b"tent"), frame(1, &[0, 0, 0x21, b'x', 1, b'y'])].concat()
    }

    fn received(bytes: &[u8], cut: usize) -> Result<u64, Failure> {
        let mut response = Response::new(Read::Verify, Arc::default());
        for part in bytes.chunks(cut) {
            response.receive(part)?;
        }
        response.end().map(|received| received.done.body)
    }

    #[test]
    fn a_response_is_taken_apart_however_it_is_cut() {
        let bytes = response("7");
        for cut in 1..=bytes.len() {
            assert_eq!(received(&bytes, cut), Ok(7), "{cut}");
        }
    }

    #[test]
    fn a_response_that_is_cut_short_is_a_failure() {
        let bytes = response("7");
        let kind = |bytes: &[u8]| received(bytes, bytes.len().max(1)).map_err(|failure| failure.kind);
        // The trailers of nine bytes may be missing as a whole.
        for end in (0..bytes.len()).filter(|end| *end != bytes.len() - 9) {
            assert_eq!(kind(&bytes[..end]), Err(Kind::Body), "{end}");
        }
        assert_eq!(kind(&response("8")), Err(Kind::Body));
        assert_eq!(kind(&frame(1, &[0, 0, 0xdb])), Err(Kind::Status), "404");
        assert_eq!(kind(&frame(0, b"content")), Err(Kind::Body));
        assert_eq!(kind(&frame(4, b"")), Err(Kind::Body), "SETTINGS");
        assert_eq!(kind(&frame(1, &[1, 0, 0xd9])), Err(Kind::Body), "the dynamic table");
        assert_eq!(kind(&frame(1, b"")), Err(Kind::Body));
    }

    #[test]
    fn a_body_unlike_the_first_is_a_failure() {
        let reference = Arc::new(Reference::default());
        let body = |read, body: &[u8]| {
            let mut response = Response::new(read, reference.clone());
            response.receive(&[frame(1, &[0, 0, 0xd9]), frame(0, body)].concat()).expect("a response");
            response.end().map(|received| received.done.body).map_err(|failure| failure.kind)
        };
        assert_eq!(body(Read::Verify, b"content"), Ok(7));
        assert_eq!(body(Read::Decrypt, b"CONTENT"), Ok(7));
        assert_eq!(body(Read::Verify, b"CONTENT"), Err(Kind::Body));
        assert_eq!(body(Read::Decrypt, b"conten"), Err(Kind::Body));
    }

    #[test]
    fn a_request_is_one_frame_whose_length_fits() {
        let bytes = request(b"localhost:1", b"/1k");
        let (kind, length) = frame_header(&bytes).expect("a header");
        assert_eq!((kind, length as usize), (HEADERS, bytes.len() - 5));
        assert_eq!(&bytes[5..], b"\x00\x00\xd1\xd7\x50\x0blocalhost:1\x51\x03/1k");
    }
}
