//! peers: Sealion and nginx, as in the README.

use super::super::document::{Block, Table};
use super::super::figures::{Measured, Metric};
use super::{against_peer, against_size, cost};
use crate::row::Row;
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut findings = against_peer(cells, cost(instructions));
    findings.extend(cells.iter().filter_map(|measured| {
        let (_, ratio) = beside(cells, measured)?;
        Some(format!(
            "99th percentile of {} beside a large load: {}× its value alone",
            measured.arm,
            units::ratio(ratio)
        ))
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
    (blocks, findings)
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
            head.push(if several { format!("{} / {}", shown(arm), shown(baseline)) } else { "ratio".to_owned() });
        }
    }
    head.extend(arms.iter().map(|arm| format!("p99 {}", shown(arm))));

    let mut names: Vec<&str> = Vec::new();
    for measured in cells {
        if !names.contains(&measured.cell.as_str()) {
            names.push(&measured.cell);
        }
    }
    names.sort_by_cached_key(|name| {
        let first = cells.iter().find(|measured| measured.cell == *name).and_then(|measured| any(measured));
        first.map(|row| {
            let alone = (row.idle_memory.is_some(), !row.beside.is_empty(), row.rate.is_some());
            (alone, row.resume, row.calls.is_some(), row.size)
        })
    });
    // In a closed loop the faster server gets more requests, which lengthens its latencies.
    let open_loops = cells.iter().filter_map(|measured| any(measured)).any(|row| row.rate.is_some());
    let mut table = Table { caption: String::new(), head, rows: Vec::new(), names: 1 };
    for name in names {
        let of_cell: Vec<&Measured> = cells.iter().filter(|measured| measured.cell == name).copied().collect();
        let Some(row) = of_cell.iter().find_map(|measured| any(measured)) else { continue };
        let idle = row.idle_memory.is_some();
        let of = |arm: &str| of_cell.iter().find(|measured| measured.arm == arm).copied();
        let value = |arm: &str| {
            if idle {
                Some(1000.0 * of(arm)?.median(Metric::IdleMemory)?)
            } else {
                of(arm)?.median(Metric::CpuPerRequest)
            }
        };
        let format = if idle { units::bytes } else { units::time };
        let mut line = vec![label(row)];
        for arm in &arms {
            line.push(value(arm).map(format).unwrap_or_default());
            if *arm != baseline {
                let ratio = value(arm).zip(value(baseline)).map(|(value, base)| units::ratio(value / base));
                line.push(ratio.unwrap_or_default());
            }
        }
        line.extend(arms.iter().map(|arm| {
            let Some(measured) = of(arm).filter(|_| !idle) else { return String::new() };
            match beside(cells, measured) {
                Some((p99, ratio)) => format!("{} ({}× alone)", units::time(p99), units::ratio(ratio)),
                None if open_loops && row.rate.is_none() => String::new(),
                None => p99(measured).map(units::time).unwrap_or_default(),
            }
        }));
        table.rows.push(line);
    }
    table
}

/// The row's name for people.
fn label(row: &Row) -> String {
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

/// The 99th percentile of a cell with a second load, and its ratio to the cell without it.
fn beside(cells: &[&Measured], measured: &Measured) -> Option<(f64, f64)> {
    let row = any(measured).filter(|row| !row.beside.is_empty())?;
    let alone = cells.iter().find(|other| {
        other.arm == measured.arm
            && any(other).is_some_and(|other| {
                (other.size, other.calls, other.connections, other.resume, other.beside.is_empty())
                    == (row.size, row.calls, row.connections, row.resume, true)
                    && other.idle_memory.is_none()
            })
    })?;
    let (with, alone) = (p99(measured)?, p99(alone)?);
    Some((with, with / alone))
}

fn p99(measured: &Measured) -> Option<f64> {
    Some(measured.latency()?.value_at_quantile(0.99) as f64)
}

/// A row of the cell, for the values that all rounds share.
fn any(measured: &Measured) -> Option<&Row> {
    measured.rounds.first()
}
