//! The head of a response.

use super::failure::{Failure, Kind};

/// The fields of a response's head that the client needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The length of the head in bytes, including the empty line.
    pub(super) len: usize,
    /// The value of Content-Length.
    pub(super) body_len: u64,
    /// Whether the server closes after the response.
    pub(super) last: bool,
    /// Its information about a cache.
    pub(super) cache: Cache,
}

/// The information in a head about a cache in front of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Cache {
    /// None: all heads have the same length.
    #[default]
    None,
    /// A stored response that states its age (RFC 9111 §5.1), whose number of digits changes.
    Stored,
    /// Fetched by a cache, perhaps for another request (RFC 9211). Once the response is stored, its head differs.
    Fetched,
}

impl Head {
    /// Parses a head; `None` if it is incomplete.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, Failure> {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        let len = match response.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
            Ok(httparse::Status::Partial) => return Err(Failure::new(Kind::Body, "a response's head without an end")),
            Err(error) => return Err(Failure::new(Kind::Body, format!("no HTTP/1 response: {error}"))),
        };
        match response.code {
            Some(200) => {}
            status => {
                let words = format!("status {} {}", status.unwrap_or(0), response.reason.unwrap_or_default());
                return Err(Failure::new(Kind::Status, words.trim_end()));
            }
        }
        let mut body_len = None;
        let mut last = response.version == Some(0);
        let mut cache = Cache::None;
        for field in response.headers {
            if field.name.eq_ignore_ascii_case("content-length") {
                body_len = std::str::from_utf8(field.value).ok().and_then(|value| value.trim().parse().ok());
            } else if field.name.eq_ignore_ascii_case("connection") {
                last = field.value.eq_ignore_ascii_case(b"close");
            } else if field.name.eq_ignore_ascii_case("age") {
                cache = cache.max(Cache::Stored);
            } else if field.name.eq_ignore_ascii_case("cache-status") {
                let is_hit = field.value.windows(3).any(|word| word == b"hit");
                cache = cache.max(if is_hit { Cache::Stored } else { Cache::Fetched });
            }
        }
        let missing = || Failure::new(Kind::Body, "a response without Content-Length: its end is unknown");
        Ok(Some(Self { len, body_len: body_len.ok_or_else(missing)?, last, cache }))
    }
}

/// The maximum length of a head; servers send a few hundred bytes.
const MAX_HEAD: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Result<Option<Head>, Kind> {
        Head::parse(head.as_bytes()).map_err(|failure| failure.kind)
    }

    #[test]
    fn heads_say_how_long_the_body_is_and_whether_more_follows() {
        let is = |head: &str, body_len: u64, last: bool| {
            let expected = Head { len: head.len(), body_len, last, cache: Cache::None };
            assert_eq!(parsed(head), Ok(Some(expected)), "{head}");
        };
        is("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", 12, false);
        is("HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length:0\r\n\r\n", 0, true);
        is("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", 1, false);
        is("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", 1, true);
        is("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n", 1, false);
        assert_eq!(parsed("HTTP/1.1 200 OK\r\nContent-Le"), Ok(None));
        let cache = |fields: &str| {
            parsed(&format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: 1\r\n\r\n"))
                .map(|head| head.map(|head| head.cache))
        };
        assert_eq!(cache("Cache-Status: a; fwd=miss"), Ok(Some(Cache::Fetched)));
        assert_eq!(cache("Cache-Status: a; fwd=miss; collapsed\r\nAge: 0"), Ok(Some(Cache::Fetched)));
        assert_eq!(cache("Age: 9\r\nCache-Status: a; hit"), Ok(Some(Cache::Stored)));
        assert_eq!(cache("cache-status: a; hit\r\nage: 9"), Ok(Some(Cache::Stored)));
        assert_eq!(parsed("HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n"), Err(Kind::Status));
        assert_eq!(parsed("HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n\r\n"), Err(Kind::Status));
        assert_eq!(parsed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Kind::Body));
        assert_eq!(parsed("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), Err(Kind::Body));
        assert_eq!(parsed("SSH-2.0-x\r\n"), Err(Kind::Body));
        assert_eq!(parsed(&format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD))), Err(Kind::Body));
    }
}
