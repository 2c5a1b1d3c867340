//! Student's t distribution.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The value below which a t variable of `freedom` degrees of freedom lies with probability `p`. Degrees of freedom
/// need not be whole: Welch's test produces fractions.
///
/// # Panics
///
/// `p` is not between 0 and 1, or `freedom` is not above 0.
pub(crate) fn quantile(p: f64, freedom: f64) -> f64 {
    distribution(freedom).inverse_cdf(p)
}

/// Probability that a t variable is at least as far from 0 as `t`, in either direction.
///
/// # Panics
///
/// `freedom` is not above 0.
pub(super) fn beyond(t: f64, freedom: f64) -> f64 {
    (2.0 * distribution(freedom).sf(t.abs())).min(1.0)
}

fn distribution(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are above 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_scipys() {
        // scipy 1.17 stats.t.ppf.
        let table = [
            (1.0, 0.975, 12.706204736174694),
            (1.0, 0.9995, 636.6192487687897),
            (2.0, 0.975, 4.302652729749462),
            (3.0, 0.9, 1.637744353696209),
            (4.0, 0.995, 4.604094871349992),
            (5.0, 0.975, 2.5705818356363146),
            (8.0, 0.975, 2.306004135204166),
            (9.0, 0.975, 2.262157162798205),
            (11.3, 0.975, 2.1938768963391624),
            (18.0, 0.975, 2.1009220402410382),
            (18.0, 0.95, 1.7340636066175388),
            (30.0, 0.995, 2.7499956535672254),
            (100.0, 0.975, 1.9839715185235518),
            (1000.0, 0.9995, 3.300282648423944),
        ];
        for (freedom, p, expected) in table {
            let found = quantile(p, freedom);
            assert!((found / expected - 1.0).abs() < 1e-10, "t({p}, {freedom}) = {found}, not {expected}");
        }
    }

    #[test]
    fn probabilities_are_those_of_the_quantiles() {
        for freedom in [1.0, 5.827810884386772, 18.0] {
            assert!((beyond(quantile(0.975, freedom), freedom) - 0.05).abs() < 1e-10);
            assert_eq!(beyond(0.0, freedom), 1.0);
        }
        assert_eq!(beyond(f64::INFINITY, 3.0), 0.0);
    }

    #[test]
    fn symmetric_about_zero() {
        assert_eq!(quantile(0.025, 7.5), -quantile(0.975, 7.5));
        assert!(quantile(0.5, 3.0).abs() < 1e-12);
    }

    #[test]
    fn many_degrees_are_normal() {
        // scipy 1.17 stats.norm.ppf(0.975).
        assert!((quantile(0.975, 1e4) - 1.959963984540054).abs() < 3e-4);
    }
}
