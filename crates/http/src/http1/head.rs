//! Parsing the head of a request (RFC 9112 §2 to §6): strict, bounded, and independent of how its bytes are split.

use std::mem::MaybeUninit;

use memchr::memchr2;

use crate::decimal::{content_length, decimal};
use crate::field_section::{FieldSection, Names};
use crate::request::{Conditions, Method, Request, Target, is_visible_without_fragment};
use crate::status::Status;

/// Finds the head at the beginning of `buf`, which holds all unconsumed bytes. `None`: incomplete, without an error so far.
///
/// Line ends and sizes are checked here, and a violation is reported at the first byte that shows it. [`RequestHead::parse`]
/// checks the rest. The result therefore does not depend on how the bytes were split, and a buffer of
/// [`HeadLimits::buffer`] bytes is always enough. Never panics.
///
/// # Errors
/// [`Reject`]: the request cannot be served.
pub fn find(buf: &[u8], limits: &HeadLimits) -> Result<Option<HeadSpan>, Reject> {
    // Bytes are examined in order, and each decision is made at the first byte that allows it. httparse alone would
    // also accept a bare LF as a line end.
    let mut start = 0;
    // A server should ignore at least one empty line before the request line (RFC 9112 §2.2).
    while buf[start..].starts_with(b"\r\n") {
        start += 2;
        if start > 2 * MAX_LEADING_EMPTY_LINES {
            return Err(bad("too many empty lines before the request line"));
        }
    }
    let mut request_line_end = None;
    let mut fields = 0;
    let mut at = start;
    loop {
        let line = &buf[at..];
        match (line.first(), request_line_end) {
            (None, _) => return Ok(None),
            // Fails at once for TLS within TLS and other binary protocols.
            (Some(byte), None) if !is_token(*byte) && !matches!(byte, b'\r' | b'\n') => {
                return Err(bad("not an HTTP request"));
            }
            (Some(b' ' | b'\t'), Some(_)) => return Err(bad("a field line begins with whitespace")),
            _ => {}
        }
        let room = limits.head.saturating_sub(at - start);
        let (longest, too_long) = match request_line_end {
            None if limits.request_line < room => (limits.request_line, REQUEST_LINE_TOO_LONG),
            _ => (room, HEAD_TOO_LONG),
        };
        let length = memchr2(b'\r', b'\n', line).unwrap_or(line.len());
        if length > longest {
            return Err(too_long);
        }
        match line[length..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => {}
            [b'\r', ..] => return Err(bad("CR without LF")),
            _ => return Err(bad("LF without CR")),
        }
        at += length + 2;
        if at - start > limits.head {
            return Err(HEAD_TOO_LONG);
        }
        match request_line_end {
            None => request_line_end = Some(at),
            Some(request_line_end) if length == 0 => {
                return Ok(Some(HeadSpan { start, request_line_end, end: at }));
            }
            Some(_) => {
                fields += 1;
                if fields > limits.fields.min(HeadLimits::MAX_FIELDS) {
                    return Err(Reject { status: Status::REQUEST_HEADER_FIELDS_TOO_LARGE, why: "too many fields" });
                }
            }
        }
    }
}

/// The fields of a head that [`RequestHead::parse`] rejected. `None`: a field line itself is malformed, so another
/// recipient may have parsed the lines differently.
#[cold]
pub fn fields(buf: &[u8], span: HeadSpan) -> Option<FieldSection<'_>> {
    let mut parsed = [httparse::EMPTY_HEADER; HeadLimits::MAX_FIELDS];
    match httparse::parse_headers(&buf[span.request_line_end..span.end], &mut parsed) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) | Err(_) => return None,
    }
    Some(FieldSection::from_lines(&buf[span.request_line_end..span.end - 2]))
}

/// The position of a complete head in a buffer, as found by [`find`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSpan {
    /// Bytes of empty lines before the head.
    pub start: usize,
    /// The end of the request line.
    request_line_end: usize,
    /// The end of the head, where the content begins.
    pub end: usize,
}

