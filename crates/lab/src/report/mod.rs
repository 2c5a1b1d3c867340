//! Reports: from `raw.csv` and `run.json` to `summary.md` and `report.html`, at any time.
//!
//! ```text
//! raw.csv ─► Row ─► gather ─► Measured ─► study ─► Document ─┬─► html: report.html
//! run.json ────────────────────────────► front ──────────────┴─► markdown: summary.md
//! ```

mod arm;
mod chart;
mod charts;
mod conclusions;
mod counted;
mod diff;
mod document;
mod export;
pub(crate) mod figures;
mod front;
mod html;
mod markdown;
mod marked;
mod published;
pub mod raw;
mod readme;
mod studies;
mod study;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::row::Row;
use crate::run_info::RunInfo;
pub(crate) use chart::escape;
use chart::standalone;
pub use diff::{Diff, DiffCell, diff};
use document::{Block, Document};
pub use export::{Format, export};
use figures::{Measured, Metric, gather};
pub use marked::updated;
pub use studies::{Page, studies_page};

/// The files written by [`write()`], and their findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The page, `report.html`.
    pub page: PathBuf,
    /// The summary in Markdown.
    pub summary: PathBuf,
    /// Findings, one line each.
    pub findings: Vec<String>,
}

/// Writes `report.html` and `summary.md` into a run's directory.
///
/// # Errors
///
/// `raw.csv` or `run.json` is missing or broken, or the directory cannot be written to.
pub fn write(directory: &Path) -> Result<Written> {
    let info = RunInfo::read(directory)?;
    let (document, findings) = document(raw::read(directory)?, &info);
    let written = Written { page: directory.join("report.html"), summary: directory.join("summary.md"), findings };
    for (path, text) in [(&written.page, html::page(&document)), (&written.summary, markdown::document(&document))] {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(written)
}

/// The drawings of a report as files of their own: names and contents. A name is made of the drawing's title, and ends
/// with a number from the second drawing of that title on.
///
/// # Errors
///
/// As [`write()`], except for writing.
pub fn drawings(directory: &Path) -> Result<Vec<(String, String)>> {
    let info = RunInfo::read(directory)?;
    let (document, _) = document(raw::read(directory)?, &info);
    let mut files: Vec<(String, String)> = Vec::new();
    for (title, svg) in document.drawings() {
        let words = title.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let name = words.collect::<Vec<_>>().join("-").to_lowercase();
        let numbered = (2..).map(|number| format!("{name}-{number}.svg"));
        let mut names = std::iter::once(format!("{name}.svg")).chain(numbered);
        let free = names.find(|name| !files.iter().any(|(other, _)| other == name));
        files.push((free.context("numbers end")?, standalone(&svg)));
    }
    Ok(files)
}

/// The table for the README (`readme.rs`), or the table of counts if the directory holds counts in guests
/// (`counted.rs`).
///
/// # Errors
///
/// As [`write()`], or no cell was measured on `baseline`.
pub fn readme_table(directory: &Path, baseline: &str) -> Result<String> {
    if directory.join(counted::RAW).is_dir() {
        return counted::table(directory);
    }
    readme::table(raw::read(directory)?, &RunInfo::read(directory)?, baseline)
}

/// Rejects a run with too few rounds for a README. Counts in guests repeat and need no rounds.
///
/// # Errors
///
/// As [`write()`], or a cell has fewer than seven rounds, and is no open loop whose client was late.
pub fn enough_rounds(directory: &Path) -> Result<()> {
    if directory.join(counted::RAW).is_dir() || RunInfo::read(directory)?.counts_instructions() {
        return Ok(());
    }
    let cells = gather(raw::read(directory)?);
    // The table leaves out an open loop whose client was late too often.
    let is_late = |measured: &&Measured| measured.voids.iter().any(|row| row.rate.is_some());
    let counting = cells.iter().filter(|measured| !is_late(measured));
    let least = counting.map(|measured| measured.rounds.len()).filter(|rounds| *rounds > 0).min().unwrap_or(0);
    ensure!(
        least >= README_ROUNDS,
        "{} has {least} rounds of a cell, and a README shows medians of {README_ROUNDS} or more: run it with --rounds \
         {README_ROUNDS}",
        directory.display()
    );
    Ok(())
}

/// The minimum number of rounds for a median in a README.
const README_ROUNDS: usize = 7;

/// The report and its findings.
fn document(rows: Vec<Row>, info: &RunInfo) -> (Document, Vec<String>) {
    let cells = gather(rows);
    let mut studies: Vec<&str> = cells.iter().map(|measured| measured.study.as_str()).collect();
    studies.dedup();
    let reports: Vec<_> = studies
        .iter()
        .map(|name| {
            let of_study: Vec<&Measured> = cells.iter().filter(|measured| measured.study == *name).collect();
            study::report(name, &of_study, info.counts_instructions())
        })
        .collect();
    let several = reports.len() > 1;
    let findings: Vec<String> = reports
        .iter()
        .flat_map(|report| {
            let study = &report.section.title;
            let shown = if several { FINDINGS_EACH } else { usize::MAX };
            let line = move |text: &String| if several { format!("{study}: {text}") } else { text.clone() };
            report.findings.iter().take(shown).map(line)
        })
        .collect();
    let document = Document {
        title: front::title(info),
        front: front::front(info, &cells, findings.clone()),
        sections: reports
            .into_iter()
            .map(|mut report| {
                if several {
                    report.section.blocks.insert(0, Block::List(report.findings));
                }
                report.section
            })
            .collect(),
    };
    (document, findings)
}

/// The cost metric of this run: CPU time, or instructions in a guest that counts them.
fn cost(instructions: bool) -> Metric {
    if instructions { Metric::Instructions } else { Metric::CpuPerRequest }
}

/// The maximum number of findings per study on the first screen; the study's section has all of them.
const FINDINGS_EACH: usize = 3;
