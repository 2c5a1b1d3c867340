//! The content of `/top`: the numbers for `sealion top`, as JSON.

use sealion_tls::SealedBy;
use serde::{Deserialize, Serialize};

use crate::exchange::Shared;
use crate::observe::Left;
use crate::observe::access_log::CacheOutcome;
use crate::observe::metrics::{
    Counter, Durations, ErrorKind, HandshakeFailure, RouteNumber, RouteTotals, TopPath, TopPaths, WorkerMetrics,
};
use crate::path::policy::PathReason;
use crate::upstream::{AdminState, MirrorOutcome, ServerState, Upstream};

/// The current numbers. Counters start with the process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub version: String,
    pub uptime_seconds: f64,
    pub draining: bool,
    pub config_generation: u64,
    pub workers: usize,
    pub connections: Connections,
    /// Processes that upgrades have replaced and that have not ended.
    pub predecessors: Vec<Left>,
    pub accepted: u64,
    pub handshakes: u64,
    pub handshakes_resumed: u64,
    pub handshakes_failed: u64,
    pub responses_user: u64,
    pub responses_kernel: u64,
    pub bytes_user: u64,
    pub bytes_kernel: u64,
    pub moves: u64,
    pub http3: Http3Summary,
    /// Responses by the first digit of their status.
    pub statuses: [u64; 5],
    /// Requests by bucket; [`bound`](crate::observe::metrics::bound) has the bounds.
    pub latency: Vec<u64>,
    pub errors: u64,
    pub log_written: u64,
    pub log_dropped: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub cache_entries: u64,
    pub cache_bytes: u64,
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub open_descriptors: u64,
    pub paths: Vec<TopPath>,
    /// Servers that requests are forwarded to.
    pub upstreams: Vec<ServerSummary>,
    /// Upstreams that get copies of requests.
    pub mirrors: Vec<MirrorSummary>,
    /// The cache of responses, if there is one.
    pub store: Option<StoreSummary>,
    /// Routes that answered.
    pub routes: Vec<RouteSummary>,
}

/// A server that requests are forwarded to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerSummary {
    pub upstream: String,
    pub server: String,
    /// `up`, `drain` or `out`.
    pub state: String,
    /// Requests in progress.
    pub active: u64,
    pub answers: u64,
    /// Responses with a status of 500 or above.
    pub errors: u64,
    /// Tries without a response.
    pub failures: u64,
    /// Bytes of the contents of responses.
    pub received: u64,
    /// Responses by bucket of the time to their head.
    pub latency: Vec<u64>,
}

/// An upstream that gets copies of requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MirrorSummary {
    pub upstream: String,
    /// Copies that were sent.
    pub sent: u64,
    /// Copies that were dropped.
    pub dropped: u64,
}

/// The cache of responses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreSummary {
    /// Requests that met the cache.
    pub requests: u64,
    /// Requests that the cache answered: fresh, stale or revalidated.
    pub hits: u64,
    /// Stored responses, and their bytes.
    pub objects: u64,
    pub bytes: u64,
    /// Directories in use, of all.
    pub up: usize,
    pub directories: usize,
}

/// A route that answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RouteSummary {
    /// Site and route.
    pub name: String,
    pub requests: u64,
    /// Responses with a status of 500 or above.
    pub errors: u64,
    pub bytes: u64,
    /// Requests by bucket of their duration.
    pub latency: Vec<u64>,
}

impl From<(String, String, RouteTotals)> for RouteSummary {
    fn from((site, route, totals): (String, String, RouteTotals)) -> Self {
        let RouteTotals { responses, bytes, durations } = totals;
        let [.., errors] = responses;
        let latency = durations.buckets.into();
        RouteSummary { name: format!("{site} {route}"), requests: responses.iter().sum(), errors, bytes, latency }
    }
}

