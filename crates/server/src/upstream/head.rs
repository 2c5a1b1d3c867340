//! The fields that pass from one side to the other: what belongs to one connection is dropped (RFC 9110 §7.6.1), and what tells the server of
//! the client is made here.

use std::net::IpAddr;
use std::sync::LazyLock;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sealion_http::{ExtraFields, Fields, HOP_BY_HOP, Request};

/// What the server learns of the connection that a request came by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hop<'a> {
    /// The other end of the connection; `None`: a Unix socket.
    pub(crate) remote: Option<IpAddr>,
    /// Whether that is a trusted proxy, whose fields are passed on.
    pub(crate) is_trusted: bool,
    /// The client, as a trusted proxy names it.
    pub(crate) client: Option<IpAddr>,
    /// `https` or `http`.
    pub(crate) scheme: &'static str,
    /// The host that was asked for.
    pub(crate) host: Option<&'a str>,
}

/// Fields that are made here. Servers that follow CGI read `_` as `-`, so that neither spelling passes.
const MADE_HERE: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "x-request-id"];

/// What this process adds to CDN-Loop (RFC 8586).
static LOOP_ID: LazyLock<String> = LazyLock::new(|| format!("sealion-{}", request_id()));

/// Whether a request has passed here before.
pub(crate) fn is_loop(request: &Request<'_>) -> bool {
    let is_own = |line: &[u8]| memchr::memmem::find(line, LOOP_ID.as_bytes()).is_some();
    request.fields.all("cdn-loop").any(is_own)
}

/// Whether a field belongs to one connection. `name`: in lower case.
pub(crate) fn is_hop_by_hop(name: &str) -> bool {
    HOP_BY_HOP.contains(&name)
}

/// Whether servers that follow CGI take two names in lower case for one: they read `_` as `-`.
pub(crate) fn is_same_by_cgi(one: &str, other: &str) -> bool {
    let dashes = |octet: u8| if octet == b'_' { b'-' } else { octet };
    one.bytes().map(dashes).eq(other.bytes().map(dashes))
}

fn is_made_here(name: &str) -> bool {
    MADE_HERE.iter().any(|own| is_same_by_cgi(own, name))
}

/// Whether a field may be a trailer: none that frames, routes, selects, authenticates or describes content (RFC 9110 §6.5.1), and none that is
/// made here. `name`: in lower case.
fn may_be_trailer(name: &str) -> bool {
    const WITH_A_MEANING_BEFORE: [&str; 17] = [
        "accept-ranges",
        "age",
        "authorization",
        "cache-control",
        "cdn-loop",
        "content-encoding",
        "content-range",
        "content-type",
        "cookie",
        "host",
        "location",
        "max-forwards",
        "pragma",
        "range",
        "set-cookie",
        "vary",
        "www-authenticate",
    ];
    let is_same = |own: &&str| is_same_by_cgi(own, name);
    let is_one = WITH_A_MEANING_BEFORE.iter().chain(&HOP_BY_HOP).any(is_same);
    !is_one && !is_made_here(name) && !name.starts_with("if-") && !name.starts_with("if_")
}

/// The trailers of a request as a server gets them.
pub(super) fn trailers_of_request(mut fields: HeaderMap, guarded: &[HeaderName]) -> HeaderMap {
    let is_dropped = |name: &HeaderName| {
        !may_be_trailer(name.as_str()) || guarded.iter().any(|own| is_same_by_cgi(own.as_str(), name.as_str()))
    };
    let dropped: Vec<_> = fields.keys().filter(|name| is_dropped(name)).cloned().collect();
    for name in dropped {
        fields.remove(name);
    }
    fields
}

/// The trailers of an answer as the client gets them. `None`: there are none.
pub(super) fn trailers_of_answer(fields: &HeaderMap) -> Option<Box<ExtraFields>> {
    let mut passed = ExtraFields::default();
    for (name, value) in fields.iter().filter(|(name, _)| may_be_trailer(name.as_str())) {
        passed.add_octets(name.as_str(), value.as_bytes());
    }
    (!passed.is_empty()).then(|| Box::new(passed))
}

