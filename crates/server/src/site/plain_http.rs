//! Responses over plain HTTP: the redirect to HTTPS, and ACME HTTP-01 challenges.

use std::borrow::Cow;

use sealion_http::{ContentType, Fields, Status};

use super::sites::host;
use crate::response::{Body, Response};

/// The answer to a validation (RFC 8555 §8.3).
pub(crate) fn of_challenge(authorization: String) -> Response {
    let content_type = Some(ContentType::Plain("application/octet-stream"));
    let fields = Fields { content_type, ..Fields::default() };
    Response::new(Status::OK, fields, Body::Bytes(Cow::Owned(authorization.into_bytes())))
}

/// The same address over HTTPS, at this port.
pub(crate) fn over_https(authority: &str, port: u16, path: &str, query: Option<&str>) -> String {
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("https://{}{port}{path}{query}", host(authority))
}

/// The paths of validations (RFC 8555 §8.3).
pub(crate) const CHALLENGES: &str = "/.well-known/acme-challenge/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_redirect_keeps_host_path_and_query() {
        for (authority, port, path, query, expected) in [
            ("example.org", 443, "/", None, "https://example.org/"),
            ("example.org:80", 443, "/a%20b", Some("c=d"), "https://example.org/a%20b?c=d"),
            ("example.org:8080", 8443, "/a", None, "https://example.org:8443/a"),
            ("[::1]:80", 443, "//evil", None, "https://[::1]//evil"),
        ] {
            assert_eq!(over_https(authority, port, path, query), expected);
        }
    }
}
