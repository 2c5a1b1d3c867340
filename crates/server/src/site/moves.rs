//! Redirects and rewrites: a path that has become another.

use std::ops::Range;

use percent_encoding::percent_encode;
use regex::bytes::{Captures, Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::Prefix;
use crate::config::{At, Problems};
use crate::response::{Response, Status};
use crate::target::{OUTSIDE_PCHAR, SitePath};

/// Sends clients elsewhere. One of `path`, `prefix` and `regex` says which.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RedirectConfig {
    /// This path alone, decoded: `/old.html`.
    pub path: Option<At<String>>,
    /// This path and all beneath it, whose rest is appended to `to`.
    pub prefix: Option<At<String>>,
    /// Decoded paths that this expression matches anywhere; write `^` and `$` for the whole.
    pub regex: Option<At<String>>,
    /// Where to: a path, or `https://…`. For a regex, `$1` or `${name}` stand for what its groups matched.
    pub to: At<String>,
    /// 301 or 308 for good, 302 or 307 for now, 303 to be fetched with GET. Without it 308.
    pub status: Option<At<u16>>,
}

/// Answers with the file of another path, without telling the client. One of `path`, `prefix` and `regex` says which.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RewriteConfig {
    /// This path alone, decoded: `/old.html`.
    pub path: Option<At<String>>,
    /// This path and all beneath it, whose rest is appended to `to`.
    pub prefix: Option<At<String>>,
    /// Decoded paths that this expression matches anywhere; write `^` and `$` for the whole.
    pub regex: Option<At<String>>,
    /// The path instead. For a regex, `$1` or `${name}` stand for what its groups matched.
    pub to: At<String>,
}

/// The redirects of a site; the first that matches counts.
#[derive(Debug)]
pub struct Redirects(Vec<(Rule, Status)>);

/// The rewrites of a site; the first that matches counts, and its result is not looked at again.
#[derive(Debug)]
pub struct Rewrites(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    from: From,
    to: String,
}

#[derive(Debug)]
enum From {
    /// Decoded, with its slashes.
    Path(Vec<u8>),
    Prefix(Prefix),
    Regex(Regex),
}

