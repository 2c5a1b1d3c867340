//! deployed: Sealion and nginx as operators run them.

use super::super::document::Block;
use super::super::figures::Measured;
use super::compared::verdict;
use super::{against_peer, cost, peers};

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let mut findings = against_peer(cells, cost(instructions));
    findings.extend(OWN.into_iter().filter_map(|(arm, base)| verdict(cells, base, arm, cost(instructions))));
    let blocks = if instructions { Vec::new() } else { vec![Block::Table(peers::table(cells, "nginx-log"))] };
    (blocks, findings)
}

/// Sealion's arms, each with the arm that it extends.
const OWN: [(&str, &str); 4] =
    [("user-log", "user"), ("user-metrics", "user"), ("user-sites", "user"), ("user-two", "user-log")];
