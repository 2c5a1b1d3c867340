//! `[otlp]`.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::values::{At, Timeout};

/// Metrics and traces for a collector of OpenTelemetry, by OTLP over HTTP in protobuf. Metrics have the names and labels of the metrics listener, which need
/// not be there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OtlpConfig {
    /// URL of the collector, for instance `http://127.0.0.1:4318` or `https://otlp.example.org`: metrics go to `/v1/metrics` beneath it, spans to `/v1/traces` [default: none, and nothing is sent]
    pub endpoint: Option<At<String>>,

    /// File with the certificates that a collector with TLS is verified by, PEM [default: those of the system]
    pub roots: Option<At<PathBuf>>,

    /// Header fields of each request to the collector, such as `Authorization = "Bearer ${TOKEN}"`.
    pub headers: At<BTreeMap<String, Secret>>,

    /// Time between two messages with metrics.
    pub interval: Timeout,

    /// Share of requests of which spans are sent, from 0 to 1, for instance 0.01; where a trusted proxy began the trace, its decision holds. `0`
    /// turns traces off.
    pub sample: At<f64>,

    /// Name of this service at the collector (`service.name`).
    pub service_name: At<String>,
}

impl Default for OtlpConfig {
    fn default() -> Self {
        OtlpConfig {
            endpoint: None,
            roots: None,
            headers: At::default(),
            interval: Timeout::seconds(60),
            sample: 0.0.into(),
            service_name: "sealion".to_owned().into(),
        }
    }
}

/// A text that no message shows. A fingerprint stands for it, by which a change is seen.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text itself.
    #[cfg(feature = "otlp")]
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its key is random, so that nobody can try texts.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        write!(f, "a secret ({:016x})", KEY.hash_one(&self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown_and_a_change_of_it_is() {
        let [one, same, other] = ["hunter2", "hunter2", "hunter3"].map(|text| Secret(text.to_owned()));
        let json = |secret: &Secret| serde_json::to_string(secret).unwrap();
        assert!(!json(&one).contains("hunter") && !format!("{one:?}").contains("hunter"));
        assert_eq!(json(&one), json(&same));
        assert_ne!(json(&one), json(&other));
    }
}
