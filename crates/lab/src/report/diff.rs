//! Two runs side by side: every cell and arm that both have, with a gate for regressions.

use std::path::Path;

use anyhow::{Result, bail, ensure};

use super::document::Table;
use super::figures::{Measured, Metric, gather};
use super::study::compared::Compared;
use super::{cost, markdown, raw};
use crate::run_info::RunInfo;
use crate::statistics::{Ratio, holm};
use crate::units;

/// The comparison of two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// Conditions that differ, one per line: a difference of the figures may be theirs.
    pub conditions: Vec<String>,
    /// Cells and arms of both runs.
    pub cells: Vec<DiffCell>,
    /// Cells and arms of one run only.
    pub alone: usize,
}

/// A cell on an arm in both runs.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffCell {
    /// Study, cell and arm.
    pub name: String,
    /// Medians of the cost of a request, formatted.
    pub costs: [String; 2],
    /// The cost in the second run over the first.
    pub ratio: f64,
    /// The difference in words.
    pub said: String,
    /// Whether the difference may be claimed, among all cells (Holm).
    pub claimed: bool,
}

/// Compares the runs in two directories.
///
/// # Errors
/// A run cannot be read, the runs have no cell in common, or only one counts instructions.
pub fn diff(first: &Path, second: &Path) -> Result<Diff> {
    let infos = [RunInfo::read(first)?, RunInfo::read(second)?];
    let instructions = infos[0].counts_instructions();
    ensure!(
        instructions == infos[1].counts_instructions(),
        "one of the runs counts instructions and the other measures times: they do not compare"
    );
    let [before, after] = [gather(raw::read(first)?), gather(raw::read(second)?)];
    let is_same =
        |one: &Measured, other: &Measured| (&one.study, &one.cell, &one.arm) == (&other.study, &other.cell, &other.arm);
    let both: Vec<(&Measured, &Measured)> =
        after.iter().filter_map(|after| Some((before.iter().find(|before| is_same(before, after))?, after))).collect();
    let metric = cost(instructions);
    let found: Vec<(&Measured, &Measured, Compared)> = both
        .iter()
        .filter_map(|(before, after)| Some((*before, *after, Compared::between(before, after, metric)?)))
        .collect();
    if found.is_empty() {
        bail!("{} and {} have no measurement of one cell on one arm in common", first.display(), second.display());
    }
    let claimed = claimed(&found.iter().map(|(.., compared)| *compared).collect::<Vec<_>>());
    let cells = found.iter().zip(claimed);
    let alone = before.len() + after.len() - 2 * both.len();
    let cells =
        cells.map(|((before, after, compared), claimed)| cell(before, after, *compared, claimed, metric)).collect();
    Ok(Diff { conditions: conditions(&infos), cells, alone })
}

fn cell(before: &Measured, after: &Measured, compared: Compared, claimed: bool, metric: Metric) -> DiffCell {
    let format = if metric.is_count() { units::count } else { units::time };
    let median = |measured: &Measured| measured.median(metric).map(format).unwrap_or_default();
    DiffCell {
        name: format!("{} {}, {}", after.study, after.cell, after.arm),
        costs: [median(before), median(after)],
        ratio: compared.ratio(),
        said: compared.to_string(),
        claimed,
    }
}

/// Which of the differences may be claimed: times are corrected for their number.
fn claimed(all: &[Compared]) -> Vec<bool> {
    let tested = |compared: &Compared| match compared {
        Compared::Tested(ratio) if ratio.has_rounds() => Some(*ratio),
        _ => None,
    };
    let ratios: Vec<Ratio> = all.iter().filter_map(tested).collect();
    let mut adjusted = holm(&ratios.iter().map(|ratio| ratio.probability).collect::<Vec<_>>()).into_iter();
    all.iter()
        .map(|compared| match tested(compared) {
            Some(_) => adjusted.next().is_some_and(|probability| probability < 0.05),
            None => compared.is_apart(),
        })
        .collect()
}

/// Conditions of the runs that affect their figures and differ.
fn conditions(infos: &[RunInfo; 2]) -> Vec<String> {
    let words = |info: &RunInfo| -> Vec<(String, String)> {
        let mut all = vec![
            ("processor".to_owned(), info.machine.processor.clone()),
            ("cores".to_owned(), info.machine.cores.to_string()),
            ("governor".to_owned(), info.machine.governor.clone()),
            ("turbo".to_owned(), info.machine.turbo.clone()),
            ("kernel".to_owned(), info.kernel.clone()),
            ("client".to_owned(), info.client.clone()),
            ("costs of auto".to_owned(), info.calibration.sha256.clone()),
        ];
        all.extend(info.versions.iter().map(|version| (version.name.clone(), version.version.clone())));
        all.extend(
            info.programs.iter().map(|program| (format!("SHA-256 of {}", program.name), program.sha256.clone())),
        );
        all.extend(info.sysctls.iter().map(|(name, value)| (name.clone(), value.clone())));
        all
    };
    let [first, second] = [words(&infos[0]), words(&infos[1])];
    let changed = |(name, value): &(String, String)| {
        let other = first.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value.as_str());
        (other != value).then(|| format!("{name}: {} and {}", or_none(other), or_none(value)))
    };
    second.iter().filter_map(changed).collect()
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "not recorded" } else { text }
}

impl Diff {
    /// Cells that are dearer in the second run by more than `percent`, beyond doubt.
    pub fn regressions(&self, percent: f64) -> Vec<&DiffCell> {
        self.cells.iter().filter(|cell| cell.claimed && cell.ratio > 1.0 + percent / 100.0).collect()
    }

    /// The comparison in Markdown, its verdict first.
    pub fn text(&self, percent: f64) -> String {
        let count =
            |wanted: fn(&DiffCell) -> bool| self.cells.iter().filter(|cell| cell.claimed && wanted(cell)).count();
        let (lower, higher) = (count(|cell| cell.ratio < 1.0), count(|cell| cell.ratio > 1.0));
        let open = self.cells.len() - lower - higher;
        let regressions = self.regressions(percent);
        let mut text = match regressions.len() {
            0 => format!("No cell costs {percent} % more than before"),
            count => format!("{count} of {} cells cost more than {percent} % more than before", self.cells.len()),
        };
        text += &format!(": lower in {lower}, higher in {higher}, no difference claimed in {open}.\n\n");
        for condition in &self.conditions {
            text += &format!("- Not alike: {condition}\n");
        }
        if self.alone > 0 {
            text += &format!("- {} measurements are in one run only\n", self.alone);
        }
        let mut table = Table::new("", 1, &["cell", "before", "after", "change"]);
        let mut cells: Vec<&DiffCell> = self.cells.iter().collect();
        cells.sort_by(|one, other| other.ratio.total_cmp(&one.ratio));
        for cell in cells {
            let [before, after] = cell.costs.clone();
            let mark = if cell.claimed { "" } else { " (not claimed)" };
            table.rows.push(vec![cell.name.clone(), before, after, format!("{}{mark}", cell.said)]);
        }
        format!("{text}\n{}", markdown::table(&table))
    }
}
