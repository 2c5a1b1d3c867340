//! container: the fields that vegeta reports, and the gains beside the published ones.

use super::super::chart::Chart;
use super::super::charts;
use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric};
use super::super::published;
use super::compared::{Compared, changes};
use super::{Beside, against_peer, cost, pairs, percentile_change, sizes};
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut blocks = Vec::new();
    let mut findings = Vec::new();
    let mut gains = Table::new(
        "Change against user space on the same server, with its interval at 95 %. Mean latency: all rounds in one, without one",
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
                let of_latency = |value: fn(&hdrhistogram::Histogram<u64>) -> f64| {
                    Some(value(&measured.latency()?) / value(&base.latency()?))
                };
                let clock = |ratio: Option<f64>| if instructions { String::new() } else { percent(ratio) };
                let change =
                    |metric| Compared::between(base, measured, metric).map(|found| found.short()).unwrap_or_default();
                let throughput = change(Metric::Throughput);
                let mean = of_latency(|all| all.mean());
                let costs = change(cost(instructions));
                let is_limited = kernel.ends_with(LIMITED);
                let found = match instructions {
                    true if is_limited => format!("throughput {throughput}, instructions of a request {costs}"),
                    true => format!("instructions of a request {costs}"),
                    false => format!("throughput {throughput}, mean latency {}", percent(mean)),
                };
                findings.push(format!("{} {kernel} against {user}: {found}", units::size(size as f64)));
                gains.rows.push(vec![
                    units::size(size as f64),
                    format!("{kernel} / {user}"),
                    if instructions && !is_limited { String::new() } else { throughput },
                    clock(mean),
                    if instructions { None } else { percentile_change(base, measured, 0.99) }.unwrap_or_default(),
                    costs,
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
        let mut drawn = vec![chart(cells)];
        drawn.retain(|chart| !chart.is_empty());
        blocks.push(Block::Charts(drawn));
        blocks.push(Block::Table(fields(cells)));
    }
    (blocks, findings)
}

/// The change of throughput against size, beside the published one.
pub(super) fn chart(cells: &[&Measured]) -> Chart {
    let published = published::CONTAINER.map(|(size, throughput, _)| (size, 1.0 + throughput / 100.0));
    charts::gain_against_size(cells, &published)
}

/// The published gains of throughput beside a run's.
pub(super) fn beside(cells: &[&Measured], instructions: bool) -> Vec<Beside> {
    let metric = if instructions { cost(true) } else { Metric::Throughput };
    let (limited, free): (Vec<&Measured>, Vec<&Measured>) =
        cells.iter().partition(|measured| measured.arm.ends_with(LIMITED));
    let figures = published::CONTAINER.iter().filter_map(|(size, throughput, _)| {
        let chosen: Vec<&Measured> = free.iter().filter(|measured| measured.size == *size).copied().collect();
        let here = changes(&chosen, metric);
        let published = units::change(1.0 + throughput / 100.0);
        (!here.is_empty()).then(|| Beside { name: units::size(*size as f64), published, here })
    });
    let mut figures: Vec<Beside> = figures.collect();
    let limited = beside_under_limits(&limited);
    if figures.is_empty() {
        return limited;
    }
    let mut not_measured = |name: &str, why: &str| {
        figures.push(Beside {
            name: name.into(),
            published: published::CONTAINER_ELSEWHERE.into(),
            here: format!("not measured: {why}"),
        });
    };
    not_measured("from another computer", "client and server share the machine");
    if limited.is_empty() {
        not_measured("under limits", "no server was limited");
    }
    figures.extend(limited);
    figures
}

/// The published gains of throughput under limits beside those of a limited run, or of limited arms. A guest's clock counts
/// the instructions of the emulated processor, so a limit limits there too.
pub(super) fn beside_under_limits(cells: &[&Measured]) -> Vec<Beside> {
    let figures = published::CONTAINER.iter().filter_map(|(size, ..)| {
        let chosen: Vec<&Measured> = cells.iter().filter(|measured| measured.size == *size).copied().collect();
        let here = changes(&chosen, Metric::Throughput);
        let name = format!("{} under limits, throughput", units::size(*size as f64));
        (!here.is_empty()).then(|| Beside { name, published: published::CONTAINER_ELSEWHERE.into(), here })
    });
    figures.collect()
}

/// The fields as vegeta reports them. The rate is requests per time from the first start to the last start; throughput
/// is successes per time to the last end. "Bytes in" are the bytes that vegeta keeps, at most 10,240 of a body.
fn fields(cells: &[&Measured]) -> Table {
    let mut table = Table::new(
        "All rounds of a cell as one attack, in vegeta's terms",
        3,
        &[
            "size",
            "workers",
            "arm",
            "requests",
            "rate/s",
            "throughput/s",
            "duration",
            "attack",
            "wait",
            "min",
            "mean",
            "p50",
            "p90",
            "p95",
            "p99",
            "max",
            "bytes in",
            "bytes in, mean",
            "bodies read",
            "success",
            "status codes",
            "error set",
        ],
    );
    for measured in cells.iter().filter(|measured| !measured.rounds.is_empty()) {
        let good = measured.total(|row| row.requests);
        let bad_statuses = measured.total(|row| row.bad_statuses);
        let failed = measured.total(|row| row.errors + row.timeouts);
        let elapsed = measured.total(|row| row.elapsed) as f64;
        let attack = measured.rounds.iter().map(|row| row.attack).sum::<Option<u64>>().map(|time| time as f64);
        let kept = good * measured.size.min(published::CONTAINER_KEPT);
        let latency = measured.latency();
        let time = |value: fn(&hdrhistogram::Histogram<u64>) -> f64| {
            latency.as_ref().map(|all| units::time(value(all))).unwrap_or_default()
        };
        let mut errors: Vec<&str> =
            measured.rounds.iter().map(|row| row.first_error.as_str()).filter(|text| !text.is_empty()).collect();
        errors.sort_unstable();
        errors.dedup();
        let statuses = [("200", good), ("other", bad_statuses), ("0", failed.saturating_sub(bad_statuses))];
        let statuses = statuses.iter().filter(|(_, count)| *count > 0).map(|(code, count)| format!("{code}:{count}"));
        table.rows.push(vec![
            units::size(measured.size as f64),
            measured.rounds[0].connections.to_string(),
            measured.arm.clone(),
            (good + failed).to_string(),
            attack.map(|attack| units::count((good + failed) as f64 * 1e9 / attack)).unwrap_or_default(),
            units::count(good as f64 * 1e9 / elapsed),
            units::time(elapsed),
            attack.map(units::time).unwrap_or_default(),
            attack.map(|attack| units::time(elapsed - attack)).unwrap_or_default(),
            time(|all| all.min() as f64),
            time(|all| all.mean()),
            time(|all| all.value_at_quantile(0.5) as f64),
            time(|all| all.value_at_quantile(0.9) as f64),
            time(|all| all.value_at_quantile(0.95) as f64),
            measured.percentile(0.99).map(|p99| p99.to_string()).unwrap_or_default(),
            time(|all| all.max() as f64),
            units::bytes(kept as f64),
            units::bytes(kept as f64 / good.max(1) as f64),
            units::bytes(measured.total(|row| row.body_bytes) as f64),
            format!("{:.2} %", 100.0 * good as f64 / (good + failed).max(1) as f64),
            statuses.collect::<Vec<_>>().join(" "),
            errors.join("; "),
        ]);
    }
    table.without_empty_columns()
}

/// The end of the names of limited arms.
const LIMITED: &str = "-limited";

fn percent(ratio: Option<f64>) -> String {
    ratio.map(units::change).unwrap_or_default()
}
