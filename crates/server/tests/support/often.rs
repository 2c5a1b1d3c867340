//! Tests that do their worst a few times in the suite, and more often when they are told to.

use std::time::Instant;

use sealion_testkit::generations::Tally;

/// How often a test does its worst: as the environment says, or as fits into the suite.
pub(crate) fn times(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |value| value.parse().expect("a number"))
}

/// Prints how far a long run has come.
pub(crate) fn progress(began: Instant, n: usize, of: usize, tally: Tally) {
    if n.is_multiple_of(50) {
        println!("{n} of {of} in {} s: {tally:?}", began.elapsed().as_secs());
    }
}
