//! A running estimate of the cost of a move into the kernel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The estimate in nanoseconds. All workers share it without a lock: one sample of two simultaneous moves may be lost,
/// which does not bias the average.
#[derive(Debug)]
pub struct SetUpCost(AtomicU64);

impl SetUpCost {
    /// Starts from a calibrated or built-in cost.
    pub fn new(nanoseconds: u64) -> Self {
        Self(AtomicU64::new(nanoseconds))
    }

    /// The expected nanoseconds of the next move.
    pub fn nanoseconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds the duration of a move.
    pub fn observe(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(next(self.nanoseconds(), took), Ordering::Relaxed);
    }
}

/// Moves the estimate an eighth of the way to the sample. The sample is clamped to between a quarter of the estimate
/// and four times it. So a preempted thread shifts the estimate by three eighths, while a network card that takes
/// milliseconds instead of 37 µs raises it eightyfold within 20 moves.
///
/// TCP's round-trip estimate (RFC 6298), which solves the same problem, uses the same weights.
fn next(estimate: u64, sample: u64) -> u64 {
    let estimate = estimate.clamp(MIN, MAX);
    let sample = sample.clamp(estimate / 4, estimate * 4);
    (estimate - estimate / 8 + sample / 8).clamp(MIN, MAX)
}

/// Two system calls take longer. Below this, eighths would be lost to rounding.
const MIN: u64 = 100;

/// Ten seconds: longer than any move.
const MAX: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: u64, samples: impl IntoIterator<Item = u64>) -> u64 {
        let cost = SetUpCost::new(start);
        samples.into_iter().for_each(|ns| cost.observe(Duration::from_nanos(ns)));
        cost.nanoseconds()
    }

    #[test]
    fn it_follows_what_moves_cost() {
        for (from, to) in [(37_000, 3_857_000), (3_857_000, 37_000), (8_000, 8_000), (1, 5_000), (u64::MAX, 5_000)] {
            let estimate = after(from, std::iter::repeat_n(to, 300));
            assert!(estimate.abs_diff(to) <= to / 50, "{from} to {to}: {estimate}");
        }
        assert!(after(37_000, std::iter::repeat_n(3_857_000, 20)) > 3_000_000);
    }

    #[test]
    fn an_outlier_counts_little_and_is_forgotten() {
        assert_eq!(after(8_000, [u64::MAX]), 11_000);
        assert_eq!(after(8_000, [0]), 7_250);
        assert!(after(8_000, [u64::MAX].into_iter().chain([8_000; 20])) < 8_300);
        // A tenth of all moves preempted for ten milliseconds.
        let mixed = (0..1000).map(|n| if n % 10 == 0 { 10_000_000 } else { 8_000 });
        assert!(after(8_000, mixed) < 2 * 8_000);
    }
}
