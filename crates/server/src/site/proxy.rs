//! Forwarding requests to an upstream.
//!
//! Guards are checked against the path in every reading of an application (`readings.rs`). The path is then sent as the client wrote it.

use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode, utf8_percent_encode};
use sealion_http::path::{OUTSIDE_PCHAR, SitePath};
use sealion_http::{FieldSection, Protocol, Request, Status};

use super::fastcgi::{Found, Scripts};
use super::forwarded_path::ForwardedPath;
use super::proxy_redirects::Rewriting;
use super::uwsgi::{self, Uwsgi};
use crate::observe::Warnings;
use crate::observe::access_log::UpstreamTrace;
use crate::placeholders::{Asked, Form, Groups, Tables, Template};
use crate::response::{Body, BodyStream, Response};
use crate::store::{CacheRule, Store, one_slash_first};
use crate::upstream::{
    Buffered, Failure, Forwarded, Inbound, NotCollected, OTHER_REQUESTS, Reply, RequestContent, Rest, Script, Spooling,
    Trace, Upgrade, Upstream, Upstreams, WEBSOCKET, Waiting, WebSocketKey, collect, forward, is_loop, is_same_by_cgi,
    poll_gone, request_fields, takes_trailers,
};
use crate::values::At;

mod cache_name;
mod cached;
mod config;
mod mirror;

pub(super) use config::FieldRule;
pub(crate) use config::{InterimRequests, ProxyConfig};

use mirror::Mirror;

#[derive(Debug)]
pub(crate) struct Rule {
    /// The directory of its route, without slashes at its ends.
    directory: Option<Box<[u8]>>,
    upstream: Arc<Upstream>,
    /// The rule in keys of the cache: its upstream, the listeners of a site that names them, and its changes to requests.
    cache_name: Box<str>,
    strip_prefix: bool,
    /// Without a slash at its end.
    to_prefix: String,
    pub(super) files_first: bool,
    host: Host,
    /// Whether the server gets the fields of the request.
    passes_fields: bool,
    request: Vec<(HeaderName, Option<HeaderValue>)>,
    response: Vec<(HeaderName, Option<HeaderValue>)>,
    /// Fields whose values have placeholders.
    request_values: Vec<(HeaderName, Template)>,
    response_values: Vec<(HeaderName, Template)>,
    groups: Arc<Groups>,
    tables: Arc<Tables>,
    pub(super) intercept_errors: bool,
    /// Empty: all.
    methods: Vec<String>,
    rewriter: Option<Arc<Rewriting>>,
    interim: InterimRequests,
    /// Fields that interim responses cannot have, since the rule sets, removes or rewrites them.
    hidden: Arc<[HeaderName]>,
    trace: Trace,
    upgrade: Vec<String>,
    /// Whether a client that asks for WebSocket gets an ordinary answer because of the upstream's protocol.
    misses_websocket: bool,
    max_body: Option<u64>,
    buffer: Option<Arc<Spooling>>,
    buffer_request: Option<Arc<Spooling>>,
    collects: Collects,
    scripts: Option<Scripts>,
    uwsgi: Option<Uwsgi>,
    cache: Option<CacheRule>,
    mirror: Option<Mirror>,
    /// The memory of contents that keys of the cache have.
    waiting: Arc<Waiting>,
    /// Fields that trailers of requests cannot have, since the rule sets or removes them.
    guarded: Arc<[HeaderName]>,
    /// About requests that are refused before a server is asked.
    warnings: Warnings,
}

/// The context for building rules.
pub(super) struct RuleContext<'a> {
    /// The root of the site or the route.
    pub(super) root: Option<&'a At<PathBuf>>,
    pub(super) upstreams: &'a mut Upstreams,
    pub(super) store: Option<&'a Arc<Store>>,
    pub(super) groups: &'a Arc<Groups>,
    pub(super) tables: &'a Arc<Tables>,
    /// The directory of the route, without slashes at its ends.
    pub(super) directory: Option<&'a [u8]>,
    /// The listeners that the site names; empty: none.
    pub(super) listeners: &'a str,
}

