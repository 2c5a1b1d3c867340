//! Responses over plain HTTP: the redirect to HTTPS, and ACME HTTP-01 challenges.

use std::borrow::Cow;

use sealion_http::{ContentType, Fields, Request, Status, Target};

use super::names::host;

/// A response over plain HTTP, always of a few bytes.
#[derive(Debug)]
pub(crate) struct PlainResponse {
    pub(crate) status: Status,
    /// All fields but those of the connection, Date and Server.
    pub(crate) fields: Fields,
    pub(crate) content: Cow<'static, [u8]>,
}

impl PlainResponse {
    /// A response whose content is the status as text.
    pub(crate) fn of(status: Status) -> Self {
        let fields = Fields { content_type: Some(ContentType::Text("text/plain")), ..Fields::default() };
        PlainResponse { status, fields, content: status.page() }
    }

    /// The answer to a validation (RFC 8555 §8.3).
    pub(crate) fn of_challenge(authorization: String) -> Self {
        let content_type = Some(ContentType::Plain("application/octet-stream"));
        let fields = Fields { content_type, ..Fields::default() };
        PlainResponse { status: Status::OK, fields, content: Cow::Owned(authorization.into_bytes()) }
    }
}

/// Answers a request on a listener that redirects. `https_port`: the port of HTTPS. `is_ours`: whether a site has the host name.
/// `challenge`: the key authorization for an ACME token (RFC 8555 §8.3).
///
/// Strict-Transport-Security is not sent: browsers ignore it here (RFC 6797 §7.2).
pub(crate) fn answer(
    request: &Request<'_>,
    https_port: u16,
    is_ours: bool,
    challenge: impl FnOnce(&str) -> Option<String>,
) -> PlainResponse {
    let Target::Path { path, query } = request.target else { return PlainResponse::of(Status::BAD_REQUEST) };
    if let Some(token) = path.strip_prefix(CHALLENGES) {
        return match challenge(token) {
            Some(authorization) => PlainResponse::of_challenge(authorization),
            None => PlainResponse::of(Status::NOT_FOUND),
        };
    }
    // An HTTP/1.0 request without Host has no redirect target.
    let Some(authority) = request.authority else { return PlainResponse::of(Status::BAD_REQUEST) };
    if !is_ours {
        return PlainResponse::of(Status::MISDIRECTED_REQUEST);
    }
    let mut response = PlainResponse::of(Status::PERMANENT_REDIRECT);
    response.fields.location = Some(over_https(authority, https_port, path, query));
    response
}

/// The same address over HTTPS, at this port.
pub(super) fn over_https(authority: &str, port: u16, path: &str, query: Option<&str>) -> String {
    let port = if port == 443 { String::new() } else { format!(":{port}") };
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("https://{}{port}{path}{query}", host(authority))
}

/// The paths of validations (RFC 8555 §8.3).
pub(crate) const CHALLENGES: &str = "/.well-known/acme-challenge/";

#[cfg(test)]
mod tests {
    use sealion_http::request::Conditions;
    use sealion_http::{FieldSection, Method};

    use super::*;

    fn ask(target: &'static str, authority: Option<&'static str>, port: u16) -> (u16, Option<String>, usize) {
        let request = Request {
            method: Method::Get,
            target: Target::from_origin_form(target).unwrap(),
            raw_target: target,
            authority,
            conditions: Conditions::default(),
            fields: FieldSection::default(),
        };
        let is_ours = authority != Some("other.example");
        let answer = answer(&request, port, is_ours, |token| (token == "abc").then(|| "abc.key".to_owned()));
        (answer.status.code(), answer.fields.location, answer.content.len())
    }

    #[test]
    fn redirects_to_https_and_challenges() {
        for (target, authority, port, status, location) in [
            ("/", Some("example.org"), 443, 308, Some("https://example.org/")),
            ("/a%20b?c=d", Some("example.org:80"), 443, 308, Some("https://example.org/a%20b?c=d")),
            ("/a", Some("example.org:8080"), 8443, 308, Some("https://example.org:8443/a")),
            ("//evil", Some("[::1]:80"), 443, 308, Some("https://[::1]//evil")),
            ("/a", Some("other.example"), 443, 421, None),
            ("/a", None, 443, 400, None),
            ("/.well-known/acme-challenge/def", Some("example.org"), 443, 404, None),
            ("/.well-known/other", Some("example.org"), 443, 308, Some("https://example.org/.well-known/other")),
        ] {
            let (got, to, _) = ask(target, authority, port);
            assert_eq!((got, to.as_deref()), (status, location), "{target} {authority:?}");
        }
        assert_eq!(ask("/.well-known/acme-challenge/abc", None, 443), (200, None, 7));
    }
}
