//! Strict-Transport-Security (RFC 6797).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{At, Problems, Time};

/// Strict-Transport-Security: browsers use only HTTPS for this host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HstsConfig {
    /// How long browsers remember the policy. It cannot be revoked sooner: start with `5m`, and raise it to a year, `365d`.
    pub max_age: Option<At<Time>>,
    /// Whether the policy covers all subdomains too.
    pub include_subdomains: bool,
    /// Whether browsers may preload the policy. That needs at least a year and `include_subdomains`.
    pub preload: At<bool>,
}

impl HstsConfig {
    /// The field value; `None` without `max_age`. `plain`: whether the site is reachable only over plain HTTP, where the field must
    /// not be sent (RFC 6797 §7.2).
    pub(crate) fn build(&self, key: &str, plain: bool, problems: &mut Problems) -> Option<String> {
        let Some(max_age) = &self.max_age else {
            if *self != HstsConfig::default() {
                let key = format!("{key}.max_age");
                problems.add(&self.preload.span, &key, "is missing: write for instance max_age = \"365d\"");
            }
            return None;
        };
        if plain {
            problems.add(&max_age.span, key, "must not be sent over plain HTTP: add a listener with tls = true");
        }
        let seconds = max_age.0.as_secs();
        if self.preload.value && (seconds < PRELOAD_AT_LEAST || !self.include_subdomains) {
            let key = format!("{key}.preload");
            problems.add(
                &self.preload.span,
                &key,
                "browsers require max_age of at least \"365d\" and include_subdomains = true",
            );
        }
        let subdomains = if self.include_subdomains { "; includeSubDomains" } else { "" };
        let preload = if self.preload.value { "; preload" } else { "" };
        Some(format!("max-age={seconds}{subdomains}{preload}"))
    }
}

/// One year in seconds, the minimum of the browsers' preload list.
const PRELOAD_AT_LEAST: u64 = 365 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_configuration_errors() {
        for (text, plain, value, problem) in [
            ("", false, None, ""),
            ("max_age = '1h'", false, Some("max-age=3600"), ""),
            ("max_age = '0s'", false, Some("max-age=0"), ""),
            ("max_age = '365d'\ninclude_subdomains = true", false, Some("max-age=31536000; includeSubDomains"), ""),
            (
                "max_age = '365d'\ninclude_subdomains = true\npreload = true",
                false,
                Some("max-age=31536000; includeSubDomains; preload"),
                "",
            ),
            (
                "max_age = '365d'\npreload = true",
                false,
                Some("max-age=31536000; preload"),
                "f:2: hsts.preload: browsers",
            ),
            ("max_age = '1h'", true, Some("max-age=3600"), "f:1: hsts: must not be sent over plain HTTP"),
            ("preload = true", false, None, "f:1: hsts.max_age: is missing"),
        ] {
            let config: HstsConfig = toml::from_str(text).unwrap();
            let mut problems = Problems::of_file("f".as_ref(), text);
            assert_eq!(config.build("hsts", plain, &mut problems).as_deref(), value, "{text}");
            assert!(
                problems.to_string().starts_with(problem) && problems.is_empty() == problem.is_empty(),
                "{problems}"
            );
        }
    }
}
