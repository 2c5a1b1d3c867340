//! All values of a few samples on one axis, as drawn by ministat: a row for each arm.

use std::fmt::Write;

use super::Scale;
use super::axis::Axis;
use super::draw::{Canvas, TEXT, WIDTH};
use super::label::width;
use crate::report::arm::Style;
use crate::statistics::Summary;
use crate::units;

/// Samples to compare, a row for each.
#[derive(Debug, Clone)]
pub(crate) struct Strip {
    /// The title, above the rows.
    pub title: String,
    /// The quantity of the axis, with its unit.
    pub x_title: String,
    /// Formats a value of the axis.
    pub x_format: fn(f64) -> String,
    /// Name, style and values of each sample.
    pub samples: Vec<(String, Style, Vec<f64>)>,
}

impl Strip {
    /// The drawing as an SVG element.
    pub(crate) fn svg(&self) -> String {
        let samples: Vec<_> = self
            .samples
            .iter()
            .filter_map(|(name, style, values)| Summary::of(values).map(|summary| (name, style, values, summary)))
            .collect();
        let height = TOP + ROW * samples.len() as f64 + 46.0;
        let names = samples.iter().map(|(name, ..)| width(name, TEXT)).fold(0.0, f64::max);
        let (left, bottom) = (names + 16.0, height - 46.0);
        let all: Vec<f64> = samples.iter().flat_map(|(_, _, values, _)| values.iter().copied()).collect();
        let x = Axis::over(&all, Scale::FromZero, left, WIDTH - 20.0);
        let mut canvas =
            Canvas::new(height, &self.title, [&self.title, "every round a dot; bar: mean and standard deviation"]);
        for tick in x.ticks() {
            let at = x.pixel(tick);
            canvas.line(at, TOP, at, bottom, "grid");
            canvas.text(&units::round(&(self.x_format)(tick)), at, bottom + 17.0, TEXT, "middle", "tick");
        }
        canvas.text(&self.x_title, (left + WIDTH - 20.0) / 2.0, height - 8.0, TEXT, "middle", "quiet");
        for (index, (name, style, values, summary)) in samples.iter().enumerate() {
            let middle = TOP + ROW * (index as f64 + 0.5);
            canvas.text(name, left - 8.0, middle + 4.0, TEXT, "end", "name");
            let _ = write!(canvas.svg, r#"<g stroke="{0}" fill="{0}">"#, style.colour);
            for value in *values {
                let _ = write!(
                    canvas.svg,
                    r#"<circle cx="{:.1}" cy="{:.1}" r="3.2" fill-opacity="0.55" stroke="none"/>"#,
                    x.pixel(*value),
                    middle - 5.0
                );
            }
            let [low, mean, high] =
                [-1.0, 0.0, 1.0].map(|times| x.pixel((summary.mean + times * summary.deviation).max(0.0)));
            let y = middle + 6.0;
            let _ = write!(
                canvas.svg,
                r#"<path d="M{low:.1} {y:.1}H{high:.1}M{mean:.1} {:.1}V{:.1}" stroke-width="2" fill="none"/></g>"#,
                y - 4.0,
                y + 4.0
            );
        }
        canvas.svg.push_str("</svg>");
        canvas.svg
    }
}

/// Height of a sample's row.
const ROW: f64 = 34.0;
/// Upper edge of the rows: below the title.
const TOP: f64 = 46.0;