/// Whether the client takes trailers (RFC 9110 §10.1.4).
pub(crate) fn takes_trailers(request: &Request<'_>) -> bool {
    let members = request.fields.all("te").flat_map(|line| line.split(|octet| *octet == b','));
    members.into_iter().any(|member| member.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// The members of Connection, in lower case.
fn named_by_connection<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let members = values.flat_map(|value| value.split(|octet| *octet == b','));
    members.map(|member| String::from_utf8_lossy(member.trim_ascii()).to_ascii_lowercase()).collect()
}

/// The fields of a request as the server gets them, without Host.
pub(crate) fn request_fields(request: &Request<'_>, hop: &Hop<'_>) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(24);
    let named = named_by_connection(request.fields.all("connection"));
    for (name, value) in request.fields.iter() {
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else { continue };
        let lower = name.as_str();
        let is_of_connection = HOP_BY_HOP.iter().chain(&["host"]).any(|own| is_same_by_cgi(own, lower));
        let is_dropped = is_of_connection || is_made_here(lower);
        if !is_dropped && !named.iter().any(|other| other == lower) {
            fields.append(name, value);
        }
    }
    hop.add(request, &mut fields);
    fields
}

impl Hop<'_> {
    fn add(&self, request: &Request<'_>, fields: &mut HeaderMap) {
        let text = |address: Option<IpAddr>| address.map(|address| address.to_canonical().to_string());
        let remote = text(self.remote);
        let given = |name: &str| {
            let lines = request.fields.all(name).filter(|_| self.is_trusted);
            lines.filter_map(|line| std::str::from_utf8(line).ok()).collect::<Vec<_>>().join(", ")
        };
        let mut set = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::try_from(value)
                && !value.is_empty()
            {
                fields.insert(HeaderName::from_static(name), value);
            }
        };
        let or = |given: String, own: &str| if given.is_empty() { own.to_owned() } else { given };
        set("x-forwarded-for", list(given("x-forwarded-for"), remote.as_deref()));
        set("x-forwarded-proto", or(given("x-forwarded-proto"), self.scheme));
        set("x-forwarded-host", or(given("x-forwarded-host"), self.host.unwrap_or_default()));
        if let Some(client) = text(self.client) {
            set("x-real-ip", client);
        }
        set("forwarded", list(given("forwarded"), Some(&self.element(remote.as_deref()))));
        let before: Vec<_> = request.fields.all("cdn-loop").map(String::from_utf8_lossy).collect();
        set("cdn-loop", list(before.join(", "), Some(&LOOP_ID)));
        let id = given("x-request-id");
        set("x-request-id", if is_request_id(&id) { id } else { request_id() });
    }

    /// The element of Forwarded (RFC 7239 §4).
    fn element(&self, remote: Option<&str>) -> String {
        let node = match (self.remote, remote) {
            (Some(address), Some(text)) if address.to_canonical().is_ipv6() => format!("\"[{text}]\""),
            (_, Some(text)) => text.to_owned(),
            _ => "unknown".to_owned(),
        };
        let host = match self.host {
            Some(host) if !host.contains(['"', '\\']) => format!(";host=\"{host}\""),
            _ => String::new(),
        };
        format!("for={node}{host};proto={}", self.scheme)
    }
}

/// Appends to a list (RFC 9110 §5.6.1).
fn list(given: String, own: Option<&str>) -> String {
    match own {
        None => given,
        Some(own) if given.is_empty() => own.to_owned(),
        Some(own) => format!("{given}, {own}"),
    }
}

/// Whether an identifier that a trusted proxy gave is passed on: it is written to logs.
fn is_request_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-_.:=/+".contains(&octet))
}

/// 128 random bits.
fn request_id() -> String {
    let mut bits = [0; 16];
    match aws_lc_rs::rand::fill(&mut bits) {
        Ok(()) => format!("{:032x}", u128::from_ne_bytes(bits)),
        Err(_) => String::new(),
    }
}

