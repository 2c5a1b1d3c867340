//! Header fields that the configuration adds to responses: rules by path, a preset, HSTS and Cache-Control.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use sealion_http::extra_fields::{ExtraFields, is_name, is_value};
use sealion_http::{Fields, Status};
use serde::{Deserialize, Serialize};

use super::hsts::HstsConfig;
use super::pattern::PathPattern;
use super::security_headers::SecurityHeaders;
use crate::placeholders::{Asked, Form, Known, Template};
use crate::values::{At, Problems, Secret};

/// Header fields for responses, by path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HeadersRule {
    /// Files to apply the rule to: `*.css` by name, `/assets/**` from the root. Responses without a file match by request path.
    pub path: At<String>,
    /// Fields to send. They replace fields of earlier rules and of the preset.
    pub set: BTreeMap<String, At<Secret>>,
    /// Fields of earlier rules and of the preset to remove.
    pub unset: Vec<At<String>>,
    /// Whether responses of every status get the fields. `false`: those with 200, 201, 204, 206, 301, 302, 303, 304, 307 and 308, as without `always` in nginx.
    pub always: bool,
}

impl Default for HeadersRule {
    fn default() -> Self {
        HeadersRule { path: "**".to_owned().into(), set: BTreeMap::new(), unset: Vec::new(), always: true }
    }
}

/// Cache-Control for responses with a file, by path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheControlRule {
    /// Files to apply the rule to: `*.css` by name, `/assets/**` from the root.
    pub path: At<String>,
    /// Directives, for instance `public, max-age=31536000, immutable` or `no-cache`.
    pub value: At<String>,
}

/// The keys of a site that concern header fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadersConfig<'a> {
    /// The key `headers`.
    pub rules: &'a [HeadersRule],
    pub cache_control: &'a [CacheControlRule],
    /// The key `security_headers`.
    pub security: SecurityHeaders,
    pub hsts: &'a HstsConfig,
    /// Whether the site is reachable only over plain HTTP.
    pub plain: bool,
    /// Names of placeholders.
    pub known: Known<'a>,
}

/// The header fields that a site adds to its responses.
#[derive(Debug)]
pub(crate) struct Headers {
    /// The fields of every response, if no rule depends on the path.
    all: Option<ExtraFields>,
    /// The preset and HSTS, then the rules.
    steps: Vec<Step>,
    cache_control: Vec<(PathPattern, String)>,
}

#[derive(Debug)]
struct Step {
    path: PathPattern,
    statuses: Statuses,
    set: Vec<(String, Template)>,
    unset: Vec<String>,
}

/// The responses that a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statuses {
    All,
    /// As nginx' `add_header` without `always`.
    WithoutErrors,
}

impl Statuses {
    fn include(self, status: Status) -> bool {
        self == Statuses::All || matches!(status.code(), 200 | 201 | 204 | 206 | 301..=304 | 307 | 308)
    }
}

impl HeadersConfig<'_> {
    /// Validates names, values and patterns. `None`: no field is configured.
    pub(super) fn build(&self, key: &str, problems: &mut Problems) -> Option<Headers> {
        let mut steps = Vec::new();
        let mut preset: Vec<_> =
            self.security.fields().iter().map(|(name, value)| ((*name).to_owned(), Template::literal(value))).collect();
        if let Some(value) = self.hsts.build(&dotted(key, "hsts"), self.plain, problems) {
            preset.push((HSTS.to_owned(), Template::literal(&value)));
        }
        if !preset.is_empty() {
            let statuses = Statuses::All;
            steps.push(Step { path: PathPattern::every(), statuses, set: preset, unset: Vec::new() });
        }
        let headers = dotted(key, "headers");
        steps.extend(self.rules.iter().filter_map(|rule| rule.build(self.known, &headers, problems)));
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
        let is_constant = |step: &Step| step.set.iter().all(|(_, value)| value.as_text().is_some());
        let is_for_all = |step: &Step| step.path.is_every() && step.statuses == Statuses::All && is_constant(step);
        let all = steps.iter().all(is_for_all).then(|| {
            let mut fields = ExtraFields::default();
            apply(&steps, b"", Status::OK, None, &mut fields);
            fields
        });
        Some(Headers { all, steps, cache_control })
    }
}

impl HeadersRule {
    fn build(&self, known: Known<'_>, key: &str, problems: &mut Problems) -> Option<Step> {
        let before = problems.len();
        let path = PathPattern::build(&self.path, &self.path.span, &format!("{key}.path"), problems);
        if self.set.is_empty() && self.unset.is_empty() {
            problems.add(
                &self.path.span,
                key,
                "has no effect: add set = { \"Name\" = \"value\" } or unset = [\"Name\"]",
            );
        }
        for (name, value) in &self.set {
            let key = format!("{key}.set.{name}");
            if !is_name(name) {
                problems.add(&value.span, &key, "is not a field name: use letters, digits and hyphens");
            } else if let Some((_, remedy)) = OURS.iter().find(|(ours, _)| ours.eq_ignore_ascii_case(name)) {
                problems.add(&value.span, &key, format!("cannot be set here: {remedy}"));
            }
            if !is_value(value.reveal()) {
                problems.add(&value.span, &key, "write visible ASCII, without spaces at the ends");
            }
        }
        for name in &self.unset {
            let key = format!("{key}.unset");
            if name.eq_ignore_ascii_case("server") {
                problems.add(&name.span, &key, "set server_header = false for the site instead");
            } else if !is_name(name) {
                problems.add(&name.span, &key, "is not a field name: use letters, digits and hyphens");
            } else if is_ours(name) && !name.eq_ignore_ascii_case(HSTS) {
                problems.add(
                    &name.span,
                    &key,
                    "removes fields of earlier rules and of the preset, of which this is none",
                );
            }
        }
        (problems.len() == before).then_some(())?;
        let template = |(name, value): (&String, &At<Secret>)| {
            let key = format!("{key}.set.{name}");
            Some((name.clone(), Template::parse_text(value.reveal(), &value.span, known, &key, problems)?))
        };
        let set = self.set.iter().map(template).collect::<Option<_>>()?;
        let statuses = if self.always { Statuses::All } else { Statuses::WithoutErrors };
        Some(Step { path: path?, statuses, set, unset: self.unset.iter().map(|name| name.value.clone()).collect() })
    }
}

