//! Entity tags (RFC 9110 §8.8.3): the server's own, and comparison with those in a request.

use crate::request::FieldLines;

/// An entity tag made by this server: sixteen hexadecimal digits in quotes, behind `W/` if it is weak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntityTag {
    /// The field value of the weak tag; that of the strong one is its end.
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

    /// The weak tag with the same digits: for a representation that may change without a change of the tag (RFC 9110 §8.8.1).
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
        if self.weak { &self.value } else { self.quoted() }
    }

    /// The opaque part: the digits without quotes.
    pub fn opaque(&self) -> &[u8] {
        &self.value[3..19]
    }

    /// Whether `value` is exactly this entity tag. A weak tag never matches, on either side.
    pub fn equals_strongly(&self, value: &[u8]) -> bool {
        !self.weak && value == self.quoted()
    }

    fn quoted(&self) -> &[u8] {
        &self.value[2..]
    }

    /// Whether an If-Match or If-None-Match list contains this tag or is `*`.
    ///
    /// A line is read up to its first syntax error, and the rest does not match. That is harmless: If-None-Match then sends the
    /// file, and If-Match refuses.
    pub fn is_in(&self, list: &FieldLines<'_>, comparison: Comparison) -> bool {
        list.iter().any(|line| line == b"*" || Members(line).any(|tag| tag.matches(self, comparison)))
    }
}

struct Member<'a> {
    weak: bool,
    quoted: &'a [u8],
}

impl Member<'_> {
    fn matches(&self, ours: &EntityTag, comparison: Comparison) -> bool {
        (comparison == Comparison::Weak || !self.weak && !ours.weak) && ours.quoted() == self.quoted
    }
}

/// The well-formed members at the beginning of a list of entity tags.
struct Members<'a>(&'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
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
        Some(Member { weak, quoted: &quoted[..length + 2] })
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
            assert_eq!(ours.is_in(&lines(&[&line]), Comparison::Strong), strong, "strong {line}");
            assert_eq!(ours.is_in(&lines(&[&line]), Comparison::Weak), weakly, "weak {line}");
        }
        assert!(ours.is_in(&lines(&["\"x\"", OURS]), Comparison::Strong), "lines are one list");
        assert!(!ours.is_in(&lines(&[]), Comparison::Weak));
    }

    #[test]
    fn a_weak_tag_of_ours_matches_weakly_only() {
        let ours = EntityTag::from_fingerprint([0, 0, 0, 0, 0, 0, 0, 0xff]).weakened();
        let weak = format!("W/{OURS}");
        assert_eq!(ours.as_bytes(), weak.as_bytes());
        assert_eq!(ours.opaque(), b"00000000000000ff");
        for line in [OURS, &weak] {
            assert!(ours.is_in(&lines(&[line]), Comparison::Weak), "{line}");
            assert!(!ours.is_in(&lines(&[line]), Comparison::Strong), "{line}");
            assert!(!ours.equals_strongly(line.as_bytes()), "{line}");
        }
        assert!(ours.is_in(&lines(&["*"]), Comparison::Strong));
    }
}
