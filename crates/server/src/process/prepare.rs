//! The first part of a start: reads the configuration, probes the kernel and builds a generation, while every file can still be
//! opened.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sealion_ktls::probe;

use super::build::{build, cache_limits, store_files};
use crate::certificates::TlsProcess;
use crate::config::{Config, ServeArgs};
use crate::exchange::Generation;
use crate::listen::Inherited;
use crate::monitor;
use crate::observe::access_log::{AccessLogPlans, SiteLogs};
use crate::observe::messages;
use crate::observe::metrics::Metrics;
use crate::path::costs::Costs;
use crate::path::offer::KernelOffer;
use crate::path::policy::KtlsMode;
use crate::values::Bounded;
use crate::values::Problems;

/// Descriptors of the process beside those of connections and workers: logs, roots, the canary. It uses about 20; the rest is room for
/// sites, and costs 64 connections of a limit of thousands.
const OTHER_DESCRIPTORS: u64 = 128;

/// Descriptors of a worker beside its listeners and cached files: epoll, wake-up, signals. It uses about 4.
const WORKER_DESCRIPTORS: u64 = 8;

/// Descriptors of a directory of the cache: itself, its lock, and those that are open while it is read or written to.
const CACHE_DIRECTORY_DESCRIPTORS: u64 = 6;

/// Descriptors of a connection: its socket, and the file that it sends.
const CONNECTION_DESCRIPTORS: u64 = 2;

/// Those of a connection whose response is fetched into the cache: the socket of the server, and a file that is written and sent at once.
const FETCH_DESCRIPTORS: u64 = 3;

/// Most connections unless the operator sets `--max-connections`.
const DEFAULT_MAX_CONNECTIONS: u64 = 10_000;

/// The configuration and everything built from it. Only the metrics listener is bound.
pub(super) struct Prepared {
    pub config: Config,
    pub kernel: Arc<KernelOffer>,
    pub costs: Costs,
    pub metrics_listener: Option<monitor::Listener>,
    pub otlp: Option<monitor::Settings>,
    pub access_log: AccessLogPlans,
    pub tls: TlsProcess,
    pub generation: Generation,
    /// Directories that were made, to be given to the user that serves.
    pub made: Vec<PathBuf>,
    pub max_connections: usize,
    pub metrics: Metrics,
}

impl Prepared {
    /// Reads the configuration and builds everything from it.
    ///
    /// # Errors
    /// A line for each problem, with the remedy.
    pub(super) fn new(args: &ServeArgs, inherited: &mut Inherited) -> Result<Self, String> {
        // For errors of the file itself.
        messages::write_as(args.server.log_format);
        let (config, mut problems) = args.configuration().map_err(|problems| problems.to_string())?;
        messages::write_as(config.server.log_format);
        messages::log_to_stderr(config.server.log);
        let kernel = probed_kernel(config.server.ktls)?;
        let costs = config.server.costs(&mut problems);
        let metrics_listener = monitor::Listener::bind(&config.metrics, &mut problems, inherited)?;
        // Their problems are found by `build`.
        let site_logs = SiteLogs::new(&config.access_log, config.site_logs(), &mut Problems::of_arguments());
        let access_log = AccessLogPlans::new(&config.access_log, &site_logs, config.site.len() > 1, &problems);
        let otlp = monitor::Settings::new(&config.otlp, &mut problems.emptied());
        let tls = TlsProcess::new()?;
        let rekeys = kernel.probe().rekey_tx().is_ok();
        let generation = build(&config, problems, &tls, rekeys, None).map_err(|problems| problems.to_string())?;
        let mut made = generation.certificates.make_directories()?;
        if let Some(store) = &generation.store {
            made.extend(store.open()?);
        }
        let max_connections = max_connections(&config)?;
        // Opens files of /proc that may be out of reach later.
        let metrics = Metrics::new(metrics_listener.is_some() || otlp.is_some());
        Ok(Self {
            config,
            kernel,
            costs,
            metrics_listener,
            otlp,
            access_log,
            tls,
            generation,
            made,
            max_connections,
            metrics,
        })
    }

    /// Whether the kernel can change keys (KeyUpdate) on a connection that it seals.
    pub(super) fn kernel_rekeys(&self) -> bool {
        self.kernel.probe().rekey_tx().is_ok()
    }
}

fn probed_kernel(mode: KtlsMode) -> Result<Arc<KernelOffer>, String> {
    let kernel = Arc::new(KernelOffer::new(probe::probe()));
    kernel.check(mode)?;
    if mode != KtlsMode::Never {
        kernel.self_check();
    }
    Ok(kernel)
}

/// The number of connections that can be served. Raises the soft limit on open files as far as they need.
fn max_connections(config: &Config) -> Result<usize, String> {
    let wanted = config.limits.max_connections.map(Bounded::get);
    let workers = config.server.worker_count() as u64;
    let addresses: usize = config.listen.iter().map(|listen| 2 * listen.address.addresses.len()).sum();
    let kept = cache_limits(config, 0).open + store_files(config);
    let directories = config.cache.directories.len() as u64;
    let others = OTHER_DESCRIPTORS
        + workers * (WORKER_DESCRIPTORS + (addresses + kept) as u64)
        + directories * CACHE_DIRECTORY_DESCRIPTORS;
    let each = CONNECTION_DESCRIPTORS + if directories > 0 { FETCH_DESCRIPTORS } else { 0 };
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    let possible = allowed.saturating_sub(others) / each;
    let connections = match wanted {
        Some(wanted) if wanted > possible => {
            return Err(format!(
                "--max-connections {wanted} needs {} open files, but at most {allowed} are allowed: raise the limit (`ulimit -Hn`, LimitNOFILE=) or lower the number to {possible}",
                wanted * each + others
            ));
        }
        Some(wanted) => wanted,
        None => possible.min(DEFAULT_MAX_CONNECTIONS),
    };
    if connections == 0 {
        return Err(format!("only {allowed} open files are allowed: raise the limit (`ulimit -Hn`, LimitNOFILE=)"));
    }
    let needed = connections * each + others;
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised)
            .map_err(|e| format!("cannot raise the limit on open files to {needed}: {e}"))?;
    }
    usize::try_from(connections).map_err(|e| e.to_string())
}
