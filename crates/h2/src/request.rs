//! Field sections of requests (RFC 9113 §8): decoded once into the driver's buffer, and validated on the way.

use sealion_http::FieldSection;
use sealion_http::http1::head::is_authority;
use sealion_http::request::{Conditions, Method, Request, Target};

use crate::error::{ConnectionError, Flood};
use crate::hpack::{Decoder, FieldSpan, SEPARATOR};
use crate::priority::Priority;
use crate::settings::Limits;

/// The buffer into which requests are decoded. One per thread suffices: each request overwrites the previous one. A
/// driver that responds later keeps it (`std::mem::take`) with the request.
///
/// It stores fields as HTTP/1.1 lines, so that [`FieldSection`] works for every protocol.
#[derive(Debug, Default)]
pub struct HeadBuffer {
    lines: Vec<u8>,
    /// The merged cookie, while its lines are read.
    cookie: Vec<u8>,
    /// Values of the pseudo-header fields in `lines`, in the order of [`Pseudo`].
    pseudo: [Option<Span>; 5],
    /// The start of the field lines.
    fields: usize,
    host: Option<Span>,
    content_length: Option<u64>,
    priority: Option<Priority>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
}

/// The pseudo-header fields of a request (RFC 9113 §8.3.1, RFC 8441 §4).
#[derive(Debug, Clone, Copy)]
enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
}

/// The head of a request, well formed by RFC 9113 §8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead<'a> {
    /// `:method`: a token.
    pub method: &'a str,
    /// `:scheme`; absent for CONNECT without a protocol.
    pub scheme: Option<&'a str>,
    /// `:authority`, or otherwise Host.
    pub authority: Option<&'a str>,
    /// `:path`: begins with `/`, or is `*` for OPTIONS. Absent for CONNECT without a protocol.
    pub path: Option<&'a str>,
    /// `:protocol` of an extended CONNECT (RFC 8441).
    pub protocol: Option<&'a str>,
    /// The fields in order, with names in lower case. The lines of `cookie` are merged into one at the end.
    pub fields: FieldSection<'a>,
    /// The length of the content, if the client sent it.
    pub content_length: Option<u64>,
    /// The value of `priority`, if the client sent one.
    pub priority: Option<Priority>,
}

impl<'a> RequestHead<'a> {
    /// The request as handlers see it. `None`: `:path` contains bytes that a request-target cannot have; respond with
    /// 400.
    ///
    /// For CONNECT without a protocol the target is its authority, as in HTTP/1.1, and the result is also `None`.
    pub fn to_request(&self) -> Option<Request<'a>> {
        let raw_target = self.path?;
        let target = if raw_target == "*" { Target::Asterisk } else { Target::from_origin_form(raw_target)? };
        let mut conditions = Conditions::default();
        for (name, value) in self.fields.iter() {
            // Only the fields of conditions matter, and their names are valid UTF-8.
            if let Ok(name) = std::str::from_utf8(name) {
                conditions.add(name, value);
            }
        }
        Some(Request {
            method: Method::from_token(self.method),
            target,
            raw_target,
            authority: self.authority,
            conditions,
            fields: self.fields,
        })
    }
}

