//! The cache settings of a proxy rule: which responses it stores, and under which key.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::header::CONTENT_RANGE;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use sealion_cache::{CacheStatus, Forward, Lifetime, Policy};
use sealion_http::cookie::cookies;
use sealion_http::path::SitePath;
use sealion_http::{ExtraFields, FieldSection, Method, Request, Status};

use super::Store;
use super::config::{CacheRuleConfig, Query};
use super::key::{NUMBER, add_part, add_upstream, authority_of};
use super::object::Head;
use super::purge_url::{one_slash_first, origin, spelled};
use super::slices::Sliced;
use crate::observe::access_log::{CacheOutcome, CacheTrace};
use crate::placeholders::{Asked, Form, Tables, Template, Unfit};
use crate::response::Response;
use crate::upstream::{MadeHere, made_here};
use crate::values::Problems;

/// The cache of a proxy rule.
#[derive(Debug)]
pub(crate) struct CacheRule {
    pub(super) rules: Arc<Rules>,
    query: Query,
    drop_parameters: Box<[Pattern]>,
    key_headers: Box<[Box<str>]>,
    key_cookies: Box<[Box<str>]>,
    key_values: Box<[Template]>,
    tables: Arc<Tables>,
    pub(super) bypass_cookies: Box<[Pattern]>,
    pub(super) min_uses: u64,
    pub(super) ignore_request: bool,
    pub(super) status_header: bool,
    purge_from: Box<[IpNet]>,
    /// Longest content of QUERY whose response is stored; 0: none is.
    pub(super) query_content: u64,
    /// Whether requests with unsafe methods invalidate.
    pub(super) invalidates: bool,
}

/// The part of a rule that a fetch needs.
pub(super) struct Rules {
    pub(super) store: Arc<Store>,
    pub(super) policy: Policy,
    pub(super) max_object: u64,
    pub(super) finish: bool,
    /// Most variants of a URL.
    pub(super) variants: usize,
    /// Bytes of a slice, if large responses are stored in slices.
    pub(super) slice: Option<u64>,
    /// Whether No-Vary-Search counts.
    pub(super) no_vary_search: bool,
    /// Tells the rules of all configurations apart, whose responses may carry other fields.
    pub(super) number: [u8; NUMBER],
    lines: Box<Lines>,
}

/// Makes the fields that clients get from the fields of the origin, by the requested host.
pub(crate) type Lines = dyn Fn(&HeaderMap, Option<&str>) -> ExtraFields + Send + Sync;

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Rules {
    pub(super) fn head(&self, key: &[u8], status: Status, fields: HeaderMap, lifetime: Lifetime) -> Head {
        let boxed = |names: Vec<String>| names.into_iter().map(String::into_boxed_str).collect();
        let size = self.slice.filter(|_| status == Status::PARTIAL_CONTENT);
        Head {
            status,
            lines: self.lines(key, status, &fields),
            tags: boxed(sealion_cache::tags(&fields)),
            groups: boxed(sealion_cache::groups(&fields)),
            sliced: size.and_then(|size| Sliced::of(&fields, size)).map(Arc::new),
            fields: without_room(&fields),
            lifetime,
        }
    }

    /// The fields that clients get, made from the fields of the origin.
    pub(super) fn lines(&self, key: &[u8], status: Status, fields: &HeaderMap) -> ExtraFields {
        if status != Status::PARTIAL_CONTENT {
            return (self.lines)(fields, authority_of(key));
        }
        // They describe the slice, not the range that a client asks for (RFC 9530 §2).
        let mut fields = fields.clone();
        fields.remove(CONTENT_RANGE);
        fields.remove("content-digest");
        fields.remove("content-md5");
        (self.lines)(&fields, authority_of(key))
    }

    /// The request fields of clients that select among the responses of a URL. `None`: Vary has `*` or a field that identifies the client, so that
    /// no other request matches.
    pub(super) fn vary(&self, fields: &HeaderMap) -> Option<Vec<HeaderName>> {
        let mut names = sealion_cache::vary(fields, &self.policy)?;
        if names.iter().any(|name| made_here(name.as_str()) == Some(MadeHere::OfClient)) {
            return None;
        }
        // The others are made from parts of the key.
        names.retain(|name| made_here(name.as_str()).is_none());
        Some(names)
    }
}

