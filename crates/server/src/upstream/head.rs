//! The fields that pass from one side to the other: fields of one connection are dropped (RFC 9110 §7.6.1), and fields that tell the server of
//! the client are made here.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName};
use sealion_http::{ExtraFields, FieldSection, HOP_BY_HOP, Request};

use super::lazy_fields::{LazyFields, Own, map_of_lines};
use super::proxy_header::Endpoints;
use super::similar_names::SimilarNames;
use crate::observe::traces::{Span, parse_traceparent};
use crate::values::{random_bits, write_address};

/// The connection that a request came by, as the server learns of it.
#[derive(Debug, Clone)]
pub(crate) struct Hop<'a> {
    /// The other end of the connection; `None`: a Unix socket.
    pub(crate) remote: Option<IpAddr>,
    /// Whether that is a trusted proxy, whose X-Request-Id is passed on.
    pub(crate) is_trusted: bool,
    /// Whether its X-Forwarded-Proto and X-Forwarded-Host are, too.
    pub(crate) takes_x_forwarded: bool,
    /// The client and the proxies behind it, if a trusted proxy names them.
    pub(crate) chain: Option<Arc<[IpAddr]>>,
    /// The client, as a trusted proxy names it.
    pub(crate) client: Option<IpAddr>,
    /// The ends of the client's connection.
    pub(crate) endpoints: Option<Endpoints>,
    /// `https` or `http`.
    pub(crate) scheme: &'static str,
    /// The host that was asked for.
    pub(crate) host: Option<&'a str>,
    /// The span of the request, if there is a tracer.
    pub(crate) span: Option<Arc<Span>>,
}

/// Fields that are made here. Servers that follow CGI read `_` as `-`, some `.` too, so that no spelling passes.
const MADE_HERE: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "x-request-id"];

/// Fields by which frameworks and servers (Symfony, Laminas, modules of IIS; gunicorn; middleware of Flask and Plack) replace the path of a request, or drop its
/// beginning. Guards have seen another path. By the last two, Rack and Symfony answer with X-Accel-Redirect or X-Sendfile, and with a path that the field
/// makes.
const REPLACE_PATH: [&str; 9] = [
    "x-original-url",
    "x-rewrite-url",
    "script-name",
    "path-info",
    "x-script-name",
    "x-forwarded-script-name",
    "x-traversal-path",
    "x-accel-mapping",
    "x-sendfile-type",
];

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const X_FORWARDED_HOST: &str = "x-forwarded-host";
const X_FORWARDED_PROTO: &str = "x-forwarded-proto";
const X_REAL_IP: &str = "x-real-ip";
const X_REQUEST_ID: &str = "x-request-id";
const CDN_LOOP: &str = "cdn-loop";

/// This process's own member of CDN-Loop (RFC 8586).
static LOOP_ID: LazyLock<String> = LazyLock::new(|| {
    let id = random_bits().unwrap_or_default().map(|octet| format!("{octet:02x}"));
    format!("sealion-{}", id.concat())
});

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
    let dashes = |octet: u8| if matches!(octet, b'_' | b'.') { b'-' } else { octet };
    one.len() == other.len() && one.bytes().map(dashes).eq(other.bytes().map(dashes))
}

fn replaces_path(name: &str) -> bool {
    REPLACE_PATH.iter().any(|own| is_same_by_cgi(own, name))
}

fn is_made_here(name: &str) -> bool {
    MADE_HERE.iter().any(|own| is_same_by_cgi(own, name))
}

/// The source of a field that the server gets, whatever the client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeHere {
    /// The requested host and scheme, or the field belongs to one connection.
    OfUrl,
    /// The client, or this one request.
    OfClient,
}

/// Whether a field is made here. `name`: in lower case.
pub(crate) fn made_here(name: &str) -> Option<MadeHere> {
    match name {
        "host" | "x-forwarded-host" | "x-forwarded-proto" => Some(MadeHere::OfUrl),
        "cdn-loop" | "traceparent" => Some(MadeHere::OfClient),
        _ if is_made_here(name) => Some(MadeHere::OfClient),
        _ if is_hop_by_hop(name) => Some(MadeHere::OfUrl),
        _ => None,
    }
}

