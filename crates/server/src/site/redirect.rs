//! Redirects.

use percent_encoding::percent_encode;
use schemars::JsonSchema;
use sealion_http::Status;
use sealion_http::path::{OUTSIDE_PCHAR, SitePath};
use serde::{Deserialize, Serialize};

use super::path_rule::{Rule, Rules, Target};
use crate::response::Response;
use crate::values::{At, Problems};

/// A redirect. Exactly one of `path`, `prefix` and `regex` selects the requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RedirectConfig {
    /// Exact path, decoded: `/old.html`.
    pub path: Option<At<String>>,
    /// Path with everything beneath it; the rest of the path is appended to `to`.
    pub prefix: Option<At<String>>,
    /// Regular expression for decoded paths. It matches anywhere; anchor it with `^` and `$`.
    pub regex: Option<At<String>>,
    /// Target: a path, or `https://…`. For a regex, `$1` or `${name}` insert the text of a group.
    pub to: At<String>,
    /// Status: 301 or 308 (permanent), 302 or 307 (temporary), or 303 (fetched with GET). Default: 308. Requests with other methods
    /// than GET and HEAD are redirected by 307 and 308, which keep the method.
    pub status: Option<At<u16>>,
    /// The query of the target.
    pub query: RedirectQuery,
}

/// Which query a redirect leads to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RedirectQuery {
    /// That of the request, unless `to` has one.
    #[default]
    Keep,
    /// That of `to`, and that of the request behind it.
    Append,
    /// That of `to` alone.
    Drop,
}

/// The redirects of a site; the first match wins.
#[derive(Debug)]
pub(crate) struct Redirects(Rules<Redirect>);

#[derive(Debug)]
struct Redirect {
    status: Status,
    query: RedirectQuery,
}

impl Redirects {
    /// Validates the rules, and checks them for loops. `None`: there are none.
    pub(crate) fn build(configs: &[RedirectConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let mut all = Rules::default();
        for config in configs {
            let status = match &config.status {
                None => Status::PERMANENT_REDIRECT,
                Some(status) => match **status {
                    301 => Status::MOVED_PERMANENTLY,
                    302 => Status::FOUND,
                    303 => Status::SEE_OTHER,
                    307 => Status::TEMPORARY_REDIRECT,
                    308 => Status::PERMANENT_REDIRECT,
                    _ => {
                        let remedy = "write 301 or 308 (permanent), 302 or 307 (temporary), or 303 (fetched with GET)";
                        problems.add(&status.span, &format!("{key}.status"), remedy);
                        continue;
                    }
                },
            };
            let from = [("path", &config.path), ("prefix", &config.prefix), ("regex", &config.regex)];
            let trimmed = |text: &At<String>| text.trim_end_matches('/').to_owned();
            let is_same = config.path.as_ref().is_some_and(|path| path.value == config.to.value)
                || config.prefix.as_ref().is_some_and(|prefix| trimmed(prefix) == trimmed(&config.to));
            if is_same {
                let what =
                    "is the path itself, which would be asked for again: name another one, or remove the redirect";
                problems.add(&config.to.span, &format!("{key}.to"), what);
            }
            if let Some(rule) = Rule::build(from, &config.to, Target::PathOrUri, key, problems) {
                all.push(rule, Redirect { status, query: config.query }, &config.to, key, problems);
            }
        }
        let all = Redirects(all);
        if problems.is_empty() {
            for config in configs {
                all.check_for_loop(&config.to, key, problems);
            }
        }
        (all.0.len() > 0).then_some(all)
    }

    /// The redirect for a request with another method than GET and HEAD: one whose status keeps the method.
    pub(crate) fn answer_any_method(
        &self,
        path: &SitePath<'_>,
        query: Option<&str>,
        origin: Option<(&str, &str)>,
    ) -> Option<Response> {
        let keeps_method = |status| matches!(status, Status::TEMPORARY_REDIRECT | Status::PERMANENT_REDIRECT);
        self.answer(path, query, origin).filter(|response| keeps_method(response.status))
    }

    /// The redirect for a request, if a rule matches. `origin`: the scheme with two slashes, and the authority of the request.
    pub(crate) fn answer(
        &self,
        path: &SitePath<'_>,
        query: Option<&str>,
        origin: Option<(&str, &str)>,
    ) -> Option<Response> {
        let full = path.full();
        let (location, Redirect { status, query: kind }) = self.0.first(&full)?;
        let here: String = percent_encode(&full, OUTSIDE_PCHAR).collect();
        let (target, fragment) = location.split_at(location.find('#').unwrap_or(location.len()));
        let (target, own_query) = target.split_at(target.find('?').unwrap_or(target.len()));
        let asked = query.map_or_else(String::new, |query| format!("?{query}"));
        let query = match kind {
            RedirectQuery::Keep | RedirectQuery::Append if own_query.is_empty() => asked.clone(),
            RedirectQuery::Append => match query {
                Some(query) if !query.is_empty() => format!("{own_query}&{query}"),
                _ => own_query.to_owned(),
            },
            RedirectQuery::Keep | RedirectQuery::Drop => own_query.to_owned(),
        };
        let is_same = |(scheme, host): (&str, &str)| target.strip_prefix(scheme) == Some(&*format!("{host}{here}"));
        let absolute = || origin.is_some_and(is_same);
        // The client would request the same URL again, or with a longer query each time.
        if (target == here || absolute()) && (query == asked || *kind == RedirectQuery::Append) {
            return None;
        }
        let mut response = Response::plain(*status);
        response.fields.location = Some(format!("{target}{query}{fragment}"));
        Some(response)
    }

    fn check_for_loop(&self, to: &At<String>, key: &str, problems: &mut Problems) {
        let path = |target: &str| target.split(['?', '#']).next().unwrap_or_default().to_owned();
        let mut at = path(to);
        if at.contains('$') {
            return;
        }
        for _ in 0..=self.0.len() {
            if !at.starts_with('/') {
                return;
            }
            match self.0.first(at.as_bytes()).map(|(next, _)| path(&next)) {
                None => return,
                Some(next) if next == at => return,
                Some(next) => at = next,
            }
        }
        problems.add(
            &to.span,
            &format!("{key}.to"),
            "is a redirect loop: this rule or another one redirects the target again",
        );
    }
}
