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
            return Some(Prefix { name: text.trim_matches('/').as_bytes().into(), is_directory: text.ends_with('/') });
        };
        problems.add(span, key, remedy);
        None
    }

    /// Whether the decoded path `name`, without leading and trailing slashes, lies at or beneath the prefix.
    pub(super) fn covers(&self, name: &[u8]) -> bool {
        self.rest(name).is_some()
    }

    /// Whether access rules for the prefix apply to the path `name`: the prefix covers it, or is the file of which it would be a
    /// compressed sibling. `/a.html.br` discloses as much as `/a.html`.
    pub(super) fn guards(&self, name: &[u8]) -> bool {
        self.covers(name) || self.has_sibling(name)
    }

    /// Whether `name` would be a compressed sibling of the file with this path. A directory has none: `/docs.gz` is no part of
    /// `/docs/`.
    pub(super) fn has_sibling(&self, name: &[u8]) -> bool {
        !self.is_directory && original_of(name) == Some(&*self.name)
    }

    /// The part of the path after the prefix and its slash. `None`: the prefix does not cover the path.
    pub(super) fn rest<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        if self.name.is_empty() {
            return Some(name);
        }
        match name.strip_prefix(&*self.name)? {
            [] => Some(b""),
            [b'/', rest @ ..] => Some(rest),
            _ => None,
        }
    }

    /// The decoded prefix, without leading and trailing slashes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.name
    }
}

/// A regular expression for decoded paths with their leading slash.
#[derive(Debug)]
pub(super) struct PathRegex(Regex);

impl PathRegex {
    /// Parses an expression, and adds errors to `problems`.
    ///
    /// It matches octets, as file names are: `.` and `[^/]` also match names that are not UTF-8, which `(?u)` would not.
    pub(super) fn build(text: &str, span: &Range<usize>, key: &str, problems: &mut Problems) -> Option<Self> {
        build_regex(text, Octets::Bytes, span, key, problems).map(PathRegex)
    }

    /// Whether the expression matches the path `full`, which has its slashes.
    pub(super) fn is_match(&self, full: &[u8]) -> bool {
        self.0.is_match(full)
    }

    /// Whether access rules for the expression apply to the path `full`, which has its slashes: it matches the path, or the file of
    /// which that would be a compressed sibling.
    pub(super) fn guards(&self, full: &[u8]) -> bool {
        self.0.is_match(full) || original_of(full).is_some_and(|original| self.0.is_match(original))
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
    /// Parses the keys `path` and `regex` of a guard, of which one is given at most. Without either it protects every path.
    pub(super) fn build(
        path: Option<&At<String>>,
        regex: Option<&At<String>>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let regex_key = format!("{key}.regex");
        match (path, regex) {
            (Some(_), Some(regex)) => {
                problems.add(&regex.span, &regex_key, "write path or regex, or a rule for each");
                None
            }
            (None, Some(regex)) => PathRegex::build(regex, &regex.span, &regex_key, problems).map(Guarded::Matching),
            (Some(path), None) => {
                Prefix::build(path, &path.span, &format!("{key}.path"), problems).map(Guarded::Beneath)
            }
            (None, None) => Some(Guarded::Beneath(Prefix { name: Box::default(), is_directory: true })),
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
fn original_of(name: &[u8]) -> Option<&[u8]> {
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
