//! Converts times, sizes, patterns and replacements from nginx's notation to Sealion's.

use std::fmt;
use std::time::Duration;

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
    const DIFFERENT: [&str; 8] = [r"\<", r"\>", r"\v", r"\b{", r"\B{", "(?R", "(?u", "(?x"];
    let mut rest = pcre;
    let mut is_class = false;
    while let Some(c) = rest.chars().next() {
        if DIFFERENT.iter().any(|start| rest.starts_with(start)) {
            return None;
        }
        let mut len = c.len_utf8();
        match c {
            '\\' => len += rest[len..].chars().next().map_or(0, char::len_utf8),
            // Set operations and nested classes.
            '&' | '-' | '~' if is_class && rest[len..].starts_with(c) => return None,
            '[' if is_class => len = rest.strip_prefix("[:")?.find(":]")? + 4,
            '[' => {
                is_class = true;
                len += usize::from(rest[len..].starts_with('^'));
                len += usize::from(rest[len..].starts_with(']'));
            }
            ']' => is_class = false,
            _ => {}
        }
        rest = &rest[len..];
    }
    let regex = if ignore_case { format!("(?i){pcre}") } else { pcre.to_owned() };
    is_regex(&regex).then_some(regex)
}

/// Whether access rules and passwords accept an expression.
fn is_regex(regex: &str) -> bool {
    regex::bytes::RegexBuilder::new(regex).unicode(false).build().is_ok()
}

/// The expression with the `$` of PCRE, which matches before a newline at the end too.
pub(super) fn with_end_of_pcre(regex: &str) -> String {
    let mut out = String::new();
    let (mut is_escaped, mut is_class) = (false, false);
    for c in regex.chars() {
        match c {
            '$' if !is_escaped && !is_class => out.push_str("(?:\\n?$)"),
            _ => out.push(c),
        }
        match c {
            _ if is_escaped => {}
            '[' => is_class = true,
            ']' => is_class = false,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    // A class that begins with a bracket, for instance.
    if is_regex(&out) { out } else { regex.to_owned() }
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
        ] {
            assert_eq!(regex_of_pcre(pcre, ignore_case).as_deref(), ours, "{pcre}");
        }
    }

    #[test]
    fn an_end_may_have_a_newline_before_it() {
        for (regex, matches, does_not) in [
            (r"\.bak$", &[&b"/x.bak"[..], b"/x.bak\n"][..], &b"/x.bak\n\n"[..]),
            (r"x(/|$)", &[b"/x", b"/x/", b"/x\n"], b"/xy"),
            (r"\$$", &[b"/$", b"/$\n"], b"/$a"),
            (r"[$]a$", &[b"/$a", b"/$a\n"], b"/a"),
        ] {
            let built = regex::bytes::Regex::new(&with_end_of_pcre(regex)).unwrap();
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
