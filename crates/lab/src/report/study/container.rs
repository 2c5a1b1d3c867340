//! container: the fields that vegeta reports, and the gains beside the published ones.

use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric};
use super::super::published;
use super::{against_peer, cost, pairs, sizes};
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut blocks = Vec::new();
    let mut findings = Vec::new();
    let mut gains = Table::new(
        "Change against user space on the same server",
        2,
        &["size", "compared", "throughput", "mean latency", "99th percentile", "cost of a request"],
    );
    for size in sizes(cells) {
        let chosen: Vec<&Measured> = cells.iter().filter(|measured| measured.size == size).copied().collect();
        for (user, kernel) in pairs(&chosen) {
            for measured in chosen.iter().filter(|measured| measured.arm == kernel) {
                let Some(base) = chosen.iter().find(|other| other.arm == user && other.cell == measured.cell) else {
                    continue;
                };
                let of = |metric| Some(measured.median(metric)? / base.median(metric)?);
                let of_latency = |value: fn(&hdrhistogram::Histogram<u64>) -> f64| {
                    Some(value(&measured.latency()?) / value(&base.latency()?))
                };
                let clock = |ratio: Option<f64>| if instructions { String::new() } else { percent(ratio) };
                let throughput = of(Metric::Throughput);
                let mean = of_latency(|all| all.mean());
                if !instructions {
                    findings.push(format!(
                        "{} {kernel} against {user}: throughput {}, mean latency {}",
                        units::size(size as f64),
                        percent(throughput),
                        percent(mean)
                    ));
                }
                gains.rows.push(vec![
                    units::size(size as f64),
                    format!("{kernel} / {user}"),
                    clock(throughput),
                    clock(mean),
                    clock(of_latency(|all| all.value_at_quantile(0.99) as f64)),
                    percent(of(cost(instructions))),
                ]);
            }
        }
        for (_, throughput, latency) in published::CONTAINER.iter().filter(|(published, ..)| *published == size) {
            gains.rows.push(vec![
                units::size(size as f64),
                "published 2023".into(),
                units::change(1.0 + throughput / 100.0),
                units::change(1.0 + latency / 100.0),
                String::new(),
                String::new(),
            ]);
        }
    }
    findings.extend(against_peer(cells, cost(instructions)));
    blocks.push(Block::Table(gains));
    if !instructions {
        blocks.push(Block::Table(fields(cells)));
    }
    (blocks, findings)
}

/// As vegeta reports them: rate is what was sent, throughput what succeeded; success the share of requests answered
/// rightly.
fn fields(cells: &[&Measured]) -> Table {
    let mut table = Table::new(
        "All rounds of a cell as one attack",
        3,
        &[
            "size",
            "workers",
            "arm",
            "requests",
            "rate/s",
            "throughput/s",
            "duration",
            "mean",
            "p50",
            "p95",
            "p99",
            "max",
            "bytes in",
            "bytes in, mean",
            "success",
            "error set",
        ],
    );
    for measured in cells.iter().filter(|measured| !measured.rounds.is_empty()) {
        let good = measured.total(|row| row.requests);
        let failed = measured.total(|row| row.errors + row.timeouts);
        let elapsed = measured.total(|row| row.elapsed) as f64;
        let bytes = measured.total(|row| row.body_bytes) as f64;
        let latency = measured.latency();
        let time = |value: fn(&hdrhistogram::Histogram<u64>) -> f64| {
            latency.as_ref().map(|all| units::time(value(all))).unwrap_or_default()
        };
        let mut errors: Vec<&str> =
            measured.rounds.iter().map(|row| row.first_error.as_str()).filter(|text| !text.is_empty()).collect();
        errors.sort_unstable();
        errors.dedup();
        table.rows.push(vec![
            units::size(measured.size as f64),
            measured.rounds[0].connections.to_string(),
            measured.arm.clone(),
            (good + failed).to_string(),
            units::count((good + failed) as f64 * 1e9 / elapsed),
            units::count(good as f64 * 1e9 / elapsed),
            units::time(elapsed),
            time(|all| all.mean()),
            time(|all| all.value_at_quantile(0.5) as f64),
            time(|all| all.value_at_quantile(0.95) as f64),
            time(|all| all.value_at_quantile(0.99) as f64),
            time(|all| all.max() as f64),
            units::bytes(bytes),
            units::bytes(bytes / good.max(1) as f64),
            format!("{:.2} %", 100.0 * good as f64 / (good + failed).max(1) as f64),
            errors.join("; "),
        ]);
    }
    table.without_empty_columns()
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map(units::change).unwrap_or_default()
}
