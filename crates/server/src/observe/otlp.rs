//! `[otlp]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::values::{At, Secret, SecretUrl, Timeout};

/// Metrics and traces for an OpenTelemetry collector, by OTLP over HTTP in protobuf. Metrics have the same names and
/// labels as on the metrics listener, which is not required.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OtlpConfig {
    /// URL of the collector, for instance `http://127.0.0.1:4318` or `https://otlp.example.org`: metrics go to
    /// `/v1/metrics` below it, spans to `/v1/traces` [default: none, and nothing is sent]
    pub endpoint: Option<At<SecretUrl>>,

    /// File with the certificates to verify a collector with TLS by, PEM [default: the system's]
    pub roots: Option<At<PathBuf>>,

    /// Header fields of each request to the collector, such as `Authorization = "Bearer ${TOKEN}"`.
    pub headers: At<BTreeMap<String, Secret>>,

    /// Time between two messages with metrics.
    #[default(Timeout::seconds(60))]
    pub interval: Timeout,

    /// Share of requests whose spans are sent, from 0 to 1, for instance 0.01. If a trusted proxy began the trace,
    /// its decision applies. `0` turns traces off.
    pub sample: At<f64>,

    /// Name of this service at the collector (`service.name`).
    #[default("sealion".to_owned().into())]
    pub service_name: At<String>,
}
