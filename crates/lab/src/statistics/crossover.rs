//! The size at which two paths cost the same.

use std::fmt;

use super::Summary;
use crate::splitmix::SplitMix64;
use crate::units::{size, size_about};

/// The costs of user space and of the kernel for one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CrossoverPoint {
    /// Bytes of the body.
    pub(crate) size: u64,
    /// Cost of a request in user space, in any unit.
    pub(crate) user: f64,
    /// Cost of a request in the kernel, in the same unit.
    pub(crate) kernel: f64,
}

/// Where the kernel becomes cheaper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Crossover {
    /// From this size on, up to the largest measured.
    From(f64),
    /// At every size measured; the smallest is given.
    Always(u64),
    /// At no size measured; the largest is given.
    Never(u64),
    /// Up to this size only; above it user space is cheaper.
    Until(f64),
    /// The lines cross at each of these sizes, by noise, or because there is no single threshold.
    Several(Vec<f64>),
    /// No size was measured on both paths.
    Unknown,
}

/// Finds where the costs cross: between two sizes, on the line through both on logarithmic axes, on which costs that
/// grow by a power of the size are straight. Equal cost does not count as cheaper.
pub(crate) fn crossover(points: &[CrossoverPoint]) -> Crossover {
    let mut points: Vec<_> =
        points.iter().filter(|point| point.size > 0 && point.user > 0.0 && point.kernel > 0.0).collect();
    points.sort_by_key(|point| point.size);
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Crossover::Unknown };

    let mut crossings = Vec::new();
    for pair in points.windows(2) {
        let [left, right] = [pair[0], pair[1]].map(|point| (point.kernel / point.user).ln());
        if (left < 0.0) != (right < 0.0) {
            let [from, to] = [pair[0], pair[1]].map(|point| (point.size as f64).ln());
            crossings.push((from + (to - from) * left / (left - right)).exp());
        }
    }
    match (crossings.as_slice(), first.kernel < first.user) {
        ([], true) => Crossover::Always(first.size),
        ([], false) => Crossover::Never(last.size),
        ([size], false) => Crossover::From(*size),
        ([size], true) => Crossover::Until(*size),
        _ => Crossover::Several(crossings),
    }
}

/// The cost of one size in each round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rounds {
    /// Bytes of the body.
    pub(crate) size: u64,
    /// Cost of a request in user space, round by round.
    pub(crate) user: Vec<f64>,
    /// Cost of a request in the kernel, round by round.
    pub(crate) kernel: Vec<f64>,
}

/// The 95 % interval around a crossover.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Interval {
    /// Between these sizes. 0: below the smallest size measured; infinite: above the largest.
    Between(f64, f64),
    /// The rounds do not agree on one threshold: this share of the resamples has no threshold, or several.
    Unsettled(f64),
    /// This many rounds, too few for an interval.
    TooFew(usize),
}

/// The interval around the crossover of the medians, by a percentile bootstrap. Each resample draws rounds with
/// replacement, separately for each size and path, and has its own crossover. The same rounds produce the same
/// interval.
pub(crate) fn interval(rounds: &[Rounds]) -> Interval {
    let least = rounds.iter().map(|size| size.user.len().min(size.kernel.len())).min().unwrap_or(0);
    if least < MIN_ROUNDS {
        return Interval::TooFew(least);
    }
    let mut random = SplitMix64::new(1);
    let mut drawn = |values: &[f64]| {
        let sample: Vec<f64> = values.iter().map(|_| values[(random.unit() * values.len() as f64) as usize]).collect();
        Summary::of(&sample).map_or(f64::NAN, |summary| summary.median)
    };
    let mut places: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| {
            let points: Vec<CrossoverPoint> = rounds
                .iter()
                .map(|Rounds { size, user, kernel }| CrossoverPoint {
                    size: *size,
                    user: drawn(user),
                    kernel: drawn(kernel),
                })
                .collect();
            match crossover(&points) {
                Crossover::From(size) => Some(size),
                Crossover::Always(_) => Some(0.0),
                Crossover::Never(_) => Some(f64::INFINITY),
                Crossover::Until(_) | Crossover::Several(_) | Crossover::Unknown => None,
            }
        })
        .collect();
    let without = (RESAMPLES - places.len()) as f64 / RESAMPLES as f64;
    if without > 0.05 {
        return Interval::Unsettled(without);
    }
    places.sort_by(f64::total_cmp);
    let at = |quantile: f64| places[((places.len() - 1) as f64 * quantile).round() as usize];
    Interval::Between(at(0.025), at(0.975))
}

