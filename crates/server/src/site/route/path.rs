//! The key `path` of a route.

use std::ops::Range;

use crate::placeholders::expression;
use crate::site::look_around::{LookAround, SIGN};
use crate::site::pattern::build_regex;
use crate::values::{At, Problems};

/// Which paths a route has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RoutePath {
    /// `= /a`: only this path.
    Exact(Box<[u8]>),
    /// `/a/`, `/a/*` or `^~ /a/`: paths that begin so.
    Prefix {
        text: Box<[u8]>,
        /// Whether expressions do not go before it.
        is_final: bool,
        folder: Folder,
    },
    /// `~ \.php$` or `~* \.php$`: paths that match.
    Expression {
        /// Without flags.
        text: String,
        ignores_case: bool,
    },
    /// `~~ /\.(?!well-known/)`: an expression with look-around.
    LookAround(String),
}

/// The path of a folder without the slash at its end, for a prefix that ends in a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Folder {
    /// `/a/` has the path `/a` too.
    Included,
    /// `/a/*` has `/a/` and the paths beneath it.
    Excluded,
}

impl RoutePath {
    /// The paths of a site.
    pub(super) fn everything() -> Self {
        RoutePath::Prefix { text: b"/".as_slice().into(), is_final: false, folder: Folder::Included }
    }

    /// Parses the key, and adds errors to `problems`.
    pub(super) fn parse(text: &At<String>, key: &str, problems: &mut Problems) -> Option<Self> {
        if let Some(expression) = text.strip_prefix(SIGN) {
            let built = LookAround::new(expression);
            let built = built
                .map_err(|error| problems.add(&text.span, key, format_args!("is not a regular expression: {error}")));
            return built.ok().map(|_| RoutePath::LookAround(expression.to_owned()));
        }
        if let Some(expression) = expression(text) {
            let ignores_case = text.starts_with("~*");
            build_regex(&expression, &text.span, key, problems)?;
            let text = text.trim_start_matches(['~', '*']).trim_start_matches(' ').to_owned();
            return Some(RoutePath::Expression { text, ignores_case });
        }
        if let Some(path) = text.strip_prefix("= ") {
            return Some(RoutePath::Exact(plain(path, &text.span, key, problems)?));
        }
        let (path, is_final) = match text.strip_prefix("^~ ") {
            Some(path) => (path, true),
            None => (text.as_str(), false),
        };
        let (path, folder) = match path.strip_suffix('*').filter(|path| path.ends_with('/')) {
            // No path leaves out the slash of the root.
            Some("/") => ("/", Folder::Included),
            Some(path) => (path, Folder::Excluded),
            None => (path, Folder::Included),
        };
        Some(RoutePath::Prefix { text: plain(path, &text.span, key, problems)?, is_final, folder })
    }

    /// The same, with the path of its folder. `None`: it is another form, or has that path.
    pub(super) fn with_folder(&self) -> Option<Self> {
        match self {
            RoutePath::Prefix { text, is_final, folder: Folder::Excluded } => {
                Some(RoutePath::Prefix { text: text.clone(), is_final: *is_final, folder: Folder::Included })
            }
            _ => None,
        }
    }

    /// The folder whose path the form leaves out, without slashes at its ends.
    pub(super) fn excluded_folder(&self) -> Option<&[u8]> {
        self.with_folder().and(self.directory())
    }

    /// The directory of the route, without slashes at its ends. `None`: it is not a directory.
    pub(super) fn directory(&self) -> Option<&[u8]> {
        match self {
            RoutePath::Prefix { text, .. } if text.ends_with(b"/") => Some(text.trim_ascii_end_slashes()),
            _ => None,
        }
    }

    /// Whether every path of `other` is a path of this route, as far as the texts tell.
    pub(super) fn may_contain(&self, other: &RoutePath) -> bool {
        let inner = match other {
            RoutePath::Exact(inner) | RoutePath::Prefix { text: inner, .. } => inner,
            RoutePath::Expression { .. } | RoutePath::LookAround(_) => return true,
        };
        match self {
            RoutePath::Prefix { text, folder, .. } => {
                let is_folder = *folder == Folder::Included && text.strip_suffix(b"/") == Some(inner);
                inner.starts_with(text) || is_folder && matches!(other, RoutePath::Exact(_))
            }
            RoutePath::Exact(own) => own == inner,
            RoutePath::Expression { .. } | RoutePath::LookAround(_) => true,
        }
    }
}

