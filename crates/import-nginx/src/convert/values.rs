//! Converts times, sizes, patterns and replacements from nginx's notation to Sealion's.

use std::fmt;
use std::time::Duration;

use super::pcre;

/// A time in sealion.toml's notation: one number and one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            ms if ms > 0 && ms.is_multiple_of(3_600_000) => write!(f, "{}h", ms / 3_600_000),
            ms if ms.is_multiple_of(1000) => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

/// A size in sealion.toml's notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let whole = |(unit, _): &&(u64, &str)| self.0 >= *unit && self.0.is_multiple_of(*unit);
        let (unit, name) = units.iter().find(whole).unwrap_or(&(1, "B"));
        write!(f, "{}{name}", self.0 / unit)
    }
}

/// Parses nginx's times: `30`, `30s`, `1h 30m`, `1d`; seconds without a unit.
pub(super) fn time(text: &str) -> Option<Time> {
    let mut total = std::time::Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u32 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let milliseconds: u64 = match &rest[..letters] {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "M" => 30 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        total += std::time::Duration::from_millis(milliseconds) * number;
        rest = rest[letters..].trim_start();
    }
    Some(Time(total))
}

/// Parses nginx's sizes: `512`, `8k`, `1m`, `2g`; in powers of 1024.
pub(super) fn size(text: &str) -> Option<Size> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let unit = match &lower[digits..] {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    lower[..digits].parse::<u64>().ok()?.checked_mul(unit).map(Size)
}

/// The file pattern equivalent to a location's regular expression, for common forms: `\.(css|js)$`, `\.png$`,
/// `^/assets/`. `None`: another form.
pub(super) fn pattern_of_regex(regex: &str) -> Option<String> {
    if let Some(prefix) = regex.strip_prefix("^/").and_then(|rest| {
        let rest = rest.trim_end_matches(".*").strip_suffix('/')?;
        let literal = rest.replace(r"\.", "");
        literal.chars().all(|c| plain(c) && c != '.' || c == '/').then(|| rest.replace(r"\.", "."))
    }) {
        return Some(format!("/{prefix}/**"));
    }
    let ends = regex.trim_start_matches("^.+").trim_start_matches(".*").strip_suffix('$')?.strip_prefix("\\.")?;
    let ends = ends.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(ends);
    let ends = ends.strip_prefix("?:").unwrap_or(ends);
    let mut extensions = Vec::new();
    for extension in ends.split('|') {
        extensions.extend(spellings(&extension.replace("\\.", "."))?);
    }
    match extensions.as_slice() {
        [one] => Some(format!("*.{one}")),
        many => Some(format!("*.{{{}}}", many.join(","))),
    }
}

/// The words that an optional letter allows: `jpe?g` is jpeg and jpg.
fn spellings(extension: &str) -> Option<Vec<String>> {
    let mut words = vec![String::new()];
    let mut chars = extension.chars().peekable();
    while let Some(c) = chars.next() {
        if !plain(c) {
            return None;
        }
        if chars.next_if_eq(&'?').is_some() {
            words = words.into_iter().flat_map(|word| [format!("{word}{c}"), word]).collect();
        } else {
            words.iter_mut().for_each(|word| word.push(c));
        }
    }
    (!extension.is_empty()).then_some(words)
}

fn plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// A replacement with `$1` as `${1}`, so that a following letter cannot change it. `None`: it contains another variable
/// than the path.
pub(super) fn replacement(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        if digits == 0 {
            return None;
        }
        out.push_str(&format!("${{{}}}", &after[..digits]));
        rest = &after[digits..];
    }
    out.push_str(rest);
    Some(out)
}

/// A regular expression of PCRE in the syntax of Rust's, if it means the same there. nginx matches octets, ignores the case of ASCII
/// only, and knows no Unicode classes; so do the access rules and passwords of Sealion.
pub(super) fn regex_of_pcre(pcre: &str, ignore_case: bool) -> Option<String> {
    let items = pcre::items(pcre)?;
    if pcre::continues_after_end(&items) {
        return None;
    }
    let flags = if ignore_case { "(?i)" } else { "" };
    let regex = items.iter().fold(flags.to_owned(), |regex, item| regex + &item.text);
    is_regex(&regex).then_some(regex)
}

