//! Sentences of comments and pages.

/// A sentence, and the line that it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    pub(super) line: usize,
    pub(super) text: String,
}

/// The sentences of a file. Fewer than three words do not count.
pub(super) fn sentences(text: &str, is_page: bool) -> Vec<Sentence> {
    let mut found = Vec::new();
    if is_page {
        lines_of_page(text).for_each(|(line, text)| split(&[(line, text)], &mut found));
        return found;
    }
    let mut block = Vec::new();
    let mut is_code = false;
    for (at, line) in text.lines().enumerate() {
        let comment = comment(line);
        let fence = comment.is_some_and(|comment| comment.starts_with("```"));
        is_code = comment.is_some() && is_code ^ fence;
        match comment.filter(|_| !fence && !is_code) {
            Some(comment) => block.push((at + 1, comment)),
            None => split(&std::mem::take(&mut block), &mut found),
        }
    }
    split(&block, &mut found);
    found
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.strip_prefix(['/', '!']).unwrap_or(text).trim())
}

/// Lines of prose and cells of tables, without code, titles and HTML.
fn lines_of_page(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().flat_map(move |(at, line)| {
        let fence = line.starts_with("```");
        is_code ^= fence;
        let line = line.trim();
        let pieces: Vec<&str> = match line.chars().next() {
            _ if fence || is_code => Vec::new(),
            None | Some('#' | '<') => Vec::new(),
            Some('|') => line.trim_matches('|').split('|').map(str::trim).collect(),
            Some(_) => vec![line.trim_start_matches(|c: char| "-*.".contains(c) || c.is_ascii_digit()).trim_start()],
        };
        pieces.into_iter().map(move |piece| (at + 1, piece)).collect::<Vec<_>>()
    })
}

/// Adds the sentences of lines that belong together.
fn split(lines: &[(usize, &str)], into: &mut Vec<Sentence>) {
    let mut open: Option<Sentence> = None;
    let mut close = |sentence: Option<Sentence>| {
        into.extend(sentence.filter(|sentence| sentence.text.split(' ').count() > 2));
    };
    for (line, word) in lines.iter().flat_map(|(line, text)| text.split_whitespace().map(move |word| (*line, word))) {
        match &mut open {
            Some(sentence) => sentence.text.extend([" ", word]),
            None => open = Some(Sentence { line, text: word.to_owned() }),
        }
        if word.ends_with(['.', '!', '?']) {
            close(open.take());
        }
    }
    close(open);
}

/// Where a phrase of whole words begins.
pub(super) fn find(text: &str, phrase: &str) -> Option<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(phrase)
        .map(|(at, _)| at)
        .find(|at| !text[..*at].ends_with(is_word) && !text[at + phrase.len()..].starts_with(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, is_page: bool) -> Vec<(usize, String)> {
        sentences(text, is_page).into_iter().map(|sentence| (sentence.line, sentence.text)).collect()
    }

    fn expected(sentences: &[(usize, &str)]) -> Vec<(usize, String)> {
        sentences.iter().map(|(line, text)| (*line, (*text).to_owned())).collect()
    }

    #[test]
    fn comments_that_follow_each_other_are_one_text() {
        let text = "//! First line here,\n//! and more. Then another one.\n\nuse a::b; // not this one here\n\
                    /// Too short.\n    // As it is\n    // ```text\n    // code is not here\n    // ```\nfn f() {}\n";
        let sentences = [(1, "First line here, and more."), (2, "Then another one."), (6, "As it is")];
        assert_eq!(found(text, false), expected(&sentences));
    }

    #[test]
    fn pages_have_lines_and_cells() {
        let text = "# A title of words\n- One item here.\n```\ncode is not here\n```\n| a cell with words | b |\n<p>not this one</p>\n\
                    A line. It has two sentences!";
        let sentences = [(2, "One item here."), (6, "a cell with words"), (8, "It has two sentences!")];
        assert_eq!(found(text, true), expected(&sentences));
    }

    #[test]
    fn phrases_are_whole_words() {
        assert_eq!(find("than that of", "that of"), Some(5));
        assert_eq!(find("that offers, that often", "that of"), None);
        assert_eq!(find("(nobody)", "nobody"), Some(1));
    }
}
