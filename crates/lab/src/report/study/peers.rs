//! peers: Sealion and nginx, as in the README.

use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric, Percentile};
use super::{against_peer, against_size, cost};
use crate::row::Row;
use crate::statistics::{Difference, Ratio};
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut findings = against_peer(cells, cost(instructions));
    findings.extend(cells.iter().filter_map(|measured| {
        let (_, ratio) = beside(cells, measured)?;
        Some(format!("99th percentile of {} beside a large load: {} of its value alone", measured.arm, times(&ratio)))
    }));
    findings.extend(cells.iter().filter_map(|measured| {
        let memory = measured.median(Metric::IdleMemory)?;
        Some(format!("1,000 idle connections of {}: {}", measured.arm, units::bytes(1000.0 * memory)))
    }));
    let mut blocks = Vec::new();
    if !instructions {
        blocks.push(Block::Table(table(cells, "nginx")));
    }
    blocks.extend(against_size(cells, instructions));
    if !instructions {
        blocks.extend(distributions(cells));
    }
    (blocks, findings)
}

/// The distributions of latency in the open loops, under a heading.
pub(super) fn distributions(cells: &[&Measured]) -> Vec<Block> {
    let name = |measured: &Measured| format!("Latency, {}", any(measured).map(label).unwrap_or_default());
    let charts = super::distributions(cells, name);
    if charts.is_empty() {
        return Vec::new();
    }
    vec![Block::Heading("Distribution of latency".to_owned()), Block::Charts(charts)]
}

/// The cells in the order of the table: the values that all rows share, and the arms.
pub(super) fn by_cell<'a>(cells: &[&'a Measured]) -> Vec<(&'a Row, Vec<&'a Measured>)> {
    let mut names: Vec<&str> = Vec::new();
    for measured in cells {
        if !names.contains(&measured.cell.as_str()) {
            names.push(&measured.cell);
        }
    }
    let mut found: Vec<(&Row, Vec<&Measured>)> = Vec::new();
    for name in names {
        let arms: Vec<&Measured> = cells.iter().copied().filter(|measured| measured.cell == name).collect();
        found.extend(arms.iter().find_map(|measured| any(measured)).map(|row| (row, arms)));
    }
    found.sort_by_key(|(row, _)| {
        let alone = (row.idle_memory.is_some(), !row.beside.is_empty(), row.rate.is_some());
        (alone, row.resume, row.calls.is_some(), row.size)
    });
    found
}

/// A line for each cell with cost, ratio to `baseline` and 99th percentile, for each arm.
pub(crate) fn table(cells: &[&Measured], baseline: &str) -> Table {
    let mut arms: Vec<&str> = Vec::new();
    for measured in cells.iter().filter(|measured| !measured.rounds.is_empty()) {
        if !arms.contains(&measured.arm.as_str()) {
            arms.push(&measured.arm);
        }
    }
    arms.sort_by_key(|arm| *arm != baseline);
    let several = arms.len() > 2;
    let mut head = vec![String::new()];
    for arm in &arms {
        head.push(shown(arm).to_owned());
        if *arm != baseline {
            let peer = like(arm, &arms, baseline);
            head.push(if several { format!("{} / {}", shown(arm), shown(peer)) } else { "ratio".to_owned() });
        }
    }
    head.extend(arms.iter().map(|arm| format!("p99 {}", shown(arm))));

    // In a closed loop the faster server gets more requests, which lengthens its latencies.
    let open_loops = cells.iter().filter_map(|measured| any(measured)).any(|row| row.rate.is_some());
    let mut table = Table { caption: String::new(), head, rows: Vec::new(), names: 1 };
    for (row, of_cell) in by_cell(cells) {
        let idle = row.idle_memory.is_some();
        let of = |arm: &str| of_cell.iter().find(|measured| measured.arm == arm).copied();
        let value = |arm: &str| {
            let measured = of(arm).filter(|measured| !measured.is_mostly_late())?;
            match idle {
                true => Some(1000.0 * measured.median(Metric::IdleMemory)?),
                false => measured.median(Metric::CpuPerRequest),
            }
        };
        let format = if idle { units::bytes } else { units::time };
        let mut line = vec![label(row)];
        for arm in &arms {
            let missing = if of(arm).is_some_and(Measured::is_mostly_late) { NOT_MEASURED } else { "" };
            line.push(value(arm).map_or_else(|| missing.to_owned(), format));
            if *arm != baseline {
                let ratio =
                    value(arm).zip(value(like(arm, &arms, baseline))).map(|(value, base)| units::ratio(value / base));
                line.push(ratio.unwrap_or_default());
            }
        }
        line.extend(arms.iter().map(|arm| {
            let Some(measured) = of(arm).filter(|measured| !idle && !measured.is_mostly_late()) else {
                return String::new();
            };
            match beside(cells, measured) {
                Some((p99, ratio)) => format!("{p99}, {} alone", times(&ratio)),
                None if open_loops && row.rate.is_none() => String::new(),
                None => measured.percentile(0.99).map(|p99| p99.to_string()).unwrap_or_default(),
            }
        }));
        table.rows.push(line);
    }
    table
}