/// The totals of each route, with the names of its site and its own.
pub(super) fn routes(workers: &[&WorkerMetrics]) -> impl Iterator<Item = (String, String, RouteTotals)> {
    RouteNumber::all().into_iter().map(|(number, site, route)| {
        let mut totals = RouteTotals::default();
        workers.iter().for_each(|worker| worker.routes.add_to(number, &mut totals));
        (site, route, totals)
    })
}

fn upstreams(shared: &Shared) -> Vec<ServerSummary> {
    let generation = shared.generations.latest();
    let of_upstream = |upstream: &std::sync::Arc<Upstream>| {
        let name = upstream.name.to_string();
        let summary = |server: ServerState<'_>| {
            let counted = server.counted;
            let [.., errors] = counted.answers;
            ServerSummary {
                upstream: name.clone(),
                server: server.name.to_owned(),
                state: match (server.is_up, server.state) {
                    (false, _) => "out",
                    (true, AdminState::Drain) => "drain",
                    (true, AdminState::Ready) => "up",
                }
                .to_owned(),
                active: server.active as u64,
                answers: counted.answers.iter().sum(),
                errors,
                failures: counted.failures.iter().sum(),
                received: counted.received,
                latency: counted.times.buckets.into(),
            }
        };
        upstream.servers().map(summary).collect::<Vec<_>>()
    };
    generation.upstreams.iter().flat_map(of_upstream).collect()
}

fn mirrors(shared: &Shared) -> Vec<MirrorSummary> {
    let of_upstream = |upstream: &std::sync::Arc<Upstream>| {
        let counts = MirrorOutcome::ALL.iter().zip(upstream.mirrored()?);
        let (sent, dropped): (Vec<_>, Vec<_>) = counts.partition(|(outcome, _)| outcome.was_sent());
        let sum = |counts: Vec<(_, u64)>| counts.into_iter().map(|(_, count)| count).sum();
        Some(MirrorSummary { upstream: upstream.name.to_string(), sent: sum(sent), dropped: sum(dropped) })
    };
    shared.generations.latest().upstreams.iter().filter_map(of_upstream).collect()
}

fn store(shared: &Shared, workers: &[&WorkerMetrics]) -> Option<StoreSummary> {
    let sum = |counter: &dyn Fn(&WorkerMetrics) -> u64| workers.iter().map(|worker| counter(worker)).sum();
    let store = shared.generations.latest().store.clone()?;
    let is_hit = |outcome: &&CacheOutcome| {
        matches!(outcome, CacheOutcome::Hit | CacheOutcome::Stale | CacheOutcome::Revalidated)
    };
    let requests = |w: &WorkerMetrics| w.reused.iter().map(Counter::get).sum();
    let hits = |w: &WorkerMetrics| {
        CacheOutcome::ALL.iter().filter(is_hit).map(|outcome| w.reused[*outcome as usize].get()).sum()
    };
    let disks: Vec<_> = store.disk_states().collect();
    Some(StoreSummary {
        requests: sum(&requests),
        hits: sum(&hits),
        objects: disks.iter().map(|disk| disk.objects).sum(),
        bytes: disks.iter().map(|disk| disk.bytes).sum(),
        up: disks.iter().filter(|disk| disk.is_up).count(),
        directories: disks.len(),
    })
}

/// HTTP/3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Http3Summary {
    /// Open connections.
    pub connections: u64,
    pub responses: u64,
    /// Bytes of datagrams that were sent, and how many of them were lost.
    pub bytes: u64,
    pub lost_bytes: u64,
}

/// Open connections by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub handshaking: u64,
    /// Between requests.
    pub idle: u64,
    /// Reading a request or sending a response.
    pub active: u64,
    /// Waiting for the client to close.
    pub lingering: u64,
    /// Limit on open connections.
    pub most: u64,
}

impl Connections {
    /// Zeros if nothing is counted.
    pub(crate) fn of(shared: &Shared) -> Self {
        connections(shared, &shared.metrics.workers())
    }
}

