//! The plan for file descriptors: how many connections and streams can be served, so that none of them ever lacks one.
//!
//! ```text
//! limit on open files = the process, its workers, caches ─ idle connections to servers ─ pipes
//!                     ─ connections × (socket + descriptors of one response)
//!                     ─ further streams of HTTP/2 × descriptors of one response
//! ```

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::build::{cache_limits, store_files};
use crate::config::Config;
use crate::response::bound_pipes;
use crate::site::SiteConfig;
use crate::store::bound_fetches;
use crate::upstream::bound_idle_connections;
use crate::values::Bounded;

/// Descriptors of the process, apart from connections and workers: logs, roots, the canary. It uses about 20; the rest is room for
/// sites, and costs 64 connections of a limit of thousands.
const OTHER_DESCRIPTORS: u64 = 128;

/// Descriptors of a worker beside its listeners and cached files: epoll, wake-up, signals. It uses about 4.
const WORKER_DESCRIPTORS: u64 = 8;

/// Descriptors of a directory of the cache: itself, its lock, its 16 threads, and the writer, which opens three to append.
const CACHE_DIRECTORY_DESCRIPTORS: u64 = 32;

/// Descriptors of a response: its file, or the connection to the server that makes it.
const RESPONSE_DESCRIPTORS: u64 = 1;

/// Further ones where responses are fetched into the cache: the connection to the server, and a file that is written and sent at once.
const FETCH_DESCRIPTORS: u64 = 3;

/// Further ones where contents wait in files: of the request and of the response.
const SPOOL_DESCRIPTORS: u64 = 2;

/// Descriptors of a relay: an exchange whose client another process has. Only an upgrade needs them: they take no place from connections, and an exchange
/// without one stays in its process.
const RELAY_DESCRIPTORS: u64 = 1;

/// Most connections unless the operator sets `--max-connections`.
const DEFAULT_MAX_CONNECTIONS: u64 = 10_000;

/// The part of a low limit that streams of HTTP/2 get, unless the operator sets `--max-connections`: half.
const SHARE_OF_STREAMS: u64 = 2;

// GUESS: sixteen streams for each connection. Chromium and Firefox open up to 100 for a page, on few connections at a time.
/// Most places of streams for each connection.
const STREAMS_PER_CONNECTION: u64 = 16;

/// The part of a low limit that idle connections to servers get.
const SHARE_OF_IDLE: u64 = 8;

/// The part of a low limit that pipes get.
const SHARE_OF_PIPES: u64 = 32;

/// Descriptors of a pipe.
const PIPE_DESCRIPTORS: u64 = 2;

// GUESS: a pipe is in use while its client takes less than the server sends.
/// Pipes for each worker, for responses of servers. A response without one is read and written.
const PIPES_PER_WORKER: u64 = 32;

/// How many connections and streams can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DescriptorPlan {
    /// Connections, each with one response.
    pub connections: usize,
    /// Responses over HTTP/2 beside the first of each connection.
    pub streams: usize,
}

/// The inputs to the plan.
struct Needs {
    /// Descriptors of the process, its workers and its caches.
    others: u64,
    /// Descriptors of a response.
    response: u64,
    /// Idle connections to servers that the configuration allows.
    idle: u64,
    /// Pipes that the workers may have.
    pipes: u64,
    /// `--max-connections`.
    connections: Option<u64>,
}

/// Things that a low limit on open files makes fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    /// Idle connections to servers.
    idle: u64,
    pipes: u64,
}

impl Kept {
    fn descriptors(self) -> u64 {
        self.idle + self.pipes * PIPE_DESCRIPTORS
    }
}

/// Refuses a configuration that the limit on open files does not allow. Changes nothing.
///
/// # Errors
/// A line that says how to change the limit or `limits.max_connections`.
pub(crate) fn check_open_files(config: &Config) -> Result<(), String> {
    Needs::of(config).plan(allowed()).map(|_| ())
}

/// The hard limit on open files.
fn allowed() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

impl DescriptorPlan {
    /// Makes the plan, raises the soft limit on open files as far as it needs, and bounds idle connections to servers and pipes.
    ///
    /// # Errors
    /// As [`check_open_files`], and if the limit cannot be raised.
    pub(super) fn new(config: &Config) -> Result<Self, String> {
        let limit = getrlimit(Resource::Nofile);
        let needs = Needs::of(config);
        let (plan, kept) = needs.plan(allowed())?;
        let needed = needs.open_files(&plan, kept, allowed());
        if limit.current.is_some_and(|current| current < needed) {
            let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
            setrlimit(Resource::Nofile, raised)
                .map_err(|e| format!("cannot raise the limit on open files to {needed}: {e}"))?;
        }
        bound_idle_connections(usize::try_from(kept.idle).unwrap_or(usize::MAX));
        bound_pipes(usize::try_from(kept.pipes).unwrap_or(usize::MAX));
        // Each connection and each further stream has room for one.
        bound_fetches(usize::try_from(plan.connections + plan.streams).unwrap_or(usize::MAX));
        let number = |count| usize::try_from(count).map_err(|e| format!("{count} connections: {e}"));
        Ok(Self { connections: number(plan.connections)?, streams: number(plan.streams)? })
    }
}

/// [`DescriptorPlan`] before its numbers are known to fit.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    connections: u64,
    streams: u64,
}

