//! The size at which two paths cost the same.

use std::fmt;

use crate::units::size;

/// What user space and the kernel cost for one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CrossoverPoint {
    /// Bytes of the body.
    pub(crate) size: u64,
    /// Cost of a request in user space, in any unit.
    pub(crate) user: f64,
    /// Cost of a request in the kernel, in the same unit.
    pub(crate) kernel: f64,
}

/// Where the kernel begins to be cheaper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Crossover {
    /// From this size on, up to the largest measured.
    From(f64),
    /// At every size measured, the smallest being this.
    Always(u64),
    /// At no size measured, the largest being this.
    Never(u64),
    /// Up to this size only: above it user space is cheaper.
    Until(f64),
    /// The lines cross at each of these sizes: noise, or not one threshold.
    Several(Vec<f64>),
    /// No size was measured on both paths.
    Unknown,
}

/// Finds where the costs cross: between two sizes, on the line through both on logarithmic axes, on which costs that
/// grow by a power of the size are straight. Equal cost counts as not cheaper.
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

impl fmt::Display for Crossover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::From(at) => write!(f, "kernel cheaper from {}", size(*at)),
            Self::Always(from) => write!(f, "kernel always cheaper, from {} on", size(*from as f64)),
            Self::Never(to) => write!(f, "kernel never cheaper, up to {}", size(*to as f64)),
            Self::Until(at) => write!(f, "kernel cheaper up to {}", size(*at)),
            Self::Several(sizes) => {
                let sizes: Vec<_> = sizes.iter().map(|at| size(*at)).collect();
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
        // In any order of rows.
        assert_eq!(of(&[(16384, 100.0, 50.0), (1024, 10.0, 20.0)]), Crossover::From(size));
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
}
