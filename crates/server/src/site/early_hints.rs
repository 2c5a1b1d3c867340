//! Early hints (RFC 8297): links to resources that a page will need, sent before the page is there.

use sealion_http::extra_fields::is_value;
use sealion_http::{Method, Request};

use crate::values::{At, Problems};

/// Validates the links. `None`: the list is empty.
pub(super) fn build(links: &[At<String>], key: &str, problems: &mut Problems) -> Option<Vec<String>> {
    for link in links.iter().filter(|link| !is_link(link)) {
        problems.add(&link.span, key, format_args!("{:?} is not a link: {EXAMPLE}", link.value));
    }
    (!links.is_empty()).then(|| links.iter().map(|link| link.value.clone()).collect())
}

/// Whether a browser navigates to a page. For other requests, such as images or scripts, it ignores early hints (HTML standard, "process early hint
/// headers"), and older clients may take 103 for the response.
pub(super) fn is_navigation(request: &Request<'_>) -> bool {
    let navigates = |mode: &[u8]| mode == b"navigate";
    request.method == Method::Get && request.fields.first("sec-fetch-mode").is_some_and(navigates)
}

const EXAMPLE: &str = "write for instance \"</app.css>; rel=preload; as=style\"";

/// Whether it has a target and a relation (RFC 8288 §3).
fn is_link(text: &str) -> bool {
    let target = text.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let has_relation = |rest: &str| rest.split(';').skip(1).any(|parameter| parameter.trim().starts_with("rel="));
    is_value(text) && target.is_some_and(|(target, rest)| !target.is_empty() && has_relation(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_target_and_a_relation() {
        for (text, expected) in [
            ("</app.css>; rel=preload; as=style", true),
            ("<https://cdn.example>;rel=preconnect;crossorigin", true),
            ("</app.css>; as=style; rel=\"preload\"", true),
            ("</app.css>", false),
            ("</app.css>; as=style", false),
            ("/app.css; rel=preload", false),
            ("<>; rel=preload", false),
            ("</a>; rel=preload\r\nSet-Cookie: a=b", false),
            ("", false),
        ] {
            assert_eq!(is_link(text), expected, "{text}");
        }
    }
}