/// The arm that `arm` is compared with: the baseline, or the nginx without an access log for an arm without one. A log
/// costs a server more than many differences that a table shows.
pub(super) fn like<'a>(arm: &str, arms: &[&'a str], baseline: &'a str) -> &'a str {
    let has_no_log = matches!(arm, "user" | "user-metrics");
    let without = arms.iter().find(|other| **other == "nginx").copied();
    without.filter(|_| has_no_log && baseline == "nginx-log").unwrap_or(baseline)
}

/// The row's name for people.
pub(super) fn label(row: &Row) -> String {
    if row.idle_memory.is_some() {
        return "memory of 1,000 idle connections".to_owned();
    }
    let mut text = units::body(row.size as f64);
    if row.calls == Some(1) {
        text += if row.resume { ", each with a resumed handshake" } else { ", each with a full handshake" };
    }
    if let Some(files) = row.cell.split_whitespace().find_map(|word| word.strip_prefix("files=")) {
        text += &format!(", {files} files by popularity");
    }
    if row.rate.is_some() {
        text += ", half the load";
    }
    if row.connections <= 2 && row.beside.is_empty() {
        text += &format!(" × {}", row.connections);
    }
    if let Some((connections, size)) = row.beside.split_once(" × ") {
        let transfers = if connections == "1" { "a transfer".to_owned() } else { format!("{connections} transfers") };
        text += &format!(" beside {transfers} of {}", units::body(size.parse().unwrap_or(0.0)));
    }
    text
}

fn shown(arm: &str) -> &str {
    match arm {
        "user" => "Sealion",
        "kernel" => "Sealion, kernel",
        "auto" => "Sealion, auto",
        "nginx-ktls" => "nginx, kernel",
        _ => arm,
    }
}

/// A ratio with its interval: `1.04× (0.98 to 1.10)`.
fn times(ratio: &Ratio) -> String {
    let [value, low, high] = [ratio.ratio, ratio.low, ratio.high].map(units::ratio);
    format!("{value}× ({low} to {high})")
}

/// The 99th percentile of a cell with a second load, and its ratio to the cell without it; `None` with too few rounds for
/// an interval.
fn beside(cells: &[&Measured], measured: &Measured) -> Option<(Percentile, Ratio)> {
    let row = any(measured).filter(|row| !row.beside.is_empty())?;
    let alone = cells.iter().find(|other| {
        other.arm == measured.arm
            && any(other).is_some_and(|other| {
                (other.size, other.calls, other.connections, other.resume, other.beside.is_empty())
                    == (row.size, row.calls, row.connections, row.resume, true)
                    && other.idle_memory.is_none()
            })
    })?;
    let ratio = Difference::between(&alone.percentiles(0.99)?, &measured.percentiles(0.99)?)?.welch;
    Some((measured.percentile(0.99)?, ratio))
}

/// A row of the cell, for the values that all rounds share. An open loop whose client was always late has void rows only.
fn any(measured: &Measured) -> Option<&Row> {
    measured.rounds.first().or_else(|| measured.voids.iter().find(|row| row.rate.is_some()))
}

const NOT_MEASURED: &str = "not measured on this machine";

#[cfg(test)]
mod tests {
    use super::super::super::figures::gather;
    use super::{NOT_MEASURED, like, table};
    use crate::row::Row;

    fn row(arm: &str, rate: Option<f64>, void: &str) -> Row {
        Row {
            study: "peers".into(),
            cell: if rate.is_some() { "half" } else { "closed" }.into(),
            arm: arm.into(),
            size: 1024,
            connections: 64,
            rate,
            requests: 10,
            server_cpu: Some(70_000),
            void: void.into(),
            ..Row::default()
        }
    }

    #[test]
    fn an_open_loop_with_too_few_rounds_is_named_and_has_no_figure() {
        let late = |arm| row(arm, Some(1000.0), "the client was late");
        let good = |arm| row(arm, Some(1000.0), "");
        let mut rows = vec![row("nginx", None, ""), row("user", None, ""), late("nginx"), late("user")];
        rows.extend([["nginx"; 4], ["user"; 4]].concat().into_iter().map(good));
        rows.push(good("user"));
        let cells = gather(rows);
        let table = table(&cells.iter().collect::<Vec<_>>(), "nginx");
        let lines: Vec<[&str; 4]> = table.rows.iter().map(|row| [0, 1, 2, 3].map(|at| row[at].as_str())).collect();
        assert_eq!(
            lines,
            [["1 kB", "7.00 µs", "7.00 µs", "1.00"], ["1 kB, half the load", NOT_MEASURED, "7.00 µs", ""]]
        );
        let cells = gather(vec![row("nginx", None, ""), row("user", None, ""), late("nginx"), late("user")]);
        let table = super::table(&cells.iter().collect::<Vec<_>>(), "nginx");
        assert_eq!(table.rows[1][..4], ["1 kB, half the load", NOT_MEASURED, NOT_MEASURED, ""]);
    }

    #[test]
    fn an_arm_without_a_log_is_compared_with_one_without() {
        let arms = ["nginx-log", "user", "user-log", "user-metrics", "user-two", "nginx"];
        let peers = arms.map(|arm| like(arm, &arms, "nginx-log"));
        assert_eq!(peers, ["nginx-log", "nginx", "nginx-log", "nginx", "nginx-log", "nginx-log"]);
        assert_eq!(like("user", &["user", "nginx"], "nginx"), "nginx");
        assert_eq!(like("user", &["user", "nginx-log"], "nginx-log"), "nginx-log");
    }
}
