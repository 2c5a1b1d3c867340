//! Texts of others, in messages of this server.

/// Octets of a text that a message shows.
const MOST: usize = 1000;

/// A text that another server wrote, for a message: on one line, which nobody else begins, and not too long.
pub(crate) fn one_line(text: &str) -> String {
    let (shown, rest) = text.split_at(text.floor_char_boundary(MOST));
    let mut line: String = shown.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if !rest.is_empty() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_begins_no_line_and_is_cut() {
        assert_eq!(one_line("a\nERROR b\r\u{1b}[31m"), "a ERROR b  [31m");
        let long = "é".repeat(MOST);
        let line = one_line(&long);
        assert!(line.len() <= MOST + '…'.len_utf8() && line.ends_with('…'));
    }
}
