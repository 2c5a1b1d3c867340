//! From request to response: the order of the steps.

use std::net::IpAddr;
use std::sync::Arc;

use sealion_tls::ClientAuthId;

use crate::conditional::{self, Validators, Verdict};
use crate::errand::{Errand, Findings};
use crate::http_time::HttpTime;
use crate::limits::Refusal;
use crate::mime::ContentType;
use crate::range::{self, Selection};
use crate::request::{Method, Request, Target};
use crate::resolve::{Found, SiteFile};
use crate::response::{Body, ContentRange, Fields, Response, Status};
use crate::site::features::Exchange;
use crate::site::{Site, Sites};
use crate::target::{SitePath, Unnameable};

/// What an operator can choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerOptions {
    /// Ranges that one request may ask for; with more it gets the whole file.
    pub max_ranges: usize,
    /// Whether names that begin with a dot are served.
    pub show_dotfiles: bool,
}

impl Default for HandlerOptions {
    /// 16 ranges: GUESS, above what PDF viewers and download managers ask for at once.
    fn default() -> Self {
        HandlerOptions { max_ranges: 16, show_dotfiles: false }
    }
}

/// Whoever asks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Client<'a> {
    /// Where it comes from; `None`: it has no address.
    pub address: Option<IpAddr>,
    /// What it was asked for when it shook hands.
    pub auth: Option<&'a ClientAuthId>,
    /// Why it is to get nothing.
    pub refusal: Option<Refusal>,
}

/// Answers a request. `site`: the one of `sites` that it is for. `now` is what Date will say, `findings` what errands for this request brought.
///
/// Site, method, path, file, preconditions, range: in this order, since preconditions count only where the answer would
/// otherwise be 200 (RFC 9110 §13.2.1), and Range only after them (§14.2). What else a site has comes between them, see
/// `site/features.rs`. Whatever the answer, HEAD gets it without a body: the client would take that for the next response.
///
/// # Errors
/// Something for another thread to do first, without which there is no answer.
pub fn handle(
    request: &Request<'_>,
    sites: &Sites,
    site: Option<&Site>,
    client: Client<'_>,
    now: HttpTime,
    findings: &mut Findings,
) -> Result<Response, Errand> {
    match site {
        None => Ok(misdirected(request, sites)),
        // The connection may have been made for another site, which asked its clients for something else.
        Some(site) if site.client_auth.as_ref().is_some_and(|auth| client.auth != Some(&auth.id())) => {
            Ok(misdirected(request, sites))
        }
        Some(site) => answer(request, site, client, now, findings),
    }
}

fn misdirected(request: &Request<'_>, sites: &Sites) -> Response {
    sites.plain(Status::MisdirectedRequest).to(request.method)
}

/// Answers a request for this site.
///
/// # Errors
/// As [`handle`].
pub fn answer(
    request: &Request<'_>,
    site: &Site,
    client: Client<'_>,
    now: HttpTime,
    findings: &mut Findings,
) -> Result<Response, Errand> {
    let response = match (site.features.as_deref(), client.refusal, request.method) {
        (Some(features), ..) => Exchange { request, site, features, client, now, findings }.answer()?,
        (None, Some(refusal), _) => refusal.response(),
        (None, None, Method::Get | Method::Head) => get(request, site, now, findings)?,
        (None, None, Method::Other(_)) => Response::plain(Status::MethodNotAllowed),
        (None, None, Method::Unknown(_)) => Response::plain(Status::NotImplemented),
    };
    Ok(response.to(request.method))
}

fn get(request: &Request<'_>, site: &Site, now: HttpTime, findings: &mut Findings) -> Result<Response, Errand> {
    let options = &site.options;
    let Target::Path { path, query } = request.target else { return Ok(Response::plain(Status::BadRequest)) };
    let path = match SitePath::parse(path, options.show_dotfiles) {
        Ok(path) => path,
        Err(Unnameable::Malformed(_)) => return Ok(Response::plain(Status::BadRequest)),
        Err(Unnameable::NotFound) => return Ok(Response::plain(Status::NotFound)),
    };
    match findings.find(request, &site.files, &path)? {
        Ok(Found::File(file)) => Ok(send(request, file, options, now)),
        Ok(Found::Directory) => {
            let mut response = Response::plain(Status::MovedPermanently);
            response.fields.location = Some(path.with_slash(query));
            Ok(response)
        }
        Err(unresolved) => Ok(Response::plain(unresolved.status).because(unresolved.cause)),
    }
}

/// A file, or the part of it that is asked for, if the preconditions hold.
pub(crate) fn send(request: &Request<'_>, file: Arc<SiteFile>, options: &HandlerOptions, now: HttpTime) -> Response {
    let SiteFile { len, modified, etag, content_type, coding, varies, .. } = *file;
    // A date in the future is not to be sent (RFC 9110 §8.8.2.1).
    let modified = modified.map(|modified| if modified.seconds() > now.seconds() { now } else { modified });
    let validators = Validators { etag, modified: modified.map(|modified| modified.seconds()), varies };
    let fields = Fields { varies, last_modified: modified, etag: Some(etag), accept_ranges: true, ..Fields::default() };
    match conditional::evaluate(&request.conditions, &validators) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Response::not_modified(fields),
        Verdict::PreconditionFailed => return Response::plain(Status::PreconditionFailed),
    }
    let fields = Fields { content_type: Some(content_type), content_encoding: coding, ..fields };
    let selection = match request.conditions.range.value() {
        // Range is defined for GET alone (RFC 9110 §14.2).
        Some(value)
            if request.method == Method::Get
                && conditional::range_applies(&request.conditions.if_range, &validators, now.seconds()) =>
        {
            range::select(value, len, options.max_ranges)
        }
        _ => Selection::Whole,
    };
    match selection {
        // The coding would have to be said of the parts, for which there is no way (RFC 9110 §14.6): clients take it for that of the
        // whole body, delimiters and all. Range may be ignored.
        Selection::Several(_) if coding.is_some() => {
            Response::new(Status::Ok, fields, Body::File { file, range: 0..len })
        }
        Selection::Whole => Response::new(Status::Ok, fields, Body::File { file, range: 0..len }),
        Selection::One(range) => {
            let content_range = Some(ContentRange::Part { range: range.clone(), complete: len });
            Response::new(Status::PartialContent, Fields { content_range, ..fields }, Body::File { file, range })
        }
        Selection::Several(ranges) => {
            let body = Body::multipart(file, ranges, len, content_type, &etag);
            let content_type = Some(ContentType::ByteRanges(etag));
            Response::new(Status::PartialContent, Fields { content_type, ..fields }, body)
        }
        Selection::Unsatisfiable => {
            let mut response = Response::plain(Status::RangeNotSatisfiable);
            response.fields.content_range = Some(ContentRange::Unsatisfied { complete: len });
            response
        }
    }
}

#[cfg(test)]
#[path = "handler_tests.rs"]
mod tests;
