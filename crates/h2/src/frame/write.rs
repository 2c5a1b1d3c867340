//! The frames that a server writes, except DATA.

use crate::error::ErrorCode;

use super::{DEFAULT_MAX_FRAME_SIZE, FrameHead, flag, kind};

pub(crate) fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    write_head(out, settings.len() * 6, kind::SETTINGS, 0, 0);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn write_settings_ack(out: &mut Vec<u8>) {
    write_head(out, 0, kind::SETTINGS, flag::ACK, 0);
}

pub(crate) fn write_ping(out: &mut Vec<u8>, ack: bool, opaque: [u8; 8]) {
    write_head(out, 8, kind::PING, if ack { flag::ACK } else { 0 }, 0);
    out.extend_from_slice(&opaque);
}

pub(crate) fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write_head(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(crate) fn write_go_away(out: &mut Vec<u8>, last: u32, code: ErrorCode) {
    write_head(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(crate) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_head(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Writes a header block that consists of `prefix` and `parts`: HEADERS, then CONTINUATION if the block is longer than
/// a frame.
pub(crate) fn write_headers(out: &mut Vec<u8>, stream: u32, end_stream: bool, prefix: &[u8], parts: &[&[u8]]) {
    let mut left = prefix.len() + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut kind = kind::HEADERS;
    let mut flags = if end_stream { flag::END_STREAM } else { 0 };
    let mut room = left.min(DEFAULT_MAX_FRAME_SIZE);
    out.reserve(super::HEADER_LEN + left);
    if room == left {
        flags |= flag::END_HEADERS;
    }
    write_head(out, room, kind, flags, stream);
    for mut part in std::iter::once(prefix).chain(parts.iter().copied()) {
        while part.len() > room {
            let (now, later) = part.split_at(room);
            out.extend_from_slice(now);
            left -= now.len();
            part = later;
            kind = kind::CONTINUATION;
            room = left.min(DEFAULT_MAX_FRAME_SIZE);
            write_head(out, room, kind, if room == left { flag::END_HEADERS } else { 0 }, stream);
        }
        out.extend_from_slice(part);
        left -= part.len();
        room -= part.len();
    }
}

fn write_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    out.extend_from_slice(&FrameHead { length, kind, flags, stream }.encode());
}

#[cfg(test)]
mod tests {
    use super::super::HEADER_LEN;
    use super::*;

    #[test]
    fn a_long_header_block_continues() {
        for (lengths, frames) in [
            (&[0][..], &[0][..]),
            (&[10, 20], &[30]),
            (&[16_384], &[16_384]),
            (&[16_383, 2, 5], &[16_384, 6]),
            (&[16_384, 1], &[16_384, 1]),
            (&[1, 40_000], &[16_384, 16_384, 7233]),
        ] {
            let block: Vec<Vec<u8>> = lengths.iter().map(|length| (0..*length).map(|at| at as u8).collect()).collect();
            let parts: Vec<&[u8]> = block.iter().map(Vec::as_slice).collect();
            let mut out = Vec::new();
            write_headers(&mut out, 1, true, parts[0], &parts[1..]);
            let (mut rest, mut seen, mut content) = (&out[..], Vec::new(), Vec::new());
            while let Some((head, tail)) = rest.split_first_chunk::<HEADER_LEN>() {
                let head = FrameHead::parse(head);
                let first = seen.is_empty();
                assert_eq!(head.kind, if first { kind::HEADERS } else { kind::CONTINUATION });
                assert_eq!(head.has(flag::END_STREAM), first);
                assert_eq!(head.has(flag::END_HEADERS), head.length == tail.len());
                seen.push(head.length);
                content.extend_from_slice(&tail[..head.length]);
                rest = &tail[head.length..];
            }
            assert_eq!((seen.as_slice(), content), (frames, block.concat()));
        }
    }
}
