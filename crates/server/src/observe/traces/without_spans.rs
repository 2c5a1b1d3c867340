//! Replaces `span.rs` in a program without the feature `otlp`: there are no tracers and no spans.

use sealion_http::Request;

use super::Ended;

#[derive(Debug)]
pub(crate) enum Tracer {}

#[derive(Debug)]
pub(crate) enum Span {}

impl Tracer {
    pub(crate) fn begin(&self, _: &Request<'_>, _: bool, _: &'static str) -> Option<Span> {
        match *self {}
    }

    pub(crate) fn end(&self, _: &std::sync::Arc<Span>, _: &Ended<'_>) -> bool {
        match *self {}
    }
}

impl Span {
    pub(crate) fn is_sampled(&self) -> bool {
        match *self {}
    }

    pub(crate) fn continues(&self) -> bool {
        match *self {}
    }

    pub(crate) fn traceparent(&self) -> String {
        match *self {}
    }
}
