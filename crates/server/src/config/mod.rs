//! The configuration: read from a file, overridden by the environment and the command line, checked as a whole.
//!
//! ```text
//! sealion.toml ─► Config ◄─ environment, command line          every table: the schema in the module it configures
//!                   │
//!                   ├─ check: generation.rs builds all of it and gathers what is wrong (problems.rs)
//!                   └─ diff.rs: what a reload changes, and what it cannot change
//! ```

mod arguments;
mod diff;
mod file;
mod limits;
mod problems;
mod process;
pub mod reference;
mod values;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access_log::AccessLogConfig;
use crate::certificates::TlsConfig;
use crate::listener::ListenConfig;
use crate::metrics::MetricsConfig;
use crate::privileges::PrivilegesConfig;
use crate::site::SiteConfig;

pub use arguments::Given;
pub(crate) use arguments::overridable;
pub use diff::{Change, changes, needs_new_process};
pub use limits::LimitsConfig;
pub use problems::Problems;
pub use process::ProcessConfig;
pub use values::{At, Bounded, Size, Time, Timeout};

/// Everything that the server can be told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
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
