//! Response fields without a member of their own in [`crate::Fields`].

use std::fmt;
use std::sync::Arc;

use crate::field_section::{lines, value_of};

/// Field lines in sending order. An empty value allocates nothing.
#[derive(Clone, Default)]
pub struct ExtraFields {
    /// `name: value CRLF` for each field, the HTTP/1 wire format.
    lines: Lines,
}

#[derive(Clone)]
enum Lines {
    Own(Vec<u8>),
    /// The lines of several values. Changing one of them copies the lines.
    Shared(Arc<Vec<u8>>),
}

impl Default for Lines {
    fn default() -> Self {
        Lines::Own(Vec::new())
    }
}

impl ExtraFields {
    /// No fields, with capacity for `bytes` bytes of lines.
    pub fn with_capacity(bytes: usize) -> Self {
        ExtraFields { lines: Lines::Own(Vec::with_capacity(bytes)) }
    }

    /// Appends a field. `name` must satisfy [`is_name`] and `value` must satisfy [`is_value`].
    pub fn add(&mut self, name: &str, value: &str) {
        debug_assert!(is_value(value), "{name}: {value:?}");
        self.add_octets(name, value.as_bytes());
    }

    /// Appends a field of another server, whose value may have bytes beyond ASCII (obs-text, RFC 9110 §5.5). `value` must have no CR, LF
    /// and NUL.
    pub fn add_octets(&mut self, name: &str, value: &[u8]) {
        debug_assert!(is_name(name), "{name}");
        debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{}", value.escape_ascii());
        let lines = self.own();
        lines.reserve(name.len() + value.len() + 4);
        lines.extend_from_slice(name.as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.extend_from_slice(b"\r\n");
    }

    /// Appends a field as [`Self::add_octets`] does, with the name in lower case, as in HTTP/2.
    pub fn add_in_lower_case(&mut self, name: &str, value: &[u8]) {
        debug_assert!(is_name(name), "{name}");
        debug_assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "{}", value.escape_ascii());
        let lines = self.own();
        lines.reserve(name.len() + value.len() + 4);
        lines.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.extend_from_slice(b"\r\n");
    }

    /// Appends a field whose value `write` appends. The value must have no CR, LF and NUL.
    pub fn add_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(is_name(name), "{name}");
        let lines = self.own();
        lines.extend_from_slice(name.as_bytes());
        lines.extend_from_slice(b": ");
        write(lines);
        lines.extend_from_slice(b"\r\n");
    }

    /// A copy with room for `bytes` more bytes.
    #[must_use]
    pub fn with_room(&self, bytes: usize) -> Self {
        let mut copy = ExtraFields::with_capacity(self.lines().len() + bytes);
        copy.extend(self);
        copy
    }

    /// Appends all fields of `others`.
    pub fn extend(&mut self, others: &ExtraFields) {
        self.own().extend_from_slice(others.lines());
    }

    /// Whether a field of this name exists, in any case.
    pub fn has(&self, name: &str) -> bool {
        lines(self.lines()).any(|line| value_of(line, name).is_some())
    }

    /// Removes the fields of this name, in any case.
    pub fn remove(&mut self, name: &str) {
        if self.has(name) {
            let mut others = ExtraFields::with_capacity(self.lines().len());
            let kept = self.iter().filter(|(other, _)| !other.eq_ignore_ascii_case(name));
            kept.for_each(|(other, value)| others.add_octets(other, value));
            *self = others;
        }
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    /// The names and values of the fields, in sending order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.octets().filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value)))
    }

    fn octets(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.lines();
        // A value has no LF: each line is one field.
        std::iter::from_fn(move || {
            let (line, others) = rest.split_at(memchr::memchr(b'\n', rest)?);
            rest = &others[1..];
            let (name, value) = line.split_at(memchr::memchr(b':', line)?);
            value.get(2..)?.strip_suffix(b"\r").map(|value| (name, value))
        })
    }

    /// The fields as lines of an HTTP/1 head (RFC 9112 §5).
    pub fn lines(&self) -> &[u8] {
        match &self.lines {
            Lines::Own(lines) => lines,
            Lines::Shared(lines) => lines,
        }
    }

    /// Makes copies of this value share the lines until one of them is changed, so that a copy costs no memory.
    pub fn share(&mut self) {
        if let Lines::Own(lines) = &mut self.lines {
            self.lines = Lines::Shared(Arc::new(std::mem::take(lines)));
        }
    }

    /// The address of shared lines. Values that share lines have the same address; all other values that exist at the
    /// same time have another.
    pub fn shared_address(&self) -> Option<usize> {
        match &self.lines {
            Lines::Own(_) => None,
            Lines::Shared(lines) => Some(Arc::as_ptr(lines).addr()),
        }
    }

    fn own(&mut self) -> &mut Vec<u8> {
        if let Lines::Shared(lines) = &self.lines {
            self.lines = Lines::Own(lines.to_vec());
        }
        match &mut self.lines {
            Lines::Own(lines) => lines,
            Lines::Shared(_) => unreachable!("they were copied"),
        }
    }
}

