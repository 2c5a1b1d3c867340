//! The configuration: read from a file, overridden by the environment and the command line, checked as a whole.
//!
//! ```text
//! sealion.toml ─► Config ◄─ environment, command line          every table: the schema in the module it configures
//!                   │
//!                   ├─ check: generation.rs builds all of it and gathers what is wrong (problems.rs)
//!                   └─ diff.rs: what a reload changes, and what it cannot change
//! ```

mod diff;
mod file;
mod privileges;
mod process;
pub(crate) mod reference;
mod serve_args;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::certificates::TlsConfig;
use crate::limits::LimitsConfig;
use crate::listen::ListenConfig;
use crate::observe::access_log::AccessLogConfig;
use crate::observe::metrics::MetricsConfig;
use crate::site::SiteConfig;

pub(crate) use diff::{changes, needs_new_process};
pub(crate) use privileges::{PrivilegesConfig, Seccomp};
pub(crate) use process::ProcessConfig;
pub(crate) use serve_args::ServeArgs;

/// Everything that the server can be told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The process as a whole.
    pub server: ProcessConfig,
    /// Bounds on what a client can take.
    pub limits: LimitsConfig,
    /// Addresses to listen on.
    pub listen: Vec<ListenConfig>,
    /// Versions, suites, session tickets and automatic certificates, for all sites.
    pub tls: TlsConfig,
    /// A line for each response.
    pub access_log: AccessLogConfig,
    /// What the process gives up when its sockets are bound: docs/hardening.md.
    pub privileges: PrivilegesConfig,
    /// Numbers and health for whoever watches.
    pub metrics: MetricsConfig,
    /// What is served under which names.
    pub site: Vec<SiteConfig>,
}
