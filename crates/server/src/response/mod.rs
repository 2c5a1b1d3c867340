//! Responses, independent of the protocol version.

mod body;
mod cursor;
mod encoded;
mod of_file;
mod paced;
mod pipes;
mod read;

use std::io;
use std::num::NonZeroU64;

use sealion_http::{ContentType, Fields, Status};

pub(crate) use body::{Body, BodyStream, Piece, SharedBytes, Source, discard};
pub(crate) use cursor::{Cursor, Segment, SourceError};
pub(crate) use encoded::{CHECKSUMS, CodedForms, ContentEncoder, MakeEncoder};
pub(crate) use of_file::{of_coded, of_file, of_file_as, of_variant};
pub(crate) use pipes::{LeasedPipe, bound_pipes};
pub(crate) use read::read_range;

use crate::in_box::boxed;
use crate::observe::access_log::{CacheTrace, UpstreamTrace};

/// A response as produced by a site. The protocol driver adds framing, connection fields, Date and Server, and omits the body
/// if the request method or the status forbids one.
#[derive(Debug)]
pub(crate) struct Response {
    pub status: Status,
    /// All fields except the fields that the protocol driver adds.
    pub fields: Fields,
    pub body: Body,
    /// The error behind the status, for the log.
    pub cause: Option<io::Error>,
    /// The authenticated user, for the access log.
    pub user: Option<Box<str>>,
    /// The server that the request was forwarded to, for the access log.
    pub upstream: Option<Box<UpstreamTrace>>,
    /// The part of the cache in the response, for the access log.
    pub cache: Option<CacheTrace>,
    /// The stored response that the body belongs to, if a coding of it may be sent instead.
    pub coded: Option<Box<dyn CodedForms>>,
    /// Whether the access log has no line for it.
    pub is_unlogged: bool,
    /// Bytes of its content in a second, beside the limits of its site. `None`: no limit of its own.
    pub rate: Option<NonZeroU64>,
    /// Whether the client does not get it: the connection, or the stream of HTTP/2 and HTTP/3, ends without it.
    pub is_withheld: bool,
    /// The number of the route that answered. `None`: the site's root, or no site.
    pub route: Option<u32>,
    /// Whether it does not announce HTTP/3, though the listener has it.
    pub is_unannounced: bool,
    /// Whether the server of `forward_auth` gave it, to a request that may not pass.
    pub is_refusal: bool,
}

impl Response {
    #[inline]
    pub(crate) fn new(status: Status, fields: Fields, body: Body) -> Self {
        Response {
            status,
            fields,
            body,
            cause: None,
            user: None,
            upstream: None,
            cache: None,
            coded: None,
            is_unlogged: false,
            rate: None,
            is_withheld: false,
            route: None,
            is_unannounced: false,
            is_refusal: false,
        }
    }

    /// The same in memory of its own, for a response that many steps hand on: they move a pointer, and not hundreds of bytes.
    #[inline]
    pub(crate) fn boxed(status: Status, fields: Fields, body: Body) -> Box<Self> {
        boxed(|| Self::new(status, fields, body))
    }

    /// A response whose body is the status as text. 405 carries Allow (RFC 9110 §15.5.6), and 503 Retry-After.
    pub(crate) fn plain(status: Status) -> Self {
        let fields = Fields {
            content_type: Some(ContentType::Text("text/plain")),
            allow: (status == Status::METHOD_NOT_ALLOWED).then_some("GET, HEAD"),
            retry_after: (status == Status::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_SECONDS),
            ..Fields::default()
        };
        Response::new(status, fields, Body::Bytes(status.page()))
    }

    /// Attaches the error that led to the response.
    pub(crate) fn because(self, cause: Option<io::Error>) -> Self {
        Response { cause, ..self }
    }
}

/// One second: descriptors and memory are free again as soon as other responses end.
const RETRY_AFTER_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_responses_have_the_fields_their_status_requires() {
        assert_eq!(Response::plain(Status::METHOD_NOT_ALLOWED).fields.allow, Some("GET, HEAD"));
        assert_eq!(Response::plain(Status::SERVICE_UNAVAILABLE).fields.retry_after, Some(1));
        let not_found = Response::plain(Status::NOT_FOUND);
        assert_eq!((not_found.fields.allow, not_found.fields.retry_after), (None, None));
        assert_eq!(not_found.body.len(), Some(14));
    }
}
