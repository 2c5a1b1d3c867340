//! The framing of a response (RFC 9112 §6).

use serde::{Deserialize, Serialize};

use super::head::Version;
use crate::request::Method;
use crate::status::Status;

/// How the end of a response's content is delimited, and how its head announces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResponseFraming {
    /// The response has no content, and its head announces none.
    Nothing,
    /// The content has this many bytes: Content-Length.
    Length(u64),
    /// The response has no content; Content-Length has the value for the GET response (RFC 9110 §9.3.2).
    LengthOnly(u64),
    /// The content ends with the last chunk: Transfer-Encoding: chunked.
    Chunked,
    /// The response has no content; the GET response is chunked.
    ChunkedOnly,
    /// The content ends with the connection: for HTTP/1.0 clients, which do not understand chunks.
    UntilClose,
    /// The response has no content; the GET response is [`Self::UntilClose`].
    UntilCloseOnly,
    /// Bytes of another protocol follow the head of a 101, up to the end of the connection (RFC 9110 §7.8).
    Tunnel,
}

impl ResponseFraming {
    /// The framing of a response with this status to a request with this method. `length` is the length of the content
    /// in bytes; `None`: not known in advance.
    pub fn of(version: Version, method: Method<'_>, status: Status, length: Option<u64>) -> Self {
        if status == Status::SWITCHING_PROTOCOLS {
            return Self::Tunnel;
        }
        // RFC 9110 §8.6 forbids Content-Length in 1xx and 204; RFC 9112 §6.1 forbids Transfer-Encoding there.
        if status.has_no_content() {
            return Self::Nothing;
        }
        match (length, version, method == Method::Head) {
            (Some(length), _, false) => Self::Length(length),
            (Some(length), _, true) => Self::LengthOnly(length),
            (None, Version::Http11, false) => Self::Chunked,
            (None, Version::Http11, true) => Self::ChunkedOnly,
            (None, Version::Http10, false) => Self::UntilClose,
            (None, Version::Http10, true) => Self::UntilCloseOnly,
        }
    }

    /// Whether content follows the head.
    pub fn has_content(self) -> bool {
        matches!(self, Self::Length(_) | Self::Chunked | Self::UntilClose | Self::Tunnel)
    }

    /// Whether the content is delimited by the end of the connection.
    pub fn needs_close(self) -> bool {
        matches!(self, Self::UntilClose | Self::Tunnel)
    }
}

/// Appends the size line of a chunk of `length` bytes, which must not be 0 (RFC 9112 §7.1). The caller sends CRLF after the
/// chunk's data.
pub fn write_chunk_size(out: &mut Vec<u8>, length: usize) {
    debug_assert!(length > 0, "a chunk of 0 bytes is the last one");
    let digits = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(length >> (4 * digit)) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// The last chunk, with an empty trailer section (RFC 9112 §7.1).
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_follows_from_version_method_status_and_length() {
        use ResponseFraming::*;
        use Version::{Http10, Http11};
        for (version, method, status, length, expected) in [
            (Http11, Method::Get, 200, Some(5), Length(5)),
            (Http10, Method::Get, 200, Some(5), Length(5)),
            (Http11, Method::Get, 200, Some(0), Length(0)),
            (Http11, Method::Head, 200, Some(5), LengthOnly(5)),
            (Http11, Method::Get, 200, None, Chunked),
            (Http11, Method::Head, 200, None, ChunkedOnly),
            (Http10, Method::Get, 200, None, UntilClose),
            (Http10, Method::Head, 200, None, UntilCloseOnly),
            (Http11, Method::Get, 304, Some(0), Nothing),
            (Http11, Method::Get, 204, Some(0), Nothing),
            (Http11, Method::Get, 204, None, Nothing),
            (Http11, Method::Get, 103, None, Nothing),
            (Http11, Method::Get, 101, None, Tunnel),
            (Http11, Method::Other("POST"), 405, Some(9), Length(9)),
        ] {
            let status = Status::new(status).unwrap();
            let framing = ResponseFraming::of(version, method, status, length);
            assert_eq!(framing, expected, "{version:?} {method:?} {status} {length:?}");
            assert!(!(method == Method::Head && framing.has_content()));
            assert_eq!(framing.needs_close(), matches!(framing, UntilClose | Tunnel));
        }
    }

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        for length in [1, 15, 16, 0xabc, 16384, usize::MAX] {
            let mut out = Vec::new();
            write_chunk_size(&mut out, length);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{length:x}\r\n"));
        }
    }
}
