//! `[server]`

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::files::cache::CacheLimits;
use crate::observe::messages::{LogFormat, LogLevel};
use crate::path::costs::Costs;
use crate::path::policy::KtlsMode;
use crate::values::{Bounded, Problems, Size, Time, Timeout, overridable};

/// Process-wide settings.
#[derive(Debug, Clone, PartialEq, SmartDefault, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProcessConfig {
    /// Worker threads, each with its own runtime and listening sockets [default: one for each CPU available to the
    /// process by its affinity and its control group's quota]
    #[arg(long, value_name = "N", env = "SEALION_WORKERS")]
    pub workers: Option<Bounded<1, 1024>>,

    /// When connections move into the kernel: `auto` as soon as the move pays, `always` before the first response, `never`
    /// leaves all records to user space. With `always` the server refuses to start on a kernel without kernel TLS.
    #[arg(long, value_enum, env = "SEALION_KTLS", default_value_t = Self::default().ktls)]
    #[default(KtlsMode::Auto)]
    pub ktls: KtlsMode,

    /// Result of `sealion calibrate` [default: the file it writes by default]
    #[arg(long, value_name = "FILE", env = "SEALION_CALIBRATION")]
    pub calibration: Option<PathBuf>,

    /// Interval of the self-check of the kernel path, which always runs at start [default: never]
    #[arg(long, value_name = "TIME", env = "SEALION_SELF_CHECK_EVERY")]
    pub self_check_every: Option<Timeout>,

    /// How long a cached file is served without revalidation. A replaced file appears after this time at the latest.
    /// `0s` turns the cache off.
    #[arg(long, value_name = "TIME", env = "SEALION_FILE_CACHE_AGE", default_value_t = Self::default().file_cache_age)]
    #[default(Time(CacheLimits::default().age))]
    pub file_cache_age: Time,

    /// Memory of each worker for files of up to 128 KiB, including their names and metadata. Longer files stay open, at
    /// most 1000 per worker. `0B` turns the cache off.
    #[arg(long, value_name = "SIZE", env = "SEALION_FILE_CACHE_MEMORY", default_value_t = Self::default().file_cache_memory)]
    #[default(Size(CacheLimits::default().memory as u64))]
    pub file_cache_memory: Size,

    /// Memory of the caches of all workers together, for files and for responses of `[cache]`. If they would exceed
    /// it together, each takes proportionally less than its own setting [default: a quarter of the control
    /// group's limit, if there is one]
    #[arg(long, value_name = "SIZE", env = "SEALION_CACHE_MEMORY")]
    pub cache_memory: Option<Size>,

    /// Minimum severity of messages on standard error.
    #[arg(long, value_enum, env = "SEALION_LOG", default_value_t = Self::default().log)]
    #[default(LogLevel::Info)]
    pub log: LogLevel,

    /// Format of messages on standard error: `text`, or `json` with one object per line.
    #[arg(long, value_enum, hide_possible_values = true, env = "SEALION_LOG_FORMAT", default_value_t = Self::default().log_format)]
    #[default(LogFormat::Text)]
    pub log_format: LogFormat,
}

overridable!(ProcessConfig {
    workers,
    ktls,
    calibration,
    self_check_every,
    file_cache_age,
    file_cache_memory,
    cache_memory,
    log,
    log_format
});

impl ProcessConfig {
    /// The costs of the paths. Reports an unusable file in `problems`, and then returns the built-in defaults.
    pub(crate) fn costs(&self, problems: &mut Problems) -> Costs {
        let named = self.calibration.as_ref().map(|path| problems.resolve(path));
        Costs::load(named.as_deref()).unwrap_or_else(|error| {
            let remedy = "create it with `sealion calibrate`, or remove `calibration`";
            problems.add(&(0..0), "server.calibration", format_args!("{error}: {remedy}"));
            Costs::shipped(error.to_string())
        })
    }

    /// The number of worker threads.
    pub(crate) fn worker_count(&self) -> usize {
        match self.workers {
            Some(workers) => workers.usize(),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
