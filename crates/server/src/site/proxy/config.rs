//! `proxy`: the keys, and the rule that is made of them.

use std::path::PathBuf;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use schemars::JsonSchema;
use sealion_http::Request;
use sealion_http::extra_fields::is_name;
use sealion_http::path::SitePath;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::cache_name::CacheName;
use super::mirror::MirrorConfig;
use super::{Collects, FieldChange, Host, Rule, RuleContext, apply, uri};
use crate::observe::Warnings;
use crate::placeholders::{Known, Template};
use crate::site::early_hints::is_navigation;
use crate::site::fastcgi::{FastcgiConfig, Scripts};
use crate::site::proxy_redirects::{Redirects, Replacement, Replacements, Rewriter, Rewriting};
use crate::site::uwsgi::{Uwsgi, UwsgiConfig};
use crate::store::CacheRuleConfig;
use crate::upstream::{BufferConfig, Spooling, Trace, Upstream, WEBSOCKET, is_hop_by_hop, passed_on};
use crate::values::{At, Problems, Secret, SecretUrl, Size};

/// Forwards requests.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyConfig {
    /// Name of an `[[upstream]]`, or the URL of a server: `http://127.0.0.1:3000`, `https://app.internal`, `unix:/run/app.sock`,
    /// `uwsgi://127.0.0.1:3031`.
    #[serde(rename = "to")]
    pub upstream: At<SecretUrl>,
    /// Whether the directory of the route is left out of the forwarded path: with `path = "/api/"`, `/api/users` is forwarded as `/users`.
    pub strip_prefix: At<bool>,
    /// Path that goes before the forwarded one: with `path = "/api/"`, `strip_prefix = true` and `to_prefix = "/v1"`, `/api/users` is forwarded as
    /// `/v1/users`.
    pub to_prefix: Option<At<String>>,
    /// Whether a file of the site goes before: only requests without one are forwarded. Methods but GET and HEAD are always forwarded. With `fallback`,
    /// browsers that navigate to a path without a file get that page, and other requests are forwarded.
    pub files_first: bool,
    /// Host that the server gets: `client`, the host of the request; `{host}`, the same without its port, `{host}:8080`, with another; `upstream`, the host
    /// of the URL; or another. With the text of `to` and its placeholders, it is the name that they choose.
    pub host: Option<At<String>>,
    /// Whether the server gets the fields of the request. Otherwise it gets the fields that are made for each request, and `request_headers`.
    #[default(true)]
    pub pass_fields: bool,
    /// Fields to set in the request; an empty value removes the field.
    pub request_headers: At<Vec<FieldRule>>,
    /// Fields to set in the response; an empty value removes the field.
    pub response_headers: At<Vec<FieldRule>>,
    /// Whether the site's error pages replace the server's.
    pub intercept_errors: bool,
    /// Methods to forward, for instance `["GET", "POST"]`; others are answered 405. GET includes HEAD [default: all]
    pub methods: At<Vec<String>>,
    /// Whether Location and cookies of answers are rewritten for clients: for an application that knows neither their host nor the `path` that
    /// `strip_prefix` leaves out.
    pub redirects: Redirects,
    /// Beginnings of Location that are replaced, the first that fits: `[{ from = "http://127.0.0.1:3000/", to = "/app/" }]`; in place of `redirects`.
    pub locations: At<Vec<Replacement>>,
    /// Beginnings of paths of cookies that are replaced: `[{ from = "/", to = "/app/" }]`; in place of `redirects`.
    pub cookie_paths: At<Vec<Replacement>>,
    /// Domains of cookies that are replaced: `[{ from = "app.internal", to = "example.org" }]`; an empty one is left out; in place of `redirects`.
    pub cookie_domains: At<Vec<Replacement>>,
    /// Attributes that all cookies of the server get, in place of their own with the same name: `["Secure", "SameSite=Lax"]`; in place of `redirects`.
    pub cookie_attributes: At<Vec<String>>,
    /// Requests whose clients get the interim responses of the server (1xx: 103 Early Hints, 102 Processing).
    pub interim: At<InterimRequests>,
    /// Whether requests carry W3C Trace Context: a valid `traceparent` of the client, or a new one. `sample` of `[otlp]` goes before.
    pub trace_context: bool,
    /// Protocols that a connection may change to by Upgrade (RFC 9110 §7.8). For any other, the server gets an ordinary request: with `h2c`, for
    /// instance, clients could send it requests that no rule has seen. Servers of HTTP/2, FastCGI and uwsgi cannot upgrade [default: `["websocket"]`]
    pub upgrade: Option<At<Vec<String>>>,
    /// Most bytes of a request's content; longer content is answered 413 [default: unlimited]
    pub max_body: Option<Size>,
    /// Buffer for each response while the client takes it: the server is read at its own speed, and is free as soon as it has answered. `{}` for 1 MiB in
    /// memory; when the buffer is full, the server waits. A response with `X-Accel-Buffering: no` has no buffer
    /// [default: responses are passed on as the client takes them]
    pub buffer: Option<At<BufferConfig>>,
    /// Buffer for the content of each request: the server gets a request when all of its content is here. Content that does not fit is passed on as it comes
    /// [default: requests are passed on as they come; for scripts, and for uwsgi without Content-Length, 1 MiB in memory and 1 GiB in `/var/tmp`]
    pub buffer_request: Option<At<BufferConfig>>,
    /// Scripts, where the upstream has `protocol = "fastcgi"`.
    pub fastcgi: Option<At<FastcgiConfig>>,
    /// Variables and modifiers of requests, where the upstream has `protocol = "uwsgi"`.
    pub uwsgi: Option<At<UwsgiConfig>>,
    /// Stores responses in the directories of `[cache]` and answers with them. `cache = {}`: as the server's Cache-Control allows.
    pub cache: Option<At<CacheRuleConfig>>,
    /// Copies requests to another upstream: `mirror = { to = "next", share = "10%" }` [default: no request is copied]
    pub mirror: Option<At<MirrorConfig>>,
}

