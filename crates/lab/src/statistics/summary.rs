//! A sample in seven numbers.

/// Summary of a sample. Show the median; mean and deviation are for tests of a difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The middle value, or the mean of the two in the middle.
    pub(crate) median: f64,
    pub(crate) mean: f64,
    /// Standard deviation of the sample (divisor n − 1); 0 for a single value.
    pub(crate) deviation: f64,
}

impl Summary {
    /// Summary of `values`; `None` if it is empty or contains NaN.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            n,
            min: sorted[0],
            max: sorted[n - 1],
            median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
            mean,
            deviation: if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 },
        })
    }

    /// Variance of the mean.
    pub(super) fn variance_of_mean(&self) -> f64 {
        self.deviation.powi(2) / self.n as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_sample() {
        // numpy 2.4: mean, median, std(ddof=1).
        let summary = Summary::of(&[12.0, 7.5, 9.25, 30.0, 8.0, 11.5]).unwrap();
        assert_eq!((summary.n, summary.min, summary.max, summary.median), (6, 7.5, 30.0, 10.375));
        assert!((summary.mean - 13.041666666666666).abs() < 1e-12);
        assert!((summary.deviation - 8.503553178916839).abs() < 1e-12, "{}", summary.deviation);
    }

    #[test]
    fn odd_single_and_none() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(&[5.0]).unwrap().deviation, 0.0);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }
}
