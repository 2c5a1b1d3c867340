//! Presets of fields that keep browsers from guessing and from being used against the site.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A preset of security headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SecurityHeaders {
    /// None.
    #[default]
    Off,
    /// What breaks next to no site: content types are not guessed, other sites cannot frame this one, and they learn no more of an
    /// address than its origin.
    Basic,
    /// For sites whose every script, style and frame is their own: a Content-Security-Policy, no frames, no referrer, its own
    /// process, and neither camera nor microphone, position or payment.
    Strict,
}

impl SecurityHeaders {
    /// Names and values.
    pub(crate) fn fields(self) -> &'static [(&'static str, &'static str)] {
        match self {
            SecurityHeaders::Off => &[],
            SecurityHeaders::Basic => BASIC,
            SecurityHeaders::Strict => STRICT,
        }
    }
}

const BASIC: &[(&str, &str)] = &[
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
];

const STRICT: &[(&str, &str)] = &[
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    (
        "Content-Security-Policy",
        "default-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
];

#[cfg(test)]
mod tests {
    use sealion_http::extra_fields::{is_name, is_value};

    use super::*;

    #[test]
    fn presets_are_fields() {
        assert!(SecurityHeaders::Off.fields().is_empty());
        for (name, value) in [BASIC, STRICT].concat() {
            assert!(is_name(name) && is_value(value), "{name}");
        }
    }
}
