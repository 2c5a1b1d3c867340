//! `[otlp]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{At, Secret, SecretUrl, Timeout};

/// Metrics and traces for a collector of OpenTelemetry, by OTLP over HTTP in protobuf. Metrics have the names and labels of the metrics listener, which need
/// not be there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OtlpConfig {
    /// URL of the collector, for instance `http://127.0.0.1:4318` or `https://otlp.example.org`: metrics go to `/v1/metrics` beneath it, spans to `/v1/traces` [default: none, and nothing is sent]
    pub endpoint: Option<At<SecretUrl>>,

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
