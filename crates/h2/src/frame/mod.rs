//! Frames (RFC 9113 §4 and §6): headers, payloads of fixed length, and the frames that a server writes.

mod headers;
mod payload;
mod write;

pub(crate) use headers::split_headers;
pub(crate) use payload::{PriorityUpdate, strip_padding, u32_at};
pub(crate) use write::{
    write_go_away, write_headers, write_ping, write_reset, write_settings, write_settings_ack, write_window_update,
};

use crate::stream::StreamId;
pub(crate) use crate::windows::MAX_WINDOW;

/// Length of a frame header.
pub const HEADER_LEN: usize = 9;

/// The maximum payload that fits into one TLS record together with its frame header: 16,384 − 9.
pub const RECORD_PAYLOAD: usize = 16_384 - HEADER_LEN;

/// The default of SETTINGS_MAX_FRAME_SIZE on both sides (RFC 9113 §6.5.2). This crate never raises its own.
pub(crate) const DEFAULT_MAX_FRAME_SIZE: usize = 16_384;

/// The connection preface of a client (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113 §6, RFC 9218 §7.1).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
    pub(crate) const PRIORITY_UPDATE: u8 = 0x10;
}

/// Frame flags.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// A frame header (RFC 9113 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    /// Bytes of payload: 24 bits.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// The stream's identifier without the reserved bit; 0 is the connection.
    pub(crate) stream: u32,
}

/// The payload length in a frame header.
pub fn payload_len(header: &[u8; HEADER_LEN]) -> usize {
    FrameHead::parse(header).length
}

/// The stream that HEADERS with this header end, by trailers or by the head of a response without content.
pub fn ends_by_headers(header: &[u8; HEADER_LEN]) -> Option<StreamId> {
    let head = FrameHead::parse(header);
    (head.kind == kind::HEADERS && head.has(flag::END_STREAM)).then_some(StreamId(head.stream))
}

/// Whether the header is for CONTINUATION, which continues the HEADERS before it.
pub fn is_continuation(header: &[u8; HEADER_LEN]) -> bool {
    FrameHead::parse(header).kind == kind::CONTINUATION
}

impl FrameHead {
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        FrameHead {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & MAX_WINDOW,
        }
    }

    pub(crate) fn encode(self) -> [u8; HEADER_LEN] {
        debug_assert!(self.length < 1 << 24);
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_header_is_what_it_encodes() {
        let head = FrameHead { length: 0x12_3456, kind: kind::DATA, flags: flag::END_STREAM, stream: 0x7fff_fffd };
        assert_eq!(head.encode(), [0x12, 0x34, 0x56, 0, 1, 0x7f, 0xff, 0xff, 0xfd]);
        assert_eq!(FrameHead::parse(&head.encode()), head);
        let mut reserved = head.encode();
        reserved[5] |= 0x80;
        assert_eq!(FrameHead::parse(&reserved), head, "the reserved bit is ignored");
    }
}