/// The contents of requests that are taken whole before a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collects {
    /// As far as there is room: the rest of a content is passed on as it comes.
    AsRoom,
    /// All: a content without room is refused.
    All,
    /// Contents without a length, which the server has to get first.
    WithoutLength,
    /// Contents with a length as far as there is room, and all others whole.
    AllWithoutLength,
}

impl Collects {
    /// Where the rest of a content goes if there is no room for it. `None`: the content is not collected.
    fn rest(self, content: &RequestContent) -> Option<Rest> {
        match self {
            Collects::AsRoom => Some(Rest::Passed),
            Collects::All => Some(Rest::Refused),
            Collects::WithoutLength if content.has_length() => None,
            Collects::AllWithoutLength if content.has_length() => Some(Rest::Passed),
            Collects::WithoutLength | Collects::AllWithoutLength => Some(Rest::Refused),
        }
    }
}

/// The Host of requests to servers.
#[derive(Debug)]
pub(super) enum Host {
    OfClient,
    /// Without its port, or with another.
    NameOfClient(Option<u16>),
    Fixed(HeaderValue),
}

impl Host {
    /// The Host of a request. `None`: it has none.
    pub(super) fn value(&self, asked: &Asked<'_>) -> Option<HeaderValue> {
        match self {
            Host::OfClient => HeaderValue::try_from(asked.request.authority.unwrap_or_default()).ok(),
            Host::NameOfClient(None) => HeaderValue::try_from(&*asked.host()).ok(),
            Host::NameOfClient(Some(port)) => HeaderValue::try_from(format!("{}:{port}", asked.host())).ok(),
            Host::Fixed(host) => Some(host.clone()),
        }
    }
}

/// The path with one slash at its beginning: readers of URLs take `//x/y` for the path `/y` of the host `x`, and rules count slashes in a row as one.
pub(super) fn with_one_slash(path: &str) -> Cow<'_, str> {
    let rest = path.trim_start_matches(['/', '\\']);
    if path.len() - rest.len() <= 1 { path.into() } else { format!("/{rest}").into() }
}

/// Whether a route's `upgrade` names a protocol.
fn permits(own: &[String], protocol: &[u8]) -> bool {
    own.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(protocol))
}

/// A field to set, or to remove.
pub(super) type FieldChange = (HeaderName, Option<HeaderValue>);

/// Sets and removes fields, under every name that servers take for theirs.
pub(super) fn apply(rules: &[FieldChange], fields: &mut HeaderMap) {
    for (name, value) in rules {
        let others: Vec<HeaderName> = fields
            .keys()
            .filter(|other| *other != name && is_same_by_cgi(other.as_str(), name.as_str()))
            .cloned()
            .collect();
        for other in others {
            fields.remove(other);
        }
        match value {
            Some(value) => drop(fields.insert(name, value.clone())),
            None => drop(fields.remove(name)),
        }
    }
}

/// Sets fields whose values have placeholders. `None`: no field may have a value.
pub(super) fn fill(rules: &[(HeaderName, Template)], asked: &Asked<'_>, fields: &mut HeaderMap) -> Option<()> {
    let value = |template: &Template| {
        let value = template.render(asked, Form::Plain).ok()?;
        HeaderValue::from_bytes(&value).ok()
    };
    let filled: Option<Vec<FieldChange>> = rules
        .iter()
        .map(|(name, template)| Some((name.clone(), Some(value(template)?).filter(|value| !value.is_empty()))))
        .collect();
    apply(&filled?, fields);
    Some(())
}

impl Rule {
    /// Has the rules of several targets share the bounds that hold for all their requests together: files of waiting contents, and copies in progress.
    pub(super) fn share_bounds(&mut self, first: &Rule) {
        for (own, first) in [(&mut self.buffer, &first.buffer), (&mut self.buffer_request, &first.buffer_request)] {
            // Scripts alone have the second without a setting.
            if let (Some(own), Some(first)) = (own, first) {
                *own = Arc::clone(first);
            }
        }
        if let (Some(own), Some(first)) = (&mut self.mirror, &first.mirror) {
            own.share_places(first);
        }
    }

