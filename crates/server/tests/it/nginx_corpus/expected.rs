//! Idioms that are not answered as nginx answers them.

/// Each with the reason. An idiom that agrees is removed, so that the list only gets shorter.
pub(super) const EXPECTED_TO_DIFFER: &[(&str, &str)] = &[
    ("caret-before-regex", "a script that is sent as a file has the media type of PHP"),
    ("directory-without-index", "by design: 404 where nginx answers 403"),
    ("dot-segments", "by design: 400, since no client library sends such paths"),
    ("error-page-redirect", "a path with the status of a redirect is lost"),
    ("forwarded-fields", "X-Forwarded-For of untrusted clients is dropped"),
    ("gitea-uri", "a slash that the client encoded reaches the server decoded, which is named"),
    ("hsts-without-tls", "by design: HSTS is not sent without TLS, which is named"),
    ("jenkins", "the server gets one slash where nginx sends the two that the rewrite makes"),
    ("realm-by-network", "a realm by a table is closed, which is named"),
];
