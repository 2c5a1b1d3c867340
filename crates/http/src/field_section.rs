//! The field section of a request, for lookups by name.

use memchr::memchr;

use crate::request::{FieldLines, Singleton};

/// Fields of one connection, in lower case. They are hop-by-hop even if Connection does not name them (RFC 9110
/// §7.6.1). Framing fields are included: each side of an intermediary has its own framing.
pub const HOP_BY_HOP: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The validated field lines of a message, borrowed, in order of arrival, as `name: value CRLF`.
///
/// A lookup scans the lines from the beginning, unless the names of the fields are known and exclude it; a request without lookups costs nothing.
#[derive(Clone, Copy, Default)]
pub struct FieldSection<'a> {
    lines: &'a [u8],
    names: Names,
}

/// Names that may be among fields: a bit for each class of names, by length and first letter. Most lookups are for fields that a request does not have.
#[derive(Clone, Copy)]
pub(crate) struct Names(u64);

impl Names {
    pub(crate) const NONE: Self = Names(0);

    /// Adds a name, in any case.
    #[inline]
    pub(crate) fn add(&mut self, name: &[u8]) {
        self.0 |= Self::class(name);
    }

    #[inline]
    fn may_have(self, name: &str) -> bool {
        self.0 & Self::class(name.as_bytes()) != 0
    }

    #[inline]
    fn class(name: &[u8]) -> u64 {
        // The last five bits of a letter are the same in both cases. With 11, the names of usual requests share few classes.
        let first = name.first().map_or(0, |first| usize::from(first & 31));
        1 << ((first + 11 * name.len()) & 63)
    }
}

impl Default for Names {
    /// Any name.
    fn default() -> Self {
        Names(u64::MAX)
    }
}

impl std::fmt::Debug for FieldSection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FieldSection").field("lines", &self.lines).finish()
    }
}

impl PartialEq for FieldSection<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.lines == other.lines
    }
}

impl Eq for FieldSection<'_> {}

impl<'a> FieldSection<'a> {
    /// Wraps validated field lines. Each is a name, a colon, a value with optional whitespace around it, and a line end.
    pub fn from_lines(lines: &'a [u8]) -> Self {
        FieldSection { lines, names: Names::default() }
    }

    /// The same section, whose fields have no other names than `names`.
    pub(crate) fn with_names(self, names: Names) -> Self {
        FieldSection { names, ..self }
    }

    /// The fields: names as the client spelled them, values without surrounding whitespace.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        lines(self.lines).filter_map(|line| {
            let colon = memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// The values of all fields called `name`, in any case.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let lines_with_name = if self.names.may_have(name) { self.lines } else { &[] };
        lines(lines_with_name).filter_map(move |line| value_of(line, name))
    }

    /// The value of the first field called `name`, in any case.
    pub fn first(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The values of the first fields called `names`, in any case, found in one pass.
    pub fn first_of<const N: usize>(&self, names: [&str; N]) -> [Option<&'a [u8]>; N] {
        let mut values = [None; N];
        if !names.iter().any(|name| self.names.may_have(name)) {
            return values;
        }
        for line in lines(self.lines) {
            for (name, value) in names.iter().zip(&mut values) {
                if value.is_none() {
                    *value = value_of(line, name);
                }
            }
        }
        values
    }

    /// The value of the singleton field `name` (RFC 9110 §5.5).
    pub fn singleton(&self, name: &str) -> Singleton<'a> {
        let mut singleton = Singleton::default();
        self.all(name).for_each(|value| singleton.add(value));
        singleton
    }

    /// The lines of the list-based field `name` (RFC 9110 §5.3).
    pub fn list(&self, name: &str) -> FieldLines<'a> {
        let mut list = FieldLines::default();
        self.all(name).for_each(|value| list.add(value));
        list
    }
}

pub(crate) fn lines(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = memchr(b'\n', rest)?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line)
    })
}

/// The value of a field line, if its field is called `name`.
pub(crate) fn value_of<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (other, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    other.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_can_be_found() {
        let fields = FieldSection::from_lines(b"Host: a\r\nX-A:1\r\nx-a: \t2 \r\nEmpty:\r\n");
        let all: Vec<_> = fields.iter().collect();
        assert_eq!(all, [(&b"Host"[..], &b"a"[..]), (b"X-A", b"1"), (b"x-a", b"2"), (b"Empty", b"")]);
        assert_eq!(fields.all("X-a").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(fields.first("x-A"), Some(&b"1"[..]));
        assert_eq!(fields.singleton("host").value(), Some(&b"a"[..]));
        assert_eq!(fields.singleton("x-a"), Singleton::Repeated);
        assert_eq!(fields.singleton("hos"), Singleton::Absent);
        assert_eq!(fields.list("x-a").iter().collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(fields.first("empty"), Some(&b""[..]));
        assert_eq!(fields.first_of(["x-a", "none", "empty"]), [Some(&b"1"[..]), None, Some(&b""[..])]);
        assert_eq!(FieldSection::default().iter().count(), 0);
    }

    #[test]
    fn known_names_hide_no_field() {
        let fields = FieldSection::from_lines(b"Host: a\r\nX-A:1\r\nx-a: \t2 \r\nEmpty:\r\n");
        let mut names = Names::NONE;
        fields.iter().for_each(|(name, _)| names.add(name));
        let known = fields.with_names(names);
        for name in ["host", "HOST", "x-a", "X-a", "empty", "hos", "hosts", "x-b", "te", ""] {
            assert_eq!(known.all(name).collect::<Vec<_>>(), fields.all(name).collect::<Vec<_>>(), "{name}");
            assert_eq!(known.first_of([name, "none"]), fields.first_of([name, "none"]), "{name}");
        }
        assert!(!names.may_have("cdn-loop"), "it is looked for");
        assert_eq!(known, fields);
    }
}
