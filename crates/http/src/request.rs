//! A request, independent of the protocol version, borrowed from the bytes it arrived in.

use memchr::memchr;

use crate::field_section::FieldSection;

/// A request as handlers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The request method.
    pub method: Method<'a>,
    /// The request-target, parsed.
    pub target: Target<'a>,
    /// The request-target as received, for the log: visible ASCII only.
    pub raw_target: &'a str,
    /// `uri-host [":" port]`, from the absolute-form target or else from Host (RFC 9112 §3.2.2). `None` only in HTTP/1.0.
    pub authority: Option<&'a str>,
    /// The fields that make the request conditional or select a representation.
    pub conditions: Conditions<'a>,
    /// All fields of the request.
    pub fields: FieldSection<'a>,
}

/// A request method (RFC 9110 §9, RFC 5789); case matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method<'a> {
    /// GET: the file.
    Get,
    /// HEAD: like GET, without content.
    Head,
    /// A registered method that files do not support: 405.
    Other(&'static str),
    /// An unrecognized method: 501.
    Unknown(&'a str),
}

impl<'a> Method<'a> {
    /// Parses a method token.
    pub fn from_token(token: &'a str) -> Self {
        const OTHER: [&str; 8] = ["POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"];
        match token {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => match OTHER.iter().find(|known| **known == token) {
                Some(known) => Method::Other(known),
                None => Method::Unknown(token),
            },
        }
    }

    /// The token as sent in the request.
    pub fn as_str(&self) -> &'a str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Other(token) => token,
            Method::Unknown(token) => token,
        }
    }
}

/// A request-target, whatever its form (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// A path on this server, still percent-encoded.
    Path {
        /// Begins with `/`; visible ASCII without `?` and `#`.
        path: &'a str,
        /// The query: everything after the first `?`.
        query: Option<&'a str>,
    },
    /// `*`: the server as a whole (OPTIONS only).
    Asterisk,
}

impl<'a> Target<'a> {
    /// Parses an origin-form target (RFC 9112 §3.2.1): the usual target of HTTP/1.1, and `:path` of HTTP/2.
    ///
    /// Every visible ASCII character but `#` is accepted, because browsers send `|`, `[`, `^`, `"` and others unencoded. `#`
    /// would begin a fragment, which is never sent to a server.
    pub fn from_origin_form(raw: &'a str) -> Option<Self> {
        if !raw.starts_with('/') || !is_visible_without_fragment(raw) {
            return None;
        }
        Some(match memchr(b'?', raw.as_bytes()) {
            Some(at) => Target::Path { path: &raw[..at], query: Some(&raw[at + 1..]) },
            None => Target::Path { path: raw, query: None },
        })
    }
}

pub(crate) fn is_visible_without_fragment(raw: &str) -> bool {
    raw.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// The unparsed fields of RFC 9110 §12.5.3, §13.1 and §14.2.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions<'a> {
    /// The lines of If-Match.
    pub if_match: FieldLines<'a>,
    /// The lines of If-None-Match.
    pub if_none_match: FieldLines<'a>,
    /// The value of If-Modified-Since.
    pub if_modified_since: Singleton<'a>,
    /// The value of If-Unmodified-Since.
    pub if_unmodified_since: Singleton<'a>,
    /// The value of Range.
    pub range: Singleton<'a>,
    /// The value of If-Range.
    pub if_range: Singleton<'a>,
    /// The lines of Accept-Encoding.
    pub accept_encoding: FieldLines<'a>,
}

impl<'a> Conditions<'a> {
    /// Records a field line if its field is a member, and ignores it otherwise. `name` may be in any case; `value` has
    /// no surrounding whitespace.
    pub fn add(&mut self, name: impl AsRef<[u8]>, value: &'a [u8]) {
        let name = name.as_ref();
        match name.len() {
            5 if name.eq_ignore_ascii_case(b"range") => self.range.add(value),
            8 if name.eq_ignore_ascii_case(b"if-match") => self.if_match.add(value),
            8 if name.eq_ignore_ascii_case(b"if-range") => self.if_range.add(value),
            13 if name.eq_ignore_ascii_case(b"if-none-match") => self.if_none_match.add(value),
            15 if name.eq_ignore_ascii_case(b"accept-encoding") => self.accept_encoding.add(value),
            17 if name.eq_ignore_ascii_case(b"if-modified-since") => self.if_modified_since.add(value),
            19 if name.eq_ignore_ascii_case(b"if-unmodified-since") => self.if_unmodified_since.add(value),
            _ => {}
        }
    }
}

