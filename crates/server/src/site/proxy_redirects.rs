//! Location and cookies of responses, where the application knows neither the client's host nor the prefix that is left out.

use http::header::{self, HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The treatment of Location and of the cookies of responses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Redirects {
    /// They are sent as the application wrote them.
    #[default]
    Pass,
    /// A Location that names a server of the upstream, or the client's host, becomes a path, and has the prefix that was left out; so has the
    /// path of a cookie. The domain of a cookie that names a server is left out.
    Rewrite,
}

/// A beginning of a text, and its replacement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replacement {
    /// Beginning that is replaced.
    pub from: String,
    /// The text in its place.
    pub to: String,
}

/// How the fields of answers are changed for clients.
#[derive(Debug)]
pub(super) enum Rewriting {
    /// By the rule's changes to paths and hosts.
    ByRule(Rewriter),
    /// By texts of the configuration.
    Replace(Replacements),
}

impl Rewriting {
    /// `client`: the host that was asked for.
    pub(super) fn rewrite(&self, fields: &mut HeaderMap, client: Option<&str>) {
        match self {
            Rewriting::ByRule(rewriter) => {
                change(fields, |location| rewriter.location(location, client), |cookie| Some(rewriter.cookie(cookie)));
            }
            Rewriting::Replace(own) => change(fields, |location| own.location(location), |cookie| own.cookie(cookie)),
        }
    }
}

/// Changes Location, Content-Location and the cookies of a response. `None`: a value stays as it is.
fn change(fields: &mut HeaderMap, location: impl Fn(&str) -> Option<String>, cookie: impl Fn(&str) -> Option<String>) {
    for name in [header::LOCATION, header::CONTENT_LOCATION] {
        let changed = fields.get(&name).and_then(|value| location(value.to_str().ok()?));
        if let Some(value) = changed.and_then(|location| HeaderValue::try_from(location).ok()) {
            fields.insert(name, value);
        }
    }
    if fields.contains_key(header::SET_COOKIE) {
        for own in fields.iter_mut().filter(|(name, _)| *name == header::SET_COOKIE).map(|(_, own)| own) {
            let changed = own.to_str().ok().and_then(&cookie);
            if let Some(value) = changed.and_then(|text| HeaderValue::try_from(text).ok()) {
                *own = value;
            }
        }
    }
}

/// Beginnings of Locations, and parts of cookies.
#[derive(Debug)]
pub(super) struct Replacements {
    pub(super) locations: Vec<Replacement>,
    pub(super) cookie_paths: Vec<Replacement>,
    /// Whole domains.
    pub(super) cookie_domains: Vec<Replacement>,
    pub(super) cookie_attributes: Vec<String>,
}

impl Replacements {
    pub(super) fn is_empty(&self) -> bool {
        self.locations.is_empty() && self.leaves_cookies()
    }

    fn leaves_cookies(&self) -> bool {
        self.cookie_paths.is_empty() && self.cookie_domains.is_empty() && self.cookie_attributes.is_empty()
    }

    fn location(&self, location: &str) -> Option<String> {
        let changed = replaced(&self.locations, location)?;
        if !changed.starts_with('/') {
            return Some(changed);
        }
        // A path of two slashes would be a host.
        let path = changed.trim_start_matches('/');
        let (path, query) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
        Some(format!("/{}{query}", utf8_percent_encode(path, READ_BY_BROWSERS)))
    }

    fn cookie(&self, cookie: &str) -> Option<String> {
        if self.leaves_cookies() {
            return None;
        }
        // Their names say that they are for the host and its root (RFC 6265bis §4.1.3).
        let is_of_host = cookie.trim_start().starts_with("__Host-");
        let mut parts = cookie.split(';');
        let mut changed = parts.next().unwrap_or_default().to_owned();
        for own in parts {
            let (name, value) =
                own.split_once('=').map_or((own.trim(), ""), |(name, value)| (name.trim(), value.trim()));
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            let name_of = |attribute: &String| is(attribute.split('=').next().unwrap_or_default());
            if self.cookie_attributes.iter().any(name_of) {
                continue;
            }
            if let Some(path) = replaced(&self.cookie_paths, value).filter(|_| is("path") && !is_of_host) {
                changed.push_str(&format!("; Path={path}"));
            } else if let Some(to) = self.domain(value).filter(|_| is("domain")) {
                changed.push_str(&if to.is_empty() { String::new() } else { format!("; Domain={to}") });
            } else {
                changed.push_str(&format!(";{own}"));
            }
        }
        self.cookie_attributes.iter().for_each(|attribute| changed.push_str(&format!("; {attribute}")));
        Some(changed)
    }

