//! The head of a response, and the framing of the content behind it (RFC 9112 §4, §6.3).

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use http::Method;
use http::header;
use sealion_http::{ExtraFields, HOP_BY_HOP, Status, content_length};

use crate::upstream::answer_fields::{AnswerFields, Lines};
use crate::upstream::connect::MOST_HEAD;
use crate::upstream::end_of_head;
use crate::upstream::head::{NamedByConnection, named_by_connection};
use crate::upstream::similar_names::SimilarNames;

/// Fields of a response.
const MOST_FIELDS: usize = 256;

/// A head of a response, interim or final.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: Status,
    pub(super) fields: AnswerFields,
    pub(super) framing: Framing,
    /// Whether the server goes on to read requests (RFC 9112 §9.3).
    pub(super) persists: bool,
}

/// How the end of the content is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    UntilClose,
}

impl Head {
    /// Takes a head out of `input`. `None`: its end has not come. `searched`: bytes that earlier calls have searched for the end.
    ///
    /// # Errors
    /// The reason why the head is not HTTP.
    pub(super) fn take(input: &mut BytesMut, searched: &mut usize, method: &Method) -> Result<Option<Self>, String> {
        // Empty lines before it are skipped, as httparse does.
        while let [b'\n', ..] | [b'\r', b'\n', ..] = input[..] {
            let line = if input[0] == b'\n' { 1 } else { 2 };
            input.advance(line);
            *searched = searched.saturating_sub(line);
        }
        // Most heads come whole. For any other, the end is searched for first, so that no head is parsed again and again.
        let end = if *searched > 0 { end_of_head(input, searched.saturating_sub(2)) } else { Some(input.len()) };
        let mut parsed = [const { MaybeUninit::uninit() }; MOST_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let end =
            match end.map(|end| config.parse_response_with_uninit_headers(&mut response, &input[..end], &mut parsed)) {
                Some(Ok(httparse::Status::Complete(end))) => Some(end),
                Some(Ok(httparse::Status::Partial)) | None => None,
                Some(Err(httparse::Error::TooManyHeaders)) => {
                    return Err(format!("its head has more than {MOST_FIELDS} fields"));
                }
                Some(Err(error)) => return Err(format!("its response head is invalid HTTP/1.1: {error}")),
            };
        if end.unwrap_or(input.len()) > MOST_HEAD {
            return Err(format!("its head has more than {MOST_HEAD} octets"));
        }
        let Some(end) = end else {
            *searched = input.len();
            return Ok(None);
        };
        *searched = 0;
        let code = response.code.unwrap_or_default();
        let status = Status::new(code).ok_or_else(|| format!("{code} is not an HTTP status"))?;
        let Relevant { mut persists, is_chunked, length, passed_on } = Relevant::of(&response, end)?;
        let head = input.split_to(end).freeze();
        let first = memchr::memchr(b'\n', &head).map_or(end, |at| at + 1);
        let mut fields = AnswerFields::new(Lines { octets: head.slice(first..), passed_on, length });
        if is_chunked && length.is_some() {
            // Only the transfer coding counts. A server in between may have framed it by the length (RFC 9112 §6.3).
            fields.map_mut().remove(header::CONTENT_LENGTH);
            persists = false;
        }
        let is_without_content = *method == Method::HEAD || status.is_interim() || status.has_no_content();
        if status == Status::NO_CONTENT && (is_chunked || length.is_some_and(|length| length > 0)) {
            // The content that it announces may follow all the same, and would be taken for the next response.
            persists = false;
        }
        let framing = match length {
            _ if is_without_content => Framing::Nothing,
            _ if is_chunked => Framing::Chunked,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        };
        Ok(Some(Head { status, fields, framing, persists }))
    }
}

/// The meaning of the fields for the connection and for framing, and the fields to pass on.
struct Relevant {
    /// RFC 9112 §9.3.
    persists: bool,
    is_chunked: bool,
    length: Option<u64>,
    /// Fields that do not belong to the connection, with names in lower case.
    passed_on: ExtraFields,
}

impl Relevant {
    /// `octets`: of the head. An error says why the end of the content is unknown (RFC 9112 §6.1, §6.3).
    fn of(response: &httparse::Response<'_, '_>, octets: usize) -> Result<Self, String> {
        let is_old = response.version == Some(0);
        let (mut closes, mut keeps, mut codings, mut length) = (false, false, 0, None);
        // Room for the site's fields too.
        let mut passed_on = ExtraFields::with_capacity(octets + 128);
        let mut names_fields = false;
        for field in response.headers.iter() {
            if !OF_CONNECTION.has(field.name.as_bytes()) {
                passed_on.add_in_lower_case(field.name, field.value);
                continue;
            }
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("connection") {
                for option in field.value.split(|octet| *octet == b',').map(<[u8]>::trim_ascii) {
                    match option {
                        _ if option.eq_ignore_ascii_case(b"close") => closes = true,
                        _ if option.eq_ignore_ascii_case(b"keep-alive") => keeps = true,
                        _ => names_fields |= !option.is_empty(),
                    }
                }
            } else if is("transfer-encoding") {
                codings += 1;
                if is_old {
                    return Err("it has a transfer coding, which HTTP/1.0 does not have".to_owned());
                }
                if codings > 1 || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err("it has a transfer coding other than chunked".to_owned());
                }
            } else if is("content-length") {
                let one = content_length(field.value);
                if one.is_none() || length.is_some_and(|other| Some(other) != one) {
                    return Err("its Content-Length is not a single number".to_owned());
                }
                length = one;
            } else if !HOP_BY_HOP.iter().any(|own| is(own)) {
                passed_on.add_in_lower_case(field.name, field.value);
            }
        }
        let is_connection = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("connection");
        let connections = response.headers.iter().filter(is_connection).map(|field| field.value);
        let named = if names_fields { named_by_connection(connections) } else { NamedByConnection::default() };
        if !named.is_empty() {
            // Rare: all are looked at again, whatever number is named.
            let mut others = ExtraFields::with_capacity(octets + 128);
            for (name, value) in passed_on.iter().filter(|(name, _)| !named.has(name)) {
                others.add_octets(name, value);
            }
            passed_on = others;
        }
        Ok(Relevant { persists: !closes && (keeps || !is_old), is_chunked: codings > 0, length, passed_on })
    }
}

