//! A response, whichever protocol carries it.

mod body;
mod of_file;

use std::io;

use sealion_http::{ContentType, Fields, Status};

pub(crate) use body::{Body, BodyStream, Piece};
#[cfg(test)]
pub(crate) use body::Source;
pub(crate) use of_file::of_file;

/// A response as a site makes it. The protocol's driver adds the framing and the fields of the connection, Date and Server, and leaves the
/// body out where the request's method or the status forbids one.
#[derive(Debug)]
pub(crate) struct Response {
    /// The status.
    pub status: Status,
    /// The fields but for those of the connection, the framing, Date and Server.
    pub fields: Fields,
    /// The content.
    pub body: Body,
    /// The error behind the status, for the operator.
    pub cause: Option<io::Error>,
    /// The user who was authenticated.
    pub user: Option<Box<str>>,
}

impl Response {
    /// A response with this content.
    pub(crate) fn new(status: Status, fields: Fields, body: Body) -> Self {
        Response { status, fields, body, cause: None, user: None }
    }

    /// A response whose body names the status.
    ///
    /// 405 has Allow (RFC 9110 §15.5.6) and 503 has Retry-After.
    pub(crate) fn plain(status: Status) -> Self {
        let fields = Fields {
            content_type: Some(ContentType::Text("text/plain")),
            allow: (status == Status::METHOD_NOT_ALLOWED).then_some("GET, HEAD"),
            retry_after: (status == Status::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_SECONDS),
            ..Fields::default()
        };
        Response::new(status, fields, Body::Bytes(status.page()))
    }

    /// The same with the error that led to it.
    pub(crate) fn because(self, cause: Option<io::Error>) -> Self {
        Response { cause, ..self }
    }
}

/// Descriptors and memory are free again as soon as other responses end.
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