    /// The domain in place of another.
    fn domain(&self, domain: &str) -> Option<&str> {
        let domain = domain.strip_prefix('.').unwrap_or(domain);
        let own = self.cookie_domains.iter().find(|own| own.from.trim_start_matches('.').eq_ignore_ascii_case(domain));
        own.map(|own| own.to.as_str())
    }
}

/// A text with another beginning, by the first replacement that fits.
fn replaced(replacements: &[Replacement], text: &str) -> Option<String> {
    replacements.iter().find_map(|own| Some(format!("{}{}", own.to, text.strip_prefix(&own.from)?)))
}

/// How Locations and cookies follow the rule's changes to paths.
#[derive(Debug)]
pub(super) struct Rewriter {
    /// Hosts with ports that mean the application, in lower case.
    pub(super) authorities: Vec<String>,
    /// The prefix that was left out: with a slash before each segment, and none at the end.
    pub(super) prefix: String,
    /// The prefix that replaced it, in the same form.
    pub(super) to_prefix: String,
}

impl Rewriter {
    /// `None`: it stays as it is.
    fn location(&self, location: &str, client: Option<&str>) -> Option<String> {
        let path = match location.split_once("://") {
            Some(("http" | "https", rest)) => {
                let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
                let is_own = |own: &str| own.eq_ignore_ascii_case(authority);
                if !self.authorities.iter().any(|own| is_own(own)) && !client.is_some_and(is_own) {
                    return None;
                }
                path
            }
            // `//host` is another host.
            _ if location.starts_with('/') && !location.starts_with("//") => location,
            _ => return None,
        };
        // A path of two slashes would be a host.
        let path = self.forwarded(path)?.trim_start_matches('/');
        let (path, query) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
        Some(format!("{}/{}{query}", self.prefix, utf8_percent_encode(path, READ_BY_BROWSERS)))
    }

    /// A path of the application without the prefix that was put before it. `None`: no client can ask for it.
    fn forwarded<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&self.to_prefix)
            .filter(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']) || self.to_prefix.is_empty())
    }

    /// The path of a cookie for clients. `None`: the application means paths that no client can ask for.
    fn cookie_path(&self, path: &str) -> Option<String> {
        let is_above =
            self.to_prefix.strip_prefix(path.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'));
        let path = match self.forwarded(path) {
            Some(path) if path != "/" => path,
            Some(_) => "",
            None if is_above => "",
            None => return None,
        };
        Some(if path.is_empty() && self.prefix.is_empty() { "/".to_owned() } else { format!("{}{path}", self.prefix) })
    }

    fn cookie(&self, cookie: &str) -> String {
        // Their names say that they are for the host and its root (RFC 6265bis §4.1.3).
        let is_of_host = cookie.trim_start().starts_with("__Host-");
        let mut attributes = cookie.split(';');
        let mut rewritten = attributes.next().unwrap_or_default().to_owned();
        for attribute in attributes {
            let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            let (name, value) = (name.trim(), value.trim());
            if name.eq_ignore_ascii_case("domain") {
                let domain = value.trim_start_matches('.');
                let host_of =
                    |authority: &str| authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_owned();
                if self.authorities.iter().any(|own| host_of(own).eq_ignore_ascii_case(domain)) {
                    continue;
                }
            }
            if name.eq_ignore_ascii_case("path")
                && !is_of_host
                && value.starts_with('/')
                && let Some(path) = self.cookie_path(value)
            {
                rewritten.push_str(&format!("; Path={path}"));
                continue;
            }
            rewritten.push(';');
            rewritten.push_str(attribute);
        }
        rewritten
    }
}

