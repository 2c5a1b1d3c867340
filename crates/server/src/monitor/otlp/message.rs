//! Metrics as messages of OTLP (<https://opentelemetry.io/docs/specs/otlp/>).

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::super::families::{Data, Family, Sample, Value};
use crate::observe::metrics::bound;

/// The sums of this server count from its start.
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The time of the values, and the one since when they are counted, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) start: u64,
    pub(super) now: u64,
}

/// The process that sends, by the semantic conventions. `instance`: random, because two processes have one address during an upgrade.
pub(super) fn resource(service_name: &str, instance: &str) -> Resource {
    let host = rustix::system::uname();
    let mut attributes = vec![
        attribute("service.name", service_name),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("service.instance.id", instance),
        attribute("host.name", &host.nodename().to_string_lossy()),
    ];
    attributes.push(KeyValue {
        key: "process.pid".to_owned(),
        value: Some(AnyValue { value: Some(Any::IntValue(std::process::id().into())) }),
        ..KeyValue::default()
    });
    Resource { attributes, ..Resource::default() }
}

/// A message with all metrics that have a sample.
pub(super) fn metrics(families: Vec<Family>, times: Times, resource: &Resource) -> ExportMetricsServiceRequest {
    let metrics = families.into_iter().filter_map(|family| metric(family, times)).collect();
    let scope = InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }],
            ..ResourceMetrics::default()
        }],
    }
}

fn metric(Family { name, help, data }: Family, times: Times) -> Option<Metric> {
    let data = match data {
        Data::Counter(samples) | Data::Gauge(samples) if samples.is_empty() => return None,
        Data::Counter(samples) => metric::Data::Sum(Sum {
            data_points: samples.into_iter().map(|sample| point(sample, times.start, times.now)).collect(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        // A level has no beginning.
        Data::Gauge(samples) => metric::Data::Gauge(Gauge {
            data_points: samples.into_iter().map(|sample| point(sample, 0, times.now)).collect(),
        }),
        Data::Histogram(buckets, nanoseconds) => metric::Data::Histogram(Histogram {
            data_points: vec![HistogramDataPoint {
                start_time_unix_nano: times.start,
                time_unix_nano: times.now,
                count: buckets.iter().sum(),
                sum: Some(nanoseconds as f64 / 1e9),
                bucket_counts: buckets.to_vec(),
                // The last bucket has none: it is open.
                explicit_bounds: (0..buckets.len()).map(bound).filter(|bound| bound.is_finite()).collect(),
                ..HistogramDataPoint::default()
            }],
            aggregation_temporality: CUMULATIVE,
        }),
    };
    Some(Metric { name: name.to_owned(), description: help.to_owned(), data: Some(data), ..Metric::default() })
}

fn point(Sample { labels, value }: Sample, start: u64, now: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: labels.iter().map(|(name, value)| attribute(name, value)).collect(),
        start_time_unix_nano: start,
        time_unix_nano: now,
        value: Some(match value {
            Value::Whole(value) => number_data_point::Value::AsInt(i64::try_from(value).unwrap_or(i64::MAX)),
            Value::Real(value) => number_data_point::Value::AsDouble(value),
        }),
        ..NumberDataPoint::default()
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}
