//! Rules that forward requests to an upstream.
//!
//! Guards are checked against the path as an application may read it: decoded, with slashes where any decoding has them. The path is then
//! sent as the client wrote it.

use std::borrow::Cow;
use std::future::{pending, poll_fn};
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};
use schemars::JsonSchema;
use sealion_http::extra_fields::is_name;
use sealion_http::path::SitePath;
use sealion_http::{Request, Status};
use serde::{Deserialize, Serialize};

use super::early_hints::is_navigation;
use super::fastcgi::{FastcgiConfig, Found, Scripts};
use super::pattern::{Guarded, Prefix};
use super::proxy_redirects::{Redirects, Rewriter};
use crate::observe::access_log::UpstreamTrace;
use crate::response::{Body, BodyStream, Response};
use crate::store::{CacheRule, CacheRuleConfig, Store};
use crate::upstream::{
    BufferConfig, Buffered, Failure, Forwarded, Inbound, Reply, Rest, Script, Spooling, Upgrade, Upstream, Upstreams,
    WEBSOCKET, WebSocketKey, add_trace_context, collect, forward, is_hop_by_hop, is_loop, is_same_by_cgi,
    request_fields, response_fields, takes_trailers,
};
use crate::values::{At, Problems, Size};

mod cached;

/// A rule that forwards requests. The first rule that covers a path is taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyConfig {
    /// Path to forward, with everything beneath it [default: `/`, unless `regex` is given]
    pub path: Option<At<String>>,
    /// Regular expression for the decoded paths to forward, instead of `path`. It matches anywhere; anchor it with `^` and `$`.
    pub regex: Option<At<String>>,
    /// Name of an `[[upstream]]`, or the URL of a server: `http://127.0.0.1:3000`, `https://app.internal`, `unix:/run/app.sock`.
    pub upstream: At<String>,
    /// Whether the rule's `path` is left out of the forwarded path: with `path = "/api/"`, `/api/users` is forwarded as `/users`.
    pub strip_prefix: At<bool>,
    /// Path that goes before the forwarded one: with `path = "/api/"`, `strip_prefix = true` and `to_prefix = "/v1"`, `/api/users` is forwarded as
    /// `/v1/users`.
    pub to_prefix: Option<At<String>>,
    /// Whether a file of the site goes before: only requests without one are forwarded. Methods but GET and HEAD are always forwarded.
    pub files_first: bool,
    /// Host that the server gets: `client`, that of the request; `upstream`, that of the URL; or another.
    pub host: Option<At<String>>,
    /// Fields to set in the request; an empty value removes the field.
    pub request_headers: At<Vec<FieldRule>>,
    /// Fields to set in the response; an empty value removes the field.
    pub response_headers: At<Vec<FieldRule>>,
    /// Whether the site's error pages replace those of the server.
    pub intercept_errors: bool,
    /// Methods to forward, for instance `["GET", "POST"]`; others are answered 405. GET includes HEAD [default: all]
    pub methods: At<Vec<String>>,
    /// Whether Location and cookies of answers are rewritten for clients: for an application that knows neither their host nor the `path` that
    /// `strip_prefix` leaves out.
    pub redirects: Redirects,
    /// Requests to which interim responses of the server (1xx: 103 Early Hints, 102 Processing) are passed on.
    pub interim: InterimRequests,
    /// Whether requests carry W3C Trace Context: a valid `traceparent` of the client, or a new one.
    pub trace_context: bool,
    /// Protocols to which a connection may change by Upgrade (RFC 9110 §7.8). Of the others the server gets an ordinary request: by `h2c`, for
    /// instance, clients could send it requests that no rule has seen.
    pub upgrade: At<Vec<String>>,
    /// Most bytes of a request's content; longer content is answered 413 [default: unlimited]
    pub max_body: Option<Size>,
    /// What waits of each answer while the client takes it: the server is read at its own speed, and is free as soon as it has answered. `{}` for
    /// 1 MiB in memory; what does not fit holds the server up [default: answers are passed on as the client takes them]
    pub buffer: Option<At<BufferConfig>>,
    /// The same for contents of requests: the server gets a request when all of its content is here. What does not fit is passed on as it comes
    /// [default: requests are passed on as they come]
    pub buffer_request: Option<At<BufferConfig>>,
    /// Scripts, where the upstream has `protocol = "fastcgi"`.
    pub fastcgi: Option<At<FastcgiConfig>>,
    /// Stores responses in the directories of `[cache]` and answers with them: `cache = {}` for what the server's Cache-Control allows.
    pub cache: Option<At<CacheRuleConfig>>,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        ProxyConfig {
            path: None,
            regex: None,
            upstream: At::default(),
            strip_prefix: false.into(),
            to_prefix: None,
            files_first: false,
            host: None,
            request_headers: At::default(),
            response_headers: At::default(),
            intercept_errors: false,
            methods: At::default(),
            redirects: Redirects::default(),
            interim: InterimRequests::default(),
            trace_context: false,
            upgrade: vec!["websocket".to_owned()].into(),
            max_body: None,
            buffer: None,
            buffer_request: None,
            fastcgi: None,
            cache: None,
        }
    }
}