/// The fields of an answer as the client gets them.
pub(crate) fn response_fields(answer: &HeaderMap) -> Fields {
    let named = named_by_connection(answer.get_all(header::CONNECTION).iter().map(HeaderValue::as_bytes));
    let mut extra = ExtraFields::default();
    for (name, value) in answer {
        let name = name.as_str();
        if !is_hop_by_hop(name) && !named.iter().any(|other| other == name) {
            extra.add_octets(name, value.as_bytes());
        }
    }
    Fields { forwarded: true, extra, ..Fields::default() }
}

#[cfg(test)]
mod tests {
    use sealion_http::{FieldSection, Method, Target};

    use super::*;

    fn fields(section: &[u8], is_trusted: bool) -> HeaderMap {
        let request = Request {
            method: Method::Get,
            target: Target::Path { path: "/", query: None },
            raw_target: "/",
            authority: Some("example.org"),
            conditions: Default::default(),
            fields: FieldSection::from_lines(section),
        };
        let address = "192.0.2.7".parse().ok();
        let hop = Hop { remote: address, is_trusted, client: address, scheme: "https", host: Some("example.org") };
        request_fields(&request, &hop)
    }

    fn value<'a>(fields: &'a HeaderMap, name: &str) -> &'a str {
        fields.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[test]
    fn fields_of_the_connection_are_dropped_with_all_that_connection_names() {
        let found = fields(
            b"Host: a\r\nConnection: close, X-One\r\nconnection: x-two\r\nX-One: 1\r\nX-Two: 2\r\nX-Three: 3\r\nTE: trailers\r\n\
              Transfer-Encoding: chunked\r\nUpgrade: h2c\r\nKeep-Alive: 1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n",
            false,
        );
        let mut names: Vec<_> = found.keys().map(HeaderName::as_str).filter(|name| *name != "cdn-loop").collect();
        names.sort_unstable();
        let made =
            ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "x-request-id"];
        assert_eq!(names, [&made[..], &["x-three"]].concat());
    }

    #[test]
    fn a_client_cannot_forge_what_the_server_learns_of_it() {
        let forged = b"X-Forwarded-For: 10.0.0.1\r\nX_Forwarded_For: 10.0.0.2\r\nX-Forwarded_Proto: http\r\nForwarded: for=10.0.0.3\r\n\
                       X-Real-IP: 10.0.0.4\r\nX-Request-Id: a b\r\nConnection: x-forwarded-for\r\n";
        for is_trusted in [false, true] {
            let found = fields(forged, is_trusted);
            let expected = if is_trusted { "10.0.0.1, 192.0.2.7" } else { "192.0.2.7" };
            assert_eq!(value(&found, "x-forwarded-for"), expected);
            assert_eq!(value(&found, "x-real-ip"), "192.0.2.7");
            let own = "for=192.0.2.7;host=\"example.org\";proto=https";
            let expected = if is_trusted { format!("for=10.0.0.3, {own}") } else { own.to_owned() };
            assert_eq!(value(&found, "forwarded"), expected);
            assert_eq!(value(&found, "x-forwarded-proto"), "https");
            assert_eq!(value(&found, "x-request-id").len(), 32);
            assert!(!found.contains_key("x_forwarded_for") && !found.contains_key("x-forwarded_proto"));
        }
    }

    #[test]
    fn values_beyond_ascii_pass_in_both_directions() {
        assert_eq!(fields(b"X-A: caf\xe9\r\n", false).get("x-a").unwrap().as_bytes(), b"caf\xe9");
        let mut answer = HeaderMap::new();
        answer.insert("x-a", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        answer.append("set-cookie", HeaderValue::from_static("a=1"));
        answer.append("set-cookie", HeaderValue::from_static("b=2"));
        answer.insert("connection", HeaderValue::from_static("x-b"));
        answer.insert("x-b", HeaderValue::from_static("1"));
        answer.insert("transfer-encoding", HeaderValue::from_static("chunked"));
        let lines = response_fields(&answer).extra.lines().to_vec();
        assert_eq!(lines, b"x-a: caf\xe9\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n");
    }
}
