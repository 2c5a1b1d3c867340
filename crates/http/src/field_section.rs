//! All fields of a request, for those that look one up by name.

use crate::request::{FieldLines, Singleton};

/// The field lines of a message in the order of arrival, checked and borrowed: `name: value CRLF` for each.
///
/// Looking a field up reads the lines from the beginning, so that requests in which nobody does pay nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FieldSection<'a> {
    lines: &'a [u8],
}

impl<'a> FieldSection<'a> {
    /// The section whose lines are `lines`. Each is a name, a colon, a value with optional whitespace around it, and a line end.
    pub fn from_lines(lines: &'a [u8]) -> Self {
        FieldSection { lines }
    }

    /// Names in the spelling of the request, and values without surrounding whitespace.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.lines.split(|octet| *octet == b'\n').filter_map(|line| {
            let colon = line.iter().position(|octet| *octet == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// The values of the fields called `name`, in any case.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// The first value of `name`.
    pub fn first(&self, name: &str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// The value of `name`, a field that has one (RFC 9110 §5.5).
    pub fn singleton(&self, name: &str) -> Singleton<'a> {
        let mut singleton = Singleton::default();
        self.all(name).for_each(|value| singleton.add(value));
        singleton
    }

    /// The lines of `name`, a list (RFC 9110 §5.3).
    pub fn list(&self, name: &str) -> FieldLines<'a> {
        let mut list = FieldLines::default();
        self.all(name).for_each(|value| list.add(value));
        list
    }
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
        assert_eq!(FieldSection::default().iter().count(), 0);
    }
}