/// Requests to which interim responses are passed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum InterimRequests {
    /// No request.
    None,
    /// Requests for which browsers use early hints: GET with `Sec-Fetch-Mode: navigate`. Other clients may take 103 for the response.
    #[default]
    Navigations,
    /// All requests, but those of HTTP/1.0.
    All,
}

impl InterimRequests {
    fn include(self, request: &Request<'_>) -> bool {
        match self {
            InterimRequests::None => false,
            InterimRequests::Navigations => is_navigation(request),
            InterimRequests::All => true,
        }
    }
}

/// A field to set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FieldRule {
    pub name: String,
    pub value: String,
}

/// The proxy rules of a site.
#[derive(Debug)]
pub(crate) struct Proxies {
    rules: Vec<Rule>,
    /// Those of the rule with the most.
    interim: InterimRequests,
    /// Whether a server learns the ends of a client's connection.
    names_endpoints: bool,
}

#[derive(Debug)]
pub(crate) struct Rule {
    paths: Guarded,
    upstream: Arc<Upstream>,
    strip_prefix: bool,
    /// Without a slash at its end.
    to_prefix: String,
    pub(super) files_first: bool,
    host: Host,
    request: Vec<(HeaderName, Option<HeaderValue>)>,
    response: Vec<(HeaderName, Option<HeaderValue>)>,
    pub(super) intercept_errors: bool,
    /// Empty: all.
    methods: Vec<String>,
    rewriter: Option<Arc<Rewriter>>,
    interim: InterimRequests,
    /// Fields that interim responses cannot have, since the rule sets, removes or rewrites them.
    hidden: Arc<[HeaderName]>,
    trace_context: bool,
    upgrade: Vec<String>,
    max_body: Option<u64>,
    buffer: Option<Arc<Spooling>>,
    buffer_request: Option<Arc<Spooling>>,
    scripts: Option<Scripts>,
    cache: Option<CacheRule>,
    /// Fields that trailers of requests cannot have, since the rule sets or removes them.
    guarded: Arc<[HeaderName]>,
}

#[derive(Debug)]
enum Host {
    OfClient,
    Fixed(HeaderValue),
}

impl Proxies {
    /// `None`: there are no rules, or they have problems.
    pub(crate) fn build(
        configs: &[ProxyConfig],
        root: Option<&At<PathBuf>>,
        upstreams: &mut Upstreams,
        store: Option<&Arc<Store>>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let rules: Vec<_> =
            configs.iter().filter_map(|config| config.build(root, upstreams, store, key, problems)).collect();
        let interim = rules.iter().map(|rule| rule.interim).max()?;
        let names_endpoints = rules.iter().any(|rule| rule.upstream.names_endpoints());
        Some(Proxies { rules, interim, names_endpoints })
    }

    /// The rule for a path.
    pub(super) fn find(&self, path: &SitePath<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| match &rule.paths {
            Guarded::Beneath(prefix) => prefix.covers(path.as_bytes()),
            Guarded::Matching(regex) => regex.is_match(&path.full()),
        })
    }

    /// Whether a request for this path may be forwarded, however an application reads it.
    pub(super) fn may_forward(&self, path: &str) -> bool {
        SitePath::parse_forwarded(path).is_ok_and(|path| self.find(&path).is_some())
    }

    pub(super) fn name_endpoints(&self) -> bool {
        self.names_endpoints
    }

    /// Whether a rule permits WebSocket.
    pub(super) fn permit_websocket(&self) -> bool {
        self.rules.iter().any(|rule| permits(&rule.upgrade, WEBSOCKET.as_bytes()))
    }

    /// Whether a rule may pass interim responses to a request on.
    pub(super) fn pass_interim(&self, request: &Request<'_>) -> bool {
        self.interim.include(request)
    }
}

