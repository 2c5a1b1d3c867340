//! Requests one file repeatedly, and counts the server's instructions.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Client, h2load, wrk};
use crate::arm::Server;
use crate::load::{self, Extent, Protocol};
use crate::measure::{Cost, Counters, with_children};
use crate::run::{file_name, load_plan};
use crate::study::Cell;

/// The counts of one measurement.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// The number of requests that [`Self::run_time`] covers.
    pub(super) requests: u64,
    /// The server's run time for these requests in ns. If guest time counts instructions, this is their number.
    pub(super) run_time: u64,
    /// Run time of all threads on the only core, including the client's, in ns or instructions as above. `None` if the
    /// client runs for a fixed time.
    pub(super) elapsed: Option<u64>,
    /// Context switches of the server in which a thread waited.
    pub(super) switches: u64,
    /// Handshakes of the whole run, or of the longer of two runs.
    pub(super) handshakes: u64,
    /// Resumed handshakes among them.
    pub(super) resumed: u64,
    /// Kernel senders in the same run.
    pub(super) kernel_senders: u64,
    pub(super) suite: String,
}

/// Requests the file of `cell` often enough to exclude one-time work at the server's start and first requests.
pub(super) fn warm_up(client: Client, cell: &Cell, server: &Server, work: &Path) -> Result<()> {
    match client {
        Client::Wrk => with_wrk(cell, server, work).map(drop),
        Client::Lab | Client::H2load => once(client, cell, server, requests(cell).1).map(drop),
    }
}

/// Counts requests for the file of `cell`. `work`: a directory for the client's files.
pub(super) fn ask(client: Client, cell: &Cell, server: &Server, work: &Path) -> Result<Asked> {
    match client {
        Client::Wrk => with_wrk(cell, server, work),
        Client::Lab | Client::H2load => {
            let (few, many) = requests(cell);
            // Otherwise the difference would lack the cost of the first requests of a file.
            once(client, cell, server, few)?;
            let first = once(client, cell, server, few)?;
            let second = once(client, cell, server, many)?;
            if let Some(calls) = cell.calls {
                let equal = first.handshakes * calls == few && second.handshakes * calls == many;
                ensure!(equal, "connections did not serve {calls} requests each");
            }
            Ok(Asked {
                requests: second.requests - first.requests,
                run_time: second.run_time.checked_sub(first.run_time).with_context(|| {
                    let costs = [first.run_time, second.run_time];
                    format!("{many} requests cost less than {few}: {costs:?} instructions")
                })?,
                elapsed: second.elapsed.zip(first.elapsed).map(|(second, first)| second.saturating_sub(first)),
                switches: second.switches.saturating_sub(first.switches),
                ..second
            })
        }
    }
}

/// One run of a client that makes a number of requests.
fn once(client: Client, cell: &Cell, server: &Server, requests: u64) -> Result<Asked> {
    if client == Client::Lab { with_lab(cell, server, requests) } else { with_h2load(cell, server, requests) }
}

fn with_h2load(cell: &Cell, server: &Server, requests: u64) -> Result<Asked> {
    ensure!(cell.calls.is_none() && !cell.resume, "h2load keeps its connections: count calls with --client lab");
    let url = format!("https://{}{}", server.address, server.target(&file_name(cell.size)));
    let before = busy()?;
    let ((), cost, kernel_senders) = costing(server, || {
        h2load::request(&url, cell, requests)?;
        std::thread::sleep(SETTLE);
        Ok(())
    })?;
    let elapsed = Some(busy()? - before);
    let Cost { cpu: run_time, switches, .. } = cost;
    let (handshakes, suite) = (cell.connections as u64, format!("{:?}", cell.suite));
    Ok(Asked { requests, run_time, elapsed, switches, handshakes, resumed: 0, kernel_senders, suite })
}

fn with_wrk(cell: &Cell, server: &Server, work: &Path) -> Result<Asked> {
    ensure!(cell.protocol == Protocol::Http1, "wrk has no HTTP/2: count it with --client h2load");
    ensure!(cell.calls.is_none() && !cell.resume, "wrk keeps its connections: count calls with --client lab");
    let url = format!("https://{}{}", server.address, server.target(&file_name(cell.size)));
    let (requests, cost, kernel_senders) = costing(server, || wrk::requests(&url, cell.suite, work))?;
    let (handshakes, suite) = (cell.connections as u64, format!("{:?}", cell.suite));
    let Cost { cpu: run_time, switches, .. } = cost;
    Ok(Asked { requests, run_time, elapsed: None, switches, handshakes, resumed: 0, kernel_senders, suite })
}

