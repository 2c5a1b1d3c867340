//! Converts times, sizes, patterns and replacements from nginx's notation to Sealion's.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Subnets};

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

/// A regular expression of PCRE in the syntax of Rust's, if it means the same there. nginx matches bytes, ignores the case of ASCII
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

/// The networks of a range of addresses: `10.0.0.0-10.0.0.255`.
pub(super) fn networks_of_range(text: &str) -> Option<impl Iterator<Item = IpNet>> {
    let (first, last) = text.split_once('-')?;
    let (first, last): (Ipv4Addr, Ipv4Addr) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then(|| Ipv4Subnets::new(first, last, 0).map(IpNet::from))
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

/// An expression with look-around, possessive quantifiers or atomic groups, which a route has too. `None`: it has none, or means something else there.
pub(super) fn look_around(text: &str) -> Option<String> {
    let items = pcre::items(&pcre::with_plain_groups(text)?)?;
    (!pcre::continues_after_end(&items)).then(|| text.to_owned())
}

/// An expression whose groups all have names, with the placeholders for them by number, and the names. `start`: of the names that are made.
pub(super) fn with_named_groups(regex: &str, start: &str) -> (String, (Vec<String>, Vec<String>)) {
    let Some(items) = pcre::items(regex) else { return (regex.to_owned(), (Vec::new(), Vec::new())) };
    let (mut text, mut names): (String, Vec<String>) = (String::new(), Vec::new());
    for item in items {
        if item.kind == pcre::Kind::Open && !item.text.starts_with("(?") {
            names.push(format!("{start}{}", names.len() + 1));
            text.push_str(&format!("(?<{}>", names[names.len() - 1]));
            continue;
        }
        names.extend(pcre::name_of_group(&item.text).map(str::to_owned));
        text.push_str(&item.text);
    }
    (text, (names.iter().map(|name| format!("{{{name}}}")).collect(), names))
}

/// Whether access rules and passwords accept an expression.
pub(super) fn is_regex(regex: &str) -> bool {
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

/// An address or a network; host bits are ignored, as in nginx.
pub(super) fn network(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().map(|network| network.trunc()).ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

pub(super) fn short(network: IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() { network.addr().to_string() } else { network.to_string() }
}

/// A network minus others.
pub(super) fn without(network: IpNet, others: &[IpNet]) -> Vec<IpNet> {
    if others.iter().any(|other| other.contains(&network)) {
        return Vec::new();
    }
    if !others.iter().any(|other| network.contains(other)) {
        return vec![network];
    }
    let halves = network.subnets(network.prefix_len() + 1).into_iter().flatten();
    halves.flat_map(|half| without(half, others)).collect()
}

/// Whether a key or a wanted value is an expression that matches the empty text. Every expression with look-around is taken for one.
pub(super) fn matches_nothing(text: &str) -> bool {
    let (flags, expression) = match text.split_once(' ') {
        Some(("~", own)) => ("", own),
        Some(("~*", own)) => ("(?i)", own),
        Some(("~~", _)) => return true,
        _ => return false,
    };
    regex::Regex::new(&format!("{flags}{expression}")).is_ok_and(|regex| regex.is_match(""))
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
            // A quantifier of PCRE applies to the last byte.
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
            // Bytes and control characters.
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
    fn networks_are_subtracted() {
        let of = |text: &str| text.parse::<IpNet>().unwrap();
        let left = |network: &str, others: &[&str]| {
            let others: Vec<IpNet> = others.iter().map(|other| of(other)).collect();
            without(of(network), &others).into_iter().map(short).collect::<Vec<_>>()
        };
        assert_eq!(left("10.0.0.0/8", &[]), ["10.0.0.0/8"]);
        assert_eq!(left("10.0.0.0/8", &["192.0.2.0/24", "::/0"]), ["10.0.0.0/8"]);
        assert!(left("10.0.0.0/8", &["0.0.0.0/0"]).is_empty());
        assert_eq!(left("192.0.2.0/30", &["192.0.2.1/32"]), ["192.0.2.0", "192.0.2.2/31"]);
        assert_eq!(left("0.0.0.0/0", &["0.0.0.0/1", "192.0.0.0/2"]), ["128.0.0.0/2"]);
        // A pair of addresses at most for each bit.
        assert_eq!(left("::/0", &["2001:db8::7/128"]).len(), 128);
    }

    #[test]
    fn networks_parse_as_in_nginx() {
        for (text, taken) in [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3")),
            ("2001:db8::1/32", Some("2001:db8::/32")),
            ("office.example", None),
            ("$ip", None),
        ] {
            assert_eq!(network(text).map(short).as_deref(), taken, "{text}");
        }
    }
}
