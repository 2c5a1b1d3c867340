//! A guard over instruction counts: no cell may exceed its baseline, and the policy may not cost more than the better
//! of the two paths.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cell;
use super::table::per_request;
use crate::arm::Arm;
use crate::load::Suite;
use crate::row::Row;
use crate::study::Cell;

/// Recorded instructions per request; a baseline is a file of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) arm: String,
    pub(crate) cell: String,
    pub(crate) instructions: u64,
}

/// A reason to fail. Counts are per request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Finding {
    /// The measurement is void.
    Void { of: Of, why: String },
    /// More instructions than recorded.
    Above { of: Of, recorded: u64, counted: u64 },
    /// The baseline has no count for it.
    Unknown { of: Of },
    /// The policy costs more than the better path.
    Slower {
        cell: String,
        /// The cost with `--ktls auto`.
        auto: u64,
        /// The cost on the better path.
        best: u64,
    },
}

/// Arm and cell of a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Of {
    pub(crate) arm: String,
    pub(crate) cell: String,
}

/// The cells that are guarded.
pub(crate) fn cells() -> Vec<Cell> {
    let sizes = [1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
    let calls = [Some(1), Some(4), None];
    let mut cells: Vec<Cell> =
        sizes.iter().flat_map(|&size| calls.map(|calls| cell(size, calls, false, SUITE))).collect();
    cells.push(cell(1 << 10, Some(1), true, SUITE));
    cells
}

/// Compares `rows`, counted now, with the baselines of the same kernel.
pub(crate) fn findings(recorded: &[Recorded], rows: &[Row]) -> Vec<Finding> {
    let known: BTreeMap<(&str, &str), u64> =
        recorded.iter().map(|known| ((known.arm.as_str(), known.cell.as_str()), known.instructions)).collect();
    let mut findings = Vec::new();
    for row in rows {
        let of = Of { arm: row.arm.clone(), cell: row.cell.clone() };
        let Some(counted) = rounded(row) else {
            findings.push(Finding::Void { of, why: row.void.clone() });
            continue;
        };
        match known.get(&(row.arm.as_str(), row.cell.as_str())) {
            None => findings.push(Finding::Unknown { of }),
            Some(&recorded) if counted as f64 > recorded as f64 * MARGIN => {
                findings.push(Finding::Above { of, recorded, counted });
            }
            Some(_) => {}
        }
    }
    findings.extend(slower(rows));
    findings
}

/// Cells in which the policy costs more than the better path.
fn slower(rows: &[Row]) -> impl Iterator<Item = Finding> {
    let cost =
        |arm: Arm, cell: &str| rows.iter().find(|row| row.arm == arm.to_string() && row.cell == cell).and_then(rounded);
    rows.iter().filter(|row| row.arm == Arm::Auto.to_string()).filter_map(move |row| {
        let auto = rounded(row)?;
        let best = cost(Arm::User, &row.cell)?.min(cost(Arm::Kernel, &row.cell)?);
        (auto as f64 > best as f64 * MARGIN).then(|| Finding::Slower { cell: row.cell.clone(), auto, best })
    })
}

/// Reads a baseline.
///
/// # Errors
/// It was not written by [`write()`].
pub(crate) fn read(text: &[u8]) -> Result<Vec<Recorded>> {
    csv::Reader::from_reader(text).deserialize().collect::<Result<_, _>>().context("the baseline is damaged")
}

/// The baseline file for `rows`.
///
/// # Errors
/// A row is void.
pub(crate) fn write(rows: &[Row]) -> Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        let instructions =
            rounded(row).with_context(|| format!("{} on {} is void: {}", row.cell, row.arm, row.void))?;
        writer.serialize(Recorded { arm: row.arm.clone(), cell: row.cell.clone(), instructions })?;
    }
    Ok(writer.into_inner()?)
}

fn rounded(row: &Row) -> Option<u64> {
    per_request(row).map(|cost| cost.round() as u64)
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |of: u64, base: u64| (of as f64 / base as f64 - 1.0) * 100.0;
        match self {
            Self::Void { of, why } => write!(formatter, "{of}: void: {why}"),
            Self::Unknown { of } => {
                write!(formatter, "{of}: no baseline: record one with cargo xtask bench-guard --record")
            }
            Self::Above { of, recorded, counted } => write!(
                formatter,
                "{of}: {counted} instructions per request, {:+.1} % above the baseline of {recorded}",
                percent(*counted, *recorded)
            ),
            Self::Slower { cell, auto, best } => write!(
                formatter,
                "{cell}: auto takes {auto} instructions per request, {:+.1} % above the better of user and kernel, {best}",
                percent(*auto, *best)
            ),
        }
    }
}

impl fmt::Display for Of {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} on {}", self.cell, self.arm)
    }
}

const SUITE: Suite = Suite::Aes128Gcm;

/// How far a count may exceed another one. MEASURED: `requests` in asking.rs says how far counts repeat; this is three
/// times that.
const MARGIN: f64 = 1.03;

#[cfg(test)]
mod tests {
    use super::super::plan::label;
    use super::*;

    fn row(arm: Arm, cell: &str, instructions: u64) -> Row {
        Row {
            arm: arm.to_string(),
            cell: cell.into(),
            requests: 10,
            server_instructions: Some(instructions * 10),
            ..Row::default()
        }
    }

    fn of(arm: Arm, cell: &str) -> Of {
        Of { arm: arm.to_string(), cell: cell.into() }
    }

    #[test]
    fn what_is_recorded_passes_and_3_percent_more_does_too() {
        let recorded = read(&write(&[row(Arm::User, "1k", 10_000)]).unwrap()).unwrap();
        for counted in [1, 10_000, 10_300] {
            assert_eq!(findings(&recorded, &[row(Arm::User, "1k", counted)]), []);
        }
        let above = Finding::Above { of: of(Arm::User, "1k"), recorded: 10_000, counted: 10_301 };
        assert_eq!(findings(&recorded, &[row(Arm::User, "1k", 10_301)]), [above]);
    }

    #[test]
    fn a_cell_without_baseline_and_a_void_one_do_not_pass() {
        let recorded = read(&write(&[row(Arm::User, "1k", 10_000)]).unwrap()).unwrap();
        let unknown = Finding::Unknown { of: of(Arm::User, "16k") };
        assert_eq!(findings(&recorded, &[row(Arm::User, "16k", 1)]), [unknown]);
        let void = Row { void: "no sender".into(), ..row(Arm::User, "1k", 1) };
        let finding = Finding::Void { of: of(Arm::User, "1k"), why: "no sender".into() };
        assert_eq!(findings(&recorded, std::slice::from_ref(&void)), [finding]);
        assert!(write(&[void]).unwrap_err().to_string().contains("no sender"));
    }

    #[test]
    fn auto_is_never_dearer_than_the_better_choice() {
        let rows = |auto| [row(Arm::User, "1k", 100_000), row(Arm::Kernel, "1k", 120_000), row(Arm::Auto, "1k", auto)];
        let recorded = read(&write(&rows(200_000)).unwrap()).unwrap();
        assert_eq!(findings(&recorded, &rows(103_000)), []);
        let slower = Finding::Slower { cell: "1k".into(), auto: 103_001, best: 100_000 };
        assert_eq!(findings(&recorded, &rows(103_001)), [slower]);
    }

    #[test]
    fn cells_have_names_of_their_own() {
        let mut names: Vec<String> = cells().iter().map(label).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