impl Redirects {
    /// Checks every rule, alone and for circles. `None`: there are none.
    pub fn build(configs: &[RedirectConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let mut rules = Vec::new();
        for config in configs {
            let status = match &config.status {
                None => Status::PermanentRedirect,
                Some(status) => match **status {
                    301 => Status::MovedPermanently,
                    302 => Status::Found,
                    303 => Status::SeeOther,
                    307 => Status::TemporaryRedirect,
                    308 => Status::PermanentRedirect,
                    _ => {
                        let remedy =
                            "write 301 or 308 (for good), 302 or 307 (for now), or 303 (to be fetched with GET)";
                        problems.add(&status.span, &format!("{key}.status"), remedy);
                        continue;
                    }
                },
            };
            let from = [("path", &config.path), ("prefix", &config.prefix), ("regex", &config.regex)];
            rules.extend(Rule::build(from, &config.to, Target::PathOrUri, key, problems).map(|rule| (rule, status)));
        }
        let all = Redirects(rules);
        if problems.is_empty() {
            for config in configs {
                all.check_for_circle(&config.to, key, problems);
            }
        }
        (!all.0.is_empty()).then_some(all)
    }

    /// The answer, if a rule matches. `origin`: the authority of the request.
    pub fn answer(&self, path: &SitePath<'_>, query: Option<&str>, origin: Option<&str>) -> Option<Response> {
        let full = path.full();
        let (location, status) = self.find(&full)?;
        let here: String = percent_encode(&full, OUTSIDE_PCHAR).collect();
        let (target, fragment) = location.split_at(location.find('#').unwrap_or(location.len()));
        let (target, own_query) = target.split_at(target.find('?').unwrap_or(target.len()));
        let query = query.map_or_else(String::new, |query| format!("?{query}"));
        let absolute = || origin.is_some_and(|host| target.strip_prefix("https://") == Some(&*format!("{host}{here}")));
        // It would come back at once.
        if (target == here || absolute()) && (own_query.is_empty() || own_query == query) {
            return None;
        }
        let mut response = Response::plain(status);
        let query = if own_query.is_empty() { &query } else { own_query };
        response.fields.location = Some(format!("{target}{query}{fragment}"));
        Some(response)
    }

    fn find(&self, full: &[u8]) -> Option<(String, Status)> {
        self.0.iter().find_map(|(rule, status)| Some((rule.apply(full)?, *status)))
    }

    fn check_for_circle(&self, to: &At<String>, key: &str, problems: &mut Problems) {
        let path = |target: &str| target.split(['?', '#']).next().unwrap_or_default().to_owned();
        let mut at = path(to);
        if at.contains('$') {
            return;
        }
        for _ in 0..=self.0.len() {
            if !at.starts_with('/') {
                return;
            }
            match self.find(at.as_bytes()).map(|(next, _)| path(&next)) {
                None => return,
                Some(next) if next == at => return,
                Some(next) => at = next,
            }
        }
        problems.add(&to.span, &format!("{key}.to"), "leads in a circle: another redirect, or this one, takes it on");
    }
}

impl Rewrites {
    /// Checks every rule. `None`: there are none.
    pub fn build(configs: &[RewriteConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let rules = configs.iter().filter_map(|config| {
            let from = [("path", &config.path), ("prefix", &config.prefix), ("regex", &config.regex)];
            Rule::build(from, &config.to, Target::Path, key, problems)
        });
        let rules: Vec<_> = rules.collect();
        (!rules.is_empty()).then_some(Rewrites(rules))
    }

    /// The path instead, percent-encoded; `None` if no rule matches.
    pub fn apply(&self, path: &SitePath<'_>) -> Option<String> {
        let full = path.full();
        self.0.iter().find_map(|rule| rule.apply(&full))
    }
}

enum Target {
    Path,
    PathOrUri,
}

impl Rule {
    fn build(
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
            _ => match RegexBuilder::new(value).dot_matches_new_line(true).size_limit(REGEX_SIZE).build() {
                Ok(regex) => From::Regex(regex),
                Err(error) => {
                    let error = error.to_string().lines().last().unwrap_or_default().to_owned();
                    problems.add(&value.span, &from_key, format!("is no expression: {error}"));
                    return None;
                }
            },
        };
        let is_template = matches!(from, From::Regex(_));
        check_target(to, &to.span, target, is_template, &format!("{key}.to"), problems);
        (problems.len() == before).then(|| Rule { from, to: to.value.clone() })
    }

    /// Where `full` leads, percent-encoded.
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
        // `//host` would name another host, and a group can begin with a slash.
        Some(if to.starts_with('/') { format!("/{}", to.trim_start_matches('/')) } else { to })
    }
}

/// Replaces `$1`, `${1}`, `${name}` and `$$`; what groups matched is percent-encoded.
fn expand(template: &str, captures: &Captures<'_>) -> String {
    let mut encoded = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        encoded.push_str(before);
        let (name, after) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(named) => named,
            None => after.split_at(after.bytes().take_while(u8::is_ascii_digit).count()),
        };
        let group = match name.parse() {
            Ok(number) => captures.get(number),
            Err(_) => captures.name(name),
        };
        encoded.extend(group.iter().flat_map(|group| percent_encode(group.as_bytes(), OUTSIDE_PCHAR)));
        rest = after;
    }
    encoded + rest
}

fn check_target(to: &str, span: &Range<usize>, target: Target, is_template: bool, key: &str, problems: &mut Problems) {
    let uri = to.strip_prefix("https://").or_else(|| to.strip_prefix("http://"));
    let remedy = if !to.bytes().all(|octet| octet.is_ascii_graphic()) || to.contains(['\\', '"', '<', '>']) {
        "percent-encode what is not visible ASCII, and \\ \" < >"
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
            "the host must be written out: what a client sends cannot choose it"
        } else if path.contains('$') && !path.starts_with('/') {
            "write a slash after the host: else what a client sends becomes part of it"
        } else {
            return;
        }
    } else {
        "write a path that begins with a slash, or, for a redirect, https://…"
    };
    problems.add(span, key, remedy);
}

/// GUESS: bytes of a compiled expression; what operators write has a few thousand.
const REGEX_SIZE: usize = 1 << 20;

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