/// Fields of one connection, framing included.
static OF_CONNECTION: SimilarNames = SimilarNames::of(&[&HOP_BY_HOP]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::passed_on;

    fn take(octets: &str, method: &Method) -> Result<Option<Head>, String> {
        Head::take(&mut octets.as_bytes().into(), &mut 0, method)
    }

    #[test]
    fn the_end_of_the_content_is_told_as_rfc_9112_section_6_3_says() {
        use Framing::{Chunked, Length, Nothing, UntilClose};
        let long = i64::MAX.to_string();
        for (head, expected) in [
            ("1.1 200 OK\r\nContent-Length: 3", (Length(3), true)),
            ("1.1 200 OK\r\nContent-Length: 0", (Length(0), true)),
            ("1.1 200 OK\r\nContent-Length: 3\r\ncontent-length: 3", (Length(3), true)),
            (&format!("1.1 200 OK\r\nContent-Length: {long}"), (Length(i64::MAX as u64), true)),
            ("1.1 200 OK\r\nTransfer-Encoding: Chunked", (Chunked, true)),
            ("1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3", (Chunked, false)),
            ("1.1 200 OK\r\nConnection: a, Close\r\nContent-Length: 3", (Length(3), false)),
            ("1.1 200\r\nContent-Length: 3", (Length(3), true)),
            ("1.0 200 OK\r\nContent-Length: 3", (Length(3), false)),
            ("1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3", (Length(3), true)),
            ("1.1 200 OK\r\nA: b", (UntilClose, true)),
            ("1.1 204 No Content\r\nContent-Length: 3", (Nothing, false)),
            ("1.1 204 No Content\r\nContent-Length: 0", (Nothing, true)),
            ("1.1 204 No Content", (Nothing, true)),
            ("1.1 304 Not Modified\r\nContent-Length: 3", (Nothing, true)),
            ("1.0 200 OK\r\nConnection: close, keep-alive\r\nContent-Length: 3", (Length(3), false)),
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
    fn fields_that_connection_names_are_not_passed_on_however_many_it_names() {
        let many: Vec<_> = (0..3000).map(|n| format!("x-{n}")).collect();
        let head = format!(
            "HTTP/1.1 200 OK\r\nX-17: a\r\nConnection: {}{}\r\nY: b\r\nConnection: keep-alive, X-2999, Z\r\nx-2999: c\r\nz: d\r\n\r\n",
            ",".repeat(3000),
            many.join(", ")
        );
        let head = take(&head, &Method::GET).unwrap().unwrap();
        assert_eq!(head.fields.into_passed_on().extra.lines(), b"y: b\r\n");
    }

    #[test]
    fn what_is_no_http_is_refused_with_its_reason() {
        let many = "A: b\r\n".repeat(MOST_FIELDS + 1);
        let long = format!("X: {}", "y".repeat(MOST_HEAD));
        for (head, expected) in [
            ("ICY 200 OK", "invalid HTTP/1.1"),
            ("HTTP/2.0 200 OK", "invalid HTTP/1.1"),
            ("HTTP/1.1 20 OK", "invalid HTTP/1.1"),
            ("HTTP/1.1 099 OK", "not an HTTP status"),
            ("HTTP/1.1 200 OK\r\nA b", "invalid HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA : b", "invalid HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA: b\r\n c", "invalid HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA: b\0", "invalid HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nA: b\rC: d", "invalid HTTP/1.1"),
            (&format!("HTTP/1.1 200 OK\r\n{}", many.trim_end()), "more than 256 fields"),
            (&format!("HTTP/1.1 200 OK\r\n{long}"), "more than"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2", "not a single number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1, 1", "not a single number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: +1", "not a single number"),
            ("HTTP/1.1 200 OK\r\nContent-Length:", "not a single number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616", "not a single number"),
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
    fn what_belongs_to_the_connection_is_not_passed_on() {
        let head = "HTTP/1.1 200 OK\r\nServer: x\r\nX-A:  1 \r\nSet-Cookie: a=1\nset-cookie: b=2\r\nConnection: X-B, keep-alive\r\n\
                    x-b: 1\r\nContent-Length: 3\r\nKeep-Alive: 5\r\nEmpty:\r\nconnection: X-C\r\nX-c: d\r\n\r\n";
        let fields = take(head, &Method::GET).unwrap().unwrap().fields;
        let expected = b"server: x\r\nx-a: 1\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nempty: \r\n";
        assert_eq!(passed_on(&fields).extra.lines(), expected, "by the map");
        assert_eq!(fields.into_passed_on().extra.lines(), expected);
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
