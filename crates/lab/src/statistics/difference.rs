//! The difference of two samples, with its confidence interval.

use std::fmt;

use super::student::beyond;
use super::{Summary, student_quantile};

/// Difference of a sample from a baseline, at 95 % confidence, by two tests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Difference {
    /// Student's test with a pooled deviation, as in ministat: assumes that both samples have equal variance.
    pub(crate) student: Estimate,
    /// Welch's test, which does not assume equal variances.
    pub(crate) welch: Estimate,
}

/// A difference with its error, in the samples' unit and in percent of the baseline's mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    /// Mean minus the baseline's mean.
    pub(crate) difference: f64,
    /// Half the width of the 95 % interval around it.
    pub(crate) error: f64,
    /// The difference in percent of the baseline's mean.
    pub(crate) percent: f64,
    /// Half the width of the interval in percent. It includes the uncertainty of the baseline's mean, as in ministat,
    /// so it is not simply `error` in percent.
    pub(crate) percent_error: f64,
    /// Degrees of freedom of the t distribution.
    pub(crate) freedom: f64,
    /// Probability of a difference as large as this between samples of one population.
    pub(crate) probability: f64,
}

impl Difference {
    /// Difference of `sample` from `baseline`; `None` if either has fewer than two values, or the baseline's mean is 0.
    pub(crate) fn between(baseline: &Summary, sample: &Summary) -> Option<Self> {
        if baseline.n < 2 || sample.n < 2 || baseline.mean == 0.0 {
            return None;
        }
        let (n, m) = (sample.n as f64, baseline.n as f64);
        let freedom = n + m - 2.0;
        let pooled = (m - 1.0) * baseline.deviation.powi(2) + (n - 1.0) * sample.deviation.powi(2);
        // The variances of both means if both populations had the pooled variance. For the ratio the sample's part has
        // the weight 1, and the baseline's the squared ratio, each with its own variance.
        let ratio = sample.mean / baseline.mean;
        let pooled_ratio =
            (n - 1.0) * sample.deviation.powi(2) + (m - 1.0) * baseline.deviation.powi(2) * ratio.powi(2);
        let scale = (1.0 / n + 1.0 / m) / freedom;
        let student = Estimate::new(baseline, sample, freedom, pooled * scale, pooled_ratio * scale);

        let (a, b) = (sample.variance_of_mean(), baseline.variance_of_mean());
        let spread = a.powi(2) / (n - 1.0) + b.powi(2) / (m - 1.0);
        // Welch–Satterthwaite. Two samples without scatter have no such number, and need none.
        let welch_freedom = if spread > 0.0 { (a + b).powi(2) / spread } else { freedom };
        let welch = Estimate::new(baseline, sample, welch_freedom, a + b, a + b * ratio.powi(2));
        Some(Self { student, welch })
    }
}

impl Estimate {
    fn new(baseline: &Summary, sample: &Summary, freedom: f64, variance: f64, ratio_variance: f64) -> Self {
        let t = student_quantile(0.5 + CONFIDENCE / 2.0, freedom);
        let difference = sample.mean - baseline.mean;
        // Without scatter every difference is certain.
        let probability = match variance.sqrt() {
            0.0 => f64::from(difference == 0.0),
            scale => beyond(difference / scale, freedom),
        };
        Self {
            difference,
            error: t * variance.sqrt(),
            percent: 100.0 * difference / baseline.mean,
            percent_error: 100.0 * t * ratio_variance.sqrt() / baseline.mean.abs(),
            freedom,
            probability,
        }
    }

    /// Whether the interval excludes zero.
    pub(crate) fn is_proven(&self) -> bool {
        self.difference.abs() > self.error
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interval = format!("{:+.1} % ± {:.1} %", self.percent, self.percent_error).replace('-', "−");
        if self.is_proven() { f.write_str(&interval) } else { write!(f, "no difference proven at 95 % ({interval})") }
    }
}