impl ProxyConfig {
    /// The beginnings to replace in responses. `None`: the lists are empty.
    fn replacements(&self, key: &str, problems: &mut Problems) -> Option<Rewriting> {
        for (name, list) in [("locations", &self.locations), ("cookie_paths", &self.cookie_paths)] {
            let is_text =
                |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
            let is_target = |to: &str| {
                to.starts_with('/') && !to.starts_with("//") || to.starts_with("https://") || to.starts_with("http://")
            };
            let is_right = |own: &Replacement| is_text(&own.from) && is_text(&own.to) && is_target(&own.to);
            if let Some(wrong) = list.iter().find(|own| !is_right(own)) {
                let what = format_args!(
                    "{:?} becomes no path: write for instance {{ from = \"/\", to = \"/app/\" }}",
                    wrong.from
                );
                problems.add(&list.span, &format!("{key}.{name}"), what);
            }
            if self.redirects == Redirects::Rewrite && !list.is_empty() {
                let what = "stands beside redirects = \"rewrite\", which changes the same fields: remove one of them";
                problems.add(&list.span, &format!("{key}.{name}"), what);
            }
        }
        let own = Replacements {
            locations: self.locations.value.clone(),
            cookie_paths: self.cookie_paths.value.clone(),
            cookie_domains: self.cookie_domains.value.clone(),
            cookie_attributes: self.cookie_attributes.value.clone(),
        };
        self.check_cookies(key, problems);
        (!own.is_empty()).then_some(Rewriting::Replace(own))
    }

    /// Adds the problems of the changes to cookies beside their paths.
    fn check_cookies(&self, key: &str, problems: &mut Problems) {
        let is_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b','));
        if let Some(wrong) = self.cookie_domains.iter().find(|own| !is_text(&own.from) || !is_text(&own.to)) {
            let what = format_args!("{:?} becomes no domain: write for instance example.org", wrong.from);
            problems.add(&self.cookie_domains.span, &format!("{key}.cookie_domains"), what);
        }
        let is_attribute = |own: &String| {
            let name = own.split('=').next().unwrap_or_default();
            ["secure", "httponly", "samesite", "partitioned"].iter().any(|known| name.eq_ignore_ascii_case(known))
        };
        if let Some(wrong) = self.cookie_attributes.iter().find(|own| !is_attribute(own) || !is_text(own)) {
            let what = format_args!(
                "{wrong:?} is not an attribute of cookies: write Secure, HttpOnly, Partitioned or SameSite=Lax"
            );
            problems.add(&self.cookie_attributes.span, &format!("{key}.cookie_attributes"), what);
        }
        for (name, span, is_empty) in [
            ("cookie_domains", &self.cookie_domains.span, self.cookie_domains.is_empty()),
            ("cookie_attributes", &self.cookie_attributes.span, self.cookie_attributes.is_empty()),
        ] {
            if self.redirects == Redirects::Rewrite && !is_empty {
                let what = "stands beside redirects = \"rewrite\", which changes the same fields: remove one of them";
                problems.add(span, &format!("{key}.{name}"), what);
            }
        }
    }

    /// Whether contents may wait in files.
    pub(crate) fn buffers_in_files(&self) -> bool {
        [&self.buffer, &self.buffer_request].into_iter().flatten().any(|buffer| buffer.disk.is_some())
    }
}

