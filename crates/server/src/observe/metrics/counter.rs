//! Counters that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter. Only one thread adds to it, so that adding is a load and a store, without contention.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number of current things. Only one thread changes it.
#[derive(Debug, Default)]
pub(crate) struct Level(Counter);

impl Level {
    /// Counts one more until the guard is dropped.
    #[inline]
    pub(crate) fn enter(&'static self) -> Present {
        self.0.add(1);
        Present(self)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Guard of a [`Level`].
#[derive(Debug)]
pub(crate) struct Present(&'static Level);

impl Drop for Present {
    #[inline]
    fn drop(&mut self) {
        self.0.0.add(1_u64.wrapping_neg());
    }
}

/// Durations in buckets of half an octave, from a microsecond to a minute.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [Counter; BUCKETS],
    nanoseconds: Counter,
}

/// Upper bounds: 2^10 ns, 1.5 · 2^10 ns, 2^11 ns … 2^36 ns.
const BOUNDS: usize = 2 * 26 + 1;

/// One more than bounds, for durations above the last bound.
pub(crate) const BUCKETS: usize = BOUNDS + 1;

impl Default for Histogram {
    fn default() -> Self {
        Histogram { buckets: std::array::from_fn(|_| Counter::default()), nanoseconds: Counter::default() }
    }
}

impl Histogram {
    #[inline]
    pub(crate) fn observe(&self, took: Duration) {
        let nanoseconds = took.as_nanos() as u64;
        self.buckets[bucket(nanoseconds)].add(1);
        self.nanoseconds.add(nanoseconds);
    }

    pub(crate) fn get(&self) -> Durations {
        Durations { buckets: std::array::from_fn(|n| self.buckets[n].get()), nanoseconds: self.nanoseconds.get() }
    }
}

/// A histogram that any thread adds to.
#[derive(Debug)]
pub(crate) struct SharedHistogram {
    buckets: [AtomicU64; BUCKETS],
    nanoseconds: AtomicU64,
}

impl Default for SharedHistogram {
    fn default() -> Self {
        SharedHistogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)), nanoseconds: AtomicU64::new(0) }
    }
}

impl SharedHistogram {
    pub(crate) fn observe(&self, took: Duration) {
        let nanoseconds = took.as_nanos() as u64;
        self.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// As [`Histogram::get`].
    pub(crate) fn get(&self) -> Durations {
        let buckets = std::array::from_fn(|n| self.buckets[n].load(Ordering::Relaxed));
        Durations { buckets, nanoseconds: self.nanoseconds.load(Ordering::Relaxed) }
    }
}

/// The content of histograms.
#[derive(Debug, Clone)]
pub(crate) struct Durations {
    pub(crate) buckets: [u64; BUCKETS],
    /// The sum of all durations.
    pub(crate) nanoseconds: u64,
}

impl Default for Durations {
    fn default() -> Self {
        Durations { buckets: [0; BUCKETS], nanoseconds: 0 }
    }
}

impl Durations {
    /// The number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl std::ops::AddAssign for Durations {
    fn add_assign(&mut self, other: Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
        self.nanoseconds = self.nanoseconds.wrapping_add(other.nanoseconds);
    }
}

impl std::iter::Sum for Durations {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let octave = (nanoseconds | 1).ilog2() as usize;
    if octave < 10 {
        return 0;
    }
    let half = nanoseconds >> (octave - 1) & 1;
    (2 * (octave - 10) + half as usize + 1).min(BUCKETS - 1)
}

/// The upper bound of a bucket, in seconds; infinite for the last.
pub(crate) fn bound(bucket: usize) -> f64 {
    if bucket >= BOUNDS {
        return f64::INFINITY;
    }
    let octave = (1_u64 << (10 + bucket / 2)) as f64;
    octave * if bucket.is_multiple_of(2) { 1.0 } else { 1.5 } / 1e9
}

/// The quantile in seconds, linear between the bounds of its bucket; `None` without observations.
pub(crate) fn quantile(buckets: &[u64], share: f64) -> Option<f64> {
    let all: u64 = buckets.iter().sum();
    let wanted = share * all as f64;
    let mut below = 0.0;
    for (n, &count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        if below + count as f64 >= wanted {
            let low = if n == 0 { 0.0 } else { bound(n - 1) };
            let high = if bound(n).is_finite() { bound(n) } else { low };
            return Some(low + (high - low) * ((wanted - below) / count as f64));
        }
        below += count as f64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_so_long_lies_between_the_bounds_of_its_bucket() {
        for nanoseconds in [0, 1, 1023, 1024, 1535, 1536, 2047, 2048, 1_000_000, (1 << 36) - 1, 1 << 36, u64::MAX] {
            let n = bucket(nanoseconds);
            let seconds = nanoseconds as f64 / 1e9;
            assert!(n == 0 || seconds >= bound(n - 1), "{nanoseconds}: {n}");
            assert!(seconds < bound(n), "{nanoseconds}: {n}");
        }
        assert!((1..BOUNDS).all(|n| bound(n - 1) < bound(n)));
        assert_eq!((bound(0), bound(1), bound(BOUNDS)), (1.024e-6, 1.536e-6, f64::INFINITY));
    }

    #[test]
    fn quantiles_are_found() {
        let histogram = Histogram::default();
        assert_eq!(quantile(&histogram.get().buckets, 0.5), None);
        for n in 1..=1000 {
            histogram.observe(Duration::from_micros(n));
        }
        let Durations { buckets, nanoseconds } = histogram.get();
        assert_eq!((buckets.iter().sum::<u64>(), nanoseconds), (1000, 500_500_000));
        for (share, expected) in [(0.5, 500e-6), (0.99, 990e-6)] {
            let found = quantile(&buckets, share).unwrap();
            assert!((found / expected - 1.0).abs() < 0.1, "{share}: {found}");
        }
    }

    #[test]
    fn histograms_of_threads_and_workers_add_up() {
        let (of_worker, of_threads) = (Histogram::default(), SharedHistogram::default());
        for _ in 0..3 {
            of_worker.observe(Duration::from_micros(2));
            of_threads.observe(Duration::from_micros(700));
        }
        let sum: Durations = [of_worker.get(), of_threads.get()].into_iter().sum();
        assert_eq!((sum.count(), sum.nanoseconds), (6, 2_106_000));
        assert_eq!((sum.buckets[bucket(2000)], sum.buckets[bucket(700_000)]), (3, 3));
    }

    #[test]
    fn a_level_goes_down_again() {
        let level: &'static Level = Box::leak(Box::default());
        let one = level.enter();
        let two = level.enter();
        assert_eq!(level.get(), 2);
        drop((one, two));
        assert_eq!(level.get(), 0);
    }
}
