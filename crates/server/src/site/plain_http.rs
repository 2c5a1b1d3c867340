//! Responses over plain HTTP: the redirect to HTTPS, and ACME HTTP-01 challenges.

use std::borrow::Cow;

use sealion_http::{ContentType, Fields, Status};

use super::sites::host;
use crate::response::{Body, Response};

/// The response to a validation (RFC 8555 §8.3).
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

/// Whether a requested path is a path of a validation: the token is base64url (RFC 8555 §8.3), and so has no second spelling.
pub(crate) fn is_validation(path: &str) -> bool {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    path.strip_prefix(CHALLENGES).is_some_and(|token| !token.is_empty() && token.bytes().all(is_of_token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validations_have_a_token_and_nothing_else() {
        for (path, expected) in [
            ("/.well-known/acme-challenge/evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr_oA", true),
            ("/.well-known/acme-challenge/", false),
            ("/.well-known/acme-challenge/a/b", false),
            ("/.well-known/acme-challenge/..", false),
            ("/.well-known/acme-challenge/%2e%2e%2fsecret", false),
            ("/.well-known/acme-challenge/a.txt", false),
            ("//.well-known/acme-challenge/a", false),
            ("/.well-known/other/a", false),
        ] {
            assert_eq!(is_validation(path), expected, "{path}");
        }
    }

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