/// Whether a field may be a trailer: it must not frame, route, select, authenticate or describe content (RFC 9110 §6.5.1), and must not be
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
    !is_one && !is_made_here(name) && !replaces_path(name) && !name.starts_with("if-") && !name.starts_with("if_")
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

/// The trailers of a response as the client gets them, if there are any.
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

/// The fields that Connection names, in lower case.
#[derive(Debug, Default)]
pub(super) struct NamedByConnection(
    /// Sorted, because a sender may name thousands of fields.
    Vec<String>,
);

impl NamedByConnection {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `name`: in lower case.
    pub(super) fn has(&self, name: impl AsRef<[u8]>) -> bool {
        self.0.binary_search_by(|own| own.as_bytes().cmp(name.as_ref())).is_ok()
    }
}

/// The fields that the values of Connection name.
pub(super) fn named_by_connection<'a>(values: impl Iterator<Item = &'a [u8]>) -> NamedByConnection {
    let members = values.flat_map(|value| value.split(|octet| *octet == b',')).map(<[u8]>::trim_ascii);
    let members = members.filter(|member| !member.is_empty());
    // Members that are dropped anyway need no memory.
    let others = members.filter(|member| !HOP_BY_HOP.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(member)));
    let others = others.filter(|member| !member.eq_ignore_ascii_case(b"close"));
    let mut named: Vec<_> = others.map(|member| String::from_utf8_lossy(member).to_ascii_lowercase()).collect();
    named.sort_unstable();
    named.dedup();
    NamedByConnection(named)
}

/// The trace that a request belongs to, where it has no span of this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    /// As the client sent it.
    OfClient,
    /// The client's if it is valid, and a new one otherwise.
    Made,
}

/// The fields of a request as the server gets them, without Host. They are written in one pass over the client's fields.
pub(crate) fn request_fields(request: &Request<'_>, hop: &Hop<'_>, trace: Trace) -> RequestFields {
    let mut lines = RequestLines::default();
    let named = named_by_connection(request.fields.all("connection"));
    for (name, value) in request.fields.iter() {
        let Some(name) = lines.begin(name) else { continue };
        match DROPPED.has(name) && is_dropped(name, hop.is_trusted) || named.has(name) {
            true => lines.take_back(),
            false => lines.end(value),
        }
    }
    hop.add(request, &mut lines);
    match &hop.span {
        Some(span) => lines.pass_span_on(span),
        None if trace == Trace::Made => lines.add_trace_context(),
        None => {}
    }
    RequestFields::new(lines)
}

/// Whether a field of a client is not passed on, unless Connection names it. `name`: in lower case.
fn is_dropped(name: &[u8], is_trusted: bool) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return true };
    let is_of_connection = HOP_BY_HOP.iter().chain(&["host", CDN_LOOP]).any(|own| is_same_by_cgi(own, name));
    is_of_connection || is_made_here(name) || !is_trusted && replaces_path(name)
}

/// The names that [`is_dropped`] compares.
static DROPPED: SimilarNames = SimilarNames::of(&[&HOP_BY_HOP, &["host", CDN_LOOP], &MADE_HERE, &REPLACE_PATH]);

/// The fields of a request.
pub(crate) type RequestFields = LazyFields<RequestLines>;

/// Fields as lines of a head of HTTP/1.1 (RFC 9112 §5), with names in lower case. Fields of the connection and of framing are not among them.
#[derive(Debug, Clone)]
pub(crate) struct RequestLines {
    octets: Vec<u8>,
    /// Where the line begins that is being written.
    line: usize,
}

impl Own for RequestLines {
    fn to_map(&self) -> HeaderMap {
        map_of_lines(&Bytes::copy_from_slice(&self.octets))
    }
}

impl Default for RequestLines {
    fn default() -> Self {
        RequestLines { octets: Vec::with_capacity(1024), line: 0 }
    }
}

/// Whether a byte may be in a name (RFC 9110 §5.6.2).
const fn is_of_name(byte: u8) -> bool {
    let is_mark = matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
    byte.is_ascii_alphanumeric() || is_mark
}

/// The byte in lower case; 0: no name may have it.
static LOWER: [u8; 256] = {
    let mut lower = [0; 256];
    let mut byte = 0;
    while byte < lower.len() {
        if is_of_name(byte as u8) {
            lower[byte] = (byte as u8).to_ascii_lowercase();
        }
        byte += 1;
    }
    lower
};

