//! A sample in a few numbers.

use super::difference::CLAIM_ROUNDS;
use super::student_quantile;

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
    /// Mean of the logarithms; not finite if a value is not above 0.
    pub(crate) log_mean: f64,
    /// Standard deviation of the logarithms.
    pub(crate) log_deviation: f64,
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
        let (mean, deviation) = mean_and_deviation(&sorted);
        let logarithms: Vec<f64> = sorted.iter().map(|value| value.ln()).collect();
        let (log_mean, log_deviation) = mean_and_deviation(&logarithms);
        Some(Self {
            n,
            min: sorted[0],
            max: sorted[n - 1],
            median: (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
            mean,
            deviation,
            log_mean,
            log_deviation,
        })
    }

    /// The geometric mean with its 95 % interval by Student's t on the logarithms; `None` with fewer rounds than a claim
    /// needs.
    pub(crate) fn interval(&self) -> Option<[f64; 3]> {
        if self.n < CLAIM_ROUNDS || !self.log_mean.is_finite() {
            return None;
        }
        let error = student_quantile(0.975, self.n as f64 - 1.0) * self.log_deviation / (self.n as f64).sqrt();
        Some([self.log_mean - error, self.log_mean, self.log_mean + error].map(f64::exp))
    }
}

/// The deviation has the divisor n − 1, and is 0 for a single value.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
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

    /// exp(mean ± t(0.975, 4) × deviation / √5) of the logarithms of 1, 2, 4, 8, 16: ln 4 ± 2.7764 × 1.0959 / 2.2361.
    #[test]
    fn an_interval_takes_five_rounds() {
        let values = [1.0, 2.0, 4.0, 8.0, 16.0];
        let [low, middle, high] = Summary::of(&values).unwrap().interval().unwrap();
        assert!((middle - 4.0).abs() < 1e-12 && (low * high - 16.0).abs() < 1e-9);
        assert!((high / 4.0 - 3.899).abs() < 0.002, "{high}");
        assert_eq!(Summary::of(&values[..4]).unwrap().interval(), None);
    }

    #[test]
    fn odd_single_and_none() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(&[5.0]).unwrap().deviation, 0.0);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }
}
