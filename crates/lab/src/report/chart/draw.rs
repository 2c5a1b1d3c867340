//! The drawing itself.

use std::fmt::Write;

use super::axis::Axis;
use super::label::{Label, spread, width};
use super::{Chart, Scale, Series, escape};
use crate::report::arm::{Marker, Style};
use crate::units;

/// The chart as SVG, and the boxes of its texts.
pub(super) fn draw(chart: &Chart) -> (String, Vec<Label>) {
    let lines: Vec<&Series> = chart.series.iter().filter(|series| !series.points.is_empty()).collect();
    let points = || lines.iter().flat_map(|series| series.points.iter());

    let names = lines.iter().map(|series| width(&series.name, TEXT)).fold(0.0, f64::max);
    let right = WIDTH - names - 26.0;
    let bottom = HEIGHT - 46.0;
    let mut y_values: Vec<f64> = points().flat_map(|point| [point.low, point.y, point.high]).collect();
    y_values.extend(chart.level.as_ref().map(|(level, _)| *level));
    let x_values: Vec<f64> = chart.x_ticks.iter().map(|tick| tick.0).chain(points().map(|point| point.x)).collect();
    let x = Axis::over(&x_values, Scale::Logarithmic, LEFT, right);
    let y = Axis::over(&y_values, chart.y_scale, bottom, TOP);

    let names = lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut canvas = Canvas::new(HEIGHT, &format!("{}: {names}", chart.title), [&chart.title, &chart.subtitle]);
    canvas.text(&chart.y_title, 4.0, 54.0, TEXT, "start", "quiet");
    canvas.text(&chart.x_title, (LEFT + right) / 2.0, HEIGHT - 8.0, TEXT, "middle", "quiet");

    for tick in y.ticks() {
        let at = y.pixel(tick);
        canvas.line(LEFT, at, right, at, "grid");
        canvas.text(&units::round(&(chart.y_format)(tick)), LEFT - 8.0, at + 4.0, TEXT, "end", "tick");
    }
    canvas.x_ticks(chart, &x, bottom);
    canvas.line(LEFT, bottom, right, bottom, "axis");
    if let Some((level, name)) = &chart.level {
        let at = y.pixel(*level);
        canvas.line(LEFT, at, right, at, "level");
        canvas.level_name(name, at, right);
    }
    if let Some((place, name)) = &chart.place {
        canvas.place(name, x.pixel(*place), bottom, right);
    }
    for line in &lines {
        canvas.series(line, &x, &y);
    }
    canvas.names(&lines, &x, &y, right, bottom);
    canvas.svg.push_str("</svg>");
    (canvas.svg, canvas.labels)
}

pub(super) struct Canvas {
    pub(super) svg: String,
    labels: Vec<Label>,
}

