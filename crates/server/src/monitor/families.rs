//! Metrics as values, for each format: `text.rs`, `otlp/message.rs`.

use std::fmt;

use crate::observe::metrics::{BUCKETS, Durations, bound};

/// A metric with its samples.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) data: Data,
}

pub(super) enum Data {
    Counter(Vec<Sample>),
    Gauge(Vec<Sample>),
    Histogram(Vec<Histogram>),
}

/// A histogram with its labels.
pub(super) struct Histogram {
    pub(super) labels: Vec<(&'static str, String)>,
    durations: Box<Durations>,
}

/// The first bucket whose bound is shown of histograms with labels: 16 µs.
const FIRST_SHOWN: usize = 8;

impl Histogram {
    /// Upper bounds in seconds, each with the events above the one before. There are many histograms with labels, so that these have a
    /// bound an octave, and others two.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        let is_shown =
            |n: usize| self.labels.is_empty() || n + 1 == BUCKETS || (n >= FIRST_SHOWN && n.is_multiple_of(2));
        let mut rows = Vec::new();
        let mut events = 0;
        for (n, count) in self.durations.buckets.iter().enumerate() {
            events += count;
            if is_shown(n) {
                rows.push((bound(n), events));
                events = 0;
            }
        }
        rows
    }

    /// The sum in seconds.
    pub(super) fn sum(&self) -> f64 {
        self.durations.nanoseconds as f64 / 1e9
    }

    /// The number of events.
    pub(super) fn count(&self) -> u64 {
        self.durations.count()
    }
}

/// A value with its labels.
pub(super) struct Sample {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: Value,
}

#[derive(Clone, Copy)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

macro_rules! whole {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Value {
            fn from(value: $kind) -> Self {
                Value::Whole(value as u64)
            }
        }
    )*};
}

whole!(u8, u64, usize);

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Whole(value) => value.fmt(f),
            Value::Real(value) => value.fmt(f),
        }
    }
}

/// Families being collected, in the order of the page.
#[derive(Default)]
pub(super) struct Families(Vec<Family>);

impl Families {
    /// Begins a counter. Samples follow.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> &mut Self {
        self.begin(name, help, Data::Counter(Vec::new()))
    }

    /// Begins a gauge. Samples follow.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Self {
        self.begin(name, help, Data::Gauge(Vec::new()))
    }

    /// A whole histogram, in seconds.
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str, durations: Durations) {
        self.histograms(name, help).durations(&[], durations);
    }

    /// Begins histograms. They follow by [`Self::durations`].
    pub(super) fn histograms(&mut self, name: &'static str, help: &'static str) -> &mut Self {
        self.begin(name, help, Data::Histogram(Vec::new()))
    }

    /// Adds a histogram with labels.
    pub(super) fn durations(&mut self, labels: &[(&'static str, &str)], durations: Durations) -> &mut Self {
        if let Some(Family { data: Data::Histogram(all), .. }) = self.0.last_mut() {
            all.push(Histogram { labels: owned(labels), durations: durations.into() });
        }
        self
    }

    fn begin(&mut self, name: &'static str, help: &'static str, data: Data) -> &mut Self {
        self.0.push(Family { name, help, data });
        self
    }

    /// Adds the only sample.
    pub(super) fn value(&mut self, value: impl Into<Value>) {
        self.sample(&[], value);
    }

    /// Adds a sample with labels.
    pub(super) fn sample(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) -> &mut Self {
        if let Some(Family { data: Data::Counter(samples) | Data::Gauge(samples), .. }) = self.0.last_mut() {
            samples.push(Sample { labels: owned(labels), value: value.into() });
        }
        self
    }

    /// All families, except histograms without a value.
    pub(super) fn finish(mut self) -> Vec<Family> {
        self.0.retain(|family| !matches!(&family.data, Data::Histogram(all) if all.is_empty()));
        self.0
    }
}

fn owned(labels: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}
