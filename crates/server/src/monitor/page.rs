//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write as _};

use crate::observe::metrics::{BUCKETS, bound};

/// The Content-Type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page being written.
#[derive(Default)]
pub(super) struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// Begins a counter. Samples follow.
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.begin(name, "counter", help)
    }

    /// Begins a gauge. Samples follow.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.begin(name, "gauge", help)
    }

    /// A whole histogram, in seconds.
    pub(super) fn histogram(&mut self, name: &'static str, help: &str, (buckets, nanoseconds): ([u64; BUCKETS], u64)) {
        self.begin(name, "histogram", help);
        let mut below = 0;
        // Writing to a String cannot fail.
        for (n, count) in buckets.into_iter().enumerate() {
            below += count;
            let bound = if bound(n).is_finite() { bound(n).to_string() } else { "+Inf".to_owned() };
            let _ = writeln!(self.text, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(self.text, "{name}_sum {}\n{name}_count {below}", nanoseconds as f64 / 1e9);
    }

    fn begin(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// The only sample.
    pub(super) fn value(&mut self, value: impl Display) {
        self.sample(&[], value);
    }

    /// A sample with labels.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.text.push_str(self.name);
        for (n, (name, value)) in labels.iter().enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{name}=\"");
            for c in value.chars() {
                match c {
                    '\n' => self.text.push_str("\\n"),
                    '"' | '\\' => self.text.extend(['\\', c]),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