impl<'a> RequestHead<'a> {
    /// Parses the head at `span` in `buf`.
    ///
    /// # Errors
    /// [`Reject`]: the request cannot be served.
    pub fn parse(buf: &'a [u8], span: HeadSpan) -> Result<Self, Reject> {
        let mut fields = [const { MaybeUninit::uninit() }; HeadLimits::MAX_FIELDS];
        let mut head = httparse::Request::new(&mut []);
        match head.parse_with_uninit_headers(&buf[span.start..span.end], &mut fields) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err(bad("the head is not complete where it ends")),
            Err(httparse::Error::Version) => return Self::parse_later_version(buf, span),
            Err(error) => return Err(explain(error)),
        }
        // The final empty line is not a field line.
        interpret(&head, FieldSection::from_lines(&buf[span.request_line_end..span.end - 2]))
    }

    /// Parses a head with a version that httparse does not support. A later minor version of HTTP/1 is handled as
    /// HTTP/1.1, the highest version implemented (RFC 9110 §2.5 and §6.2). Another well-formed version gets 505,
    /// including the preface of HTTP/2 (RFC 9113 §3.4).
    #[cold]
    fn parse_later_version(buf: &'a [u8], span: HeadSpan) -> Result<Self, Reject> {
        const LINE: Reject = bad("the request line is not method, target and version");
        let line = &buf[span.start..span.request_line_end - 2];
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(LINE);
        };
        match version {
            b"HTTP/1.0" | b"HTTP/1.1" => return Err(LINE),
            [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor] if minor.is_ascii_digit() => {}
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
                return Err(Reject { status: Status::HTTP_VERSION_NOT_SUPPORTED, why: "the version is not HTTP/1" });
            }
            _ => return Err(LINE),
        }
        let is_method = !method.is_empty() && method.iter().all(|byte| is_token(*byte));
        // The target is checked by its form.
        let is_target = !target.is_empty() && target.iter().all(u8::is_ascii_graphic);
        let (true, true, Ok(method), Ok(target)) =
            (is_method, is_target, std::str::from_utf8(method), std::str::from_utf8(target))
        else {
            return Err(LINE);
        };
        let mut fields = [httparse::EMPTY_HEADER; HeadLimits::MAX_FIELDS];
        let lines = &buf[span.request_line_end..span.end];
        let headers = match httparse::parse_headers(lines, &mut fields) {
            Ok(httparse::Status::Complete((_, headers))) => headers.len(),
            Ok(httparse::Status::Partial) => return Err(bad("the head is not complete where it ends")),
            Err(error) => return Err(explain(error)),
        };
        let mut head = httparse::Request::new(&mut fields[..headers]);
        (head.method, head.path, head.version) = (Some(method), Some(target), Some(1));
        interpret(&head, FieldSection::from_lines(&buf[span.request_line_end..span.end - 2]))
    }
}

impl HeadSpan {
    /// The span of the same head in a buffer that begins with it.
    pub fn from_start(self) -> Self {
        HeadSpan { start: 0, request_line_end: self.request_line_end - self.start, end: self.end - self.start }
    }
}

/// A request, with the properties specific to HTTP/1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// The request, independent of the protocol version.
    pub request: Request<'a>,
    /// The HTTP version of the request.
    pub version: Version,
    /// Whether the client wants the connection to persist (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The framing of the request's content.
    pub framing: Framing,
    /// Whether the client may be waiting for 100 (Continue) before it sends its content. The server never sends 100.
    /// Its response has `Connection: close`, since the content may or may not follow (RFC 9110 §10.1.1).
    pub expect_continue: bool,
}

/// HTTP/1 minor versions (RFC 9112 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the version")]
pub enum Version {
    Http10,
    Http11,
}

/// The framing of a request's content (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The request has no content.
    None,
    /// The content has this many bytes, at least one.
    Length(u64),
    /// The content is chunked.
    Chunked,
}

/// A request that cannot be served. The start of the next request is unknown: send the status and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// The status of the response.
    pub status: Status,
    /// The reason, for the log.
    pub why: &'static str,
}

/// Upper bounds for a request head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Bytes of the request line without its line end; beyond: 414.
    pub request_line: usize,
    /// Bytes from the request line to the empty line, both included; beyond: 431.
    pub head: usize,
    /// Field lines, at most [`Self::MAX_FIELDS`]; beyond: 431.
    pub fields: usize,
}

impl HeadLimits {
    /// The largest possible value of [`Self::fields`]: parsed fields are kept on the stack.
    pub const MAX_FIELDS: usize = 256;

    /// The buffer size a caller needs: with this many bytes, [`find`] never returns `None`.
    pub fn buffer(&self) -> usize {
        2 * MAX_LEADING_EMPTY_LINES + self.head + 2
    }
}

impl Default for HeadLimits {
    /// INHERITED: RFC 9112 §3 recommends at least 8000 bytes for the request line; nginx allows 32 KiB of head (4 buffers of
    /// 8k); Apache httpd allows 100 fields (LimitRequestFields).
    fn default() -> Self {
        HeadLimits { request_line: 8 * 1024, head: 32 * 1024, fields: 100 }
    }
}

