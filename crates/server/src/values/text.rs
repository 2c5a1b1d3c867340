//! Text of other programs in this server's messages.

/// The maximum number of bytes of a text in a message.
#[cfg(any(feature = "acme", feature = "otlp"))]
const MAX_SHOWN: usize = 1000;

/// Prepares another server's text for a message: on one line that cannot imitate a line of this server, and not too
/// long.
#[cfg(any(feature = "acme", feature = "otlp"))]
pub(crate) fn one_line(text: &str) -> String {
    let (shown, rest) = text.split_at(text.floor_char_boundary(MAX_SHOWN));
    let mut line: String = shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if !rest.is_empty() {
        line.push('…');
    }
    line
}

/// Prepares another process's text for a terminal: keeps its lines, and escapes other control characters.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            _ if c.is_control() || REORDERS.contains(&c) => shown.extend(c.escape_unicode()),
            _ => shown.push(c),
        }
    }
    shown
}

/// Characters that change the order or the lines of a text (UAX #9, UAX #14).
const REORDERS: [char; 14] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}',
    '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_in_a_text() {
        assert_eq!(printable("one\ttwo\nthrée"), "one\ttwo\nthrée");
        assert_eq!(printable("\u{1b}[2J\r\u{9b}31m\u{202e}"), "\\u{1b}[2J\\u{d}\\u{9b}31m\\u{202e}");
    }

    #[test]
    #[cfg(any(feature = "acme", feature = "otlp"))]
    fn a_text_begins_no_line_and_is_cut() {
        assert_eq!(one_line("a\nERROR b\r\u{1b}[31m"), "a ERROR b  [31m");
        let long = "é".repeat(MAX_SHOWN);
        let line = one_line(&long);
        assert!(line.len() <= MAX_SHOWN + '…'.len_utf8() && line.ends_with('…'));
    }
}
