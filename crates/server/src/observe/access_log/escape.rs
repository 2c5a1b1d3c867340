//! Escapes the bytes of clients in a line, so that none ends a value or a line, or controls a terminal.

use std::fmt::Write as _;

/// In quotes: `\"`, `\\`, controls as `\u{a}`, bytes that are not UTF-8 as `\xFF`.
pub(super) fn quoted(line: &mut String, text: &[u8]) {
    line.push('"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => line.extend(['\\', c]),
                c if is_harmful(c) => line.extend(c.escape_unicode()),
                c => line.push(c),
            }
        }
        hexadecimal(line, chunk.invalid());
    }
    line.push('"');
}

/// Without quotes, for a value that ends with its line.
pub(super) fn plain(line: &mut String, text: &[u8]) {
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                c if is_harmful(c) => line.extend(c.escape_unicode()),
                c => line.push(c),
            }
        }
        hexadecimal(line, chunk.invalid());
    }
}

/// A JSON string (RFC 8259 §7). Bytes that are not UTF-8 become U+FFFD.
pub(super) fn json(line: &mut String, text: &[u8]) {
    line.push('"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => line.extend(['\\', c]),
                // All harmful characters are in the Basic Multilingual Plane.
                c if is_harmful(c) => _ = write!(line, "\\u{:04x}", u32::from(c)),
                c => line.push(c),
            }
        }
        if !chunk.invalid().is_empty() {
            line.push(char::REPLACEMENT_CHARACTER);
        }
    }
    line.push('"');
}

/// As in the combined format, without the quotes: visible ASCII and spaces except `"` and `\`; all other bytes as `\x0A`.
pub(super) fn combined(line: &mut String, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => hexadecimal(line, &[byte]),
            b' '..=b'~' => line.push(char::from(byte)),
            _ => hexadecimal(line, &[byte]),
        }
    }
}

/// As [`combined`], for a value that ends at a space.
pub(super) fn combined_word(line: &mut String, text: &[u8]) {
    for word in text.split_inclusive(|byte| *byte == b' ') {
        match word.strip_suffix(b" ") {
            Some(word) => {
                combined(line, word);
                line.push_str("\\x20");
            }
            None => combined(line, word),
        }
    }
}

fn hexadecimal(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(line, "\\x{byte:02X}");
    }
}

/// Controls, characters that some readers treat as line ends, and those that change the direction of text.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