/// `/\.(?!well-known)` without look-around: names that begin with a dot, but for one. `None`: another expression.
pub(super) fn without_well_known(regex: &str) -> Option<String> {
    let (start, rest) = regex.split_once("(?!well-known")?;
    let (slash, rest) = rest.split_once(')')?;
    let is_whole = matches!(start, r"/\." | r"^/\.") && matches!(rest, "" | ".*" | ".*$");
    let is_name = matches!(slash, "" | "/" | r"\/" | "$");
    if !is_whole || !is_name {
        return None;
    }
    let name = if slash.ends_with('/') { "well-known/" } else { "well-known" };
    // With `$`, other names may begin so.
    let end = if slash == "$" { "." } else { "" };
    let others = name.chars().rev().fold(end.to_owned(), |others, c| {
        let deeper = if others.is_empty() { String::new() } else { format!("|{c}{others}") };
        format!("(?:$|[^{c}]{deeper})")
    });
    Some(format!("{start}{others}"))
}

/// Whether an expression matches the same octets and characters: it has no class, no escape of one, no `.` and no flag, which concern whole
/// characters or letters outside ASCII.
pub(super) fn is_same_for_octets(regex: &str) -> bool {
    let is_literal = |text: &str| match text.as_bytes() {
        [b'\\', escaped] => escaped.is_ascii_punctuation(),
        [b'.'] => false,
        [first, ..] => !matches!(first, b'[' | b'\\'),
        [] => false,
    };
    let is_same = |item: &pcre::Item| match item.kind {
        pcre::Kind::Atom => is_literal(&item.text),
        pcre::Kind::Open => !item.text.starts_with("(?") || item.text == "(?:" || item.text.ends_with('>'),
        pcre::Kind::Flags => false,
        pcre::Kind::Wide | pcre::Kind::End | pcre::Kind::Quantifier | pcre::Kind::Or | pcre::Kind::Close => true,
    };
    pcre::items(regex).is_some_and(|items| items.iter().all(is_same))
}

/// Whether access rules and passwords accept an expression.
fn is_regex(regex: &str) -> bool {
    regex::bytes::RegexBuilder::new(regex).unicode(false).build().is_ok()
}

/// The expression with the `$` of PCRE, which matches before a newline at the end too. `None`: it is not supported.
pub(super) fn with_end_of_pcre(regex: &str) -> Option<String> {
    let items = pcre::items(regex)?;
    Some(items.iter().map(|item| if item.kind == pcre::Kind::End { r"(?:\n?$)" } else { &item.text }).collect())
}