    /// The URL as the rule's cache stores it.
    pub(super) fn spelling(&self, url: &str) -> Option<String> {
        self.cache.as_ref().map(|cache| cache.as_in_key(url))
    }

    /// Its name in keys of the cache. `None`: it has no cache.
    pub(super) fn cache_name(&self) -> Option<&str> {
        self.cache.as_ref().map(|_| &*self.cache_name)
    }

    /// The name of its upstream.
    pub(super) fn upstream_name(&self) -> &str {
        &self.upstream.name
    }

    /// Whether a server learns the ends of a client's connection.
    pub(super) fn names_endpoints(&self) -> bool {
        self.upstream.names_endpoints() || self.mirror.as_ref().is_some_and(Mirror::names_endpoints)
    }

    /// Whether it permits WebSocket.
    pub(super) fn permits_websocket(&self) -> bool {
        permits(&self.upgrade, WEBSOCKET.as_bytes())
    }

    /// The requests that get interim responses.
    pub(super) fn interim(&self) -> InterimRequests {
        self.interim
    }

    /// The client's path of a forwarded request, for a server that is asked about it: with the slashes that the rule's server gets.
    pub(super) fn as_asked<'a>(&self, path: ForwardedPath<'a>) -> Cow<'a, str> {
        let raw = path.raw();
        match self.stripped(path) {
            Some((prefix, rest)) => {
                let rest = if raw.ends_with('/') || *rest != *"/" { with_one_slash(&rest) } else { "".into() };
                format!("/{}{rest}", percent_encode(prefix, OUTSIDE_PCHAR)).into()
            }
            None => with_one_slash(raw),
        }
    }

    /// The directory that `strip_prefix` removes from a path.
    fn stripped_prefix(&self) -> Option<&[u8]> {
        self.directory.as_deref().filter(|directory| self.strip_prefix && !directory.is_empty())
    }

    /// The prefix that `strip_prefix` removes from a path, and the rest.
    pub(super) fn stripped<'a>(&self, path: ForwardedPath<'a>) -> Option<(&[u8], Cow<'a, str>)> {
        let prefix = self.stripped_prefix()?;
        Some((prefix, strip(path.raw(), prefix, path.decoded())?))
    }

    /// The values for the rule's placeholders.
    fn asked<'a>(&'a self, request: &'a Request<'a>, path: &'a SitePath<'a>, inbound: &Inbound) -> Asked<'a> {
        let query = match request.target {
            sealion_http::Target::Path { query, .. } => query,
            sealion_http::Target::Asterisk => None,
        };
        let asked = Asked::new(request, path, query, inbound.scheme == "http", &self.tables);
        Asked { client: inbound.client, remote: inbound.remote, groups: Some(&self.groups), ..asked }
    }

    /// Forwards a request, until the client leaves. `path`: as the rule was found by. `rest`: knows whether the client has left.
    pub(super) async fn forward(
        &self,
        request: &Request<'_>,
        path: ForwardedPath<'_>,
        mut inbound: Inbound,
        rest: &mut Inbound,
    ) -> Box<Response> {
        if is_loop(request) {
            let what = "the request has come back: one of the upstream's servers leads here again";
            return Response::plain(Status::LOOP_DETECTED).because(Some(io::Error::other(what))).into();
        }
        if let (Some(most), Some(content), false) = (self.max_body, &inbound.content, inbound.upgrade)
            && let Err(too_long) = content.limit(most)
        {
            return Response::plain(too_long.status).into();
        }
        let client = inbound.bounded_client();
        let asked = self.asked(request, path.decoded(), &inbound);
        let answer = async {
            if let Some(buffer) = &self.buffer_request
                && !inbound.upgrade
                && let Some(rest) = inbound.content.as_ref().and_then(|content| self.collects.rest(content))
                && let Some(content) = inbound.content.take()
            {
                match Box::pin(collect(content, buffer, client, rest)).await {
                    Ok(content) => inbound.content = Some(content),
                    Err(error) => {
                        let cause = match error {
                            // A client that breaks off is no fault of the configuration. A disk that hangs was logged.
                            NotCollected::Client(_) | NotCollected::NoDisk => None,
                            _ => self.warnings.line(error, OTHER_REQUESTS).map(io::Error::other),
                        };
                        return Response::plain(error.status()).because(cause).into();
                    }
                }
            }
            match &self.cache {
                Some(cache) => Box::pin(self.forward_cached(cache, request, path, inbound)).await,
                None => match self.request(request, path, inbound) {
                    Some(mut forwarded) => {
                        self.copy(&mut forwarded, &asked, client);
                        self.pass(&mut forwarded, &asked, client).await
                    }
                    None => Response::plain(Status::BAD_REQUEST).into(),
                },
            }
        };
        let mut answer = pin!(answer);
        poll_fn(|cx| match poll_gone(&mut rest.gone, cx) {
            Poll::Ready(()) => Poll::Ready(Response::plain(Status::CLIENT_CLOSED_REQUEST).into()),
            Poll::Pending => answer.as_mut().poll(cx),
        })
        .await
    }

    /// Copies a request to the upstream of `mirror`, if the rule has one.
    fn copy(&self, forwarded: &mut Forwarded, asked: &Asked<'_>, client: Option<IpAddr>) {
        if let Some(mirror) = &self.mirror {
            mirror.copy(forwarded, asked, client);
        }
    }

    /// The share of its requests that is copied, in per cent, and the name of the upstream that gets the copies. `None`: no request is copied.
    pub(super) fn mirrors(&self) -> Option<(f64, &str)> {
        self.mirror.as_ref().map(|mirror| (mirror.share(), mirror.upstream_name()))
    }

    /// Whether the servers run scripts.
    pub(super) fn runs_scripts(&self) -> bool {
        self.scripts.is_some()
    }

    /// The script that is the index of a directory; `None`: the servers run none.
    pub(super) fn index_script(&self) -> Option<&str> {
        self.scripts.as_ref().map(Scripts::index)
    }

    /// The script for a path; `None`: the servers run none.
    pub(super) async fn script(&self, path: &SitePath<'_>) -> Option<Result<Found, Status>> {
        Some(self.scripts.as_ref()?.find(path).await)
    }

    /// [`Scripts::behind_script`].
    pub(super) fn behind_script(&self, path: &SitePath<'_>, run: &[u8]) -> Vec<Vec<u8>> {
        self.scripts.as_ref().map(|scripts| scripts.behind_script(path, run)).unwrap_or_default()
    }

    /// Gives the request the script that answers it.
    pub(super) fn add_script(&self, found: Found, request: &Request<'_>, inbound: &mut Inbound) {
        let (Some(scripts), sealion_http::Target::Path { path, .. }) = (&self.scripts, request.target) else {
            return;
        };
        let ends = inbound.endpoints.as_deref().filter(|ends| Some(ends.client.ip()) == inbound.client);
        // A part of the query that the key does not have must not change the stored response.
        let query = self.query_sent(request);
        let query = query.as_deref();
        // REQUEST_URI has the requested query, whatever a rewrite made of it.
        let asked = match &self.cache {
            None => request.raw_target.split_once('?').map(|(_, query)| query),
            Some(_) => query,
        };
        let separator = if asked.is_some() { "?" } else { "" };
        inbound.script = Some(Box::new(Script {
            root: Some(Arc::clone(&scripts.root_path)),
            name: [b"/", found.name.as_slice()].concat(),
            path_info: found.path_info,
            request_uri: [&with_one_slash(path), separator, asked.unwrap_or_default()].concat(),
            query: query.unwrap_or_default().to_owned(),
            scheme: inbound.scheme,
            protocol: if self.cache.is_some() { Protocol::Http11 } else { inbound.protocol },
            authority: request.authority.unwrap_or_default().to_ascii_lowercase(),
            // The port of a proxy in front is not known, and no key of a stored response has it.
            port: inbound
                .endpoints
                .as_deref()
                .map(|ends| ends.local.port())
                .filter(|_| inbound.is_direct && self.cache.is_none()),
            client: inbound.client,
            ends: ends.map(|ends| (ends.client.port(), ends.local)),
            params: Arc::clone(&scripts.params),
            modifiers: [0, 0],
        }));
    }

    /// The query as the server gets it.
    fn query_sent<'a>(&self, request: &Request<'a>) -> Option<Cow<'a, str>> {
        let sealion_http::Target::Path { query, .. } = request.target else { return None };
        match &self.cache {
            Some(cache) if is_read(request) || cache.stores_method(request) => cache.query_in_key(query),
            _ => query.map(Cow::Borrowed),
        }
    }

    /// The response of the upstream. `client`: see [`Inbound::bounded_client`].
    async fn pass(&self, forwarded: &mut Forwarded, asked: &Asked<'_>, client: Option<IpAddr>) -> Box<Response> {
        let (trace, result) = forward(&self.upstream, forwarded).await;
        let mut response = match result {
            Ok(mut reply) => {
                self.fill_response(&mut reply, asked);
                let mut response = self.response(reply, asked.request, client);
                self.add_sticky_cookie(forwarded, asked.is_plain, &mut response);
                response
            }
            Err(failure) => return failed(&failure, Some(trace), &self.upstream).into(),
        };
        response.upstream = Some(Box::new(trace));
        response
    }

    fn request(&self, request: &Request<'_>, path: ForwardedPath<'_>, mut inbound: Inbound) -> Option<Forwarded> {
        // As in the key of a stored response, whatever is put before it.
        let raw = one_slash_first(path.raw());
        let raw = match self.stripped_prefix() {
            Some(prefix) => strip(raw, prefix, path.decoded())?,
            None => raw.into(),
        };
        let raw = if self.to_prefix.is_empty() { raw } else { format!("{}{raw}", self.to_prefix).into() };
        let mut target = with_one_slash(&raw).into_owned();
        if let Some(query) = self.query_sent(request) {
            target.push('?');
            target.push_str(&query);
        }
        let hop = inbound.hop(request.authority);
        let mut fields = match self.passes_fields {
            true => request_fields(request, &hop, self.trace),
            false => request_fields(&Request { fields: FieldSection::default(), ..request.clone() }, &hop, self.trace),
        };
        if !inbound.fields.is_empty() {
            apply(&inbound.fields, fields.map_mut());
        }
        if !self.request.is_empty() {
            apply(&self.request, fields.map_mut());
        }
        let asked = Asked { user: inbound.user.as_deref(), ..self.asked(request, path.decoded(), &inbound) };
        if !self.request_values.is_empty() {
            fill(&self.request_values, &asked, fields.map_mut())?;
        }
        let host = self.host.value(&asked);
        // RFC 9110 §8.6: some servers answer 411 without it.
        if inbound.content.is_none() && matches!(request.method.as_str(), "POST" | "PUT" | "PATCH") {
            fields.map_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let upgrade = match inbound.is_connect {
            true => Some(WEBSOCKET.as_bytes()),
            false => inbound.upgrade.then(|| request.fields.singleton("upgrade").value()).flatten(),
        };
        if self.misses_websocket && upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
        {
            self.warn_of_websocket();
        }
        let upgrade = upgrade.filter(|protocol| permits(&self.upgrade, protocol));
        let key = match (inbound.is_connect, upgrade.is_some()) {
            (true, true) => Some(WebSocketKey::random()?),
            (false, true) => WebSocketKey::of_client(request),
            (_, false) => None,
        };
        let te = upgrade.is_none() && takes_trailers(request);
        if let Some(content) = &mut inbound.content {
            match inbound.fields.is_empty() {
                true => content.pass_trailers(&self.guarded),
                false => {
                    let others = inbound.fields.iter().map(|(name, _)| name);
                    content.pass_trailers(&self.guarded.iter().chain(others).cloned().collect());
                }
            }
            // Some servers drop trailers that are not announced.
            let announced = request.fields.first("trailer").filter(|_| !content.has_length());
            if let Some(names) = announced.and_then(|names| HeaderValue::from_bytes(names).ok()) {
                fields.map_mut().insert(header::TRAILER, names);
            }
        }
        if let Some(uwsgi) = &self.uwsgi {
            let forwarding = uwsgi::Forwarding {
                stripped: self.stripped_prefix(),
                target: &target,
                is_stored: self.cache.is_some(),
            };
            inbound.script = Some(uwsgi.script(request, forwarding, &inbound));
        }
        Some(Forwarded {
            reading: inbound.reading,
            heads: inbound.heads,
            method: http::Method::from_bytes(request.method.as_str().as_bytes()).ok()?,
            target: uri(&target)?,
            fields,
            host,
            // If the upgrade is not forwarded, the next request follows this one.
            content: inbound.content.filter(|_| upgrade.is_some() || !inbound.upgrade),
            kept: None,
            upgrade: upgrade
                .and_then(|protocol| HeaderValue::from_bytes(protocol).ok())
                .map(|protocol| Upgrade { protocol, key }),
            te,
            takes_trailers: te || inbound.protocol.always_takes_trailers(),
            interim: inbound
                .interim
                .filter(|_| self.interim.include(request))
                .map(|sender| Box::new(sender.hiding(&self.hidden))),
            endpoints: inbound.endpoints,
            address: inbound.client,
            sticky: self.upstream.sticky_server(request),
            answered_by: None,
            script: inbound.script,
        })
    }

    /// Says why a WebSocket fails, which the server gets as an ordinary request.
    fn warn_of_websocket(&self) {
        if self.warnings.take(Instant::now()).is_some() {
            tracing::warn!(
                "upstream {}: a client asks for WebSocket, which servers are not asked for over HTTP/2, FastCGI or uwsgi: name an [[upstream]] \
                 with protocol = \"http1\" in the rule, or set upgrade = [] there",
                self.upstream.name
            );
        }
    }

    /// The refusal of a request whose method the rule does not forward. Applications may read `get` as GET, which conditions and guards of methods tell apart.
    pub(super) fn refusal(&self, request: &Request<'_>) -> Option<Response> {
        if request.method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
            return Some(Response::plain(Status::BAD_REQUEST));
        }
        let method = if request.method == sealion_http::Method::Head { "GET" } else { request.method.as_str() };
        let is_forwarded = |other: &String| other == method || other == request.method.as_str();
        if self.methods.is_empty() || self.methods.iter().any(is_forwarded) {
            return None;
        }
        let mut response = Response::plain(Status::METHOD_NOT_ALLOWED);
        response.fields.allow = None;
        response.fields.extra.add("Allow", &self.methods.join(", "));
        Some(response)
    }

    /// Adds the cookie of the upstream, which is no field of the application: rules for the application's fields leave it as it is.
    fn add_sticky_cookie(&self, asked: &Forwarded, is_plain: bool, response: &mut Response) {
        if let Some(cookie) = self.upstream.sticky_cookie(asked, is_plain) {
            response.fields.extra.add_octets("Set-Cookie", cookie.as_bytes());
        }
    }

    /// Sets fields whose values have placeholders. A value that no field may have is left out.
    fn fill_response(&self, reply: &mut Reply, asked: &Asked<'_>) {
        if self.response_values.is_empty() {
            return;
        }
        let value = |template: &Template, fields: &HeaderMap| {
            let value = template.render(&Asked { upstream: Some(fields), ..*asked }, Form::Plain).ok()?;
            HeaderValue::from_bytes(&value).ok().filter(|value| !value.is_empty())
        };
        let filled: Vec<FieldChange> = self
            .response_values
            .iter()
            .map(|(name, template)| (name.clone(), value(template, &reply.fields)))
            .collect();
        apply(&filled, reply.fields.map_mut());
    }

    fn response(&self, mut reply: Reply, request: &Request<'_>, client: Option<IpAddr>) -> Box<Response> {
        let buffer = self.buffer.as_ref().filter(|_| !reply.fields.refuses_buffering());
        if let Some(rewriter) = &self.rewriter {
            rewriter.rewrite(reply.fields.map_mut(), request.authority);
        }
        if !self.response.is_empty() {
            apply(&self.response, reply.fields.map_mut());
        }
        if let Some(buffer) = buffer.filter(|_| reply.status != Status::SWITCHING_PROTOCOLS) {
            reply.body = Buffered::new(reply.body.into(), buffer, client).into();
        }
        of_reply(reply)
    }
}

