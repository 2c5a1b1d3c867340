//! The README's table of instructions counted in guests: Sealion and nginx on each path, with kernels side by side.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::document::Table;
use super::markdown;
use crate::row::Row;
use crate::run_info::RunInfo;
use crate::units;

/// Directory of raw counts, a file for each kernel.
pub(crate) const RAW: &str = "raw";

/// The table in Markdown, and a line that describes it.
pub(crate) fn table(directory: &Path) -> Result<String> {
    let kernels = kernels(directory)?;
    let mut cells: Vec<&Row> = Vec::new();
    for row in &kernels[0].1 {
        // Cells with a few calls are left out, and handshakes are shown for one size only.
        let is_shown = row.calls.is_none() || (row.calls == Some(1) && row.size == 1 << 10);
        if is_shown && !cells.iter().any(|known| known.cell == row.cell) {
            cells.push(row);
        }
    }
    cells.sort_by_key(|row| (row.calls.is_some(), row.resume, streams(row).is_some(), row.size));
    let mut table = Table { caption: String::new(), head: vec![String::new()], rows: Vec::new(), names: 1 };
    for (_, _, path) in PAIRS {
        table.head.extend([format!("nginx, {path}"), format!("Sealion, {path}"), "ratio".to_owned()]);
    }
    for row in cells {
        let each = |text: &dyn Fn(&[Row]) -> Option<String>| {
            let texts: Vec<_> = kernels.iter().map(|(_, rows)| text(rows).unwrap_or_else(|| "–".to_owned())).collect();
            texts.join(" / ")
        };
        let of = |rows: &[Row], arm: &str| {
            let found = rows.iter().find(|other| other.cell == row.cell && other.arm == arm)?;
            let counted = found.server_instructions.filter(|_| found.void.is_empty() && found.requests > 0)?;
            Some(counted as f64 / found.requests as f64)
        };
        let mut line = vec![label(row)];
        for (ours, peer, _) in PAIRS {
            for arm in [peer, ours] {
                line.push(each(&|rows| Some(format!("{:.0}", of(rows, arm)? / 1e3))));
            }
            line.push(each(&|rows| Some(units::ratio(of(rows, ours)? / of(rows, peer)?))));
        }
        table.rows.push(line);
    }
    let names: Vec<&str> = kernels.iter().map(|(name, _)| name.as_str()).collect();
    let date = RunInfo::read(directory).ok().map(|info| format!(", {}", units::day(info.started)));
    Ok(format!(
        "{}\nThousands of instructions per request in the server and the kernel below it, counted in emulated guests, kernels {}; {}{}.\n",
        markdown::table(&table),
        names.join(" / "),
        kernels[0].1[0].suite,
        date.unwrap_or_default(),
    ))
}

/// The rows of each kernel, by its name.
fn kernels(directory: &Path) -> Result<Vec<(String, Vec<Row>)>> {
    let raw = directory.join(RAW);
    let entries = std::fs::read_dir(&raw).with_context(|| format!("cannot read {}", raw.display()))?;
    let mut kernels = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "csv") {
            continue;
        }
        let broken = || format!("{} is broken", path.display());
        let rows = csv::Reader::from_path(&path).with_context(broken)?.into_deserialize();
        let rows: Vec<Row> = rows.collect::<Result<_, csv::Error>>().with_context(broken)?;
        ensure!(!rows.is_empty(), "{} holds no counts", path.display());
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        kernels.push((name, rows));
    }
    ensure!(!kernels.is_empty(), "{} holds no counts", raw.display());
    kernels.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(kernels)
}

fn label(row: &Row) -> String {
    let size = units::body(row.size as f64);
    match (row.calls, row.resume) {
        (None, _) => match streams(row) {
            Some(streams) => format!("{size}, HTTP/2, {streams} at a time"),
            None => size,
        },
        (Some(_), false) => format!("{size}, each with a full handshake"),
        (Some(_), true) => format!("{size}, each with a resumed handshake"),
    }
}

/// The concurrent requests on an HTTP/2 connection, from the cell's name.
fn streams(row: &Row) -> Option<&str> {
    Some(row.cell.split_once(" h2 ")?.1)
}

/// Sealion's arm, nginx' arm on the same path, and the path.
const PAIRS: [(&str, &str, &str); 3] = [
    ("user", "nginx", "user space"),
    ("user-log", "nginx-log", "user space and access log"),
    ("kernel", "nginx-ktls", "kernel TLS"),
];
