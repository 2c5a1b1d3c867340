//! Header fields that the configuration adds to responses: the fields of a route, a preset, HSTS and Cache-Control.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use sealion_http::Status;
use sealion_http::extra_fields::{ExtraFields, is_name, is_value};
use serde::{Deserialize, Serialize};

use super::hsts::HstsConfig;
use super::security_headers::SecurityHeaders;
use crate::placeholders::{Asked, Form, Known, Template};
use crate::values::{At, Problems, Secret};

/// Header fields for responses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HeadersConfig {
    /// Fields to send with every response. They replace fields of the preset.
    pub set: BTreeMap<String, At<Secret>>,
    /// Fields to send with responses that have status 200, 201, 204, 206, 301, 302, 303, 304, 307 or 308, as nginx' `add_header` without `always`. They replace
    /// fields of the preset on every response.
    pub set_without_errors: BTreeMap<String, At<Secret>>,
    /// Fields of the preset to remove.
    pub unset: Vec<At<String>>,
}

/// The settings of a route that concern header fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    /// The key `headers`.
    pub config: &'a HeadersConfig,
    /// The keys `cache_control` and `forwarded_cache_control`.
    pub caching: (&'a At<String>, &'a At<String>),
    /// The key `security_headers`.
    pub security: SecurityHeaders,
    pub hsts: &'a HstsConfig,
    /// Whether the site is reachable only over plain HTTP.
    pub plain: bool,
    /// Names of placeholders.
    pub known: Known<'a>,
}

/// The header fields that a route adds to its responses.
#[derive(Debug)]
pub(crate) struct Headers {
    /// The fields of every response, if none has placeholders and errors have all.
    all: Option<ExtraFields>,
    set: Vec<Set>,
    cache_control: Option<Template>,
    forwarded_cache_control: Option<Template>,
}

/// A field with its value.
#[derive(Debug)]
struct Set {
    name: String,
    value: Template,
    statuses: Statuses,
}

/// The responses that have a field.
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

impl Fields<'_> {
    /// Validates names and values. `None`: no field is configured.
    pub(super) fn build(&self, key: &str, problems: &mut Problems) -> Option<Headers> {
        let of_preset = |name: &str, value: &str| Set {
            name: name.to_owned(),
            value: Template::literal(value),
            statuses: Statuses::All,
        };
        let mut set: Vec<_> = self.security.fields().iter().map(|(name, value)| of_preset(name, value)).collect();
        if let Some(value) = self.hsts.build(&dotted(key, "hsts"), self.plain, problems) {
            set.push(of_preset(HSTS, &value));
        }
        let own = self.config.build(self.known, &dotted(key, "headers"), problems)?;
        let is_own = |name: &str| {
            self.config
                .unset
                .iter()
                .map(|name| name.as_str())
                .chain(own.iter().map(|field| field.name.as_str()))
                .any(|other| other.eq_ignore_ascii_case(name))
        };
        set.retain(|field| !is_own(&field.name));
        set.extend(own);
        let cache_control = self.caching(self.caching.0, &dotted(key, "cache_control"), problems);
        let forwarded_cache_control = self.caching(self.caching.1, &dotted(key, "forwarded_cache_control"), problems);
        let of_caches = || cache_control.iter().chain(&forwarded_cache_control);
        if set.is_empty() && of_caches().next().is_none() {
            return None;
        }
        let is_constant = |field: &Set| field.statuses == Statuses::All && field.value.as_text().is_some();
        let is_constant_for_caches = of_caches().all(|value| value.as_text().is_some());
        let all = (is_constant_for_caches && set.iter().all(is_constant)).then(|| {
            let mut fields = ExtraFields::default();
            apply(&set, Status::OK, None, &mut fields);
            fields
        });
        Some(Headers { all, set, cache_control, forwarded_cache_control })
    }

    /// A value of Cache-Control. `None`: it is empty, or has problems.
    fn caching(&self, value: &At<String>, key: &str, problems: &mut Problems) -> Option<Template> {
        if value.is_empty() {
            return None;
        }
        if !is_value(value) {
            problems.add(&value.span, key, "write directives in visible ASCII, for instance public, max-age=3600");
        }
        Template::parse(value, self.known, key, problems)
    }
}

