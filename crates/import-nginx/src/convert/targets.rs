//! Files sent in place of the requested one: error pages, fallbacks, indexes, rewrite targets. The rules of a site do not
//! check all of these, so none may be a program or a file that a location refuses.

use super::guards;
use super::location::Scope;
use super::{pcre, values};
use crate::syntax::Directive;

/// The locations of a server, including nested ones.
#[derive(Debug, Default)]
pub(super) struct Targets(Vec<Location>);

#[derive(Debug)]
struct Location {
    paths: Paths,
    closed: bool,
    /// Whether its requests are forwarded, and nothing else withholds its files.
    forwards: bool,
    shown: String,
}

#[derive(Debug)]
enum Paths {
    Exact(String),
    Prefix(String),
    /// `None`: an unsupported expression, which may match anything.
    Regex(Option<regex::bytes::Regex>),
}

impl Targets {
    pub(super) fn of(server: &Directive) -> Self {
        let mut targets = Targets::default();
        targets.add(server, false);
        targets
    }

    fn add(&mut self, block: &Directive, outer_is_closed: bool) {
        for location in block.children().iter().filter(|inner| inner.name == "location") {
            let closed = outer_is_closed || location.children().iter().any(closes);
            let paths = match Scope::of(location) {
                None => continue,
                Some(Scope::Everything) => Paths::Prefix("/".to_owned()),
                Some(Scope::Exact(path)) => Paths::Exact(path),
                Some(Scope::Prefix(path)) => Paths::Prefix(path),
                Some(Scope::Regex { .. }) => {
                    // The modifier may stand before the expression without a space.
                    let regex = match location.arguments.as_slice() {
                        [both] => both.trim_start_matches('~').trim_start_matches('*'),
                        [.., regex] => regex,
                        [] => "",
                    };
                    Paths::Regex(at_least(regex))
                }
            };
            let is_pass = |inner: &Directive| inner.name == "proxy_pass";
            let (passes, others): (Vec<_>, Vec<_>) = location.children().iter().partition(|inner| is_pass(inner));
            let forwards = !passes.is_empty() && !outer_is_closed && !others.into_iter().any(closes);
            self.0.push(Location { paths, closed, forwards, shown: format!("{location} at {}", location.place) });
            self.add(location, closed);
        }
    }

    /// Whether a path is forwarded, so that no file is sent. What its location guards is guarded for rewritten paths, too.
    pub(super) fn forwards(&self, target: &str) -> bool {
        let path = target.split(['?', '#', '$']).next().unwrap_or(target);
        let prefixes = self.0.iter().filter_map(|one| match &one.paths {
            Paths::Exact(exact) if exact == target => Some((usize::MAX, one)),
            Paths::Prefix(prefix) if path.starts_with(prefix.as_str()) => Some((prefix.len(), one)),
            _ => None,
        });
        prefixes.max_by_key(|(len, _)| *len).is_some_and(|(_, one)| one.forwards)
    }

    /// Why a path must not be sent in place of another. `None`: it may be.
    pub(super) fn objection(&self, target: &str) -> Option<String> {
        let path = target.split(['?', '#']).next().unwrap_or(target);
        let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
        if is_program(&decoded) {
            return Some(format!(
                "{path} is a program, and clients would get its source: name a static file, or keep nginx for this \
                 path"
            ));
        }
        let known = decoded.split('$').next().unwrap_or_default();
        let refused_by = |location: &Location| match location.forwards {
            true => format!(
                "{path} is answered by {}, and by no file: write a location for the file alone, with internal",
                location.shown
            ),
            false => format!(
                "{path} is refused by {}, but would be sent here: name a file that no location refuses",
                location.shown
            ),
        };
        // An exact location overrides all others.
        if let Some(exact) = self.0.iter().find(|one| matches!(&one.paths, Paths::Exact(path) if **path == *decoded)) {
            return exact.closed.then(|| refused_by(exact));
        }
        let prefixes = self.0.iter().filter_map(|one| match &one.paths {
            Paths::Prefix(prefix) if known.starts_with(prefix.as_str()) => Some((prefix.len(), one)),
            _ => None,
        });
        let longest = prefixes.max_by_key(|(len, _)| *len).map(|(_, one)| one);
        let regexes = self.0.iter().filter(|one| match &one.paths {
            Paths::Regex(regex) => regex.as_ref().is_none_or(|regex| regex.is_match(known.as_bytes())),
            _ => false,
        });
        longest.into_iter().chain(regexes).find(|one| one.closed).map(refused_by)
    }
}

