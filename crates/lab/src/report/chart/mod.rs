//! Line charts as SVG: no script, no font of their own, colours that follow the page.

mod axis;
mod draw;
mod label;
mod strip;

#[cfg(test)]
use label::Label;

pub(crate) use strip::Strip;

use super::arm::Style;

/// A chart of lines over a logarithmic axis of sizes or calls.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    /// What is shown, above the chart.
    pub title: String,
    /// What is better, or a condition: smaller, under the title.
    pub subtitle: String,
    /// What the horizontal axis is.
    pub x_title: String,
    /// What the vertical axis is, with its unit.
    pub y_title: String,
    /// Where the horizontal axis has ticks, and what they say, from left to right.
    pub x_ticks: Vec<(f64, String)>,
    /// Writes a value of the vertical axis.
    pub y_format: fn(f64) -> String,
    /// How the vertical axis runs.
    pub y_scale: Scale,
    /// Lines.
    pub series: Vec<Series>,
    /// A level to compare with, and its name.
    pub level: Option<(f64, String)>,
    /// A place on the horizontal axis to point out, and its name.
    pub place: Option<(f64, String)>,
}

/// How an axis runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// In powers.
    Logarithmic,
    /// Evenly from zero.
    FromZero,
}

/// A line.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// Its name, written at its end.
    pub name: String,
    /// Its look.
    pub style: Style,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// A point with the spread of its rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Horizontal.
    pub x: f64,
    /// Vertical: the median of the rounds.
    pub y: f64,
    /// Least of the rounds.
    pub low: f64,
    /// Greatest of the rounds.
    pub high: f64,
}

impl Chart {
    /// The chart as an SVG element.
    pub(crate) fn svg(&self) -> String {
        draw::draw(self).0
    }

    /// Where its texts stand, to see that none covers another.
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
