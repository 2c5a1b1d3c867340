//! `[server]`

use std::path::PathBuf;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::observe::messages::LogLevel;
use crate::path::costs::Costs;
use crate::path::policy::KtlsMode;
use crate::values::{Bounded, Problems, Time, Timeout, overridable};

/// The process as a whole.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProcessConfig {
    /// Worker threads; each has its own runtime and its own listening sockets [default: one per core]
    #[arg(long, value_name = "N", env = "SEALION_WORKERS")]
    pub workers: Option<Bounded<1, 1024>>,

    /// Who seals the records: `auto` moves a connection into the kernel when that is worth it, `always` before its first
    /// response, `never` leaves all to user space.
    #[arg(long, value_enum, env = "SEALION_KTLS", default_value_t = Self::default().ktls)]
    pub ktls: KtlsMode,

    /// What `sealion calibrate` measured [default: where it keeps that]
    #[arg(long, value_name = "FILE", env = "SEALION_CALIBRATION")]
    pub calibration: Option<PathBuf>,

    /// Repeat the self-check of the kernel path, which is done at the start, this often [default: never]
    #[arg(long, value_name = "TIME", env = "SEALION_SELF_CHECK_EVERY")]
    pub self_check_every: Option<Timeout>,

    /// How long a file is taken to be what it was: one that was replaced is seen this much later at most. `0s`: no file
    /// is kept open or in memory.
    #[arg(long, value_name = "TIME", env = "SEALION_FILE_CACHE_AGE", default_value_t = Self::default().file_cache_age)]
    pub file_cache_age: Time,

    /// Least severe messages to print on standard error.
    #[arg(long, value_enum, env = "SEALION_LOG", default_value_t = Self::default().log)]
    pub log: LogLevel,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        ProcessConfig {
            workers: None,
            ktls: KtlsMode::Auto,
            calibration: None,
            self_check_every: None,
            file_cache_age: Time(crate::files::cache::CacheLimits::default().age),
            log: LogLevel::Info,
        }
    }
}

overridable!(ProcessConfig { workers, ktls, calibration, self_check_every, file_cache_age, log });

impl ProcessConfig {
    /// What the paths cost. What is wrong with the file is in `problems` then.
    pub(crate) fn costs(&self, problems: &mut Problems) -> Costs {
        let named = self.calibration.as_ref().map(|path| problems.resolve(path));
        Costs::load(named.as_deref()).unwrap_or_else(|error| {
            let remedy = "make it with `sealion calibrate`, or leave `calibration` out";
            problems.add(&(0..0), "server.calibration", format_args!("{error}: {remedy}"));
            Costs::shipped(error.to_string())
        })
    }

    /// The number of worker threads: as told, or one per core.
    pub(crate) fn worker_count(&self) -> usize {
        match self.workers {
            Some(workers) => workers.usize(),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}
