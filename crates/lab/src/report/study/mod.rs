//! The report's section on each study.

mod article;
mod calls;
mod container;
mod crossing;
mod deployed;
mod full;
mod netdev;
pub(crate) mod peers;

use super::chart::Chart;
use super::charts;
use super::cost;
use super::document::{Block, Section};
use super::figures::{Measured, Metric, chose_kernel};
use super::published;
use crate::statistics::{Crossover, CrossoverPoint, Difference, Rounds, crossover, holm, interval};
use crate::units;

/// A study's section, and its findings in a line or two each.
pub(crate) struct StudyReport {
    pub section: Section,
    /// For the first screen.
    pub findings: Vec<String>,
}

/// The report on a study. `cells`: all its cells.
pub(crate) fn report(study: &str, cells: &[&Measured], instructions: bool) -> StudyReport {
    let (mut blocks, findings) = match study {
        "nginx-article" => article::report(cells, instructions),
        "size-by-calls" => calls::report(cells, instructions),
        "netdev" => netdev::report(cells, instructions),
        "container" => container::report(cells, instructions),
        "crossover" => crossing::report(cells, instructions),
        "peers" => peers::report(cells, instructions),
        "deployed" => deployed::report(cells, instructions),
        _ => (against_size(cells, instructions), crossovers_and_peers(cells, cost(instructions))),
    };
    if let Some(source) = published::source(study) {
        let intro = format!("Repeats {}. There: {}. Result there: {}.", source.citation, source.method, source.result);
        blocks.insert(0, Block::Text(intro));
    }
    blocks.push(Block::Fold(
        format!("All figures of {study}"),
        vec![Block::Table(full::table(cells, instructions)), Block::Text(full::LEGEND.to_owned())],
    ));
    let counted = cells.iter().any(|measured| !measured.rounds.is_empty());
    let findings = match (findings.is_empty(), counted) {
        (false, _) => findings,
        (true, true) => vec!["measured, but not on two paths or servers that compare".to_owned()],
        (true, false) => vec!["nothing that counts was measured".to_owned()],
    };
    StudyReport { section: Section { title: study.to_owned(), blocks }, findings }
}

/// A published figure with a run's corresponding figure.
pub(crate) struct Beside {
    pub name: String,
    pub published: String,
    pub here: String,
}

/// The published figures of a study beside a run's, if both have them.
pub(crate) fn beside(study: &str, cells: &[&Measured], instructions: bool) -> Vec<Beside> {
    match study {
        "nginx-article" => article::beside(cells, instructions),
        "size-by-calls" => calls::beside(cells, instructions),
        "netdev" => netdev::beside(cells, instructions),
        "container" => container::beside(cells, instructions),
        _ => Vec::new(),
    }
}

/// The charts that compare the two paths, beginning with the most telling.
pub(crate) fn charts_of(study: &str, cells: &[&Measured], instructions: bool) -> Vec<Chart> {
    let Some(condition) = widest(cells).or_else(|| conditions(cells).into_iter().next()) else { return Vec::new() };
    let chosen = of_condition(cells, &condition);
    let mut drawn = charts::paths_against_size(&chosen, cost(instructions));
    if study == "container" && !instructions {
        drawn.insert(0, container::chart(cells));
    }
    drawn
}

/// The change by the kernel's path on each server, in words.
fn changes(cells: &[&Measured], metric: Metric) -> String {
    let change = |(user, kernel): (&str, &str)| {
        let change = gain(of_arm(cells, user)?, of_arm(cells, kernel)?, metric)?;
        Some(format!("{kernel} {change}"))
    };
    let changes: Vec<String> = fixed_pairs(cells).into_iter().filter_map(change).collect();
    changes.join(", ")
}

/// Charts against size for the condition with the most sizes and, among equals, the most calls.
fn against_size(cells: &[&Measured], instructions: bool) -> Vec<Block> {
    let Some(condition) = widest(cells) else { return Vec::new() };
    let chosen = of_condition(cells, &condition);
    let words = said(&chosen);
    vec![Block::Heading(format!("Against size, {words}")), Block::Charts(charts::against_size(&chosen, instructions))]
}

/// The condition with the most sizes, at least two, and among equals the most calls.
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