/// The same fields in a buffer of their own: the values of a response are parts of its read buffer, which an object would keep whole.
fn without_room(fields: &HeaderMap) -> HeaderMap {
    let mut octets = Vec::with_capacity(fields.values().map(HeaderValue::len).sum());
    fields.values().for_each(|value| octets.extend_from_slice(value.as_bytes()));
    let mut octets = Bytes::from(octets);
    let own = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = HeaderValue::from_maybe_shared(octets.split_to(value.len())).expect("it was a value before");
        (name.clone(), value)
    };
    fields.iter().map(own).collect()
}

/// The fields that Connection of a request names: the server does not get them, and the key and Vary would count them.
pub(super) fn hop_by_hop<'a>(fields: FieldSection<'a>) -> impl Iterator<Item = &'a [u8]> {
    let members = fields.all("connection").flat_map(|line| line.split(|byte| *byte == b','));
    let is_usual = |member: &[u8]| {
        member.is_empty() || [&b"close"[..], b"keep-alive"].iter().any(|usual| member.eq_ignore_ascii_case(usual))
    };
    members.map(<[u8]>::trim_ascii).filter(move |member| !is_usual(member))
}

impl CacheRuleConfig {
    /// `lines`: makes the fields that clients get.
    pub(crate) fn build(
        &self,
        store: Option<&Arc<Store>>,
        lines: Box<Lines>,
        (span, key): (&Range<usize>, &str),
        tables: &Arc<Tables>,
        problems: &mut Problems,
    ) -> Option<CacheRule> {
        let policy = self.policy(key, problems);
        let Some(store) = store else {
            let what = "needs a directory: add [cache] with directories = [\"/var/cache/sealion\"]";
            problems.add(span, key, what);
            return None;
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        // As the names of parameters are spelled that they are compared with.
        let of_parameters = |texts: &[String]| texts.iter().map(|text| Pattern::new(&spelled(text))).collect();
        let boxed = |texts: &[String]| texts.iter().map(|text| text.to_ascii_lowercase().into_boxed_str()).collect();
        Some(CacheRule {
            rules: Arc::new(Rules {
                store: Arc::clone(store),
                policy,
                max_object: self.max_object.0,
                finish: self.finish,
                variants: self.variants.usize(),
                slice: self.slice(key, problems),
                no_vary_search: self.no_vary_search,
                number: NEXT.fetch_add(1, Ordering::Relaxed).to_ne_bytes(),
                lines,
            }),
            query: self.query,
            drop_parameters: of_parameters(&self.drop_parameters),
            key_headers: boxed(&self.key_headers),
            key_cookies: self.key_cookies.iter().map(|name| name.as_str().into()).collect(),
            key_values: self.values(tables, key, problems),
            tables: Arc::clone(tables),
            bypass_cookies: patterns(&self.bypass_cookies),
            min_uses: self.min_uses.get(),
            ignore_request: self.ignore_request,
            status_header: self.status_header,
            purge_from: self.purgers(key, problems),
            query_content: self.query_content(key, problems),
            invalidates: self.invalidate,
        })
    }
}

impl CacheRule {
    /// Tells in Cache-Status how the cache treated a request whose response is not from the cache.
    pub(crate) fn add_status(&self, response: &mut Response, trace: &CacheTrace) {
        if !self.status_header {
            return;
        }
        let why = match (trace.outcome, trace.reason) {
            (CacheOutcome::Bypass, Some("method")) => Forward::Method,
            (CacheOutcome::Bypass, _) => Forward::Bypass,
            _ => Forward::UriMiss,
        };
        let status =
            CacheStatus::Forwarded { why, status: None, stored: false, collapsed: false, detail: trace.reason };
        response.fields.extra.add_with("Cache-Status", |out| status.write(out));
    }

    /// Whether a client may purge.
    pub(crate) fn may_purge(&self, address: Option<IpAddr>) -> bool {
        address.is_some_and(|address| {
            let address = address.to_canonical();
            self.purge_from.iter().any(|network| network.contains(&address))
        })
    }

