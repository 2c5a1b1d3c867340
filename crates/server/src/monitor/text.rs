//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

use super::families::{Data, Family, Histogram, Sample, Value};

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
            Data::Histogram(histograms) => {
                histograms.iter().for_each(|histogram| write_histogram(&mut page, name, histogram));
            }
        }
    }
    page
}

fn write_sample(page: &mut String, name: &str, sample: &Sample) {
    page.push_str(name);
    write_labels(page, &sample.labels, None);
    let _ = writeln!(page, " {}", sample.value);
}

/// Labels in braces, if there are any. `bound`: the bound of a bucket.
fn write_labels(page: &mut String, labels: &[(&'static str, String)], bound: Option<f64>) {
    let mut separator = '{';
    for (name, value) in labels {
        page.push(separator);
        separator = ',';
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
    match bound {
        Some(bound) if bound.is_finite() => _ = write!(page, "{separator}le=\"{bound}\"}}"),
        Some(_) => _ = write!(page, "{separator}le=\"+Inf\"}}"),
        None if !labels.is_empty() => page.push('}'),
        None => {}
    }
}

fn write_histogram(page: &mut String, name: &str, histogram: &Histogram) {
    let mut below = 0;
    for (bound, count) in histogram.buckets() {
        below += count;
        let _ = write!(page, "{name}_bucket");
        write_labels(page, &histogram.labels, Some(bound));
        let _ = writeln!(page, " {below}");
    }
    for (kind, value) in [("sum", Value::from(histogram.sum())), ("count", Value::from(histogram.count()))] {
        let _ = write!(page, "{name}_{kind}");
        write_labels(page, &histogram.labels, None);
        let _ = writeln!(page, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::families::Families;
    use super::*;
    use crate::observe::metrics::{BUCKETS, Durations, bound};

    #[test]
    fn histograms_with_labels_have_a_bound_an_octave() {
        let mut families = Families::default();
        let mut durations = Durations { nanoseconds: 2_000_000_000, ..Durations::default() };
        (durations.buckets[3], durations.buckets[9], durations.buckets[BUCKETS - 1]) = (1, 2, 4);
        families.histograms("a_seconds", "Times.").durations(&[("x", "\"")], durations);
        let page = page(&families.finish());
        let lines: Vec<&str> = page.lines().skip(2).collect();
        assert_eq!(
            lines[..2],
            [r#"a_seconds_bucket{x="\"",le="0.000016384"} 1"#, r#"a_seconds_bucket{x="\"",le="0.000032768"} 3"#]
        );
        assert_eq!(
            lines[lines.len() - 3..],
            [r#"a_seconds_bucket{x="\"",le="+Inf"} 7"#, r#"a_seconds_sum{x="\""} 2"#, r#"a_seconds_count{x="\""} 7"#]
        );
        assert_eq!(lines.len(), 24 + 2);
    }

    #[test]
    fn a_page_to_the_byte() {
        let mut families = Families::default();
        families.gauge("a_level", "A level.").value(0.5);
        families
            .counter("b_total", "B by label.")
            .sample(&[("x", "\"1\\2\n"), ("y", "")], 7_u64)
            .sample(&[("x", "é")], 8_u8);
        families.counter("c_total", "Nothing yet.");
        let mut durations = Durations { nanoseconds: 1_500_000_000, ..Durations::default() };
        (durations.buckets[0], durations.buckets[BUCKETS - 1]) = (2, 1);
        families.histogram("d_seconds", "Times.", durations);
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
