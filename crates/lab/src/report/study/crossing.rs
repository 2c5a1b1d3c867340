//! crossover: the size at which both paths cost the same, for each condition.

use super::super::charts;
use super::super::document::{Block, Table};
use super::super::figures::Measured;
use super::{conditions, cost, crossover_of, crossover_said, fixed_pairs, of_condition, said};
use crate::statistics::Crossover;

pub(super) fn report(cells: &[&Measured], instructions: bool) -> (Vec<Block>, Vec<String>) {
    let metric = cost(instructions);
    let mut table = Table::new("From which size on the kernel is cheaper", 2, &["condition", "compared", "crossover"]);
    table.names = 3;
    let (mut drawn, mut findings) = (Vec::new(), Vec::new());
    for condition in conditions(cells) {
        let chosen = of_condition(cells, &condition);
        let words = said(&chosen);
        let pairs = fixed_pairs(&chosen);
        for (user, kernel) in &pairs {
            let found = crossover_said(&chosen, user, kernel, metric);
            findings.push(format!("{words}: {kernel} against {user}: {found}"));
            table.rows.push(vec![words.clone(), format!("{kernel} against {user}"), found.to_string()]);
        }
        let place = pairs.first().and_then(|(user, kernel)| match crossover_of(&chosen, user, kernel, metric) {
            Crossover::From(size) | Crossover::Until(size) => Some(size),
            _ => None,
        });
        drawn.push(charts::crossing(&chosen, metric, &words, place));
    }
    drawn.retain(|chart| !chart.is_empty());
    (vec![Block::Table(table), Block::Charts(drawn)], findings)
}
