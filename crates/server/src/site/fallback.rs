//! The fallback page of a single-page application, sent where no file is found.

use sealion_http::accept::{names_html, takes_html};

/// Whether a request for a path without a file gets the fallback. `name`: the decoded path.
///
/// Navigation gets it for any path: browsers then name HTML in Accept. Other clients that accept HTML get it unless the last
/// segment contains a dot. A missing script or image must stay a 404, or browsers and caches would take the page for it.
pub(super) fn applies(name: &[u8], accept: Option<&[u8]>) -> bool {
    let last = name.rsplit(|octet| *octet == b'/').next().unwrap_or(name);
    is_navigation(accept) || (takes_html(accept) && !last.contains(&b'.'))
}

/// Whether the request is a browser's navigation: it names HTML in Accept, which scripts and images do not.
pub(super) fn is_navigation(accept: Option<&[u8]>) -> bool {
    names_html(accept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn navigation_gets_the_fallback_and_assets_do_not() {
        const BROWSER: Option<&str> = Some("text/html,application/xhtml+xml,*/*;q=0.8");
        for (name, accept, expected) in [
            ("users/42", BROWSER, true),
            ("users/john.doe", BROWSER, true),
            ("users/42", Some("*/*"), true),
            ("users/42", None, true),
            ("v1.2/users", Some("*/*"), true),
            ("assets/app.1f2e.js", Some("*/*"), false),
            ("assets/app.css", Some("text/css,*/*;q=0.1"), false),
            ("logo.png", Some("image/avif,image/webp,*/*;q=0.8"), false),
            ("api/users", Some("application/json"), false),
        ] {
            assert_eq!(applies(name.as_bytes(), accept.map(str::as_bytes)), expected, "{name} {accept:?}");
        }
    }
}
