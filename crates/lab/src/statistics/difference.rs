//! The difference of two samples, with its confidence interval.

use std::fmt;

use super::student::beyond;
use super::{Summary, student_quantile};

/// Difference of a sample from a baseline, at 95 % confidence, by two tests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Difference {
    /// Student's test with a pooled deviation, as in ministat: assumes that both samples have equal variance.
    pub(crate) student: Estimate,
    /// Welch's test on logarithms, which assumes neither equal variances nor an exact baseline. Verdicts, figures and
    /// intervals of a report all come from it.
    pub(crate) welch: Ratio,
}

/// The ratio of two geometric means, with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) ratio: f64,
    /// Lower end of the interval.
    pub(crate) low: f64,
    /// Upper end of the interval.
    pub(crate) high: f64,
    /// Degrees of freedom of the t distribution.
    pub(crate) freedom: f64,
    /// Probability of a ratio as far from 1 as this between samples of one population.
    pub(crate) probability: f64,
    /// The number of rounds of the shorter sample.
    pub(crate) rounds: usize,
}

/// The ratio of two counts that repeat: its extremes over the rounds, without a test. Rounds of a count differ by its
/// conditions, which do not vary like a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) ratio: f64,
    /// The least value over the baseline's greatest.
    pub(crate) low: f64,
    /// The greatest value over the baseline's least.
    pub(crate) high: f64,
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

/// The number of rounds from which on a difference of times may be claimed. With fewer, the interval depends more on
/// the scatter that happened to occur than on the difference.
pub(crate) const CLAIM_ROUNDS: usize = 5;

impl Difference {
    /// Difference of `sample` from `baseline`; `None` if either has fewer than two values, or a value that is not above 0.
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
        Some(Self { student, welch: Ratio::between(baseline, sample)? })
    }
}

impl Ratio {
    fn between(baseline: &Summary, sample: &Summary) -> Option<Self> {
        let (n, m) = (sample.n as f64, baseline.n as f64);
        let difference = sample.log_mean - baseline.log_mean;
        let (a, b) = (sample.log_deviation.powi(2) / n, baseline.log_deviation.powi(2) / m);
        let spread = a.powi(2) / (n - 1.0) + b.powi(2) / (m - 1.0);
        // Welch–Satterthwaite. Two samples without scatter have no such number, and need none.
        let freedom = if spread > 0.0 { (a + b).powi(2) / spread } else { n + m - 2.0 };
        let scale = (a + b).sqrt();
        let error = student_quantile(0.5 + CONFIDENCE / 2.0, freedom) * scale;
        // Without scatter every difference is certain.
        let probability = if scale == 0.0 { f64::from(difference == 0.0) } else { beyond(difference / scale, freedom) };
        difference.is_finite().then(|| Self {
            ratio: difference.exp(),
            low: (difference - error).exp(),
            high: (difference + error).exp(),
            freedom,
            probability,
            rounds: sample.n.min(baseline.n),
        })
    }

    /// Whether there are enough rounds for a claim.
    pub(crate) fn has_rounds(&self) -> bool {
        self.rounds >= CLAIM_ROUNDS
    }

    /// Whether the interval excludes 1, with enough rounds for a claim.
    pub(crate) fn is_proven(&self) -> bool {
        self.has_rounds() && (self.low > 1.0 || self.high < 1.0)
    }
}

impl Spread {
    /// The spread of `sample` over `baseline`; `None` if a value is not above 0.
    pub(crate) fn between(baseline: &Summary, sample: &Summary) -> Option<Self> {
        let ratio = (sample.log_mean - baseline.log_mean).exp();
        ratio.is_finite().then(|| Self { ratio, low: sample.min / baseline.max, high: sample.max / baseline.min })
    }

    /// Whether every round of one sample is below every round of the other.
    pub(crate) fn is_apart(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
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

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.has_rounds() {
            let Self { ratio, rounds, .. } = self;
            return write!(f, "{}, no claim: {rounds} rounds, {CLAIM_ROUNDS} are needed", percent(*ratio));
        }
        let interval = format!("{} to {}", percent(self.low), percent(self.high));
        match self.is_proven() {
            true => write!(f, "{} (95 %: {interval})", percent(self.ratio)),
            false => write!(f, "no difference proven at 95 % ({interval})"),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (rounds: {} to {})", percent(self.ratio), percent(self.low), percent(self.high))
    }
}

/// A ratio as a change in percent, with a digit after the point.
pub(crate) fn percent(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    if percent.abs() < 0.05 { "±0.0 %".to_owned() } else { format!("{percent:+.1} %").replace('-', "−") }
}

/// Confidence of every interval.
const CONFIDENCE: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(n: usize, mean: f64, deviation: f64) -> Summary {
        let (log_mean, log_deviation) = (mean.ln(), deviation / mean);
        let (min, max) = (mean - deviation, mean + deviation);
        Summary { n, min, max, median: mean, mean, deviation, log_mean, log_deviation }
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

    const A: [f64; 10] = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2];
    const B: [f64; 6] = [27.9, 22.4, 30.1, 39.8, 26.2, 31.0];

