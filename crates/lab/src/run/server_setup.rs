//! The cost of the handover in the server itself, from its own log.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::measurement::load_plan;
use crate::arm::{Setup, start_logging_moves};
use crate::load::{self, Extent};
use crate::statistics::Summary;
use crate::study::Cell;

/// The median time of a move into the kernel by Sealion with `--ktls always`, ns. It comes from the log of a separate
/// server, over connections with one request each. `None` if no connection moved.
pub(super) fn measure(setup: &Setup, cell: &Cell, cores: &[usize]) -> Option<u64> {
    moves(setup, cell, cores).unwrap_or_else(|why| {
        eprintln!("the server's set-up was not measured: {why:#}");
        None
    })
}

fn moves(setup: &Setup, cell: &Cell, cores: &[usize]) -> Result<Option<u64>> {
    let scratch = setup.scratch.join("moves");
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let (server, log) = start_logging_moves(&Setup { scratch, ..setup.clone() })?;
    let one_call = Cell { calls: Some(1), connections: 1, threads: 1, extent: Extent::Requests(MOVES), ..cell.clone() };
    let outcome = load::run(&load_plan(&server, &one_call, cores))?;
    let times = logged(&log, outcome.requests)?;
    Ok(Summary::of(&times).map(|summary| (1000.0 * summary.median) as u64))
}

/// The times in the log, µs, once it has as many lines as requests.
fn logged(log: &Path, requests: u64) -> Result<Vec<f64>> {
    let mut text = String::new();
    for _ in 0..LOOKS {
        text = std::fs::read_to_string(log).with_context(|| format!("cannot read {}", log.display()))?;
        if text.lines().count() as u64 >= requests {
            break;
        }
        // The server writes its log in batches.
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(times(&text))
}

/// The values of `setup_us` in a log in logfmt.
fn times(log: &str) -> Vec<f64> {
    log.split_whitespace().filter_map(|word| word.strip_prefix("setup_us=")?.parse().ok()).collect()
}

/// Connections for a median.
const MOVES: u64 = 50;

/// The maximum number of reads of the log, and the time between: several seconds in total.
const LOOKS: u32 = 60;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_responses_that_moved_have_a_time() {
        let log =
            "method=GET path=kernel why=moved setup_us=41 aborted=-\npath=user why=short setup_us=-\nsetup_us=9\n";
        assert_eq!(times(log), [41.0, 9.0]);
        assert!(times("").is_empty());
    }
}
