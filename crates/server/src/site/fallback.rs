//! The page of an application that knows its own paths: what is sent where no file is found.

use sealion_http::accept::{names_html, takes_html};

/// Whether a request for a path without a file gets the fallback. `name`: decoded.
///
/// Going to a page does, whatever the path looks like: browsers then name HTML in Accept. So does a client that takes anything, as long
/// as the last segment has no dot: a script or picture that is missing must stay missing, or the browser would run a page for a script,
/// and caches would keep it.
pub(super) fn applies(name: &[u8], accept: Option<&[u8]>) -> bool {
    let last = name.rsplit(|octet| *octet == b'/').next().unwrap_or(name);
    names_html(accept) || (takes_html(accept) && !last.contains(&b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_expect() {
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