impl HeadBuffer {
    /// The request decoded last, after [`Event::Request`] or [`Event::TooLarge`]. After the latter it only has the
    /// fields that fitted.
    ///
    /// [`Event::Request`]: crate::Event::Request
    /// [`Event::TooLarge`]: crate::Event::TooLarge
    pub fn request(&self) -> RequestHead<'_> {
        // These values precede all fields and were checked to be ASCII, so one check of them together suffices.
        let text = std::str::from_utf8(&self.lines[..self.fields.min(self.lines.len())]).unwrap_or_default();
        let pseudo = |pseudo: Pseudo| {
            self.pseudo[pseudo as usize].map(|Span { start, end }| text.get(start..end).unwrap_or_default())
        };
        RequestHead {
            method: pseudo(Pseudo::Method).unwrap_or_default(),
            scheme: pseudo(Pseudo::Scheme),
            authority: pseudo(Pseudo::Authority).or(self.text(self.host)),
            path: pseudo(Pseudo::Path),
            protocol: pseudo(Pseudo::Protocol),
            fields: self.fields(),
            content_length: self.content_length,
            priority: self.priority,
        }
    }

    /// The protocol that CONNECT requests (RFC 8441 §4), without evaluating the rest of [`Self::request`].
    pub fn protocol(&self) -> Option<&str> {
        self.text(self.pseudo[Pseudo::Protocol as usize])
    }

    /// The fields decoded last: of a request, or of trailers after [`Event::Trailers`].
    ///
    /// [`Event::Trailers`]: crate::Event::Trailers
    pub fn fields(&self) -> FieldSection<'_> {
        FieldSection::from_lines(&self.lines[self.fields.min(self.lines.len())..])
    }

    pub(crate) fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    pub(crate) fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        self.lines.capacity() + self.cookie.capacity()
    }

    /// A value that was checked to be visible ASCII, except perhaps in a request that is too large.
    fn text(&self, span: Option<Span>) -> Option<&str> {
        std::str::from_utf8(self.slice(span?)).ok()
    }

    fn slice(&self, span: Span) -> &[u8] {
        // The lines of a section that is too large or malformed were removed.
        self.lines.get(span.start..span.end).unwrap_or_default()
    }

    fn pseudo_value(&self, pseudo: Pseudo) -> Option<&[u8]> {
        self.pseudo[pseudo as usize].map(|span| self.slice(span))
    }

    fn clear(&mut self) {
        self.lines.clear();
        self.cookie.clear();
        self.pseudo = [None; 5];
        self.fields = 0;
        self.host = None;
        self.content_length = None;
        self.priority = None;
    }
}

/// The validity of a field section that was decoded to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// Well formed.
    Good,
    /// Larger than [`Limits::head`], or more than [`Limits::fields`].
    TooLarge,
    /// Malformed (RFC 9113 §8.1.1).
    Malformed(&'static str),
}

/// The message that a field section belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Trailers,
}

/// Decodes a header block into `buffer`. It reads the whole block, even if it is malformed, to update the dynamic
/// table. A block that decodes to much more than the limits ends the connection at once.
pub(crate) fn decode(
    kind: Kind,
    decoder: &mut Decoder,
    block: &[u8],
    buffer: &mut HeadBuffer,
    limits: &Limits,
) -> Result<Section, ConnectionError> {
    buffer.clear();
    let mut reading = Reading { kind, limits, buffer, section: Section::Good, fields: 0 };
    let (mut lines, mut bytes) = (0usize, 0usize);
    let mut block = decoder.block(block);
    while let Some(span) = block.next(&mut reading.buffer.lines)? {
        lines += 1;
        bytes += reading.buffer.lines.len() - span.start;
        if bytes > limits.head.saturating_mul(HARD_BYTES) || lines > limits.fields.saturating_mul(HARD_LINES) {
            return Err(ConnectionError::flood(Flood::HeaderBomb));
        }
        if reading.section == Section::Good {
            reading.line(span);
        }
        if reading.section != Section::Good {
            reading.buffer.lines.truncate(span.start);
        }
    }
    Ok(reading.finish())
}

/// A block that decodes to this many times the limit ends the connection. Below that only its stream fails: a client
/// may not know the limit.
const HARD_BYTES: usize = 4;
const HARD_LINES: usize = 8;

struct Reading<'a> {
    kind: Kind,
    limits: &'a Limits,
    buffer: &'a mut HeadBuffer,
    section: Section,
    /// The number of fields; the lines of `cookie` count as one.
    fields: usize,
}

