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
    fn group_references_are_braced() {
        assert_eq!(replacement("/new/$1x/$2").as_deref(), Some("/new/${1}x/${2}"));
        assert_eq!(replacement("/plain").as_deref(), Some("/plain"));
        assert_eq!(replacement("/$host/$1"), None);
    }
}
