//! The head of a response, as CGI has it (RFC 3875 §6). Servers of uwsgi may begin it with the status line of HTTP.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sealion_http::{Status, content_length};

use crate::upstream::connect::MOST_HEAD;
use crate::upstream::end_of_head;

/// A head whose parts come one after the other.
#[derive(Debug)]
pub(super) struct Head {
    bytes: BytesMut,
    begins: Begins,
}

/// The ways in which a head may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    WithFields,
    WithStatusLine,
}

/// A head, and the content that came with it.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) status: Status,
    pub(super) fields: HeaderMap,
    pub(super) content: Bytes,
}

impl Head {
    /// Fields alone.
    pub(super) fn of_cgi() -> Self {
        Head { bytes: BytesMut::new(), begins: Begins::WithFields }
    }

    /// Fields, or the status line of HTTP and fields.
    pub(super) fn of_cgi_or_http() -> Self {
        Head { bytes: BytesMut::new(), begins: Begins::WithStatusLine }
    }

    /// Bytes that have come.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a part. `None`: the end has not come.
    pub(super) fn add(&mut self, part: &[u8]) -> Result<Option<Whole>, String> {
        // The end may lie across two parts.
        let from = self.bytes.len().saturating_sub(2);
        self.bytes.extend_from_slice(part);
        let end = end_of_head(&self.bytes, from);
        if end.unwrap_or(self.bytes.len()) > MOST_HEAD {
            return Err(format!("its head has more than {MOST_HEAD} octets"));
        }
        let Some(end) = end else { return Ok(None) };
        // A copy: the head may be large, and the content stay for long.
        let content = Bytes::copy_from_slice(&self.bytes[end..]);
        let (status, fields) = parse(&self.bytes[..end], self.begins)?;
        Ok(Some(Whole { status, fields, content }))
    }
}

/// Status and fields of a head.
fn parse(head: &[u8], begins: Begins) -> Result<(Status, HeaderMap), String> {
    let (of_line, head) = match begins {
        Begins::WithStatusLine if head.starts_with(b"HTTP/") => {
            let (line, fields) = head.split_at(memchr::memchr(b'\n', head).map_or(head.len(), |end| end + 1));
            (Some(status_of_line(line)?), fields)
        }
        _ => (None, head),
    };
    let mut parsed = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let fields = match httparse::parse_headers(head, &mut parsed) {
        Ok(httparse::Status::Complete((_, fields))) => fields,
        Ok(httparse::Status::Partial) => return Err("its head has no end".to_owned()),
        Err(error) => return Err(format!("its response head is invalid CGI: {error}")),
    };
    let mut found = HeaderMap::with_capacity(fields.len());
    let mut status = of_line;
    for field in fields {
        if field.name.eq_ignore_ascii_case("status") {
            let given = status_of(field.value)?;
            status.get_or_insert(given);
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|error| error.to_string())?;
        let value = HeaderValue::from_bytes(field.value).map_err(|error| format!("{name}: {error}"))?;
        found.append(name, value);
    }
    let lengths: Vec<_> = found.get_all(header::CONTENT_LENGTH).iter().collect();
    if lengths.len() > 1 || !lengths.iter().all(|length| content_length(length.as_bytes()).is_some()) {
        return Err("its Content-Length is not a single number".to_owned());
    }
    let of_location = if found.contains_key(header::LOCATION) { Status::FOUND } else { Status::OK };
    Ok((status.unwrap_or(of_location), found))
}

/// The status of a status line (RFC 9112 §4). A uwsgi server writes SERVER_PROTOCOL as the version, which is the client's.
fn status_of_line(line: &[u8]) -> Result<Status, String> {
    let line = line.trim_ascii_end();
    let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let parts = line.strip_prefix(b"HTTP/").and_then(|rest| Some(rest.split_at(memchr::memchr(b' ', rest)?)));
    match parts {
        Some((version, status)) if !version.is_empty() && version.iter().all(is_version) => status_of(&status[1..]),
        _ => Err(format!("{:?} is not a status line", String::from_utf8_lossy(line))),
    }
}

