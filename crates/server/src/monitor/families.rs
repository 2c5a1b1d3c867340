//! Metrics as values, from which each format is written: `text.rs`, `otlp/message.rs`.

use std::fmt;

use crate::observe::metrics::BUCKETS;

/// A metric with its samples.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) data: Data,
}

pub(super) enum Data {
    Counter(Vec<Sample>),
    Gauge(Vec<Sample>),
    /// The events in each bucket, and the sum of their nanoseconds.
    Histogram(Box<[u64; BUCKETS]>, u64),
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
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str, (buckets, sum): ([u64; BUCKETS], u64)) {
        self.begin(name, help, Data::Histogram(buckets.into(), sum));
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
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        if let Some(Family { data: Data::Counter(samples) | Data::Gauge(samples), .. }) = self.0.last_mut() {
            samples.push(Sample { labels, value: value.into() });
        }
        self
    }

    pub(super) fn finish(self) -> Vec<Family> {
        self.0
    }
}