impl RequestLines {
    /// The lines, each with its end.
    pub(super) fn octets(&self) -> &[u8] {
        &self.octets
    }

    /// The fields, with names in lower case.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        FieldSection::from_lines(&self.octets).iter()
    }

    /// Begins a line with a name, and returns that in lower case. `None`: no field can have the name.
    fn begin(&mut self, name: &[u8]) -> Option<&[u8]> {
        self.line = self.octets.len();
        let mut is_name = !name.is_empty();
        self.octets.extend(name.iter().map(|byte| {
            let lower = LOWER[usize::from(*byte)];
            is_name &= lower != 0;
            lower
        }));
        if !is_name {
            self.take_back();
            return None;
        }
        Some(&self.octets[self.line..])
    }

    /// Ends the line that [`Self::begin`] has begun.
    fn end(&mut self, value: &[u8]) {
        self.end_with(|octets| octets.extend_from_slice(value));
    }

    /// Takes back the line that [`Self::begin`] has begun.
    fn take_back(&mut self) {
        self.octets.truncate(self.line);
    }

    /// Ends a line. A value that no field can have takes it back (RFC 9110 §5.5), wherever it came from.
    fn end_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.octets.extend_from_slice(b": ");
        let start = self.octets.len();
        write(&mut self.octets);
        // Without an early end, many bytes are compared at once.
        let is_control = |byte: u8| (byte < b' ') & (byte != b'\t') | (byte == 0x7f);
        match self.octets[start..].iter().fold(false, |found, byte| found | is_control(*byte)) {
            false => self.octets.extend_from_slice(b"\r\n"),
            true => self.take_back(),
        }
    }

    /// Adds a field. `name`: in lower case.
    fn add(&mut self, name: &str, value: &[u8]) {
        self.line = self.octets.len();
        self.octets.extend_from_slice(name.as_bytes());
        self.end(value);
    }

    /// Adds a field unless nothing is written. `name`: in lower case.
    fn make(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.line = self.octets.len();
        self.octets.extend_from_slice(name.as_bytes());
        let mut is_empty = false;
        self.end_with(|octets| {
            let start = octets.len();
            write(octets);
            is_empty = octets.len() == start;
        });
        if is_empty {
            self.take_back();
        }
    }

    /// Adds X-Forwarded-Proto to Forwarded (RFC 7239 §4) for a client that connected to this server itself. [`Hop::direct`] has checked the values.
    fn add_direct(&mut self, client: IpAddr, host: &str, scheme: &str) {
        let octets = &mut self.octets;
        let mut add = |parts: &[&str]| parts.iter().for_each(|part| octets.extend_from_slice(part.as_bytes()));
        add(&["x-forwarded-proto: ", scheme, "\r\nx-forwarded-host: ", host, "\r\nx-real-ip: "]);
        let start = octets.len();
        write_address(octets, client);
        let client = start..octets.len();
        octets.extend_from_slice(b"\r\nx-forwarded-for: ");
        octets.extend_from_within(client.clone());
        octets.extend_from_slice(b"\r\nforwarded: for=");
        octets.extend_from_within(client);
        let mut add = |parts: &[&str]| parts.iter().for_each(|part| octets.extend_from_slice(part.as_bytes()));
        add(&[";host=\"", host, "\";proto=", scheme, "\r\n"]);
    }

    /// Removes the fields of a name in lower case.
    fn remove(&mut self, name: &str) {
        if FieldSection::from_lines(&self.octets).first(name).is_none() {
            return;
        }
        let all = std::mem::take(self);
        for (other, value) in all.iter().filter(|(other, _)| *other != name.as_bytes()) {
            [other, b": ", value, b"\r\n"].iter().for_each(|part| self.octets.extend_from_slice(part));
        }
    }

    /// Makes W3C Trace Context if the client sent no valid one (<https://www.w3.org/TR/trace-context/#traceparent-header>).
    fn add_trace_context(&mut self) {
        let mut given = FieldSection::from_lines(&self.octets).all(TRACEPARENT);
        if given.next().is_some_and(|value| parse_traceparent(value).is_some()) && given.next().is_none() {
            return;
        }
        drop(given);
        self.remove(TRACEPARENT);
        // It belongs to the field that is dropped.
        self.remove(TRACESTATE);
        let (Some(trace), Some(parent)) = (random_bits(), random_bits()) else { return };
        self.make(TRACEPARENT, |text| {
            text.extend_from_slice(b"00-");
            write_in_hex(text, &trace);
            text.push(b'-');
            write_in_hex(text, &parent[..8]);
            text.extend_from_slice(b"-01");
        });
    }

    /// Makes the server's span part of a request's own.
    fn pass_span_on(&mut self, span: &Span) {
        if !span.continues() {
            // It belongs to the trace of a client, which is dropped.
            self.remove(TRACESTATE);
        }
        self.remove(TRACEPARENT);
        self.add(TRACEPARENT, span.traceparent().as_bytes());
    }
}