    /// scipy 1.17: stats.ttest_ind(b, a).confidence_interval(0.95), .df and .pvalue.
    #[test]
    fn student_is_scipys() {
        let student = Difference::between(&Summary::of(&A).unwrap(), &Summary::of(&B).unwrap()).unwrap().student;
        close(student.difference, 6.266666666666666, 1e-12);
        close(student.error, 4.338050790715156, 1e-9);
        assert_eq!(student.freedom, 14.0);
        assert!(student.is_proven());
        close(student.probability, 0.00785859361902974, 1e-9);
    }

    /// By tests/recompute.py, which integrates Student's t itself: Welch's test on the logarithms of both samples.
    #[test]
    fn welch_on_logarithms_has_one_interval_for_verdict_and_page() {
        let welch = Difference::between(&Summary::of(&A).unwrap(), &Summary::of(&B).unwrap()).unwrap().welch;
        close(welch.ratio, WELCH_RATIO, 1e-9);
        close(welch.low, WELCH_LOW, 1e-7);
        close(welch.high, WELCH_HIGH, 1e-7);
        close(welch.freedom, WELCH_FREEDOM, 1e-9);
        close(welch.probability, WELCH_PROBABILITY, 1e-6);
        assert_eq!(welch.is_proven(), welch.probability < 0.05);
        // The other way round it is the inverse, so that no arm gains by being the baseline.
        let inverse = Difference::between(&Summary::of(&B).unwrap(), &Summary::of(&A).unwrap()).unwrap().welch;
        close(inverse.low * welch.high, 1.0, 1e-12);
        close(inverse.probability, welch.probability, 1e-12);
    }

    const WELCH_RATIO: f64 = 1.2540478183782033;
    const WELCH_LOW: f64 = 1.0251020108576616;
    const WELCH_HIGH: f64 = 1.5341262763335812;
    const WELCH_FREEDOM: f64 = 6.417802106251666;
    const WELCH_PROBABILITY: f64 = 0.03306997033427134;

    #[test]
    fn four_rounds_claim_nothing() {
        let of = |values: &[f64]| Summary::of(values).unwrap();
        let (slow, fast) = ([2.0, 2.01, 1.99, 2.0, 2.0], [1.0, 1.01, 0.99, 1.0, 1.0]);
        let four = Difference::between(&of(&slow[..4]), &of(&fast)).unwrap().welch;
        assert!(!four.is_proven() && four.to_string().contains("no claim: 4 rounds, 5 are needed"), "{four}");
        let five = Difference::between(&of(&slow), &of(&fast)).unwrap().welch;
        assert!(five.is_proven() && five.to_string().starts_with("−50.0 % (95 %: −50."), "{five}");
    }

    #[test]
    fn counts_have_a_spread_and_no_test() {
        let of = |values: &[f64]| Summary::of(values).unwrap();
        let spread = Spread::between(&of(&[100.0, 102.0]), &of(&[50.0, 51.0])).unwrap();
        assert_eq!(spread.to_string(), "−50.0 % (rounds: −51.0 % to −49.0 %)");
        assert!(spread.is_apart());
        assert!(!Spread::between(&of(&[100.0, 102.0]), &of(&[101.0, 103.0])).unwrap().is_apart());
        assert_eq!(
            Spread::between(&of(&[100.0]), &of(&[100.0])).unwrap().to_string(),
            "±0.0 % (rounds: ±0.0 % to ±0.0 %)"
        );
    }

    #[test]
    fn too_few_values_say_nothing() {
        assert_eq!(Difference::between(&summary(1, 5.0, 0.0), &summary(9, 6.0, 1.0)), None);
        assert_eq!(Difference::between(&summary(5, 0.0, 1.0), &summary(9, 6.0, 1.0)), None);
    }

    #[test]
    fn samples_without_scatter() {
        let found = Difference::between(&summary(5, 5.0, 0.0), &summary(5, 6.0, 0.0)).unwrap();
        close(found.welch.ratio, 1.2, 1e-12);
        assert_eq!((found.welch.low, found.welch.high), (found.welch.ratio, found.welch.ratio));
        assert!(found.welch.is_proven());
        let same = Difference::between(&summary(5, 5.0, 0.0), &summary(5, 5.0, 0.0)).unwrap();
        assert!(!same.welch.is_proven());
    }
}
