//! The head of an answer, and what it says of the content behind it (RFC 9112 §4, §6.3).

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sealion_http::Status;

use crate::upstream::connect::MOST_HEAD;
use crate::upstream::end_of_head;

/// Fields of an answer.
const MOST_FIELDS: usize = 256;

/// A head of an answer, interim or final.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: Status,
    pub(super) fields: HeaderMap,
    pub(super) framing: Framing,
    /// Whether the server goes on to read requests (RFC 9112 §9.3).
    pub(super) persists: bool,
}

/// How the end of the content is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    UntilClose,
}

impl Head {
    /// Takes a head out of `input`. `None`: its end has not come. `searched`: octets in which it is not, as an earlier call left it.
    ///
    /// # Errors
    /// What about it is no HTTP.
    pub(super) fn take(input: &mut BytesMut, searched: &mut usize, asked: &Method) -> Result<Option<Self>, String> {
        let end = end_of_head(input, searched.saturating_sub(2));
        if end.unwrap_or(input.len()) > MOST_HEAD {
            return Err(format!("its head has more than {MOST_HEAD} octets"));
        }
        let Some(end) = end else {
            *searched = input.len();
            return Ok(None);
        };
        *searched = 0;
        let octets = input.split_to(end).freeze();
        let mut parsed = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        match config.parse_response_with_uninit_headers(&mut response, &octets, &mut parsed) {
            Ok(httparse::Status::Complete(length)) if length == end => {}
            Ok(_) => return Err("its head has no end".to_owned()),
            Err(error) => return Err(format!("its head is none of HTTP/1.1: {error}")),
        }
        let code = response.code.unwrap_or_default();
        let status = Status::new(code).ok_or_else(|| format!("{code} is no status of HTTP"))?;
        let mut fields = HeaderMap::with_capacity(response.headers.len());
        for field in response.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|error| error.to_string())?;
            let value = HeaderValue::from_maybe_shared(octets.slice_ref(field.value));
            fields.append(&name, value.map_err(|error| format!("{name}: {error}"))?);
        }
        let is_old = response.version == Some(0);
        let mut persists = persists(&fields, is_old);
        let is_without_content = *asked == Method::HEAD || status.is_interim() || status.has_no_content();
        let is_chunked = is_chunked(&fields, is_old)?;
        if is_chunked && fields.remove(header::CONTENT_LENGTH).is_some() {
            // The transfer coding counts alone. Somebody on the way may have taken the length (RFC 9112 §6.3).
            persists = false;
        }
        let length = length(&fields)?;
        let framing = match length {
            _ if is_without_content => Framing::Nothing,
            _ if is_chunked => Framing::Chunked,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        };
        Ok(Some(Head { status, fields, framing, persists }))
    }
}

/// RFC 9112 §9.3.
fn persists(fields: &HeaderMap, is_old: bool) -> bool {
    let lines = fields.get_all(header::CONNECTION).iter().map(HeaderValue::as_bytes);
    let mut options = lines.flat_map(|line| line.split(|octet| *octet == b',')).map(<[u8]>::trim_ascii);
    let persists_by = |option: &[u8]| option.eq_ignore_ascii_case(b"keep-alive");
    match is_old {
        true => options.any(persists_by),
        false => !options.any(|option| option.eq_ignore_ascii_case(b"close")),
    }
}

/// Whether the content is chunked.
///
/// # Errors
/// It has another transfer coding, or one that HTTP/1.0 does not have: where it ends is unknown (RFC 9112 §6.1).
fn is_chunked(fields: &HeaderMap, is_old: bool) -> Result<bool, String> {
    let mut codings = fields.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(_), _) if is_old => Err("it has a transfer coding, which HTTP/1.0 does not have".to_owned()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err("it has a transfer coding other than chunked".to_owned()),
    }
}

