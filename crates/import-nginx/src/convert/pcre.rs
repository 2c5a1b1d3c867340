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
    read(pcre).ok()
}

/// The items of an expression. An error is the rest of the expression from the first unknown item.
fn read(pcre: &str) -> Result<Vec<Item>, &str> {
    let mut items: Vec<Item> = Vec::new();
    let mut rest = pcre;
    while let Some(c) = rest.chars().next() {
        let read = match c {
            '\\' => escape(rest, false),
            '[' => bracket_class(rest),
            '(' => open(rest),
            '*' | '+' | '?' | '{' => quantifier(rest),
            '$' => Some((Kind::End, c.to_string(), 1)),
            ')' => Some((Kind::Close, c.to_string(), 1)),
            '|' => Some((Kind::Or, c.to_string(), 1)),
            _ => Some((if c.is_ascii() { Kind::Atom } else { Kind::Wide }, c.to_string(), c.len_utf8())),
        };
        // `a++` is possessive, and a quantifier of PCRE applies to the last byte of a character.
        let may_repeat = matches!(items.last(), Some(Item { kind: Kind::Atom | Kind::End | Kind::Close, .. }));
        let read = read.filter(|(kind, ..)| *kind != Kind::Quantifier || may_repeat);
        let Some((kind, text, len)) = read else { return Err(rest) };
        items.push(Item { kind, text });
        rest = &rest[len..];
    }
    Ok(items)
}

/// The name of the group that an item opens.
pub(super) fn name_of_group(text: &str) -> Option<&str> {
    let name = text.strip_prefix("(?")?.strip_suffix('>')?;
    name.strip_prefix("P<").or_else(|| name.strip_prefix('<'))
}

/// The first part of an expression that has no counterpart, and the remedy.
pub(super) fn fault(pcre: &str) -> Option<(&str, &'static str)> {
    let rest = match read(pcre) {
        Ok(items) => {
            return continues_after_end(&items).then_some(("$", "write $ at the end of each alternative alone"));
        }
        Err(rest) => rest,
    };
    let first = tokens(rest).next().unwrap_or_default();
    let group = &rest[..group(rest)];
    let at = pcre.len() - rest.len();
    let repeated = tokens(pcre).scan(0, |end, token| {
        *end += token.len();
        Some((*end, token))
    });
    let repeated = repeated.filter(|(end, _)| *end == at).last().map_or(0, |(_, token)| token.len());
    Some(match rest.as_bytes() {
        [b'\\', b'0'..=b'9', b'0'..=b'9', ..] => (&rest[..3], "write \\x and two hexadecimal digits"),
        [b'\\', b'1'..=b'9' | b'g' | b'k', ..] => (first, "write the text of the group again"),
        [b'\\', ..] => (first, "write a class in brackets, for instance [0-9a-f]"),
        [b'[', ..] => {
            let end = rest.find(']').map_or(rest.len(), |end| end + 1);
            (&rest[..end], "escape &, -, ~ and [ with a backslash, and write characters outside ASCII as alternatives")
        }
        [b'(', b'?', b'>', ..] => (group, "write (?:…) in place of (?>…)"),
        [b'(', b'?', b'=' | b'!' | b'<', ..] => (group, "write a route for the paths that it excludes or asks for"),
        [b'(', b'?', b'i' | b'm' | b's' | b'x' | b'J' | b'U' | b'X' | b'-', ..] => {
            (group, "leave out all flags but i, m and s, and the blanks of x")
        }
        [b'(', ..] => (group, "write the expression that it stands for"),
        [b'{', ..] => (first, "write \\{ for the character, or a repetition such as {1,3}"),
        _ => (
            &pcre[at - repeated..at + first.len()],
            "write (?:…) around what one quantifier repeats, without a second one",
        ),
    })
}

/// The expression with greedy quantifiers and plain groups in place of possessive and atomic ones, which makes it match more.
pub(super) fn greedy(regex: &str) -> String {
    let (mut out, mut may_be_possessive, mut is_in_braces) = (String::new(), false, false);
    let mut all = tokens(regex).peekable();
    while let Some(token) = all.next() {
        if token == "(" && all.next_if_eq(&"?").is_some() {
            out.push_str(if all.next_if_eq(&">").is_some() { "(?:" } else { "(?" });
            continue;
        }
        if token == "+" && may_be_possessive {
            may_be_possessive = false;
            continue;
        }
        may_be_possessive = match token {
            "*" | "+" => true,
            "?" => !may_be_possessive,
            "}" => is_in_braces,
            _ => false,
        };
        is_in_braces = token == "{" || is_in_braces && matches!(token.as_bytes(), [b',' | b'0'..=b'9']);
        out.push_str(token);
    }
    out
}

