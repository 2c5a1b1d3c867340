//! Messages with spans.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use sealion_testkit::server::Signal;
use sealion_testkit::{Suite, http};

use super::{collector, get, of_signal, serve, site, text};
use crate::support::http2::Http2;
use crate::support::port::free_port;
use crate::support::upstream::{Upstream, ok};
use crate::support::watch::Watched;
use crate::support::{wait_for_message, wait_until};

/// All spans so far.
fn spans(collector: &Upstream) -> Vec<Span> {
    let messages = of_signal(collector, "traces").into_iter().map(|received| {
        let message = ExportTraceServiceRequest::decode(&*received.body).expect("a message");
        let [resource] = &message.resource_spans[..] else { panic!("one resource") };
        let [scope] = &resource.scope_spans[..] else { panic!("one scope") };
        assert!(!text(&resource.resource.as_ref().expect("a resource").attributes, "service.name").is_empty());
        scope.spans.clone()
    });
    messages.flatten().collect()
}

fn wait_for(collector: &Upstream, count: usize) -> Vec<Span> {
    wait_until("the spans are there", || spans(collector).len() >= count);
    let spans = spans(collector);
    assert_eq!(spans.len(), count);
    spans
}

fn has(span: &Span, name: &str) -> bool {
    span.attributes.iter().any(|attribute| attribute.key == name)
}

#[test]
fn each_request_has_a_span_by_the_conventions() {
    let site = site();
    let collector = collector();
    // Without a log, HTTP/2 keeps the head for the span alone.
    let mut server = serve(&site, &collector.url(), "sample = 1\n[access_log]\nto = 'off'");
    let mut client = site.connect(&server);
    http::request(&mut client, "GET", "/f?secret", &[("User-Agent", "test/1")]).expect("an answer");
    http::request(&mut client, "HEAD", "/none", &[]).expect("an answer");
    http::request(&mut client, "BREW", "/f", &[]).expect("an answer");
    let mut second = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    // The second is answered from the cache of files at once.
    assert_eq!((second.fetch("/f").0, second.fetch("/f").0), (200, 200));
    // Waiting spans are sent at the end.
    server.signal(Signal::TERM);
    drop((client, second));
    assert!(server.wait().success());
    let spans = wait_for(&collector, 5);
    let attributes = |span: &Span| {
        let names = ["http.request.method", "url.path", "http.response.status_code", "network.protocol.version"];
        names.map(|name| text(&span.attributes, name))
    };
    let found: Vec<_> = spans.iter().map(attributes).collect();
    assert_eq!(
        found,
        [
            ["GET", "/f", "200", "1.1"],
            ["HEAD", "/none", "404", "1.1"],
            ["_OTHER", "/f", "501", "1.1"],
            ["GET", "/f", "200", "2"],
            ["GET", "/f", "200", "2"],
        ]
    );
    for span in &spans {
        assert_eq!((span.trace_id.len(), span.span_id.len(), span.kind), (16, 8, SpanKind::Server as i32));
        assert!(span.parent_span_id.is_empty());
        assert!(0 < span.start_time_unix_nano && span.start_time_unix_nano < span.end_time_unix_nano);
        assert_eq!(text(&span.attributes, "client.address"), "127.0.0.1");
        assert_eq!(text(&span.attributes, "url.scheme"), "https");
        assert!(has(span, "server.address"));
    }
    assert_eq!(spans.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["GET", "HEAD", "HTTP", "GET", "GET"]);
    assert_eq!(text(&spans[0].attributes, "user_agent.original"), "test/1");
    assert_eq!(text(&spans[2].attributes, "http.request.method_original"), "BREW");
    assert_eq!(text(&spans[2].attributes, "error.type"), "501");
    assert!(spans[1].status.is_none() && !has(&spans[1], "error.type"), "a client's error is none of the server");
    let mut traces: Vec<_> = spans.iter().map(|span| span.trace_id.clone()).collect();
    traces.sort();
    traces.dedup();
    assert_eq!(traces.len(), 5);
}

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn servers_get_the_span_as_their_parent_and_only_trusted_proxies_name_the_trace() {
    let site = site();
    let (collector, upstream) = (collector(), Upstream::echo());
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (sample, is_trusted) in [("1", false), ("1", true), ("1e-12", true), ("1e-12", false)] {
        let before = spans(&collector).len();
        let proxies =
            if is_trusted { "trusted_proxies = ['127.0.0.0/8']\nclient_address = 'X-Forwarded-For'" } else { "" };
        let config = site.config(&format!("proxy = {{ to = '{}' }}", upstream.url()));
        let config = config.listen(&format!("address = '127.0.0.1:0'\n{proxies}"));
        let otlp = format!("[otlp]\nendpoint = '{}'\nsample = {sample}", collector.url());
        let server = config.table(&otlp).serve_from_user_space();
        let fields = [("Traceparent", GIVEN), ("Tracestate", "a=b"), ("X-Forwarded-For", "192.0.2.1")];
        http::request(&mut site.connect(&server), "GET", "/x", &fields).expect("an answer");
        let passed = upstream.last();
        assert_eq!(passed.all("tracestate").len(), usize::from(is_trusted));
        let passed = passed.field("traceparent");
        assert_ne!(passed, GIVEN);
        if sample != "1" && !is_trusted {
            // The decision holds for the servers behind.
            assert!(passed.ends_with("-00"), "{passed}");
            continue;
        }
        let all = wait_for(&collector, before + 1);
        let span = all.last().expect("there is one");
        assert_eq!(passed, format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id)));
        assert_eq!(hex(&span.trace_id) == GIVEN[3..35], is_trusted);
        assert_eq!(hex(&span.parent_span_id), if is_trusted { &GIVEN[36..52] } else { "" });
        assert_eq!(text(&span.attributes, "client.address"), if is_trusted { "192.0.2.1" } else { "127.0.0.1" });
        assert_eq!(text(&span.attributes, "sealion.upstream.server"), upstream.url());
    }
}

