//! Frames (RFC 9114 §7): a type, a length, and a payload.

use crate::error::ConnectionError;
use crate::varint;

/// Frame types (RFC 9114 §11.2.1, RFC 9218 §7.2).
pub(crate) mod kind {
    pub(crate) const DATA: u64 = 0x0;
    pub(crate) const HEADERS: u64 = 0x1;
    pub(crate) const CANCEL_PUSH: u64 = 0x3;
    pub(crate) const SETTINGS: u64 = 0x4;
    pub(crate) const PUSH_PROMISE: u64 = 0x5;
    pub(crate) const GOAWAY: u64 = 0x7;
    pub(crate) const MAX_PUSH_ID: u64 = 0xd;
    pub(crate) const PRIORITY_UPDATE: u64 = 0xf_0700;
    pub(crate) const PRIORITY_UPDATE_OF_PUSH: u64 = 0xf_0701;
}

/// Types that HTTP/2 has and HTTP/3 has not (RFC 9114 §7.2.8).
pub(crate) fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// The beginning of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) kind: u64,
    pub(crate) length: u64,
}

/// The longest beginning of a frame.
const MAX_HEAD: usize = 16;

impl FrameHead {
    #[inline]
    fn parse(input: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, rest) = varint::read(input)?;
        let (length, rest) = varint::read(rest)?;
        Some((FrameHead { kind, length }, rest))
    }

    #[inline]
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        varint::write(out, self.kind);
        varint::write(out, self.length);
    }
}

/// Reads the beginnings of frames from input that may be split anywhere.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeadReader {
    bytes: [u8; MAX_HEAD],
    len: u8,
}

impl HeadReader {
    /// The next beginning, if it is complete. Removes what it reads from `input`.
    #[inline]
    pub(crate) fn read(&mut self, input: &mut &[u8]) -> Option<FrameHead> {
        if self.len == 0
            && let Some((head, rest)) = FrameHead::parse(input)
        {
            *input = rest;
            return Some(head);
        }
        self.read_bytewise(input)
    }

    fn read_bytewise(&mut self, input: &mut &[u8]) -> Option<FrameHead> {
        while let Some((byte, rest)) = input.split_first() {
            *input = rest;
            let at = usize::from(self.len);
            self.bytes[at] = *byte;
            if let Some((head, _)) = FrameHead::parse(&self.bytes[..=at]) {
                self.len = 0;
                return Some(head);
            }
            self.len += 1; // At most 15: two integers of 8 bytes are complete with the last of 16 bytes.
        }
        None
    }

    /// Whether a beginning is incomplete.
    pub(crate) fn is_within(&self) -> bool {
        self.len > 0
    }
}

/// The payload of PRIORITY_UPDATE (RFC 9218 §7.2).
pub(crate) struct PriorityUpdate<'a> {
    pub(crate) element: u64,
    pub(crate) value: &'a [u8],
}

impl<'a> PriorityUpdate<'a> {
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, ConnectionError> {
        let (element, value) = varint::read(payload).ok_or(ConnectionError::frame("PRIORITY_UPDATE without an ID"))?;
        Ok(PriorityUpdate { element, value })
    }
}

/// The payload of a frame that is one integer: GOAWAY, MAX_PUSH_ID, CANCEL_PUSH.
pub(crate) fn single_integer(payload: &[u8]) -> Result<u64, ConnectionError> {
    match varint::read(payload) {
        Some((value, [])) => Ok(value),
        _ => Err(ConnectionError::frame("a frame of a length that its type does not have")),
    }
}

/// Appends HEADERS, whose field section consists of `prefix` and `parts`.
pub(crate) fn write_headers(out: &mut Vec<u8>, prefix: &[u8], parts: &[&[u8]]) {
    let length = prefix.len() + parts.iter().map(|part| part.len()).sum::<usize>();
    out.reserve(MAX_HEAD + length);
    FrameHead { kind: kind::HEADERS, length: length as u64 }.write(out);
    out.extend_from_slice(prefix);
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends GOAWAY.
pub(crate) fn write_go_away(out: &mut Vec<u8>, stream: u64) {
    FrameHead { kind: kind::GOAWAY, length: varint::len(stream) as u64 }.write(out);
    varint::write(out, stream);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_may_be_split_anywhere() {
        for (kind, length) in [(0, 0), (1, 300), (kind::PRIORITY_UPDATE, 70_000), (varint::MAX, varint::MAX)] {
            let mut bytes = Vec::new();
            FrameHead { kind, length }.write(&mut bytes);
            bytes.push(0xaa);
            for split in 0..bytes.len() {
                let (mut reader, (mut first, mut second)) = (HeadReader::default(), bytes.split_at(split));
                let head = reader.read(&mut first).or_else(|| {
                    assert_eq!(reader.is_within(), split > 0);
                    reader.read(&mut second)
                });
                assert_eq!((head, reader.is_within()), (Some(FrameHead { kind, length }), false));
                assert_eq!(first.len() + second.len(), if split + 1 == bytes.len() { 1 } else { second.len() });
            }
        }
    }

    #[test]
    fn a_payload_of_one_integer_has_no_other_bytes() {
        assert_eq!(single_integer(&[0x40, 0x25]), Ok(37));
        for payload in [&[][..], &[0x40], &[1, 0]] {
            single_integer(payload).unwrap_err();
        }
    }
}
