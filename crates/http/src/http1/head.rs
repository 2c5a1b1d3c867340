//! The head of a request (RFC 9112 §2 to §6): strict, bounded, and the same however its bytes are split.

use std::mem::MaybeUninit;

use memchr::memchr2;

use crate::field_section::FieldSection;
use crate::request::{Conditions, Method, Request, Target, is_visible_without_fragment};
use crate::status::Status;

/// Finds the head at the beginning of `buf`, which holds what has arrived and has not been consumed. `None`: nothing is wrong so far, and the
/// head is not complete.
///
/// Line ends and sizes are checked here, and a violation is refused as soon as the octet that shows it has arrived; [`RequestHead::parse`]
/// checks the rest. So the answer does not depend on how the bytes were split, and a caller that stops reading at [`HeadLimits::buffer`]
/// octets loses nothing. Never panics.
///
/// # Errors
/// [`Reject`]: the request cannot be served.
pub fn find(buf: &[u8], limits: &HeadLimits) -> Result<Option<HeadSpan>, Reject> {
    find_lines(buf, limits)
}

/// Where a whole head lies in a buffer, as [`find`] found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSpan {
    /// Octets of empty lines before it.
    pub start: usize,
    /// The end of the request line.
    request_line_end: usize,
    /// The end of the head. The content follows.
    pub end: usize,
}

impl<'a> RequestHead<'a> {
    /// Reads the head that `span` names in `buf`.
    ///
    /// # Errors
    /// [`Reject`]: the request cannot be served.
    pub fn parse(buf: &'a [u8], span: HeadSpan) -> Result<Self, Reject> {
        let mut fields = [const { MaybeUninit::uninit() }; HeadLimits::MOST_FIELDS];
        let mut head = httparse::Request::new(&mut []);
        match head.parse_with_uninit_headers(&buf[span.start..span.end], &mut fields) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Err(bad("the head is not complete where it ends")),
            Err(error) => return Err(explain(error, &buf[span.start..span.request_line_end])),
        }
        // The empty line is no field line.
        interpret(&head, FieldSection::from_lines(&buf[span.request_line_end..span.end - 2]))
    }
}

impl HeadSpan {
    /// The same head in a buffer that begins with it.
    pub fn from_start(self) -> Self {
        HeadSpan { start: 0, request_line_end: self.request_line_end - self.start, end: self.end - self.start }
    }
}

/// A request with what only HTTP/1 needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// The request proper.
    pub request: Request<'a>,
    /// Its version.
    pub version: Version,
    /// Whether the client wants the connection to persist (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// How its content ends.
    pub framing: Framing,
    /// Whether the client may be waiting for 100 (Continue) before it sends its content. We never send that: answer,
    /// say `Connection: close`, and close, since whether the content will come is unknown (RFC 9110 §10.1.1).
    pub expect_continue: bool,
}

/// HTTP/1 minor versions (RFC 9112 §2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the version")]
pub enum Version {
    Http10,
    Http11,
}

/// How the content of a request ends (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// After this many octets, at least one.
    Length(u64),
    /// By the last chunk.
    Chunked,
}

/// A request that cannot be served, and after which nobody knows where the next begins: answer with the status and
/// close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// The answer.
    pub status: Status,
    /// For the log.
    pub why: &'static str,
}

/// Sizes beyond which a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Octets of the request line without its end: 414.
    pub request_line: usize,
    /// Octets from the request line to the empty line, both included: 431.
    pub head: usize,
    /// Field lines: 431. Values above [`Self::MOST_FIELDS`] count as that.
    pub fields: usize,
}

impl HeadLimits {
    /// The most field lines that can be allowed: their places are on the stack.
    pub const MOST_FIELDS: usize = 256;

    /// Octets that a caller has to be able to hold: with these, [`find`] never returns `None`.
    pub fn buffer(&self) -> usize {
        2 * MOST_LEADING_EMPTY_LINES + self.head + 2
    }
}

impl Default for HeadLimits {
    /// INHERITED: 8000 octets are what RFC 9112 §3 recommends for the request line at least, 32 KiB of head are
    /// nginx's 4 buffers of 8k, 100 fields are Apache httpd's LimitRequestFields.
    fn default() -> Self {
        HeadLimits { request_line: 8 * 1024, head: 32 * 1024, fields: 100 }
    }
}

/// Finds the end of the head. `None`: not there yet.
///
/// Each decision falls at the first octet that allows it, in the order of the octets. httparse would also take a bare
/// LF for a line end.
fn find_lines(buf: &[u8], limits: &HeadLimits) -> Result<Option<HeadSpan>, Reject> {
    let mut start = 0;
    // A server should ignore at least one empty line before the request line (RFC 9112 §2.2).
    while buf[start..].starts_with(b"\r\n") {
        start += 2;
        if start > 2 * MOST_LEADING_EMPTY_LINES {
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
            // Says so at once to a client that speaks TLS, or another binary protocol, within TLS.
            (Some(octet), None) if !is_token(*octet) && !matches!(octet, b'\r' | b'\n') => {
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
            [b'\r', ..] => return Err(bad("a CR that is not followed by LF")),
            _ => return Err(bad("an LF that does not follow CR")),
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
                if fields > limits.fields.min(HeadLimits::MOST_FIELDS) {
                    return Err(Reject { status: Status::REQUEST_HEADER_FIELDS_TOO_LARGE, why: "too many fields" });
                }
            }
        }
    }
}

