//! A file as a response: preconditions, ranges, fields.

use std::sync::Arc;

use sealion_http::conditional::{self, Validators, Verdict};
use sealion_http::dictionary::DictionaryCoding;
use sealion_http::range::{self, Selection};
use sealion_http::{ContentEncoding, ContentRange, ContentType, Fields, HttpTime, Method, Request, Status};

use super::{Body, Response};
use crate::files::resolve::SiteFile;

/// The response with a file, or with the ranges requested, if the preconditions hold.
///
/// Call this only where the response would be 200 without conditions (RFC 9110 §13.2.1). Range is evaluated after the
/// preconditions (§14.2). A request with more than `max_ranges` ranges gets the whole file. `now` is the value of Date.
pub(crate) fn of_file(request: &Request<'_>, file: Arc<SiteFile>, max_ranges: usize, now: HttpTime) -> Response {
    let has_others = file.varies;
    of_variant(request, file, has_others, max_ranges, now)
}

/// The same, with another type than its own, if there is one.
pub(crate) fn of_file_as(
    request: &Request<'_>,
    file: Arc<SiteFile>,
    content_type: Option<ContentType>,
    max_ranges: usize,
    now: HttpTime,
) -> Response {
    let content_type = content_type.unwrap_or_else(|| file.content_type.clone());
    let has_others = file.varies;
    respond(request, file, (content_type, has_others), max_ranges, now)
}

/// The same for a file with other representations, which Vary has to say. `has_others`: whether there are any.
pub(crate) fn of_variant(
    request: &Request<'_>,
    file: Arc<SiteFile>,
    has_others: bool,
    max_ranges: usize,
    now: HttpTime,
) -> Response {
    let content_type = file.content_type.clone();
    respond(request, file, (content_type, has_others), max_ranges, now)
}

/// The response with a file that has the content of another file in a coding by a dictionary. It has no ranges: their Content-Range would count bytes that
/// few other clients have.
pub(crate) fn of_coded(
    request: &Request<'_>,
    compressed: Arc<SiteFile>,
    content_type: ContentType,
    coding: DictionaryCoding,
    now: HttpTime,
) -> Response {
    let SiteFile { len, modified, .. } = *compressed;
    let etag = compressed.tag_in(coding.token());
    let modified = modified.map(|modified| if modified.seconds() > now.seconds() { now } else { modified });
    let validators =
        Validators { etag: Some(etag.tag()), modified: modified.map(|modified| modified.seconds()), varies: true };
    let fields = Fields { varies: true, last_modified: modified, etag: Some(etag), ..Fields::default() };
    match conditional::evaluate(&request.conditions, &validators) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Response::new(Status::NOT_MODIFIED, fields, Body::Empty),
        Verdict::PreconditionFailed => return Response::plain(Status::PRECONDITION_FAILED),
    }
    let content_encoding = Some(ContentEncoding::ByDictionary(coding));
    let fields = Fields { content_type: Some(content_type), content_encoding, ..fields };
    Response::new(Status::OK, fields, Body::File { file: compressed, range: 0..len })
}

fn respond(
    request: &Request<'_>,
    file: Arc<SiteFile>,
    (content_type, has_others): (ContentType, bool),
    max_ranges: usize,
    now: HttpTime,
) -> Response {
    let SiteFile { len, modified, etag, coding, varies, .. } = *file;
    // Last-Modified must not be later than Date (RFC 9110 §8.8.2.1).
    let modified = modified.map(|modified| if modified.seconds() > now.seconds() { now } else { modified });
    let validators = Validators {
        etag: Some(etag.tag()),
        modified: modified.map(|modified| modified.seconds()),
        varies: has_others,
    };
    let fields = Fields { varies, last_modified: modified, etag: Some(etag), accept_ranges: true, ..Fields::default() };
    match conditional::evaluate(&request.conditions, &validators) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Response::new(Status::NOT_MODIFIED, fields, Body::Empty),
        Verdict::PreconditionFailed => return Response::plain(Status::PRECONDITION_FAILED),
    }
    let fields =
        Fields { content_type: Some(content_type.clone()), content_encoding: coding.map(Into::into), ..fields };
    let selection = match request.conditions.range.value() {
        // Range is defined for GET only (RFC 9110 §14.2).
        Some(value)
            if request.method == Method::Get
                && conditional::range_applies(&request.conditions.if_range, &validators, now.seconds()) =>
        {
            range::select(value, len, max_ranges)
        }
        _ => Selection::Whole,
    };
    match selection {
        // Content-Encoding cannot apply only to the parts (RFC 9110 §14.6): clients would decode the whole body, delimiters
        // included. So Range is ignored.
        Selection::Several(_) if coding.is_some() => {
            Response::new(Status::OK, fields, Body::File { file, range: 0..len })
        }
        Selection::Whole => Response::new(Status::OK, fields, Body::File { file, range: 0..len }),
        Selection::One(range) => {
            let content_range = Some(ContentRange::Part { range: range.clone(), complete: len });
            Response::new(Status::PARTIAL_CONTENT, Fields { content_range, ..fields }, Body::File { file, range })
        }
        Selection::Several(ranges) => {
            let body = Body::multipart(file, ranges, len, content_type, &etag);
            let content_type = Some(ContentType::ByteRanges(etag));
            Response::new(Status::PARTIAL_CONTENT, Fields { content_type, ..fields }, body)
        }
        Selection::Unsatisfiable => {
            let mut response = Response::plain(Status::RANGE_NOT_SATISFIABLE);
            response.fields.content_range = Some(ContentRange::Unsatisfied { complete: len });
            response
        }
    }
}