/// The status that a text begins with.
fn status_of(text: &[u8]) -> Result<Status, String> {
    let text = String::from_utf8_lossy(text);
    let code = text.split(' ').next().and_then(|code| code.parse().ok()).filter(|code| *code >= 200);
    code.and_then(Status::new).ok_or_else(|| format!("{text:?} is not a status of a response"))
}

/// Fields of a response.
const MOST_FIELDS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_of_cgi_tells_status_and_fields() {
        for (head, expected) in [
            ("Content-Type: text/html\r\n\r\n", Ok((200, "content-type"))),
            ("Content-Type: text/html\n\n", Ok((200, "content-type"))),
            ("Status: 404 Not Found\r\nX-A: 1\r\n\r\n", Ok((404, "x-a"))),
            ("Location: /x\r\n\r\n", Ok((302, "location"))),
            ("Status: 201\r\nLocation: /x\r\n\r\n", Ok((201, "location"))),
            ("Status: 101 Switching\r\n\r\n", Err("not a status of a response")),
            ("Status: 999\r\n\r\n", Err("not a status of a response")),
            ("Status: x\r\n\r\n", Err("not a status of a response")),
            ("no field\r\n\r\n", Err("invalid CGI")),
            ("Content-Length: 1\r\nContent-Length: 2\r\n\r\n", Err("not a single number")),
            ("Content-Length: -1\r\n\r\n", Err("not a single number")),
        ] {
            assert_eq!(end_of_head(head.as_bytes(), 0), Some(head.len()), "{head:?}");
            match (parse(head.as_bytes(), Begins::WithFields), expected) {
                (Ok((status, fields)), Ok((code, name))) => {
                    assert_eq!(status.code(), code, "{head:?}");
                    assert_eq!(fields.keys().map(HeaderName::as_str).collect::<Vec<_>>(), [name], "{head:?}");
                }
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{head:?}: {error}"),
                (found, expected) => panic!("{head:?}: {found:?}, expected {expected:?}"),
            }
        }
        for (head, expected) in [
            ("HTTP/1.1 404 Not Found\r\nX-A: 1\r\n\r\n", Ok(404)),
            ("HTTP/1.0 200\nX-A: 1\n\n", Ok(200)),
            ("HTTP/1.1 500 Oh\r\nStatus: 200\r\n\r\n", Ok(500)),
            ("Status: 201\r\n\r\n", Ok(201)),
            ("HTTP/1.1 100 Continue\r\n\r\n", Err("not a status of a response")),
            ("HTTP/2.0 200 OK\r\n\r\n", Ok(200)),
            ("HTTP/x 200\r\n\r\n", Err("not a status line")),
            ("HTTP/1.1\r\n\r\n", Err("not a status line")),
            ("HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK\r\n\r\n", Err("invalid CGI")),
        ] {
            match (parse(head.as_bytes(), Begins::WithStatusLine), expected) {
                (Ok((status, _)), Ok(code)) => assert_eq!(status.code(), code, "{head:?}"),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{head:?}: {error}"),
                (found, expected) => panic!("{head:?}: {found:?}, expected {expected:?}"),
            }
            assert!(!head.starts_with("HTTP") || parse(head.as_bytes(), Begins::WithFields).is_err());
        }
        for head in [&b"\r\nline\n\nrest"[..], b"\nline\n\nrest"] {
            let end = end_of_head(head, 0).unwrap();
            assert_eq!(&head[end..], b"line\n\nrest");
            assert!(parse(&head[..end], Begins::WithFields).unwrap().1.is_empty());
        }
        assert_eq!(end_of_head(b"A: b\r\n", 0), None);
        assert_eq!(end_of_head(b"A: b\n\nx", 3), Some(6));
    }
}
