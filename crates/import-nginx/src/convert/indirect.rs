//! Indexes that escape a refusal by expression. Sealion matches expressions against the requested path only: `/private/`
//! is answered with `/private/index.html` unchecked. nginx checks the index too, so expressions that may match a
//! directory's index are marked.
//!
//! Error pages and the fallback need no such check, since [`super::targets`] excludes refused files. A compressed file is
//! sent in place of its original by nginx too, whatever guards the compressed file.

use toml::Value;

use super::Context;
use crate::toml_text::Table;

/// Marks expressions that refuse an index only under its own name.
pub(super) fn mark(context: &mut Context, site: &Table) {
    let indexes: Vec<String> = match site.get("index").and_then(Value::as_array) {
        Some(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => vec![DEFAULT_INDEX.to_owned()],
    };
    for (directive, regex) in std::mem::take(&mut context.refusals) {
        if let Some(index) = indexes.iter().find(|index| may_match_index(&regex, index)) {
            let remedy = format!(
                "an expression matches the requested path only: where it refuses {index}, a request for the directory is still \
                 answered with that file. List the directories in [[site.access]] or [[site.basic_auth]], or set another index"
            );
            context.report_unguarded(&directive, remedy);
        }
    }
}

/// The default index, in Sealion and nginx.
const DEFAULT_INDEX: &str = "index.html";

/// Whether an expression may match the path of a directory's `index`, but not the directory. `false` is certain.
fn may_match_index(regex: &str, index: &str) -> bool {
    let Some(words) = Parser::words(regex) else { return true };
    let index = index.to_lowercase();
    words.iter().any(|word| word.may_end_in(&index))
}

/// A possible end of a match. Sets of them over-approximate the matches of the expression.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Word {
    /// Whether unknown text precedes `text`.
    open: bool,
    /// In lower case, as expressions may ignore case.
    text: String,
    /// Whether the path ends there (`$`).
    end: bool,
    /// Whether any text may follow (`.*`).
    any: bool,
}

impl Word {
    fn literal(c: char) -> Self {
        Word { text: c.to_lowercase().collect(), ..Word::default() }
    }

    fn unknown() -> Self {
        Word { open: true, ..Word::default() }
    }

    fn then(&self, next: &Word) -> Word {
        let nothing_before = next.text.is_empty() && !next.open;
        match next {
            _ if *next == Word::default() => self.clone(),
            // After `.*` the path may end anywhere.
            _ if nothing_before && next.end && self.any => self.clone(),
            _ if nothing_before && next.end => Word { end: true, ..self.clone() },
            _ if self.end => Word::unknown(),
            _ if nothing_before && next.any => Word { any: true, ..self.clone() },
            _ if next.open || self.any => Word { open: true, ..next.clone() },
            _ => Word { open: self.open, text: format!("{}{}", self.text, next.text), end: next.end, any: next.any },
        }
    }

    /// Whether a match that ends so may extend into `index`, past the directory's slash. Otherwise it matches the directory.
    fn may_end_in(&self, index: &str) -> bool {
        let text = self.text.as_str();
        if text.is_empty() {
            return self.open || self.end;
        }
        if self.end {
            let longer =
                text.strip_suffix(index).is_some_and(|directory| directory.is_empty() || directory.ends_with('/'));
            return index.ends_with(text) || longer;
        }
        let across = text.rsplit_once('/').is_some_and(|(_, name)| !name.is_empty() && index.starts_with(name));
        index.contains(text) || across
    }
}

/// Parses the regular expression syntax common in configurations.
struct Parser<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
}

