//! Field sections (RFC 9113 §8, RFC 9114 §4): validated line by line, as a decoder of HPACK or QPACK writes them.

use crate::decimal::content_length;
use crate::http1::head::is_authority;

use super::Priority;
use super::bytes::{is_field_name, is_field_value, is_token, is_visible};
use super::head::{HeadBuffer, Pseudo, Span};

/// The separator between name and value in a decoder's output, as in HTTP/1.1 field lines.
pub const SEPARATOR: &[u8; 2] = b": ";

/// A field in a decoder's output: `name: value`, without a line end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSpan {
    /// The start of the line in the output.
    pub start: usize,
    /// The length of the name.
    pub name_len: usize,
    /// The name is from the static table, which has lower-case names only.
    pub name_is_static: bool,
    /// The value is from the static table, so it is valid for its name.
    pub value_is_static: bool,
}

impl FieldSpan {
    /// The start of the value in the output.
    #[inline]
    pub fn value_start(self) -> usize {
        self.start + self.name_len + SEPARATOR.len()
    }
}

/// The limits of a field section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionLimits {
    /// Bytes of names and values, and 4 for each line.
    pub head: usize,
    /// The number of fields; the lines of `cookie` count as one.
    pub fields: usize,
    /// Whether CONNECT may name a protocol (RFC 8441, RFC 9220).
    pub connect_protocol: bool,
}

/// The validity of a field section that was decoded to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Well formed.
    Good,
    /// Larger than [`SectionLimits::head`], or more than [`SectionLimits::fields`].
    TooLarge,
    /// Malformed (RFC 9113 §8.1.1, RFC 9114 §4.1.2).
    Malformed(&'static str),
}

/// The message that a field section belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SectionKind {
    /// The head of a request.
    Request,
    /// The trailers of a request.
    Trailers,
}

/// A field section decodes to much more than the limits: end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bomb;

/// A section that decodes to this many times the limit ends the connection. Below that only its stream fails: a client
/// may not know the limit.
const HARD_BYTES: usize = 4;
const HARD_LINES: usize = 8;

/// Validates a field section while a decoder writes it into a [`HeadBuffer`].
///
/// ```
/// use sealion_http::multiplexed::{FieldSpan, HeadBuffer, SectionKind, SectionLimits, SectionReader};
///
/// let (limits, mut buffer) = (SectionLimits { head: 1000, fields: 10, connect_protocol: false }, HeadBuffer::default());
/// let mut reader = SectionReader::new(SectionKind::Request, limits, &mut buffer);
/// for (name, value) in [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/")] {
///     let start = reader.out().len(); // what a decoder does
///     reader.out().extend_from_slice(format!("{name}: {value}").as_bytes());
///     reader.line(FieldSpan { start, name_len: name.len(), name_is_static: false, value_is_static: false }).unwrap();
/// }
/// reader.finish();
/// assert_eq!(buffer.request().path, Some("/"));
/// ```
pub struct SectionReader<'a> {
    kind: SectionKind,
    limits: SectionLimits,
    buffer: &'a mut HeadBuffer,
    section: Section,
    /// The number of fields; the lines of `cookie` count as one.
    fields: usize,
    /// The number of lines decoded, and their bytes.
    lines: usize,
    bytes: usize,
}

impl<'a> SectionReader<'a> {
    /// Begins a section; `buffer` forgets the previous one.
    #[inline]
    pub fn new(kind: SectionKind, limits: SectionLimits, buffer: &'a mut HeadBuffer) -> Self {
        buffer.clear();
        SectionReader { kind, limits, buffer, section: Section::Good, fields: 0, lines: 0, bytes: 0 }
    }

    /// Where the decoder appends the next line.
    #[inline]
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.buffer.lines
    }

    /// Checks the line that was appended, ends it, and records its meaning. It removes the line if the section is
    /// malformed or too large.
    ///
    /// # Errors
    /// [`Bomb`]: the section is many times larger than the limits.
    #[inline]
    pub fn line(&mut self, span: FieldSpan) -> Result<(), Bomb> {
        self.lines += 1;
        self.bytes += self.buffer.lines.len() - span.start;
        let (head, fields) = (self.limits.head, self.limits.fields);
        if self.bytes > head.saturating_mul(HARD_BYTES) || self.lines > fields.saturating_mul(HARD_LINES) {
            return Err(Bomb);
        }
        if self.section == Section::Good {
            self.check(span);
        }
        if self.section != Section::Good {
            self.buffer.lines.truncate(span.start);
        }
        Ok(())
    }

    /// The section ended.
    #[inline]
    pub fn finish(self) -> Section {
        let buffer = self.buffer;
        if !buffer.cookie.is_empty() {
            let (lines, cookie) = (&mut buffer.lines, &buffer.cookie);
            lines.extend_from_slice(cookie);
            lines.extend_from_slice(LINE_END);
        } else if self.fields == 0 {
            buffer.fields = buffer.lines.len();
        }
        match (self.section, self.kind) {
            (Section::Good, SectionKind::Request) => match check_request(buffer, &self.limits) {
                Ok(()) => Section::Good,
                Err(why) => Section::Malformed(why),
            },
            (section, _) => section,
        }
    }

    /// Checks the last line of the buffer, ends it, and records its meaning.
    #[inline]
    fn check(&mut self, span: FieldSpan) {
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

    #[inline]
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
        if self.kind == SectionKind::Trailers || is_late {
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

    /// The lines of `cookie` form one field (RFC 9113 §8.2.3, RFC 9114 §4.2.1).
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

    /// Handles fields that matter to the protocol (RFC 9113 §8.1.1, §8.2.2 and §8.3.1, RFC 9114 §4.2 and §4.3).
    fn field(&mut self, start: usize, name_len: usize, value: Span) -> Result<(), &'static str> {
        let bytes = self.buffer.slice(value);
        match &self.buffer.lines[start..start + name_len] {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
                Err("a connection-specific field")
            }
            b"te" if bytes != b"trailers" => Err("a TE field other than trailers"),
            _ if self.kind == SectionKind::Trailers => Ok(()),
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
}

const LINE_END: &[u8] = b"\r\n";

/// Checks the pseudo-header fields as a whole (RFC 9113 §8.3.1 and §8.5, RFC 8441 §4).
#[inline]
fn check_request(head: &HeadBuffer, limits: &SectionLimits) -> Result<(), &'static str> {
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
