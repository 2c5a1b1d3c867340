//! Path patterns, path prefixes and path expressions in the configuration.

use std::ops::Range;

use globset::{Candidate, GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};
use sealion_http::Coding;

use super::image_formats;
use crate::values::{At, Problems};

/// A pattern for file paths: `*.css` matches by name in any directory; `/assets/**`, with a slash, matches from the root.
///
/// `*` and `?` match within a segment, `**` any number of segments; `[ab]` and `{a,b}` are alternatives.
#[derive(Debug, Clone)]
pub(super) struct PathPattern {
    /// `None`: matches every path.
    glob: Option<GlobMatcher>,
}

impl PathPattern {
    /// Parses a pattern, and adds errors to `problems`.
    pub(super) fn build(text: &str, span: &Range<usize>, key: &str, problems: &mut Problems) -> Option<Self> {
        if text.is_empty() {
            problems.add(span, key, "is empty: write for instance *.css, /assets/** or ** for every path");
            return None;
        }
        if text == "**" || text == "/**" {
            return Some(PathPattern { glob: None });
        }
        let glob = match text.strip_prefix('/') {
            Some(relative) => relative.to_owned(),
            None if text.contains('/') => {
                problems.add(span, key, format!("begin it with a slash: /{text} (from the root), or /**/{text}"));
                return None;
            }
            None => format!("**/{text}"),
        };
        match GlobBuilder::new(&glob).literal_separator(true).build() {
            Ok(glob) => Some(PathPattern { glob: Some(glob.compile_matcher()) }),
            Err(error) => {
                problems.add(span, key, format!("is not a pattern: {}: write for instance /assets/**", error.kind()));
                None
            }
        }
    }

    /// The pattern that matches every path.
    pub(super) fn every() -> Self {
        PathPattern { glob: None }
    }

    /// Whether the pattern matches every path.
    pub(super) fn is_every(&self) -> bool {
        self.glob.is_none()
    }

    /// Whether the pattern matches the decoded path `name`, which has no leading slash.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.glob.as_ref().is_none_or(|glob| glob.is_match_candidate(&Candidate::from_bytes(name)))
    }
}

/// A path and everything beneath it: `/admin/` covers `/admin`, `/admin/` and `/admin/x`, but not `/administrator`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Without leading and trailing slashes; empty: covers every path.
    name: Box<[u8]>,
    /// The same in one case, where case is ignored.
    folded: Option<Box<[u8]>>,
    /// Whether it was written with a slash at its end, so that it is no file.
    is_directory: bool,
}

impl Prefix {
    /// Parses a prefix, and adds errors to `problems`.
    pub(super) fn build(text: &str, span: &Range<usize>, key: &str, problems: &mut Problems) -> Option<Self> {
        let segments = || text[1..].trim_end_matches('/').split('/');
        let remedy = if !text.starts_with('/') {
            "begin it with a slash, for instance /admin/"
        } else if text.contains(['%', '?', '#', '*']) {
            "write a plain path, decoded and without wildcards, for instance /admin/"
        } else if text != "/" && segments().any(|segment| matches!(segment, "" | "." | "..")) {
            "write it without empty segments, . and .."
        } else {
            let name = text.trim_matches('/').as_bytes().into();
            return Some(Prefix { name, folded: None, is_directory: text.ends_with('/') });
        };
        problems.add(span, key, remedy);
        None
    }

    /// The prefix, which covers and guards paths in any case.
    fn ignoring_case(self) -> Self {
        Prefix { folded: Some(fold(&self.name).into()), ..self }
    }

    /// Whether the decoded path `name`, without leading and trailing slashes, lies at or beneath the prefix.
    pub(super) fn covers(&self, name: &[u8]) -> bool {
        match &self.folded {
            None => rest_behind(&self.name, name).is_some(),
            Some(own) => rest_behind(own, &fold(name)).is_some(),
        }
    }

    /// Whether access rules for the prefix apply to the path `name`: the prefix covers it, or is the file of which it would be a
    /// compressed sibling. `/a.html.br` discloses as much as `/a.html`.
    pub(super) fn guards(&self, name: &[u8]) -> bool {
        self.covers(name) || self.has_sibling(name)
    }

