//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

use super::families::{Data, Family, Sample};
use crate::observe::metrics::{BUCKETS, bound};

/// The Content-Type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes these metrics as a page.
pub(super) fn page(families: &[Family]) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    for Family { name, help, data } in families {
        let kind = match data {
            Data::Counter(_) => "counter",
            Data::Gauge(_) => "gauge",
            Data::Histogram(..) => "histogram",
        };
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        match data {
            Data::Counter(samples) | Data::Gauge(samples) => {
                samples.iter().for_each(|sample| write_sample(&mut page, name, sample));
            }
            Data::Histogram(buckets, nanoseconds) => write_histogram(&mut page, name, buckets, *nanoseconds),
        }
    }
    page
}

fn write_sample(page: &mut String, name: &str, sample: &Sample) {
    page.push_str(name);
    for (n, (name, value)) in sample.labels.iter().enumerate() {
        page.push(if n == 0 { '{' } else { ',' });
        let _ = write!(page, "{name}=\"");
        for c in value.chars() {
            match c {
                '\n' => page.push_str("\\n"),
                '"' | '\\' => page.extend(['\\', c]),
                c => page.push(c),
            }
        }
        page.push('"');
    }
    if !sample.labels.is_empty() {
        page.push('}');
    }
    let _ = writeln!(page, " {}", sample.value);
}

fn write_histogram(page: &mut String, name: &str, buckets: &[u64; BUCKETS], nanoseconds: u64) {
    let mut below = 0;
    for (n, count) in buckets.iter().enumerate() {
        below += count;
        let bound = if bound(n).is_finite() { bound(n).to_string() } else { "+Inf".to_owned() };
        let _ = writeln!(page, "{name}_bucket{{le=\"{bound}\"}} {below}");
    }
    let _ = writeln!(page, "{name}_sum {}\n{name}_count {below}", nanoseconds as f64 / 1e9);
}

#[cfg(test)]
mod tests {
    use super::super::families::Families;
    use super::*;

    #[test]
    fn a_page_to_the_byte() {
        let mut families = Families::default();
        families.gauge("a_level", "A level.").value(0.5);
        families
            .counter("b_total", "B by label.")
            .sample(&[("x", "\"1\\2\n"), ("y", "")], 7_u64)
            .sample(&[("x", "é")], 8_u8);
        families.counter("c_total", "Nothing yet.");
        let mut buckets = [0; BUCKETS];
        (buckets[0], buckets[BUCKETS - 1]) = (2, 1);
        families.histogram("d_seconds", "Times.", (buckets, 1_500_000_000));
        let page = page(&families.finish());
        let (samples, histogram) = page.split_once("# HELP d_seconds").unwrap();
        assert_eq!(
            samples,
            "# HELP a_level A level.\n# TYPE a_level gauge\na_level 0.5\n\
             # HELP b_total B by label.\n# TYPE b_total counter\nb_total{x=\"\\\"1\\\\2\\n\",y=\"\"} 7\nb_total{x=\"é\"} 8\n\
             # HELP c_total Nothing yet.\n# TYPE c_total counter\n"
        );
        let lines: Vec<&str> = histogram.lines().collect();
        assert_eq!(lines[..2], [" Times.", "# TYPE d_seconds histogram"]);
        assert_eq!(lines.len(), 2 + BUCKETS + 2);
        assert_eq!(lines[2], format!("d_seconds_bucket{{le=\"{}\"}} 2", bound(0)));
        assert_eq!(
            lines[BUCKETS..],
            [
                &*format!("d_seconds_bucket{{le=\"{}\"}} 2", bound(BUCKETS - 2)),
                "d_seconds_bucket{le=\"+Inf\"} 3",
                "d_seconds_sum 1.5",
                "d_seconds_count 3",
            ]
        );
    }
}
