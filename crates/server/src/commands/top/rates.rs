//! Rates between two samples of the counters.

use std::collections::HashMap;

use crate::monitor::{MirrorSummary, RouteSummary, ServerSummary, Summary};
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
    /// Share of requests that the cache of responses answered, if requests met it.
    pub(super) stored_hits: Option<f64>,
    /// Servers, in the order of the configuration.
    pub(super) servers: Vec<OfPart<ServerSummary>>,
    /// Upstreams that get copies of requests, with the copies that were sent and those that were dropped.
    pub(super) mirrors: Vec<(MirrorSummary, [f64; 2])>,
    /// Routes, the busiest first.
    pub(super) routes: Vec<OfPart<RouteSummary>>,
}

/// A server or a route.
#[derive(Debug)]
pub(super) struct OfPart<T> {
    pub(super) now: T,
    /// Requests that it answered, and errors: statuses from 500 on and failures.
    pub(super) requests: f64,
    pub(super) errors: f64,
    /// The 50th and the 99th percentile in seconds, as [`Rates::latency`].
    pub(super) latency: [Option<f64>; 2],
}

impl Rates {
    pub(super) fn between(before: &Summary, now: &Summary) -> Self {
        let seconds = (now.uptime_seconds - before.uptime_seconds).max(1e-3);
        // The counters of a restarted server start at zero.
        let rate = |count: fn(&Summary) -> u64| count(now).saturating_sub(count(before)) as f64 / seconds;
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let latency = fresh(&before.latency, &now.latency);
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
            latency: [0.5, 0.9, 0.99, 0.999].map(|share| quantile(&latency, share)),
            paths: paths(before, now, seconds),
            stored_hits: share(rate(|s| s.store.map_or(0, |s| s.hits)), rate(|s| s.store.map_or(0, |s| s.requests))),
            servers: servers(before, now, seconds),
            mirrors: mirrors(before, now, seconds),
            routes: routes(before, now, seconds),
        }
    }
}

/// The events of the interval, by bucket, or all, if the interval had none.
fn fresh(before: &[u64], now: &[u64]) -> Vec<u64> {
    let before = before.iter().chain(std::iter::repeat(&0));
    let fresh: Vec<u64> = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect();
    if fresh.iter().any(|count| *count > 0) { fresh } else { now.to_vec() }
}

fn servers(before: &Summary, now: &Summary, seconds: f64) -> Vec<OfPart<ServerSummary>> {
    let of_server = |server: &ServerSummary| {
        let is_same = |other: &&ServerSummary| (&other.upstream, &other.server) == (&server.upstream, &server.server);
        let known = before.upstreams.iter().find(is_same).cloned().unwrap_or_default();
        let rate = |count: fn(&ServerSummary) -> u64| count(server).saturating_sub(count(&known)) as f64 / seconds;
        let latency = fresh(&known.latency, &server.latency);
        OfPart {
            requests: rate(|server| server.answers),
            errors: rate(|server| server.errors + server.failures),
            latency: [0.5, 0.99].map(|share| quantile(&latency, share)),
            now: server.clone(),
        }
    };
    now.upstreams.iter().map(of_server).collect()
}

fn mirrors(before: &Summary, now: &Summary, seconds: f64) -> Vec<(MirrorSummary, [f64; 2])> {
    let of_mirror = |mirror: &MirrorSummary| {
        let known = before.mirrors.iter().find(|other| other.upstream == mirror.upstream).cloned().unwrap_or_default();
        let counts = [(mirror.sent, known.sent), (mirror.dropped, known.dropped)];
        (mirror.clone(), counts.map(|(now, before)| now.saturating_sub(before) as f64 / seconds))
    };
    now.mirrors.iter().map(of_mirror).collect()
}

fn routes(before: &Summary, now: &Summary, seconds: f64) -> Vec<OfPart<RouteSummary>> {
    let of_route = |route: &RouteSummary| {
        let known = before.routes.iter().find(|other| other.name == route.name).cloned().unwrap_or_default();
        let rate = |count: fn(&RouteSummary) -> u64| count(route).saturating_sub(count(&known)) as f64 / seconds;
        let latency = fresh(&known.latency, &route.latency);
        OfPart {
            requests: rate(|route| route.requests),
            errors: rate(|route| route.errors),
            latency: [0.5, 0.99].map(|share| quantile(&latency, share)),
            now: route.clone(),
        }
    };
    let mut routes: Vec<_> = now.routes.iter().map(of_route).collect();
    routes.sort_by(|a, b| b.requests.total_cmp(&a.requests).then_with(|| b.now.requests.cmp(&a.now.requests)));
    routes
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
