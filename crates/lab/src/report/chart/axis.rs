//! Conversion of values to pixels, and the choice of ticks.

use super::Scale;

/// An axis between two pixels.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis that shows all `values`, from pixel `from` to pixel `to`.
    pub(super) fn over(values: &[f64], scale: Scale, from: f64, to: f64) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = match scale {
            Scale::FromZero => (0.0, if most > 0.0 { most * 1.06 } else { 1.0 }),
            // Some margin, and at least a factor of 1.5, so that equal values do not divide by zero.
            Scale::Logarithmic => {
                let air = (most / least).max(1.5).powf(0.04);
                if least.is_finite() && least > 0.0 { (least / air, most * air) } else { (1.0, 10.0) }
            }
        };
        Self { scale, low, high, from, to }
    }

    /// The pixel of a value.
    pub(super) fn pixel(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::FromZero => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + part * (self.to - self.from)
    }

    /// Round values for ticks, between two and nine of them.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::FromZero => {
                let step = even_step(self.high / 6.0);
                (0..).map(|n| f64::from(n) * step).take_while(|value| *value <= self.high).collect()
            }
            Scale::Logarithmic => {
                let (least, most) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
                let tenths = |digits: &'static [f64]| -> Vec<f64> {
                    (least..=most)
                        .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
                        .filter(|value| (self.low..=self.high).contains(value))
                        .collect()
                };
                let decades = |step: i32| -> Vec<f64> {
                    let powers = (least..=most).filter(|power| power % step == 0);
                    powers
                        .map(|power| 10f64.powi(power))
                        .filter(|value| (self.low..=self.high).contains(value))
                        .collect()
                };
                let candidates = [
                    tenths(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0]),
                    tenths(&[1.0, 2.0, 5.0]),
                    tenths(&[1.0, 3.0]),
                    tenths(&[1.0]),
                    decades(2),
                    decades(3),
                ];
                let fitting = candidates.iter().find(|ticks| (3..=8).contains(&ticks.len()));
                // For a narrow range of values, even steps are rounder.
                fitting.cloned().unwrap_or_else(|| {
                    let step = even_step((self.high - self.low) / 6.0);
                    let first = (self.low / step).ceil() as i32;
                    (first..).map(|n| f64::from(n) * step).take_while(|value| *value <= self.high).collect()
                })
            }
        }
    }
}

/// The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `least`.
fn even_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|step| *step >= least).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let of = |values: &[f64], scale| Axis::over(values, scale, 0.0, 100.0).ticks();
        assert_eq!(of(&[0.3, 1.7], Scale::FromZero), [0.0, 0.5, 1.0, 1.5]);
        assert_eq!(of(&[20.0, 46.0], Scale::FromZero), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(of(&[9e3, 1e6], Scale::Logarithmic), [1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6]);
        assert_eq!(of(&[3e3, 4e8], Scale::Logarithmic), [1e4, 1e5, 1e6, 1e7, 1e8]);
        assert_eq!(of(&[62.0, 90.0], Scale::Logarithmic), [70.0, 80.0, 90.0]);
        assert_eq!(of(&[2e-6, 4e5], Scale::Logarithmic), [1e-6, 1e-4, 1e-2, 1e0, 1e2, 1e4, 1e6]);
    }

    #[test]
    fn pixels() {
        let axis = Axis::over(&[1.0, 100.0], Scale::Logarithmic, 0.0, 100.0);
        assert!((axis.pixel(10.0) - 50.0).abs() < 1e-9);
        let axis = Axis::over(&[50.0], Scale::FromZero, 100.0, 0.0);
        assert_eq!(axis.pixel(0.0), 100.0);
        let equal = Axis::over(&[7.0, 7.0], Scale::Logarithmic, 0.0, 100.0);
        assert!((equal.pixel(7.0) - 50.0).abs() < 50.0);
    }
}