/// With fewer rounds too many resamples are equal.
const MIN_ROUNDS: usize = 5;

/// Enough for the quantiles of 2.5 % to repeat within a few percent.
const RESAMPLES: usize = 1000;

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Between(0.0, 0.0) => f.write_str("95 %: below the smallest size"),
            Self::Between(f64::INFINITY, _) => f.write_str("95 %: above the largest size"),
            Self::Between(0.0, f64::INFINITY) => f.write_str("95 %: anywhere"),
            Self::Between(0.0, high) => write!(f, "95 %: up to {}", size_about(high)),
            Self::Between(low, f64::INFINITY) => write!(f, "95 %: {} or more", size_about(low)),
            Self::Between(low, high) => write!(f, "95 %: {} to {}", size_about(low), size_about(high)),
            Self::Unsettled(share) => {
                write!(f, "no interval: {:.0} % of the resampled rounds have no single threshold", 100.0 * share)
            }
            Self::TooFew(1) => write!(f, "no interval: 1 round, {MIN_ROUNDS} are needed"),
            Self::TooFew(rounds) => write!(f, "no interval: {rounds} rounds, {MIN_ROUNDS} are needed"),
        }
    }
}

impl Crossover {
    /// The crossover in words by the measured sizes, ascending, on both sides of it: without an interval, a size between
    /// them would claim a precision that the grid does not have.
    pub(crate) fn between(&self, sizes: &[u64]) -> String {
        let around = |at: f64| {
            let low = sizes.iter().rev().find(|size| **size as f64 <= at).copied().unwrap_or_default();
            let high = sizes.iter().find(|size| **size as f64 >= at).copied().unwrap_or(u64::MAX);
            if low == high {
                size(low as f64)
            } else {
                format!("between {} and {}", size(low as f64), size(high as f64))
            }
        };
        match self {
            Self::From(at) if sizes.contains(&(*at as u64)) => format!("kernel cheaper from {} on", around(*at)),
            Self::From(at) => format!("kernel cheaper from a size {} on", around(*at)),
            Self::Until(at) => format!("kernel cheaper up to a size {}", around(*at)),
            Self::Several(places) => {
                let places: Vec<_> = places.iter().map(|at| around(*at)).collect();
                format!("lines cross more than once: {}", places.join(", "))
            }
            Self::Always(_) | Self::Never(_) | Self::Unknown => self.to_string(),
        }
    }
}