/// An expression that matches all that another one does, without look-around, possessive quantifiers and references to groups.
pub(super) fn wider(regex: &str) -> String {
    let text = without_look_around(&greedy(regex));
    let mut at = 0;
    let all = tokens(&text).map(|token| {
        at += token.len();
        // `\144` is a character.
        let is_alone = !text[at..].starts_with(|c: char| c.is_ascii_digit());
        match token.as_bytes() {
            [b'\\', b'1'..=b'9'] if is_alone => "(?s:.*)",
            _ => token,
        }
    });
    all.collect()
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
    if c == ' ' {
        return Some((Kind::Atom, " ".to_owned(), 2));
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

/// The escapes, bracket classes and characters of an expression.
fn tokens(regex: &str) -> impl Iterator<Item = &str> {
    let mut rest = regex;
    std::iter::from_fn(move || {
        let c = rest.chars().next()?;
        let len = match c {
            '\\' => rest.chars().take(2).map(char::len_utf8).sum(),
            '[' => bracket_class(rest).map_or(1, |(_, _, len)| len),
            _ => c.len_utf8(),
        };
        let (token, behind) = rest.split_at(len);
        rest = behind;
        Some(token)
    })
}

/// The beginnings of groups that look around.
const LOOK_AROUND: [&str; 4] = ["(?!", "(?=", "(?<!", "(?<="];

/// The expression without look-around, which makes it match more.
pub(super) fn without_look_around(regex: &str) -> String {
    let (mut out, mut rest) = (String::new(), regex);
    while let Some(token) = tokens(rest).next() {
        let is_look_around = LOOK_AROUND.iter().any(|start| rest.starts_with(start));
        let len = if is_look_around { group(rest) } else { token.len() };
        out.push_str(if is_look_around { "" } else { token });
        rest = &rest[len..];
    }
    out
}

/// The expression with plain groups in place of look-around. `None`: it has no look-around, no possessive quantifier and no atomic group.
pub(super) fn with_plain_groups(regex: &str) -> Option<String> {
    let plain = LOOK_AROUND.iter().fold(greedy(regex), |text, start| text.replace(start, "(?:"));
    (plain != regex).then_some(plain)
}

/// The expression with the `$` of PCRE, which matches before a newline at the end too.
pub(super) fn with_newlines(regex: &str) -> String {
    tokens(regex).map(|token| if token == "$" { r"(?:\n?$)" } else { token }).collect()
}

/// Length in bytes of the group at the start of `text`.
fn group(text: &str) -> usize {
    let (mut depth, mut len) = (0, 0);
    for token in tokens(text) {
        len += token.len();
        depth += match token {
            "(" => 1,
            ")" => -1,
            _ => 0,
        };
        if depth <= 0 {
            return len;
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_may_have_a_newline_before_it() {
        assert_eq!(with_newlines(r"(?<!\$)[$]\.php$"), r"(?<!\$)[$]\.php(?:\n?$)");
    }

    #[test]
    fn the_part_without_counterpart_is_named() {
        for (regex, part) in [
            ("^/a++b", "++"),
            ("^/(a)\\1", r"\1"),
            (r"^/\Kb", r"\K"),
            (r"^/\144ocs", r"\14"),
            ("^/[a&&b]c", "[a&&b]"),
            ("^/(?x)b", "(?x)"),
            ("^/(?>a|b(c))d", "(?>a|b(c))"),
            ("^/(?R)x", "(?R)"),
            ("a$b", "$"),
            ("é+", "é+"),
            ("a{,3}", "{"),
        ] {
            assert_eq!(fault(regex).map(|(part, _)| part), Some(part), "{regex}");
        }
        assert_eq!(fault("^/(?:a|b)+?$"), None);
    }

    #[test]
    fn possessive_and_atomic_become_greedy() {
        for (regex, expected) in [
            ("a++b*+c?+d{2}+", "a+b*c?d{2}"),
            ("(?>a|b)+(?:c)", "(?:a|b)+(?:c)"),
            (r"a+?\++[+]+", r"a+?\++[+]+"),
            ("{a}+", "{a}+"),
            ("(?<n>a)+", "(?<n>a)+"),
            ("(?!a)", "(?!a)"),
        ] {
            assert_eq!(greedy(regex), expected, "{regex}");
        }
        assert_eq!(wider(r"(a)(?!x)\1\\1"), r"(a)(?s:.*)\\1");
        assert_eq!(wider(r"(a)\144"), r"(a)\144");
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
