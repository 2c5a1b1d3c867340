//! Ratios with their intervals, a row for each, on one logarithmic axis around 1.

use std::fmt::Write;

use super::axis::Axis;
use super::draw::{Canvas, TEXT, WIDTH};
use super::label::width;
use super::{Point, Scale};
use crate::report::arm::Style;
use crate::units;

/// Ratios to compare, in groups.
#[derive(Debug, Clone)]
pub(crate) struct Ratios {
    /// The title, above the groups.
    pub title: String,
    /// Which direction is better; smaller, under the title.
    pub subtitle: String,
    /// The quantity of the axis.
    pub x_title: String,
    /// Names of the groups, each with its rows.
    pub groups: Vec<(String, Vec<Ratio>)>,
}

/// A row of [`Ratios`].
#[derive(Debug, Clone)]
pub(crate) struct Ratio {
    pub name: String,
    pub style: Style,
    /// The ratio as `y`, with the ends of its interval.
    pub point: Point,
}

impl Ratios {
    /// Whether there is nothing to draw.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(|(_, rows)| rows.is_empty())
    }

    /// The drawing as an SVG element.
    pub(crate) fn svg(&self) -> String {
        let groups: Vec<_> = self.groups.iter().filter(|(_, rows)| !rows.is_empty()).collect();
        let rows = || groups.iter().flat_map(|(_, rows)| rows);
        let height = TOP + 46.0 + groups.len() as f64 * GROUP + rows().count() as f64 * ROW;
        let names = rows().map(|row| width(&row.name, TEXT)).fold(0.0, f64::max);
        let (left, right, bottom) = (names + 20.0, WIDTH - 52.0, height - 46.0);
        let mut all = vec![1.0];
        all.extend(rows().flat_map(|Ratio { point, .. }| [point.low, point.y, point.high]));
        let x = Axis::over(&all, Scale::Logarithmic, left, right);
        let mut canvas = Canvas::new(height, &self.title, [&self.title, &self.subtitle]);
        for tick in x.ticks() {
            let at = x.pixel(tick);
            canvas.line(at, TOP, at, bottom, "grid");
            canvas.text(&units::round(&units::ratio(tick)), at, bottom + 17.0, TEXT, "middle", "tick");
        }
        canvas.line(x.pixel(1.0), TOP, x.pixel(1.0), bottom, "level");
        canvas.text(&self.x_title, (left + right) / 2.0, height - 8.0, TEXT, "middle", "quiet");
        let mut top = TOP;
        for (group, rows) in groups {
            canvas.text(group, 4.0, top + 17.0, TEXT, "start", "title halo");
            top += GROUP;
            for Ratio { name, style, point } in rows {
                let middle = top + ROW / 2.0;
                canvas.text(name, left - 8.0, middle + 4.0, TEXT, "end", "name");
                let [low, at, high] = [point.low, point.y, point.high].map(|value| x.pixel(value));
                let _ = write!(
                    canvas.svg,
                    r#"<g stroke="{0}" fill="{0}"><path d="M{low:.1} {middle:.1}H{high:.1}" stroke-width="2"/>"#,
                    style.colour
                );
                canvas.marker(style.marker, at, middle);
                canvas.svg.push_str("</g>");
                canvas.text(&units::ratio(point.y), WIDTH - 4.0, middle + 4.0, TEXT, "end", "name");
                top += ROW;
            }
        }
        canvas.svg.push_str("</svg>");
        canvas.svg
    }
}

/// Height of a ratio's row.
const ROW: f64 = 17.0;
/// Height of a group's name.
const GROUP: f64 = 25.0;
/// Upper edge of the groups: below title and subtitle.
const TOP: f64 = 42.0;