impl Headers {
    /// Whether values have placeholders.
    pub(crate) fn have_placeholders(&self) -> bool {
        self.all.is_none() && self.steps.iter().flat_map(|step| &step.set).any(|(_, value)| value.as_text().is_none())
    }

    /// Adds the site's fields to a response. Existing fields win. `name`: the path of the file that is sent, or else of the request;
    /// decoded, without leading slash. `asked`: for placeholders; without it, and with values that no field may have, their fields are left out.
    pub(crate) fn add(&self, name: &[u8], status: Status, asked: Option<&Asked<'_>>, fields: &mut Fields) {
        match &self.all {
            Some(all) if fields.extra.is_empty() => fields.extra = all.clone(),
            Some(all) => {
                for (field, value) in all.iter() {
                    add_to(&mut fields.extra, field, value);
                }
            }
            None => apply(&self.steps, name, status, asked, &mut fields.extra),
        }
        // Only responses with a file, and 304, have an entity tag. Errors and listings must not be cached for a year.
        if fields.etag.is_some()
            && let Some((_, value)) = self.cache_control.iter().rev().find(|(path, _)| path.matches(name))
            && !fields.extra.has("cache-control")
        {
            fields.extra.add("Cache-Control", value);
        }
    }
}

/// Applies the rules; the last one that sets or unsets a field wins.
fn apply(steps: &[Step], name: &[u8], status: Status, asked: Option<&Asked<'_>>, fields: &mut ExtraFields) {
    let mut chosen: Vec<(&str, &Template)> = Vec::new();
    for step in steps.iter().filter(|step| step.statuses.include(status) && step.path.matches(name)) {
        let concerns = |field: &str| {
            step.unset.iter().chain(step.set.iter().map(|(field, _)| field)).any(|own| own.eq_ignore_ascii_case(field))
        };
        chosen.retain(|(field, _)| !concerns(field));
        chosen.extend(step.set.iter().map(|(field, value)| (&**field, value)));
    }
    for (field, value) in chosen {
        match (value.as_text(), asked) {
            (Some(text), _) => add_to(fields, field, text.as_bytes()),
            (None, Some(asked)) => {
                if let Ok(value) = value.render(asked, Form::Plain).map(|value| value.trim_ascii().to_vec())
                    && !value.is_empty()
                {
                    add_to(fields, field, &value);
                }
            }
            (None, None) => {}
        }
    }
}

/// Existing fields win; Vary values are merged.
fn add_to(fields: &mut ExtraFields, field: &str, value: &[u8]) {
    if field.eq_ignore_ascii_case("vary") || !fields.has(field) {
        fields.add_octets(field, value);
    }
}

fn dotted(key: &str, name: &str) -> String {
    if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
}

/// Whether rules cannot set the field, because the server or another key sets it.
pub(crate) fn is_ours(name: &str) -> bool {
    OURS.iter().any(|(ours, _)| ours.eq_ignore_ascii_case(name))
}

/// Of these the only one that rules can remove: it is a step before theirs.
const HSTS: &str = "Strict-Transport-Security";

/// Fields that the server or another key sets, with the reason or remedy.
const OURS: &[(&str, &str)] = &[
    ("Accept-Ranges", "the server sends it where it applies"),
    ("Access-Control-Allow-Credentials", "use cors"),
    ("Access-Control-Allow-Headers", "use cors"),
    ("Access-Control-Allow-Methods", "use cors"),
    ("Access-Control-Allow-Origin", "use cors"),
    ("Access-Control-Expose-Headers", "use cors"),
    ("Access-Control-Max-Age", "use cors"),
    ("Allow", "the server sends it"),
    ("Cache-Control", "use cache_control"),
    ("Connection", "it belongs to the connection"),
    ("Content-Encoding", "it follows from the file that is sent"),
    ("Content-Length", "it follows from the file that is sent"),
    ("Content-Range", "it follows from the request"),
    ("Content-Type", "use media_types"),
    ("Date", "the server sends it"),
    ("ETag", "it follows from the file that is sent"),
    ("Keep-Alive", "it belongs to the connection"),
    ("Last-Modified", "it follows from the file that is sent"),
    ("Location", "use redirects"),
    ("Retry-After", "the server sends it"),
    ("Server", "the server sends it; server_header = false removes it"),
    (HSTS, "use hsts"),
    ("Trailer", "it belongs to the connection"),
    ("Transfer-Encoding", "it belongs to the connection"),
    ("Upgrade", "it belongs to the connection"),
    ("WWW-Authenticate", "use basic_auth"),
];

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