/// Confidence of every interval.
const CONFIDENCE: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(n: usize, mean: f64, deviation: f64) -> Summary {
        Summary { n, min: mean - deviation, max: mean + deviation, median: mean, mean, deviation }
    }

    fn close(found: f64, expected: f64, digits: f64) {
        assert!((found / expected - 1.0).abs() < digits, "{found}, not {expected}");
    }

    /// Summaries and verdicts that ministat itself printed, as published in the results of the FreeBSD project's
    /// netbenches (packets per second and Mb/s) and of a compiler's build times: six digits each. Old versions left
    /// the baseline's uncertainty out of the error in percent; theirs is `None`.
    #[test]
    fn as_ministat_prints_it() {
        let table = [
            (5, 538631.2, 5283.2651, 547726.8, 2850.0441, 9095.6, 6190.71, 1.68865, Some(1.1644)),
            (5, 868780.6, 4955.6706, 878211.5, 4975.8403, 9430.9, 7242.28, 1.08553, Some(0.838133)),
            (5, 1956174.4, 62362.625, 1358240.0, 8228.3521, -597934.0, 64870.4, -30.5665, None),
            (5, 1956174.4, 62362.625, 1339611.0, 8080.1759, -616563.0, 64850.6, -31.5188, None),
            (5, 1008730.8, 2895.1156, 3550909.0, 2039.8783, 2.54218e6, 3652.34, 252.018, Some(1.06257)),
            (5, 7811.6, 18.433665, 9049.0, 0.0, 1237.4, 19.0102, 15.8405, Some(0.281907)),
            (5, 1650.6, 7.2663608, 7661.0, 0.0, 6010.4, 7.49361, 364.134, Some(2.10714)),
            (5, 14792657.0, 3255.5324, 14469670.0, 1020.7004, -322987.0, 3518.49, -2.18343, Some(0.023313)),
            (10, 3.7278216, 0.045107315, 3.4543354, 0.049036166, -0.273486, 0.0442669, -7.33635, None),
            (10, 3.7292433, 0.10772859, 1.1034738, 0.049624189, -2.62577, 0.0788029, -70.4102, None),
        ];
        for (n, mean, deviation, other_mean, other_deviation, difference, error, percent, percent_error) in table {
            let student = Difference::between(&summary(n, mean, deviation), &summary(n, other_mean, other_deviation))
                .unwrap()
                .student;
            // ministat's table of t has four digits.
            close(student.difference, difference, 2e-5);
            close(student.error, error, 5e-4);
            close(student.percent, percent, 2e-5);
            if let Some(percent_error) = percent_error {
                close(student.percent_error, percent_error, 5e-4);
            }
            assert!(student.is_proven());
        }
    }

    #[test]
    fn no_difference_is_not_a_difference() {
        // As above; ministat says "No difference proven at 95.0% confidence".
        let student = Difference::between(&summary(5, 435151.8, 2056.723), &summary(5, 435163.6, 1207.954));
        let student = student.unwrap().student;
        assert!(!student.is_proven());
        assert!(student.to_string().starts_with("no difference proven at 95 %"), "{student}");
    }

    /// scipy 1.17: stats.ttest_ind(b, a, equal_var=…).confidence_interval(0.95), .df and .pvalue.
    #[test]
    fn as_scipy_has_it() {
        let a = Summary::of(&[27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2]).unwrap();
        let b = Summary::of(&[27.9, 22.4, 30.1, 39.8, 26.2, 31.0]).unwrap();
        let found = Difference::between(&a, &b).unwrap();
        close(found.student.difference, DIFFERENCE, 1e-12);
        close(found.student.error, STUDENT_ERROR, 1e-9);
        assert_eq!(found.student.freedom, 14.0);
        close(found.welch.error, WELCH_ERROR, 1e-9);
        close(found.welch.freedom, WELCH_FREEDOM, 1e-12);
        assert!(found.welch.error > found.student.error);
        for estimate in [found.student, found.welch] {
            assert_eq!(estimate.probability < 0.05, estimate.is_proven());
        }
        close(found.student.probability, STUDENT_PROBABILITY, 1e-9);
        close(found.welch.probability, WELCH_PROBABILITY, 1e-9);
    }

    const DIFFERENCE: f64 = 6.266666666666666;
    const STUDENT_ERROR: f64 = 4.338050790715156;
    const STUDENT_PROBABILITY: f64 = 0.00785859361902974;
    const WELCH_PROBABILITY: f64 = 0.046895941675748926;
    const WELCH_ERROR: f64 = 6.146774733186291;
    const WELCH_FREEDOM: f64 = 5.827810884386772;

    #[test]
    fn too_few_values_say_nothing() {
        assert_eq!(Difference::between(&summary(1, 5.0, 0.0), &summary(9, 6.0, 1.0)), None);
        assert_eq!(Difference::between(&summary(5, 0.0, 1.0), &summary(9, 6.0, 1.0)), None);
    }

    #[test]
    fn samples_without_scatter() {
        let found = Difference::between(&summary(3, 5.0, 0.0), &summary(3, 6.0, 0.0)).unwrap();
        assert_eq!((found.welch.error, found.welch.percent), (0.0, 20.0));
        assert!(found.welch.is_proven());
        let same = Difference::between(&summary(3, 5.0, 0.0), &summary(3, 5.0, 0.0)).unwrap();
        assert!(!same.welch.is_proven());
    }
}