impl ProxyConfig {
    /// Ends of the names of scripts, if it is known without its upstream that there are some.
    pub(super) fn extensions_of_scripts(&self) -> impl Iterator<Item = Box<str>> {
        self.fastcgi.iter().flat_map(|fastcgi| fastcgi.extensions.iter().map(|extension| extension.as_str().into()))
    }

    fn build(
        &self,
        root: Option<&At<PathBuf>>,
        upstreams: &mut Upstreams,
        store: Option<&Arc<Store>>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Rule> {
        let before = problems.len();
        let paths = Guarded::build(self.path.as_ref(), self.regex.as_ref(), key, problems);
        if *self.strip_prefix && self.regex.is_some() {
            let what = "needs path: an expression has no prefix; rewrite the path with [[site.rewrites]]";
            problems.add(&self.strip_prefix.span, &format!("{key}.strip_prefix"), what);
        }
        let to_prefix = self.to_prefix.as_ref().map_or("", |to| to.trim_end_matches('/'));
        if let Some(at) = &self.to_prefix
            && (uri(at).is_none_or(|uri| uri.path() != at.as_str()) || SitePath::parse_forwarded(at).is_err())
        {
            let what = "is no path: write for instance /v1, with what a URL cannot have encoded by percent signs";
            problems.add(&at.span, &format!("{key}.to_prefix"), what);
        }
        let upstream_key = format!("{key}.upstream");
        let upstream = match self.upstream.is_empty() {
            true => {
                let what = "is missing: name an [[upstream]], or write the URL of a server, for instance http://127.0.0.1:3000";
                problems.add(&self.upstream.span, &upstream_key, what);
                None
            }
            false => upstreams.find(&self.upstream, &upstream_key, problems),
        };
        let host_key = format!("{key}.host");
        let host = match self.host.as_ref().map(|host| (host.as_str(), host)) {
            None | Some(("client", _)) => Some(Host::OfClient),
            Some(("upstream", _)) => {
                upstream.as_ref().and_then(|upstream| HeaderValue::try_from(upstream.authority()).ok()).map(Host::Fixed)
            }
            Some((host, at)) => match HeaderValue::try_from(host) {
                Ok(value) if !host.is_empty() && !host.contains([' ', '/']) => Some(Host::Fixed(value)),
                _ => {
                    problems.add(&at.span, &host_key, "write client, upstream, or a host, for instance app.internal");
                    None
                }
            },
        };
        let request = fields(&self.request_headers, &format!("{key}.request_headers"), problems);
        let mut response = fields(&self.response_headers, &format!("{key}.response_headers"), problems);
        if self.cache.is_some() {
            let is_set = |name: &HeaderName| self.response_headers.iter().any(|rule| name == rule.name.as_str());
            response.extend(OF_THIS_CACHE.into_iter().filter(|name| !is_set(name)).map(|name| (name, None)));
        }
        let scripts = self.scripts(upstream.as_deref(), root, key, problems);
        let mut spooling = |config: &Option<At<BufferConfig>>, name: &str| {
            config.as_ref().and_then(|config| config.build(&upstreams.waiting, &format!("{key}.{name}"), problems))
        };
        let buffer = spooling(&self.buffer, "buffer");
        let mut buffer_request = spooling(&self.buffer_request, "buffer_request");
        if scripts.is_some() {
            // A script runs with what there is when its input ends: it must not begin before that.
            buffer_request.get_or_insert_with(|| Spooling::in_memory(MOST_FOR_SCRIPT, &upstreams.waiting));
        }
        if let Some(wrong) =
            self.upgrade.iter().find(|protocol| !is_name(protocol) || protocol.eq_ignore_ascii_case("h2c"))
        {
            let what = format_args!("{wrong:?} cannot be a tunnel: write for instance websocket, or [] for none");
            problems.add(&self.upgrade.span, &format!("{key}.upgrade"), what);
        }
        if let Some(wrong) =
            self.methods.iter().find(|method| !is_name(method) || matches!(&***method, "TRACE" | "CONNECT"))
        {
            let what = format_args!("{wrong:?} cannot be forwarded: write methods as [\"GET\", \"POST\"]");
            problems.add(&self.methods.span, &format!("{key}.methods"), what);
        }
        if problems.len() > before {
            return None;
        }
        let (paths, upstream) = (paths?, upstream?);
        let rewriter = (self.redirects == Redirects::Rewrite).then(|| {
            let prefix = match (&paths, *self.strip_prefix) {
                (Guarded::Beneath(prefix), true) => percent_encode(prefix.as_bytes(), PATH).to_string(),
                _ => String::new(),
            };
            let prefix = if prefix.is_empty() { prefix } else { format!("/{prefix}") };
            let fixed = self.host.iter().map(|host| host.to_ascii_lowercase());
            let authorities = upstream.authorities().chain(fixed).collect();
            Arc::new(Rewriter { authorities, prefix, to_prefix: to_prefix.to_owned() })
        });
        let cache = self.cache.as_ref().map(|cache| {
            let (changes, rewriter) = (response.clone(), rewriter.clone());
            let lines = move |fields: &HeaderMap, authority: Option<&str>| {
                let mut fields = fields.clone();
                fields.remove(header::CONTENT_LENGTH);
                if let Some(rewriter) = &rewriter {
                    rewriter.rewrite(&mut fields, authority);
                }
                apply(&changes, &mut fields);
                response_fields(&fields).extra
            };
            cache.build(store, Box::new(lines), &cache.span, &format!("{key}.cache"), problems)
        });
        let rewritten = rewriter.iter().flat_map(|_| const { &[header::LOCATION, header::SET_COOKIE] });
        Some(Rule {
            cache: cache.flatten(),
            paths,
            upstream,
            methods: self.methods.value.clone(),
            hidden: response.iter().map(|(name, _)| name).chain(rewritten).cloned().collect(),
            interim: self.interim,
            rewriter,
            trace_context: self.trace_context,
            strip_prefix: *self.strip_prefix,
            to_prefix: to_prefix.to_owned(),
            files_first: self.files_first,
            host: host?,
            guarded: request.iter().map(|(name, _)| name.clone()).collect(),
            request,
            response,
            intercept_errors: self.intercept_errors,
            upgrade: if scripts.is_some() { Vec::new() } else { self.upgrade.value.clone() },
            buffer,
            buffer_request,
            scripts,
            max_body: self.max_body.map(|most| most.0),
        })
    }
}

impl ProxyConfig {
    /// The scripts of a rule whose servers run some.
    fn scripts(
        &self,
        upstream: Option<&Upstream>,
        root: Option<&At<PathBuf>>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Scripts> {
        let runs_scripts = upstream?.speaks_fastcgi();
        match &self.fastcgi {
            Some(fastcgi) if !runs_scripts => {
                let what = "names scripts, but the upstream does not speak FastCGI: add protocol = \"fastcgi\" to it, or remove fastcgi";
                problems.add(&fastcgi.span, &format!("{key}.fastcgi"), what);
                None
            }
            None if runs_scripts => {
                let what = "goes to an upstream that runs scripts: add fastcgi = {} to the rule for those beneath the site's root";
                problems.add(&self.upstream.span, &format!("{key}.upstream"), what);
                None
            }
            None => None,
            Some(fastcgi) => {
                if *self.strip_prefix || self.to_prefix.is_some() {
                    let what = "has no effect on scripts, which are found by the whole path: set fastcgi.root instead";
                    problems.add(&self.strip_prefix.span, &format!("{key}.strip_prefix"), what);
                }
                fastcgi.build(root, &format!("{key}.fastcgi"), problems)
            }
        }
    }
}

/// Octets of the longest content for a script, unless the rule has `buffer_request`.
const MOST_FOR_SCRIPT: usize = 1 << 20;
const NO_MEMORY_FOR_SCRIPT: &str = "contents that wait take all of limits.max_buffered: set buffer_request = { disk = \"1GiB\", directory = \"/var/tmp\" } in the rule, or raise it";
const TOO_LONG_FOR_SCRIPT: &str = "the content for a script has no room while it is waited for: set buffer_request = { disk = \"1GiB\", directory = \"/var/tmp\" } in the rule";

fn fields(rules: &At<Vec<FieldRule>>, key: &str, problems: &mut Problems) -> Vec<(HeaderName, Option<HeaderValue>)> {
    let mut fields = Vec::new();
    for FieldRule { name, value } in rules.iter() {
        let lower = name.to_ascii_lowercase();
        let what = match (HeaderName::try_from(&lower), HeaderValue::try_from(value)) {
            _ if !is_name(name) => format!("{name:?} is no name of a field"),
            _ if is_hop_by_hop(&lower) => {
                format!("{name} belongs to the connection and is made by the server: remove it")
            }
            _ if lower == "host" => "set the rule's host instead of the field Host".to_owned(),
            (Ok(name), Ok(value)) => {
                fields.push((name, (!value.is_empty()).then_some(value)));
                continue;
            }
            _ => format!("{value:?} is no value of a field"),
        };
        problems.add(&rules.span, key, what);
    }
    fields
}

/// Whether a rule's `upgrade` names a protocol.
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

impl Rule {
    /// The path, after any decoding that an application might add: twice, with backslashes as slashes, without parameters behind `;`. Guards
    /// have to permit it too. `Ok(None)`: it is `path`. An error is a path that would leave its directory then.
    pub(super) fn as_read_elsewhere(path: &SitePath<'_>) -> Result<Option<SitePath<'static>>, Status> {
        let octets = path.as_bytes();
        if !octets.iter().any(|octet| matches!(octet, b'%' | b'\\' | b';')) {
            return Ok(None);
        }
        let mut folded = Vec::with_capacity(octets.len());
        let mut is_parameter = false;
        for octet in percent_encoding::percent_decode(&path.full()) {
            match octet {
                b'/' | b'\\' => {
                    is_parameter = false;
                    folded.push(b'/');
                }
                b';' => is_parameter = true,
                _ if is_parameter => {}
                _ => folded.push(octet),
            }
        }
        SitePath::of_octets(&folded).map(Some).map_err(|_| Status::BAD_REQUEST)
    }

    /// Forwards a request. `path`: as the rule was found by. `rewritten`: the path by the site's rewrites, encoded, if one applied.
    pub(super) async fn forward(
        &self,
        request: &Request<'_>,
        path: &SitePath<'_>,
        rewritten: Option<&str>,
        mut inbound: Inbound,
    ) -> Response {
        if is_loop(request) {
            let what = "the request has come back: one of the upstream's servers leads here again";
            return Response::plain(Status::LOOP_DETECTED).because(Some(io::Error::other(what)));
        }
        let gone = inbound.gone.take();
        if let (Some(most), Some(content), false) = (self.max_body, &inbound.content, inbound.upgrade)
            && let Err(too_long) = content.limit(most)
        {
            return Response::plain(too_long.status);
        }
        let gone = async {
            match gone {
                Some(gone) => drop(gone.await),
                None => pending().await,
            }
        };
        let answer = async {
            if let Some(buffer) = &self.buffer_request
                && !inbound.upgrade
                && let Some(content) = inbound.content.take()
            {
                let rest = if self.scripts.is_some() { Rest::Refused } else { Rest::Passed };
                match Box::pin(collect(content, buffer, rest)).await {
                    Ok(content) => inbound.content = Some(content),
                    Err(incomplete) => {
                        let cause = match incomplete.status {
                            Status::CONTENT_TOO_LARGE if self.scripts.is_some() => Some(TOO_LONG_FOR_SCRIPT),
                            Status::SERVICE_UNAVAILABLE => Some(NO_MEMORY_FOR_SCRIPT),
                            _ => None,
                        };
                        return Response::plain(incomplete.status).because(cause.map(io::Error::other));
                    }
                }
            }
            match &self.cache {
                Some(cache) => Box::pin(self.forward_cached(cache, request, path, rewritten, inbound)).await,
                None => match self.request(request, path, rewritten, inbound) {
                    Some(forwarded) => self.pass(forwarded, request).await,
                    None => Response::plain(Status::BAD_REQUEST),
                },
            }
        };
        let (mut gone, mut answer) = (pin!(gone), pin!(answer));
        poll_fn(|cx| match gone.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Response::plain(Status::CLIENT_CLOSED_REQUEST)),
            Poll::Pending => answer.as_mut().poll(cx),
        })
        .await
    }