impl Hop<'_> {
    /// Adds the fields that tell the server of the client.
    fn add(&self, request: &Request<'_>, lines: &mut RequestLines) {
        match self.direct() {
            Some((client, host)) => lines.add_direct(client, host, self.scheme),
            None => self.add_forwarded(request, lines),
        }
        lines.make(CDN_LOOP, |text| {
            for before in request.fields.all(CDN_LOOP) {
                text.extend_from_slice(String::from_utf8_lossy(before).as_bytes());
                text.extend_from_slice(b", ");
            }
            text.extend_from_slice(LOOP_ID.as_bytes());
        });
        match last_member(request, X_REQUEST_ID, self.is_trusted).filter(|id| is_request_id(id)) {
            Some(id) => lines.add(X_REQUEST_ID, id.as_bytes()),
            None => lines.make(X_REQUEST_ID, |text| random_bits().iter().for_each(|bits| write_in_hex(text, bits))),
        }
    }

    /// The client and the requested host, if the client connected to this server itself, by IPv4, and all fields have the host in the same form.
    fn direct(&self) -> Option<(IpAddr, &str)> {
        let remote = self.remote.map(|remote| remote.to_canonical()).filter(IpAddr::is_ipv4)?;
        let is_direct = !self.takes_x_forwarded
            && self.chain.is_none()
            && self.client.map(|client| client.to_canonical()) == Some(remote);
        let is_plain = |byte: u8| (byte > b' ') & (byte != b'"') & (byte != b'\\') & (byte != 0x7f);
        let is_alike = |host: &&str| !host.is_empty() && host.bytes().fold(true, |all, byte| all & is_plain(byte));
        Some((remote, self.host.filter(|_| is_direct).filter(is_alike)?))
    }

    /// Adds the same fields as [`RequestLines::add_direct`], whatever is known of the client.
    fn add_forwarded(&self, request: &Request<'_>, lines: &mut RequestLines) {
        let given = |name| last_member(request, name, self.takes_x_forwarded);
        let proto = given(X_FORWARDED_PROTO);
        let proto =
            ["https", "http"].into_iter().find(|own| proto.is_some_and(|given| given.eq_ignore_ascii_case(own)));
        lines.add(X_FORWARDED_PROTO, proto.unwrap_or(self.scheme).as_bytes());
        if let Some(host) = given(X_FORWARDED_HOST).or(self.host) {
            lines.make(X_FORWARDED_HOST, |text| text.extend_from_slice(host.as_bytes()));
        }
        if let Some(client) = self.client {
            lines.make(X_REAL_IP, |text| write_address(text, client.to_canonical()));
        }
        // Both lists are written again, since trusted proxies pass on the client's version of either field.
        let chain = self.chain.as_deref().unwrap_or_default();
        lines.make(X_FORWARDED_FOR, |text| {
            for (n, address) in chain.iter().chain(&self.remote).enumerate() {
                text.extend_from_slice(if n > 0 { b", " } else { b"" });
                write_address(text, address.to_canonical());
            }
        });
        // RFC 7239 §4.
        lines.make("forwarded", |text| {
            for address in chain {
                write_node(text, Some(*address));
                text.extend_from_slice(b", ");
            }
            write_node(text, self.remote);
            if let Some(host) = self.host.filter(|host| !host.contains(['"', '\\'])) {
                [";host=\"", host, "\""].iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
            }
            text.extend_from_slice(b";proto=");
            text.extend_from_slice(self.scheme.as_bytes());
        });
    }
}