/// One run of the lab's client; every request must succeed.
fn with_lab(cell: &Cell, server: &Server, requests: u64) -> Result<Asked> {
    let load = load_plan(server, &Cell { extent: Extent::Requests(requests), ..cell.clone() }, &[]);
    let before = busy()?;
    let (outcome, cost, kernel_senders) = costing(server, || {
        let outcome = load::run(&load)?;
        std::thread::sleep(SETTLE);
        Ok(outcome)
    })?;
    ensure!(
        outcome.failures.total() == 0 && outcome.requests == requests,
        "{} of {requests} requests were completed: {}",
        outcome.requests,
        outcome.failures.first.unwrap_or_default()
    );
    let load::Outcome { handshakes, resumed, suite, .. } = outcome;
    let elapsed = Some(busy()? - before);
    let Cost { cpu: run_time, switches, .. } = cost;
    Ok(Asked { requests, run_time, elapsed, switches, handshakes, resumed, kernel_senders, suite })
}

/// Run time of all threads on the first core, ns. Guest time would include idle time, which jumps to the next timer.
fn busy() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/schedstat").context("cannot read /proc/schedstat")?;
    // Documentation/scheduler/sched-stats.rst: the seventh field after the core's name.
    let core = text.lines().find(|line| line.starts_with("cpu0 "));
    let field = core.and_then(|line| line.split_ascii_whitespace().nth(7));
    field.and_then(|ns| ns.parse().ok()).context("/proc/schedstat has no run time of cpu0")
}

/// Runs `load`. Returns its result, the server's cost, and the number of new kernel senders.
fn costing<T>(server: &Server, load: impl FnOnce() -> Result<T>) -> Result<(T, Cost, u64)> {
    let pids = with_children(server.pid.context("the server has no process")?)?;
    let (before, counters) = (Cost::of(&pids)?, Counters::now());
    let result = load()?;
    let cost = Cost::of(&pids)?.since(&before);
    let senders = counters.since().0.context("the kernel counts no senders: /proc/net/tls_stat is missing")?;
    Ok((result, cost, senders))
}

/// Requests of the two runs. The shorter must outlast the growth of TCP's windows; the difference must outweigh a timer
/// tick. MEASURED: how well does a count repeat? Half of 96 cells within 0.1 %, all within 0.5 % on 6.1 and 1 % on 7.2
/// (`sealion-lab guard` twice with one binary, QEMU 7.2, 2026-11-21).
pub(super) fn requests(cell: &Cell) -> (u64, u64) {
    let (few, many) = match cell.size {
        0..0x2000 => (100, 600),
        0x2000..0x8000 => (60, 260),
        0x8000..0x2_0000 => (40, 160),
        0x2_0000..0x8_0000 => (20, 80),
        _ => (12, 36),
    };
    // Each stream has a few requests.
    let at_a_time = (cell.connections * cell.protocol.streams().unwrap_or(1)) as u64;
    let (few, many) = (few.max(at_a_time * 4), many.max(at_a_time * 24));
    match cell.calls {
        // Handshakes dominate, and their counts repeat.
        Some(1) => (few.min(8), many.min(40)),
        Some(calls) => ((few.min(16) / calls).max(1) * calls, (many.min(64) / calls).max(2) * calls),
        None => (few, many),
    }
}

/// Guest time for a server to close the connections that its clients have left.
const SETTLE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::super::cell;
    use super::*;
    use crate::load::Suite;

    #[test]
    fn both_runs_fill_their_connections() {
        for size in [0, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20] {
            for calls in [None, Some(1), Some(4), Some(10), Some(1000)] {
                let cell = cell(size, calls, false, Suite::Aes128Gcm);
                let (few, many) = requests(&cell);
                assert!(few < many, "{size} {calls:?}");
                let whole = calls.unwrap_or(cell.connections as u64);
                assert_eq!((few % whole, many % whole), (0, 0), "{size} {calls:?}");
            }
        }
    }
}