impl Conditions<'_> {
    /// Whether the request has a precondition (RFC 9110 §13.1), If-Range aside.
    #[inline]
    pub fn has_preconditions(&self) -> bool {
        self.if_none_match.is_present()
            || self.if_modified_since.is_present()
            || self.if_match.is_present()
            || self.if_unmodified_since.is_present()
    }
}

/// The lines of a list-based field, which form one list in order (RFC 9110 §5.3). One line needs no allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldLines<'a> {
    first: Option<&'a [u8]>,
    rest: Vec<&'a [u8]>,
}

impl<'a> FieldLines<'a> {
    /// Appends a field line.
    pub fn add(&mut self, value: &'a [u8]) {
        match self.first {
            None => self.first = Some(value),
            Some(_) => self.rest.push(value),
        }
    }

    /// Whether the field is present, even if empty.
    pub fn is_present(&self) -> bool {
        self.first.is_some()
    }

    /// The lines in order of arrival.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.first.iter().chain(&self.rest).copied()
    }
}

/// A singleton field (RFC 9110 §5.5). If it is repeated, no value can be trusted, and each caller decides what to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Singleton<'a> {
    /// Not sent.
    #[default]
    Absent,
    /// Sent once.
    Once(&'a [u8]),
    /// Sent more than once.
    Repeated,
}

impl<'a> Singleton<'a> {
    /// Records a field line.
    pub fn add(&mut self, value: &'a [u8]) {
        *self = match self {
            Singleton::Absent => Singleton::Once(value),
            _ => Singleton::Repeated,
        };
    }

    /// Whether the field was sent at least once.
    pub fn is_present(&self) -> bool {
        !matches!(self, Singleton::Absent)
    }

    /// The value, if the field was sent exactly once.
    pub fn value(&self) -> Option<&'a [u8]> {
        match self {
            Singleton::Once(value) => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_form() {
        let path = |path, query| Some(Target::Path { path, query });
        for (raw, expected) in [
            ("/", path("/", None)),
            ("/a/b?", path("/a/b", Some(""))),
            ("/a?b?c", path("/a", Some("b?c"))),
            ("//evil", path("//evil", None)),
            ("/a|[b]^\"", path("/a|[b]^\"", None)),
            ("", None),
            ("a", None),
            ("*", None),
            ("?q", None),
            ("/a#b", None),
            ("/a?b#c", None),
            ("/a b", None),
            ("/a\tb", None),
            ("/a\u{7f}", None),
            ("/é", None),
        ] {
            assert_eq!(Target::from_origin_form(raw), expected, "{raw:?}");
        }
    }

    #[test]
    fn methods_are_case_sensitive() {
        for (token, expected) in [
            ("GET", Method::Get),
            ("HEAD", Method::Head),
            ("PATCH", Method::Other("PATCH")),
            ("get", Method::Unknown("get")),
            ("GETX", Method::Unknown("GETX")),
        ] {
            assert_eq!(Method::from_token(token), expected);
            assert_eq!(Method::from_token(token).as_str(), token);
        }
    }

    #[test]
    fn preconditions_are_four_fields() {
        for (name, expected) in [
            ("If-Match", true),
            ("If-None-Match", true),
            ("If-Modified-Since", true),
            ("If-Unmodified-Since", true),
            ("If-Range", false),
            ("Range", false),
            ("Accept-Encoding", false),
        ] {
            let mut conditions = Conditions::default();
            conditions.add(name, b"");
            assert_eq!(conditions.has_preconditions(), expected, "{name}");
        }
    }

    #[test]
    fn repeated_lines_extend_a_list_and_invalidate_a_singleton() {
        let mut conditions = Conditions::default();
        conditions.add("If-None-Match", b"\"a\"");
        conditions.add("if-none-match", b"\"b\"");
        conditions.add("RANGE", b"bytes=0-1");
        conditions.add("If-Range", b"\"a\"");
        conditions.add("If-Range", b"\"a\"");
        conditions.add("Accept", b"*/*");
        conditions.add("Accept-Language", b"en");
        conditions.add("Accept-Encoding", b"gzip, br");
        assert_eq!(conditions.if_none_match.iter().collect::<Vec<_>>(), [b"\"a\"", b"\"b\""]);
        assert!(!conditions.if_match.is_present());
        assert!(conditions.has_preconditions());
        assert_eq!(conditions.range.value(), Some(&b"bytes=0-1"[..]));
        assert_eq!(conditions.if_range, Singleton::Repeated);
        assert_eq!(conditions.if_range.value(), None);
        assert_eq!(conditions.if_modified_since, Singleton::Absent);
        assert_eq!(conditions.accept_encoding.iter().collect::<Vec<_>>(), [b"gzip, br"]);
    }
}