/// Whether a directive of a location withholds its files from some clients or all. `internal` does not: it exists for
/// error pages, indexes and fallbacks.
fn closes(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "location" | "internal" | "allow" => false,
        "return" => true,
        _ => guards::guards(directive),
    }
}

/// Whether a path names a program or a path inside one (`/index.php/x`), whose source a file server would send.
pub(super) fn is_program(path: &str) -> bool {
    path.split('/').any(|segment| {
        let segment = segment.trim_end_matches(['~', '.', ' ']).to_ascii_lowercase();
        let name = [".gz", ".br", ".zst"].iter().find_map(|coding| segment.strip_suffix(coding)).unwrap_or(&segment);
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let plain = extension.trim_end_matches(|c: char| c.is_ascii_digit());
        PROGRAMS.contains(&extension) || plain == "php" || matches!(name, "cgi-bin" | "fcgi-bin")
    })
}

/// Extensions of server-side programs.
const PROGRAMS: &[&str] = &[
    "action", "ashx", "asmx", "asp", "aspx", "bash", "cfm", "cgi", "do", "exs", "fcgi", "fpl", "inc", "jsp", "jspx",
    "lua", "phar", "php", "phps", "pht", "phtm", "phtml", "pl", "pm", "psgi", "py", "pyc", "rb", "rhtml", "sh", "tcl",
    "wsgi",
];

/// An expression that matches at least the paths of a location. `None`: its own is not supported.
fn at_least(regex: &str) -> Option<regex::bytes::Regex> {
    // Ignore case, to match more rather than less.
    let regex = values::regex_of_pcre(&pcre::without_look_around(regex), true)?;
    regex::bytes::Regex::new(&format!("(?s-u){}", values::with_end_of_pcre(&regex)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs() {
        for path in [
            "/index.php",
            "/INDEX.PhP",
            "/index.php/x/y",
            "/x.php5",
            "/x.phtml",
            "/x.phar",
            "/a/x.cgi",
            "/x.pl",
            "/x.py",
            "/x.rb",
            "/x.jsp",
            "/x.asp",
            "/x.aspx",
            "/x.lua",
            "/x.sh",
            "/x.fcgi",
            "/cgi-bin/x",
            "/x.php.gz",
            "/x.php~",
            "/$1.php",
            "index.php",
            "/x.php.",
        ] {
            assert!(is_program(path), "{path}");
        }
        for path in [
            "/",
            "/404.html",
            "/php",
            "/php/x.html",
            "/x.html",
            "/photos.zip",
            "/a.b/c",
            "/x.js",
            "/.php5.html",
            "/50x.html",
        ] {
            assert!(!is_program(path), "{path}");
        }
    }

    #[test]
    fn a_location_is_matched_as_nginx_matches_it_or_may_match_anything() {
        for (regex, path) in [
            (r"^/caf\x{e9}$", &b"/caf\xe9"[..]),
            (r"^/sec\.html$", b"/sec.html\n"),
            (r"^/a\v", b"/a\x0b"),
            (r"^/a\v", b"/a\n"),
            (r"^/x[(?!a)]y", b"/x!y"),
            (r"^/x(?![)]a)y", b"/xy"),
            (r"(?U)^/(a+)$", b"/aa"),
            (r"[]-a]", b"^"),
        ] {
            let matches = at_least(regex).is_none_or(|regex| regex.is_match(path));
            assert!(matches, "{regex} {}", path.escape_ascii());
        }
        let ours = at_least(r"^/(?!public)[^]$]+/sec$").unwrap();
        assert!(ours.is_match(b"/n/sec") && !ours.is_match(b"/$/sec"));
    }
}
