//! Line charts as SVG, without scripts or embedded fonts. The colours follow the page's text.

mod axis;
mod draw;
mod label;
mod ratios;
mod strip;

#[cfg(test)]
use label::Label;

pub(crate) use ratios::{Ratio, Ratios};
pub(crate) use strip::Strip;

use super::arm::Style;

/// A chart of lines over a logarithmic axis of sizes or calls.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// The title, above the chart.
    pub title: String,
    /// Which direction is better, or a condition; smaller, under the title.
    pub subtitle: String,
    /// The quantity of the horizontal axis.
    pub x_title: String,
    /// The quantity of the vertical axis, with its unit.
    pub y_title: String,
    /// The ticks of the horizontal axis with their texts, from left to right.
    pub x_ticks: Vec<(f64, String)>,
    /// Formats a value of the vertical axis.
    pub y_format: fn(f64) -> String,
    /// The scale of the vertical axis.
    pub y_scale: Scale,
    pub series: Vec<Series>,
    /// A level to compare with, and its name.
    pub level: Option<(f64, String)>,
    /// A place on the horizontal axis to point out, and its name.
    pub place: Option<(f64, String)>,
}

/// A drawing as a separate file: on white, with the colours that a page would otherwise define.
pub(crate) fn standalone(svg: &str) -> String {
    svg.replacen('>', &format!("><style>{STANDALONE}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"), 1)
        + "\n"
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Logarithmic,
    /// Linear, from zero.
    FromZero,
}

/// A line of the chart.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// Its name, shown at its end.
    pub name: String,
    pub style: Style,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// A point with the spread of its rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub x: f64,
    /// The median of the rounds.
    pub y: f64,
    /// The minimum of the rounds.
    pub low: f64,
    /// The maximum of the rounds.
    pub high: f64,
}

impl Chart {
    /// The chart as an SVG element.
    pub(crate) fn svg(&self) -> String {
        draw::draw(self).0
    }

    /// The boxes of its texts, so that a test can check that none overlap.
    #[cfg(test)]
    pub(crate) fn labels(&self) -> Vec<Label> {
        draw::draw(self).1
    }

    /// Whether there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }
}

/// Escapes text for XML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;

/// The styles of a page that a drawing uses.
const STANDALONE: &str = "svg{color:#1a1a1a}text{fill:#1a1a1a;font-family:system-ui,'DejaVu Sans',sans-serif}.title{font-weight:600}\
.quiet,.tick{fill:#5c5c5c}.halo{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}.grid{stroke:#dcdcdc}\
.axis{stroke:#5c5c5c}.level{stroke:#5c5c5c;stroke-width:1.2;stroke-dasharray:3 3}";
