//! netdev: all metrics against size, the weight of a handshake, the cost of the hand-over.

use super::super::chart::Chart;
use super::super::charts;
use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric};
use super::super::published;
use super::compared::{Compared, geometric_mean, in_both};
use super::{Beside, against_peer, against_size, cost, crossover_said, fixed_pairs, of_condition, said, sizes, widest};
use crate::statistics::Summary;
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut blocks = against_size(cells, instructions);
    let mut findings = Vec::new();
    if let Some(condition) = widest(cells) {
        let chosen = of_condition(cells, &condition);
        for (user, kernel) in fixed_pairs(&chosen) {
            let found = crossover_said(&chosen, user, kernel, cost(instructions));
            findings.push(format!("{kernel} against {user}, {}: by the cost of a request, {found}", said(&chosen)));
            if !instructions {
                let found = crossover_said(&chosen, user, kernel, Metric::Roi);
                findings.push(format!(
                    "{kernel} against {user}, {}: by ROI, {found} (published: from 128k on)",
                    said(&chosen)
                ));
            }
        }
    }
    findings.extend(against_peer(cells, cost(instructions)));
    blocks.push(Block::Heading("Handshake impact: K requests per connection".into()));
    blocks.push(Block::Table(by_calls(cells, instructions)));
    blocks.push(Block::Charts(charts_by_calls(cells, instructions)));
    blocks.push(Block::Heading("Set-up cost of the hand-over".into()));
    blocks.push(Block::Table(setup(cells, instructions)));
    (blocks, findings)
}

/// The published threshold beside a run's.
pub(super) fn beside(cells: &[&Measured], instructions: bool) -> Vec<Beside> {
    let Some(condition) = widest(cells) else { return Vec::new() };
    let chosen = of_condition(cells, &condition);
    let found = |metric| -> String {
        let each = fixed_pairs(&chosen)
            .into_iter()
            .map(|(user, kernel)| format!("{kernel}: {}", crossover_said(&chosen, user, kernel, metric)));
        each.collect::<Vec<_>>().join("; ")
    };
    if fixed_pairs(&chosen).is_empty() {
        return Vec::new();
    }
    let name = format!("a request costs less with kernel TLS, {}", said(&chosen));
    let mut rows = vec![Beside { name, published: "not given".into(), here: found(cost(instructions)) }];
    let by_roi = if instructions { "no time is measured in a guest".to_owned() } else { found(Metric::Roi) };
    let name = format!("kernel TLS has the higher ROI, {}", said(&chosen));
    rows.push(Beside { name, published: "from 128k on".into(), here: by_roi });
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
    let both = in_both(cells, user, kernel);
    let ratios = both.iter().filter_map(|(base, sample)| Compared::between(base, sample, cost(instructions)));
    geometric_mean(ratios.map(|compared| compared.ratio())).map(units::change)
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

/// The handover's system calls, timed by the lab on this kernel, and whole moves by the server's log, beside the published
/// medians. In a guest that counts instructions both are counts.
fn setup(cells: &[&Measured], instructions: bool) -> Table {
    let caption = if instructions {
        "Instructions of each system call, called by the lab, and of a whole move, by the server's log; medians"
    } else {
        "Time of each system call, called by the lab, and of a whole move, by the server's log; medians"
    };
    let mut table = Table::new(
        caption,
        2,
        &["where", "measured by", "TCP_ULP", "TLS_TX", "TLS_RX", "whole move, in the server", "N"],
    );
    let shown = |values: &[f64]| {
        let format = if instructions { units::count } else { units::time };
        Summary::of(values).map(|summary| format(summary.median)).unwrap_or_default()
    };
    let rows = || cells.iter().flat_map(|measured| measured.rounds.iter().map(|row| (&measured.arm, row)));
    // The lab makes the calls itself, whichever arm is measured.
    let calls: Vec<Vec<f64>> = rows()
        .filter(|(_, row)| !row.setup.is_empty())
        .map(|(_, row)| row.setup.split(';').map(|time| time.trim().parse().unwrap_or(f64::NAN)).collect())
        .collect();
    if !calls.is_empty() {
        let call = |index: usize| {
            let values = calls.iter().filter_map(|times| times.get(index).copied());
            shown(&values.filter(|time| time.is_finite()).collect::<Vec<_>>())
        };
        let texts = [call(0), call(1), call(2), String::new(), calls.len().to_string()];
        table.rows.push(["here", "the lab"].map(str::to_owned).into_iter().chain(texts).collect());
    }
    let mut arms: Vec<&String> = rows().filter(|(_, row)| row.server_setup.is_some()).map(|(arm, _)| arm).collect();
    arms.sort_unstable();
    arms.dedup();
    for arm in arms {
        let of_arm = rows().filter(|(other, _)| *other == arm);
        let moves: Vec<f64> = of_arm.filter_map(|(_, row)| row.server_setup).map(|time| time as f64).collect();
        let mut row = ["here", arm.as_str(), "", "", ""].map(str::to_owned).to_vec();
        row.extend([shown(&moves), moves.len().to_string()]);
        table.rows.push(row);
    }
    for published::SetUp { path, tx, rx } in published::NETDEV_SETUP {
        let time = |milliseconds: f64| units::time(milliseconds * 1e6);
        let mut row = vec!["published 2022".to_owned(), path.to_owned(), String::new(), time(tx), time(rx)];
        row.resize(table.head.len(), String::new());
        table.rows.push(row);
    }
    table
}