impl Parser<'_> {
    /// The possible ends of matches. `None`: the expression is not understood.
    fn words(regex: &str) -> Option<Vec<Word>> {
        let mut regex = regex;
        while let Some(rest) = ["(?i)", "(?-u)", "(?s)"].iter().find_map(|flags| regex.strip_prefix(flags)) {
            regex = rest;
        }
        let mut parser = Parser { rest: regex.chars().peekable() };
        let words = parser.alternatives()?;
        parser.rest.next().is_none().then_some(words)
    }

    fn alternatives(&mut self) -> Option<Vec<Word>> {
        let mut words = self.sequence()?;
        while self.rest.next_if_eq(&'|').is_some() {
            words.extend(self.sequence()?);
        }
        (words.len() <= MOST_WORDS).then_some(words)
    }

    fn sequence(&mut self) -> Option<Vec<Word>> {
        let mut words = vec![Word::default()];
        while self.rest.peek().is_some_and(|c| !matches!(c, '|' | ')')) {
            let (atom, is_dot) = self.atom()?;
            let repeated = self.quantified(atom, is_dot)?;
            words = words.iter().flat_map(|word| repeated.iter().map(|next| word.then(next))).collect();
            if words.len() > MOST_WORDS {
                return None;
            }
        }
        Some(words)
    }

    /// The matches of one atom, and whether it is the dot.
    fn atom(&mut self) -> Option<(Vec<Word>, bool)> {
        let word = match self.rest.next()? {
            '^' => Word::default(),
            '$' => Word { end: true, ..Word::default() },
            '.' => return Some((vec![Word::unknown()], true)),
            '[' => {
                self.class()?;
                Word::unknown()
            }
            '(' => {
                if self.rest.next_if_eq(&'?').is_some() && self.rest.next()? != ':' {
                    return None;
                }
                let words = self.alternatives()?;
                return (self.rest.next()? == ')').then_some((words, false));
            }
            '\\' => match self.rest.next()? {
                'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'n' | 'r' | 't' => Word::unknown(),
                c if c.is_ascii_punctuation() && !matches!(c, '<' | '>') => Word::literal(c),
                _ => return None,
            },
            '*' | '+' | '?' | '{' => return None,
            c => Word::literal(c),
        };
        Some((vec![word], false))
    }

    fn quantified(&mut self, mut atom: Vec<Word>, is_dot: bool) -> Option<Vec<Word>> {
        let words = match self.rest.peek() {
            Some('?') => {
                atom.push(Word::default());
                atom
            }
            Some('*') if is_dot => vec![Word { any: true, ..Word::default() }],
            Some('+') if is_dot => vec![Word { any: true, ..Word::unknown() }],
            Some('*' | '+') => vec![Word::unknown()],
            Some('{') => {
                while self.rest.peek().is_some_and(|c| *c != '}') {
                    self.rest.next();
                }
                vec![Word::unknown()]
            }
            _ => return Some(atom),
        };
        self.rest.next()?;
        // A lazy or possessive suffix.
        self.rest.next_if(|c| matches!(c, '?' | '+'));
        Some(words)
    }

    fn class(&mut self) -> Option<()> {
        self.rest.next_if_eq(&'^');
        self.rest.next_if_eq(&']');
        loop {
            match self.rest.next()? {
                ']' => return Some(()),
                '\\' => drop(self.rest.next()?),
                '[' => return None,
                _ => {}
            }
        }
    }
}

/// With more ends, the expression counts as not understood.
const MOST_WORDS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_may_match_an_index() {
        for (regex, index, may) in [
            (r"\.html$", "index.html", true),
            (r"(?i)\.HTML$", "index.html", true),
            (r"\.(env|git)$", "index.html", false),
            (r"\.html?$", "index.htm", true),
            (r"\.html?$", "start.txt", false),
            (r"\.htm$", "index.html", false),
            (r"\.htm", "index.html", true),
            (r"/index\.html$", "index.html", true),
            (r"/private/index\.html$", "index.html", true),
            (r"/private/myindex\.html$", "index.html", false),
            (r"^/private/", "index.html", false),
            (r"^/private", "index.html", false),
            (r"^/in", "index.html", true),
            (r"^/private/.*", "index.html", false),
            (r"^/private/.*$", "index.html", false),
            (r"^/private/(.*)$", "index.html", false),
            (r"^/private/.+", "index.html", true),
            (r"^/private/[^/]+$", "index.html", true),
            (r"^/[a-z]+/private/", "index.html", false),
            (r"/\.git|/config/", "index.html", false),
            (r"/\.git|x", "index.html", true),
            (r"/\.", "index.html", false),
            (r"^(.+\.php)(/.+)?$", "index.html", true),
            (r"^(.+\.php)(/.*)?$", "index.html", false),
            (r"[^/]\.php(/|$)", "index.html", false),
            (r"\.(bak|sql)[0-9]{1,2}$", "index.html", true),
            (r"(?:a)(?=b)", "index.html", true),
            (r"\bx", "index.html", true),
            (r"[[:alpha:]]\.key$", "index.html", true),
            ("", "index.html", false),
            ("$", "index.html", true),
        ] {
            assert_eq!(may_match_index(regex, index), may, "{regex} {index}");
        }
    }

    /// If the answer is `false`, no path of a directory that is not refused leads to an index that is.
    #[test]
    fn a_negative_answer_holds_for_all_paths() {
        const ATOMS: [&str; 14] =
            ["a", "/", "in", "index", r"\.", "html", "[a-z]", ".*", ".+", "(a|/)", "(/|$)", "x?", "^/", "$"];
        const DIRECTORIES: [&str; 6] = ["/", "/a/", "/a/x/", "/index.html/", "/in/a/", "/x.html/"];
        for picks in 0..ATOMS.len().pow(4) {
            let pick = |n: u32| ATOMS[picks / ATOMS.len().pow(n) % ATOMS.len()];
            let text = [pick(0), pick(1), pick(2), pick(3)].concat();
            if may_match_index(&text, "index.html") {
                continue;
            }
            let regex = regex::bytes::Regex::new(&text).unwrap();
            for directory in DIRECTORIES {
                let leads = regex.is_match(format!("{directory}index.html").as_bytes());
                assert!(!leads || regex.is_match(directory.as_bytes()), "{text} {directory}");
            }
        }
    }
}