impl HeadersConfig {
    /// The fields to set. `None`: there are problems.
    fn build(&self, known: Known<'_>, key: &str, problems: &mut Problems) -> Option<Vec<Set>> {
        let before = problems.len();
        let of_all = self.set.iter().map(|field| (field, "set", Statuses::All));
        let without_errors = self.set_without_errors.iter();
        let without_errors = without_errors.map(|field| (field, "set_without_errors", Statuses::WithoutErrors));
        for ((name, value), table, _) in of_all.clone().chain(without_errors.clone()) {
            let key = format!("{key}.{table}.{name}");
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
                problems.add(&name.span, &key, "removes fields of the preset, and this is no such field");
            }
        }
        (problems.len() == before).then_some(())?;
        let template = |((name, value), table, statuses): ((&String, &At<Secret>), &str, Statuses)| {
            let key = format!("{key}.{table}.{name}");
            let value = Template::parse_text(value.reveal(), &value.span, known, &key, problems)?;
            Some(Set { name: name.clone(), value, statuses })
        };
        of_all.chain(without_errors).map(template).collect()
    }
}

impl Headers {
    /// Whether values have placeholders.
    pub(crate) fn have_placeholders(&self) -> bool {
        self.all.is_none()
    }

    /// Adds the route's fields to a response. Existing fields win, but for the server's own Retry-After. `asked`: for placeholders; without it, and with values that no field may have, their fields
    /// are left out.
    pub(crate) fn add(&self, status: Status, asked: Option<&Asked<'_>>, fields: &mut sealion_http::Fields) {
        match &self.all {
            Some(all) if fields.extra.is_empty() => fields.extra = all.clone(),
            Some(all) => {
                for (field, value) in all.iter() {
                    add_to(&mut fields.extra, field, value);
                }
            }
            None => apply(&self.set, status, asked, &mut fields.extra),
        }
        if fields.retry_after.is_some() && fields.extra.has("retry-after") {
            fields.retry_after = None;
        }
        // Only responses with a file, and 304, have an entity tag. Errors and listings must not be cached for a year.
        if fields.etag.is_some()
            && let Some(value) = &self.cache_control
            && !fields.extra.has("cache-control")
            && let Some(value) = rendered(value, asked)
        {
            fields.extra.add_octets("Cache-Control", &value);
        }
    }

    /// Adds the route's Cache-Control to a response or a redirect of its own.
    pub(crate) fn add_cache_control(
        &self,
        status: Status,
        asked: Option<&Asked<'_>>,
        fields: &mut sealion_http::Fields,
    ) {
        if Statuses::WithoutErrors.include(status)
            && !fields.forwarded
            && let Some(value) = &self.cache_control
            && !fields.extra.has("cache-control")
            && let Some(value) = rendered(value, asked)
        {
            fields.extra.add_octets("Cache-Control", &value);
        }
    }

    /// Replaces the Cache-Control of an application by the route's, in a response without error.
    pub(crate) fn replace_cache_control(
        &self,
        status: Status,
        asked: Option<&Asked<'_>>,
        fields: &mut sealion_http::Fields,
    ) {
        if fields.forwarded
            && Statuses::WithoutErrors.include(status)
            && let Some(value) = &self.forwarded_cache_control
            && let Some(value) = rendered(value, asked)
        {
            ["Cache-Control", "Expires"].iter().for_each(|name| fields.extra.remove(name));
            fields.extra.add_octets("Cache-Control", &value);
        }
    }
}

/// A value for a request. `None`: it is empty, or no field may have it.
fn rendered<'v>(value: &'v Template, asked: Option<&Asked<'_>>) -> Option<Cow<'v, [u8]>> {
    let value: Cow<'v, [u8]> = match (value.as_text(), asked) {
        (Some(text), _) => Cow::Borrowed(text.as_bytes()),
        (None, asked) => Cow::Owned(value.render(asked?, Form::Plain).ok()?.trim_ascii().to_vec()),
    };
    Some(value).filter(|value| !value.is_empty())
}

/// Adds fields with the values for a request.
fn apply(set: &[Set], status: Status, asked: Option<&Asked<'_>>, fields: &mut ExtraFields) {
    for Set { name: field, value, .. } in set.iter().filter(|field| field.statuses.include(status)) {
        if let Some(value) = rendered(value, asked) {
            add_to(fields, field, &value);
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

/// Whether `headers` cannot set the field, because the server or another key sets it.
pub(crate) fn is_ours(name: &str) -> bool {
    OURS.iter().any(|(ours, _)| ours.eq_ignore_ascii_case(name))
}

/// The only one of these that `headers` can remove.
const HSTS: &str = "Strict-Transport-Security";

/// Fields that the server or another key sets, with the reason or remedy.
const OURS: &[(&str, &str)] = &[
    ("Accept-Ranges", "the server sends it where it applies"),
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
    ("Location", "use redirect"),
    ("Server", "the server sends it; server_header = false removes it"),
    (HSTS, "use hsts"),
    ("Trailer", "it belongs to the connection"),
    ("Transfer-Encoding", "it belongs to the connection"),
    ("Upgrade", "it belongs to the connection"),
];

#[cfg(test)]
#[path = "headers_tests.rs"]
mod tests;
