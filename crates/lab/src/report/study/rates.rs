//! rate-sweep: latency over throughput.

use super::super::charts;
use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric};
use super::{distributions, sizes};
use crate::units;

pub(super) fn report(cells: &[&Measured]) -> (Vec<Block>, Vec<String>) {
    let (mut blocks, mut findings) = (Vec::new(), Vec::new());
    for size in sizes(cells) {
        let chosen: Vec<&Measured> = cells.iter().filter(|measured| measured.size == size).copied().collect();
        let body = units::body(size as f64);
        let drawn = [(0.5, "median"), (0.99, "99th percentile")].map(|(quantile, name)| {
            charts::latency_over_rate(&chosen, quantile, &format!("{body}, {name} of latency"))
        });
        let drawn: Vec<_> = drawn.into_iter().filter(|chart| !chart.is_empty()).collect();
        blocks.push(Block::Heading(format!("Latency over throughput, {body}")));
        if !drawn.is_empty() {
            blocks.push(Block::Charts(drawn));
        }
        blocks.push(Block::Table(table(&chosen)));
        let name = |measured: &Measured| format!("{body} at {} % of each arm's rate", share(measured).unwrap_or(0));
        let drawn = distributions(&chosen, name);
        if !drawn.is_empty() {
            blocks.push(Block::Fold(format!("Distribution of latency, {body}"), vec![Block::Charts(drawn)]));
        }
        findings.extend(chosen.iter().filter_map(|measured| finding(measured, &chosen, &body)));
    }
    (blocks, findings)
}

fn table(cells: &[&Measured]) -> Table {
    let caption = "Open loops at shares of the rate that each arm reaches in a closed loop; latency counts from the intended start";
    let mut table = Table::new(caption, 2, &["arm", "share", "requests/s", "median", "p99", "p99.9"]);
    table.names = 2;
    for measured in cells {
        let mut row = vec![measured.arm.clone(), format!("{} %", share(measured).unwrap_or(0))];
        row.push(measured.median(Metric::Requests).map(units::count).unwrap_or_default());
        let at = |quantile| measured.percentile(quantile).map(|found| found.to_string()).unwrap_or_default();
        row.extend([0.5, 0.99, 0.999].map(at));
        table.rows.push(row);
    }
    table
}

/// The 99th percentile at an arm's highest share, beside its lowest.
fn finding(measured: &Measured, cells: &[&Measured], body: &str) -> Option<String> {
    let of_arm = || cells.iter().filter(|other| other.arm == measured.arm).filter(|other| !other.rounds.is_empty());
    let (least, most) = (of_arm().filter_map(|m| share(m)).min()?, of_arm().filter_map(|m| share(m)).max()?);
    if share(measured) != Some(most) || least == most {
        return None;
    }
    let low = of_arm().find(|other| share(other) == Some(least))?.percentile(0.99)?;
    let (arm, high) = (&measured.arm, measured.percentile(0.99)?);
    Some(format!("99th percentile of {arm}, {body}: {low} at {least} % of its own rate, {high} at {most} %"))
}

/// The share of the arm's own rate, percent.
fn share(measured: &Measured) -> Option<u32> {
    measured.cell.split_whitespace().find_map(|word| word.strip_prefix("share="))?.parse().ok()
}