/// The response that a server gave.
pub(super) fn of_reply(reply: Reply) -> Box<Response> {
    let Reply { status, fields, body, .. } = reply;
    if status == Status::SWITCHING_PROTOCOLS {
        let protocol = fields.get(header::UPGRADE).cloned();
        let mut ours = fields.into_passed_on();
        if let Some(protocol) = protocol {
            ours.extra.add_octets("Upgrade", protocol.as_bytes());
        }
        return Response::boxed(status, ours, Body::Stream(BodyStream { length: None, source: body.into() }));
    }
    let length = fields.content_length();
    Response::boxed(status, fields.into_passed_on(), Body::Stream(BodyStream { length, source: body.into() }))
}

/// The response to a request that no server answered.
pub(super) fn failed(failure: &Failure, trace: Option<UpstreamTrace>, upstream: &Upstream) -> Response {
    let server = trace.as_ref().map_or("", |trace| &trace.server);
    let cause = || upstream.line_about(server, format_args!("{server}: {failure}")).map(io::Error::other);
    let mut response = match failure {
        Failure::Unreachable(_) | Failure::Broken(_) => Response::plain(Status::BAD_GATEWAY).because(cause()),
        Failure::Busy(_) => Response::plain(Status::SERVICE_UNAVAILABLE).because(cause()),
        Failure::Timeout(_) => Response::plain(Status::GATEWAY_TIMEOUT).because(cause()),
        // A client that breaks off is no fault of the servers.
        Failure::Client(incomplete) => Response::plain(incomplete.status),
    };
    response.upstream = trace.map(Box::new);
    response
}

