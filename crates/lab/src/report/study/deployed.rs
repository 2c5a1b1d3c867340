//! deployed: Sealion and nginx as operators run them.

use super::super::arm;
use super::super::chart::Ratios;
use super::super::document::Block;
use super::super::figures::{Measured, Metric};
use super::compared::{Compared, verdict};
use super::{against_peer, cost, of_arm, peers};

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut findings = against_peer(cells, cost(instructions));
    findings.extend(OWN.into_iter().filter_map(|(arm, base)| verdict(cells, base, arm, cost(instructions))));
    let mut blocks = Vec::new();
    if !instructions {
        blocks.push(Block::Table(peers::table(cells, BASELINE)));
        blocks.extend(Some(to_nginx(cells)).filter(|drawn| !drawn.is_empty()).map(Block::Ratios));
        blocks.extend(peers::distributions(cells));
    }
    (blocks, findings)
}

/// The server's CPU per request on each arm as a ratio to nginx, by cell.
fn to_nginx(cells: &[&Measured]) -> Ratios {
    let groups = peers::by_cell(cells).into_iter().map(|(row, of_cell)| {
        let arms: Vec<&str> = of_cell.iter().map(|measured| measured.arm.as_str()).collect();
        let rows = arms.iter().filter_map(|name| {
            let base = peers::like(name, &arms, BASELINE);
            let found = Compared::between(of_arm(&of_cell, base)?, of_arm(&of_cell, name)?, Metric::CpuPerRequest)?;
            (base != *name).then(|| found.row(format!("{name} / {base}"), arm::style(name)))
        });
        (peers::label(row), rows.collect())
    });
    Ratios {
        title: "Server CPU per request, ratio to nginx".to_owned(),
        subtitle: "below 1: cheaper than nginx; geometric means of the rounds; bars: 95 %, none below 5 rounds"
            .to_owned(),
        x_title: "ratio".to_owned(),
        groups: groups.collect(),
    }
}

/// nginx as it is deployed: with an access log.
const BASELINE: &str = "nginx-log";

/// Sealion's arms, each with the arm that it extends.
const OWN: [(&str, &str); 4] =
    [("user-log", "user"), ("user-metrics", "user"), ("user-sites", "user"), ("user-two", "user-log")];