/// Turns an error of httparse into a rejection.
fn explain(error: httparse::Error) -> Reject {
    match error {
        httparse::Error::Token => bad("the request line is not method, target and version"),
        httparse::Error::HeaderName => bad("a field name is not a token"),
        httparse::Error::HeaderValue => bad("a control character in a field value"),
        _ => bad("the head is malformed"),
    }
}

/// The fields that control the HTTP/1.1 connection and framing.
#[derive(Default)]
struct Control<'a> {
    host: Option<&'a [u8]>,
    content_length: Option<u64>,
    transfer_encoding: Option<Coding>,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
    expect_other: bool,
}

/// The transfer codings read so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    /// Unimplemented codings, and whether chunked follows them as the last.
    Other {
        last_is_chunked: bool,
    },
    Malformed,
}

fn interpret<'a>(head: &httparse::Request<'_, 'a>, fields: FieldSection<'a>) -> Result<RequestHead<'a>, Reject> {
    let (Some(token), Some(raw_target)) = (head.method, head.path) else {
        return Err(bad("the request line is empty"));
    };
    let version = if head.version == Some(1) { Version::Http11 } else { Version::Http10 };
    let mut control = Control::default();
    let mut conditions = Conditions::default();
    let mut names = Names::NONE;
    for field in head.headers.iter() {
        names.add(field.name.as_bytes());
        if !control.add(field.name, field.value)? {
            conditions.add(field.name, field.value);
        }
    }
    let method = Method::from_token(token);
    let host = control.host.map(authority).transpose()?;
    if host.is_none() && version == Version::Http11 {
        return Err(bad("Host is missing"));
    }
    let (target, absolute) = read_target(method, raw_target)?;
    let framing = control.framing(version)?;
    if control.expect_other && version == Version::Http11 {
        return Err(Reject { status: Status::EXPECTATION_FAILED, why: "an expectation other than 100-continue" });
    }
    Ok(RequestHead {
        request: Request {
            method,
            target,
            raw_target,
            authority: absolute.or(host),
            conditions,
            fields: fields.with_names(names),
        },
        version,
        keep_alive: !control.close && (version == Version::Http11 || control.keep_alive),
        framing,
        // Ignored in HTTP/1.0 (RFC 9110 §10.1.1), and for a request without content, whose client has nothing to wait
        // for.
        expect_continue: control.expect_continue && version == Version::Http11 && framing != Framing::None,
    })
}

