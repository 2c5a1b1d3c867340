//! The table for the README: cells × arms, each with its ratio to a named arm.

use anyhow::{Result, bail};

use super::cost;
use super::document::Table;
use super::figures::{Measured, gather};
use super::{arm, markdown, study};
use crate::row::Row;
use crate::run_info::RunInfo;
use crate::study::StudyName;
use crate::units;

/// The table in Markdown, followed by a line on date, machine and method. The same rows produce the same text.
///
/// # Errors
///
/// No cell was measured on `baseline`.
pub(crate) fn table(rows: Vec<Row>, info: &RunInfo, baseline: &str) -> Result<String> {
    let instructions = info.counts_instructions();
    let cells = gather(rows);
    let metric = cost(instructions);
    let mut arms: Vec<&str> = Vec::new();
    for measured in cells.iter().filter(|measured| measured.median(metric).is_some()) {
        if !arms.contains(&measured.arm.as_str()) {
            arms.push(&measured.arm);
        }
    }
    if !arms.contains(&baseline) {
        bail!("no cell was measured on {baseline}: the arms that count here are {}", arms.join(", "));
    }
    arms.sort_by_key(|name| (*name != baseline, arm::order(name)));

    if cells.iter().all(|measured| measured.study == StudyName::Peers.name()) && !instructions {
        return Ok(peers(&cells, info, baseline));
    }
    let names: Vec<(String, Vec<&Measured>)> = by_cell(&cells);
    let mut head = vec!["cell".to_owned()];
    head.extend(arms.iter().map(|arm| (*arm).to_owned()));
    let mut table = Table { caption: String::new(), head, rows: Vec::new(), names: 1 };
    for (name, of_cell) in names {
        let median = |arm: &str| of_cell.iter().find(|measured| measured.arm == arm)?.median(metric);
        let base = median(baseline);
        let text = |arm: &&str| match (median(arm), base) {
            (Some(value), _) if *arm == baseline => format(value, instructions),
            (Some(value), Some(base)) => format!("{} ({}×)", format(value, instructions), units::ratio(value / base)),
            (Some(value), None) => format(value, instructions),
            (None, _) => "–".to_owned(),
        };
        let mut row = vec![name];
        row.extend(arms.iter().map(text));
        table.rows.push(row);
    }
    let what = if instructions { "Instructions of the server per request" } else { "Server CPU per request" };
    Ok(format!(
        "{}\n{what}, kernel work included; medians of {} interleaved rounds, (ratio to {baseline}). {}, Linux {}, {}.\n",
        markdown::table(&table),
        rounds(&cells),
        info.machine.processor,
        info.kernel.split_whitespace().next().unwrap_or("unknown"),
        units::day(info.started),
    ))
}

/// The table of the study `peers`, which is made for the README.
fn peers(cells: &[Measured], info: &RunInfo, baseline: &str) -> String {
    let table = study::peers::table(&cells.iter().collect::<Vec<_>>(), baseline);
    let mut suites: Vec<&str> = cells.iter().flat_map(Measured::suites).collect();
    suites.sort_unstable();
    suites.dedup();
    let version = |name: &str| {
        let found = info.versions.iter().find(|version| version.name == name)?;
        Some(format!("{name} {}", found.version.split([' ', ',']).next().unwrap_or_default()))
    };
    let mut text = format!(
        "{}\nServer CPU per request, kernel work included: {}; {}; {} connections in a closed loop, \
         one client thread. p99: latency{}, the geometric mean of the rounds and its 95 % interval. {}, {} cores, Linux {}; {}; {}.\n",
        markdown::table(&table),
        match rounds(cells).as_str() {
            "1" => "one round".to_owned(),
            rounds => format!("medians of {rounds} interleaved rounds"),
        },
        suites.join(" and "),
        cells
            .iter()
            .flat_map(|measured| &measured.rounds)
            .filter(|row| row.idle_memory.is_none())
            .map(|row| row.connections)
            .max()
            .unwrap_or(0),
        if cells.iter().flat_map(|measured| &measured.rounds).any(|row| row.rate.is_some()) {
            " in an open loop, at half the load of nginx"
        } else {
            ""
        },
        info.machine.processor,
        info.machine.cores,
        info.kernel.split_whitespace().next().unwrap_or("unknown"),
        ["sealion", "nginx"].into_iter().filter_map(version).collect::<Vec<_>>().join(", "),
        units::day(info.started),
    );
    if !info.warnings.is_empty() {
        text += &format!("Preflight warned: {}.\n", info.warnings.join("; "));
    }
    text
}

fn format(cost: f64, instructions: bool) -> String {
    if instructions { units::count(cost) } else { units::time(cost) }
}

/// Cells, each with the shortest name that distinguishes it from the others.
fn by_cell(cells: &[Measured]) -> Vec<(String, Vec<&Measured>)> {
    let several = |value: fn(&Measured) -> String| cells.iter().any(|measured| value(measured) != value(&cells[0]));
    let (studies, calls, settings) = (
        several(|measured| measured.study.clone()),
        several(|measured| units::calls(measured.calls)),
        several(|measured| measured.setting.clone()),
    );
    let mut found: Vec<(&str, &str, String, Vec<&Measured>)> = Vec::new();
    for measured in cells {
        if let Some(known) = found.iter_mut().find(|known| (known.0, known.1) == (&measured.study, &measured.cell)) {
            known.3.push(measured);
            continue;
        }
        let mut words = Vec::new();
        if studies {
            words.push(measured.study.clone());
        }
        words.push(units::size(measured.size as f64));
        if calls {
            words.push(format!("{} calls", units::calls(measured.calls)));
        }
        if settings {
            words.push(measured.setting.clone());
        }
        found.push((&measured.study, &measured.cell, words.join(", "), vec![measured]));
    }
    found.into_iter().map(|(.., name, of_cell)| (name, of_cell)).collect()
}

/// The rounds of a cell: a number, or minimum and maximum.
fn rounds(cells: &[Measured]) -> String {
    let shown = || cells.iter().filter(|measured| !measured.is_mostly_late());
    let counts = || shown().map(|measured| measured.rounds.len()).filter(|count| *count > 0);
    match (counts().min(), counts().max()) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
        (_, most) => most.unwrap_or(0).to_string(),
    }
}
