//! Rules that map a path to a target: the base of redirects and rewrites.

use std::collections::HashMap;
use std::ops::Range;

use percent_encoding::{AsciiSet, percent_encode};
use regex::bytes::{Captures, Regex};
use sealion_http::path::OUTSIDE_PCHAR;

use super::pattern::{Octets, Prefix, build_regex};
use crate::values::{At, Problems};

#[derive(Debug)]
pub(super) struct Rule {
    from: From,
    to: String,
}

#[derive(Debug)]
enum From {
    /// Decoded, with slashes.
    Path(Vec<u8>),
    Prefix(Prefix),
    Regex(Regex),
}

pub(super) enum Target {
    Path,
    PathOrUri,
}

impl Rule {
    pub(super) fn build(
        from: [(&str, &Option<At<String>>); 3],
        to: &At<String>,
        target: Target,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let before = problems.len();
        let mut given = from.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let (Some((name, value)), None) = (given.next(), given.next()) else {
            problems.add(&to.span, key, "write one of path, prefix and regex");
            return None;
        };
        let from_key = format!("{key}.{name}");
        let from = match name {
            "path" if value.starts_with('/') && !value.contains(['%', '?', '#']) => {
                From::Path(value.as_bytes().to_vec())
            }
            "path" => {
                problems.add(&value.span, &from_key, "write a decoded path that begins with a slash, without query");
                return None;
            }
            "prefix" => From::Prefix(Prefix::build(value, &value.span, &from_key, problems)?),
            _ => From::Regex(build_regex(value, Octets::Unicode, &value.span, &from_key, problems)?),
        };
        let is_template = matches!(from, From::Regex(_));
        check_target(to, &to.span, target, is_template, &format!("{key}.to"), problems);
        (problems.len() == before).then(|| Rule { from, to: to.value.clone() })
    }

    /// Whether it certainly matches every path that `other` matches.
    fn covers_all_of(&self, other: &Rule) -> bool {
        match (&self.from, &other.from) {
            (From::Path(own), From::Path(other)) => own == other,
            (From::Prefix(own), From::Path(other)) => other.strip_prefix(b"/").is_some_and(|name| own.covers(name)),
            (From::Prefix(own), From::Prefix(other)) => own.covers(other.as_bytes()),
            (From::Path(_) | From::Regex(_), _) | (_, From::Regex(_)) => false,
        }
    }

    /// The target for the path `full`, percent-encoded. `None`: the rule does not match.
    fn apply(&self, full: &[u8]) -> Option<String> {
        let to = match &self.from {
            From::Path(path) => (full == path).then(|| self.to.clone())?,
            From::Prefix(prefix) => {
                let rest = prefix.rest(full.strip_prefix(b"/")?)?;
                let (to, behind) = self.to.split_at(self.to.find(['?', '#']).unwrap_or(self.to.len()));
                if rest.is_empty() {
                    self.to.clone()
                } else {
                    format!("{}/{}{behind}", to.trim_end_matches('/'), percent_encode(rest, OUTSIDE_PCHAR))
                }
            }
            From::Regex(regex) => expand(&self.to, &regex.captures(full)?),
        };
        // `//host` would name another host, and a captured group can begin with a slash.
        Some(if to.starts_with('/') { format!("/{}", to.trim_start_matches('/')) } else { to })
    }
}

/// Rules in their order, each with what belongs to it. The first that matches a path applies. Ten thousand rules for one path each, as of a
/// site that has moved, cost a request no more than ten.
#[derive(Debug)]
pub(super) struct Rules<T> {
    all: Vec<(Rule, T)>,
    /// Places of the rules for one path, by that path.
    exact: HashMap<Vec<u8>, usize>,
    /// Places of the others.
    patterns: Vec<usize>,
}

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Rules { all: Vec::new(), exact: HashMap::new(), patterns: Vec::new() }
    }
}

impl<T> Rules<T> {
    /// Adds a rule behind the others. One of which they leave nothing is an error.
    pub(super) fn push(&mut self, rule: Rule, with: T, to: &At<String>, key: &str, problems: &mut Problems) {
        let place = self.all.len();
        let mut patterns = self.patterns.iter().map(|&place| &self.all[place].0);
        let is_covered = patterns.any(|before| before.covers_all_of(&rule));
        let is_again = match &rule.from {
            From::Path(path) => *self.exact.entry(path.clone()).or_insert(place) != place,
            From::Prefix(_) | From::Regex(_) => {
                self.patterns.push(place);
                false
            }
        };
        if is_covered || is_again {
            let what = "is never reached: a rule before it covers its paths: move this one before that, or remove it";
            problems.add(&to.span, key, what);
        }
        self.all.push((rule, with));
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// What the first matching rule makes of the path `full`, and what belongs to it.
    pub(super) fn first(&self, full: &[u8]) -> Option<(String, &T)> {
        let exact = self.exact.get(full);
        let before = self.patterns.iter().take_while(|&place| exact.is_none_or(|exact| place < exact));
        before.chain(exact).find_map(|&place| {
            let (rule, with) = &self.all[place];
            Some((rule.apply(full)?, with))
        })
    }
}

/// What a path may have and a parameter of a query may not: it would end there, or another would begin.
const OUTSIDE_PARAMETER: &AsciiSet = &OUTSIDE_PCHAR.add(b'&').add(b'+').add(b';').add(b'=');

/// Expands `$1`, `${1}`, `${name}` and `$$`. Captured text is percent-encoded: in a query as a part of one parameter.
fn expand(template: &str, captures: &Captures<'_>) -> String {
    let mut encoded = String::new();
    let mut rest = template;
    let mut is_query = false;
    while let Some((before, after)) = rest.split_once('$') {
        encoded.push_str(before);
        is_query |= before.contains('?');
        let (name, after) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(named) => named,
            None => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
        };
        let group = match name.parse() {
            Ok(number) => captures.get(number),
            Err(_) => captures.name(name),
        };
        let outside = if is_query { OUTSIDE_PARAMETER } else { OUTSIDE_PCHAR };
        encoded.extend(group.iter().flat_map(|group| percent_encode(group.as_bytes(), outside)));
        rest = after;
    }
    encoded + rest
}

fn check_target(to: &str, span: &Range<usize>, target: Target, is_template: bool, key: &str, problems: &mut Problems) {
    let uri = to.strip_prefix("https://").or_else(|| to.strip_prefix("http://"));
    let remedy = if !to.bytes().all(|octet| octet.is_ascii_graphic()) || to.contains(['\\', '"', '<', '>']) {
        "percent-encode everything but visible ASCII, and \\ \" < >"
    } else if to.starts_with("//") {
        "begins with two slashes, which names another host: write one, or https://"
    } else if to.starts_with('/') {
        match (is_template, to.contains('$')) {
            (false, true) => "only a regex has groups: write %24 for a dollar sign",
            _ if matches!(target, Target::Path) && to.contains(['?', '#']) => "is a path: no ? and no #",
            _ => return,
        }
    } else if let (Some(uri), Target::PathOrUri) = (uri, target) {
        let (host, path) = uri.split_at(uri.find(['/', '?', '#']).unwrap_or(uri.len()));
        if host.is_empty() || host.contains(['$', '@']) {
            "the host must be literal: a request must not choose it"
        } else if path.contains('$') && !path.starts_with('/') {
            "write a slash after the host: otherwise captured text becomes part of it"
        } else {
            return;
        }
    } else {
        "write a path that begins with a slash, or, for a redirect, https://…"
    };
    problems.add(span, key, remedy);
}

#[cfg(test)]
#[path = "path_rule_tests.rs"]
mod tests;