#[test]
fn requests_of_http2_and_questions_of_forward_auth_carry_the_span() {
    let site = site();
    let (collector, upstream, guard) = (collector(), Upstream::echo(), Upstream::echo());
    let keys = format!("forward_auth = {{ to = '{}/may' }}\nproxy = {{ to = '{}' }}", guard.url(), upstream.url());
    let otlp = format!("[otlp]\nendpoint = '{}'\nsample = 1", collector.url());
    let server = site.config(&keys).table(&otlp).serve_from_user_space();
    let mut client = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    assert_eq!(client.fetch("/x").0, 200);
    let span = wait_for(&collector, 1).remove(0);
    let id: String = span.span_id.iter().map(|octet| format!("{octet:02x}")).collect();
    for asked in [&guard, &upstream] {
        let last = asked.last();
        assert_eq!(last.field("traceparent").split('-').nth(2), Some(&*id), "{}", last.head);
    }
}

#[test]
fn without_a_share_there_are_no_spans_and_traces_of_clients_pass() {
    let site = site();
    let (collector, upstream) = (collector(), Upstream::echo());
    let config = site.config(&format!("proxy = {{ to = '{}' }}", upstream.url()));
    let otlp = format!("[otlp]\nendpoint = '{}'", collector.url());
    let mut server = config.table(&otlp).serve_from_user_space();
    http::request(&mut site.connect(&server), "GET", "/x", &[("Traceparent", GIVEN)]).expect("an answer");
    assert_eq!(upstream.last().field("traceparent"), GIVEN);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    assert!(!of_signal(&collector, "metrics").is_empty());
    assert!(of_signal(&collector, "traces").is_empty());
}

