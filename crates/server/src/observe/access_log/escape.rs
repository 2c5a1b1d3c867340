//! Escapes clients' bytes in a line, so that they cannot end a value or a line, or control a terminal.

use std::io::Write as _;

/// The number of bytes of a value that a line shows; the rest becomes `...`. INHERITED: longer than any URL that people
/// write, and four times as many bytes still fit a datagram.
const SHOWN: usize = 2048;

/// In quotes: `\"`, `\\`, controls as `\u{a}`, bytes that are not UTF-8 as `\xFF`.
pub(super) fn quoted(line: &mut Vec<u8>, text: &[u8]) {
    line.push(b'"');
    by_characters(line, text, push_in_quotes, hexadecimal);
    line.push(b'"');
}

/// Without quotes, for a value at the end of a line.
pub(super) fn plain(line: &mut Vec<u8>, text: &[u8]) {
    by_characters(line, text, push_visible, hexadecimal);
}

/// A JSON string (RFC 8259 §7). Bytes that are not UTF-8 become U+FFFD.
pub(super) fn json(line: &mut Vec<u8>, text: &[u8]) {
    line.push(b'"');
    in_json(line, text);
    line.push(b'"');
}

/// As [`json`], without the quotes.
pub(super) fn in_json(line: &mut Vec<u8>, text: &[u8]) {
    let push = |line: &mut Vec<u8>, c| match c {
        // All harmful characters are in the Basic Multilingual Plane. Writing to a Vec cannot fail.
        c if is_harmful(c) => _ = write!(line, "\\u{:04x}", u32::from(c)),
        c => push_in_quotes(line, c),
    };
    by_characters(line, text, push, |line, invalid| {
        if !invalid.is_empty() {
            push_char(line, char::REPLACEMENT_CHARACTER);
        }
    });
}

/// For the combined format, without the quotes: visible ASCII and spaces except `"` and `\`; all other bytes as `\x0A`.
pub(super) fn combined(line: &mut Vec<u8>, text: &[u8]) {
    shortened(line, text, |line, text| {
        for &byte in text {
            match byte {
                b'"' | b'\\' => hexadecimal(line, &[byte]),
                b' '..=b'~' => line.push(byte),
                _ => hexadecimal(line, &[byte]),
            }
        }
    });
}

/// As [`combined`], for a value that ends at a space.
pub(super) fn combined_word(line: &mut Vec<u8>, text: &[u8]) {
    for word in text.split_inclusive(|byte| *byte == b' ') {
        match word.strip_suffix(b" ") {
            Some(word) => {
                combined(line, word);
                line.extend_from_slice(b"\\x20");
            }
            None => combined(line, word),
        }
    }
}

/// Appends three digits.
pub(super) fn push_padded(line: &mut Vec<u8>, number: u16) {
    line.extend([number / 100, number / 10, number].map(|digits| b'0' + (digits % 10) as u8));
}

/// Appends at most [`SHOWN`] bytes of `text`: unchanged if no format needs an escape for them, otherwise by `escape`.
fn shortened(line: &mut Vec<u8>, text: &[u8], escape: impl FnOnce(&mut Vec<u8>, &[u8])) {
    let shown = &text[..text.len().min(SHOWN)];
    // Without an early exit, so that the compiler can process 16 bytes at a time.
    let needs_none = shown
        .iter()
        .fold(true, |before, byte| before & (b' '..=b'~').contains(byte) & (*byte != b'"') & (*byte != b'\\'));
    match needs_none {
        true => line.extend_from_slice(shown),
        false => escape(line, shown),
    }
    if text.len() > SHOWN {
        line.extend_from_slice(b"...");
    }
}

/// Appends the characters of `text` by `push`, and invalid UTF-8 by `push_invalid`.
fn by_characters(
    line: &mut Vec<u8>,
    text: &[u8],
    push: impl Fn(&mut Vec<u8>, char),
    push_invalid: impl Fn(&mut Vec<u8>, &[u8]),
) {
    shortened(line, text, |line, text| {
        for chunk in text.utf8_chunks() {
            chunk.valid().chars().for_each(|c| push(line, c));
            push_invalid(line, chunk.invalid());
        }
    });
}

fn push_in_quotes(line: &mut Vec<u8>, c: char) {
    match c {
        '"' | '\\' => line.extend([b'\\', c as u8]),
        c => push_visible(line, c),
    }
}

fn push_visible(line: &mut Vec<u8>, c: char) {
    match is_harmful(c) {
        true => line.extend_from_slice(c.escape_unicode().to_string().as_bytes()),
        false => push_char(line, c),
    }
}

fn push_char(line: &mut Vec<u8>, c: char) {
    line.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn hexadecimal(line: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a Vec cannot fail.
        let _ = write!(line, "\\x{byte:02X}");
    }
}

/// Control characters, characters that some readers treat as line ends, and characters that change the direction of
/// text.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut() {
        let mut line = Vec::new();
        combined(&mut line, &vec![b'a'; SHOWN]);
        assert_eq!(line, vec![b'a'; SHOWN]);
        line.clear();
        json(&mut line, &vec![b'"'; 1 << 20]);
        assert!(line.ends_with(b"\\\"...\"") && line.len() == 2 * SHOWN + 5, "{}", line.len());
    }

    #[test]
    fn three_digits() {
        let mut line = Vec::new();
        [0, 45, 999].into_iter().for_each(|number| push_padded(&mut line, number));
        assert_eq!(line, b"000045999");
    }
}
