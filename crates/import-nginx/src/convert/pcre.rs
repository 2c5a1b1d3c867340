//! Reads the expressions of PCRE that the regex crate can express.

/// An item of an expression, as the regex crate writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A character, a byte, a bracket class or an assertion other than `$`.
    Atom,
    /// A character of more than one byte.
    Wide,
    /// `$`
    End,
    /// `*`, `+`, `?` or `{1,2}`, with the `?` of a lazy one.
    Quantifier,
    /// `|`
    Or,
    /// `(`, `(?:`, `(?i:` or `(?<name>`
    Open,
    /// `)`
    Close,
    /// `(?i)`
    Flags,
}

/// Escapes that mean the same in both, in bracket classes too.
const SAME: &str = "dDwWsStnrfa";

/// Assertions that mean the same in both.
const ASSERTIONS: &str = "bBAz";

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// The items of an expression. `None`: an item is unknown, or the regex crate reads it otherwise.
pub(super) fn items(pcre: &str) -> Option<Vec<Item>> {
    let mut items: Vec<Item> = Vec::new();
    let mut rest = pcre;
    while let Some(c) = rest.chars().next() {
        let (kind, text, len) = match c {
            '\\' => escape(rest, false)?,
            '[' => bracket_class(rest)?,
            '(' => open(rest)?,
            '*' | '+' | '?' | '{' => quantifier(rest)?,
            '$' => (Kind::End, c.to_string(), 1),
            ')' => (Kind::Close, c.to_string(), 1),
            '|' => (Kind::Or, c.to_string(), 1),
            _ => (if c.is_ascii() { Kind::Atom } else { Kind::Wide }, c.to_string(), c.len_utf8()),
        };
        // `a++` is possessive, and a quantifier of PCRE applies to the last byte of a character.
        let before = items.last().map(|item| item.kind);
        if kind == Kind::Quantifier && !matches!(before, Some(Kind::Atom | Kind::End | Kind::Close)) {
            return None;
        }
        items.push(Item { kind, text });
        rest = &rest[len..];
    }
    Some(items)
}

/// Whether an item follows a `$`: in PCRE it may match the newline that `$` found, in the regex crate it does not.
pub(super) fn continues_after_end(items: &[Item]) -> bool {
    /// The alternative being read, and those before it in its group.
    #[derive(Default)]
    struct Group {
        is_ended: bool,
        was_ended: bool,
    }
    let mut groups = vec![Group::default()];
    for item in items {
        let Some(group) = groups.last_mut() else { return true };
        match item.kind {
            Kind::Atom | Kind::Wide | Kind::Open if group.is_ended => return true,
            Kind::Open => groups.push(Group::default()),
            Kind::Close => {
                let is_ended = group.is_ended || group.was_ended;
                groups.pop();
                if let Some(outer) = groups.last_mut() {
                    outer.is_ended |= is_ended;
                }
            }
            Kind::Or => {
                group.was_ended |= group.is_ended;
                group.is_ended = false;
            }
            Kind::End => group.is_ended = true,
            Kind::Atom | Kind::Wide | Kind::Quantifier | Kind::Flags => {}
        }
    }
    false
}

type Read = (Kind, String, usize);

/// `\.`, `\d`, `\xe9` or `\x{e9}`, which is a byte without PCRE's UTF mode.
fn escape(rest: &str, is_in_class: bool) -> Option<Read> {
    let c = rest[1..].chars().next()?;
    let is_same = SAME.contains(c) || !is_in_class && ASSERTIONS.contains(c);
    // `\b{start}` is another assertion in the regex crate, and `\<` is one.
    let is_braced = ASSERTIONS.contains(c) && rest[2..].starts_with('{');
    if is_same && !is_braced || c.is_ascii_punctuation() && !matches!(c, '<' | '>') {
        return Some((Kind::Atom, rest[..2].to_owned(), 2));
    }
    let digits = rest.strip_prefix(r"\x")?;
    let (digits, len) = match digits.strip_prefix('{') {
        Some(braced) => braced.split_once('}').map(|(digits, _)| (digits, digits.len() + 4))?,
        None => (digits.get(..2)?, 4),
    };
    if !(1..=2).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some((Kind::Atom, format!(r"\x{digits:0>2}"), len))
}