/// The path and query to send. Characters that some clients send but no URI has (RFC 3986 §2) are encoded.
pub(super) fn uri(target: &str) -> Option<Uri> {
    const UNWISE: &AsciiSet =
        &CONTROLS.add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');
    Uri::try_from(target).or_else(|_| Uri::try_from(utf8_percent_encode(target, UNWISE).to_string())).ok()
}

/// Whether a request is GET or HEAD: only these use the cache.
fn is_read(request: &Request<'_>) -> bool {
    matches!(request.method, sealion_http::Method::Get | sealion_http::Method::Head)
}

/// `raw` without its first segments, which are the segments of `prefix`. `None`: an encoded slash hides where they end.
fn strip<'a>(raw: &'a str, prefix: &[u8], path: &SitePath<'_>) -> Option<Cow<'a, str>> {
    let mut rest = raw;
    for segment in prefix.split(|octet| *octet == b'/') {
        rest = rest.trim_start_matches('/');
        let end = rest.find('/').unwrap_or(rest.len());
        // An application reads `/p%2F/x` as `/p//x`, and a server that is asked may take it for a path beneath another directory.
        if !percent_decode_str(&rest[..end]).eq(segment.iter().copied()) {
            return None;
        }
        rest = &rest[end..];
    }
    let rest = if rest.is_empty() { "/" } else { rest };
    let stripped = SitePath::parse_forwarded(rest).ok()?;
    let behind = path.as_bytes().strip_prefix(prefix)?;
    let is_beneath = behind.is_empty() || behind.starts_with(b"/");
    (is_beneath && stripped.as_bytes() == behind.strip_prefix(b"/").unwrap_or_default()).then(|| rest.into())
}
