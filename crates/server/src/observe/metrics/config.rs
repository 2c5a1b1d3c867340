//! `[metrics]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{Problems, overridable};

/// Metrics for Prometheus and `sealion top`, and health checks, on a separate listener for plain HTTP.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsConfig {
    /// Address and port of the listener, for instance 127.0.0.1:9443. It is not encrypted [default: none; without
    /// `[otlp]`, nothing is then counted]
    #[arg(id = "metrics", long = "metrics", value_name = "ADDRESS:PORT", env = "SEALION_METRICS")]
    #[schemars(with = "Option<String>")]
    pub listen: Option<SocketAddr>,

    /// File whose first line is the bearer token that scrapers must send (`Authorization: Bearer …`). Health checks need no token [default: none]
    #[arg(
        id = "metrics_token_file",
        long = "metrics-token-file",
        value_name = "FILE",
        env = "SEALION_METRICS_TOKEN_FILE",
        requires = "metrics"
    )]
    pub token_file: Option<PathBuf>,
}

overridable!(MetricsConfig { listen = "metrics", token_file = "metrics_token_file" });

impl MetricsConfig {
    /// Reads the token from its file.
    pub(crate) fn token(&self, problems: &mut Problems) -> Option<String> {
        let path = problems.resolve(self.token_file.as_ref()?);
        match std::fs::read_to_string(&path) {
            Ok(text) => match text.lines().next().map(str::trim) {
                Some(token) if !token.is_empty() => return Some(token.to_owned()),
                _ => problems.add(
                    &(0..0),
                    "metrics.token_file",
                    format_args!("the first line of {} is empty: write the token there", path.display()),
                ),
            },
            Err(error) => problems.add(
                &(0..0),
                "metrics.token_file",
                format_args!(
                    "{} cannot be read: {error}: name a file with the token in its first line",
                    path.display()
                ),
            ),
        }
        None
    }
}
