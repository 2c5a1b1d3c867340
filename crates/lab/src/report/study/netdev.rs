//! netdev: all metrics against size, the weight of a handshake, the cost of the hand-over.

use super::super::chart::Chart;
use super::super::charts;
use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric};
use super::super::published;
use super::{
    Beside, against_peer, against_size, cost, crossover_said, fixed_pairs, geometric_mean, in_both, of_condition,
    ratios, said, sizes, widest,
};
use crate::statistics::Summary;
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut blocks = against_size(cells, instructions);
    let mut findings = Vec::new();
    if let Some(condition) = widest(cells) {
        let chosen = of_condition(cells, &condition);
        for (user, kernel) in fixed_pairs(&chosen) {
            let found = crossover_said(&chosen, user, kernel, cost(instructions));
            findings.push(format!("{kernel} against {user}, {}: {found} (published: from 128k on)", said(&chosen)));
        }
    }
    findings.extend(against_peer(cells, cost(instructions)));
    blocks.push(Block::Heading("Handshake impact: K requests per connection".into()));
    blocks.push(Block::Table(by_calls(cells, instructions)));
    blocks.push(Block::Charts(charts_by_calls(cells, instructions)));
    blocks.push(Block::Heading("Set-up cost of the hand-over".into()));
    blocks.push(Block::Table(setup(cells)));
    (blocks, findings)
}

/// The published threshold beside a run's.
pub(super) fn beside(cells: &[&Measured], instructions: bool) -> Vec<Beside> {
    let Some(condition) = widest(cells) else { return Vec::new() };
    let chosen = of_condition(cells, &condition);
    let found: Vec<String> = fixed_pairs(&chosen)
        .into_iter()
        .map(|(user, kernel)| format!("{kernel}: {}", crossover_said(&chosen, user, kernel, cost(instructions))))
        .collect();
    if found.is_empty() {
        return Vec::new();
    }
    let name = format!("kernel TLS is cheaper from, {}", said(&chosen));
    let mut rows = vec![Beside { name, published: "128k, by ROI".into(), here: found.join("; ") }];
    let large: Vec<&Measured> = chosen.into_iter().filter(|measured| measured.size >= LARGE).collect();
    let changed: Vec<String> = fixed_pairs(&large)
        .into_iter()
        .filter_map(|(user, kernel)| Some(format!("{kernel}: {}", mean_change(&large, user, kernel, instructions)?)))
        .collect();
    if !changed.is_empty() {
        let what = if instructions { "instructions" } else { "CPU" };
        let name = format!("{what} of a request with kernel TLS, geometric mean from {} on", units::size(LARGE as f64));
        rows.push(Beside { name, published: published::NETDEV_CPU.into(), here: changed.join("; ") });
    }
    rows
}

/// The size in bytes from which the talk found kernel TLS cheaper.
const LARGE: u64 = 128 << 10;

/// The change of a request's cost over the sizes that both arms have.
fn mean_change(cells: &[&Measured], user: &str, kernel: &str, instructions: bool) -> Option<String> {
    geometric_mean(&ratios(&in_both(cells, user, kernel), cost(instructions))).map(units::change)
}