    /// Whether `name` would be a compressed sibling of the file with this path. A directory has none: `/docs.gz` is no part of
    /// `/docs/`.
    pub(super) fn has_sibling(&self, name: &[u8]) -> bool {
        !self.is_directory
            && match &self.folded {
                None => original_of(name) == Some(&*self.name),
                Some(own) => original_of(&fold(name)) == Some(&**own),
            }
    }

    /// The part of the path after the prefix and its slash. `None`: the prefix does not cover the path, as it is written.
    pub(super) fn rest<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        rest_behind(&self.name, name)
    }

    /// The decoded prefix, without leading and trailing slashes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.name
    }
}

fn rest_behind<'a>(prefix: &[u8], name: &'a [u8]) -> Option<&'a [u8]> {
    if prefix.is_empty() {
        return Some(name);
    }
    match name.strip_prefix(prefix)? {
        [] => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Whether guards tell upper and lower case apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Exact,
    Ignored,
}

impl Case {
    pub(super) fn from_key(ignore_case: bool) -> Self {
        if ignore_case { Case::Ignored } else { Case::Exact }
    }
}

/// A path in which all spellings that differ in case alone are the same, whether an application maps characters or whole texts to upper or lower case. Characters
/// beyond ASCII that become letters of ASCII in one of these, such as the sign of Kelvin and the dotted capital I, are those. Dots and spaces at the end
/// of a name do not count: file systems that ignore case drop them (FAT, NTFS).
pub(super) fn fold(path: &[u8]) -> Vec<u8> {
    let folded = if path.is_ascii() { path.to_ascii_lowercase() } else { fold_characters(path) };
    let is_dropped = |byte: &&u8| matches!(byte, b'.' | b' ');
    let name = |segment: &'_ [u8]| segment.len() - segment.iter().rev().take_while(is_dropped).count();
    let names: Vec<_> = folded.split(|byte| *byte == b'/').map(|segment| &segment[..name(segment)]).collect();
    names.join(&b'/')
}

fn fold_characters(path: &[u8]) -> Vec<u8> {
    /// The dot of an `i` that a capital letter had.
    const DOT_ABOVE: char = '\u{307}';
    let mut folded = Vec::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        // The lower case of some characters has an upper case that they do not have themselves.
        let upper = chunk.valid().chars().flat_map(char::to_lowercase).flat_map(char::to_uppercase);
        let lower = upper.flat_map(char::to_lowercase).filter(|character| *character != DOT_ABOVE);
        folded.extend_from_slice(lower.collect::<String>().as_bytes());
        folded.extend_from_slice(chunk.invalid());
    }
    folded
}

/// A regular expression for decoded paths with their leading slash.
#[derive(Debug)]
pub(super) struct PathRegex {
    regex: Regex,
    /// The same for characters, where case is ignored. It is looked for in folded paths, too.
    folded: Option<Regex>,
}

impl PathRegex {
    /// Parses an expression, and adds errors to `problems`.
    ///
    /// It matches octets, as file names are: `.` and `[^/]` also match names that are not UTF-8, which `(?u)` would not.
    pub(super) fn build(text: &str, span: &Range<usize>, key: &str, problems: &mut Problems) -> Option<Self> {
        let regex = build_regex(text, Octets::Bytes, span, key, problems)?;
        Some(PathRegex { regex, folded: None })
    }

    /// The same for an expression that ignores case.
    fn build_ignoring_case(text: &str, span: &Range<usize>, key: &str, problems: &mut Problems) -> Option<Self> {
        let text = format!("(?i){text}");
        let folded = build_regex(&text, Octets::Unicode, span, key, problems)?;
        let regex = build_regex(&text, Octets::Bytes, span, key, problems)?;
        Some(PathRegex { regex, folded: Some(folded) })
    }

    /// Whether the expression matches the path `full`, which has its slashes.
    pub(super) fn is_match(&self, full: &[u8]) -> bool {
        let ignoring_case = |regex: &Regex| regex.is_match(full) || regex.is_match(&fold(full));
        self.regex.is_match(full) || self.folded.as_ref().is_some_and(ignoring_case)
    }

