//! The responses that an unsafe request invalidates (RFC 9111 §4.4), and groups of responses (RFC 9875).

use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::Method;
use sfv::{BareItem, List, ListEntry, Parser};

/// The targets that the response to a request invalidates: the request's own, and those in Location and
/// Content-Location with the same authority. Each is a path with its query. Empty: the method is safe, or the response
/// is an error.
///
/// `target`: path and query of the request. Schemes are not compared: an origin behind a proxy often writes `http`.
pub fn invalidated(method: Method<'_>, status: u16, target: &str, authority: &str, fields: &HeaderMap) -> Vec<String> {
    let mut targets = Vec::new();
    if !changes_something(method, status) {
        return targets;
    }
    targets.push(target.to_owned());
    for value in [LOCATION, CONTENT_LOCATION].iter().filter_map(|name| fields.get(name)) {
        let reference = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
        if let Some(other) = resolve(reference, target, authority)
            && !targets.contains(&other)
        {
            targets.push(other);
        }
    }
    targets
}

/// The groups of a response (RFC 9875 §2). It may be invalidated together with other responses of the same origin and
/// group.
pub fn groups(fields: &HeaderMap) -> Vec<String> {
    strings(fields, &HeaderName::from_static("cache-groups"))
}

/// The groups whose responses of the same origin a response invalidates (RFC 9875 §3).
pub fn invalidated_groups(method: Method<'_>, status: u16, fields: &HeaderMap) -> Vec<String> {
    match changes_something(method, status) {
        true => strings(fields, &HeaderName::from_static("cache-group-invalidation")),
        false => Vec::new(),
    }
}

/// Whether the method is not known to be safe (RFC 9110 §9.2.1), and the response is not an error.
fn changes_something(method: Method<'_>, status: u16) -> bool {
    const SAFE: [&str; 8] = ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY"];
    !SAFE.contains(&method.as_str()) && (200..400).contains(&status)
}

/// The strings of a list (RFC 8941 §3.1). A field that cannot be parsed is ignored, as are members of other types.
fn strings(fields: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let lines: Vec<_> = fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let list: List = Parser::new(&lines.join(&b", "[..])).parse().unwrap_or_default();
    let string = |member: ListEntry| match member {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(text) => Some(text.as_str().to_owned()),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    };
    list.into_iter().filter_map(string).collect()
}

/// The path and query of a reference (RFC 3986 §5.2), if it has this authority.
fn resolve(reference: &str, target: &str, authority: &str) -> Option<String> {
    let reference = reference.split('#').next().unwrap_or_default();
    let scheme = reference.split(['/', '?']).next().and_then(|start| start.split_once(':')).map(|(scheme, _)| scheme);
    let hierarchical = match scheme {
        Some(scheme) if ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) => {
            &reference[scheme.len() + 1..]
        }
        Some(_) => return None,
        None => reference,
    };
    let (base, base_query) = split_query(target);
    let (path, query) = match hierarchical.strip_prefix("//") {
        Some(rest) => {
            let (other, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            if !is_same_authority(other, authority) {
                return None;
            }
            let (path, query) = split_query(rest);
            (if path.is_empty() { "/" } else { path }.to_owned(), query)
        }
        None if scheme.is_some() => return None,
        None => {
            let (path, query) = split_query(hierarchical);
            let directory = || &base[..base.rfind('/').map_or(0, |slash| slash + 1)];
            match path {
                "" => (base.to_owned(), query.or(base_query)),
                path if path.starts_with('/') => (path.to_owned(), query),
                path => (format!("{}{path}", directory()), query),
            }
        }
    };
    let mut resolved = without_dot_segments(&path);
    if let Some(query) = query {
        resolved.push('?');
        resolved.push_str(query);
    }
    Some(resolved)
}

fn split_query(text: &str) -> (&str, Option<&str>) {
    text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)))
}

/// Whether two authorities are equal, ignoring user information and the default ports.
fn is_same_authority(one: &str, other: &str) -> bool {
    fn host(authority: &str) -> &str {
        let host = authority.rsplit('@').next().unwrap_or(authority);
        [":443", ":80", ":"].iter().find_map(|port| host.strip_suffix(port)).unwrap_or(host)
    }
    host(one).eq_ignore_ascii_case(host(other))
}

/// Removes `.` and `..` from a path that begins with `/` (RFC 3986 §5.2.4).
fn without_dot_segments(path: &str) -> String {
    if !path.contains("/.") {
        return path.to_owned();
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::fields;

    #[test]
    fn unsafe_methods_invalidate_unless_they_fail() {
        let at = |method, status| invalidated(Method::from_token(method), status, "/a?b", "a", &HeaderMap::new());
        for method in ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH", "get"] {
            assert_eq!(at(method, 200), ["/a?b"], "{method}");
            assert_eq!(at(method, 303), ["/a?b"], "{method}");
            assert!(at(method, 404).is_empty() && at(method, 500).is_empty() && at(method, 103).is_empty(), "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "QUERY"] {
            assert!(at(method, 200).is_empty(), "{method}");
        }
    }

    #[test]
    fn references_of_the_same_authority() {
        for (reference, expected) in [
            ("/x?y", Some("/x?y")),
            ("/x#f", Some("/x")),
            ("x", Some("/dir/x")),
            ("./x/../y", Some("/dir/y")),
            ("../x", Some("/x")),
            ("../../../x", Some("/x")),
            ("..", Some("/")),
            (".", Some("/dir/")),
            ("?z", Some("/dir/page?z")),
            ("", Some("/dir/page?q")),
            ("#f", Some("/dir/page?q")),
            ("/a/./b/../c", Some("/a/c")),
            ("/a/.well-known", Some("/a/.well-known")),
            ("https://example.org/x", Some("/x")),
            ("HTTPS://EXAMPLE.org:443/x?y#z", Some("/x?y")),
            ("http://example.org", Some("/")),
            ("https://example.org?q", Some("/?q")),
            ("//example.org/x", Some("/x")),
            ("https://example.org:8443/x", None),
            ("https://user@example.org/x", Some("/x")),
            ("https://other.example/x", None),
            ("https://example.org@other.example/x", None),
            ("//other.example/x", None),
            ("https:/x", None),
            ("mailto:a@example.org", None),
            ("x:y", None),
            ("x/a:b", Some("/dir/x/a:b")),
        ] {
            assert_eq!(resolve(reference, "/dir/page?q", "example.org").as_deref(), expected, "{reference}");
        }
        assert_eq!(resolve("http://[::1]:8000/x", "/", "[::1]:8000").as_deref(), Some("/x"));
        let response = fields(&["location: /new", "content-location: /dir/page?q"]);
        let all = invalidated(Method::from_token("POST"), 201, "/dir/page?q", "example.org", &response);
        assert_eq!(all, ["/dir/page?q", "/new"]);
    }

    #[test]
    fn groups_are_strings() {
        let response = fields(&[
            "cache-groups: \"a\", \"b c\";p=1, d, (\"e\")",
            "cache-groups: \"f\"",
            "cache-group-invalidation: \"a\"",
        ]);
        assert_eq!(groups(&response), ["a", "b c", "f"]);
        assert!(groups(&fields(&["cache-groups: \"a\", ="])).is_empty());
        assert!(groups(&HeaderMap::new()).is_empty());
        let at = |method, status| invalidated_groups(Method::from_token(method), status, &response);
        assert_eq!(at("POST", 200), ["a"]);
        assert!(at("GET", 200).is_empty() && at("POST", 500).is_empty());
    }
}
