//! Entity tags (RFC 9110 §8.8.3): this server's and other servers', and their comparison with the tags in a request.

use crate::request::FieldLines;

/// An entity tag made by this server: sixteen hexadecimal digits in quotes, with `W/` in front if it is weak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntityTag {
    /// The field value of the weak tag. The strong tag is its suffix.
    value: [u8; 20],
    weak: bool,
}

/// The comparison functions of RFC 9110 §8.8.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// The tags are equal, and neither is weak.
    Strong,
    /// The opaque parts are equal; `W/` is ignored.
    Weak,
}

impl EntityTag {
    /// The strong tag whose digits are `fingerprint` in hexadecimal.
    pub fn from_fingerprint(fingerprint: [u8; 8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut value = [b'"'; 20];
        value[..2].copy_from_slice(b"W/");
        for (index, byte) in fingerprint.into_iter().enumerate() {
            value[3 + 2 * index] = DIGITS[usize::from(byte >> 4)];
            value[4 + 2 * index] = DIGITS[usize::from(byte & 15)];
        }
        EntityTag { value, weak: false }
    }

    /// The weak tag with the same digits: for a representation that may change while its tag does not (RFC 9110
    /// §8.8.1).
    #[must_use]
    pub fn weakened(self) -> Self {
        EntityTag { weak: true, ..self }
    }

    /// Whether it is weak.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// The field value: quotes, and `W/` before a weak tag.
    pub fn as_bytes(&self) -> &[u8] {
        if self.weak { &self.value } else { &self.value[2..] }
    }

    /// The opaque part: the digits without quotes.
    pub fn opaque(&self) -> &[u8] {
        &self.value[3..19]
    }

    /// This tag as a [`Tag`].
    pub fn tag(&self) -> Tag<'_> {
        Tag { weak: self.weak, quoted: &self.value[2..] }
    }
}

/// An entity tag of any form, as in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag<'a> {
    weak: bool,
    quoted: &'a [u8],
}

impl<'a> Tag<'a> {
    /// Parses a value of ETag. `None`: not an entity tag.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut members = Members(value);
        let tag = members.next()?;
        (members.0.is_empty() && value.len() == tag.quoted.len() + if tag.weak { 2 } else { 0 }).then_some(tag)
    }

    /// Whether it is weak.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// Whether two tags match.
    pub fn matches(&self, other: &Tag<'_>, comparison: Comparison) -> bool {
        (comparison == Comparison::Weak || !self.weak && !other.weak) && self.quoted == other.quoted
    }

    /// Whether `value` is exactly this entity tag. A weak tag never matches, on either side.
    pub fn equals_strongly(&self, value: &[u8]) -> bool {
        !self.weak && value == self.quoted
    }

    /// Whether an If-Match or If-None-Match list contains this tag or is `*`.
    ///
    /// A line is read up to its first syntax error, and the rest does not match. That is harmless: If-None-Match then
    /// sends the file, and If-Match fails.
    pub fn is_in(&self, list: &FieldLines<'_>, comparison: Comparison) -> bool {
        is_any(list) || list.iter().any(|line| Members(line).any(|tag| tag.matches(self, comparison)))
    }
}

/// Whether a list of entity tags is `*`, which matches every representation.
pub fn is_any(list: &FieldLines<'_>) -> bool {
    list.iter().any(|line| line == b"*")
}

