//! Splits an nginx configuration into tokens, as nginx's own parser does.

use super::SyntaxError;

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word, with quotes and escapes resolved.
    Word(String),
    /// `{`
    Open,
    /// `}`
    Close,
    /// `;`
    End,
}

/// Reads tokens with their line numbers.
pub(super) struct Tokens<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Tokens { rest: text.chars().peekable(), line: 1 }
    }

    /// The current line, from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// The next token and its line; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(Token, usize)>, SyntaxError> {
        loop {
            let Some(&c) = self.rest.peek() else { return Ok(None) };
            let line = self.line;
            let token = match c {
                '#' => {
                    while self.rest.peek().is_some_and(|c| *c != '\n') {
                        self.take();
                    }
                    continue;
                }
                c if c.is_ascii_whitespace() => {
                    self.take();
                    continue;
                }
                '{' => Token::Open,
                '}' => Token::Close,
                ';' => Token::End,
                '"' | '\'' => return word(self.quoted(c)?, line),
                _ => return word(self.bare()?, line),
            };
            self.take();
            return Ok(Some((token, line)));
        }
    }

    /// Skips to the `}` that ends a Lua block, ignoring braces in short strings and comments.
    pub(super) fn skip_foreign_block(&mut self) -> Result<(), SyntaxError> {
        let mut depth = 1;
        while depth > 0 {
            match self.take() {
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some(quote @ ('"' | '\'')) => loop {
                    match self.take() {
                        Some('\\') => drop(self.take()),
                        Some(c) if c == quote => break,
                        Some(_) => {}
                        None => return Err(self.error("the file ends inside a string")),
                    }
                },
                Some('-') if self.rest.peek() == Some(&'-') => while self.take().is_some_and(|c| c != '\n') {},
                Some(_) => {}
                None => return Err(self.error("the file ends inside a block")),
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        self.line += usize::from(c == '\n');
        Some(c)
    }

    fn quoted(&mut self, quote: char) -> Result<String, SyntaxError> {
        let begun = self.line;
        self.take();
        let mut word = String::new();
        loop {
            match self.take() {
                Some('\\') => self.escape(&mut word),
                Some(c) if c == quote => break,
                Some(c) => word.push(c),
                None => return Err(SyntaxError { line: begun, what: format!("a {quote} that never ends") }),
            }
        }
        match self.rest.peek().copied() {
            None | Some(';' | '{' | ')') => Ok(word),
            Some(c) if c.is_ascii_whitespace() => Ok(word),
            Some(c) => Err(self.error(&format!("'{c}' directly after the end of a quoted word"))),
        }
    }

    fn bare(&mut self) -> Result<String, SyntaxError> {
        let mut word = String::new();
        // The brace of `${name}` opens no block.
        let mut after_dollar = false;
        while let Some(&c) = self.rest.peek() {
            match c {
                '{' if after_dollar => {}
                ';' | '{' => break,
                c if c.is_ascii_whitespace() => break,
                _ => {}
            }
            after_dollar = c == '$';
            self.take();
            if c == '\\' { self.escape(&mut word) } else { word.push(c) }
        }
        Ok(word)
    }

    /// Resolves an escape. Unknown escapes keep both characters, so that regular expressions need no second backslash.
    fn escape(&mut self, word: &mut String) {
        match self.take() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    fn error(&self, what: &str) -> SyntaxError {
        SyntaxError { line: self.line, what: what.to_owned() }
    }
}

/// # Errors
/// The text has bytes that are not UTF-8, which were replaced when the file was read: a path of other bytes would lose its guards.
fn word(text: String, line: usize) -> Result<Option<(Token, usize)>, SyntaxError> {
    if text.contains(char::REPLACEMENT_CHARACTER) {
        let what = format!("{text} has bytes that are not UTF-8: save the file as UTF-8");
        return Err(SyntaxError { line, what });
    }
    Ok(Some((Token::Word(text), line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut tokens = Tokens::of(text);
        let mut words = Vec::new();
        while let Some((token, _)) = tokens.next().unwrap() {
            words.push(match token {
                Token::Word(word) => word,
                Token::Open => "<{>".to_owned(),
                Token::Close => "<}>".to_owned(),
                Token::End => "<;>".to_owned(),
            });
        }
        words
    }

    #[test]
    fn words_split_as_in_nginx() {
        for (text, expected) in [
            ("listen 443 ssl;", &["listen", "443", "ssl", "<;>"][..]),
            ("a{b c;}", &["a", "<{>", "b", "c", "<;>", "<}>"]),
            ("a # no { word ;\nb;", &["a", "b", "<;>"]),
            ("a b#c;", &["a", "b#c", "<;>"]),
            ("add_header X \"a; b {c} # d\";", &["add_header", "X", "a; b {c} # d", "<;>"]),
            ("a 'it\\'s' \"say \\\"x\\\"\";", &["a", "it's", "say \"x\"", "<;>"]),
            ("a '' b;", &["a", "", "b", "<;>"]),
            ("location ~ \\.php$ {", &["location", "~", "\\.php$", "<{>"]),
            ("location ~ \"^/a{2}\\d\" {", &["location", "~", "^/a{2}\\d", "<{>"]),
            ("return 301 https://${host}$request_uri;", &["return", "301", "https://${host}$request_uri", "<;>"]),
            ("a b\\;c\\ d;", &["a", "b\\;c\\ d", "<;>"]),
            ("a \"x\\ty\";", &["a", "x\ty", "<;>"]),
            ("if ($a = \"b\") {", &["if", "($a", "=", "b", ")", "<{>"]),
            ("a é;", &["a", "é", "<;>"]),
            ("", &[]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_are_counted_through_comments_and_quotes() {
        let mut tokens = Tokens::of("# c\na \"x\ny\"\n;");
        let mut lines = Vec::new();
        while let Some((_, line)) = tokens.next().unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, [2, 2, 4]);
    }

    #[test]
    fn unfinished_quotes_are_errors_where_they_begin() {
        let error = |text| {
            let mut tokens = Tokens::of(text);
            loop {
                match tokens.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{text} is read"),
                    Err(error) => return error.to_string(),
                }
            }
        };
        assert_eq!(error("a\n'b\nc;"), "line 2: a ' that never ends");
        assert_eq!(error("a \"b\"c;"), "line 1: 'c' directly after the end of a quoted word");
    }
}
