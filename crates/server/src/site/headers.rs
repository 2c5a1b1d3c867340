//! Fields that an operator adds to responses: by path, from a preset, HSTS and Cache-Control.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use sealion_http::Fields;
use sealion_http::extra_fields::{ExtraFields, is_name, is_value};
use serde::{Deserialize, Serialize};

use super::hsts::HstsConfig;
use super::pattern::PathPattern;
use super::security_headers::SecurityHeaders;
use crate::values::{At, Problems};

/// Fields for the responses to some paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HeadersRule {
    /// The files it is for: `*.css` by name, `/assets/**` from the root; the path of the request where no file is sent.
    pub path: At<String>,
    /// Fields to send, by name. They replace those of earlier rules and of the preset.
    pub set: BTreeMap<String, At<String>>,
    /// Fields of earlier rules and of the preset not to send.
    pub unset: Vec<At<String>>,
}

impl Default for HeadersRule {
    fn default() -> Self {
        HeadersRule { path: "**".to_owned().into(), set: BTreeMap::new(), unset: Vec::new() }
    }
}

/// Cache-Control for the responses to some paths.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheControlRule {
    /// The files it is for: `*.css` by name, `/assets/**` from the root.
    pub path: At<String>,
    /// What to say, for instance `public, max-age=31536000, immutable` or `no-cache`.
    pub value: At<String>,
}

/// What the keys of a site say of fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadersConfig<'a> {
    /// `headers`.
    pub rules: &'a [HeadersRule],
    /// `cache_control`.
    pub cache_control: &'a [CacheControlRule],
    /// `security_headers`.
    pub security: SecurityHeaders,
    /// `hsts`.
    pub hsts: &'a HstsConfig,
    /// Whether the site is reached over plain HTTP only.
    pub plain: bool,
}

/// The fields of a site's responses.
#[derive(Debug)]
pub(crate) struct Headers {
    /// Of every response, where no rule looks at paths.
    all: Option<ExtraFields>,
    /// The preset, HSTS, then the rules.
    steps: Vec<Step>,
    cache_control: Vec<(PathPattern, String)>,
}

#[derive(Debug)]
struct Step {
    path: PathPattern,
    set: Vec<(String, String)>,
    unset: Vec<String>,
}

impl HeadersConfig<'_> {
    /// Checks every name, value and pattern. `None`: there is nothing to add to any response.
    pub(super) fn build(&self, key: &str, problems: &mut Problems) -> Option<Headers> {
        let mut steps = Vec::new();
        let mut preset: Vec<_> =
            self.security.fields().iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if let Some(value) = self.hsts.build(&dotted(key, "hsts"), self.plain, problems) {
            preset.push(("Strict-Transport-Security".to_owned(), value));
        }
        if !preset.is_empty() {
            steps.push(Step { path: PathPattern::every(), set: preset, unset: Vec::new() });
        }
        let headers = dotted(key, "headers");
        steps.extend(self.rules.iter().filter_map(|rule| rule.build(&headers, problems)));
        let cache_key = dotted(key, "cache_control");
        let mut cache_control = Vec::new();
        for rule in self.cache_control {
            let path = PathPattern::build(&rule.path, &rule.path.span, &format!("{cache_key}.path"), problems);
            if rule.value.is_empty() || !is_value(&rule.value) {
                let remedy = "write directives in visible ASCII, for instance public, max-age=3600";
                problems.add(&rule.value.span, &format!("{cache_key}.value"), remedy);
            } else if let Some(path) = path {
                cache_control.push((path, rule.value.value.clone()));
            }
        }
        if steps.is_empty() && cache_control.is_empty() {
            return None;
        }
        let all = steps.iter().all(|step| step.path.is_every()).then(|| {
            let mut fields = ExtraFields::default();
            apply(&steps, b"", &mut fields);
            fields
        });
        Some(Headers { all, steps, cache_control })
    }
}