#[test]
fn a_server_that_is_away_is_an_error_of_the_span() {
    let site = site();
    let collector = collector();
    let config = site.config(&format!("proxy = {{ to = 'http://127.0.0.1:{}' }}", free_port()));
    let otlp = format!("[otlp]\nendpoint = '{}'\nsample = 1.0", collector.url());
    let server = config.table(&otlp).serve_from_user_space();
    assert_eq!(http::get(&mut site.connect(&server), "/x").expect("an answer").status, 502);
    let spans = wait_for(&collector, 1);
    assert_eq!(text(&spans[0].attributes, "error.type"), "502");
    assert_eq!(spans[0].status.as_ref().map(|status| status.code), Some(StatusCode::Error as i32));
}

/// Over HTTP/1.1 it may have closed its side alone, and take what is sent to it.
#[test]
fn a_client_that_leaves_before_the_answer_is_an_aborted_request() {
    let site = site();
    let collector = collector();
    let (end, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |accepted| {
        accepted.request();
        let _ = wait.lock().expect("no panic").recv();
    });
    let config = site.config(&format!("proxy = {{ to = '{}' }}", upstream.url()));
    let otlp = format!("[otlp]\nendpoint = '{}'\nsample = 1.0", collector.url());
    let server = config.table(&otlp).serve_from_user_space();
    let mut client = site.connect(&server);
    client.send(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it leaves");
    wait_until("it is forwarded", || upstream.requests().len() == 1);
    client.close_notify().expect("it leaves");
    let span = wait_for(&collector, 1).remove(0);
    assert_eq!(text(&span.attributes, "error.type"), "aborted");
    assert_eq!(span.status.map(|status| status.code), Some(StatusCode::Error as i32));
    drop(end);
}

#[test]
fn spans_that_the_queue_cannot_take_are_counted_and_delay_nobody() {
    let site = site();
    // It never answers about spans.
    let collector = Upstream::start(|accepted| {
        while let Some(request) = accepted.request() {
            if request.line() == "POST /v1/metrics" {
                accepted.write(&ok(b""));
            }
        }
    });
    let watched = Watched::of(serve(&site, &collector.url(), "sample = 1\n[metrics]\nlisten = '127.0.0.1:0'"));
    let mut client = site.connect(&watched.server);
    http::get(&mut client, "/f").expect("an answer");
    wait_until("a message is under way", || !of_signal(&collector, "traces").is_empty());
    // The queue has room for 2048.
    for _ in 0..2148 {
        http::get(&mut client, "/f").expect("an answer");
    }
    wait_until("some are lost", || watched.scrape().get("sealion_otlp_dropped_total") >= 100.0);
}

#[test]
fn spans_that_the_collector_takes_later_are_sent_again() {
    let site = site();
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let collector = Upstream::answering(move |request| match request.line() {
        "POST /v1/traces" if counted.fetch_add(1, Ordering::Relaxed) < 2 => {
            b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
        _ => ok(b""),
    });
    let watched = Watched::of(serve(&site, &collector.url(), "sample = 1\n[metrics]\nlisten = '127.0.0.1:0'"));
    get(&site, &watched.server);
    let line = wait_for_message(&watched.server, "did not take traces");
    assert!(line.contains("status 429"), "{line}");
    wait_for_message(&watched.server, "takes traces again");
    let scrape = watched.scrape();
    assert_eq!((scrape.get("sealion_otlp_failures_total"), scrape.get("sealion_otlp_dropped_total")), (2.0, 0.0));
    let messages = of_signal(&collector, "traces");
    assert!(messages.len() == 3 && messages.iter().all(|message| message.body == messages[0].body));
}

#[test]
fn spans_that_the_collector_refuses_are_counted() {
    let site = site();
    let collector = Upstream::answering(|request| match request.line() {
        "POST /v1/traces" => b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok(b""),
    });
    let watched = Watched::of(serve(&site, &collector.url(), "sample = 1\n[metrics]\nlisten = '127.0.0.1:0'"));
    get(&site, &watched.server);
    let line = wait_for_message(&watched.server, "did not take traces");
    assert!(line.contains("status 400"), "{line}");
    wait_until("it is counted", || watched.scrape().get("sealion_otlp_dropped_total") == 1.0);
    assert_eq!(watched.scrape().get("sealion_otlp_failures_total"), 1.0);
}