/// Characters that browsers take for a slash or leave out: `/\host` and a tab between two slashes name a host as `//host` does
/// (<https://url.spec.whatwg.org/#concept-basic-url-parser>).
const READ_BY_BROWSERS: &AsciiSet = &CONTROLS.add(b' ').add(b'\\');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_of_the_application_become_paths_with_the_prefix() {
        let with = |prefix: &str| Rewriter {
            authorities: vec!["10.0.0.7:3000".to_owned(), "app.internal".to_owned()],
            prefix: prefix.to_owned(),
            to_prefix: String::new(),
        };
        let client = Some("example.org");
        for (location, without, prefixed) in [
            ("http://10.0.0.7:3000/login?a=1", Some("/login?a=1"), Some("/api/login?a=1")),
            ("https://App.Internal", Some("/"), Some("/api/")),
            ("https://app.internal?x", Some("/?x"), Some("/api/?x")),
            ("https://example.org/x", Some("/x"), Some("/api/x")),
            ("/x//y", Some("/x//y"), Some("/api/x//y")),
            ("http://app.internal//evil.example/", Some("/evil.example/"), Some("/api/evil.example/")),
            // Browsers read backslashes as slashes, and leave out tabs and newlines.
            ("http://app.internal/\\evil.example/", Some("/%5Cevil.example/"), Some("/api/%5Cevil.example/")),
            ("http://app.internal//\\evil.example/", Some("/%5Cevil.example/"), Some("/api/%5Cevil.example/")),
            ("http://app.internal/\t/evil.example/", Some("/%09/evil.example/"), Some("/api/%09/evil.example/")),
            ("http://app.internal/\t\\evil.example/", Some("/%09%5Cevil.example/"), Some("/api/%09%5Cevil.example/")),
            ("http://app.internal/ /evil.example/", Some("/%20/evil.example/"), Some("/api/%20/evil.example/")),
            ("http://app.internal/\n/evil.example/", Some("/%0A/evil.example/"), Some("/api/%0A/evil.example/")),
            ("/\\evil.example/", Some("/%5Cevil.example/"), Some("/api/%5Cevil.example/")),
            ("/\t/evil.example/", Some("/%09/evil.example/"), Some("/api/%09/evil.example/")),
            ("http://app.internal\\@evil.example/", None, None),
            ("http://app.internal?/\\x", Some("/?/\\x"), Some("/api/?/\\x")),
            ("//evil.example/", None, None),
            ("https://other.example/x", None, None),
            ("http://10.0.0.7:3000@other.example/", None, None),
            ("x/y", None, None),
            ("?x", None, None),
        ] {
            assert_eq!(with("").location(location, client).as_deref(), without, "{location}");
            assert_eq!(with("/api").location(location, client).as_deref(), prefixed, "{location}");
        }
    }

    #[test]
    fn beginnings_are_replaced() {
        let replacement = |from: &str, to: &str| Replacement { from: from.to_owned(), to: to.to_owned() };
        let own = Replacements {
            locations: vec![
                replacement("http://app.internal/moved", "https://other.example/"),
                replacement("http://app.internal/", "/app/"),
                replacement("http://root.internal", "/"),
            ],
            cookie_paths: vec![replacement("/", "/app/")],
            cookie_domains: Vec::new(),
            cookie_attributes: Vec::new(),
        };
        for (location, expected) in [
            ("http://app.internal/x?y", Some("/app/x?y")),
            ("http://app.internal/moved/x", Some("https://other.example//x")),
            ("http://root.internal/evil.example/", Some("/evil.example/")),
            ("http://root.internal//\\evil.example/", Some("/%5Cevil.example/")),
            ("/x", None),
            ("http://app.internal.evil.example/", None),
        ] {
            assert_eq!(own.location(location).as_deref(), expected, "{location}");
        }
        for (cookie, expected) in [
            ("a=1; Path=/x; Secure", Some("a=1; Path=/app/x; Secure")),
            ("path=/; path=/", Some("path=/; Path=/app/")),
            ("a=1", Some("a=1")),
            ("__Host-a=1; Path=/; Secure", Some("__Host-a=1; Path=/; Secure")),
        ] {
            assert_eq!(own.cookie(cookie).as_deref(), expected, "{cookie}");
        }
    }

    #[test]
    fn cookies_have_the_prefix_in_their_path_and_no_domain_of_the_server() {
        let rewriter = Rewriter {
            authorities: vec!["app.internal:3000".to_owned()],
            prefix: "/api".to_owned(),
            to_prefix: String::new(),
        };
        for (cookie, expected) in [
            ("a=1", "a=1"),
            ("a=1; Path=/", "a=1; Path=/api"),
            ("a=1;path=/x; Secure", "a=1; Path=/api/x; Secure"),
            ("a=1; Domain=app.internal; HttpOnly", "a=1; HttpOnly"),
            ("a=1; domain=.APP.internal", "a=1"),
            ("a=1; Domain=example.org; Path=x", "a=1; Domain=example.org; Path=x"),
            ("__Host-a=1; Path=/; Secure", "__Host-a=1; Path=/; Secure"),
        ] {
            assert_eq!(rewriter.cookie(cookie), expected);
        }
    }

    #[test]
    fn what_was_put_before_the_path_is_left_out_again() {
        let with = |prefix: &str| Rewriter {
            authorities: vec!["app.internal".to_owned()],
            prefix: prefix.to_owned(),
            to_prefix: "/app/v1".to_owned(),
        };
        for (location, without, prefixed) in [
            ("http://app.internal/app/v1/x?y", Some("/x?y"), Some("/api/x?y")),
            ("/app/v1", Some("/"), Some("/api/")),
            ("/app/v1?x", Some("/?x"), Some("/api/?x")),
            ("/app/v1//evil.example/", Some("/evil.example/"), Some("/api/evil.example/")),
            // Not asked for through this rule.
            ("/app/v10", None, None),
            ("/app/", None, None),
            ("/", None, None),
        ] {
            assert_eq!(with("").location(location, None).as_deref(), without, "{location}");
            assert_eq!(with("/api").location(location, None).as_deref(), prefixed, "{location}");
        }
        for (cookie, without, prefixed) in [
            ("a=1; Path=/", "a=1; Path=/", "a=1; Path=/api"),
            ("a=1; Path=/app/", "a=1; Path=/", "a=1; Path=/api"),
            ("a=1; Path=/app/v1", "a=1; Path=/", "a=1; Path=/api"),
            ("a=1; Path=/app/v1/", "a=1; Path=/", "a=1; Path=/api"),
            ("a=1; Path=/app/v1/x", "a=1; Path=/x", "a=1; Path=/api/x"),
            ("a=1; Path=/app/v10", "a=1; Path=/app/v10", "a=1; Path=/app/v10"),
            ("a=1; Path=/other", "a=1; Path=/other", "a=1; Path=/other"),
        ] {
            assert_eq!(with("").cookie(cookie), without);
            assert_eq!(with("/api").cookie(cookie), prefixed);
        }
    }

    #[test]
    fn cookies_get_other_domains_and_attributes() {
        let own = Replacements {
            locations: Vec::new(),
            cookie_paths: vec![Replacement { from: "/".to_owned(), to: "/app/".to_owned() }],
            cookie_domains: vec![
                Replacement { from: "app.internal".to_owned(), to: String::new() },
                Replacement { from: "b.internal".to_owned(), to: "b.example".to_owned() },
            ],
            cookie_attributes: vec!["Secure".to_owned(), "SameSite=Lax".to_owned()],
        };
        for (cookie, expected) in [
            ("a=1", "a=1; Secure; SameSite=Lax"),
            ("a=1; Path=/x; HttpOnly", "a=1; Path=/app/x; HttpOnly; Secure; SameSite=Lax"),
            ("a=1; Domain=.App.internal; secure", "a=1; Secure; SameSite=Lax"),
            ("a=1; domain=b.internal; samesite=none", "a=1; Domain=b.example; Secure; SameSite=Lax"),
            ("__Host-a=1; Path=/; Secure", "__Host-a=1; Path=/; Secure; SameSite=Lax"),
            ("a=secure; Domain=c.example", "a=secure; Domain=c.example; Secure; SameSite=Lax"),
        ] {
            assert_eq!(own.cookie(cookie).as_deref(), Some(expected), "{cookie}");
        }
    }
}
