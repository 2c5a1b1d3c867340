//! Client's bytes in a line, so that no byte of theirs ends a value, a line, or moves a terminal's cursor.

use std::fmt::Write as _;

/// Inside quotes: `\"`, `\\`, controls as `\u{a}`, what is not UTF-8 as `\xff`.
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

/// A string of JSON (RFC 8259 §7). What is not UTF-8 has no place there: U+FFFD.
pub(super) fn json(line: &mut String, text: &[u8]) {
    line.push('"');
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => line.extend(['\\', c]),
                // All of them lie in the basic plane.
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

/// As nginx and Apache httpd write it, without the quotes: visible ASCII and spaces but for `"` and `\`, all else `\x0A`.
pub(super) fn combined(line: &mut String, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' => hexadecimal(line, &[byte]),
            b' '..=b'~' => line.push(char::from(byte)),
            _ => hexadecimal(line, &[byte]),
        }
    }
}

/// The same for a value that a space ends.
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

/// Controls, what some readers take for the end of a line, and what turns the direction of the text around it.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
