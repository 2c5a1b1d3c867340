//! Spans: the data of each sampled request for an OpenTelemetry collector.
//!
//! ```text
//! Exchange::begin ─► Tracer::begin ─► Span ─► traceparent of the request to a server
//!                                      └─► Exchange::finish ─► Tracer::end ─► bounded queue ─► monitor/otlp
//! ```

mod parent;
#[cfg(feature = "otlp")]
mod span;
#[cfg(not(feature = "otlp"))]
#[path = "without_spans.rs"]
mod span;

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use sealion_http::{Protocol, Request};

pub(crate) use parent::parse_traceparent;
#[cfg(feature = "otlp")]
pub(crate) use span::{Finished, Spans};
pub(crate) use span::{Span, Tracer};

/// The response of a span.
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing is traced"))]
pub(crate) struct Ended<'a> {
    pub(crate) request: &'a Request<'a>,
    /// With its version, such as `HTTP/1.1`.
    pub(crate) protocol: Protocol,
    pub(crate) client: SocketAddr,
    pub(crate) status: u16,
    pub(crate) took: Duration,
    /// The server that responded, as configured.
    pub(crate) upstream: Option<&'a str>,
    /// The error that cut the response short.
    pub(crate) aborted: Option<&'a dyn Display>,
}
