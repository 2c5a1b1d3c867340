//! Presets of security header fields.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A preset of security header fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SecurityHeaders {
    /// No fields.
    #[default]
    Off,
    /// Safe for almost any site: no content type sniffing, no framing by other sites, and only the origin as referrer to them.
    Basic,
    /// For sites that load scripts, styles and frames only from themselves: a Content-Security-Policy, no framing, no referrer,
    /// cross-origin isolation of windows and resources, and no camera, microphone, geolocation, payment or USB.
    Strict,
}

impl SecurityHeaders {
    /// The names and values of the fields.
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
