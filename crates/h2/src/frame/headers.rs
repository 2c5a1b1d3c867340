//! The payload of HEADERS (RFC 9113 §6.2).

use crate::error::ConnectionError;

use super::{FrameHead, MAX_WINDOW, flag, strip_padding, u32_at};

/// The fragment of a header block in HEADERS, and whether the stream's deprecated priority depends on the stream itself.
pub(crate) fn split_headers(head: FrameHead, payload: &[u8]) -> Result<(&[u8], bool), ConnectionError> {
    let payload = if head.has(flag::PADDED) { strip_padding(payload)? } else { payload };
    if !head.has(flag::PRIORITY) {
        return Ok((payload, false));
    }
    let Some((priority, fragment)) = payload.split_at_checked(5) else {
        return Err(ConnectionError::frame_size("HEADERS too short for its priority"));
    };
    Ok((fragment, u32_at(priority, 0) & MAX_WINDOW == head.stream))
}

#[cfg(test)]
mod tests {
    use super::super::kind;
    use super::*;

    #[test]
    fn padding_and_priority_are_left_out() {
        let head = |flags| FrameHead { length: 0, kind: kind::HEADERS, flags, stream: 3 };
        assert_eq!(split_headers(head(0), b"abc").unwrap(), (&b"abc"[..], false));
        assert_eq!(split_headers(head(flag::PRIORITY), &[0x80, 0, 0, 1, 9, b'a']).unwrap(), (&b"a"[..], false));
        assert_eq!(split_headers(head(flag::PRIORITY), &[0x80, 0, 0, 3, 9]).unwrap(), (&b""[..], true));
        let both = flag::PRIORITY | flag::PADDED;
        assert_eq!(split_headers(head(both), &[1, 0, 0, 0, 1, 9, b'a', 0]).unwrap(), (&b"a"[..], false));
        split_headers(head(both), &[1, 0, 0, 0, 1, 9]).unwrap_err();
        split_headers(head(flag::PRIORITY), &[0, 0, 0, 1]).unwrap_err();
    }
}
