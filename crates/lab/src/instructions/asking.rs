//! The client's part of a count.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::plan::size_name;
use super::server::Server;
use super::server_cost::ServerCost;
use super::{Cell, Client, Plan, wrk};
use crate::load::{self, Arrival, Extent, LoadPlan, Read};

/// What clients asked and what that cost the server.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Requests that [`Self::run_time`] is of.
    pub(super) requests: u64,
    /// Of the server, for just these requests.
    pub(super) run_time: u64,
    /// Handshakes of the whole run, or of the run of many.
    pub(super) handshakes: u64,
    /// Those of them that resumed a session.
    pub(super) resumed: u64,
    /// Kernel senders in the same run.
    pub(super) kernel_senders: u64,
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
            if let Some(calls) = cell.calls {
                let equal = first.handshakes * calls == few && second.handshakes * calls == many;
                ensure!(equal, "connections did not serve {calls} requests each");
            }
            Ok(Asked {
                requests: second.requests - first.requests,
                run_time: second.run_time.checked_sub(first.run_time).context("many requests cost less than few")?,
                ..second
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
    let handshakes = if server.scheme == "https" { connections(cell) } else { 0 };
    let ServerCost { run_time, kernel_senders } = cost;
    Ok(Asked { requests, run_time, handshakes, resumed: 0, kernel_senders, suite: format!("{:?}", plan.suite) })
}

/// One run of the lab's client; everything must succeed.
fn with_lab(plan: &Plan, cell: Cell, server: &Server, work: &Path, requests: u64) -> Result<Asked> {
    let load = LoadPlan {
        address: server.address,
        server_name: "localhost".into(),
        roots: Some(work.join("cert.pem")),
        target: format!("/{}", size_name(cell.size)),
        threads: 1,
        connections: connections(cell) as usize,
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
    Ok(Asked {
        requests,
        run_time: cost.run_time,
        handshakes: outcome.handshakes,
        resumed: outcome.resumed,
        kernel_senders: cost.kernel_senders,
        suite: outcome.suite,
    })
}

/// How many requests the two runs make. MEASURED (how far does a count repeat? half of 96 cells within
/// 0.1 %, all within 0.5 % on 6.1 and 1 % on 7.2; `sealion-lab guard` twice with one binary, QEMU 7.2, 2026-11-21): few must outlast the growth of TCP's windows,
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
        Some(calls) => ((few.min(16) / calls).max(1) * calls, (many.min(64) / calls).max(2) * calls),
        None => (few, many),
    }
}

/// Connections at a time: two, as in every earlier count. Where each has a number of calls it is one, because two share the
/// requests out unevenly at the end, and a handshake more or less is 5 % of a cell.
pub(super) fn connections(cell: Cell) -> u64 {
    if cell.calls.is_some() { 1 } else { 2 }
}

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
                let whole = calls.unwrap_or(connections(Cell { size, calls, resume: false }));
                assert_eq!((few % whole, many % whole), (0, 0), "{size} {calls:?}");
            }
        }
    }
}