/// The condition that the cells share, for people.
fn said(cells: &[&Measured]) -> String {
    let Some(measured) = cells.first() else { return String::new() };
    let word = |word: &str| match word.split_once('=') {
        Some(("calls", "1")) => "1 call per connection".to_owned(),
        Some(("calls", calls)) => format!("{calls} calls per connection"),
        Some(("connections", "1")) => "1 connection".to_owned(),
        Some(("connections", connections)) => format!("{connections} connections"),
        Some(("suite", suite)) => suite.to_owned(),
        _ => word.replace('=', " "),
    };
    measured.condition.split_whitespace().map(word).collect::<Vec<_>>().join(", ")
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

/// Pairs of a kernel arm with the user-space arm of the same server, if both were measured.
fn pairs(cells: &[&Measured]) -> Vec<(&'static str, &'static str)> {
    let measured = |arm: &str| cells.iter().any(|measured| measured.arm == arm && !measured.rounds.is_empty());
    let idle = |arm: &str| arm == "auto" && !chose_kernel(cells.iter().copied());
    PAIRS.into_iter().filter(|(user, kernel)| measured(user) && measured(kernel) && !idle(kernel)).collect()
}

/// As [`pairs`], without `auto`: an arm that chooses has no crossover size.
fn fixed_pairs(cells: &[&Measured]) -> Vec<(&'static str, &'static str)> {
    pairs(cells).into_iter().filter(|(_, kernel)| *kernel != "auto").collect()
}

/// The size at which two arms cost the same, over cells that differ in size.
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

/// The crossover in words, with its interval.
fn crossover_said(cells: &[&Measured], user: &str, kernel: &str, metric: Metric) -> String {
    let found = crossover_of(cells, user, kernel, metric);
    if found == Crossover::Unknown {
        return found.to_string();
    }
    let rounds: Vec<Rounds> = sizes(cells)
        .into_iter()
        .filter_map(|size| {
            let costs = |arm: &str| -> Option<Vec<f64>> {
                let measured = cells.iter().find(|measured| measured.arm == arm && measured.size == size)?;
                let costs: Vec<f64> = measured.rounds.iter().filter_map(|row| metric.of(row)).collect();
                (!costs.is_empty()).then_some(costs)
            };
            Some(Rounds { size, user: costs(user)?, kernel: costs(kernel)? })
        })
        .collect();
    format!("{found} ({})", interval(&rounds))
}

/// For a study without a special section: the crossovers of each condition, and Sealion compared with the peer.
fn crossovers_and_peers(cells: &[&Measured], metric: Metric) -> Vec<String> {
    let mut findings = Vec::new();
    for condition in conditions(cells) {
        let chosen = of_condition(cells, &condition);
        if sizes(&chosen).len() < 2 {
            continue;
        }
        for (user, kernel) in fixed_pairs(&chosen) {
            let found = crossover_said(&chosen, user, kernel, metric);
            findings.push(format!("{kernel} against {user}, {}: {found}", said(&chosen)));
        }
    }
    findings.extend(against_peer(cells, metric));
    findings
}

/// The cost of a request on Sealion compared with a peer on the same path, over all cells.
fn against_peer(cells: &[&Measured], metric: Metric) -> Vec<String> {
    PEERS.into_iter().filter_map(|(ours, peer)| verdict(cells, peer, ours, metric)).collect()
}

/// Compares two arms over all cells that both have: the number of cells in which the metric is lower, higher, or not
/// proven to differ (Welch, corrected by Holm's method), and the geometric mean of the ratios. No cell is picked out.
fn verdict(cells: &[&Measured], base: &str, arm: &str, metric: Metric) -> Option<String> {
    let pairs = in_both(cells, base, arm);
    let ratios = ratios(&pairs, metric);
    let mean = geometric_mean(&ratios)?;
    let what = match metric {
        Metric::Instructions => "instructions per request",
        Metric::Requests => "requests/s",
        _ => "CPU per request",
    };
    let mean = format!("{}× in the geometric mean of {}", units::ratio(mean), count(ratios.len(), "cell"));
    let tested: Vec<Difference> = pairs.iter().filter_map(|(base, sample)| difference(base, sample, metric)).collect();
    if tested.len() < ratios.len() {
        return Some(format!("{what} of {arm} against {base}: {mean}; not tested, too few rounds"));
    }
    let adjusted = holm(&tested.iter().map(|found| found.welch.probability).collect::<Vec<_>>());
    let proven = |lower: bool| {
        let proven = tested.iter().zip(&adjusted).filter(|(_, probability)| **probability < 0.05);
        proven.filter(|(found, _)| (found.welch.difference < 0.0) == lower).count()
    };
    let (lower, higher) = (proven(true), proven(false));
    let open = tested.len() - lower - higher;
    Some(format!(
        "{what} of {arm} against {base}: {mean}; lower in {lower}, higher in {higher}, no difference proven in {open} (Welch, \
         Holm)"
    ))
}

/// The cells that both arms have, as pairs of base and arm.
fn in_both<'a>(cells: &[&'a Measured], base: &str, arm: &str) -> Vec<(&'a Measured, &'a Measured)> {
    cells
        .iter()
        .filter(|measured| measured.arm == arm)
        .filter_map(|measured| {
            let base = cells.iter().find(|other| other.arm == base && other.cell == measured.cell)?;
            Some((*base, *measured))
        })
        .collect()
}

fn ratios(pairs: &[(&Measured, &Measured)], metric: Metric) -> Vec<f64> {
    pairs.iter().filter_map(|(base, sample)| mean_ratio(base, sample, metric)).collect()
}

/// `None`: `ratios` is empty.
fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("{number} {noun}") } else { format!("{number} {noun}s") }
}

/// The ratio of the means over the rounds, as in the interval of [`Difference`].
fn mean_ratio(base: &Measured, sample: &Measured, metric: Metric) -> Option<f64> {
    Some(sample.summary(metric)?.mean / base.summary(metric)?.mean)
}

/// A change with its interval: `+41 % ± 3 %`.
fn gain(base: &Measured, sample: &Measured, metric: Metric) -> Option<String> {
    let ratio = units::change(mean_ratio(base, sample, metric)?);
    let error = difference(base, sample, metric).map(|found| format!(" ± {:.0} %", found.welch.percent_error.ceil()));
    Some(ratio + &error.unwrap_or_default())
}

/// Difference of an arm from another in a metric.
fn difference(baseline: &Measured, sample: &Measured, metric: Metric) -> Option<Difference> {
    Difference::between(&baseline.summary(metric)?, &sample.summary(metric)?)
}

/// Sealion's arms with the peer's arm on the same path.
const PEERS: [(&str, &str); 3] = [("user", "nginx"), ("user-log", "nginx-log"), ("kernel", "nginx-ktls")];

const PAIRS: [(&str, &str); 4] = [("user", "kernel"), ("user", "auto"), ("user", "nic"), ("nginx", "nginx-ktls")];