impl Reading<'_> {
    /// Checks the last line of the buffer, ends it, and records its meaning.
    fn line(&mut self, span: FieldSpan) {
        let FieldSpan { start, name_len, name_is_static, value_is_static } = span;
        let value_start = span.value_start();
        let line = &self.buffer.lines[start..];
        let (name, value) = (&line[..name_len], &self.buffer.lines[value_start..]);
        if !value_is_static && !is_field_value(value) {
            self.section = Section::Malformed("a field value with invalid bytes, or with whitespace at its ends");
            return;
        }
        if name.first() == Some(&b':') {
            self.pseudo(span);
            return;
        }
        if !name_is_static && !is_field_name(name) {
            self.section = Section::Malformed("a field name that is not a token in lower case");
            return;
        }
        if self.fields == 0 && self.buffer.cookie.is_empty() {
            self.buffer.fields = start;
        }
        if name == b"cookie" {
            self.cookie(start, value_start);
            return;
        }
        self.fields += 1;
        let value = Span { start: value_start, end: self.buffer.lines.len() };
        if let Err(why) = self.field(start, name_len, value) {
            self.section = Section::Malformed(why);
            return;
        }
        self.buffer.lines.extend_from_slice(LINE_END);
        self.check_size();
    }

    fn pseudo(&mut self, span: FieldSpan) {
        let pseudo = match &self.buffer.lines[span.start..span.start + span.name_len] {
            b":method" => Pseudo::Method,
            b":scheme" => Pseudo::Scheme,
            b":authority" => Pseudo::Authority,
            b":path" => Pseudo::Path,
            b":protocol" => Pseudo::Protocol,
            _ => return self.section = Section::Malformed("an unknown pseudo-header field"),
        };
        let is_late = self.fields > 0 || !self.buffer.cookie.is_empty();
        if self.kind == Kind::Trailers || is_late {
            return self.section = Section::Malformed("a pseudo-header field in trailers or after a field");
        }
        let value = Span { start: span.value_start(), end: self.buffer.lines.len() };
        if !span.value_is_static && !is_visible(self.buffer.slice(value)) {
            return self.section = Section::Malformed("a pseudo-header field that is not visible ASCII");
        }
        if self.buffer.pseudo[pseudo as usize].replace(value).is_some() {
            return self.section = Section::Malformed("a pseudo-header field twice");
        }
        self.buffer.fields = self.buffer.lines.len();
        self.check_size();
    }

    /// The lines of `cookie` form one field (RFC 9113 §8.2.3).
    fn cookie(&mut self, start: usize, value_start: usize) {
        if self.buffer.cookie.is_empty() {
            self.fields += 1;
            self.buffer.cookie.extend_from_slice(b"cookie: ");
        } else {
            self.buffer.cookie.extend_from_slice(b"; ");
        }
        let buffer = &mut *self.buffer;
        buffer.cookie.extend_from_slice(&buffer.lines[value_start..]);
        buffer.lines.truncate(start);
        self.check_size();
    }

    /// Handles fields that matter to the protocol (RFC 9113 §8.1.1, §8.2.2, §8.3.1).
    fn field(&mut self, start: usize, name_len: usize, value: Span) -> Result<(), &'static str> {
        let bytes = self.buffer.slice(value);
        match &self.buffer.lines[start..start + name_len] {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
                Err("a connection-specific field")
            }
            b"te" if bytes != b"trailers" => Err("a TE field other than trailers"),
            _ if self.kind == Kind::Trailers => Ok(()),
            b"host" => match self.buffer.host.replace(value) {
                Some(_) => Err("Host twice"),
                None => Ok(()),
            },
            b"content-length" => {
                let length = content_length(bytes).ok_or("an invalid content-length")?;
                match self.buffer.content_length.replace(length) {
                    Some(other) if other != length => Err("two different values of content-length"),
                    _ => Ok(()),
                }
            }
            b"priority" => {
                self.buffer.priority = Some(Priority::parse(bytes));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_size(&mut self) {
        let size = self.buffer.lines.len() + self.buffer.cookie.len();
        if size > self.limits.head || self.fields > self.limits.fields {
            self.section = Section::TooLarge;
        }
    }

    fn finish(self) -> Section {
        let buffer = self.buffer;
        if !buffer.cookie.is_empty() {
            let (lines, cookie) = (&mut buffer.lines, &buffer.cookie);
            lines.extend_from_slice(cookie);
            lines.extend_from_slice(LINE_END);
        } else if self.fields == 0 {
            buffer.fields = buffer.lines.len();
        }
        match (self.section, self.kind) {
            (Section::Good, Kind::Request) => match check_request(buffer, self.limits) {
                Ok(()) => Section::Good,
                Err(why) => Section::Malformed(why),
            },
            (section, _) => section,
        }
    }
}

const LINE_END: &[u8] = b"\r\n";

