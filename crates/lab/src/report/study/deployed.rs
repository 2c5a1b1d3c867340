//! deployed: ours beside nginx, both as operators run them.

use super::super::document::Block;
use super::super::figures::{Measured, Metric};
use super::{against_peer, cost, peers};
use crate::units;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut findings = against_peer(cells, cost(instructions));
    findings.extend(OWN.into_iter().filter_map(|(arm, base)| {
        let ratios = ratios(cells, arm, base, cost(instructions));
        let most = ratios.iter().copied().max_by(f64::total_cmp)?;
        Some(format!("{arm} against {base}: up to {}× in any cell", units::ratio(most)))
    }));
    let blocks = if instructions { Vec::new() } else { vec![Block::Table(peers::table(cells, "nginx-log"))] };
    (blocks, findings)
}

/// Our arms with the one that each adds to.
const OWN: [(&str, &str); 4] =
    [("user-log", "user"), ("user-metrics", "user"), ("user-sites", "user"), ("user-two", "user-log")];

/// The ratios of an arm to another in the cells that both have.
fn ratios(cells: &[&Measured], arm: &str, base: &str, metric: Metric) -> Vec<f64> {
    let of = |name: &str, cell: &str| {
        cells.iter().find(|measured| measured.arm == name && measured.cell == cell)?.median(metric)
    };
    let all = cells.iter().filter(|measured| measured.arm == arm);
    all.filter_map(|measured| Some(measured.median(metric)? / of(base, &measured.cell)?)).collect()
}
