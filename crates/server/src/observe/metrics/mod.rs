//! Metrics: each worker has its own counters, and a scrape adds them up.
//!
//! ```text
//! worker ─► WorkerMetrics ─┐
//! worker ─► WorkerMetrics ─┼─► Metrics ─► /metrics (exposition.rs), /top (summary.rs) ─► `sealion top`
//! process, kernel, reload ─┘              /health, /ready (listener.rs)
//! ```

mod config;
mod counter;
mod http3;
mod process;
mod routes;
mod served;
mod sites;
mod streams;
mod top_paths;
mod worker;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub(crate) use config::MetricsConfig;
pub(crate) use counter::{BUCKETS, Counter, Durations, Histogram, SharedHistogram, bound, quantile};
pub(crate) use http3::{DIRECTIONS, Http3Metrics};
pub(crate) use routes::RouteNumber;
pub(crate) use served::{CLASSES, PROTOCOLS, RouteTotals};
pub(crate) use sites::SiteNumber;
pub(crate) use streams::{SIDES, StreamMetrics, StreamResult};
pub(crate) use top_paths::{TopPath, TopPaths};
pub(crate) use worker::{Deadline, ErrorKind, HandshakeFailure, SUITES, Sent, WorkerMetrics};

use process::Process;

use crate::values::Mutex;

/// All metrics of the process.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// Whether there is a metrics listener or an OTLP collector. Without either, nothing is counted.
    on: bool,
    pub(crate) started: Instant,
    /// The start of the process, in seconds since 1970.
    pub(crate) started_at: f64,
    workers: Mutex<Vec<&'static WorkerMetrics>>,
    /// The time of the last reload in seconds since 1970; 0: none.
    pub(crate) reloaded_at: AtomicU64,
    /// Reloads that were rejected.
    pub(crate) reloads_refused: AtomicU64,
    pub(crate) last_reload_refused: AtomicU64,
    /// Workers' listeners that cannot accept connections for lack of descriptors or memory.
    pub(crate) short: AtomicU64,
    /// Messages that no OTLP collector accepted.
    pub(crate) otlp_failures: AtomicU64,
    /// Spans that were not sent, or that no collector accepted.
    pub(crate) otlp_dropped: AtomicU64,
    pub(crate) process: Process,
}

thread_local! {
    /// The counters of this thread, if it is a worker and metrics are on.
    static WORKER: Cell<Option<&'static WorkerMetrics>> = const { Cell::new(None) };
}

/// The counters of this thread. `None`: metrics are off, or the thread is not a worker.
#[inline]
pub(crate) fn worker() -> Option<&'static WorkerMetrics> {
    WORKER.get()
}

/// Counts an expired deadline.
pub(crate) fn timed_out(deadline: Deadline) {
    if let Some(worker) = worker() {
        worker.timed_out(deadline);
    }
}

impl Metrics {
    /// Opens the files of /proc now, before privileges are dropped.
    pub(crate) fn new(on: bool) -> Self {
        Metrics {
            on,
            started: Instant::now(),
            started_at: seconds_since_1970(),
            workers: Mutex::default(),
            reloaded_at: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
            last_reload_refused: AtomicU64::new(0),
            short: AtomicU64::new(0),
            otlp_failures: AtomicU64::new(0),
            otlp_dropped: AtomicU64::new(0),
            process: Process::open(),
        }
    }

    /// Gives this thread its own counters, if metrics are on. They are leaked, because workers live as long as the
    /// process.
    pub(crate) fn enter_worker(&self) {
        if self.on {
            let worker: &'static WorkerMetrics = Box::leak(Box::default());
            self.workers.lock().push(worker);
            WORKER.set(Some(worker));
        }
    }

    /// Counts a reload and records its time.
    pub(crate) fn reloaded(&self, successful: bool) {
        self.reloaded_at.store(seconds_since_1970() as u64, Ordering::Relaxed);
        self.reloads_refused.fetch_add(u64::from(!successful), Ordering::Relaxed);
        self.last_reload_refused.store(u64::from(!successful), Ordering::Relaxed);
    }

    /// Counts a listener that cannot accept connections, or stops counting it.
    pub(crate) fn short_of_descriptors(&self, short: bool) {
        match short {
            true => self.short.fetch_add(1, Ordering::Relaxed),
            false => self.short.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// The counters of every worker.
    pub(crate) fn workers(&self) -> Vec<&'static WorkerMetrics> {
        self.workers.lock().clone()
    }
}

fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
