//! The report's section on each study.

mod article;
mod calls;
pub(crate) mod compared;
mod container;
mod crossing;
mod deployed;
mod full;
mod netdev;
pub(crate) mod peers;
mod rates;

use super::chart::{Chart, standalone};
use super::charts;
use super::cost;
use super::document::{Block, Section};
use super::figures::{Measured, Metric, chose_kernel};
use super::published;
use crate::statistics::{Crossover, CrossoverPoint, Difference, Interval, Rounds, Summary, crossover, interval};
use compared::{Compared, dearer, verdict};

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
        "rate-sweep" => rates::report(cells),
        "peers" => peers::report(cells, instructions),
        "deployed" => deployed::report(cells, instructions),
        _ => (against_size(cells, instructions), crossovers_and_peers(cells, cost(instructions))),
    };
    let findings: Vec<String> = findings.into_iter().chain(dearer(cells, cost(instructions))).collect();
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
///
/// `limits`: of the servers, see [`RunInfo::server_limits`](crate::run_info::RunInfo::server_limits).
pub(crate) fn beside(study: &str, cells: &[&Measured], instructions: bool, limits: &str) -> Vec<Beside> {
    match study {
        "nginx-article" => article::beside(cells, instructions),
        "size-by-calls" => calls::beside(cells, instructions),
        "netdev" => netdev::beside(cells, instructions),
        "container" if limits.is_empty() => container::beside(cells, instructions),
        "container" => container::beside_under_limits(cells),
        _ => Vec::new(),
    }
}

/// A drawing as a file of its own.
pub(crate) struct Picture {
    pub title: String,
    pub svg: String,
}

/// The most telling drawing of the two paths in a study.
pub(crate) fn picture(study: &str, cells: &[&Measured], instructions: bool) -> Option<Picture> {
    if study == "nginx-article" {
        let drawn = article::gain_over_size(cells, instructions)?;
        return Some(Picture { svg: standalone(&drawn.svg()), title: drawn.title });
    }
    let condition = widest(cells).or_else(|| conditions(cells).into_iter().next())?;
    let chosen = of_condition(cells, &condition);
    let mut drawn = charts::paths_against_size(&chosen, cost(instructions));
    if study == "container" && !instructions {
        drawn.insert(0, container::chart(cells));
    }
    let chart = drawn.into_iter().find(|chart| !chart.is_empty())?;
    Some(Picture { svg: standalone(&chart.svg()), title: chart.title })
}

/// The distribution of latency in each open loop, a chart for each cell; `name` gives its title.
fn distributions(cells: &[&Measured], name: impl Fn(&Measured) -> String) -> Vec<Chart> {
    let open: Vec<&Measured> =
        cells.iter().copied().filter(|m| m.rounds.iter().any(|row| row.rate.is_some())).collect();
    let mut names: Vec<&str> = open.iter().map(|measured| measured.cell.as_str()).collect();
    names.dedup();
    let charts = names.into_iter().map(|cell| {
        let arms: Vec<&Measured> = open.iter().filter(|measured| measured.cell == cell).copied().collect();
        charts::distribution(&arms, &name(arms[0]))
    });
    charts.filter(|chart| !chart.is_empty()).collect()
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
            let cost = |arm: &str| {
                let measured = cells.iter().find(|measured| measured.arm == arm && measured.size == size)?;
                let costs: Vec<f64> = measured.rounds.iter().filter_map(|row| metric.cost(row)).collect();
                Summary::of(&costs).map(|summary| summary.median)
            };
            Some(CrossoverPoint { size, user: cost(user)?, kernel: cost(kernel)? })
        })
        .collect();
    crossover(&points)
}

/// The crossover in words, with its interval. Without an interval the sizes on both sides of it are all that is known.
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
                let costs: Vec<f64> = measured.rounds.iter().filter_map(|row| metric.cost(row)).collect();
                (!costs.is_empty()).then_some(costs)
            };
            Some(Rounds { size, user: costs(user)?, kernel: costs(kernel)? })
        })
        .collect();
    let grid: Vec<u64> = rounds.iter().map(|rounds| rounds.size).collect();
    match interval(&rounds) {
        between @ Interval::Between(..) => format!("{found} ({between})"),
        Interval::TooFew(_) if metric.is_count() => found.between(&grid),
        none => format!("{} ({none})", found.between(&grid)),
    }
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

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("{number} {noun}") } else { format!("{number} {noun}s") }
}

/// The change of a percentile of latency with its interval; `None` with too few rounds for one.
fn percentile_change(base: &Measured, sample: &Measured, quantile: f64) -> Option<String> {
    let found = Difference::between(&base.percentiles(quantile)?, &sample.percentiles(quantile)?)?.welch;
    found.has_rounds().then(|| Compared::Tested(found).short())
}

/// Sealion's arms with the peer's arm on the same path.
const PEERS: [(&str, &str); 3] = [("user", "nginx"), ("user-log", "nginx-log"), ("kernel", "nginx-ktls")];

const PAIRS: [(&str, &str); 10] = [
    ("user", "kernel"),
    ("user", "auto"),
    ("user", "nic"),
    ("nginx", "nginx-ktls"),
    ("nginx-log", "nginx-log-ktls"),
    ("nginx-default", "nginx-default-ktls"),
    ("user-limited", "kernel-limited"),
    ("nginx-limited", "nginx-ktls-limited"),
    ("user-vegeta", "kernel-vegeta"),
    ("nginx-vegeta", "nginx-ktls-vegeta"),
];