/// `[^]$[:space:]]`
fn bracket_class(rest: &str) -> Option<Read> {
    let is_negated = rest.starts_with("[^");
    let mut text = rest[..1 + usize::from(is_negated)].to_owned();
    let mut at = text.len();
    if rest[at..].starts_with(']') {
        // A range from `]` is a range only in PCRE.
        if rest[at..].starts_with("]-") && !rest[at..].starts_with("]-]") {
            return None;
        }
        text.push(']');
        at += 1;
    }
    loop {
        let inner = &rest[at..];
        let c = inner.chars().next()?;
        let (item, len) = match c {
            ']' => return Some((Kind::Atom, text + "]", at + 1)),
            '\\' => escape(inner, true).map(|(_, item, len)| (item, len))?,
            '[' => {
                let (name, _) = inner.strip_prefix("[:")?.split_once(":]")?;
                if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return None;
                }
                (inner[..name.len() + 4].to_owned(), name.len() + 4)
            }
            // Set operations of the regex crate, and a range to a class.
            '&' | '-' | '~' if inner[1..].starts_with(c) || inner.starts_with("-[") => return None,
            // PCRE takes its bytes one by one.
            _ if !c.is_ascii() => return None,
            _ => (c.to_string(), 1),
        };
        text.push_str(&item);
        at += len;
    }
}

/// The start of a group, or flags.
fn open(rest: &str) -> Option<Read> {
    if rest.starts_with("(*") {
        return None;
    }
    let Some(inner) = rest.strip_prefix("(?") else { return Some((Kind::Open, "(".to_owned(), 1)) };
    let named = inner.strip_prefix('P').unwrap_or(inner).strip_prefix('<');
    let (kind, len) = match named {
        Some(name) => {
            let (name, _) = name.split_once('>')?;
            let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
            (is_name.then_some(Kind::Open)?, rest.find('>')? + 1)
        }
        None => {
            let end = inner.find([':', ')'])?;
            // Other flags mean something else, or are unknown to one of the two.
            if !inner[..end].chars().all(|flag| "ims-".contains(flag)) {
                return None;
            }
            (if inner[end..].starts_with(':') { Kind::Open } else { Kind::Flags }, end + 3)
        }
    };
    Some((kind, rest[..len].to_owned(), len))
}

/// `*`, `+?` or `{1,2}`
fn quantifier(rest: &str) -> Option<Read> {
    let len = match rest.strip_prefix('{') {
        Some(inner) => {
            let (bounds, _) = inner.split_once('}')?;
            let (least, most) = bounds.split_once(',').unwrap_or((bounds, bounds));
            let is_number = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
            // PCRE reads others as text, or did once.
            (!least.is_empty() && is_number(least) && is_number(most)).then_some(bounds.len() + 2)?
        }
        None => 1,
    };
    let len = len + usize::from(rest[len..].starts_with('?'));
    Some((Kind::Quantifier, rest[..len].to_owned(), len))
}

/// The expression without look-around, which makes it match more.
pub(super) fn without_look_around(regex: &str) -> String {
    let mut out = String::new();
    let mut rest = regex;
    while let Some(c) = rest.chars().next() {
        let look_around = ["(?!", "(?=", "(?<!", "(?<="].iter().any(|start| rest.starts_with(start));
        let len = match c {
            '(' if look_around => {
                rest = &rest[group(rest)..];
                continue;
            }
            '\\' => rest.chars().take(2).map(char::len_utf8).sum(),
            '[' => bracket_class(rest).map_or(1, |(_, _, len)| len),
            _ => c.len_utf8(),
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

/// The expression with the `$` of PCRE, which matches before a newline at the end too.
pub(super) fn with_newlines(regex: &str) -> String {
    let mut out = String::new();
    let mut rest = regex;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '\\' => rest.chars().take(2).map(char::len_utf8).sum(),
            '[' => bracket_class(rest).map_or(1, |(_, _, len)| len),
            _ => c.len_utf8(),
        };
        out.push_str(if c == '$' { r"(?:\n?$)" } else { &rest[..len] });
        rest = &rest[len..];
    }
    out
}

/// Length in bytes of the group at the start of `text`.
fn group(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(c) = text[at..].chars().next() {
        let len = match c {
            '\\' => text[at..].chars().take(2).map(char::len_utf8).sum(),
            '[' => bracket_class(&text[at..]).map_or(1, |(_, _, len)| len),
            _ => c.len_utf8(),
        };
        at += len;
        match c {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_may_have_a_newline_before_it() {
        assert_eq!(with_newlines(r"(?<!\$)[$]\.php$"), r"(?<!\$)[$]\.php(?:\n?$)");
    }

    #[test]
    fn look_around_is_left_out() {
        for (regex, without) in [
            ("^/(?!public)[a-z]+", "^/[a-z]+"),
            ("(?<=a)b(?=(c|d))e", "be"),
            (r"\(?!a", r"\(?!a"),
            (r"(?!\)a)b", "b"),
            ("(?:a)é", "(?:a)é"),
            ("[(?!a)]b", "[(?!a)]b"),
            ("(?![)]a)b", "b"),
        ] {
            assert_eq!(without_look_around(regex), without, "{regex}");
        }
    }
}
