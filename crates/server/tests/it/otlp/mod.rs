//! Metrics and traces by OTLP: a collector of the test reads the messages.

mod metrics;
mod traces;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use sealion_testkit::http;
use sealion_testkit::server::Server;

use crate::support::Site;
use crate::support::upstream::{Received, Upstream, ok};

/// A collector that takes everything, which an empty message says.
fn collector() -> Upstream {
    Upstream::answering(|_| ok(b""))
}

fn serve(site: &Site, endpoint: &str, more: &str) -> Server {
    site.config("").table(&format!("[otlp]\nendpoint = '{endpoint}'\n{more}")).serve_from_user_space()
}

fn get(site: &Site, server: &Server) {
    assert_eq!(http::get(&mut site.connect(server), "/f").expect("an answer").body, b"content");
}

fn site() -> Site {
    let site = Site::new();
    site.add("f", "content");
    site
}

fn text(fields: &[KeyValue], name: &str) -> String {
    let value = fields.iter().find(|field| field.key == name).and_then(|field| field.value.clone()?.value);
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{name} is {other:?} in {fields:?}"),
    }
}

/// The messages with this signal.
fn of_signal(collector: &Upstream, signal: &str) -> Vec<Received> {
    let line = format!("POST /v1/{signal}");
    collector.requests().into_iter().filter(|request| request.line() == line).collect()
}