/// The last member of a list, if it is taken: the nearest proxy's. The members before it may be the client's word.
fn last_member<'r>(request: &Request<'r>, name: &str, is_taken: bool) -> Option<&'r str> {
    let line = is_taken.then(|| request.fields.all(name).last()).flatten()?;
    let member = std::str::from_utf8(line).ok()?.rsplit(',').next()?.trim_ascii();
    Some(member).filter(|member| !member.is_empty())
}

/// Appends `for=` and an address as a node of Forwarded (RFC 7239 §6).
fn write_node(text: &mut Vec<u8>, address: Option<IpAddr>) {
    text.extend_from_slice(b"for=");
    match address.map(|address| address.to_canonical()) {
        None => text.extend_from_slice(b"unknown"),
        Some(address @ IpAddr::V4(_)) => write_address(text, address),
        Some(address @ IpAddr::V6(_)) => {
            text.extend_from_slice(b"\"[");
            write_address(text, address);
            text.extend_from_slice(b"]\"");
        }
    }
}

/// Whether an identifier that a trusted proxy gave is passed on: it is written to logs.
fn is_request_id(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"-_.:=/+".contains(&octet))
}

/// Appends octets in hexadecimal digits.
fn write_in_hex(text: &mut Vec<u8>, octets: &[u8]) {
    let digit = |four: u8| b"0123456789abcdef"[usize::from(four)];
    for octets in octets.chunks(16) {
        let mut digits = [0; 32];
        for (two, octet) in digits.chunks_exact_mut(2).zip(octets) {
            two.copy_from_slice(&[digit(octet >> 4), digit(octet & 15)]);
        }
        text.extend_from_slice(&digits[..2 * octets.len()]);
    }
}

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Where the content begins: behind an empty line, which may end as in Unix. It does not begin before `from`.
pub(super) fn end_of_head(head: &[u8], from: usize) -> Option<usize> {
    // A head without a field.
    if let [b'\n', ..] | [b'\r', b'\n', ..] = head {
        return Some(if head[0] == b'\n' { 1 } else { 2 });
    }
    let mut lines = memchr::memchr_iter(b'\n', &head[from..]).map(|at| from + at);
    lines.find_map(|at| match &head[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use sealion_http::{FieldSection, Method, Target};

    use super::*;
    use crate::upstream::answer_fields::passed_on;

    /// `chain`: as a trusted proxy names it.
    fn fields(section: &[u8], chain: Option<&[&str]>, takes_x_forwarded: bool) -> HeaderMap {
        traced(section, chain, takes_x_forwarded, Trace::OfClient)
    }

    fn traced(section: &[u8], chain: Option<&[&str]>, takes_x_forwarded: bool, trace: Trace) -> HeaderMap {
        let hop = Hop { takes_x_forwarded, ..hop_of(chain) };
        request_fields(&request_with(section), &hop, trace).into_map()
    }

    fn request_with(section: &[u8]) -> Request<'_> {
        Request {
            method: Method::Get,
            target: Target::Path { path: "/", query: None },
            raw_target: "/",
            authority: Some("example.org"),
            conditions: Default::default(),
            fields: FieldSection::from_lines(section),
        }
    }

    /// `chain`: as a trusted proxy names it.
    fn hop_of(chain: Option<&[&str]>) -> Hop<'static> {
        let address = "192.0.2.7".parse().ok();
        Hop {
            remote: address,
            is_trusted: chain.is_some(),
            takes_x_forwarded: false,
            chain: chain.map(|chain| chain.iter().map(|address| address.parse().unwrap()).collect()),
            client: address,
            endpoints: None,
            scheme: "https",
            host: Some("example.org"),
            span: None,
        }
    }

    fn value<'a>(fields: &'a HeaderMap, name: &str) -> &'a str {
        fields.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[test]
    fn fields_of_the_connection_are_dropped_with_all_that_connection_names() {
        let found = fields(
            b"Host: a\r\nConnection: close, X-One\r\nconnection: x-two\r\nX-One: 1\r\nX-Two: 2\r\nX-Three: 3\r\nTE: trailers\r\n\
              Transfer-Encoding: chunked\r\nUpgrade: h2c\r\nKeep-Alive: 1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n",
            None,
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
                       X-Real-IP: 10.0.0.4\r\nX-Request-Id: a b\r\nConnection: x-forwarded-for\r\nCDN_Loop: a\r\ncdn.loop: b\r\n";
        let own = "for=192.0.2.7;host=\"example.org\";proto=https";
        for (chain, expected, elements) in [
            (None, "192.0.2.7", own.to_owned()),
            // A trusted proxy passes on the client's field, and names no client itself.
            (Some(&[][..]), "192.0.2.7", own.to_owned()),
            (
                Some(&["203.0.113.9", "2001:db8::1", "10.9.9.9"]),
                "203.0.113.9, 2001:db8::1, 10.9.9.9, 192.0.2.7",
                format!("for=203.0.113.9, for=\"[2001:db8::1]\", for=10.9.9.9, {own}"),
            ),
        ] {
            let found = fields(forged, chain, false);
            assert_eq!(value(&found, "x-forwarded-for"), expected);
            assert_eq!(value(&found, "x-real-ip"), "192.0.2.7");
            assert_eq!(value(&found, "forwarded"), elements);
            assert_eq!(value(&found, "x-forwarded-proto"), "https");
            assert_eq!(value(&found, "x-request-id").len(), 32);
            assert!(!found.contains_key("x_forwarded_for") && !found.contains_key("x-forwarded_proto"));
            assert!(!found.contains_key("cdn_loop") && !found.contains_key("cdn.loop"));
        }
    }

    #[test]
    fn a_client_without_proxies_is_told_alike_in_one_piece_and_field_by_field() {
        let clients = ["192.0.2.7", "0.0.0.0", "::ffff:192.0.2.7", "2001:db8::1"].map(|address| address.parse().ok());
        let hosts =
            ["a", "example.org:8443", "[2001:db8::1]", "a\"b", "a\\b", "a b", "a\tb", "a\r\nb: c", "\u{e9}", ""];
        let mut direct = 0;
        for client in clients.into_iter().chain([None]) {
            for host in hosts.into_iter().map(Some).chain([None]) {
                for remote in [client, "192.0.2.8".parse().ok(), None] {
                    for (scheme, takes_x_forwarded) in [("http", false), ("https", false), ("https", true)] {
                        let hop = Hop { remote, client, host, scheme, takes_x_forwarded, ..hop_of(None) };
                        let Some((address, own)) = hop.direct() else { continue };
                        direct += 1;
                        let request = request_with(b"X-Forwarded-Host: forged\r\n");
                        let (mut one, mut other) = (RequestLines::default(), RequestLines::default());
                        one.add_direct(address, own, scheme);
                        hop.add_forwarded(&request, &mut other);
                        assert_eq!(one.octets().escape_ascii().to_string(), other.octets().escape_ascii().to_string());
                    }
                }
            }
        }
        // Three addresses of IPv4, four hosts and two schemes.
        assert_eq!(direct, 3 * 4 * 2);
        let of_proxy = Hop { chain: Some(vec![IpAddr::from([192, 0, 2, 9])].into()), ..hop_of(None) };
        assert_eq!(of_proxy.direct(), None);
    }

    #[test]
    fn of_a_trusted_proxys_lists_the_last_member_counts() {
        const PROTO: &str = "x-forwarded-proto";
        for (sent, takes, proto, host) in [
            ("X-Forwarded-Proto: HTTPS, http\r\nX-Forwarded-Host: evil, b\r\n", true, "http", "b"),
            ("X-Forwarded-Proto: http\r\nX-Forwarded-Proto: HTTPS\r\n", true, "https", "example.org"),
            ("X-Forwarded-Proto: gopher\r\nX-Forwarded-Host: a,\r\n", true, "https", "example.org"),
            ("X-Forwarded-Proto: http\r\nX-Forwarded-Host: evil\r\n", false, "https", "example.org"),
        ] {
            let found = fields(sent.as_bytes(), Some(&[]), takes);
            assert_eq!((value(&found, PROTO), value(&found, "x-forwarded-host")), (proto, host), "{sent}");
        }
        assert_eq!(value(&fields(b"X-Request-Id: a-1\r\n", Some(&[]), false), "x-request-id"), "a-1");
    }

    #[test]
    fn a_trace_of_the_client_goes_on_if_it_is_valid() {
        const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        for (given, passes) in [
            (VALID, true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", false),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false),
            ("x", false),
            ("", false),
        ] {
            let section = format!("traceparent: {given}\r\ntracestate: a=b\r\n");
            let fields = traced(section.as_bytes(), None, false, Trace::Made);
            let found = value(&fields, "traceparent");
            assert_eq!((found == given, fields.contains_key(TRACESTATE)), (passes, passes), "{given}: {found}");
            assert!(parse_traceparent(found.as_bytes()).is_some(), "{found}");
        }
        let twice = format!("traceparent: {VALID}\r\ntraceparent: {VALID}\r\n");
        let fields = traced(twice.as_bytes(), None, false, Trace::Made);
        assert_eq!(fields.get_all(TRACEPARENT).iter().count(), 1);
        assert_ne!(value(&fields, "traceparent"), VALID);
        assert!(!traced(b"", None, false, Trace::OfClient).contains_key(TRACEPARENT));
    }

    #[test]
    fn a_value_that_would_end_its_line_is_left_out() {
        let mut lines = RequestLines::default();
        for value in [&b"a\r\nX-B: c"[..], b"a\nb", b"a\rb", b"a\0b", b"\x7f"] {
            lines.add("x-a", value);
            assert_eq!(lines.begin(b"X-A"), Some(&b"x-a"[..]));
            lines.end(value);
        }
        lines.add("x-a", b"a \tb\xff");
        assert_eq!(lines.octets(), b"x-a: a \tb\xff\r\n");
    }

    #[test]
    fn a_field_without_a_value_is_passed_on_and_not_made() {
        let mut lines = RequestLines::default();
        lines.make("x-a", |_| {});
        lines.add("x-b", b"");
        assert_eq!(lines.octets(), b"x-b: \r\n");
        // Nothing is known of a client on a Unix socket.
        let hop = Hop { remote: None, client: None, host: Some(""), ..hop_of(None) };
        let fields = request_fields(&request_with(b""), &hop, Trace::OfClient).into_map();
        let is_made = |name| fields.contains_key(name);
        assert!(!is_made(X_FORWARDED_FOR) && !is_made(X_FORWARDED_HOST) && !is_made(X_REAL_IP));
        assert_eq!(value(&fields, "forwarded"), "for=unknown;host=\"\";proto=https");
    }

    #[test]
    fn a_name_that_no_field_can_have_is_left_out() {
        let mut lines = RequestLines::default();
        for byte in 0..=u8::MAX {
            let name = [b'X', byte];
            let lower = HeaderName::from_bytes(&name).ok().map(|name| name.as_str().as_bytes().to_vec());
            assert_eq!(lines.begin(&name).map(<[u8]>::to_vec), lower, "{byte}");
            lines.take_back();
        }
        assert_eq!(lines.begin(b""), None);
        assert_eq!(lines.octets(), b"");
    }

    #[test]
    fn a_name_is_compared_wherever_it_is_dropped() {
        let lists = [&HOP_BY_HOP[..], &["host", CDN_LOOP], &MADE_HERE, &REPLACE_PATH];
        for own in lists.into_iter().flatten() {
            for name in [own.to_string(), own.replace('-', "_"), own.replace('-', ".")] {
                assert!(DROPPED.has(name.as_bytes()) && is_dropped(name.as_bytes(), false), "{name}");
            }
        }
        for name in ["accept", "user-agent", "cookie", "sec-fetch-dest", "", &"x".repeat(100)] {
            assert!(!DROPPED.has(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn values_beyond_ascii_pass_in_both_directions() {
        assert_eq!(fields(b"X-A: caf\xe9\r\n", None, false).get("x-a").unwrap().as_bytes(), b"caf\xe9");
        let mut answer = HeaderMap::new();
        answer.insert("x-a", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        answer.append("set-cookie", HeaderValue::from_static("a=1"));
        answer.append("set-cookie", HeaderValue::from_static("b=2"));
        answer.insert("connection", HeaderValue::from_static("x-b"));
        answer.insert("x-b", HeaderValue::from_static("1"));
        answer.insert("transfer-encoding", HeaderValue::from_static("chunked"));
        let lines = passed_on(&answer).extra.lines().to_vec();
        assert_eq!(lines, b"x-a: caf\xe9\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n");
    }
}