    /// Whether access rules for the expression apply to the path `full`, which has its slashes: it matches the path, or the file of
    /// which that would be a compressed sibling.
    pub(super) fn guards(&self, full: &[u8]) -> bool {
        let guards = |regex: &Regex, full: &[u8]| {
            regex.is_match(full) || original_of(full).is_some_and(|original| regex.is_match(original))
        };
        let ignoring_case = |regex: &Regex| guards(regex, full) || guards(regex, &fold(full));
        guards(&self.regex, full) || self.folded.as_ref().is_some_and(ignoring_case)
    }
}

/// The paths that a guard protects.
#[derive(Debug)]
pub(super) enum Guarded {
    /// A path with everything beneath it.
    Beneath(Prefix),
    Matching(PathRegex),
}

impl Guarded {
    /// Parses the keys `path`, `regex` and `ignore_case` of a guard; `path` or `regex` is given at most. Without either it protects every path.
    pub(super) fn build(
        path: Option<&At<String>>,
        regex: Option<&At<String>>,
        case: Case,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let regex_key = format!("{key}.regex");
        match (path, regex) {
            (Some(_), Some(regex)) => {
                problems.add(&regex.span, &regex_key, "write path or regex, or a rule for each");
                None
            }
            (None, Some(regex)) => {
                let build = match case {
                    Case::Exact => PathRegex::build,
                    Case::Ignored => PathRegex::build_ignoring_case,
                };
                build(regex, &regex.span, &regex_key, problems).map(Guarded::Matching)
            }
            (Some(path), None) => {
                let prefix = Prefix::build(path, &path.span, &format!("{key}.path"), problems)?;
                Some(Guarded::Beneath(if case == Case::Ignored { prefix.ignoring_case() } else { prefix }))
            }
            (None, None) => Some(Guarded::Beneath(Prefix { name: Box::default(), folded: None, is_directory: true })),
        }
    }

    /// Whether it certainly covers every path that `other` covers.
    pub(super) fn covers_all_of(&self, other: &Guarded) -> bool {
        match (self, other) {
            (Guarded::Beneath(own), Guarded::Beneath(other)) => own.covers(&other.name),
            (Guarded::Beneath(own), Guarded::Matching(_)) => own.name.is_empty(),
            (Guarded::Matching(_), _) => false,
        }
    }
}

/// The name of the file of which `name` would be a sibling: compressed, or an image in another format.
pub(super) fn original_of(name: &[u8]) -> Option<&[u8]> {
    let compressed = Coding::ALL.into_iter().find_map(|coding| name.strip_suffix(coding.suffix().as_bytes()));
    compressed.or_else(|| image_formats::original_of(name))
}

/// The characters of a path for a regular expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Octets {
    Bytes,
    Unicode,
}

/// Parses a regular expression for decoded paths with their leading slash, and adds errors to `problems`. An expression with a branch
/// that matches no path is an error: the files that it should protect would be open.
pub(super) fn build_regex(
    text: &str,
    octets: Octets,
    span: &Range<usize>,
    key: &str,
    problems: &mut Problems,
) -> Option<Regex> {
    let unicode = octets == Octets::Unicode;
    let built = RegexBuilder::new(text).unicode(unicode).dot_matches_new_line(true).size_limit(REGEX_SIZE).build();
    let what = match built {
        Ok(regex) if !misses_the_slash(text, unicode) => return Some(regex),
        Ok(_) => {
            let corrected = text.replacen('^', "^/", 1);
            let is_clear = !text.contains('|') && !misses_the_slash(&corrected, unicode);
            let example = if is_clear { &*corrected } else { "^/in/" };
            format!("never matches, because a path begins with a slash: write for instance {example}")
        }
        Err(error) => {
            format!("is not a regular expression: {}", error.to_string().lines().last().unwrap_or_default())
        }
    };
    problems.add(span, key, what);
    None
}