    /// The script that is the index of a directory; `None`: the servers run none.
    pub(super) fn index_script(&self) -> Option<&str> {
        self.scripts.as_ref().map(Scripts::index)
    }

    /// The script for a path; `None`: the servers run none.
    pub(super) async fn script(&self, path: &SitePath<'_>) -> Option<Result<Found, Status>> {
        Some(self.scripts.as_ref()?.find(path).await)
    }

    /// Gives the request the script that answers it.
    pub(super) fn add_script(&self, found: Found, request: &Request<'_>, inbound: &mut Inbound) {
        let (Some(scripts), sealion_http::Target::Path { path, query }) = (&self.scripts, request.target) else {
            return;
        };
        let ends = inbound.endpoints.as_deref().filter(|ends| Some(ends.client.ip()) == inbound.client);
        // What is no part of the key of a stored response must not make it.
        let kept = self.cache.as_ref().filter(|_| is_read(request)).and_then(|cache| cache.query(query));
        let query = kept.as_deref().or(query).filter(|query| kept.is_none() || !query.is_empty());
        let separator = if query.is_some() { "?" } else { "" };
        inbound.script = Some(Box::new(Script {
            root: Arc::clone(&scripts.root_path),
            name: [b"/", found.name.as_slice()].concat(),
            path_info: found.path_info,
            request_uri: [path, separator, query.unwrap_or_default()].concat(),
            query: query.unwrap_or_default().to_owned(),
            scheme: inbound.scheme,
            protocol: if inbound.takes_trailers { "HTTP/2.0" } else { "HTTP/1.1" },
            authority: request.authority.unwrap_or_default().to_ascii_lowercase(),
            client: inbound.client,
            ends: ends.map(|ends| (ends.client.port(), ends.local)),
            params: Arc::clone(&scripts.params),
        }));
    }

