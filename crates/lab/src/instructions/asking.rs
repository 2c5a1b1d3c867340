//! The client's part of a count.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::plan::size_name;
use super::server::Server;
use super::server_cost::ServerCost;
use super::{Cell, Client, Plan, wrk};
use crate::load::{self, Arrival, Extent, LoadPlan, Read};

/// What clients asked and what that cost the server.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) requests: u64,
    pub(super) handshakes: u64,
    pub(super) resumed: u64,
    /// Of the server, for just these requests.
    pub(super) cost: ServerCost,
    pub(super) suite: String,
}

/// Asks for the file of `cell` over and over.
pub(super) fn ask(plan: &Plan, cell: Cell, server: &Server, work: &Path) -> Result<Asked> {
    match plan.client {
        Client::Wrk => with_wrk(plan, cell, server, work),
        Client::Lab => {
            ensure!(server.scheme == "https", "the lab's client speaks TLS only: count nginx-plain with --client wrk");
            let (few, many) = requests(cell);
            let first = with_lab(plan, cell, server, work, few)?;
            let second = with_lab(plan, cell, server, work, many)?;
            Ok(Asked {
                requests: second.requests - first.requests,
                handshakes: second.handshakes - first.handshakes,
                resumed: second.resumed - first.resumed,
                cost: second.cost.since(first.cost),
                suite: second.suite,
            })
        }
    }
}

fn with_wrk(plan: &Plan, cell: Cell, server: &Server, work: &Path) -> Result<Asked> {
    ensure!(cell.calls.is_none() && !cell.resume, "wrk keeps its connections: count calls with --client lab");
    let url = format!("{}://{}/{}", server.scheme, server.address, size_name(cell.size));
    let before = ServerCost::read(server.pid())?;
    let requests = wrk::requests(&url, plan.suite, work)?;
    let cost = ServerCost::read(server.pid())?.since(before);
    let handshakes = if server.scheme == "https" { CONNECTIONS } else { 0 };
    Ok(Asked { requests, handshakes, resumed: 0, cost, suite: format!("{:?}", plan.suite) })
}

/// One run of the lab's client; everything must succeed.
fn with_lab(plan: &Plan, cell: Cell, server: &Server, work: &Path, requests: u64) -> Result<Asked> {
    let load = LoadPlan {
        address: server.address,
        server_name: "localhost".into(),
        roots: Some(work.join("cert.pem")),
        target: format!("/{}", size_name(cell.size)),
        threads: 1,
        connections: CONNECTIONS as usize,
        calls: cell.calls,
        resume: cell.resume,
        arrival: Arrival::Closed,
        extent: Extent::Requests(requests),
        read: Read::Drain,
        body_cap: None,
        suites: vec![plan.suite],
        timeout: PATIENCE,
        cores: Vec::new(),
    };
    let before = ServerCost::read(server.pid())?;
    let outcome = load::run(&load)?;
    std::thread::sleep(SETTLE);
    let cost = ServerCost::read(server.pid())?.since(before);
    if outcome.failures.total() > 0 || outcome.requests != requests {
        bail!(
            "{} of {requests} requests were answered: {}",
            outcome.requests,
            outcome.failures.first.unwrap_or_default()
        );
    }
    Ok(Asked { requests, handshakes: outcome.handshakes, resumed: outcome.resumed, cost, suite: outcome.suite })
}

/// How many requests the two runs make. MEASURED (does a count repeat within 0.3 %? with these yes; twice as many change
/// nothing; `sealion-lab instructions` twice, kernels 6.1 and 7.2, QEMU 7.2, 2026-11-21): few must outlast the growth of TCP's windows,
/// and the difference must outweigh a timer tick more or less.
fn requests(cell: Cell) -> (u64, u64) {
    let (few, many) = match cell.size {
        0..0x2000 => (100, 600),
        0x2000..0x8000 => (60, 260),
        0x8000..0x2_0000 => (40, 160),
        0x2_0000..0x8_0000 => (20, 80),
        _ => (12, 36),
    };
    match cell.calls {
        // Handshakes weigh much and repeat.
        Some(1) => (few.min(8), many.min(40)),
        Some(calls) => {
            let connections = CONNECTIONS * calls;
            ((few.min(16) / connections).max(1) * connections, (many.min(64) / connections).max(2) * connections)
        }
        None => (few, many),
    }
}

/// As in every earlier count.
pub(super) const CONNECTIONS: u64 = 2;

/// GUESS: guest time, far more than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// GUESS: guest time in which a server closes what its clients have left.
const SETTLE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_runs_fill_their_connections() {
        for size in [0, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20] {
            for calls in [None, Some(1), Some(4), Some(10), Some(1000)] {
                let (few, many) = requests(Cell { size, calls, resume: false });
                assert!(few < many, "{size} {calls:?}");
                let whole = CONNECTIONS * calls.unwrap_or(1);
                assert_eq!((few % whole, many % whole), (0, 0), "{size} {calls:?}");
            }
        }
    }
}
