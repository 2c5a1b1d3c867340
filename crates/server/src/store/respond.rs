//! A stored response, or one on its way, as the response to a request: preconditions, ranges, Age, Cache-Status.

use std::ops::Range;
use std::sync::Arc;

use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_LOCATION, DATE, ETAG, EXPIRES, VARY};
use sealion_cache::{CacheStatus, Precondition};
use sealion_http::range::{self, Selection};
use sealion_http::{ContentRange, ExtraFields, Fields, Method, Request, Status, write_decimal};

use super::check::Withheld;
use super::fill::{Fill, Flowing};
use super::object::{Head, Object};
use super::slices::Slices;
use crate::observe::access_log::CacheTrace;
use crate::response::{Body, BodyStream, Response};

/// A response made of a stored one.
pub(super) struct Reuse<'a> {
    pub(super) request: &'a Request<'a>,
    /// Seconds since 1970-01-01.
    pub(super) now: u64,
    pub(super) trace: CacheTrace,
    /// For Cache-Status, if it is sent.
    pub(super) status: Option<CacheStatus>,
    pub(super) origin: Origin<'a>,
    /// The lines of the whole response with Age and Cache-Status, if they are made already.
    pub(super) lines: Option<ExtraFields>,
}

/// Where a response comes from.
#[derive(Clone, Copy)]
pub(super) enum Origin<'a> {
    /// It was stored, or made for another request.
    Reused,
    /// The origin made or validated it for this request: it has no Age but the origin's (RFC 9111 §5.1). The fields, if they are not the stored
    /// ones.
    Answered(Option<&'a ExtraFields>),
}

impl Reuse<'_> {
    /// The response with a stored object.
    #[inline]
    pub(super) fn object(self, object: &Object) -> Response {
        let Object { head, body, .. } = object;
        let content = |range: Range<u64>| match object.being_checked() {
            None => Some(Body::File { file: Arc::clone(body), range }),
            Some(check) => {
                let length = Some(range.end - range.start);
                let source = Box::pin(Withheld::new(Arc::clone(body), range, check));
                Some(Body::Stream(BodyStream { length, source }))
            }
        };
        self.respond(head, head.status, Some(body.len), content).unwrap_or_else(|| Response::plain(Status::BAD_GATEWAY))
    }

    /// The whole response, from the head of one slice. `fill`: the fill that brings this slice. `None`: too late, the slice is gone.
    pub(super) fn sliced(self, head: &Head, slices: Slices, fill: Option<&Arc<Fill>>) -> Option<Response> {
        self.respond(head, Status::OK, Some(slices.sliced.complete()), |range| {
            let length = Some(range.end - range.start);
            let source = Arc::new(slices).read(range, fill)?;
            Some(Body::Stream(BodyStream { length, source: Box::pin(source) }))
        })
    }

    /// The response with a body that is on its way. `None`: too late, the body is gone.
    pub(super) fn flowing(self, flowing: &Flowing, fill: &Arc<Fill>) -> Option<Response> {
        self.respond(&flowing.head, flowing.head.status, flowing.length, |range| {
            let end = flowing.length.map(|_| range.end);
            let length = end.map(|end| end - range.start);
            let source = fill.read(range.start, end)?;
            Some(Body::Stream(BodyStream { length, source: Box::pin(source) }))
        })
    }

    /// Inlined, since a response is large, and would be copied at each return. `code`: the status of the whole. `length`: of the body, if it is known.
    /// `content`: a range of it, or all of it if the length is unknown.
    #[inline(always)]
    fn respond(
        self,
        head: &Head,
        code: Status,
        length: Option<u64>,
        content: impl FnOnce(Range<u64>) -> Option<Body>,
    ) -> Option<Response> {
        let Reuse { request, now, mut trace, status, origin, lines: made } = self;
        let age = head.lifetime.age(now);
        trace.age = Some(age);
        let with_extra = |mut extra: ExtraFields, content_range| {
            if let Origin::Reused = origin {
                extra.add_with("Age", |out| write_decimal(out, age));
            }
            if let Some(status) = &status {
                extra.add_with("Cache-Status", |out| status.write(out));
            }
            fields_of(extra, content_range)
        };
        let lines = match origin {
            Origin::Answered(Some(own)) => own,
            _ => &head.lines,
        };
        let is_ok = code == Status::OK;
        if is_ok && sealion_cache::evaluate(&request.conditions, &head.fields) == Precondition::NotModified {
            let fields = with_extra(of_not_modified(lines), None);
            return Some(Response { cache: Some(trace), ..Response::new(Status::NOT_MODIFIED, fields, Body::Empty) });
        }
        let wanted = request.conditions.range.value().filter(|_| is_ok && request.method == Method::Get);
        let selection = match (wanted, length) {
            (Some(wanted), Some(length))
                if sealion_cache::range_applies(&request.conditions.if_range, &head.fields) =>
            {
                range::select(wanted, length, 1)
            }
            _ => Selection::Whole,
        };
        let whole = 0..length.unwrap_or(u64::MAX);
        let (status, range, content_range) = match (selection, length) {
            (Selection::One(range), Some(complete)) => {
                let content_range = ContentRange::Part { range: range.clone(), complete };
                (Status::PARTIAL_CONTENT, range, Some(content_range))
            }
            (Selection::Unsatisfiable, Some(complete)) => {
                let fields = with_extra(date_of(&head.lines), Some(ContentRange::Unsatisfied { complete }));
                let response = Response::new(Status::RANGE_NOT_SATISFIABLE, fields, Body::Empty);
                return Some(Response { cache: Some(trace), ..response });
            }
            _ => (code, whole, None),
        };
        let fields = match made {
            Some(lines) if content_range.is_none() => fields_of(lines, None),
            _ => with_extra(lines.with_room(ADDED), content_range),
        };
        Some(Response { cache: Some(trace), ..Response::new(status, fields, content(range)?) })
    }
}

/// Stored responses have a Date.
#[inline(always)]
fn fields_of(extra: ExtraFields, content_range: Option<ContentRange>) -> Fields {
    Fields { forwarded: true, dated: true, content_range, extra, ..Fields::default() }
}

/// Bytes of Age and Cache-Status, usually.
const ADDED: usize = 96;

/// The fields that a 304 repeats (RFC 9110 §15.4.5).
fn of_not_modified(lines: &ExtraFields) -> ExtraFields {
    only(lines, &[CACHE_CONTROL, CONTENT_LOCATION, DATE, ETAG, EXPIRES, VARY])
}

fn date_of(lines: &ExtraFields) -> ExtraFields {
    only(lines, &[DATE])
}

fn only(lines: &ExtraFields, kept: &[HeaderName]) -> ExtraFields {
    let mut fields = ExtraFields::default();
    for (name, value) in lines.iter() {
        if kept.iter().any(|other| other.as_str().eq_ignore_ascii_case(name)) {
            fields.add_octets(name, value);
        }
    }
    fields
}
