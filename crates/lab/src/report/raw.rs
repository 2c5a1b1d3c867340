//! `raw.csv`: a row for each measurement.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::histogram;
use crate::row::Row;

/// Name of the file in a run's directory.
pub const FILE: &str = "raw.csv";

/// Reads all rows of `raw.csv` in `directory`.
///
/// # Errors
///
/// The file is missing, empty, or has an invalid line; the error names the line and the reason.
pub fn read(directory: &Path) -> Result<Vec<Row>> {
    let path = directory.join(FILE);
    let mut reader = csv::Reader::from_path(&path).with_context(|| {
        format!("cannot read {}: is {} a directory that `sealion-lab run` made?", path.display(), directory.display())
    })?;
    let headers = reader.headers().with_context(|| format!("{} is broken", path.display()))?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.with_context(|| {
            format!("{}: a line has another number of fields than the first; was the run cut short?", path.display())
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let row: Row = record.deserialize(Some(&headers)).with_context(|| {
            format!("{}, line {line}: not a measurement as this version of the lab keeps it", path.display())
        })?;
        check(&row).with_context(|| format!("{}, line {line}", path.display()))?;
        rows.push(row);
    }
    if rows.is_empty() {
        bail!("{} holds no measurement: run the study again, or let it resume", path.display());
    }
    Ok(rows)
}

fn check(row: &Row) -> Result<()> {
    for (name, text) in [
        ("latency", &row.latency),
        ("connect", &row.connect),
        ("handshake", &row.handshake),
        ("first_byte", &row.first_byte),
    ] {
        histogram::decode(text).with_context(|| format!("column {name}"))?;
    }
    for (name, text) in [("study", &row.study), ("cell", &row.cell), ("arm", &row.arm)] {
        if text.is_empty() {
            bail!("column {name} is empty");
        }
    }
    if row.void.is_empty() && row.elapsed == 0 && row.server_instructions.is_none() {
        bail!("column elapsed is 0 in a measurement of time that is not void");
    }
    Ok(())
}
