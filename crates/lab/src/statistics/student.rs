//! Student's t distribution.

/// The value below which a t variable of `freedom` degrees of freedom lies with probability `p`. Degrees of freedom
/// need not be whole: Welch's are not.
///
/// # Panics
///
/// `p` is not between 0 and 1, or `freedom` is not above 0.
pub(crate) fn quantile(p: f64, freedom: f64) -> f64 {
    assert!(p > 0.0 && p < 1.0, "a probability lies between 0 and 1, not at {p}");
    assert!(freedom > 0.0, "degrees of freedom are above 0, not {freedom}");
    if p < 0.5 {
        return -quantile(1.0 - p, freedom);
    }
    let mut high = 1.0;
    while cumulative(high, freedom) < p {
        high *= 2.0;
    }
    let mut low = 0.0;
    // Bisection ends when doubles do: at most 64 halvings of the mantissa and a few of the exponent.
    loop {
        let middle = (low + high) / 2.0;
        if middle <= low || middle >= high {
            return high;
        }
        if cumulative(middle, freedom) < p { low = middle } else { high = middle }
    }
}

/// Probability that a t variable lies below `t` ≥ 0.
fn cumulative(t: f64, freedom: f64) -> f64 {
    1.0 - 0.5 * incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))
}

/// The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22), evaluated on the side
/// of the mean where it converges fast.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let factor = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    factor / continued_fraction(a, b, x)
}

/// 1 + d1/(1 + d2/(1 + …)), by Lentz's method.
fn continued_fraction(a: f64, b: f64, x: f64) -> f64 {
    let not_zero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut fraction = 1.0;
    let (mut numerators, mut denominators) = (1.0, 0.0);
    for step in 1..TERMS {
        let m = f64::from(step / 2);
        let d = if step % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        numerators = not_zero(1.0 + d / numerators);
        denominators = 1.0 / not_zero(1.0 + d * denominators);
        let change: f64 = numerators * denominators;
        fraction *= change;
        if (change - 1.0).abs() < 1e-16 {
            break;
        }
    }
    fraction
}

/// ln Γ(x) for x > 0, by Stirling's series (DLMF 5.11.1) after the argument is raised to where seven terms suffice.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 15.0 {
        shift += x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = STIRLING.iter().rev().fold(0.0, |sum, term| sum * inverse + term) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - shift
}

/// B(2k) / (2k (2k − 1)) for k = 1 to 7, B being Bernoulli's numbers.
const STIRLING: [f64; 7] =
    [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0, 1.0 / 156.0];

/// Most terms of the continued fraction: about the square root of the larger parameter are needed.
const TERMS: i32 = 2_000;

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
    fn symmetric_about_zero() {
        assert_eq!(quantile(0.025, 7.5), -quantile(0.975, 7.5));
        assert!(quantile(0.5, 3.0).abs() < 1e-12);
    }

    #[test]
    fn many_degrees_are_normal() {
        // scipy 1.17 stats.norm.ppf(0.975).
        assert!((quantile(0.975, 1e7) - 1.959963984540054).abs() < 1e-6);
    }
}