impl HeadersRule {
    fn build(&self, key: &str, problems: &mut Problems) -> Option<Step> {
        let before = problems.len();
        let path = PathPattern::build(&self.path, &self.path.span, &format!("{key}.path"), problems);
        if self.set.is_empty() && self.unset.is_empty() {
            problems.add(
                &self.path.span,
                key,
                "does nothing: add set = { \"Name\" = \"value\" } or unset = [\"Name\"]",
            );
        }
        for (name, value) in &self.set {
            let key = format!("{key}.set.{name}");
            if !is_name(name) {
                problems.add(&value.span, &key, "is no name of a field: letters, digits and hyphens");
            } else if let Some((_, remedy)) = OURS.iter().find(|(ours, _)| ours.eq_ignore_ascii_case(name)) {
                problems.add(&value.span, &key, format!("is not set here: {remedy}"));
            }
            if !is_value(value) {
                problems.add(&value.span, &key, "write visible ASCII, without blanks at the ends");
            }
        }
        for name in &self.unset {
            let key = format!("{key}.unset");
            if name.eq_ignore_ascii_case("server") {
                problems.add(&name.span, &key, "use server_header = false of the site");
            } else if !is_name(name) {
                problems.add(&name.span, &key, "is no name of a field: letters, digits and hyphens");
            }
        }
        (problems.len() == before).then_some(())?;
        let set = self.set.iter().map(|(name, value)| (name.clone(), value.value.clone())).collect();
        Some(Step { path: path?, set, unset: self.unset.iter().map(|name| name.value.clone()).collect() })
    }
}

impl Headers {
    /// Adds the site's fields to those of a response. `name`: the file that is sent, or what the request named, decoded and
    /// without a slash at its beginning. What a response says already, it goes on saying.
    pub(crate) fn add(&self, name: &[u8], fields: &mut Fields) {
        match &self.all {
            Some(all) if fields.extra.is_empty() => fields.extra = all.clone(),
            Some(all) => {
                for (field, value) in all.iter() {
                    add_to(&mut fields.extra, field, value);
                }
            }
            None => apply(&self.steps, name, &mut fields.extra),
        }
        // A response with a file, or what stands for it, has its tag: an error must not be kept for a year, nor a listing.
        if fields.etag.is_some()
            && let Some((_, value)) = self.cache_control.iter().rev().find(|(path, _)| path.matches(name))
            && !fields.extra.has("cache-control")
        {
            fields.extra.add("Cache-Control", value);
        }
    }
}

/// The last rule that speaks of a field wins.
fn apply(steps: &[Step], name: &[u8], fields: &mut ExtraFields) {
    let mut chosen: Vec<(&str, &str)> = Vec::new();
    for step in steps.iter().filter(|step| step.path.matches(name)) {
        let speaks_of = |field: &str| {
            step.unset.iter().chain(step.set.iter().map(|(field, _)| field)).any(|own| own.eq_ignore_ascii_case(field))
        };
        chosen.retain(|(field, _)| !speaks_of(field));
        chosen.extend(step.set.iter().map(|(field, value)| (&**field, &**value)));
    }
    for (field, value) in chosen {
        add_to(fields, field, value);
    }
}

/// What a response says already counts, but for Vary, of which each says one more thing to look at.
fn add_to(fields: &mut ExtraFields, field: &str, value: &str) {
    if field.eq_ignore_ascii_case("vary") || !fields.has(field) {
        fields.add(field, value);
    }
}

fn dotted(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// Whether rules cannot set a field, because the server makes it itself or another key does.
pub(crate) fn is_ours(name: &str) -> bool {
    OURS.iter().any(|(ours, _)| ours.eq_ignore_ascii_case(name))
}

/// Fields that the server makes itself, or another key, and what to do instead.
const OURS: &[(&str, &str)] = &[
    ("Accept-Ranges", "the server says it where it is so"),
    ("Access-Control-Allow-Credentials", "use cors"),
    ("Access-Control-Allow-Headers", "use cors"),
    ("Access-Control-Allow-Methods", "use cors"),
    ("Access-Control-Allow-Origin", "use cors"),
    ("Access-Control-Expose-Headers", "use cors"),
    ("Access-Control-Max-Age", "use cors"),
    ("Allow", "the server says it"),
    ("Cache-Control", "use cache_control"),
    ("Connection", "it belongs to the connection"),
    ("Content-Encoding", "it follows from the file that is sent"),
    ("Content-Length", "it follows from the file that is sent"),
    ("Content-Range", "it follows from the request"),
    ("Content-Type", "use media_types"),
    ("Date", "the server says it"),
    ("ETag", "it follows from the file that is sent"),
    ("Keep-Alive", "it belongs to the connection"),
    ("Last-Modified", "it follows from the file that is sent"),
    ("Location", "use redirects"),
    ("Retry-After", "the server says it"),
    ("Server", "the server says it; server_header = false leaves it out"),
    ("Strict-Transport-Security", "use hsts"),
    ("Trailer", "it belongs to the connection"),
    ("Transfer-Encoding", "it belongs to the connection"),
    ("Upgrade", "it belongs to the connection"),
    ("WWW-Authenticate", "use basic_auth"),
];

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
