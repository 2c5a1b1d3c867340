//! The table of all figures.

use super::super::arm;
use super::super::document::Table;
use super::super::figures::{Measured, Metric};
use super::compared::Compared;
use super::cost;
use crate::units;

/// All figures of every cell on every arm.
pub(super) fn table(cells: &[&Measured], instructions: bool) -> Table {
    let mut table = Table::new(
        "",
        4,
        &[
            "size",
            "calls",
            "setting",
            "arm",
            "N",
            "void",
            "requests/s",
            "throughput",
            "CPU/request",
            "spread",
            "softirq/request",
            "kernel threads/request",
            "CPU s/GB",
            "instructions/request",
            "instructions/byte",
            "to user space",
            "verdict",
            "ROI",
            "ROI, requests",
            "cores",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "max",
            "connect p50",
            "handshake p50",
            "without handshake p50",
            "first byte p50",
            "errors",
            "time-outs",
            "client CPU/request",
            "switches/request",
            "memory",
            "suite",
        ],
    );
    for measured in cells {
        table.rows.push(row(cells, measured, instructions));
    }
    table.without_empty_columns()
}

/// The meaning of the columns.
pub(super) const LEGEND: &str = "N: rounds that count; figures are medians over them. CPU: run time of the server's \
     threads by /proc/PID/task/*/schedstat, kernel work on their behalf included; spread: least and greatest round. \
     Softirq: of all cores, by /proc/stat, partly inside the server's time; kernel threads: run time of kworker and the \
     like, which no server's CPU contains. To user space: the cost of a request divided by its cost in user space on the same server, \
     as a ratio of geometric means, and its interval at 95 % by Welch's test on logarithms, each cell for itself; counts have the \
     spread of rounds instead. ROI: (GB/s)² or (1,000 requests/s)² over cores; cores (Cᵢ of the netdev talk): application and I/O \
     over all cores, that is the server, kernel threads, and softirqs outside the server's cores. \
     p50, p90, max: from the start of a request to its last byte, connect and handshake included, all rounds' histograms in \
     one; p99, p99.9: geometric mean over the rounds with its interval, from five rounds on. Without handshake: from the \
     request's last byte sent, as wrk measures it. GB: 10⁹ bytes; sizes of files: k = 1,024 bytes.";

fn row(cells: &[&Measured], measured: &Measured, instructions: bool) -> Vec<String> {
    let median = |metric: Metric, format: fn(f64) -> String| measured.median(metric).map(format).unwrap_or_default();
    let clock = |text: String| if instructions { String::new() } else { text };
    let cpu = measured.summary(cost(instructions));
    let format = if instructions { units::count } else { units::time };
    let spread = cpu
        .filter(|summary| summary.n > 1)
        .map(|summary| format!("{} … {}", format(summary.min), format(summary.max)))
        .unwrap_or_default();
    let base = arm::user_space_of(&measured.arm)
        .and_then(|base| cells.iter().find(|other| other.arm == base && other.cell == measured.cell));
    let compared = base.and_then(|base| Compared::between(base, measured, cost(instructions)));
    let ratio = compared.map(|compared| units::ratio(compared.ratio())).unwrap_or_default();
    let verdict = compared.map(|compared| compared.to_string()).unwrap_or_default();
    let latency = measured.latency();
    let at = |quantile: f64| {
        latency.as_ref().map(|all| units::time(all.value_at_quantile(quantile) as f64)).unwrap_or_default()
    };
    let half = |column: fn(&crate::row::Row) -> &String| {
        measured.merged(column).map(|all| units::time(all.value_at_quantile(0.5) as f64)).unwrap_or_default()
    };
    let number = |number: u64| if number == 0 { String::new() } else { number.to_string() };
    vec![
        units::size(measured.size as f64),
        units::calls(measured.calls),
        measured.setting.clone(),
        measured.arm.clone(),
        measured.rounds.len().to_string(),
        number(measured.voids.len() as u64),
        clock(median(Metric::Requests, units::count)),
        clock(median(Metric::Throughput, units::rate)),
        clock(median(Metric::CpuPerRequest, units::time)),
        spread,
        clock(median(Metric::Softirq, units::time)),
        median(Metric::KernelThreads, format),
        clock(median(Metric::CpuPerGigabyte, units::significant)),
        median(Metric::Instructions, units::count),
        median(Metric::InstructionsPerByte, units::significant),
        ratio,
        verdict,
        clock(median(Metric::Roi, units::significant)),
        clock(median(Metric::RoiRequests, units::significant)),
        clock(median(Metric::Cores, units::significant)),
        clock(at(0.5)),
        clock(at(0.9)),
        clock(measured.percentile(0.99).map(|p99| p99.to_string()).unwrap_or_default()),
        clock(measured.percentile(0.999).map(|p999| p999.to_string()).unwrap_or_default()),
        clock(latency.as_ref().map(|all| units::time(all.max() as f64)).unwrap_or_default()),
        clock(half(|row| &row.connect)),
        clock(half(|row| &row.handshake)),
        clock(half(|row| &row.response)),
        clock(half(|row| &row.first_byte)),
        number(measured.total(|row| row.errors)),
        number(measured.total(|row| row.timeouts)),
        clock(median(Metric::ClientCpuPerRequest, units::time)),
        median(Metric::Switches, units::significant),
        median(Metric::Memory, units::bytes),
        measured.suites().join(", "),
    ]
}