    /// The query as keys have it. The server gets the same, so that no part outside the key changes the response stored under it.
    pub(crate) fn query_in_key<'q>(&self, query: Option<&'q str>) -> Option<Cow<'q, str>> {
        match self.query(query) {
            None => query.map(Cow::Borrowed),
            Some(kept) => Some(kept).filter(|kept| !kept.is_empty()).map(Cow::Owned),
        }
    }

    /// The part of the query that belongs to the key. `None`: all of it, as the client wrote it.
    pub(super) fn query(&self, query: Option<&str>) -> Option<String> {
        let query = query.filter(|_| self.query != Query::Whole || !self.drop_parameters.is_empty())?;
        if self.query == Query::None {
            return Some(String::new());
        }
        // As purges compare them, whatever percent signs a client writes.
        let spelled = query.split('&').map(|parameter| (spelled(parameter), parameter));
        // `a&&b` has the parameters of `a&b`.
        let has_empty = self.query != Query::Sorted;
        let is_kept = |(spelled, _): &(String, &str)| {
            if spelled.is_empty() {
                return has_empty;
            }
            let name = spelled.split('=').next().unwrap_or_default();
            !self.drop_parameters.iter().any(|pattern| pattern.matches(name.as_bytes()))
        };
        let mut parameters: Vec<_> = spelled.filter(is_kept).collect();
        if self.query == Query::Sorted {
            parameters.sort_unstable();
        }
        Some(parameters.into_iter().map(|(_, parameter)| parameter).collect::<Vec<_>>().join("&"))
    }

    /// Path and query as keys have them, or a URL with them.
    pub(crate) fn as_in_key(&self, target: &str) -> String {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let (origin, path) = if path.starts_with('/') { ("", path) } else { path.split_at(origin(path).len()) };
        let path = one_slash_first(path);
        match self.query_in_key(query) {
            None => format!("{origin}{path}"),
            Some(query) => format!("{origin}{path}?{query}"),
        }
    }

    /// Appends the key of a request. `target`: with the query of [`Self::query`].
    pub(super) fn key(
        &self,
        key: &mut Vec<u8>,
        request: &Request<'_>,
        scheme: &str,
        is_trusted: bool,
        target: Targeted<'_>,
    ) {
        match scheme {
            // Bytes whose number is known cost no call.
            "https" => key.extend_from_slice(b"https://"),
            _ => [scheme.as_bytes(), b"://"].into_iter().for_each(|part| key.extend_from_slice(part)),
        }
        let host = key.len();
        key.extend_from_slice(request.authority.unwrap_or_default().as_bytes());
        key[host..].make_ascii_lowercase();
        key.extend_from_slice(target.path.as_bytes());
        if let Some(query) = target.query {
            key.push(b'?');
            key.extend_from_slice(query.as_bytes());
        }
        // Another upstream may answer for the same URL on another listener.
        add_upstream(key, target.upstream);
        if let Some(path) = target.of_script {
            // No field is called so.
            add_part(key, b"script:", path.as_bytes());
        }
        if let Some(content) = target.of_query {
            // No field is called so.
            add_part(key, b"query:", content.as_bytes());
        }
        if is_trusted {
            // The server learns these of the trusted proxy.
            for name in ["x-forwarded-host", "x-forwarded-proto"].iter().chain(&OF_PROXY) {
                request.fields.all(name).for_each(|value| add_part(key, name.as_bytes(), value));
            }
        }
        for name in &self.key_headers {
            request.fields.all(name).for_each(|value| add_part(key, name.as_bytes(), value));
        }
        if !self.key_cookies.is_empty() {
            for (name, value) in cookies(request.fields) {
                // As it is written: a server may read another spelling of it as another cookie.
                if self.key_cookies.iter().any(|own| own.as_bytes() == name.trim_ascii_end()) {
                    // No field is called so.
                    add_part(key, &[b"cookie:", name].concat(), value.unwrap_or_default());
                }
            }
        }
        if !self.key_values.is_empty() {
            self.add_values(key, request, scheme, target);
        }
    }

    /// Appends the values that belong to the key.
    fn add_values(&self, key: &mut Vec<u8>, request: &Request<'_>, scheme: &str, target: Targeted<'_>) {
        let path = SitePath::parse_forwarded(target.path).or_else(|_| SitePath::of_octets(b""));
        let Ok(path) = path else { return };
        let asked = Asked::new(request, &path, target.query, scheme == "http", &self.tables);
        for (n, value) in self.key_values.iter().enumerate() {
            // No field is called so.
            let name = format!("value:{n}");
            match value.render(&asked, Form::Plain) {
                Ok(value) => add_part(key, name.as_bytes(), &value),
                Err(Unfit) => add_part(key, format!("{name}:unfit").as_bytes(), b""),
            }
        }
    }

    /// Removes the fields that have some applications answer for another URL or method than the key says. `is_own`: whether the rule sets a
    /// field, for all clients alike.
    pub(crate) fn keep_to_key(&self, fields: &mut HeaderMap, is_trusted: bool, is_own: impl Fn(&str) -> bool) {
        let is_removed = |name: &str| {
            let is_of_url = match OF_PROXY.contains(&name) {
                true => !is_trusted,
                false => names_url(name) && made_here(name).is_none(),
            };
            is_of_url && !self.key_headers.iter().any(|own| **own == *name) && !is_own(name)
        };
        let removed: Vec<_> = fields.keys().filter(|name| is_removed(name.as_str())).cloned().collect();
        for name in removed {
            fields.remove(name);
        }
    }

    /// Why a request can neither have a stored response nor make one. `has_connection`: whether it has the field Connection.
    pub(super) fn bypass(
        &self,
        request: &Request<'_>,
        target: Targeted<'_>,
        has_connection: bool,
    ) -> Option<&'static str> {
        match () {
            () if !matches!(request.method, Method::Get | Method::Head) && target.of_query.is_none() => Some("method"),
            () if self.is_bypassed(request) => Some("cookie"),
            () if has_connection && hop_by_hop(request.fields).next().is_some() => Some(HIDES_FIELDS),
            () => None,
        }
    }

    /// Whether a cookie of the request has it bypass the cache.
    pub(super) fn is_bypassed(&self, request: &Request<'_>) -> bool {
        !self.bypass_cookies.is_empty()
            && cookies(request.fields)
                .any(|(name, _)| self.bypass_cookies.iter().any(|pattern| pattern.matches(name.trim_ascii_end())))
    }
}

