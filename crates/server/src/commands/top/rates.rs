//! Rates between two samples of the counters.

use std::collections::HashMap;

use crate::monitor::Summary;
use crate::observe::metrics::{TopPath, quantile};

/// Per second unless noted.
#[derive(Debug, Default)]
pub(super) struct Rates {
    pub(super) requests: f64,
    pub(super) bytes_user: f64,
    pub(super) bytes_kernel: f64,
    pub(super) handshakes: f64,
    /// The share of resumed handshakes, if there were handshakes.
    pub(super) resumed: Option<f64>,
    pub(super) handshakes_failed: f64,
    pub(super) moves: f64,
    /// The share of responses sealed by the kernel, if there were responses.
    pub(super) kernel_share: Option<f64>,
    pub(super) statuses: [f64; 5],
    pub(super) errors: f64,
    pub(super) log_dropped: f64,
    /// Share of one processor.
    pub(super) cpu: f64,
    /// Hit rate of the file cache, if there were lookups.
    pub(super) cache_hits: Option<f64>,
    /// The 50th, 90th, 99th and 99.9th percentile in seconds. They cover the time since the start if the interval had
    /// no requests.
    pub(super) latency: [Option<f64>; 4],
    /// Paths with their requests per second, the busiest first.
    pub(super) paths: Vec<(TopPath, f64)>,
}

impl Rates {
    pub(super) fn between(before: &Summary, now: &Summary) -> Self {
        let seconds = (now.uptime_seconds - before.uptime_seconds).max(1e-3);
        // The counters of a restarted server start at zero.
        let rate = |count: fn(&Summary) -> u64| count(now).saturating_sub(count(before)) as f64 / seconds;
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let fresh: Vec<u64> = now.latency.iter().zip(&before.latency).map(|(n, b)| n.saturating_sub(*b)).collect();
        let latency = if fresh.iter().any(|count| *count > 0) { &fresh } else { &now.latency };
        let handshakes = rate(|s| s.handshakes);
        let requests = rate(|s| s.responses_user + s.responses_kernel);
        let (hits, misses) = (rate(|s| s.cache_hits), rate(|s| s.cache_misses));
        Self {
            requests,
            bytes_user: rate(|s| s.bytes_user),
            bytes_kernel: rate(|s| s.bytes_kernel),
            handshakes,
            resumed: share(rate(|s| s.handshakes_resumed), handshakes),
            handshakes_failed: rate(|s| s.handshakes_failed),
            moves: rate(|s| s.moves),
            kernel_share: share(rate(|s| s.responses_kernel), requests),
            statuses: std::array::from_fn(|n| now.statuses[n].saturating_sub(before.statuses[n]) as f64 / seconds),
            errors: rate(|s| s.errors),
            log_dropped: rate(|s| s.log_dropped),
            cpu: (now.cpu_seconds - before.cpu_seconds).max(0.0) / seconds,
            cache_hits: share(hits, hits + misses),
            latency: [0.5, 0.9, 0.99, 0.999].map(|share| quantile(latency, share)),
            paths: paths(before, now, seconds),
        }
    }
}

fn paths(before: &Summary, now: &Summary, seconds: f64) -> Vec<(TopPath, f64)> {
    let known: HashMap<&str, u64> = before.paths.iter().map(|path| (path.path.as_str(), path.requests)).collect();
    let mut paths: Vec<(TopPath, f64)> = now
        .paths
        .iter()
        .map(|path| {
            // A new path in the table inherits the count of the evicted path as its error, which does not count as its
            // requests.
            let since = known.get(path.path.as_str()).copied().unwrap_or(path.error);
            (path.clone(), path.requests.saturating_sub(since) as f64 / seconds)
        })
        .collect();
    // The sort is stable: without traffic, the paths with the most requests since the start stay first.
    paths.sort_by(|a, b| b.1.total_cmp(&a.1));
    paths
}
