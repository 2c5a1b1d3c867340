//! The head of a request (RFC 9113 §8, RFC 9114 §4): decoded once into the driver's buffer.

use serde::{Deserialize, Serialize};

use crate::FieldSection;
use crate::field_section::Names;
use crate::request::{Conditions, Method, Request, Target};

use super::Priority;

/// The buffer into which requests are decoded. One per thread suffices: each request overwrites the previous one. A
/// driver that responds later keeps it (`std::mem::take`) with the request.
///
/// It stores fields as HTTP/1.1 lines, so that [`FieldSection`] works for every protocol.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct HeadBuffer {
    pub(super) lines: Vec<u8>,
    /// The merged cookie, while its lines are read.
    pub(super) cookie: Vec<u8>,
    /// Values of the pseudo-header fields in `lines`, in the order of [`Pseudo`].
    pub(super) pseudo: [Option<Span>; 5],
    /// The start of the field lines.
    pub(super) fields: usize,
    pub(super) host: Option<Span>,
    pub(super) content_length: Option<u64>,
    pub(super) priority: Option<Priority>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The pseudo-header fields of a request (RFC 9113 §8.3.1, RFC 9114 §4.3.1, RFC 8441 §4).
#[derive(Debug, Clone, Copy)]
pub(super) enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
}

/// The head of a request, well formed by RFC 9113 §8 and RFC 9114 §4.
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
    #[inline]
    pub fn to_request(&self) -> Option<Request<'a>> {
        let mut request = self.to_described();
        if let Some(request) = &mut request {
            let mut names = Names::NONE;
            self.fields.iter().for_each(|(name, value)| {
                names.add(name);
                request.conditions.add(name, value);
            });
            request.fields = self.fields.with_names(names);
        }
        request
    }

    /// The same without conditions, for a log.
    #[inline]
    pub fn to_described(&self) -> Option<Request<'a>> {
        let raw_target = self.path?;
        let target = if raw_target == "*" { Target::Asterisk } else { Target::from_origin_form(raw_target)? };
        Some(Request {
            method: Method::from_token(self.method),
            target,
            raw_target,
            authority: self.authority,
            conditions: Conditions::default(),
            fields: self.fields,
        })
    }
}

impl HeadBuffer {
    /// The request decoded last. A request that is too large only has the fields that fitted.
    #[inline]
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

    /// Whether the request names a host, by `:authority` or Host.
    pub fn has_authority(&self) -> bool {
        self.pseudo[Pseudo::Authority as usize].is_some() || self.host.is_some()
    }

    /// The protocol that CONNECT requests (RFC 8441 §4), without evaluating the rest of [`Self::request`].
    pub fn protocol(&self) -> Option<&str> {
        self.text(self.pseudo[Pseudo::Protocol as usize])
    }

    /// The fields decoded last: of a request, or its trailers.
    pub fn fields(&self) -> FieldSection<'_> {
        FieldSection::from_lines(&self.lines[self.fields.min(self.lines.len())..])
    }

    /// The length of the content of the request decoded last, if the client sent it.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The value of `priority` in the request decoded last, if the client sent one.
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        self.lines.capacity() + self.cookie.capacity()
    }

    /// Bytes of the request decoded last.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether nothing is decoded.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Takes over the request that `other` decoded last, and keeps its own memory.
    pub fn copy_from(&mut self, other: &Self) {
        // The cookies are among the lines.
        let HeadBuffer { lines, cookie: _, pseudo, fields, host, content_length, priority } = other;
        self.lines.clear();
        self.lines.extend_from_slice(lines);
        self.cookie.clear();
        (self.pseudo, self.fields, self.host) = (*pseudo, *fields, *host);
        (self.content_length, self.priority) = (*content_length, *priority);
    }

    /// A value that was checked to be visible ASCII, except perhaps in a request that is too large.
    fn text(&self, span: Option<Span>) -> Option<&str> {
        std::str::from_utf8(self.slice(span?)).ok()
    }

    pub(super) fn slice(&self, span: Span) -> &[u8] {
        // The lines of a section that is too large or malformed were removed.
        self.lines.get(span.start..span.end).unwrap_or_default()
    }

    pub(super) fn pseudo_value(&self, pseudo: Pseudo) -> Option<&[u8]> {
        self.pseudo[pseudo as usize].map(|span| self.slice(span))
    }

    /// Forgets the request decoded last, and keeps the memory.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.cookie.clear();
        self.pseudo = [None; 5];
        self.fields = 0;
        self.host = None;
        self.content_length = None;
        self.priority = None;
    }
}