/// Requests whose clients get interim responses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum InterimRequests {
    /// No request.
    None,
    /// Requests whose browsers use early hints: GET with `Sec-Fetch-Mode: navigate`. Other clients may take 103 for the response.
    #[default]
    Navigations,
    /// All requests, except by HTTP/1.0.
    All,
}

impl InterimRequests {
    pub(in crate::site) fn include(self, request: &Request<'_>) -> bool {
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
    pub value: Secret,
}

impl ProxyConfig {
    /// Forwards to a server that runs these scripts.
    pub(in crate::site) fn of_scripts(fastcgi: &At<FastcgiConfig>) -> Self {
        let upstream = fastcgi.to.clone().unwrap_or_default();
        ProxyConfig { upstream, fastcgi: Some(fastcgi.clone()), ..ProxyConfig::default() }
    }

    pub(in crate::site) fn build(
        &self,
        key: &str,
        context: &mut RuleContext<'_>,
        problems: &mut Problems,
    ) -> Option<Rule> {
        let RuleContext { root, upstreams, store, groups, tables, directory, listeners } = context;
        let (root, store, listeners) = (*root, *store, *listeners);
        let before = problems.len();
        if *self.strip_prefix && directory.is_none() {
            let what = "needs a route whose path ends in a slash, for instance /api/";
            problems.add(&self.strip_prefix.span, &format!("{key}.strip_prefix"), what);
        }
        let to_prefix = self.to_prefix.as_ref().map_or("", |to| to.trim_end_matches('/'));
        if let Some(at) = &self.to_prefix
            && (uri(at).is_none_or(|uri| uri.path() != at.as_str()) || SitePath::parse_forwarded(at).is_err())
        {
            let what =
                "is not a path: write for instance /v1, with percent signs for characters that a URL cannot have";
            problems.add(&at.span, &format!("{key}.to_prefix"), what);
        }
        let upstream_key = format!("{key}.to");
        let upstream = match self.upstream.reveal().is_empty() {
            true => {
                let what = "is missing: name an [[upstream]], or write the URL of a server, for instance http://127.0.0.1:3000";
                problems.add(&self.upstream.span, &upstream_key, what);
                None
            }
            false => upstreams.find(&self.upstream, &upstream_key, problems),
        };
        let host = Host::parse(self.host.as_ref(), upstream.as_deref(), &format!("{key}.host"), problems);
        let request = self.fields(
            &self.request_headers,
            Known::of_forwarded(groups, tables),
            &format!("{key}.request_headers"),
            problems,
        );
        let response = self.fields(
            &self.response_headers,
            Known::of_response(groups, tables),
            &format!("{key}.response_headers"),
            problems,
        );
        let (request, request_values) = request;
        let (mut response, response_values) = response;
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
        let uwsgi = self.uwsgi(upstream.as_deref(), key, problems);
        let collects = match (&scripts, &uwsgi, &buffer_request) {
            // A script runs with the content that has come when its input ends: it must not begin before that.
            (Some(_), ..) => Collects::All,
            (None, None, _) => Collects::AsRoom,
            (None, Some(_), None) => Collects::WithoutLength,
            (None, Some(_), Some(_)) => Collects::AllWithoutLength,
        };
        if collects != Collects::AsRoom {
            buffer_request.get_or_insert_with(|| Spooling::for_scripts(&upstreams.waiting));
        }
        if let Some(upgrade) = &self.upgrade
            && let Some(wrong) =
                upgrade.iter().find(|protocol| !is_name(protocol) || protocol.eq_ignore_ascii_case("h2c"))
        {
            let what = format_args!("{wrong:?} cannot be a tunnel: write for instance websocket, or [] for none");
            problems.add(&upgrade.span, &format!("{key}.upgrade"), what);
        }
        if let Some(upstream) = upstream.as_deref().filter(|upstream| !upstream.speaks_http1()) {
            self.refuse_what_needs_http1(upstream, key, problems);
        }
        if let Some(wrong) = self.methods.iter().find(|method| {
            !is_name(method) || matches!(&***method, "TRACE" | "CONNECT") || **method != method.to_ascii_uppercase()
        }) {
            let what = format_args!("{wrong:?} cannot be forwarded: write methods as [\"GET\", \"POST\"]");
            problems.add(&self.methods.span, &format!("{key}.methods"), what);
        }
        self.refuse_unused_query_content(key, problems);
        let mirror = self.mirror.as_ref().map(|mirror| {
            let known = Known::of_request(Some(groups), tables);
            let key = format!("{key}.mirror");
            mirror.build((self, upstream.as_deref()), known, upstreams, &key, problems)
        });
        if problems.len() > before {
            return None;
        }
        let upstream = upstream?;
        let directory: Option<Box<[u8]>> = directory.map(Box::from);
        let upstream_speaks_http1 = upstream.speaks_http1();
        let replaces = self.replacements(key, problems);
        let by_rule = (self.redirects == Redirects::Rewrite).then(|| {
            let prefix = match directory.as_deref() {
                Some(directory) if *self.strip_prefix && !directory.is_empty() => {
                    format!("/{}", percent_encode(directory, PATH))
                }
                _ => String::new(),
            };
            let fixed = self.host.iter().map(|host| host.to_ascii_lowercase());
            let authorities = upstream.authorities().chain(fixed).collect();
            Rewriting::ByRule(Rewriter { authorities, prefix, to_prefix: to_prefix.to_owned() })
        });
        let rewriter = by_rule.or(replaces).map(Arc::new);
        let cache = self.cache.as_ref().map(|cache| {
            let (changes, rewriter) = (response.clone(), rewriter.clone());
            let lines = move |fields: &HeaderMap, authority: Option<&str>| {
                let mut fields = fields.clone();
                fields.remove(header::CONTENT_LENGTH);
                if let Some(rewriter) = &rewriter {
                    rewriter.rewrite(&mut fields, authority);
                }
                apply(&changes, &mut fields);
                passed_on(&fields).extra
            };
            let place = (&cache.span, &*format!("{key}.cache"));
            cache.build(store, Box::new(lines), place, tables, problems)
        });
        let rewritten = rewriter.iter().flat_map(|_| const { &[header::LOCATION, header::SET_COOKIE] });
        let cache_name = cache.as_ref().map_or_else(Box::default, |_| {
            CacheName::of(self, directory.as_deref(), scripts.as_ref()).finish(&upstream.name, listeners)
        });
        Some(Rule {
            cache: cache.flatten(),
            cache_name,
            directory,
            upstream,
            methods: self.methods.value.clone(),
            hidden: response
                .iter()
                .map(|(name, _)| name)
                .chain(response_values.iter().map(|(name, _)| name))
                .chain(rewritten)
                .chain(&FOR_THIS_SERVER)
                .cloned()
                .collect(),
            interim: *self.interim,
            rewriter,
            trace: if self.trace_context { Trace::Made } else { Trace::OfClient },
            strip_prefix: *self.strip_prefix,
            to_prefix: to_prefix.to_owned(),
            files_first: self.files_first,
            host: host?,
            passes_fields: self.pass_fields,
            guarded: request
                .iter()
                .map(|(name, _)| name)
                .chain(request_values.iter().map(|(name, _)| name))
                .cloned()
                .collect(),
            request,
            request_values,
            response,
            response_values,
            groups: Arc::clone(groups),
            tables: Arc::clone(tables),
            intercept_errors: self.intercept_errors,
            upgrade: match &self.upgrade {
                _ if !upstream_speaks_http1 => Vec::new(),
                Some(upgrade) => upgrade.value.clone(),
                None => vec![WEBSOCKET.to_owned()],
            },
            misses_websocket: !upstream_speaks_http1 && self.upgrade.is_none(),
            buffer,
            buffer_request,
            collects,
            scripts,
            uwsgi,
            mirror: mirror.flatten(),
            waiting: Arc::clone(&upstreams.waiting),
            warnings: Warnings::default(),
            max_body: self.max_body.map(|most| most.0),
        })
    }
}

impl Host {
    /// `upstream`: whose authority `upstream` stands for. `None`: the text is wrong, or there is no upstream.
    pub(in crate::site) fn parse(
        host: Option<&At<String>>,
        upstream: Option<&Upstream>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        match host.map(|host| (host.as_str(), host)) {
            None | Some(("client", _)) => Some(Host::OfClient),
            Some(("{host}", _)) => Some(Host::NameOfClient(None)),
            Some((host, _)) if let Some(port) = host.strip_prefix("{host}:").and_then(|port| port.parse().ok()) => {
                Some(Host::NameOfClient(Some(port)))
            }
            Some(("upstream", _)) => HeaderValue::try_from(upstream?.authority()).ok().map(Host::Fixed),
            Some((host, at)) => match HeaderValue::try_from(host) {
                Ok(value) if !host.is_empty() && !host.contains([' ', '/']) => Some(Host::Fixed(value)),
                _ => {
                    problems.add(&at.span, key, "write client, upstream, or a host, for instance app.internal");
                    None
                }
            },
        }
    }
}

impl ProxyConfig {
    /// Refuses a cache for responses to QUERY, if the rule does not forward the method.
    fn refuse_unused_query_content(&self, key: &str, problems: &mut Problems) {
        if self.methods.is_empty() || self.methods.iter().any(|method| method == "QUERY") {
            return;
        }
        if let Some(most) = self.cache.as_ref().and_then(|cache| cache.query_content.as_ref()) {
            let what = "has no effect: the rule does not forward QUERY: add it to methods, or remove query_content";
            problems.add(&most.span, &format!("{key}.cache.query_content"), what);
        }
    }

