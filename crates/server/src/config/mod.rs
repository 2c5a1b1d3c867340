//! The configuration: read from a file, overridden by the environment and the command line, checked as a whole.
//!
//! ```text
//! sealion.toml ─► Config ◄─ environment, command line          each table is declared in the module it configures
//!                   │
//!                   ├─ process/build.rs builds all of it and collects the errors (values/problems.rs)
//!                   └─ diff.rs: the changes of a reload, and those it cannot apply
//! ```

mod acme_args;
mod diff;
mod document;
mod file;
mod privileges;
mod process;
pub mod reference;
mod remedy;
mod serve_args;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::certificates::TlsConfig;
use crate::http2::Http2Config;
use crate::http3::Http3Config;
use crate::limits::LimitsConfig;
use crate::listen::ListenConfig;
use crate::observe::access_log::{AccessLogConfig, SiteLogConfig};
use crate::observe::metrics::MetricsConfig;
use crate::observe::otlp::OtlpConfig;
use crate::placeholders::{MapConfig, SplitConfig};
use crate::site::SiteConfig;
use crate::store::CacheConfig;
use crate::upstream::UpstreamConfig;

pub(crate) use diff::{changes, needs_new_process};
pub(crate) use privileges::{PrivilegesConfig, Seccomp};
pub(crate) use process::ProcessConfig;
pub(crate) use serve_args::{ProxyArgs, ServeArgs};

/// The whole configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Further files of the configuration: paths, directories of `*.toml` files, or a pattern for file names
    /// (`sites/*.toml`). Lists such as `[[site]]` are joined; any other table may be in one file only. Relative paths
    /// in them start at the main file's directory.
    pub include: Vec<String>,
    /// Process-wide settings.
    pub server: ProcessConfig,
    /// Limits on connections, requests and time.
    pub limits: LimitsConfig,
    /// HTTP/2 on all listeners with TLS.
    pub http2: Http2Config,
    /// HTTP/3 on the listeners that have it.
    pub http3: Http3Config,
    /// Addresses to listen on. None in the file: localhost:8443 with TLS.
    pub listen: Vec<ListenConfig>,
    /// Versions, suites, session tickets and automatic certificates, for all sites.
    pub tls: TlsConfig,
    /// Access log: one line per response.
    pub access_log: AccessLogConfig,
    /// Privileges that the process drops once its sockets are bound: docs/hardening.md.
    pub privileges: PrivilegesConfig,
    /// Metrics and health checks.
    pub metrics: MetricsConfig,
    /// Metrics and traces for an OpenTelemetry collector.
    pub otlp: OtlpConfig,
    /// Cache of responses, for `proxy` with `cache`.
    pub cache: CacheConfig,
    /// Servers to forward requests to, for `proxy` of sites and routes.
    pub upstream: Vec<UpstreamConfig>,
    /// Tables from values of requests to others, for placeholders.
    pub map: Vec<MapConfig>,
    /// Shares of values of requests, for placeholders.
    pub split: Vec<SplitConfig>,
    /// Sites, by host name.
    pub site: Vec<SiteConfig>,
    /// File of the secrets of connections, only from `--tls-key-log`.
    #[serde(skip)]
    pub tls_key_log: Option<PathBuf>,
    /// How the sites of another server's configuration are after their conversion.
    pub import: ImportConfig,
}

/// The summary of `sealion import-nginx`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ImportConfig {
    /// A line for each site that is dead or works in part.
    pub summary: Vec<String>,
    /// Whether `sealion check` no longer repeats the summary.
    pub acknowledged: bool,
}

impl Config {
    /// The logs of sites, each with whether requests for its site may name different hosts.
    pub(crate) fn site_logs(&self) -> impl Iterator<Item = (&SiteLogConfig, bool)> {
        let several = self.site.len() > 1;
        self.site.iter().filter_map(move |site| Some((site.log.as_ref()?, several && site.has_hosts())))
    }

    /// Whether contents of requests may wait in files although no rule says so: contents for scripts, and contents without length for uwsgi.
    pub(crate) fn collects_contents(&self) -> bool {
        let mut targets = self.site.iter().flat_map(SiteConfig::proxies).map(|proxy| proxy.upstream.reveal());
        self.site.iter().any(|site| site.scripts().next().is_some())
            || self.upstream.iter().any(UpstreamConfig::speaks_uwsgi)
            || targets.any(|to| to.starts_with("uwsgi://") || to.contains('{'))
    }
}