/// Whether a branch of the expression demands something else than a slash at the beginning of the path.
fn misses_the_slash(text: &str, unicode: bool) -> bool {
    let parsed = ParserBuilder::new().unicode(unicode).utf8(false).dot_matches_new_line(true).build().parse(text);
    // The compiler refuses what cannot be parsed.
    parsed.is_ok_and(|expression| excludes_slash(&expression, &[], false))
}

/// Whether a branch of `first`, followed by `rest` (the next one last), excludes a slash at the beginning of the path. `anchored`: a `^`
/// came before.
fn excludes_slash(first: &Hir, rest: &[&Hir], anchored: bool) -> bool {
    let next = |anchored| rest.split_last().is_some_and(|(first, rest)| excludes_slash(first, rest, anchored));
    match first.kind() {
        HirKind::Empty => next(anchored),
        HirKind::Look(Look::Start) => next(true),
        HirKind::Look(Look::End) => anchored,
        HirKind::Look(_) => next(anchored),
        HirKind::Literal(literal) => anchored && literal.0.first() != Some(&b'/'),
        HirKind::Class(Class::Bytes(class)) => {
            anchored && !class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&b'/'))
        }
        HirKind::Class(Class::Unicode(class)) => {
            anchored && !class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&'/'))
        }
        HirKind::Repetition(repeated) if repeated.min == 0 => {
            anchored && excludes_slash(&repeated.sub, &[], true) && next(true)
        }
        HirKind::Repetition(repeated) => excludes_slash(&repeated.sub, rest, anchored),
        HirKind::Capture(group) => excludes_slash(&group.sub, rest, anchored),
        HirKind::Concat(parts) => {
            let all: Vec<&Hir> = rest.iter().copied().chain(parts.iter().rev()).collect();
            all.split_last().is_some_and(|(first, rest)| excludes_slash(first, rest, anchored))
        }
        HirKind::Alternation(branches) => {
            // In `(^|/)name` the other branch has the slash.
            let mut branches = branches.iter().filter(|branch| !matches!(branch.kind(), HirKind::Look(Look::Start)));
            branches.any(|branch| excludes_slash(branch, rest, anchored))
        }
    }
}