/// A regular expression that matches exactly this text.
pub(super) fn literally(text: &str) -> String {
    regex::escape(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        for (text, seconds) in
            [("30", 30), ("1m", 60), ("1h30m", 5400), ("1h 30m", 5400), ("1d", 86_400), ("1M", 30 * 86_400)]
        {
            assert_eq!(time(text), Some(Time(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(time("500ms"), Some(Time(std::time::Duration::from_millis(500))));
        assert_eq!(["", "x", "1q", "-1", "max"].map(time), [None; 5]);
        for (text, bytes) in [("512", 512), ("8k", 8192), ("1M", 1 << 20), ("2g", 2 << 30)] {
            assert_eq!(size(text), Some(Size(bytes)), "{text}");
        }
        assert_eq!(["", "k", "1t", "1.5m"].map(size), [None; 4]);
    }

    #[test]
    fn names_with_a_dot_but_one() {
        for (regex, matches, does_not) in [
            (
                r"/\.(?!well-known)",
                &["/.git", "/a/.well", "/.", "/.wello", "/.well-know"][..],
                &["/.well-known/x", "/.well-known", "/a"][..],
            ),
            (r"^/\.(?!well-known\/).*$", &["/.git", "/.well-known"], &["/.well-known/", "/a/.git"]),
            (r"/\.(?!well-known/)", &["/.well-known", "/a/.b"], &["/.well-known/x"]),
            (r"/\.(?!well-known$)", &["/.well-known/x", "/.git"], &["/.well-known"]),
        ] {
            let regex = regex_of_pcre(&without_well_known(regex).unwrap(), false).unwrap();
            let built = regex::bytes::Regex::new(&with_end_of_pcre(&regex).unwrap()).unwrap();
            matches.iter().for_each(|path| assert!(built.is_match(path.as_bytes()), "{regex} {path}"));
            does_not.iter().for_each(|path| assert!(!built.is_match(path.as_bytes()), "{regex} {path}"));
        }
        assert_eq!(
            [r"/\.(?!well-known)[a-z]", r"/\.(?!git)", r"\.(?!well-known)"].map(without_well_known),
            [const { None }; 3]
        );
    }

    #[test]
    fn patterns_of_the_usual_locations() {
        for (regex, pattern) in [
            (r"\.(css|js)$", Some("*.{css,js}")),
            (r"\.(?:css|js)$", Some("*.{css,js}")),
            (r"\.png$", Some("*.png")),
            (r"\.(jpe?g|woff2?)$", Some("*.{jpeg,jpg,woff2,woff}")),
            (r"\.(css|js\.map)$", Some("*.{css,js.map}")),
            (r".*\.(css|js)$", Some("*.{css,js}")),
            (r"^/assets/", Some("/assets/**")),
            (r"^/assets/.*", Some("/assets/**")),
            (r"\.php$", Some("*.php")),
            (r"\.(css|[a-z]+)$", None),
            (r"^/v1.0/", None),
            (r"^/v1\.0/", Some("/v1.0/**")),
            (r"^/a/b/", Some("/a/b/**")),
            (r"^/(a|b)/", None),
            (r"/\.", None),
            (r"\.(css|)$", None),
        ] {
            assert_eq!(pattern_of_regex(regex).as_deref(), pattern, "{regex}");
        }
    }

    #[test]
    fn expressions_are_the_same_for_octets_if_they_are_literal() {
        for (regex, is_same) in [
            (r"^/old\.html$", true),
            ("^/(a|b)?/x{2}$", true),
            ("^/(?<name>caf\u{e9})/(?:a)", true),
            ("^/old/(.*)$", false),
            ("^/[^/]+$", false),
            (r"^/\d+$", false),
            (r"^/\xe9$", false),
            (r"^/\b", false),
            ("(?i)^/k$", false),
            ("^/(?i:k)$", false),
        ] {
            assert_eq!(is_same_for_octets(regex), is_same, "{regex}");
        }
    }

    #[test]
    fn expressions_that_mean_something_else_are_not_converted() {
        for (pcre, ignore_case, ours) in [
            (r"\.(bak|sql)$", false, Some(r"\.(bak|sql)$")),
            (r"\.bak$", true, Some(r"(?i)\.bak$")),
            (r"^/[^/]+/[[:alpha:]]+\.key", false, Some(r"^/[^/]+/[[:alpha:]]+\.key")),
            (r"^/[]a-]x", false, Some(r"^/[]a-]x")),
            (r"\\v", false, Some(r"\\v")),
            (r"\v", false, None),
            (r"\<b\>", false, None),
            (r"[a&&b]", false, None),
            (r"[a[b]", false, None),
            (r"[a--b]", false, None),
            (r"a&&b--c", false, Some(r"a&&b--c")),
            (r"^/(?!public)", false, None),
            (r"(?R)", false, None),
            (r"(a)\1", false, None),
            (r"x{", false, None),
            ("^/caf\u{e9}", false, Some("^/caf\u{e9}")),
            ("^/caf\u{e9}", true, Some("(?i)^/caf\u{e9}")),
            ("[\u{e9}]", false, None),
            // A quantifier of PCRE applies to the last octet.
            ("^/caf\u{e9}+", false, None),
            (r"^/caf\x{e9}", false, Some(r"^/caf\xe9")),
            (r"^/[\x{e9}\x{a}]", true, Some(r"(?i)^/[\xe9\x0a]")),
            (r"\xe9", false, Some(r"\xe9")),
            (r"\\x{2}", false, Some(r"\\x{2}")),
            (r"[^]$[:^space:]\]]$", false, Some(r"[^]$[:^space:]\]]$")),
            (r"(?i)a(?s-im:.)(?-s)", false, Some(r"(?i)a(?s-im:.)(?-s)")),
            (r"(?:a)(?<n>b)(?P<m>c)", false, Some(r"(?:a)(?<n>b)(?P<m>c)")),
            (r"a{2}b{2,}c{2,3}?d+?", false, Some(r"a{2}b{2,}c{2,3}?d+?")),
            (r"x(/|$)|y$", false, Some(r"x(/|$)|y$")),
        ] {
            assert_eq!(regex_of_pcre(pcre, ignore_case).as_deref(), ours, "{pcre}");
        }
    }

    #[test]
    fn what_the_regex_crate_reads_otherwise_is_refused() {
        for pcre in [
            // Octets and control characters.
            r"\x{100}",
            r"\x{}",
            r"\x{ e9 }",
            r"\x4",
            r"\x4g",
            r"\o{351}",
            r"\0",
            r"\101",
            r"[\101]",
            r"\cA",
            r"\e",
            r"\u0041",
            r"\u{41}",
            r"\U00000041",
            r"\N{U+41}",
            "\\\u{e9}",
            // Classes and assertions.
            r"\v",
            r"[\v]",
            r"\V",
            r"\h",
            r"\H",
            r"\R",
            r"\X",
            r"\N",
            r"\C",
            r"\K",
            r"\G",
            r"\Z",
            r"\pL",
            r"\p{L}",
            r"[\b]",
            r"\b{start}",
            r"\b{start-half}",
            r"\<",
            r"\>",
            r"\Qa.b\E",
            r"a\E",
            // Bracket classes.
            r"[]-a]",
            r"[^]-a]",
            r"[--/]",
            r"[A-[:digit:]]",
            r"[[:<:]]a",
            r"[[:none:]]",
            r"[[.a.]]",
            r"[[=a=]]",
            r"[a~~b]",
            r"[a",
            // Flags.
            "(?x) a",
            "(?ix) a",
            "(?i-x) a",
            "(?ix: a)",
            "(?iu)a",
            "(?u)a",
            "(?-u)a",
            "(?U)a+",
            "(?iU)a+",
            "(?R)",
            "(?iR)$",
            "(?J)a",
            "(?n)(a)",
            "(?xx)a",
            "(?aD)a",
            "(?^)a",
            "(?^i:a)",
            "(?)a",
            "(?-)a",
            // Groups.
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            "(?>a)",
            "(?|a|b)",
            "(?#a)",
            "(?'n'a)",
            "(?1)",
            "(?&n)",
            "(?P>n)",
            "(?P=n)",
            "(?(1)a)",
            "(?C)",
            "(*ACCEPT)",
            "(*UTF8)a",
            "(*pla:a)",
            r"(a)\1",
            r"(a)\g1",
            r"(?<n>a)\k<n>",
            // Quantifiers.
            "a++",
            "a*+",
            "a?+",
            "a{2}+",
            "a**",
            "a{2}{3}",
            "a???",
            "a{,3}",
            "a{ 2 }",
            "a{2, 3}",
            "a{",
            "{a",
            // `$` of PCRE leaves the newline to the next item.
            r"^/a$\n",
            r"^/(a$|b)\s+",
            r"^/a$.*",
        ] {
            assert_eq!(regex_of_pcre(pcre, false), None, "{pcre}");
        }
    }

    #[test]
    fn the_case_of_octets_above_ascii_counts() {
        for pcre in [r"^/caf\x{e9}$", "^/caf\u{e9}$", r"^/caf[\xe9]$"] {
            let built = |path: &[u8]| {
                let regex = regex_of_pcre(pcre, true).unwrap();
                let built = regex::bytes::RegexBuilder::new(&regex).unicode(false).build();
                built.unwrap().is_match(path)
            };
            let is_text = !pcre.is_ascii();
            assert_eq!(built("/CAF\u{e9}".as_bytes()), is_text, "{pcre}");
            assert_eq!(built(b"/CAF\xe9"), !is_text, "{pcre}");
            assert!(!built("/CAF\u{c9}".as_bytes()) && !built(b"/CAF\xc9"), "{pcre}");
        }
    }

    #[test]
    fn an_end_may_have_a_newline_before_it() {
        for (regex, matches, does_not) in [
            (r"\.bak$", &[&b"/x.bak"[..], b"/x.bak\n"][..], &b"/x.bak\n\n"[..]),
            (r"x(/|$)", &[b"/x", b"/x/", b"/x\n"], b"/xy"),
            (r"\$$", &[b"/$", b"/$\n"], b"/$a"),
            (r"[$]a$", &[b"/$a", b"/$a\n"], b"/a"),
            (r"^/[^]$]+/sec$", &[b"/a/sec", b"/n/sec", b"/\n/sec\n"], b"/$/sec"),
            (r"^/[]$]/sec$", &[b"/]/sec", b"/$/sec\n"], b"/n/sec"),
            (r"^/a[^[:space:]$]b", &[b"/anb", b"/a?b", b"/a(b"], b"/a$b"),
            (r"^/[\]$]$", &[b"/]", b"/$\n"], b"/a"),
            (r"^/\\$", &[b"/\\", b"/\\\n"], b"/\\$"),
        ] {
            let built = regex::bytes::Regex::new(&with_end_of_pcre(regex).unwrap()).unwrap();
            matches.iter().for_each(|path| assert!(built.is_match(path), "{regex} {}", path.escape_ascii()));
            assert!(!built.is_match(does_not), "{regex}");
        }
    }

    #[test]
    fn group_references_are_braced() {
        assert_eq!(replacement("/new/$1x/$2").as_deref(), Some("/new/${1}x/${2}"));
        assert_eq!(replacement("/plain").as_deref(), Some("/plain"));
        assert_eq!(replacement("/$host/$1"), None);
    }
}