trait Slashes {
    fn trim_ascii_end_slashes(&self) -> &[u8];
}

impl Slashes for [u8] {
    fn trim_ascii_end_slashes(&self) -> &[u8] {
        let inner = self.strip_prefix(b"/").unwrap_or(self);
        inner.strip_suffix(b"/").unwrap_or(inner)
    }
}

/// A decoded path, as requests have it after their slashes were merged.
fn plain(path: &str, span: &Range<usize>, key: &str, problems: &mut Problems) -> Option<Box<[u8]>> {
    let inner = path.strip_prefix('/');
    let is_dotted = |segment: &str| matches!(segment, "." | "..");
    let what = match inner {
        None => {
            "begins with a slash, = /, ^~ /, ~ or ~*: write for instance /api/, \"= /favicon.ico\" or \"~ \\\\.php$\""
        }
        Some(_) if path.contains(['?', '#', '%']) => "write the path decoded, without query",
        Some(inner) if path.contains("//") || inner.split('/').any(is_dotted) => {
            "write it without empty segments, . and .."
        }
        Some(_) => return Some(path.as_bytes().into()),
    };
    problems.add(span, key, what);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_path_is_known_by_its_sign() {
        let of_prefix =
            |text: &str, is_final, folder| RoutePath::Prefix { text: text.as_bytes().into(), is_final, folder };
        let prefix = |text, is_final| of_prefix(text, is_final, Folder::Included);
        for (text, expected) in [
            ("= /a", RoutePath::Exact(b"/a".as_slice().into())),
            ("/a", prefix("/a", false)),
            ("^~ /a/", prefix("/a/", true)),
            ("/a/*", of_prefix("/a/", false, Folder::Excluded)),
            ("^~ /a/*", of_prefix("/a/", true, Folder::Excluded)),
            ("/*", prefix("/", false)),
            ("/a*", prefix("/a*", false)),
            ("~ \\.php$", RoutePath::Expression { text: "\\.php$".into(), ignores_case: false }),
            ("~~ ^/a(?!b)", RoutePath::LookAround("^/a(?!b)".into())),
            ("~* ^/a b", RoutePath::Expression { text: "^/a b".into(), ignores_case: true }),
        ] {
            let mut problems = Problems::of_arguments();
            assert_eq!(RoutePath::parse(&text.to_owned().into(), "path", &mut problems), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_route_contains_the_path_of_its_folder_unless_it_leaves_it_out() {
        let path =
            |text: &str| RoutePath::parse(&text.to_owned().into(), "path", &mut Problems::of_arguments()).unwrap();
        for (outer, inner, expected) in [
            ("/a/", "= /a", true),
            ("/a/*", "= /a", false),
            ("/a/*", "= /a/", true),
            ("/a/*", "/a/b", true),
            ("/a/", "/a", false),
            ("/a/", "= /ab", false),
            ("/", "= /", true),
        ] {
            assert_eq!(path(outer).may_contain(&path(inner)), expected, "{outer} {inner}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for (text, words) in [
            ("a", "begins with a slash"),
            ("~\\.php$", "begins with a slash"),
            ("=/a", "begins with a slash"),
            ("/a%20b", "decoded"),
            ("/a?b", "without query"),
            ("/a//b", "without empty segments"),
            ("= /a/../b", "without empty segments"),
            ("~ ^a", "never matches"),
            ("~ (", "is not a regular expression"),
            ("~~ (?!", "is not a regular expression"),
        ] {
            let mut problems = Problems::of_arguments();
            assert!(RoutePath::parse(&text.to_owned().into(), "path", &mut problems).is_none(), "{text}");
            assert!(problems.to_string().contains(words), "{text}: {problems}");
        }
    }
}
