//! Savings of the kernel path by response length. Pure.

use serde::{Deserialize, Serialize};

/// Cost of a response of one length on both paths, in nanoseconds of the sending thread's CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Bytes of the response, including the head.
    pub bytes: u64,
    /// Sealed in user space.
    pub user_ns: u64,
    /// Sealed by the kernel.
    pub kernel_ns: u64,
}

/// Savings by response length. Linear between points; the last slope continues beyond the last point, and the first
/// value holds before the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    points: Vec<Point>,
    /// Sorted by `from`; the first starts at 0.
    segments: Vec<Segment>,
    ever_saves: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Segment {
    from: u64,
    /// The saving at `from`, in nanoseconds.
    saving: f64,
    /// Nanoseconds per byte.
    slope: f64,
}

impl Curve {
    /// Interpolates the points.
    ///
    /// # Errors
    /// The reason why the points do not form a curve.
    pub fn new(points: Vec<Point>) -> Result<Self, &'static str> {
        if points.len() < 2 {
            return Err("fewer than two points");
        }
        if points.windows(2).any(|two| two[0].bytes >= two[1].bytes) {
            return Err("points that do not ascend");
        }
        if points.iter().any(|p| !COSTS.contains(&p.user_ns) || !COSTS.contains(&p.kernel_ns)) {
            return Err("a cost that cannot be");
        }
        let flat = Segment { from: 0, saving: saving_at(&points[0]), slope: 0.0 };
        let between = points.windows(2).map(|two| Segment {
            from: two[0].bytes,
            saving: saving_at(&two[0]),
            slope: (saving_at(&two[1]) - saving_at(&two[0])) / (two[1].bytes - two[0].bytes) as f64,
        });
        let segments = std::iter::once(flat).chain(between).collect();
        let mut curve = Self { points, segments, ever_saves: false };
        curve.ever_saves = curve.shortest_saving(1).is_some();
        Ok(curve)
    }

    /// The points of the curve.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Nanoseconds that the kernel path saves on a response; negative if user space is cheaper.
    pub fn saving(&self, bytes: u64) -> i64 {
        let segment = self.segments.iter().rev().find(|segment| segment.from <= bytes).expect("the first is from 0");
        (segment.saving + segment.slope * (bytes - segment.from) as f64) as i64
    }

    /// The shortest response that saves `nanoseconds`; `None` if no response of up to a tebibyte does.
    pub fn shortest_saving(&self, nanoseconds: u64) -> Option<u64> {
        let wanted = nanoseconds as f64;
        let ends = self.segments[1..].iter().map(|next| next.from).chain([MAX_LEN]);
        self.segments.iter().zip(ends).find_map(|(segment, end)| {
            if segment.saving >= wanted {
                return Some(segment.from);
            }
            let at = segment.from as f64 + ((wanted - segment.saving) / segment.slope).ceil();
            (segment.slope > 0.0 && at <= end as f64).then_some(at as u64)
        })
    }

    /// Whether the kernel path is cheaper at any length.
    pub fn ever_saves(&self) -> bool {
        self.ever_saves
    }
}

/// Plausible costs: above zero, and below a quarter of an hour.
const COSTS: std::ops::Range<u64> = 1..1_000_000_000_000;

/// Lengths beyond this are not searched.
const MAX_LEN: u64 = 1 << 40;

/// Gains below this fraction of the user-space cost count as zero: they are noise, or differences between a calibration
/// and a connection that waits for requests.
///
/// Medians of some dozens of interleaved samples repeat within a percent on a quiet machine. But a calibration sends
/// without pauses, where a send by the kernel costs less than after a request. MEASURED on Linux 7.2 in an emulated
/// guest, 2026-11-22: at 4 kB the calibration saves 2 to 4 % in the kernel; at 1 kB it finds both paths equal, and the
/// server pays 11 % more there.
const NOISE: f64 = 0.05;

fn saving_at(point: &Point) -> f64 {
    let saving = point.user_ns as f64 - point.kernel_ns as f64;
    if saving > 0.0 && saving < point.user_ns as f64 * NOISE { 0.0 } else { saving }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, u64, u64)]) -> Curve {
        let point = |&(bytes, user_ns, kernel_ns)| Point { bytes, user_ns, kernel_ns };
        Curve::new(points.iter().map(point).collect()).unwrap()
    }

    #[test]
    fn savings_are_linear_between_points_and_behind_the_last() {
        let curve = curve(&[(1_000, 2_000, 2_500), (11_000, 5_000, 4_500), (21_000, 9_000, 5_500)]);
        for (bytes, saving) in [
            (0, -500),
            (999, -500),
            (1_000, -500),
            (6_000, 0),
            (11_000, 500),
            (16_000, 2_000),
            (21_000, 3_500),
            (31_000, 6_500),
            (1_021_000, 303_500),
        ] {
            assert_eq!(curve.saving(bytes), saving, "{bytes}");
        }
    }

    #[test]
    fn the_shortest_response_is_the_savings_inverse() {
        let curve = curve(&[(1_000, 2_000, 2_500), (11_000, 5_000, 4_500), (21_000, 9_000, 5_500)]);
        for (saving, bytes) in [(500, 11_000), (501, 11_004), (2_000, 16_000), (3_500, 21_000), (6_500, 31_000)] {
            assert_eq!(curve.shortest_saving(saving), Some(bytes));
            assert!(curve.saving(bytes) >= saving as i64 && curve.saving(bytes - 1) < saving as i64, "{saving}");
        }
        assert_eq!(curve.shortest_saving(u64::MAX), None, "a tebibyte saves less");
    }

    #[test]
    fn where_the_kernel_loses_nothing_saves() {
        let never = curve(&[(1_000, 2_000, 2_500), (11_000, 5_000, 6_000), (21_000, 9_000, 10_000)]);
        assert!(!never.ever_saves());
        let by_chance = curve(&[(1_000, 2_000, 1_950), (11_000, 5_000, 4_990), (21_000, 9_000, 8_740)]);
        assert!(!by_chance.ever_saves() && by_chance.saving(1_000_000) <= 0);
        let only_small = curve(&[(1_000, 2_000, 1_000), (11_000, 5_000, 6_000), (21_000, 9_000, 12_000)]);
        assert_eq!((only_small.shortest_saving(1_000), only_small.shortest_saving(1_001)), (Some(0), None));
        let only_beyond = curve(&[(1_000, 2_000, 5_000), (11_000, 5_000, 6_000)]);
        assert_eq!(only_beyond.shortest_saving(1), Some(16_005));
    }

    #[test]
    fn points_that_make_no_curve_are_refused() {
        let new = |points: &[(u64, u64)]| {
            Curve::new(points.iter().map(|&(bytes, user_ns)| Point { bytes, user_ns, kernel_ns: 1 }).collect())
        };
        assert!(new(&[(1, 1), (2, 1)]).is_ok());
        for points in
            [&[][..], &[(1, 1)], &[(1, 1), (1, 1)], &[(2, 1), (1, 1)], &[(1, 0), (2, 1)], &[(1, 1), (2, u64::MAX)]]
        {
            assert!(new(points).is_err(), "{points:?}");
        }
    }
}
