//! Messages with metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, HistogramDataPoint, NumberDataPoint, metric, number_data_point,
};
use prost::Message;
use sealion_testkit::server::Signal;

use super::{collector, get, serve, site, text};
use crate::support::port::free_port;
use crate::support::upstream::{Received, Upstream, ok};
use crate::support::watch::{Scrape, Watched};
use crate::support::{Site, Successor, messages, wait_for_message, wait_until};

/// A message as the page would show it: types by name, and values by series.
#[derive(Debug, PartialEq)]
struct Shown {
    families: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Shown {
    fn of(received: &Received) -> Self {
        let message = ExportMetricsServiceRequest::decode(&*received.body).expect("a message");
        let [resource] = &message.resource_metrics[..] else { panic!("one resource") };
        let [scope] = &resource.scope_metrics[..] else { panic!("one scope") };
        let mut shown = Shown { families: BTreeMap::new(), samples: BTreeMap::new() };
        for metric in &scope.metrics {
            let name = &metric.name;
            assert!(!metric.description.is_empty());
            let kind = match metric.data.as_ref().expect("data") {
                metric::Data::Sum(sum) => {
                    assert!(sum.is_monotonic);
                    assert_eq!(sum.aggregation_temporality, AggregationTemporality::Cumulative as i32);
                    assert!(sum.data_points.iter().all(|point| point.start_time_unix_nano > 0));
                    shown.add(name, &sum.data_points);
                    "counter"
                }
                metric::Data::Gauge(gauge) => {
                    shown.add(name, &gauge.data_points);
                    "gauge"
                }
                metric::Data::Histogram(histogram) => {
                    assert!(!histogram.data_points.is_empty(), "{name}");
                    histogram.data_points.iter().for_each(|point| shown.add_histogram(name, point));
                    "histogram"
                }
                other => panic!("{name}: {other:?}"),
            };
            assert!(shown.families.insert(name.clone(), kind.to_owned()).is_none(), "{name} comes twice");
        }
        shown
    }

    fn add_histogram(&mut self, name: &str, point: &HistogramDataPoint) {
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert!(0 < point.start_time_unix_nano && point.start_time_unix_nano <= point.time_unix_nano);
        let own = labels(&point.attributes);
        let mut below = 0;
        let bounds = point.explicit_bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&point.bucket_counts) {
            below += count;
            let labels = [own.clone(), vec![format!("le=\"{bound}\"")]].concat();
            self.samples.insert(format!("{name}_bucket{}", braced(&labels)), below as f64);
        }
        self.samples.insert(format!("{name}_count{}", braced(&own)), point.count as f64);
        self.samples.insert(format!("{name}_sum{}", braced(&own)), point.sum.expect("a sum"));
    }

    fn add(&mut self, name: &str, points: &[NumberDataPoint]) {
        assert!(!points.is_empty(), "{name}");
        for point in points {
            assert!(point.start_time_unix_nano <= point.time_unix_nano);
            let labels = braced(&labels(&point.attributes));
            let value = match point.value.expect("a value") {
                number_data_point::Value::AsInt(value) => value as f64,
                number_data_point::Value::AsDouble(value) => value,
            };
            assert!(self.samples.insert(format!("{name}{labels}"), value).is_none(), "{name}{labels} comes twice");
        }
    }

    /// The page's, as far as a server that rests keeps them.
    fn of_page(scrape: &Scrape) -> Self {
        Shown { families: scrape.families.clone(), samples: scrape.samples().clone() }.at_rest()
    }