/// The value of Content-Length.
///
/// # Errors
/// It is no single number (RFC 9112 §6.3).
fn length(fields: &HeaderMap) -> Result<Option<u64>, String> {
    let mut lines = fields.get_all(header::CONTENT_LENGTH).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    let is_digits = line.as_bytes().iter().all(u8::is_ascii_digit);
    let length = line.to_str().ok().filter(|_| is_digits && lines.all(|other| other == line));
    let length = length.and_then(|length| length.parse().ok());
    length.map(Some).ok_or_else(|| "its Content-Length is no single number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(octets: &str, asked: &Method) -> Result<Option<Head>, String> {
        Head::take(&mut octets.as_bytes().into(), &mut 0, asked)
    }

    #[test]
    fn the_end_of_the_content_is_told_as_rfc_9112_section_6_3_says() {
        use Framing::{Chunked, Length, Nothing, UntilClose};
        let long = u64::MAX.to_string();
        for (head, expected) in [
            ("1.1 200 OK\r\nContent-Length: 3", (Length(3), true)),
            ("1.1 200 OK\r\nContent-Length: 0", (Length(0), true)),
            ("1.1 200 OK\r\nContent-Length: 3\r\ncontent-length: 3", (Length(3), true)),
            (&format!("1.1 200 OK\r\nContent-Length: {long}"), (Length(u64::MAX), true)),
            ("1.1 200 OK\r\nTransfer-Encoding: Chunked", (Chunked, true)),
            ("1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3", (Chunked, false)),
            ("1.1 200 OK\r\nConnection: a, Close\r\nContent-Length: 3", (Length(3), false)),
            ("1.1 200\r\nContent-Length: 3", (Length(3), true)),
            ("1.0 200 OK\r\nContent-Length: 3", (Length(3), false)),
            ("1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3", (Length(3), true)),
            ("1.1 200 OK\r\nA: b", (UntilClose, true)),
            ("1.1 204 No Content\r\nContent-Length: 3", (Nothing, true)),
            ("1.1 304 Not Modified\r\nTransfer-Encoding: chunked", (Nothing, true)),
            ("1.1 103 Early Hints\r\nLink: x", (Nothing, true)),
            ("1.1 101 Switching Protocols\r\nUpgrade: x", (Nothing, true)),
        ] {
            let head = format!("HTTP/{head}\r\n\r\n");
            let found = take(&head, &Method::GET).unwrap().unwrap();
            assert_eq!((found.framing, found.persists), expected, "{head:?}");
        }
        let head = take("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", &Method::HEAD).unwrap().unwrap();
        assert_eq!(head.framing, Nothing);
    }

    #[test]
    fn what_is_no_http_is_refused_with_its_reason() {
        let many = "A: b\r\n".repeat(MOST_FIELDS + 1);
        let long = format!("X: {}", "y".repeat(MOST_HEAD));
        for (head, expected) in [
            ("\r\nHTTP/1.1 200 OK", "no end"),
            ("ICY 200 OK", "none of HTTP/1.1"),
            ("HTTP/2.0 200 OK", "none of HTTP/1.1"),
            ("HTTP/1.1 20 OK", "none of HTTP/1.1"),
            ("HTTP/1.1 099 OK", "no status"),
            ("HTTP/1.1 200 OK\r\nA b", "none of HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA : b", "none of HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA: b\r\n c", "none of HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA: b\0", "none of HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA: b\rC: d", "none of HTTP/1.1"),
            (&format!("HTTP/1.1 200 OK\r\n{}", many.trim_end()), "none of HTTP/1.1"),
            (&format!("HTTP/1.1 200 OK\r\n{long}"), "more than"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2", "no single number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1, 1", "no single number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: +1", "no single number"),
            ("HTTP/1.1 200 OK\r\nContent-Length:", "no single number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616", "no single number"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", "other than chunked"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "other than chunked"),
            ("HTTP/1.1 204 OK\r\nTransfer-Encoding: gzip", "other than chunked"),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked", "HTTP/1.0"),
        ] {
            let error = take(&format!("{head}\r\n\r\n"), &Method::GET).unwrap_err();
            assert!(error.contains(expected), "{head:?}: {error}");
        }
    }

    #[test]
    fn a_head_may_come_octet_by_octet() {
        let head = "HTTP/1.1 200 OK\r\nA: caf\u{e9}\r\nContent-Length: 1\r\n\r\n";
        let (mut input, mut searched) = (BytesMut::new(), 0);
        for (at, octet) in head.bytes().enumerate() {
            assert!(Head::take(&mut input, &mut searched, &Method::GET).unwrap().is_none(), "{at}");
            input.extend_from_slice(&[octet]);
        }
        input.extend_from_slice(b"x");
        let found = Head::take(&mut input, &mut searched, &Method::GET).unwrap().unwrap();
        assert_eq!((found.status, found.fields["a"].as_bytes()), (Status::OK, "caf\u{e9}".as_bytes()));
        assert_eq!((&input[..], searched), (&b"x"[..], 0));
    }
}
