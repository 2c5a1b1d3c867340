//! What the report says of each study.

mod article;
mod calls;
mod container;
mod crossing;
mod full;
mod netdev;

use super::charts;
use super::cost;
use super::document::{Block, Section};
use super::figures::{Measured, Metric};
use super::published;
use crate::statistics::{Crossover, CrossoverPoint, Difference, crossover};

/// A study's section, and what it found in a line or two each.
pub(crate) struct Told {
    /// The section.
    pub section: Section,
    /// For the first screen.
    pub findings: Vec<String>,
}

/// Tells of a study, of which `cells` are all cells.
pub(crate) fn tell(study: &str, cells: &[&Measured], instructions: bool) -> Told {
    let (mut blocks, findings) = match study {
        "nginx-article" => article::tell(cells, instructions),
        "size-by-calls" => calls::tell(cells, instructions),
        "netdev" => netdev::tell(cells, instructions),
        "container" => container::tell(cells, instructions),
        "crossover" => crossing::tell(cells, instructions),
        _ => (against_size(cells, instructions), Vec::new()),
    };
    if let Some(source) = published::source(study) {
        let intro = format!("Repeats {}. There: {}. Result there: {}.", source.citation, source.method, source.result);
        blocks.insert(0, Block::Text(intro));
    }
    blocks.push(Block::Fold(
        format!("All figures of {study}"),
        vec![Block::Table(full::table(cells, instructions)), Block::Text(full::LEGEND.to_owned())],
    ));
    let findings = if findings.is_empty() { vec!["nothing that counts was measured".to_owned()] } else { findings };
    let findings = findings.into_iter().map(|finding| format!("{study}: {finding}")).collect();
    Told { section: Section { title: study.to_owned(), blocks }, findings }
}

/// Charts against size for the condition with the most sizes, and of those the most calls.
fn against_size(cells: &[&Measured], instructions: bool) -> Vec<Block> {
    let Some(condition) = widest(cells) else { return Vec::new() };
    let chosen = of_condition(cells, &condition);
    let words = said(&chosen);
    vec![Block::Heading(format!("Against size, {words}")), Block::Charts(charts::against_size(&chosen, instructions))]
}

/// The condition with the most sizes, at least two, and of those the one with most calls.
fn widest(cells: &[&Measured]) -> Option<String> {
    let sizes = |condition: &str| {
        let mut sizes: Vec<u64> =
            cells.iter().filter(|measured| measured.condition == condition).map(|measured| measured.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.len()
    };
    cells
        .iter()
        .filter(|measured| sizes(&measured.condition) > 1)
        .max_by_key(|measured| (sizes(&measured.condition), measured.calls.unwrap_or(u64::MAX)))
        .map(|measured| measured.condition.clone())
}

fn of_condition<'a>(cells: &[&'a Measured], condition: &str) -> Vec<&'a Measured> {
    cells.iter().filter(|measured| measured.condition == condition).copied().collect()
}

/// The condition of cells that share one, for people.
fn said(cells: &[&Measured]) -> String {
    cells
        .first()
        .map(|measured| measured.condition.replace("calls=", "calls per connection: ").replace('=', " "))
        .unwrap_or_default()
}

/// Conditions in the order of the cells, each once.
fn conditions(cells: &[&Measured]) -> Vec<String> {
    let mut conditions: Vec<String> = Vec::new();
    for measured in cells {
        if !conditions.contains(&measured.condition) {
            conditions.push(measured.condition.clone());
        }
    }
    conditions
}

/// Sizes, each once, ascending.
fn sizes(cells: &[&Measured]) -> Vec<u64> {
    let mut sizes: Vec<u64> = cells.iter().map(|measured| measured.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The cell of an arm among cells that differ in nothing else.
fn of_arm<'a>(cells: &[&'a Measured], arm: &str) -> Option<&'a Measured> {
    cells.iter().find(|measured| measured.arm == arm).copied()
}

/// Pairs of an arm in the kernel with the one in user space on the same server, as far as both were measured.
fn pairs(cells: &[&Measured]) -> Vec<(&'static str, &'static str)> {
    let measured = |arm: &str| cells.iter().any(|measured| measured.arm == arm && !measured.rounds.is_empty());
    PAIRS.into_iter().filter(|(user, kernel)| measured(user) && measured(kernel)).collect()
}

/// Where two arms cost the same, over cells that differ in size.
fn crossover_of(cells: &[&Measured], user: &str, kernel: &str, metric: Metric) -> Crossover {
    let points: Vec<CrossoverPoint> = sizes(cells)
        .into_iter()
        .filter_map(|size| {
            let cost =
                |arm: &str| cells.iter().find(|measured| measured.arm == arm && measured.size == size)?.median(metric);
            Some(CrossoverPoint { size, user: cost(user)?, kernel: cost(kernel)? })
        })
        .collect();
    crossover(&points)
}

/// Difference of an arm from another in a metric.
fn difference(baseline: &Measured, sample: &Measured, metric: Metric) -> Option<Difference> {
    Difference::between(&baseline.summary(metric)?, &sample.summary(metric)?)
}

const PAIRS: [(&str, &str); 4] = [("user", "kernel"), ("user", "auto"), ("user", "nic"), ("nginx", "nginx-ktls")];
