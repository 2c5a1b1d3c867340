//! Ends the rounds of a cell early: the 95 % interval of every arm's figure is narrow enough.

use crate::report::figures::Metric;
use crate::row::Row;
use crate::statistics::{CLAIM_ROUNDS, Summary};

/// Whether a cell needs no further round. Only whole rounds before `round` count, so that all arms of a round have the same
/// answer. An arm without any valid measurement cannot become narrower, and is left out.
///
/// `rows`: the measurements of the cell, on all its arms. `until`: half the width of an interval, as a ratio to its mean.
pub(super) fn is_settled<'a>(rows: impl Iterator<Item = &'a Row>, round: u32, until: f64) -> bool {
    let mut arms: Vec<(&str, Vec<f64>)> = Vec::new();
    for row in rows.filter(|row| row.round < round && row.void.is_empty()) {
        let Some(value) = figure(row) else { continue };
        match arms.iter_mut().find(|(arm, _)| *arm == row.arm) {
            Some((_, values)) => values.push(value),
            None => arms.push((&row.arm, vec![value])),
        }
    }
    round as usize >= CLAIM_ROUNDS && !arms.is_empty() && arms.iter().all(|(_, values)| is_narrow(values, until))
}

/// The figure that a report compares: memory of idle connections, the server's CPU per request, or else the rate.
fn figure(row: &Row) -> Option<f64> {
    [Metric::IdleMemory, Metric::CpuPerRequest, Metric::Requests].iter().find_map(|metric| metric.of(row))
}

fn is_narrow(values: &[f64], until: f64) -> bool {
    let interval = Summary::of(values).and_then(|summary| summary.interval());
    interval.is_some_and(|[low, mean, high]| high / mean - 1.0 <= until && 1.0 - low / mean <= until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(arm: &str, cpu: &[u64]) -> Vec<Row> {
        let row = |(round, cpu): (usize, &u64)| Row {
            arm: arm.to_owned(),
            round: round as u32,
            requests: 1,
            elapsed: 1,
            server_cpu: Some(*cpu),
            ..Row::default()
        };
        cpu.iter().enumerate().map(row).collect()
    }

    fn settled(rows: &[Row], round: u32) -> bool {
        is_settled(rows.iter(), round, 0.02)
    }

    #[test]
    fn rounds_end_once_every_arm_is_narrow_and_not_before_a_claim_is_possible() {
        let narrow = rows("user", &[1000, 1001, 999, 1000, 1002, 1000]);
        assert!(settled(&narrow, 5) && settled(&narrow, 6));
        assert!(!settled(&narrow, 4), "four rounds claim nothing");
        assert!(!settled(&[], 5));
        let wide = rows("nginx", &[1000, 1300, 700, 1000, 1200, 900]);
        assert!(!settled(&[narrow.clone(), wide].concat(), 6));
        // A deviation of 1 % over 24 rounds: half the interval is 0.4 %.
        let values = [990, 1010].repeat(12);
        let many = rows("nginx", &values);
        assert!(settled(&[narrow.clone(), many.clone()].concat(), 24));
    }

    #[test]
    fn void_rounds_and_the_present_round_do_not_count() {
        let mut cells = rows("user", &[1000, 1001, 999, 1000, 1002, 5000]);
        assert!(settled(&cells, 5), "the sixth round is the present one");
        assert!(!settled(&cells, 6));
        cells[5].void = "failed".to_owned();
        assert!(settled(&cells, 6));
        cells[4].void = "failed".to_owned();
        assert!(!settled(&cells, 6), "four valid rounds");
        let mut never = rows("kernel", &[1; 6]);
        never.iter_mut().for_each(|row| row.void = "no kernel TLS".to_owned());
        assert!(settled(&[rows("user", &[1000; 6]), never].concat(), 6), "it would never end");
    }
}