/// The figures for sizes measured with several K.
fn by_calls(cells: &[&Measured], instructions: bool) -> Table {
    let mut calls: Vec<Option<u64>> = cells.iter().map(|measured| measured.calls).collect();
    calls.sort_by_key(|calls| calls.unwrap_or(u64::MAX));
    calls.dedup();
    let what =
        if instructions { "Instructions per request" } else { "Server CPU per request, and requests per second" };
    let mut head = vec!["size".to_owned(), "arm".to_owned()];
    head.extend(calls.iter().map(|calls| format!("K = {}", units::calls(*calls))));
    let mut table = Table {
        caption: format!("{what}; a connection's handshake and hand-over are spread over its K requests"),
        head,
        rows: Vec::new(),
        names: 2,
    };
    for size in sizes(cells) {
        let of_size: Vec<&Measured> = cells.iter().filter(|measured| measured.size == size).copied().collect();
        if !of_size.iter().any(|measured| measured.calls != of_size[0].calls) {
            continue;
        }
        let mut arms: Vec<&str> = Vec::new();
        for measured in &of_size {
            if !arms.contains(&measured.arm.as_str()) {
                arms.push(&measured.arm);
            }
        }
        for arm in arms {
            let text = |calls: &Option<u64>| {
                let found = of_size.iter().find(|measured| measured.arm == arm && measured.calls == *calls)?;
                if instructions {
                    return found.median(Metric::Instructions).map(units::count);
                }
                let (cpu, rate) = (found.median(Metric::CpuPerRequest), found.median(Metric::Requests)?);
                let cpu = cpu.map_or_else(|| "–".to_owned(), units::time);
                Some(format!("{cpu} · {}/s", units::count(rate)))
            };
            let mut row = vec![units::size(size as f64), arm.to_owned()];
            row.extend(calls.iter().map(|calls| text(calls).unwrap_or_default()));
            table.rows.push(row);
        }
    }
    table
}

/// Requests per second and latency against K, for each size measured with several K.
fn charts_by_calls(cells: &[&Measured], instructions: bool) -> Vec<Chart> {
    let mut drawn = Vec::new();
    for size in sizes(cells) {
        let of_size: Vec<&Measured> = cells.iter().filter(|measured| measured.size == size).copied().collect();
        if !of_size.iter().any(|measured| measured.calls != of_size[0].calls) {
            continue;
        }
        let name = units::size(size as f64);
        drawn.push(charts::against_calls(&of_size, &format!("{name} by K"), instructions));
        if !instructions {
            for (quantile, which) in [(0.5, "median"), (0.99, "99th percentile")] {
                let title = format!("{name} by K: latency, {which}");
                drawn.push(charts::latency_against_calls(&of_size, quantile, &title));
            }
        }
    }
    drawn.retain(|chart| !chart.is_empty());
    drawn
}

/// Medians of the handover's system calls over all rows that have them, beside the published medians.
fn setup(cells: &[&Measured]) -> Table {
    let mut table = Table::new(
        "Time of each system call by the lab, and of a whole move by the server's log; medians",
        2,
        &["where", "path", "TCP_ULP", "TLS_TX", "TLS_RX", "whole move, in the server", "N"],
    );
    let mut arms: Vec<&str> = Vec::new();
    for measured in cells {
        if !arms.contains(&measured.arm.as_str()) {
            arms.push(&measured.arm);
        }
    }
    for arm in arms {
        let rows = cells.iter().filter(|measured| measured.arm == arm).flat_map(|measured| &measured.rounds);
        let times: Vec<Vec<f64>> = rows
            .filter(|row| !row.setup.is_empty())
            .map(|row| row.setup.split(';').map(|time| time.trim().parse().unwrap_or(f64::NAN)).collect())
            .collect();
        if times.is_empty() {
            continue;
        }
        let call = |index: usize| {
            let values: Vec<f64> =
                times.iter().filter_map(|times| times.get(index).copied()).filter(|time| time.is_finite()).collect();
            Summary::of(&values).map(|summary| units::time(summary.median)).unwrap_or_default()
        };
        let rounds = cells.iter().filter(|measured| measured.arm == arm).flat_map(|measured| &measured.rounds);
        let moves: Vec<f64> = rounds.filter_map(|row| row.server_setup).map(|time| time as f64).collect();
        let in_server = Summary::of(&moves).map(|summary| units::time(summary.median)).unwrap_or_default();
        let calls = [call(0), call(1), call(2), in_server, times.len().to_string()];
        table.rows.push(["here".to_owned(), arm.to_owned()].into_iter().chain(calls).collect());
    }
    for published::SetUp { path, tx, rx } in published::NETDEV_SETUP {
        let time = |milliseconds: f64| units::time(milliseconds * 1e6);
        let mut row = vec!["published 2022".to_owned(), path.to_owned(), String::new(), time(tx), time(rx)];
        row.resize(table.head.len(), String::new());
        table.rows.push(row);
    }
    table
}
