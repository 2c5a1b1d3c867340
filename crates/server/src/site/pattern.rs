//! Path patterns and path prefixes in the configuration.

use std::ops::Range;

use globset::{Candidate, GlobBuilder, GlobMatcher};
use sealion_http::Coding;

use crate::values::Problems;

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
            return Some(Prefix { name: text.trim_matches('/').as_bytes().into() });
        };
        problems.add(span, key, remedy);
        None
    }

    /// Whether the decoded path `name`, without leading and trailing slashes, lies at or beneath the prefix.
    pub(super) fn covers(&self, name: &[u8]) -> bool {
        self.rest(name).is_some()
    }

    /// Whether access rules for the prefix apply to the path `name`: the prefix covers it, or covers the original of which it would
    /// be a precompressed sibling. `/a.html.br` discloses as much as `/a.html`.
    pub(super) fn guards(&self, name: &[u8]) -> bool {
        let compressed_of = |coding: Coding| name.strip_suffix(coding.suffix().as_bytes());
        self.covers(name) || Coding::ALL.into_iter().filter_map(compressed_of).any(|original| self.covers(original))
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
        for prefix in ["", "admin", "/a//b", "/a/../b", "/./", "/a%20b", "/a*", "//"] {
            let mut problems = Problems::of_arguments();
            assert!(Prefix::build(prefix, &(0..0), "path", &mut problems).is_none(), "{prefix}");
            assert_eq!(problems.len(), 1);
        }
    }
}
