//! The server's own text of an error: a line for programs, a page for browsers.

use std::borrow::Cow;
use std::sync::LazyLock;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealion_http::accept::names_html;
use sealion_http::{ContentType, Status};

use crate::response::{Body, Response};

/// Replaces the line that [`Response::plain`] made by a page if the client names HTML in `accept`. Other contents stay as they are.
pub(super) fn show_as_page<'a>(response: &mut Response, accept: impl FnOnce() -> Option<&'a [u8]>) {
    let status = response.status;
    if status.code() < 400 || response.fields.forwarded {
        return;
    }
    let line = status.page();
    if !matches!(&response.body, Body::Bytes(bytes) if *bytes == line) {
        return;
    }
    let fields = &mut response.fields;
    if !fields.extra.iter().any(|(name, value)| name == "Vary" && value == b"Accept") {
        fields.extra.add("Vary", "Accept");
    }
    if !names_html(accept()) {
        return;
    }
    fields.content_type = Some(ContentType::Text("text/html"));
    fields.extra.add("Content-Security-Policy", &POLICY);
    fields.extra.add("X-Content-Type-Options", "nosniff");
    response.body = Body::Bytes(Cow::Owned(page(status, &String::from_utf8_lossy(&line)).into_bytes()));
}

/// The page of a status, without anything of the request.
fn page(status: Status, line: &str) -> String {
    let (code, line) = (status.code(), line.trim_end());
    let reason = line.split_once(' ').map_or("Error", |(_, reason)| reason);
    let what = explain(status);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{line}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1><span>{code}</span> {reason}</h1>\n<p>{what}</p>\n</main>\n</body>\n</html>\n"
    )
}

/// Advice for the visitor.
fn explain(status: Status) -> &'static str {
    match status {
        Status::NOT_FOUND => "There is no page at this address.",
        Status::UNAUTHORIZED => "This page needs a name and a password.",
        Status::FORBIDDEN => "This page is not open to you.",
        Status::TOO_MANY_REQUESTS => "Too many requests came from your address. Try again in a moment.",
        Status::SERVICE_UNAVAILABLE => "The site is not available at the moment. Try again later.",
        Status::BAD_GATEWAY | Status::GATEWAY_TIMEOUT => {
            "The application behind this site did not answer. Try again later."
        }
        _ if status.code() >= 500 => "The server could not answer this request. Try again later.",
        _ => "The server does not answer this request.",
    }
}

/// Content-Security-Policy that allows only the page's own style.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(digest::digest(&digest::SHA256, STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
});

const STYLE: &str = include_str!("error_text.css");

#[cfg(test)]
mod tests {
    use super::*;

    const BROWSER: Option<&[u8]> = Some(b"text/html,application/xhtml+xml,*/*;q=0.8");

    #[test]
    fn every_status_has_a_small_page_without_script() {
        for status in Status::NAMED.iter().filter(|status| status.code() >= 400) {
            let mut response = Response::plain(*status);
            show_as_page(&mut response, || BROWSER);
            let Body::Bytes(page) = &response.body else { panic!("{status:?}") };
            let page = std::str::from_utf8(page).unwrap();
            let line = String::from_utf8(status.page().into_owned()).unwrap();
            assert!(page.contains(&format!("<title>{}</title>", line.trim_end())), "{page}");
            assert!(page.len() < 2048 && !page.contains("<script") && page.contains(STYLE), "{page}");
            assert_eq!(response.fields.content_type, Some(ContentType::Text("text/html")));
        }
        assert!(STYLE.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn programs_get_the_line_and_other_contents_stay() {
        for accept in [None, Some(&b"*/*"[..]), Some(b"application/json")] {
            let mut response = Response::plain(Status::NOT_FOUND);
            show_as_page(&mut response, || accept);
            assert!(matches!(&response.body, Body::Bytes(bytes) if **bytes == *b"404 Not Found\n"));
            assert!(response.fields.extra.has("vary"), "caches must not send it to browsers");
        }
        let untouched = |response: Response| {
            let (before, mut after) = (format!("{response:?}"), response);
            show_as_page(&mut after, || BROWSER);
            assert_eq!(format!("{after:?}"), before);
        };
        untouched(Response::plain(Status::OK));
        untouched(Response { body: Body::Bytes(Cow::Borrowed(b"own")), ..Response::plain(Status::NOT_FOUND) });
        let mut forwarded = Response::plain(Status::NOT_FOUND);
        forwarded.fields.forwarded = true;
        untouched(forwarded);
    }
}