impl<'a> Control<'a> {
    /// Records a field line. `false`: not a control field.
    fn add(&mut self, name: &str, value: &'a [u8]) -> Result<bool, Reject> {
        match name.len() {
            4 if name.eq_ignore_ascii_case("host") => {
                if self.host.replace(value).is_some() {
                    return Err(bad("Host is repeated"));
                }
            }
            6 if name.eq_ignore_ascii_case("expect") => {
                for member in members(value) {
                    match member.eq_ignore_ascii_case(b"100-continue") {
                        true => self.expect_continue = true,
                        false => self.expect_other = true,
                    }
                }
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in members(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case("content-length") => {
                // RFC 9112 §6.3 allows merging equal values, but repeated lengths indicate request smuggling.
                let length = content_length(value).ok_or(bad("Content-Length is not one number below 2^63"))?;
                if self.content_length.replace(length).is_some() {
                    return Err(bad("Content-Length is repeated"));
                }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                let codings = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                self.transfer_encoding =
                    codings.fold(self.transfer_encoding, |before, coding| Some(Coding::after(before, coding)));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The framing by RFC 9112 §6.1 and §6.3, without the optional leniency.
    fn framing(&self, version: Version) -> Result<Framing, Reject> {
        match (self.transfer_encoding, self.content_length) {
            (None, None | Some(0)) => Ok(Framing::None),
            (None, Some(length)) => Ok(Framing::Length(length)),
            (Some(_), _) if version == Version::Http10 => Err(bad("Transfer-Encoding in HTTP/1.0")),
            (Some(_), Some(_)) => Err(bad("both Transfer-Encoding and Content-Length")),
            (Some(Coding::Chunked), None) => Ok(Framing::Chunked),
            (Some(Coding::Other { last_is_chunked: true }), None) => {
                Err(Reject { status: Status::NOT_IMPLEMENTED, why: "a transfer coding other than chunked" })
            }
            (Some(Coding::Other { .. }), None) => Err(bad("chunked is not the last transfer coding")),
            (Some(Coding::Malformed), None) => Err(bad("Transfer-Encoding is malformed")),
        }
    }
}

impl Coding {
    /// Appends one list member. Chunked may be applied only once, and must be last.
    fn after(before: Option<Coding>, coding: &[u8]) -> Coding {
        let name = coding.split(|byte| *byte == b';').next().unwrap_or(coding).trim_ascii_end();
        match (before, coding.eq_ignore_ascii_case(b"chunked")) {
            _ if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) => Coding::Malformed,
            (None, true) => Coding::Chunked,
            (Some(Coding::Other { last_is_chunked: false }), true) => Coding::Other { last_is_chunked: true },
            (None | Some(Coding::Other { last_is_chunked: false }), false) => Coding::Other { last_is_chunked: false },
            _ => Coding::Malformed,
        }
    }
}

/// Parses a request-target of any form (RFC 9112 §3.2). Also returns the authority if the form is absolute.
fn read_target<'a>(method: Method<'_>, raw: &'a str) -> Result<(Target<'a>, Option<&'a str>), Reject> {
    if method == Method::Other("CONNECT") {
        // Not an ordinary 405: the following bytes are meant for the tunnel, so the connection has to close.
        return Err(Reject { status: Status::METHOD_NOT_ALLOWED, why: "CONNECT: not a proxy" });
    }
    if raw == "*" && method == Method::Other("OPTIONS") {
        return Ok((Target::Asterisk, None));
    }
    if raw.starts_with('/') {
        return Target::from_origin_form(raw)
            .map(|target| (target, None))
            .ok_or(bad("the target has a fragment or is not ASCII"));
    }
    let rest = strip_scheme(raw).ok_or(bad("the target is neither a path nor an http URI"))?;
    if !is_visible_without_fragment(rest) {
        return Err(bad("the target has a fragment or is not ASCII"));
    }
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let host = authority(host.as_bytes())?;
    let target = match path.strip_prefix('?') {
        Some(query) => Target::Path { path: "/", query: Some(query) },
        None if path.is_empty() => Target::Path { path: "/", query: None },
        None => Target::from_origin_form(path).ok_or(bad("the target has a fragment or is not ASCII"))?,
    };
    Ok((target, Some(host)))
}

fn strip_scheme(raw: &str) -> Option<&str> {
    let (scheme, rest) = raw.split_once("://")?;
    (scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")).then_some(rest)
}

/// Checks `uri-host [":" port]` (RFC 9110 §7.2). An http URI has a host (RFC 9110 §4.2.2) and no userinfo (§4.2.4).
fn authority(value: &[u8]) -> Result<&str, Reject> {
    const INVALID: Reject = bad("the host is invalid");
    let text = std::str::from_utf8(value).map_err(|_| INVALID)?;
    let (host, port) = match value.strip_prefix(b"[") {
        Some(rest) => {
            let end = rest.iter().position(|byte| *byte == b']').ok_or(INVALID)?;
            let is_literal = end > 0 && rest[..end].iter().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(byte));
            (is_literal, &rest[end + 1..])
        }
        None => {
            let end = value.iter().position(|byte| !IS_REG_NAME[usize::from(*byte)]).unwrap_or(value.len());
            (end > 0, &value[end..])
        }
    };
    let is_port = match port {
        [] | [b':'] => true,
        [b':', port @ ..] => decimal(port).is_some_and(|port| port <= u16::MAX.into()),
        _ => false,
    };
    if host && is_port { Ok(text) } else { Err(INVALID) }
}

/// Whether `value` is `uri-host [":" port]`, without user information: a valid Host, or `:authority` of HTTP/2 (RFC 9113 §8.3.1).
pub fn is_authority(value: &[u8]) -> bool {
    authority(value).is_ok()
}

/// The bytes of a reg-name: unreserved, sub-delims and the percent sign (RFC 3986 §3.2.2).
const IS_REG_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"-._~!$&'()*+,;=%";
    let mut n = 0;
    while n < others.len() {
        table[others[n] as usize] = true;
        n += 1;
    }
    table
};

/// The non-empty members of a list (RFC 9110 §5.6.1.2).
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// tchar (RFC 9110 §5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const fn bad(why: &'static str) -> Reject {
    Reject { status: Status::BAD_REQUEST, why }
}

const REQUEST_LINE_TOO_LONG: Reject = Reject { status: Status::URI_TOO_LONG, why: "the request line is too long" };
const HEAD_TOO_LONG: Reject = Reject { status: Status::REQUEST_HEADER_FIELDS_TOO_LARGE, why: "the head is too long" };

/// Some old clients send one empty line after the content of a POST.
const MAX_LEADING_EMPTY_LINES: usize = 4;

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