impl fmt::Display for Crossover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(at) => write!(f, "kernel cheaper from {}", size_about(*at)),
            Self::Always(from) => write!(f, "kernel always cheaper, from {} on", size(*from as f64)),
            Self::Never(to) => write!(f, "kernel never cheaper, up to {}", size(*to as f64)),
            Self::Until(at) => write!(f, "kernel cheaper up to {}", size_about(*at)),
            Self::Several(sizes) => {
                let sizes: Vec<_> = sizes.iter().map(|at| size_about(*at)).collect();
                write!(f, "lines cross more than once, at {}", sizes.join(", "))
            }
            Self::Unknown => f.write_str("not measured on both paths"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(points: &[(u64, f64, f64)]) -> Crossover {
        let points: Vec<_> = points.iter().map(|&(size, user, kernel)| CrossoverPoint { size, user, kernel }).collect();
        crossover(&points)
    }

    #[test]
    fn between_sizes_on_a_logarithmic_line() {
        // The ratio goes from 2 to 1/2 over a factor of 16: it is 1 half-way, at a factor of 4.
        let Crossover::From(size) = of(&[(1024, 10.0, 20.0), (16384, 100.0, 50.0)]) else { panic!("it crosses") };
        assert!((size - 4096.0).abs() < 1e-6, "{size}");
        // The order of rows does not matter.
        assert_eq!(of(&[(16384, 100.0, 50.0), (1024, 10.0, 20.0)]), Crossover::From(size));
    }

    #[test]
    fn without_an_interval_only_the_measured_sizes_are_said() {
        let sizes = [1024, 16384, 65536];
        let found = of(&[(1024, 10.0, 20.0), (16384, 100.0, 50.0), (65536, 200.0, 90.0)]);
        assert_eq!(found.between(&sizes), "kernel cheaper from a size between 1k and 16k on");
        assert_eq!(of(&[(1024, 2.0, 1.0)]).between(&sizes), "kernel always cheaper, from 1k on");
        assert_eq!(
            Crossover::Several(vec![2000.0, 20000.0]).between(&sizes),
            "lines cross more than once: between 1k and 16k, between 16k and 64k"
        );
    }

    #[test]
    fn none_and_always_are_said() {
        assert_eq!(of(&[(1, 1.0, 2.0), (2, 1.0, 1.0)]), Crossover::Never(2));
        assert_eq!(of(&[(1, 2.0, 1.0), (2, 2.0, 1.0)]), Crossover::Always(1));
        assert_eq!(of(&[(8, 2.0, 1.0)]), Crossover::Always(8));
        assert_eq!(of(&[]), Crossover::Unknown);
        assert_eq!(of(&[(8, 0.0, 1.0)]), Crossover::Unknown);
    }

    #[test]
    fn the_wrong_way_and_more_than_once() {
        assert!(matches!(of(&[(1, 2.0, 1.0), (2, 1.0, 2.0)]), Crossover::Until(_)));
        let Crossover::Several(sizes) = of(&[(1, 1.0, 2.0), (4, 2.0, 1.0), (16, 1.0, 2.0)]) else { panic!("twice") };
        assert_eq!(sizes.len(), 2);
    }

    #[test]
    fn exactly_equal_costs_are_the_crossing() {
        let Crossover::From(size) = of(&[(1, 1.0, 2.0), (4, 1.0, 1.0), (16, 2.0, 1.0)]) else { panic!("once") };
        assert!((size - 4.0).abs() < 1e-9, "{size}");
    }

    /// Rounds with costs that scatter by the given share. The kernel is cheaper from 4,096 on.
    fn rounds(count: usize, scatter: f64) -> Vec<Rounds> {
        let mut random = SplitMix64::new(7);
        let mut around = |cost: f64| -> Vec<f64> {
            (0..count).map(|_| cost * (1.0 + scatter * (2.0 * random.unit() - 1.0))).collect()
        };
        let sizes = [(1024, 10.0, 20.0), (2048, 14.0, 19.8), (8192, 30.0, 21.2), (16384, 50.0, 25.0)];
        sizes.map(|(size, user, kernel)| Rounds { size, user: around(user), kernel: around(kernel) }).into()
    }

    #[test]
    fn the_interval_holds_the_crossover_and_grows_with_the_scatter() {
        let width = |scatter| match interval(&rounds(9, scatter)) {
            Interval::Between(low, high) => {
                assert!(low < 4096.0 && high > 4096.0, "{low} to {high} at {scatter}");
                high / low
            }
            other => panic!("{other}"),
        };
        let (narrow, wide) = (width(0.02), width(0.1));
        assert!(1.0 < narrow && narrow < wide, "{narrow} {wide}");
        assert_eq!(interval(&rounds(9, 0.1)), interval(&rounds(9, 0.1)));
    }

    #[test]
    fn rounds_that_disagree_have_no_interval() {
        assert_eq!(interval(&rounds(4, 0.02)), Interval::TooFew(4));
        assert_eq!(interval(&[]), Interval::TooFew(0));
        assert!(matches!(interval(&rounds(9, 0.9)), Interval::Unsettled(_)), "{}", interval(&rounds(9, 0.9)));
        let same = |size, user, kernel| Rounds { size, user: vec![user; 5], kernel: vec![kernel; 5] };
        let cheaper = [same(1024, 2.0, 1.0), same(2048, 2.0, 1.0)];
        assert_eq!(interval(&cheaper).to_string(), "95 %: below the smallest size");
    }
}
