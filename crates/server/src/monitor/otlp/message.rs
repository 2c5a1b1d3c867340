//! Metrics and spans as OTLP messages (<https://opentelemetry.io/docs/specs/otlp/>).

use std::time::{SystemTime, UNIX_EPOCH};

use http::uri::Authority;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span, status};

use super::super::families::{self, Data, Family, Sample, Value};
use crate::observe::traces::Finished;

/// The sums of this server count from its start.
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The time of the values, and the start of counting, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) start: u64,
    pub(super) now: u64,
}

/// The sending process, by the semantic conventions. `instance` is random, because two processes share an address
/// during an upgrade.
pub(super) fn resource(service_name: &str, instance: &str) -> Resource {
    let host = rustix::system::uname();
    let mut attributes = vec![
        attribute("service.name", service_name),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("service.instance.id", instance),
        attribute("host.name", &host.nodename().to_string_lossy()),
    ];
    attributes.push(number("process.pid", std::process::id().into()));
    Resource { attributes, ..Resource::default() }
}

/// A message with all metrics that have a sample.
pub(super) fn metrics(families: Vec<Family>, times: Times, resource: &Resource) -> ExportMetricsServiceRequest {
    let metrics = families.into_iter().filter_map(|family| metric(family, times)).collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }],
            ..ResourceMetrics::default()
        }],
    }
}

/// A message with these spans.
pub(super) fn spans(finished: &[Finished], resource: &Resource) -> ExportTraceServiceRequest {
    let spans = finished.iter().map(span).collect();
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }],
            ..ResourceSpans::default()
        }],
    }
}

/// The program that measures.
fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// The low byte of a span's flags is traceparent's flags. The next two bits say whether its parent is in another
/// process.
const SAMPLED_WITHOUT_REMOTE_PARENT: u32 = 0x101;
const SAMPLED_WITH_REMOTE_PARENT: u32 = 0x301;

/// By <https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-server-span>.
fn span(finished: &Finished) -> Span {
    let parent = finished.span.parent;
    let start = nanoseconds(finished.start);
    let message = finished.aborted.as_deref().unwrap_or_default().to_owned();
    Span {
        trace_id: finished.span.trace.to_be_bytes().to_vec(),
        span_id: finished.span.id.to_be_bytes().to_vec(),
        parent_span_id: parent.map_or_else(Vec::new, |parent| parent.to_be_bytes().to_vec()),
        flags: if parent.is_some() { SAMPLED_WITH_REMOTE_PARENT } else { SAMPLED_WITHOUT_REMOTE_PARENT },
        name: finished.method.unwrap_or("HTTP").to_owned(),
        kind: span::SpanKind::Server as i32,
        start_time_unix_nano: start,
        end_time_unix_nano: start.saturating_add(u64::try_from(finished.took.as_nanos()).unwrap_or(u64::MAX)),
        attributes: attributes(finished),
        status: error_type(finished).map(|_| Status { message, code: status::StatusCode::Error as i32 }),
        ..Span::default()
    }
}

fn attributes(finished: &Finished) -> Vec<KeyValue> {
    let mut all = vec![
        attribute("http.request.method", finished.method.unwrap_or("_OTHER")),
        attribute("url.path", &finished.path),
        attribute("url.scheme", finished.span.scheme),
        number("http.response.status_code", finished.status.into()),
        attribute("network.protocol.version", finished.version),
    ];
    if let Some(method) = &finished.original_method {
        all.push(attribute("http.request.method_original", method));
    }
    if let Some(authority) = finished.authority.as_deref().and_then(|authority| authority.parse::<Authority>().ok()) {
        all.push(attribute("server.address", authority.host()));
        all.extend(authority.port_u16().map(|port| number("server.port", port.into())));
    }
    // Over a Unix socket the address is unknown.
    if !finished.client.ip().is_unspecified() {
        all.push(attribute("client.address", &finished.client.ip().to_canonical().to_string()));
    }
    if let Some(agent) = &finished.user_agent {
        all.push(attribute("user_agent.original", agent));
    }
    if let Some(upstream) = &finished.upstream {
        all.push(attribute("sealion.upstream.server", upstream));
    }
    all.extend(error_type(finished).map(|error| attribute("error.type", &error)));
    all
}

/// The reason why the request failed, unless it was the client's fault.
fn error_type(finished: &Finished) -> Option<String> {
    // A client that left before the response may still take data that is sent to it.
    if finished.aborted.is_some() || finished.status == sealion_http::Status::CLIENT_CLOSED_REQUEST.code() {
        return Some("aborted".to_owned());
    }
    (finished.status >= 500).then(|| finished.status.to_string())
}

/// Nanoseconds since 1970.
pub(super) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn metric(Family { name, help, data }: Family, times: Times) -> Option<Metric> {
    let data = match data {
        Data::Counter(samples) | Data::Gauge(samples) if samples.is_empty() => return None,
        Data::Counter(samples) => metric::Data::Sum(Sum {
            data_points: samples.into_iter().map(|sample| point(sample, times.start, times.now)).collect(),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        // A level has no start.
        Data::Gauge(samples) => metric::Data::Gauge(Gauge {
            data_points: samples.into_iter().map(|sample| point(sample, 0, times.now)).collect(),
        }),
        Data::Histogram(histograms) if histograms.is_empty() => return None,
        Data::Histogram(histograms) => metric::Data::Histogram(Histogram {
            data_points: histograms.iter().map(|histogram| durations(histogram, times)).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    Some(Metric { name: name.to_owned(), description: help.to_owned(), data: Some(data), ..Metric::default() })
}

fn durations(histogram: &families::Histogram, times: Times) -> HistogramDataPoint {
    let (bounds, bucket_counts): (Vec<f64>, Vec<u64>) = histogram.buckets().into_iter().unzip();
    HistogramDataPoint {
        attributes: histogram.labels.iter().map(|(name, value)| attribute(name, value)).collect(),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: histogram.count(),
        sum: Some(histogram.sum()),
        bucket_counts,
        // The last bucket has no bound: it is open.
        explicit_bounds: bounds.into_iter().filter(|bound| bound.is_finite()).collect(),
        ..HistogramDataPoint::default()
    }
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

fn number(key: &str, value: i64) -> KeyValue {
    let value = Some(AnyValue { value: Some(Any::IntValue(value)) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}