    /// Refuses keys that would have no effect.
    fn refuse_what_needs_http1(&self, upstream: &Upstream, key: &str, problems: &mut Problems) {
        let protocol = upstream.protocol_name();
        let no_effect = |value: &str| {
            format!(
                "has no effect: servers of the upstream are asked with protocol = {protocol:?}; write {value}, or name \
                 an [[upstream]] with \"http1\""
            )
        };
        if let Some(upgrade) = self.upgrade.as_ref().filter(|upgrade| !upgrade.is_empty()) {
            problems.add(&upgrade.span, &format!("{key}.upgrade"), no_effect("[]"));
        }
        if *self.interim == InterimRequests::All {
            problems.add(&self.interim.span, &format!("{key}.interim"), no_effect("\"none\""));
        }
    }

    /// The variables of a rule whose servers are asked by uwsgi.
    fn uwsgi(&self, upstream: Option<&Upstream>, key: &str, problems: &mut Problems) -> Option<Uwsgi> {
        let speaks_uwsgi = upstream?.speaks_uwsgi();
        match &self.uwsgi {
            Some(own) if !speaks_uwsgi => {
                let what =
                    "has no effect: the upstream does not speak uwsgi: add protocol = \"uwsgi\" to it, or remove uwsgi";
                problems.add(&own.span, &format!("{key}.uwsgi"), what);
                None
            }
            own => speaks_uwsgi.then(|| {
                own.as_ref().map_or(&UwsgiConfig::default(), |own| &own.value).build(&format!("{key}.uwsgi"), problems)
            }),
        }
    }

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
                problems.add(&self.upstream.span, &format!("{key}.to"), what);
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

/// Fields to set or remove, and fields whose values have placeholders.
pub(in crate::site) type Fields = (Vec<FieldChange>, Vec<(HeaderName, Template)>);

impl ProxyConfig {
    pub(in crate::site) fn fields(
        &self,
        rules: &At<Vec<FieldRule>>,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Fields {
        let (mut constant, mut filled) = (Vec::new(), Vec::new());
        for FieldRule { name, value } in rules.iter() {
            let lower = name.to_ascii_lowercase();
            let Some(template) = Template::parse_text(value.reveal(), &rules.span, known, key, problems) else {
                continue;
            };
            let text = template.as_text().map(HeaderValue::try_from);
            let what = match (HeaderName::try_from(&lower), text) {
                _ if !is_name(name) => format!("{name:?} is not a name of a field"),
                _ if is_hop_by_hop(&lower) => {
                    format!("{name} belongs to the connection and is made by the server: remove it")
                }
                _ if lower == "host" => "set the rule's host instead of the field Host".to_owned(),
                (Ok(name), Some(Ok(value))) => {
                    constant.push((name, (!value.is_empty()).then_some(value)));
                    continue;
                }
                (Ok(_), None) if self.cache.is_some() => {
                    format!(
                        "{name}: its placeholders differ from request to request, and stored responses are for many: remove them, or cache"
                    )
                }
                (Ok(name), None) => {
                    filled.push((name, template));
                    continue;
                }
                _ => format!("{name}: its value has characters that no field may have: write visible ones"),
            };
            problems.add(&rules.span, key, what);
        }
        (constant, filled)
    }
}

/// Fields of a server for the cache of a rule alone.
const OF_THIS_CACHE: [HeaderName; 2] =
    [HeaderName::from_static("surrogate-control"), HeaderName::from_static("x-accel-expires")];

/// Fields of a response that lead to a file (`accel`). An interim response leads nowhere.
const FOR_THIS_SERVER: [HeaderName; 2] =
    [HeaderName::from_static("x-accel-redirect"), HeaderName::from_static("x-sendfile")];

/// Characters to encode in a path: all but letters, digits, the slash and the unreserved marks (RFC 3986 §3.3).
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');