/// Checks the pseudo-header fields as a whole (RFC 9113 §8.3.1 and §8.5, RFC 8441 §4).
fn check_request(head: &HeadBuffer, limits: &Limits) -> Result<(), &'static str> {
    let method = head.pseudo_value(Pseudo::Method).ok_or("no :method")?;
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err("a :method that is not a token");
    }
    let scheme = head.pseudo_value(Pseudo::Scheme);
    let path = head.pseudo_value(Pseudo::Path);
    let authority = head.pseudo_value(Pseudo::Authority);
    let host = head.host.map(|host| head.slice(host));
    for named in [authority, host].into_iter().flatten() {
        if !is_authority(named) {
            return Err("an :authority or Host that is not a host with an optional port");
        }
    }
    if let (Some(authority), Some(host)) = (authority, host)
        && !authority.eq_ignore_ascii_case(host)
    {
        return Err("Host differs from :authority");
    }
    match head.pseudo_value(Pseudo::Protocol) {
        Some(_) if !limits.connect_protocol => return Err("a :protocol that was not announced"),
        Some(_) if method != b"CONNECT" || authority.is_none() => {
            return Err("a :protocol without CONNECT or :authority");
        }
        None if method == b"CONNECT" => {
            return match (scheme, path, authority) {
                (None, None, Some(_)) => Ok(()),
                _ => Err("CONNECT with :scheme or :path, or without :authority"),
            };
        }
        _ => {}
    }
    let scheme = scheme.ok_or("no :scheme")?;
    if !scheme.first().is_some_and(u8::is_ascii_alphabetic) {
        return Err("an invalid :scheme");
    }
    match path.ok_or("no :path")? {
        [b'/', ..] => Ok(()),
        b"*" if method == b"OPTIONS" => Ok(()),
        _ => Err("a :path that does not begin with a slash"),
    }
}

/// RFC 9110 §8.6.
fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// RFC 9110 §5.6.2, without upper case (RFC 9113 §8.2).
fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| BYTES[usize::from(*byte)] & FIELD_NAME != 0)
}

/// RFC 9110 §5.5: no control characters except tab, and no whitespace at the ends (RFC 9113 §8.2.1).
fn is_field_value(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_space(value.first()) || is_space(value.last()) {
        return false;
    }
    // Tabs are rare.
    fold_words(value, |word| below::<0x20>(word) | deletes(word)) == 0
        || value.iter().all(|byte| !byte.is_ascii_control() || *byte == b'\t')
}

/// Whether all bytes are visible ASCII.
fn is_visible(value: &[u8]) -> bool {
    fold_words(value, |word| below::<0x21>(word) | deletes(word) | (word & HIGHEST)) == 0
}

/// Combines the results of `look` for eight bytes at a time. The last word is padded with letters.
fn fold_words(bytes: &[u8], look: impl Fn(u64) -> u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let found = words.iter().fold(0, |found, word| found | look(u64::from_ne_bytes(*word)));
    let mut last = [b'a'; 8];
    last[..rest.len()].copy_from_slice(rest);
    found | look(u64::from_ne_bytes(last))
}

const EACH: u64 = 0x0101_0101_0101_0101;
const HIGHEST: u64 = EACH * 0x80;

/// Nonzero if one of eight bytes is below `LIMIT`.
fn below<const LIMIT: u64>(word: u64) -> u64 {
    word.wrapping_sub(EACH * LIMIT) & !word & HIGHEST
}

/// Nonzero if one of eight bytes is DEL.
fn deletes(word: u64) -> u64 {
    let delete = word ^ (EACH * 0x7f);
    delete.wrapping_sub(EACH) & !delete & HIGHEST
}

const fn is_token(byte: u8) -> bool {
    BYTES[byte as usize] & TOKEN != 0
}

/// Bits of [`BYTES`].
const TOKEN: u8 = 1;
const FIELD_NAME: u8 = 2;

/// The classes of each byte.
static BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let this = byte as u8;
        if this.is_ascii_alphanumeric()
            || matches!(
                this,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            )
        {
            table[byte] = if this.is_ascii_uppercase() { TOKEN } else { TOKEN | FIELD_NAME };
        }
        byte += 1;
    }
    table
};

const _: () = assert!(SEPARATOR.len() == 2, "lines are those that FieldSection reads");

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