pub(super) fn connections(shared: &Shared, workers: &[&WorkerMetrics]) -> Connections {
    let sum = |level: fn(&WorkerMetrics) -> u64| workers.iter().fold(0_u64, |sum, w| sum.wrapping_add(level(w)));
    let (handshaking, active, lingering) =
        (sum(|w| w.handshaking.get()), sum(|w| w.active.get()), sum(|w| w.lingering.get()));
    // Saturating, because the levels are not read at the same instant.
    let idle = sum(|w| w.open.get()).saturating_sub(handshaking + active + lingering);
    Connections { handshaking, idle, active, lingering, most: shared.most_connections as u64 }
}

impl Summary {
    pub(crate) fn of(shared: &Shared) -> Self {
        use std::sync::atomic::Ordering::Relaxed;
        let metrics = &shared.metrics;
        let workers = metrics.workers();
        let sum =
            |count: &dyn Fn(&WorkerMetrics) -> u64| workers.iter().fold(0_u64, |sum, w| sum.wrapping_add(count(w)));
        let responses = |path: SealedBy| {
            sum(&|w| {
                let of_path = PathReason::ALL.iter().copied().filter(|reason| reason.sealed_by() == path);
                of_path.map(|reason| w.responses[reason as usize].get()).sum()
            })
        };
        let statuses = std::array::from_fn(|n| {
            let first = 100 * (n as u16 + 1);
            sum(&|w| (first..first + 100).map(|code| w.statuses.of(code).get()).sum())
        });
        let latency: Durations = workers.iter().map(|worker| worker.sites.durations()).sum();
        let tops: Vec<_> = workers.iter().map(|w| w.top.lock()).collect();
        let paths = TopPaths::merge(tops.iter().map(|top| &**top));
        drop(tops);
        let (log_written, log_dropped) = shared.access_log.counts();
        Summary {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: metrics.started.elapsed().as_secs_f64(),
            draining: !shared.is_serving(),
            config_generation: shared.generations.number(),
            workers: workers.len(),
            connections: connections(shared, &workers),
            predecessors: shared.predecessors.left(),
            accepted: sum(&|w| w.accepted.get()),
            handshakes: sum(&|w| w.handshakes.iter().flatten().map(Counter::get).sum()),
            handshakes_resumed: sum(&|w| w.handshakes.iter().map(|[_, resumed]| resumed.get()).sum()),
            handshakes_failed: sum(&|w| {
                HandshakeFailure::ALL.iter().map(|failure| w.handshake_failures[*failure as usize].get()).sum()
            }),
            responses_user: responses(SealedBy::User),
            responses_kernel: responses(SealedBy::Kernel),
            bytes_user: sum(&|w| w.progress.sent(SealedBy::User)),
            bytes_kernel: sum(&|w| w.progress.sent(SealedBy::Kernel)),
            moves: sum(&|w| w.responses[PathReason::Moved as usize].get()),
            http3: Http3Summary {
                connections: sum(&|w| w.http3.open.get()),
                responses: sum(&|w| w.http3.responses.get()),
                bytes: sum(&|w| w.http3.bytes[1].get()),
                lost_bytes: sum(&|w| w.http3.lost_bytes.get()),
            },
            statuses,
            latency: latency.buckets.into(),
            errors: sum(&|w| ErrorKind::ALL.iter().map(|kind| w.errors[*kind as usize].get()).sum()),
            log_written,
            log_dropped,
            cache_hits: sum(&|w| w.cache_hits.get()),
            cache_misses: sum(&|w| w.cache_misses.get()),
            cache_entries: sum(&|w| w.cache_entries.load(Relaxed)),
            cache_bytes: sum(&|w| w.cache_bytes.load(Relaxed)),
            cpu_seconds: metrics.process.cpu_seconds(),
            resident_bytes: metrics.process.resident_bytes().unwrap_or(0),
            open_descriptors: metrics.process.open_descriptors().unwrap_or(0),
            paths,
            upstreams: upstreams(shared),
            mirrors: mirrors(shared),
            store: store(shared, &workers),
            routes: routes(&workers).map(RouteSummary::from).filter(|route| route.requests > 0).collect(),
        }
    }
}
