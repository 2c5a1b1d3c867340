//! size-by-calls: a chart per size, and gains beside the published ones.

use super::super::charts;
use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric};
use super::super::published;
use super::compared::{Compared, changes, verdict};
use super::{Beside, against_peer, against_size, cost, of_arm, pairs, sizes};
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let (mut by_calls, mut gains) = (Vec::new(), Vec::new());
    for size in sizes(cells) {
        let chosen: Vec<&Measured> = cells.iter().filter(|measured| measured.size == size).copied().collect();
        let name = units::size(size as f64);
        by_calls.push(charts::against_calls(&chosen, &format!("{name} by calls"), instructions));
        if !instructions {
            gains.push(charts::gain_against_calls(&chosen, size, &format!("{name}: gain of the kernel's path")));
        }
    }
    for charts in [&mut by_calls, &mut gains] {
        charts.retain(|chart| !chart.is_empty());
    }
    let metric = if instructions { Metric::Instructions } else { Metric::Requests };
    let mut blocks = Vec::new();
    if !instructions {
        blocks.push(Block::Table(gain_table(cells)));
    }
    blocks.push(Block::Heading("By requests per connection".into()));
    blocks.push(Block::Charts(by_calls));
    blocks.push(Block::Charts(gains));
    blocks.extend(against_size(cells, instructions));
    (blocks, findings(cells, metric))
}

/// The ratio of requests per second with the kernel's path to those without, by size and calls.
fn gain_table(cells: &[&Measured]) -> Table {
    let mut calls: Vec<Option<u64>> = cells.iter().map(|measured| measured.calls).collect();
    calls.sort_by_key(|calls| calls.unwrap_or(u64::MAX));
    calls.dedup();
    let mut head = vec!["size".to_owned(), "compared".to_owned()];
    head.extend(calls.iter().map(|calls| units::calls(*calls)));
    let mut table = Table {
        caption: "Requests per second, change against user space on the same server, by requests per connection, with its interval at 95 %".into(),
        head,
        rows: Vec::new(),
        names: 2,
    };
    for size in sizes(cells) {
        for (user, kernel) in pairs(cells) {
            let change = |calls: &Option<u64>| {
                let chosen: Vec<&Measured> = cells
                    .iter()
                    .filter(|measured| measured.size == size && measured.calls == *calls)
                    .copied()
                    .collect();
                let both = of_arm(&chosen, user).zip(of_arm(&chosen, kernel));
                let found = both.and_then(|(user, kernel)| Compared::between(user, kernel, Metric::Requests));
                found.map(|found| found.short()).unwrap_or_default()
            };
            let mut row = vec![units::size(size as f64), format!("{kernel} / {user}")];
            row.extend(calls.iter().map(change));
            table.rows.push(row);
        }
        let mut row = vec![units::size(size as f64), "published 2023".to_owned()];
        row.extend(calls.iter().map(|calls| {
            let ratio = calls.and_then(|calls| published::size_by_calls_ratio(size, calls));
            ratio.map(units::change).unwrap_or_default()
        }));
        if row[2..].iter().any(|text| !text.is_empty()) {
            table.rows.push(row);
        }
    }
    table
}

/// The published gains beside a run's, for each size at the largest number of calls that both have.
pub(super) fn beside(cells: &[&Measured], instructions: bool) -> Vec<Beside> {
    let metric = if instructions { Metric::Instructions } else { Metric::Requests };
    let mut figures = Vec::new();
    for size in sizes(cells) {
        let of_size: Vec<&Measured> = cells.iter().filter(|measured| measured.size == size).copied().collect();
        let both = |measured: &&&Measured| {
            let calls = measured.calls?;
            Some((calls, published::size_by_calls_ratio(size, calls)?))
        };
        let Some((calls, ratio)) = of_size.iter().filter_map(|measured| both(&measured)).max_by_key(|both| both.0)
        else {
            continue;
        };
        let chosen: Vec<&Measured> = of_size.into_iter().filter(|measured| measured.calls == Some(calls)).collect();
        let here = changes(&chosen, metric);
        if !here.is_empty() {
            let calls = if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
            let name = format!("{} × {calls}", units::size(size as f64));
            figures.push(Beside { name, published: units::change(ratio), here });
        }
    }
    figures
}

/// Each pair of arms over all cells.
fn findings(cells: &[&Measured], metric: Metric) -> Vec<String> {
    let mut findings: Vec<String> =
        pairs(cells).into_iter().filter_map(|(user, kernel)| verdict(cells, user, kernel, metric)).collect();
    findings.extend(against_peer(cells, cost(metric == Metric::Instructions)));
    findings
}