impl PartialEq for ExtraFields {
    fn eq(&self, other: &Self) -> bool {
        let is_shared = self.shared_address().is_some_and(|address| Some(address) == other.shared_address());
        let (own, others) = (self.lines(), other.lines());
        // No lines are the usual case. The comparison of empty slices would call bcmp with a dangling address, and the masked load of glibc there faults in
        // microcode.
        is_shared || own.len() == others.len() && (own.is_empty() || own == others)
    }
}

impl Eq for ExtraFields {}

impl fmt::Debug for ExtraFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, String::from_utf8_lossy(value)))).finish()
    }
}

/// Whether `name` is a token (RFC 9110 §5.6.2), as field names are.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Whether `value` can be sent as a field value: visible ASCII, with spaces and tabs only inside it (RFC 9110 §5.5).
pub fn is_value(value: &str) -> bool {
    value.trim_matches([' ', '\t']) == value
        && value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_lines_and_can_be_read_back() {
        let mut fields = ExtraFields::default();
        assert!(fields.is_empty());
        fields.add("X-A", "1: 2");
        let mut others = ExtraFields::default();
        others.add("X-B", "");
        others.add_in_lower_case("X-C", b"Caf\xe9");
        fields.extend(&others);
        assert_eq!(fields.lines(), b"X-A: 1: 2\r\nX-B: \r\nx-c: Caf\xe9\r\n");
        let all: Vec<_> = fields.iter().collect();
        assert_eq!(all, [("X-A", &b"1: 2"[..]), ("X-B", b""), ("x-c", b"Caf\xe9")]);
        assert!(fields.has("x-a") && !fields.has("x"));
    }

    #[test]
    fn shared_fields_are_copied_when_one_of_them_changes() {
        let mut fields = ExtraFields::default();
        fields.add("X-A", "1");
        fields.share();
        let address = fields.shared_address();
        assert!(address.is_some());
        let mut copy = fields.clone();
        assert_eq!((&copy, copy.shared_address()), (&fields, address));
        copy.add_in_lower_case("X-B", b"2");
        assert_eq!((copy.lines(), copy.shared_address()), (&b"X-A: 1\r\nx-b: 2\r\n"[..], None));
        assert_eq!((fields.lines(), fields.shared_address()), (&b"X-A: 1\r\n"[..], address));
        copy.remove("x-b");
        assert_eq!(copy, fields);
    }

    #[test]
    fn valid_names_and_values() {
        for (name, good) in [("X-A", true), ("", false), ("a b", false), ("a:", false), ("é", false)] {
            assert_eq!(is_name(name), good, "{name}");
        }
        for (value, good) in [("", true), ("a b\tc", true), (" a", false), ("a\r\nb: c", false), ("é", false)] {
            assert_eq!(is_value(value), good, "{value:?}");
        }
    }
}