/// The well-formed members at the beginning of a list of entity tags.
struct Members<'a>(&'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        // Recipients must accept empty list elements (RFC 9110 §5.6.1.2).
        let start = self.0.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let member = &self.0[start..];
        let (weak, quoted) = match member.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, member),
        };
        self.0 = &[];
        let opaque = quoted.strip_prefix(b"\"")?;
        // etagc = %x21 / %x23-7E / obs-text
        let length = opaque.iter().position(|byte| !matches!(byte, 0x21 | 0x23..=0x7e | 0x80..))?;
        if opaque[length] != b'"' {
            return None;
        }
        let rest = opaque[length + 1..].trim_ascii_start();
        if !matches!(rest.first(), None | Some(b',')) {
            return None;
        }
        self.0 = rest;
        Some(Tag { weak, quoted: &quoted[..length + 2] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "\"00000000000000ff\"";

    fn lines<'a>(values: &[&'a str]) -> FieldLines<'a> {
        let mut lines = FieldLines::default();
        values.iter().for_each(|value| lines.add(value.as_bytes()));
        lines
    }

    #[test]
    fn comparison_as_in_the_table_of_rfc_9110_section_8_8_3_2() {
        let ours = EntityTag::from_fingerprint([0, 0, 0, 0, 0, 0, 0, 0xff]);
        assert_eq!(ours.as_bytes(), OURS.as_bytes());
        assert_eq!(ours.opaque(), b"00000000000000ff");
        let weak = format!("W/{OURS}");
        // line, strong, weak
        for (line, strong, weakly) in [
            (OURS.to_string(), true, true),
            (weak.clone(), false, true),
            ("*".into(), true, true),
            ("\"x\"".into(), false, false),
            (format!("\"x\", {OURS}"), true, true),
            (format!("\"x\",{OURS}"), true, true),
            (format!(" ,, \"x\"\t,\t{weak} ,"), false, true),
            (format!("{weak}, {OURS}"), true, true),
            (format!("\"with,comma\", {OURS}"), true, true),
            (format!("\"\", {OURS}"), true, true),
            ("".into(), false, false),
            (",".into(), false, false),
            ("00000000000000ff".into(), false, false),
            ("\"00000000000000ff".into(), false, false),
            ("\"00000000000000FF\"".into(), false, false),
            (format!("w/{OURS}"), false, false),
            (format!("W/ {OURS}"), false, false),
            // Nothing after a syntax error counts.
            (format!("unquoted, {OURS}"), false, false),
            (format!("\"x\" {OURS}"), false, false),
            (format!("\"a b\", {OURS}"), false, false),
            (format!("*, {OURS}"), false, false),
        ] {
            assert_eq!(ours.tag().is_in(&lines(&[&line]), Comparison::Strong), strong, "strong {line}");
            assert_eq!(ours.tag().is_in(&lines(&[&line]), Comparison::Weak), weakly, "weak {line}");
        }
        assert!(ours.tag().is_in(&lines(&["\"x\"", OURS]), Comparison::Strong), "lines are one list");
        assert!(!ours.tag().is_in(&lines(&[]), Comparison::Weak));
    }

    #[test]
    fn a_weak_tag_of_ours_matches_weakly_only() {
        let ours = EntityTag::from_fingerprint([0, 0, 0, 0, 0, 0, 0, 0xff]).weakened();
        let weak = format!("W/{OURS}");
        assert_eq!(ours.as_bytes(), weak.as_bytes());
        assert_eq!(ours.opaque(), b"00000000000000ff");
        for line in [OURS, &weak] {
            assert!(ours.tag().is_in(&lines(&[line]), Comparison::Weak), "{line}");
            assert!(!ours.tag().is_in(&lines(&[line]), Comparison::Strong), "{line}");
            assert!(!ours.tag().equals_strongly(line.as_bytes()), "{line}");
        }
        assert!(ours.tag().is_in(&lines(&["*"]), Comparison::Strong));
    }

    #[test]
    fn tags_of_others_are_read_whole_or_not_at_all() {
        for (value, weak) in [
            ("\"a\"", Some(false)),
            ("W/\"a\"", Some(true)),
            ("\"\"", Some(false)),
            ("\"caf\u{e9}\"", Some(false)),
            ("", None),
            ("a", None),
            ("w/\"a\"", None),
            ("\"a", None),
            ("\"a\", \"b\"", None),
            ("\"a\",", None),
            (",\"a\"", None),
            (" \"a\"", None),
            ("*", None),
        ] {
            assert_eq!(Tag::parse(value.as_bytes()).map(|tag| tag.is_weak()), weak, "{value}");
        }
        let [strong, weak] = ["\"a\"", "W/\"a\""].map(|value| Tag::parse(value.as_bytes()).unwrap());
        assert!(strong.matches(&strong, Comparison::Strong) && strong.matches(&weak, Comparison::Weak));
        assert!(!strong.matches(&weak, Comparison::Strong) && !weak.matches(&weak, Comparison::Strong));
    }
}