/// Says what httparse found wrong. A version that looks like one but is not ours deserves 505, HTTP/2's preface (RFC
/// 9113 §3.4) included.
fn explain(error: httparse::Error, request_line: &[u8]) -> Reject {
    match error {
        httparse::Error::Token => bad("the request line is not method, target and version"),
        httparse::Error::HeaderName => bad("a field name is not a token"),
        httparse::Error::HeaderValue => bad("a control character in a field value"),
        httparse::Error::Version => match request_line.trim_ascii_end().split(|octet| *octet == b' ').nth(2) {
            Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
                if major.is_ascii_digit() && minor.is_ascii_digit() =>
            {
                Reject { status: Status::HTTP_VERSION_NOT_SUPPORTED, why: "neither HTTP/1.0 nor HTTP/1.1" }
            }
            _ => bad("the request line is not method, target and version"),
        },
        _ => bad("the head is malformed"),
    }
}

/// The fields that HTTP/1.1 itself acts on.
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

/// The transfer codings applied so far, as far as they matter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    /// Codings that we do not implement, and whether chunked is the last of them.
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
    for field in head.headers.iter() {
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
        request: Request { method, target, raw_target, authority: absolute.or(host), conditions, fields },
        version,
        keep_alive: !control.close && (version == Version::Http11 || control.keep_alive),
        framing,
        // Ignored in HTTP/1.0 (RFC 9110 §10.1.1), and nobody waits who has nothing to send.
        expect_continue: control.expect_continue && version == Version::Http11 && framing != Framing::None,
    })
}

impl<'a> Control<'a> {
    /// Takes a field line; `false` if it is none of ours.
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
                // Equal values might be merged (RFC 9112 §6.3), but whoever sends them has two opinions.
                let length = decimal(value).ok_or(bad("Content-Length is not one number below 2^64"))?;
                if self.content_length.replace(length).is_some() {
                    return Err(bad("Content-Length is repeated"));
                }
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                let codings = value.split(|octet| *octet == b',').map(<[u8]>::trim_ascii);
                self.transfer_encoding =
                    codings.fold(self.transfer_encoding, |before, coding| Some(Coding::after(before, coding)));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// RFC 9112 §6.1 and §6.3, without the leniency of either.
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
    /// Adds one member of the list. Chunked is applied once and last, so nothing may follow it.
    fn after(before: Option<Coding>, coding: &[u8]) -> Coding {
        let name = coding.split(|octet| *octet == b';').next().unwrap_or(coding).trim_ascii_end();
        match (before, coding.eq_ignore_ascii_case(b"chunked")) {
            _ if name.is_empty() || !name.iter().all(|octet| is_token(*octet)) => Coding::Malformed,
            (None, true) => Coding::Chunked,
            (Some(Coding::Other { last_is_chunked: false }), true) => Coding::Other { last_is_chunked: true },
            (None | Some(Coding::Other { last_is_chunked: false }), false) => Coding::Other { last_is_chunked: false },
            _ => Coding::Malformed,
        }
    }
}

/// Takes off the form of a request-target (RFC 9112 §3.2) and returns the authority of an absolute one.
fn read_target<'a>(method: Method<'_>, raw: &'a str) -> Result<(Target<'a>, Option<&'a str>), Reject> {
    if method == Method::Other("CONNECT") {
        // Whatever follows is meant for somebody else, so this cannot be an ordinary 405.
        return Err(Reject { status: Status::METHOD_NOT_ALLOWED, why: "CONNECT: this is no proxy" });
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
            let end = rest.iter().position(|octet| *octet == b']').ok_or(INVALID)?;
            let is_literal =
                end > 0 && rest[..end].iter().all(|octet| octet.is_ascii_hexdigit() || b":.".contains(octet));
            (is_literal, &rest[end + 1..])
        }
        None => {
            let end = value.iter().position(|octet| !IS_REG_NAME[usize::from(*octet)]).unwrap_or(value.len());
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

/// Octets of a reg-name: unreserved, sub-delims and the percent sign (RFC 3986 §3.2.2).
const IS_REG_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let mut octet = 0;
    while octet < 128 {
        table[octet] = (octet as u8).is_ascii_alphanumeric();
        octet += 1;
    }
    let others = b"-._~!$&'()*+,;=%";
    let mut n = 0;
    while n < others.len() {
        table[others[n] as usize] = true;
        n += 1;
    }
    table
};

/// The members of a list, empty ones left out (RFC 9110 §5.6.1.2).
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|octet| *octet == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// 1*DIGIT below 2^64.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// tchar (RFC 9110 §5.6.2).
pub(super) fn is_token(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet)
}

const fn bad(why: &'static str) -> Reject {
    Reject { status: Status::BAD_REQUEST, why }
}

const REQUEST_LINE_TOO_LONG: Reject = Reject { status: Status::URI_TOO_LONG, why: "the request line is too long" };
const HEAD_TOO_LONG: Reject = Reject { status: Status::REQUEST_HEADER_FIELDS_TOO_LARGE, why: "the head is too long" };

/// GUESS: old clients sent one after a POST; nobody sends many.
const MOST_LEADING_EMPTY_LINES: usize = 4;

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