impl Canvas {
    /// An open SVG element with title and subtitle. `label`: for readers that do not see it.
    pub(super) fn new(height: f64, label: &str, [title, subtitle]: [&str; 2]) -> Self {
        let svg = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{}">"#,
            escape(label)
        );
        let mut canvas = Canvas { svg, labels: Vec::new() };
        canvas.text(title, 4.0, 17.0, 14.0, "start", "title");
        canvas.text(subtitle, 4.0, 34.0, TEXT, "start", "quiet");
        canvas
    }

    pub(super) fn text(&mut self, text: &str, x: f64, y: f64, size: f64, anchor: &str, class: &str) {
        if text.is_empty() {
            return;
        }
        let label = measure(text, x, y, size, anchor);
        self.labels.push(label);
        let _ = write!(
            self.svg,
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" text-anchor="{anchor}" class="{class}">{}</text>"#,
            escape(text)
        );
    }

    pub(super) fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        let _ = write!(self.svg, r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#);
    }

    /// If the texts of two ticks would touch, the later one is left out.
    fn x_ticks(&mut self, chart: &Chart, x: &Axis, bottom: f64) {
        let mut free_from = f64::NEG_INFINITY;
        for (value, text) in &chart.x_ticks {
            let at = x.pixel(*value);
            self.line(at, bottom, at, bottom + 5.0, "axis");
            let label = measure(text, at, bottom + 19.0, TEXT, "middle");
            if label.left >= free_from {
                free_from = label.left + label.width + 4.0;
                self.text(text, at, bottom + 19.0, TEXT, "middle", "tick");
            }
        }
    }

    /// Above the level at its right end, unless that is outside the plot.
    fn level_name(&mut self, name: &str, at: f64, right: f64) {
        let y = if at - 18.0 < TOP { at + 14.0 } else { at - 5.0 };
        self.text(name, right - 4.0, y, TEXT, "end", "quiet halo");
    }

    /// A vertical line with its name at the top, on the side with room.
    fn place(&mut self, name: &str, at: f64, bottom: f64, right: f64) {
        self.line(at, TOP, at, bottom, "level");
        let (x, anchor) = if at + 6.0 + width(name, TEXT) < right { (at + 6.0, "start") } else { (at - 6.0, "end") };
        self.text(name, x, bottom - 8.0, TEXT, anchor, "quiet halo");
    }

    fn series(&mut self, series: &Series, x: &Axis, y: &Axis) {
        let Style { colour, marker, dashes } = series.style;
        let at: Vec<(f64, f64)> = series.points.iter().map(|point| (x.pixel(point.x), y.pixel(point.y))).collect();
        let path: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            self.svg,
            r#"<g stroke="{colour}" fill="{colour}"><polyline points="{}" fill="none" stroke-width="2" stroke-dasharray="{}"/>"#,
            path.join(" "),
            if dashes.is_empty() { "none" } else { dashes }
        );
        for (point, (x, centre)) in series.points.iter().zip(at) {
            let (low, high) = (y.pixel(point.low), y.pixel(point.high));
            // A spread that the marker covers is not drawn.
            if low - high > 7.0 {
                let _ = write!(
                    self.svg,
                    r#"<path d="M{x:.1} {low:.1}V{high:.1}M{l:.1} {low:.1}H{r:.1}M{l:.1} {high:.1}H{r:.1}" stroke-width="1.2"/>"#,
                    l = x - 4.0,
                    r = x + 4.0
                );
            }
            self.marker(marker, x, centre);
        }
        self.svg.push_str("</g>");
    }

    pub(super) fn marker(&mut self, marker: Marker, x: f64, y: f64) {
        let _ = match marker {
            Marker::Circle => write!(self.svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.6"/>"#),
            Marker::Square => {
                write!(self.svg, r#"<rect x="{:.1}" y="{:.1}" width="6.6" height="6.6"/>"#, x - 3.3, y - 3.3)
            }
            Marker::Diamond => write!(self.svg, r#"<path d="M{x:.1} {:.1}l4.6 4.6l-4.6 4.6l-4.6 -4.6z"/>"#, y - 4.6),
            Marker::Triangle => write!(self.svg, r#"<path d="M{x:.1} {:.1}l4.4 7.8h-8.8z"/>"#, y - 5.0),
            Marker::Cross => write!(
                self.svg,
                r#"<path d="M{:.1} {:.1}l7 7m0 -7l-7 7" stroke-width="1.8" fill="none"/>"#,
                x - 3.5,
                y - 3.5
            ),
        };
    }

    /// Names at the right, each as close to its line's end as the other names allow.
    fn names(&mut self, lines: &[&Series], x: &Axis, y: &Axis, right: f64, bottom: f64) {
        let ends: Vec<(f64, f64)> = lines
            .iter()
            .filter_map(|line| line.points.last().map(|point| (x.pixel(point.x), y.pixel(point.y))))
            .collect();
        let wanted: Vec<f64> = ends.iter().map(|end| end.1).collect();
        let placed = spread(&wanted, TEXT + 4.0, TOP, bottom);
        for ((line, end), at) in lines.iter().zip(ends).zip(placed) {
            let _ = write!(
                self.svg,
                r#"<path d="M{:.1} {:.1}L{:.1} {:.1}" stroke="{}" stroke-width="0.8" fill="none" opacity="0.7"/>"#,
                end.0 + 5.0,
                end.1,
                right + 14.0,
                at,
                line.style.colour
            );
            self.text(&line.name, right + 17.0, at + 4.0, TEXT, "start", "name");
        }
    }
}

fn measure(text: &str, x: f64, y: f64, size: f64, anchor: &str) -> Label {
    let width = width(text, size);
    let left = match anchor {
        "middle" => x - width / 2.0,
        "end" => x - width,
        _ => x,
    };
    Label { text: text.to_owned(), left, top: y - size * 0.8, width, height: size }
}

/// Size of the drawing, in units of its view box; the page scales it.
pub(super) const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 370.0;
/// Left edge of the plot: room for the longest tick.
const LEFT: f64 = 72.0;
/// Upper edge of the plot: below title, subtitle and the axis' title.
const TOP: f64 = 68.0;
/// The size of all text except the title.
pub(super) const TEXT: f64 = 12.0;