impl Needs {
    fn of(config: &Config) -> Self {
        let workers = config.server.worker_count() as u64;
        let addresses: usize = config.listen.iter().map(|listen| 2 * listen.address.addresses.len()).sum();
        let kept = cache_limits(config, 0).open + store_files(config);
        let directories = config.cache.directories.len() as u64;
        let others = OTHER_DESCRIPTORS
            + workers * (WORKER_DESCRIPTORS + (addresses + kept) as u64)
            + directories * CACHE_DIRECTORY_DESCRIPTORS;
        let rules = || config.site.iter().flat_map(SiteConfig::proxies);
        let mirrors = || rules().filter_map(|rule| rule.mirror.as_ref());
        // A connection for each copy of a request.
        let others = others + mirrors().map(|mirror| mirror.max_requests.get()).sum::<u64>();
        let spools = config.collects_contents() || rules().any(|rule| rule.buffers_in_files());
        let response = RESPONSE_DESCRIPTORS
            + if directories > 0 { FETCH_DESCRIPTORS } else { 0 }
            + if spools { SPOOL_DESCRIPTORS } else { 0 };
        let of_upstream = |servers: usize, most: u64| workers * servers as u64 * most;
        let named =
            config.upstream.iter().map(|upstream| of_upstream(upstream.servers.len(), upstream.idle_connections()));
        // A URL in a rule is an upstream with one server.
        let of_rules = rules().count() + mirrors().count();
        let idle = named.sum::<u64>() + of_upstream(of_rules, crate::upstream::UpstreamConfig::DEFAULT_MAX_IDLE);
        let pipes = if of_rules > 0 { workers * PIPES_PER_WORKER } else { 0 };
        Needs { others, response, idle, pipes, connections: config.limits.max_connections.map(Bounded::get) }
    }

    /// Open files for the plan, with a relay for each exchange where `allowed` has the room.
    fn open_files(&self, Plan { connections, streams }: &Plan, kept: Kept, allowed: u64) -> u64 {
        let exchanges = connections + streams;
        let needed = self.others + kept.descriptors() + connections + exchanges * self.response;
        (needed + exchanges * RELAY_DESCRIPTORS).min(allowed)
    }

    /// The plan for `allowed` open files.
    fn plan(&self, allowed: u64) -> Result<(Plan, Kept), String> {
        let room = allowed.saturating_sub(self.others);
        let kept = Kept {
            idle: self.idle.min(room / SHARE_OF_IDLE),
            pipes: self.pipes.min(room / SHARE_OF_PIPES / PIPE_DESCRIPTORS),
        };
        let room = room - kept.descriptors();
        let each = 1 + self.response;
        let possible = room / each;
        let connections = match self.connections {
            Some(wanted) if wanted > possible => {
                return Err(format!(
                    "limits.max_connections = {wanted} needs {} open files, but at most {allowed} are allowed: raise the limit (`ulimit -Hn`, LimitNOFILE=) or lower the number to {possible}",
                    wanted.saturating_mul(each).saturating_add(self.others + kept.descriptors())
                ));
            }
            Some(wanted) => wanted,
            None => (possible / SHARE_OF_STREAMS).max(possible.min(1)).min(DEFAULT_MAX_CONNECTIONS),
        };
        if connections == 0 {
            return Err(format!("only {allowed} open files are allowed: raise the limit (`ulimit -Hn`, LimitNOFILE=)"));
        }
        let left = room - connections * each;
        let streams = (left / self.response).min(connections.saturating_mul(STREAMS_PER_CONNECTION));
        Ok((Plan { connections, streams }, kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_streams_never_need_more_than_is_allowed() {
        let (others, idle) = (300, 640);
        for response in [1, 4, 6] {
            for allowed in [others + 9, 1024, 1500, 4096, 524_288, 1 << 20] {
                for connections in [None, Some(1), Some(50)] {
                    let needs = Needs { others, response, idle, pipes: 64, connections };
                    let Ok((plan, kept)) = needs.plan(allowed) else { continue };
                    let needed =
                        others + kept.descriptors() + plan.connections * (1 + response) + plan.streams * response;
                    assert!(needed <= allowed, "{response} {allowed} {connections:?}: {needed}");
                    let raised = needs.open_files(&plan, kept, allowed);
                    let with_relays = needed + plan.connections + plan.streams;
                    assert_eq!(raised, with_relays.min(allowed), "{response} {allowed} {connections:?}");
                    assert!(plan.connections > 0 && connections.is_none_or(|wanted| wanted == plan.connections));
                }
            }
        }
    }

    #[test]
    fn a_high_limit_serves_the_default_and_a_low_one_is_shared() {
        let needs = |connections| Needs { others: 300, response: 1, idle: 0, pipes: 0, connections };
        let plan = |connections, allowed| needs(connections).plan(allowed).map(|(plan, _)| plan);
        let high = Plan { connections: DEFAULT_MAX_CONNECTIONS, streams: 160_000 };
        assert_eq!(plan(None, 1 << 20), Ok(high));
        assert_eq!(plan(None, 1500), Ok(Plan { connections: 300, streams: 600 }));
        assert_eq!(plan(Some(600), 1500), Ok(Plan { connections: 600, streams: 0 }));
        let refused = plan(Some(601), 1500).unwrap_err();
        assert!(refused.contains("needs 1502 open files") && refused.contains("lower the number to 600"), "{refused}");
        assert!(plan(None, 301).is_err());
    }
}
