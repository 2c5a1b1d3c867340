//! The content of `/top`: the numbers for `sealion top`, as JSON.

use sealion_tls::SealedBy;
use serde::{Deserialize, Serialize};

use crate::exchange::Shared;
use crate::observe::Left;
use crate::observe::metrics::{BUCKETS, Counter, ErrorKind, HandshakeFailure, TopPath, TopPaths, WorkerMetrics};
use crate::path::policy::PathReason;
use crate::upstream::AdminState;

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
    /// Servers of upstreams, in the order of the configuration.
    #[serde(default)]
    pub servers: Vec<ServerSummary>,
    pub paths: Vec<TopPath>,
}

/// A server of an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerSummary {
    pub upstream: String,
    pub server: String,
    /// `up`, `drain` or `out`.
    pub state: String,
    /// Requests in progress.
    pub active: usize,
    pub answers: u64,
    pub failures: u64,
}

impl ServerSummary {
    fn all(shared: &Shared) -> Vec<Self> {
        let generation = shared.generations.latest();
        let servers = generation.upstreams.iter().flat_map(|upstream| {
            upstream.servers().map(|server| ServerSummary {
                upstream: upstream.name.to_string(),
                server: server.name.to_owned(),
                state: match (server.is_up, server.state) {
                    (false, _) => "out",
                    (true, AdminState::Drain) => "drain",
                    (true, AdminState::Ready) => "up",
                }
                .to_owned(),
                active: server.active,
                answers: server.answers.iter().sum(),
                failures: server.failures.iter().sum(),
            })
        });
        servers.take(MAX_SERVERS).collect()
    }
}

/// Servers of a summary: it is read each second.
const MAX_SERVERS: usize = 100;

/// HTTP/3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Http3Summary {
    /// Open connections.
    pub connections: u64,
    pub responses: u64,
    /// Bytes of datagrams sent, and those of them that were lost.
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
        let mut latency = vec![0; BUCKETS];
        for worker in &workers {
            latency.iter_mut().zip(worker.request_time.get().0).for_each(|(sum, count)| *sum += count);
        }
        let tops: Vec<_> =
            workers.iter().map(|w| w.top.lock().unwrap_or_else(std::sync::PoisonError::into_inner)).collect();
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
            latency,
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
            servers: ServerSummary::all(shared),
            paths,
        }
    }
}