/// Bound on a compiled expression, in bytes; usual ones have a few thousand.
const REGEX_SIZE: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, yes, no) in [
            ("*.css", &["a.css", "x/y/a.css", ".css"][..], &["a.css/b", "a.csss"][..]),
            ("/*.css", &["a.css"], &["x/a.css"]),
            ("/assets/**", &["assets/a", "assets/x/y"], &["assets2/a", "x/assets/a", "assets"]),
            ("/assets/*", &["assets/a"], &["assets/x/y"]),
            ("/**/img/*.{png,jpg}", &["img/a.png", "x/y/img/b.jpg"], &["img/a.gif", "img/x/a.png"]),
            ("**", &["", "a", "a/b"], &[]),
            ("app.[0-9]*.js", &["app.1f.js", "d/app.2.js"], &["app.js"]),
        ] {
            let mut problems = Problems::of_arguments();
            let built = PathPattern::build(pattern, &(0..0), "path", &mut problems).unwrap();
            assert!(problems.is_empty());
            yes.iter().for_each(|name| assert!(built.matches(name.as_bytes()), "{pattern} {name}"));
            no.iter().for_each(|name| assert!(!built.matches(name.as_bytes()), "{pattern} {name}"));
        }
        for (pattern, why) in [("", "empty"), ("a/b", "begin it with a slash: /a/b"), ("/a[", "is not a pattern")] {
            let mut problems = Problems::of_arguments();
            assert!(PathPattern::build(pattern, &(0..0), "path", &mut problems).is_none());
            assert!(problems.to_string().contains(why), "{problems}");
        }
    }

    #[test]
    fn prefixes() {
        for (prefix, name, rest) in [
            ("/", "", Some("")),
            ("/", "a/b", Some("a/b")),
            ("/admin/", "admin", Some("")),
            ("/admin", "admin/x/y", Some("x/y")),
            ("/admin", "administrator", None),
            ("/a/b/", "a", None),
            ("/Ä/", "Ä/x", Some("x")),
        ] {
            let mut problems = Problems::of_arguments();
            let built = Prefix::build(prefix, &(0..0), "path", &mut problems).unwrap();
            assert_eq!(built.rest(name.as_bytes()), rest.map(str::as_bytes), "{prefix} {name}");
        }
        let secret = Prefix::build("/in/a.html", &(0..0), "path", &mut Problems::of_arguments()).unwrap();
        for (name, guarded) in [
            ("in/a.html", true),
            ("in/a.html.br", true),
            ("in/a.html.zst", true),
            ("in/a.html.gz", true),
            ("in/a.html.gz.br", false),
            ("in/a.html.bak", false),
            ("in/b.html.br", false),
        ] {
            assert_eq!(secret.guards(name.as_bytes()), guarded, "{name}");
        }
        let directory = Prefix::build("/docs/", &(0..0), "path", &mut Problems::of_arguments()).unwrap();
        for (name, guarded) in [("docs", true), ("docs/a.gz", true), ("docs.gz", false), ("docs.br", false)] {
            assert_eq!(directory.guards(name.as_bytes()), guarded, "{name}");
        }
        for prefix in ["", "admin", "/a//b", "/a/../b", "/./", "/a%20b", "/a*", "//"] {
            let mut problems = Problems::of_arguments();
            assert!(Prefix::build(prefix, &(0..0), "path", &mut problems).is_none(), "{prefix}");
            assert_eq!(problems.len(), 1);
        }
    }

    #[test]
    fn a_guard_that_ignores_case_covers_every_spelling() {
        let at = |text: &str| At { value: text.to_owned(), span: 0..0 };
        let mut problems = Problems::of_arguments();
        let prefix = Guarded::build(Some(&at("/Kaf\u{c9}/Sub.txt")), None, Case::Ignored, "k", &mut problems);
        let Some(Guarded::Beneath(prefix)) = prefix else { panic!("{problems}") };
        for (name, is_guarded) in [
            ("Kaf\u{c9}/Sub.txt", true),
            ("kaf\u{e9}/sub.txt", true),
            ("KAF\u{c9}/SUB.TXT", true),
            ("\u{212a}af\u{e9}/\u{17f}ub.txt/x", true),
            ("KAF\u{c9}/SUB.TXT.GZ", true),
            ("kaf\u{e9}./sub.txt. .", true),
            ("kaf\u{e9}/sub.txt.gz.", true),
            ("kafe/sub.txt", false),
            ("kaf\u{e9}/sub.txts", false),
        ] {
            assert_eq!(prefix.guards(name.as_bytes()), is_guarded, "{name}");
        }
        let regex = Guarded::build(None, Some(&at("^/Kaf\u{c9}/[^/]+\\.Key$")), Case::Ignored, "k", &mut problems);
        let Some(Guarded::Matching(regex)) = regex else { panic!("{problems}") };
        for (full, is_guarded) in [
            (&b"/Kaf\xc3\x89/x.Key"[..], true),
            (b"/kaf\xc3\xa9/x.key", true),
            (b"/KAF\xc3\x89/\xff.KEY", true),
            ("/\u{212a}AF\u{e9}/x.\u{212a}ey".as_bytes(), true),
            (b"/KAF\xc3\x89/x.KEY.GZ", true),
            (b"/kafe/x.key", false),
        ] {
            assert_eq!(regex.guards(full), is_guarded, "{}", full.escape_ascii());
        }
    }

    /// Java's `equalsIgnoreCase` takes `\u{130}` for `i`, `toUpperCase` makes `SS` of a sharp s.
    #[test]
    fn no_mapping_of_case_changes_what_is_folded() {
        for character in '\0'..=char::MAX {
            let (lower, upper) = (character.to_lowercase(), character.to_uppercase());
            if lower.clone().eq([character]) && upper.clone().eq([character]) {
                continue;
            }
            let folded = fold(character.to_string().as_bytes());
            assert_eq!(folded, fold(lower.to_string().as_bytes()), "{character:?}");
            assert_eq!(folded, fold(upper.to_string().as_bytes()), "{character:?}");
            assert_eq!(folded, fold(&folded), "{character:?}");
        }
        for (own, other) in
            [("\u{130}", "i"), ("\u{131}", "i"), ("\u{17f}", "s"), ("\u{212a}", "k"), ("\u{1e9e}", "ss")]
        {
            assert_eq!(fold(own.as_bytes()), other.as_bytes(), "{own}");
        }
        for (guard, full) in [
            ("^/admin/", "/adm\u{130}n/"),
            ("^/admin/", "/ADM\u{131}N/x"),
            ("^/stra\u{df}e$", "/STRA\u{1e9e}E"),
            (r"^/x\.key$", "/X.KEY."),
        ] {
            let mut problems = Problems::of_arguments();
            let regex = PathRegex::build_ignoring_case(guard, &(0..0), "regex", &mut problems).unwrap();
            assert!(regex.guards(full.as_bytes()) && regex.is_match(full.as_bytes()), "{guard} {full}");
        }
    }

    #[test]
    fn expressions_match_octets_and_the_originals_of_siblings() {
        for (regex, full, guarded) in [
            (r"\.html$", &b"/a.html"[..], true),
            (r"\.html$", b"/a.html.br", true),
            (r"\.html$", b"/a.html.zst", true),
            (r"\.jpg$", b"/a.jpg.avif", true),
            (r"\.jpg$", b"/a.avif", false),
            (r"\.html$", b"/a.html.gz/", false),
            (r"\.html$", b"/a.html.bak", false),
            (r"^/p/.*\.bak$", b"/p/caf\xe9.bak", true),
            (r"^/p/[^/]+$", b"/p/\xff", true),
            ("^/caf\u{e9}", "/caf\u{e9}/x".as_bytes(), true),
            ("(?iu)^/CAF\u{c9}", "/caf\u{e9}/x".as_bytes(), true),
            ("^/$", b"/", true),
            ("^/$", b"/x", false),
            ("^/private/$", b"/private/", true),
            ("^/a.b$", b"/a\nb", true),
            (r"^/\d$", "/\u{664}".as_bytes(), false),
        ] {
            let mut problems = Problems::of_arguments();
            let built = PathRegex::build(regex, &(0..0), "regex", &mut problems).unwrap();
            assert_eq!(built.guards(full), guarded, "{regex} {}", full.escape_ascii());
        }
        for (regex, correct) in [
            ("^in/", "^/in/"),
            (r"^\.well-known/", r"^/\.well-known/"),
            ("(?i)^in/", "(?i)^/in/"),
            ("(^in/)", "(^/in/)"),
            ("^(in|out)/", "^/in/"),
            ("^(in/|/out/)", "^/in/"),
            ("^[a-z]+/", "^/[a-z]+/"),
            ("^(?:in)?$", "^/(?:in)?$"),
            ("/x|^in/", "^/in/"),
            (r"\Ain/", "^/in/"),
            ("^$", "^/$"),
            ("^caf\u{e9}", "^/caf\u{e9}"),
        ] {
            let mut problems = Problems::of_arguments();
            assert!(PathRegex::build(regex, &(0..0), "regex", &mut problems).is_none(), "{regex}");
            let what = format!("never matches, because a path begins with a slash: write for instance {correct}");
            assert_eq!(problems.to_string(), what, "{regex}");
        }
        for regex in [
            "",
            "^",
            "in/",
            "^/",
            "^/?in/",
            "^.in",
            "^(/in)?",
            "^[^a]",
            r"^\W",
            "(?m)^in",
            "(?iu)^(/a|/b)",
            "(^|/)in/",
            "^.*in",
        ] {
            let mut problems = Problems::of_arguments();
            assert!(PathRegex::build(regex, &(0..0), "regex", &mut problems).is_some(), "{regex}: {problems}");
        }
        let mut problems = Problems::of_arguments();
        assert!(PathRegex::build("^/(?!a)", &(0..0), "regex", &mut problems).is_none());
        assert!(problems.to_string().contains("is not a regular expression: error: look-around"), "{problems}");
    }
}