    /// The answer of the upstream.
    async fn pass(&self, forwarded: Forwarded, request: &Request<'_>) -> Response {
        let (trace, result) = forward(&self.upstream, forwarded).await;
        let mut response = match result {
            Ok(reply) => self.response(reply, request),
            Err(failure) => return failed(&failure, Some(trace), &self.upstream),
        };
        response.upstream = Some(Box::new(trace));
        response
    }

    fn request(
        &self,
        request: &Request<'_>,
        path: &SitePath<'_>,
        rewritten: Option<&str>,
        mut inbound: Inbound,
    ) -> Option<Forwarded> {
        let sealion_http::Target::Path { path: raw, query } = request.target else { return None };
        let raw = rewritten.unwrap_or(raw);
        let raw = match (&self.paths, self.strip_prefix) {
            (Guarded::Beneath(prefix), true) => strip(raw, prefix, path)?,
            _ => raw.into(),
        };
        let mut target = if self.to_prefix.is_empty() { raw.into_owned() } else { format!("{}{raw}", self.to_prefix) };
        let kept = self.cache.as_ref().filter(|_| is_read(request)).and_then(|cache| cache.query(query));
        if let Some(query) = kept.as_deref().or(query).filter(|query| kept.is_none() || !query.is_empty()) {
            target.push('?');
            target.push_str(query);
        }
        let mut fields = request_fields(request, &inbound.hop(request.authority));
        apply(&inbound.fields, &mut fields);
        if self.trace_context {
            add_trace_context(&mut fields);
        }
        apply(&self.request, &mut fields);
        let host = match &self.host {
            Host::OfClient => HeaderValue::try_from(request.authority.unwrap_or_default()).ok(),
            Host::Fixed(host) => Some(host.clone()),
        };
        // RFC 9110 §8.6: some servers answer 411 without it.
        if inbound.content.is_none() && matches!(request.method.as_str(), "POST" | "PUT" | "PATCH") {
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let upgrade = match inbound.is_connect {
            true => Some(WEBSOCKET.as_bytes()),
            false => inbound.upgrade.then(|| request.fields.singleton("upgrade").value()).flatten(),
        };
        let upgrade = upgrade.filter(|protocol| permits(&self.upgrade, protocol));
        let key = match inbound.is_connect && upgrade.is_some() {
            true => Some(WebSocketKey::random()?),
            false => None,
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
            // The library sends none that are not announced.
            let announced = request.fields.first("trailer").filter(|_| !content.has_length());
            if let Some(names) = announced.and_then(|names| HeaderValue::from_bytes(names).ok()) {
                fields.insert(header::TRAILER, names);
            }
        }
        Some(Forwarded {
            method: http::Method::from_bytes(request.method.as_str().as_bytes()).ok()?,
            target: uri(&target)?,
            fields,
            host,
            // What follows a request that asks for another protocol in vain is the next request.
            content: inbound.content.filter(|_| upgrade.is_some() || !inbound.upgrade),
            upgrade: upgrade
                .and_then(|protocol| HeaderValue::from_bytes(protocol).ok())
                .map(|protocol| Upgrade { protocol, key }),
            te,
            takes_trailers: te || inbound.takes_trailers,
            interim: inbound
                .interim
                .filter(|_| self.interim.include(request))
                .map(|sender| Box::new(sender.hiding(&self.hidden))),
            endpoints: inbound.endpoints,
            address: inbound.client.map_or_else(Vec::new, |address| address.to_string().into_bytes()),
            script: inbound.script,
        })
    }

    /// The refusal of a request whose method the rule does not forward.
    pub(super) fn refusal(&self, request: &Request<'_>) -> Option<Response> {
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

    fn response(&self, mut reply: Reply, request: &Request<'_>) -> Response {
        if let Some(rewriter) = &self.rewriter {
            rewriter.rewrite(&mut reply.fields, request.authority);
        }
        apply(&self.response, &mut reply.fields);
        if let Some(buffer) = self.buffer.as_ref().filter(|_| reply.status != Status::SWITCHING_PROTOCOLS) {
            reply.body = Buffered::new(reply.body.into(), buffer).into();
        }
        of_reply(reply)
    }
}

/// The response that a server gave.
pub(super) fn of_reply(reply: Reply) -> Response {
    let Reply { status, fields, body, .. } = reply;
    let length = length(&fields);
    let mut ours = response_fields(&fields);
    if status == Status::SWITCHING_PROTOCOLS {
        if let Some(protocol) = fields.get(header::UPGRADE) {
            ours.extra.add_octets("Upgrade", protocol.as_bytes());
        }
        return Response::new(status, ours, Body::Stream(BodyStream { length: None, source: body.into() }));
    }
    Response::new(status, ours, Body::Stream(BodyStream { length, source: body.into() }))
}

/// The response to a request that no server answered.
pub(super) fn failed(failure: &Failure, trace: Option<UpstreamTrace>, upstream: &Upstream) -> Response {
    let server = trace.as_ref().map_or("", |trace| &trace.server);
    let cause = || {
        let text = match upstream.warns_of(server)? {
            0 => format!("{server}: {failure}"),
            others => format!("{server}: {failure}; {others} more requests failed since the last such line"),
        };
        Some(io::Error::other(text))
    };
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

/// The path and query as they are sent. What clients send unencoded, and no URI has (RFC 3986 §2), is encoded.
fn uri(target: &str) -> Option<Uri> {
    const UNWISE: &AsciiSet =
        &CONTROLS.add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');
    Uri::try_from(target).or_else(|_| Uri::try_from(utf8_percent_encode(target, UNWISE).to_string())).ok()
}

/// Whether a request reads: only then is it one for the cache.
fn is_read(request: &Request<'_>) -> bool {
    matches!(request.method, sealion_http::Method::Get | sealion_http::Method::Head)
}

/// Fields by which a server speaks to the cache of a rule alone.
const OF_THIS_CACHE: [HeaderName; 2] =
    [HeaderName::from_static("surrogate-control"), HeaderName::from_static("x-accel-expires")];

/// What a path has beside letters and digits (RFC 3986 §3.3).
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The length that the answer announced.
fn length(fields: &HeaderMap) -> Option<u64> {
    fields.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// `raw` without its first segments, those of `prefix`. `None`: an encoded slash hides where they end.
fn strip<'a>(raw: &'a str, prefix: &Prefix, path: &SitePath<'_>) -> Option<Cow<'a, str>> {
    let count = match prefix.as_bytes() {
        [] => return Some(raw.into()),
        name => name.split(|octet| *octet == b'/').count(),
    };
    let mut rest = raw;
    for _ in 0..count {
        rest = rest.trim_start_matches('/');
        rest = rest.find('/').map_or("", |slash| &rest[slash..]);
    }
    let rest = if rest.is_empty() { "/" } else { rest };
    let stripped = SitePath::parse_forwarded(rest).ok()?;
    (stripped.as_bytes() == prefix.rest(path.as_bytes())?).then(|| rest.into())
}