/// Why a request bypasses the cache whose Connection names fields.
pub(super) const HIDES_FIELDS: &str = "connection";

/// Fields of a trusted proxy besides the fields that are made here.
const OF_PROXY: [&str; 2] = ["x-forwarded-port", "x-forwarded-prefix"];

/// Whether applications, frameworks or gateways take another scheme, host, path or method from a field than the request line has. `name`: in lower case.
fn names_url(name: &str) -> bool {
    let behind = OVERRIDING_PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    behind.is_some_and(|rest| rest.split('-').any(|word| PARTS_OF_URL.contains(&word))) || OVERRIDES.contains(&name)
}

/// Fields with such a beginning describe another request, to a proxy in front or before a rewrite. They describe its URL, if one of [`PARTS_OF_URL`] follows.
const OVERRIDING_PREFIXES: [&str; 4] = ["x-forward-", "x-forwarded-", "x-original-", "x-rewrite-"];

const PARTS_OF_URL: [&str; 16] = [
    "base", "context", "host", "https", "method", "path", "port", "prefix", "proto", "protocol", "scheme", "server",
    "ssl", "tls", "uri", "url",
];

/// Others.
const OVERRIDES: [&str; 54] = [
    "base-url",
    "cf-visitor",
    "cloudfront-forwarded-proto",
    "fastly-ssl",
    "front-end-https",
    "proxy-host",
    "proxy-url",
    "request-uri",
    "wl-proxy-ssl",
    "x-appengine-https",
    "x-arr-ssl",
    "x-backend-host",
    "x-client-scheme",
    "x-envoy-original-host",
    "x-envoy-original-method",
    "x-envoy-original-path",
    "x-forwarded",
    "x-forwarded-query",
    "x-forwarded-root",
    "x-host",
    "x-host-override",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-http-path-override",
    "x-https",
    "x-invoke-output",
    "x-invoke-path",
    "x-invoke-query",
    "x-is-https",
    "x-matched-path",
    "x-method-override",
    "x-middleware-subrequest",
    "x-ms-original-url",
    "x-nextjs-data",
    "x-now-route-matches",
    "x-path",
    "x-path-info",
    "x-proto",
    "x-proxy-host",
    "x-proxy-url",
    "x-real-host",
    "x-real-scheme",
    "x-request-scheme",
    "x-request-uri",
    "x-scheme",
    "x-script-name",
    "x-ssl",
    "x-uri",
    "x-url",
    "x-url-scheme",
    "x-vhost",
    "x-virtual-host",
    "x-waws-unencoded-url",
];

