//! A tree of stacks as SVG: the root at the bottom, widths by samples. No script; a pointer shows a frame's title.

use std::fmt::Write;

use super::stacks::Frame;
use crate::report::escape;

/// The drawing as a file of its own.
pub(super) fn svg(root: &Frame, title: &str) -> String {
    let height = TOP + ROW * depth(root, root.samples) as f64 + MARGIN;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="system-ui,'DejaVu Sans',sans-serif" font-size="{TEXT}"><rect width="100%" height="100%" fill="#fff"/><text x="{MARGIN}" y="18" font-size="14" font-weight="600">{}</text><text x="{MARGIN}" y="34" fill="#5c5c5c">orange: the kernel; blue: the server and its libraries</text>"##,
        escape(title)
    );
    let share = (WIDTH - 2.0 * MARGIN) / root.samples.max(1) as f64;
    frame(&mut svg, root, root.samples, MARGIN, height - MARGIN - ROW, share);
    svg + "</svg>\n"
}

/// Draws `at` and the functions that it called above it. `share`: width of a sample.
fn frame(svg: &mut String, at: &Frame, all: u64, left: f64, top: f64, share: f64) {
    let width = at.samples as f64 * share;
    let percent = 100.0 * at.samples as f64 / all.max(1) as f64;
    let _ = write!(
        svg,
        r##"<g><title>{}, {} samples, {percent:.1} %</title><rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{ROW}" fill="{}" stroke="#fff" stroke-width="0.5"/>"##,
        escape(&at.name),
        at.samples,
        if at.kernel { "#f4b678" } else { "#b2d5ee" }
    );
    let letters = ((width - 4.0) / LETTER).max(0.0) as usize;
    if letters >= 3 {
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{:.1}">{}</text>"#,
            left + 2.0,
            top + 12.0,
            escape(&cut(&at.name, letters))
        );
    }
    svg.push_str("</g>");
    let mut left = left;
    for child in at.children.iter().filter(|child| is_drawn(child, all)) {
        frame(svg, child, all, left, top - ROW, share);
        left += child.samples as f64 * share;
    }
}

/// Frames below a thousandth are narrower than a pixel.
fn is_drawn(frame: &Frame, all: u64) -> bool {
    frame.samples * 1000 >= all
}

/// Rows of the tree, as drawn.
fn depth(frame: &Frame, all: u64) -> usize {
    let below = frame.children.iter().filter(|child| is_drawn(child, all)).map(|child| depth(child, all));
    1 + below.max().unwrap_or(0)
}

/// The end of a path says more than its beginning.
fn cut(name: &str, letters: usize) -> String {
    let count = name.chars().count();
    if count <= letters {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(count + 1 - letters)).collect()
}

const WIDTH: f64 = 1200.0;
/// Height of a frame.
const ROW: f64 = 16.0;
/// Upper edge: below the title.
const TOP: f64 = 42.0;
const MARGIN: f64 = 8.0;
const TEXT: f64 = 11.0;
/// Width of a letter, generously.
const LETTER: f64 = 6.6;

#[cfg(test)]
mod tests {
    use super::super::stacks::{RECORDED, fold};
    use super::*;

    #[test]
    fn a_drawing_needs_nothing_else_and_has_a_box_for_each_frame() {
        let drawn = svg(&fold(RECORDED), "CPU <time>");
        let document = roxmltree::Document::parse(&drawn).expect("XML");
        assert_eq!([cut("http1::respond", 8), cut("short", 5)], ["…respond", "short"]);
        let named = |name: &'static str| document.descendants().filter(move |node| node.tag_name().name() == name);
        assert_eq!(named("script").count() + named("a").count() + named("image").count(), 0);
        assert!(!drawn.contains("onload") && !drawn.contains("NaN"));
        let titles: Vec<_> = named("title").filter_map(|node| node.text()).collect();
        assert_eq!(titles.len(), 10);
        assert!(titles.contains(&"<impl sealion_tls::stream::TlsStream>::poll_send, 2 samples, 66.7 %"), "{titles:?}");
        let number = |node: &roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>().unwrap();
        for frame in named("g") {
            let mut inside = frame.children().filter(|node| node.is_element() && node.tag_name().name() != "title");
            let rect = inside.next().expect("a box");
            let (left, width) = (number(&rect, "x"), number(&rect, "width"));
            assert!(left >= 0.0 && left + width <= WIDTH && number(&rect, "y") >= TOP, "{rect:?} leaves the drawing");
            for text in inside {
                let letters = text.text().unwrap_or_default().chars().count() as f64;
                assert!(letters * LETTER <= width, "{:?} leaves its box", text.text());
            }
        }
    }
}