    /// Without what changes by itself, or by other servers of this machine.
    fn at_rest(mut self) -> Self {
        let changes = |name: &str| {
            ["process_cpu", "process_resident", "process_open", "sealion_kernel_tls"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        self.families.retain(|name, _| !changes(name));
        self.samples.retain(|name, _| !changes(name));
        self
    }
}

/// Labels as the page writes them.
fn labels(attributes: &[KeyValue]) -> Vec<String> {
    attributes.iter().map(|label| format!("{}=\"{}\"", label.key, text(attributes, &label.key))).collect()
}

fn braced(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

#[test]
fn the_collector_has_what_the_page_shows() {
    let site = site();
    let collector = collector();
    let more = "interval = '100ms'\nservice_name = 'shop'\nheaders = { X-Key = 'k', Authorization = \"Bearer t\" }\n[metrics]\nlisten = '127.0.0.1:0'";
    let watched = Watched::of(serve(&site, &format!("{}/otlp/", collector.url()), more));
    for _ in 0..3 {
        get(&site, &watched.server);
    }
    let mut pair = None;
    wait_until("both show the same", || {
        let page = Shown::of_page(&watched.scrape());
        let sent = collector.requests().last().map(|last| Shown::of(last).at_rest());
        let is_same = sent.as_ref() == Some(&page);
        pair = Some((page, sent));
        is_same
    });
    let (page, _) = pair.expect("they were compared");
    assert!(page.families.len() > 40, "{page:?}");
    assert_eq!(page.samples["sealion_http_responses_total{code=\"200\"}"], 3.0);
    assert_eq!(page.samples["sealion_otlp_failures_total"], 0.0);

    let last = collector.last();
    assert_eq!(last.line(), "POST /otlp/v1/metrics");
    assert_eq!(last.field("content-type"), "application/x-protobuf");
    assert_eq!((last.field("x-key"), last.field("authorization")), ("k", "Bearer t"));
    assert!(last.field("user-agent").starts_with("sealion/"));
    let message = ExportMetricsServiceRequest::decode(&*last.body).expect("a message");
    let resource = message.resource_metrics[0].resource.clone().expect("a resource").attributes;
    assert_eq!(text(&resource, "service.name"), "shop");
    assert_eq!(text(&resource, "process.pid"), watched.server.pid().to_string());
    assert_eq!(text(&resource, "service.instance.id").len(), 36);
}

#[test]
fn the_last_metrics_are_sent_at_the_end() {
    let site = site();
    let collector = collector();
    let mut server = serve(&site, &collector.url(), "interval = '1h'");
    wait_until("the first message is there", || collector.requests().len() == 1);
    get(&site, &server);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    let messages = collector.requests();
    assert_eq!(messages.len(), 2);
    let [first, last] = [&messages[0], &messages[1]].map(|message| Shown::of(message).samples);
    let counted = "sealion_http_responses_total{code=\"200\"}";
    assert_eq!((first[counted], last[counted]), (0.0, 1.0));
    assert_eq!(last["sealion_draining"], 1.0);
}

#[test]
fn a_collector_that_fails_has_one_line_and_so_has_its_return() {
    let site = site();
    let is_well = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_well);
    let collector = Upstream::answering(move |_| {
        if seen.load(Ordering::Relaxed) {
            return ok(b"");
        }
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let watched = Watched::of(serve(&site, &collector.url(), "interval = '10ms'\n[metrics]\nlisten = '127.0.0.1:0'"));
    let line = wait_for_message(&watched.server, "did not take metrics");
    assert!(line.contains("status 503") && line.contains(&format!("{}/v1/metrics", collector.url())), "{line}");
    wait_until("failures are counted", || watched.scrape().get("sealion_otlp_failures_total") >= 3.0);
    get(&site, &watched.server);
    is_well.store(true, Ordering::Relaxed);
    wait_for_message(&watched.server, "takes metrics again");
    assert_eq!(messages(&watched.server, "did not take metrics"), 1);
}

#[test]
fn rejected_values_and_other_answers_are_failures() {
    let rejected = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 7,
            error_message: "too many".to_owned(),
        }),
    };
    for (answer, words) in [
        (rejected.encode_to_vec(), "7 items were rejected: too many"),
        (b"<html>".to_vec(), "the response is not OTLP"),
        (vec![0; 100_000], "more than 65536 octets"),
    ] {
        let collector = Upstream::answering(move |_| ok(&answer));
        let server = serve(&site(), &collector.url(), "");
        wait_for_message(&server, words);
    }
}

#[test]
fn a_collector_that_is_away_or_hangs_delays_no_request_and_no_end() {
    let site = site();
    let hanging = Upstream::start(|accepted| while accepted.request().is_some() {});
    let away = format!("http://127.0.0.1:{}", free_port());
    for (endpoint, words) in
        [(away, "did not take metrics: Connection refused"), (hanging.url(), "the last metrics and spans are lost")]
    {
        let mut server = serve(&site, &endpoint, "interval = '1h'");
        get(&site, &server);
        if endpoint == hanging.url() {
            wait_until("the message is under way", || !hanging.requests().is_empty());
        } else {
            wait_for_message(&server, words);
        }
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        wait_for_message(&server, words);
    }
}

#[test]
fn a_confined_server_sends_and_its_successor_is_another_instance() {
    let site = site();
    let collector = collector();
    let endpoint = collector.url().replace("127.0.0.1", "localhost");
    let server = serve(&site, &endpoint, "interval = '50ms'\n[privileges]\nlandlock = true\nseccomp = 'kill'");
    wait_until("a message is there", || !collector.requests().is_empty());
    let successor = Successor::of(&server);
    let instances = || -> BTreeSet<(String, String)> {
        let resources = collector.requests().into_iter().map(|request| {
            let message = ExportMetricsServiceRequest::decode(&*request.body).expect("a message");
            message.resource_metrics[0].resource.clone().expect("a resource").attributes
        });
        resources.map(|of| (text(&of, "process.pid"), text(&of, "service.instance.id"))).collect()
    };
    wait_until("both have sent", || instances().len() == 2);
    let pids: BTreeSet<String> = instances().into_iter().map(|(pid, _)| pid).collect();
    assert_eq!(pids, [server.pid(), successor.pid()].map(|pid| pid.to_string()).into());
}

#[test]
fn a_reload_that_changes_a_header_shows_no_secret() {
    let site = site();
    let collector = collector();
    let config = |secret: &str| {
        let otlp = format!("[otlp]\nendpoint = '{}'\nheaders = {{ Authorization = '{secret}' }}", collector.url());
        site.config("").table(&otlp)
    };
    let server = config("hunter2").serve_from_user_space();
    config("hunter3").write();
    server.signal(Signal::HUP);
    let line = wait_for_message(&server, "otlp.headers.Authorization");
    assert!(line.contains("needs a new process"), "{line}");
    assert_eq!(messages(&server, "hunter"), 0);
}

#[test]
fn a_collector_with_tls_is_verified() {
    let (site, other) = (site(), site());
    let collector = collector();
    // It has TLS by another server in front of it.
    let front = other.config(&format!("proxy = {{ to = '{}' }}", collector.url())).serve_from_user_space();
    let endpoint = format!("https://localhost:{}", front.address().port());
    let served = |verifying: &Site| {
        let roots = verifying.pki.certificate_file();
        serve(&site, &endpoint, &format!("roots = {roots:?}\nheaders = {{ X-Key = 'k' }}"))
    };
    let server = served(&other);
    wait_until("a message is there", || !collector.requests().is_empty());
    assert_eq!(collector.last().field("x-key"), "k");
    assert_eq!(messages(&server, "did not take"), 0);
    drop(server);

    let came = collector.requests().len();
    wait_for_message(&served(&site), "did not take metrics: TLS failed: invalid peer certificate");
    assert_eq!(collector.requests().len(), came);
}