/// The target of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Targeted<'a> {
    /// The path of the URL that the server gets: with one slash at the beginning.
    pub(super) path: &'a str,
    pub(super) query: Option<&'a str>,
    /// The path that selects the script, if the script itself learns another one: the path of the request.
    pub(super) of_script: Option<&'a str>,
    /// The content of QUERY, as [`super::content_in_key`] has it.
    pub(super) of_query: Option<&'a str>,
    /// The name of the rule.
    pub(super) upstream: &'a str,
}

impl<'a> Targeted<'a> {
    /// `path`: as it is forwarded, before a rule strips its prefix.
    pub(crate) fn new(path: &'a str, query: Option<&'a str>, upstream: &'a str) -> Self {
        Targeted { path: one_slash_first(path), query, of_script: None, of_query: None, upstream }
    }

    /// The same for a request with the method QUERY. `content`: in the key.
    pub(crate) fn of_query(self, content: Option<&'a str>) -> Self {
        Targeted { of_query: content, ..self }
    }

    /// The same for a script that is found by another path.
    pub(crate) fn of_script(self, path: &'a str) -> Self {
        Targeted { of_script: Some(path), ..self }
    }
}

/// A name, or the beginning of names.
#[derive(Debug)]
pub(super) struct Pattern {
    text: Box<str>,
    is_prefix: bool,
}

impl Pattern {
    fn new(text: &str) -> Self {
        match text.strip_suffix('*') {
            Some(prefix) => Pattern { text: prefix.into(), is_prefix: true },
            None => Pattern { text: text.into(), is_prefix: false },
        }
    }

    fn matches(&self, name: &[u8]) -> bool {
        match self.is_prefix {
            true => name.starts_with(self.text.as_bytes()),
            false => name == self.text.as_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_name_another_url_are_told_from_those_that_name_a_user() {
        for name in ["x-url-scheme", "x-forwarded-ssl", "x-original-request-uri", "x-forwarded-proto-version"] {
            assert!(names_url(name), "{name}");
        }
        for name in ["x-forwarded", "x-forwarded-query", "x-invoke-query", "x-matched-path", "x-vhost"] {
            assert!(names_url(name), "{name}");
        }
        for name in ["x-country", "x-forwarded-user", "x-forwarded-client-cert", "x-original-forwarded-for"] {
            assert!(!names_url(name), "{name}");
        }
    }

    #[test]
    fn fields_of_an_object_have_octets_of_their_own() {
        let buffer = Bytes::from(b"a value, another".repeat(1000));
        let value = |range: Range<usize>| HeaderValue::from_maybe_shared(buffer.slice(range)).unwrap();
        let mut fields = HeaderMap::new();
        fields.append("x-a", value(0..7));
        fields.append("x-b", value(9..16));
        fields.append("x-a", value(9..9));
        let own = without_room(&fields);
        assert_eq!(own, fields);
        let within = buffer.as_ptr_range();
        assert!(fields.values().any(|value| within.contains(&value.as_bytes().as_ptr())));
        assert!(own.values().all(|value| value.is_empty() || !within.contains(&value.as_bytes().as_ptr())));
    }
}
