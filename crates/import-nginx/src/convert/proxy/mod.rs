//! Locations that pass requests to a server, as the action `proxy` of a route.
//!
//! A server that gets another path than `strip_prefix` and `to_prefix` can make is asked by a route of its own: the location's route rewrites to it, and
//! no client can ask for it.

mod cache;
mod fields;
mod gateway;
mod mirrors;
mod redirects;
mod scripts;
mod upstreams;
mod url;
mod uwsgi;

use toml::Value;

use super::condition::Condition;
use super::context::Context;
use super::level::Level;
use super::path::Path;
use super::variables::{Lost, Variables};
use super::{guards, settings, tables, values};
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};
use upstreams::Options;
use url::{Sent, Url};

pub(super) use cache::CacheZones;
pub(super) use mirrors::is_mirror;
pub(super) use upstreams::Upstreams;
pub(super) use url::without_query;

/// The beginning of the paths of routes to servers that get other paths.
const ELSEWHERE: &str = "/sealion-import-";

/// A location that passes requests on.
#[derive(Clone, Copy)]
pub(super) struct Place<'a, 'd> {
    pub(super) level: &'a Level<'d>,
    pub(super) variables: &'a Variables,
    pub(super) path: &'a Path,
    /// All locations of the server.
    pub(super) locations: &'a [&'d Directive],
    /// The bound on contents by the locations that lead to this named one.
    pub(super) max_body: Option<MaxBody>,
}

/// The size of contents of a named location, to which others lead: the first one counts. 0: any.
#[derive(Debug, Clone, Copy)]
pub(super) enum MaxBody {
    /// That of the location, or this if it is larger.
    AtLeast(u64),
    Exactly(u64),
}

/// Why a location cannot be passed on.
#[derive(Debug)]
pub(super) enum NotPassed {
    /// A variable has several cases: each needs a route.
    Cases(String),
    Other(String),
}

impl From<Lost> for NotPassed {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Cases(name) => NotPassed::Cases(name),
            Lost::Unknown(_) | Lost::Changed(_) => NotPassed::Other(lost.to_string()),
        }
    }
}

impl NotPassed {
    /// The reason where one route is all there can be.
    pub(in crate::convert) fn into_reason(self) -> String {
        match self {
            NotPassed::Cases(name) => format!("${name} has several values"),
            NotPassed::Other(why) => why,
        }
    }
}

impl From<&str> for NotPassed {
    fn from(why: &str) -> Self {
        NotPassed::Other(why.to_owned())
    }
}

impl From<String> for NotPassed {
    fn from(why: String) -> Self {
        NotPassed::Other(why)
    }
}

/// Whether a directive passes requests to a server that a route can ask.
pub(super) fn is_pass(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "proxy_pass" | "fastcgi_pass" | "uwsgi_pass" | "grpc_pass")
}

/// Whether a block passes requests to a server, or one within it does.
pub(super) fn passes(block: &Directive) -> bool {
    block.children().iter().any(|inner| is_pass(inner) || passes(inner))
}

/// Writes the fields of applications that have no effect: nginx follows the others by default, as the site does.
fn write_accel(table: &mut Table, level: &Level<'_>, pass: &Directive) {
    let module = pass.name.strip_suffix("_pass").unwrap_or_default();
    let Some(directive) = level.last(&format!("{module}_ignore_headers")) else { return };
    let names = directive.arguments.iter().map(|name| name.to_ascii_lowercase());
    let ignored: Vec<Value> = names.filter(|name| FOLLOWED.contains(&name.as_str())).map(Value::from).collect();
    if !ignored.is_empty() {
        table.set("accel", inline_table([("ignore", ignored.into())]));
    }
}

/// Fields of applications that `accel` follows.
const FOLLOWED: [&str; 3] = ["x-accel-redirect", "x-accel-limit-rate", "x-accel-charset"];

/// Writes the action of a location that passes requests on.
pub(super) fn write(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    pass: &Directive,
) -> Result<(), NotPassed> {
    write_accel(table, place.level, pass);
    if place.variables.has_other_query() && matches!(pass.name.as_str(), "fastcgi_pass" | "uwsgi_pass") {
        context
            .report_with(pass, "the program gets the query of the client: write a rewrite to the query that it gets");
    }
    if pass.name == "fastcgi_pass" {
        return scripts::write(context, table, place, pass);
    }
    if pass.name == "uwsgi_pass" {
        return uwsgi::write(context, table, place, pass);
    }
    let url = url(context, place.variables, pass)?;
    let has_variable = pass.first().contains('$');
    let sent = url.sent(place.path, has_variable);
    if let Some(query) = place.variables.own_query()? {
        let to = match sent {
            Sent::Same => "{path}".to_owned(),
            // It has all of its query.
            Sent::Other(to) if has_variable => {
                let prefix = elsewhere(context, place, pass, ItsPath::Requested)?;
                table.set("rewrite", format!("{prefix}{to}"));
                return Ok(());
            }
            Sent::Other(to) => to.trim_end_matches('?').to_owned(),
            _ => return Err("its query is changed, and its path too: write a rewrite in front of it".into()),
        };
        let prefix = elsewhere(context, place, pass, ItsPath::Requested)?;
        table.set("rewrite", format!("{prefix}{to}?{query}"));
        return Ok(());
    }
    match sent {
        Sent::Same => rule(context, table.table("proxy"), place, pass, &url),
        Sent::Behind(before) => {
            rule(context, table.table("proxy"), place, pass, &url)?;
            set_prefix(table, &before);
            Ok(())
        }
        Sent::Stripped(before) => {
            rule(context, table.table("proxy"), place, pass, &url)?;
            table.table("proxy").set("strip_prefix", true);
            set_prefix(table, &before);
            Ok(())
        }
        Sent::Other(to) => {
            let prefix = elsewhere(context, place, pass, ItsPath::Requested)?;
            let query = if to.contains('?') && !has_variable { "{is_args}{query}" } else { "" };
            table.set("rewrite", format!("{prefix}{to}{query}"));
            Ok(())
        }
        Sent::Appended { own, to } => {
            let prefix = elsewhere(context, place, pass, ItsPath::Requested)?;
            let mut inner = Table::default();
            inner.set("path", format!("~ ^{}(.*)$", values::literally(&own)));
            // The rest of the path and the query go behind the URL's own query.
            let query = if to.contains('?') { "{is_args}{query}" } else { "" };
            inner.set("rewrite", format!("{prefix}{to}{{1}}{query}"));
            table.push("route", inner);
            Ok(())
        }
    }
}

fn set_prefix(table: &mut Table, before: &str) {
    if !before.is_empty() {
        table.table("proxy").set("to_prefix", before);
    }
}

/// Adds a route that asks the server of a location for the path behind a prefix, and returns that prefix.
pub(super) fn elsewhere(
    context: &mut Context,
    place: Place<'_, '_>,
    pass: &Directive,
    its_path: ItsPath,
) -> Result<String, NotPassed> {
    let url = url(context, place.variables, pass)?;
    let prefix = format!("{ELSEWHERE}{}", context.next_number());
    let mut table = Table::default();
    table.comment(format!("{}, behind another path", pass.place));
    table.set("path", format!("^~ {prefix}/"));
    table.set("internal", true);
    let level = place.level.flattened();
    let variables = with_its_path(place.variables);
    let place = Place { level: &level, variables: &variables, ..place };
    if guards::write(context, &mut table, &level, place.locations) {
        settings::write(context, &mut table, &level, place.variables);
        write_accel(&mut table, &level, pass);
        rule(context, table.table("proxy"), place, pass, &url)?;
        table.table("proxy").set("strip_prefix", true);
    }
    if table.to_string().contains(ITS_PATH) {
        let name = ITS_PATH.trim_matches(['{', '}']);
        let (of, expression) = match its_path {
            ItsPath::Requested => ("{uri}", format!("~ ^(?<{name}>[^?]*)")),
            ItsPath::Rewritten => ("{path}", format!("~ (?s-u)^{prefix}(?<{name}>.*)")),
        };
        table.set("match", Condition::of_value(of, expression).into_table());
    }
    context.further.push(table);
    Ok(prefix)
}

/// The value of `$uri` where a server is asked for a path behind a prefix.
#[derive(Debug, Clone, Copy)]
pub(super) enum ItsPath {
    /// The path that the client asked for.
    Requested,
    /// The path that the server gets.
    Rewritten,
}

/// Its placeholder.
const ITS_PATH: &str = "{its_path}";

/// The variables where `$uri` is [`ITS_PATH`].
fn with_its_path(variables: &Variables) -> Variables {
    variables.in_case("uri", ITS_PATH).in_case("document_uri", ITS_PATH)
}

/// The path that a server gets behind `rewrite … break`, where its URL names one by a variable. `None`: the rewritten path, which is `to`. `is_raw`: whether
/// that has the query of the client.
pub(super) fn sent_rewritten(
    context: &mut Context,
    variables: &Variables,
    pass: &Directive,
    (to, is_raw): (&str, bool),
) -> Result<Option<String>, NotPassed> {
    if !pass.first().contains('$') {
        return Ok(None);
    }
    let (path, query) = to.split_once('?').map_or((to, None), |(path, query)| (path, Some(query)));
    let url = with_its_path(variables).template(context, pass.first())?;
    let (_, rest) = url.split_once("://").unwrap_or(("", &url));
    if rest.starts_with("unix:") {
        return Err("the path behind a socket depends on the request: name an [[upstream]]".into());
    }
    let starts = ["/", "{uri}", ITS_PATH].into_iter().filter_map(|start| rest.find(start));
    let Some(sent) = starts.min().map(|at| &rest[at..]) else { return Ok(None) };
    let has_query = ["?", "{is_args}", "{query}", "{uri}"].iter().any(|own| sent.contains(own));
    if query.is_some() && has_query && !sent.contains("{uri}") {
        return Err("its query is changed, and its path too: write a rewrite in front of it".into());
    }
    let keeps_query = has_query || is_raw && sent.contains(ITS_PATH);
    Ok(Some(format!("{}{}", sent.replace(ITS_PATH, path), if keeps_query { "" } else { "?" })))
}

fn url(context: &mut Context, variables: &Variables, pass: &Directive) -> Result<Url, NotPassed> {
    let template = variables.template(context, pass.first())?;
    // A server is asked over TLS or without.
    let template = match (template.strip_prefix("{scheme}"), variables.scheme) {
        (Some(rest), Some(scheme)) => format!("{scheme}{rest}"),
        (Some(_), None) => return Err(NotPassed::Cases("scheme".to_owned())),
        (None, _) => template,
    };
    if pass.name == "grpc_pass" {
        Ok(Url::of_grpc(&template))
    } else {
        Ok(Url::of(&template, pass.first().contains('$'))?)
    }
}

/// The URL of a `proxy_pass` in the location of this path, or the name of an upstream and a path.
///
/// # Errors
/// The reason why it has no counterpart.
pub(super) fn url_of(
    context: &mut Context,
    level: &Level<'_>,
    location: &Directive,
    pass: &Directive,
    (path, behind): (&str, &str),
) -> Result<Asked, String> {
    let variables = variables_of(context, level, location);
    let url = url(context, &variables, pass).map_err(NotPassed::into_reason)?;
    if url.authority.contains('{') || url.path.as_ref().is_some_and(|path| path.contains('{')) {
        return Err("its URL depends on the request".to_owned());
    }
    let own = level.of_locations().within(location);
    let options = options(context, url.tls, &|name: &str| own.all(name));
    note_verification(context, pass, url.tls, own.last("proxy_ssl_verify"));
    let target = upstreams::target(context, &url.authority, options)?;
    // The path of the URL stands for the path of the location.
    let replaced = url.path.as_deref().map(|own| format!("{}{behind}", own.trim_end_matches('?')));
    let path = replaced.as_deref().unwrap_or(path);
    if !target.name.contains(':') {
        return Ok(Asked { upstream: Some(target.name), to: path.to_owned(), host: target.host });
    }
    let separator = if target.name.starts_with("unix:") { ":" } else { "" };
    Ok(Asked { upstream: None, to: format!("{}{separator}{path}", target.name), host: target.host })
}

/// The server of a location that `auth_request` asks.
pub(super) struct Asked {
    pub(super) upstream: Option<String>,
    /// The URL, or the path with `upstream`.
    pub(super) to: String,
    /// The value of `$proxy_host`, as a `host`.
    pub(super) host: String,
}

/// The variables of a location that `auth_request` asks.
pub(super) fn variables_of(context: &mut Context, level: &Level<'_>, location: &Directive) -> Variables {
    let mut variables = context.variables.clone();
    for set in level.all("set").into_iter().chain(location.children().iter().filter(|inner| inner.name == "set")) {
        if let [name, value] = set.arguments.as_slice() {
            variables.set(context, name, value, &Condition::Always);
        }
    }
    variables
}

/// The `host` of requests to a location that `auth_request` asks. `proxy_host`: the value of `$proxy_host`, as a `host`. `None`: reported.
pub(super) fn host_of(
    context: &mut Context,
    directive: &Directive,
    (value, proxy_host): (&str, &str),
    variables: &Variables,
) -> Option<String> {
    fields::of_host(context, directive, value, proxy_host, variables)
}

/// Whether a field that is made for each request has the same value.
pub(super) fn is_made_here(name: &str, value: &str) -> bool {
    fields::is_made_here(name, value)
}

/// The server of a rule: a name, a URL, or a text whose placeholders choose among names.
fn target(context: &mut Context, url: &Url, options: Options) -> Result<upstreams::Target, NotPassed> {
    if !url.authority.contains('{') {
        return Ok(upstreams::target(context, &url.authority, options)?);
    }
    let Some(values) = tables::values(context, &url.authority) else {
        return Err(
            "its server depends on the request: name an [[upstream]] for each, and choose among them by a [[map]]"
                .into(),
        );
    };
    let is_block = |context: &Context, value: &String| upstreams::is_block(context, value);
    let scheme = options.scheme;
    let all_blocks = values.iter().filter(|value| !value.is_empty()).all(|value| is_block(context, value));
    if all_blocks {
        for value in values.iter().filter(|value| !value.is_empty()) {
            let written = upstreams::target(context, value, options.clone())?;
            if written.name != *value {
                return Err(
                    format!("upstream {value} is asked in several ways: write an [[upstream]] for this one").into()
                );
            }
        }
        return Ok(upstreams::Target { name: url.authority.clone(), host: url.authority.clone() });
    }
    let is_url = |value: &String| value.contains("://");
    if values.iter().any(|value| is_block(context, value)) {
        return Err("its map names upstreams and hosts: write an [[upstream]] for each".into());
    }
    let name = if values.iter().all(is_url) { url.authority.clone() } else { format!("{scheme}://{}", url.authority) };
    Ok(upstreams::Target { name, host: "upstream".to_owned() })
}

/// Writes the keys of `proxy`.
fn rule(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    pass: &Directive,
    url: &Url,
) -> Result<(), NotPassed> {
    let is_grpc = pass.name == "grpc_pass";
    let level = place.level;
    let all = |name: &str| {
        // The directives of both modules have the same names but for their start.
        let of_grpc = name.strip_prefix("proxy_").filter(|_| is_grpc).map(|rest| format!("grpc_{rest}"));
        level.all(of_grpc.as_deref().unwrap_or(name))
    };
    let last = |name: &str| all(name).pop();
    let mut options = options(context, url.tls, &all);
    if is_grpc {
        options.keys.insert(0, ("protocol", "http2".into()));
    }
    note_verification(context, pass, url.tls, last("proxy_ssl_verify"));
    let target = target(context, url, options)?;
    table.set("to", target.name);
    let sets = level.all("auth_request_set");
    let set: Vec<_> =
        all("proxy_set_header").into_iter().filter(|field| guards::source_of(field, &sets).is_none()).collect();
    let cache = cache::of_rule(context, &all);
    let is_any = level.last("satisfy").is_some_and(|satisfy| satisfy.first() == "any");
    let has_user = !is_any && level.last("auth_basic").is_some_and(|realm| realm.first() != "off");
    let (of_requests, host) =
        fields::of_requests(context, &set, &target.host, (place.variables, cache.is_some(), has_user));
    if !is_grpc {
        let forwarding = redirects::Forwarding { place, url, has_variable: pass.first().contains('$') };
        redirects::write(context, table, &forwarding, &all);
    }
    if host != "client" {
        table.set("host", host);
    }
    if let Some(fields) = of_requests.into_value() {
        table.set("request_headers", fields);
    }
    let mut of_responses = fields::of_responses(context, &all("proxy_hide_header"));
    if let Some(value) = cache_control(context, level, place.variables) {
        of_responses.set("Cache-Control", &value);
    }
    keys_of_all(context, table, place, &all, (of_responses, cache));
    let (mirrors, sent) = (level.all("mirror"), url.sent(place.path, pass.first().contains('$')));
    let requests = mirrors::Requests { mirrors: &mirrors, sent: &sent, fields: &set };
    if let Some(mirror) = mirrors::of_rule(context, place, &requests) {
        table.set("mirror", mirror);
    }
    Ok(())
}

/// Notes that certificates of servers are verified, where nginx does not.
fn note_verification(context: &mut Context, pass: &Directive, is_tls: bool, verify: Option<&Directive>) {
    if is_tls && verify.is_none_or(|verify| verify.first() != "on") {
        context.note(
            pass,
            "certificates of servers are verified here, by the system's roots: set roots in [upstream.tls] for others",
        );
    }
}

/// Writes the keys that the rules of all protocols have. `all`: the directives of a name, which begins with the protocol's own instead of `proxy_`.
fn keys_of_all<'d>(
    context: &mut Context,
    table: &mut Table,
    place: Place<'_, '_>,
    all: &impl Fn(&str) -> Vec<&'d Directive>,
    (of_responses, cache): (fields::Fields, Option<Value>),
) {
    let is = |name: &str, word: &str| all(name).pop().is_some_and(|directive| directive.first() == word);
    if is("proxy_pass_request_headers", "off") {
        table.set("pass_fields", false);
    }
    if let Some(fields) = of_responses.into_value() {
        table.set("response_headers", fields);
    }
    if is("proxy_intercept_errors", "on") {
        table.set("intercept_errors", true);
    }
    if let Some(size) = max_body(context, place) {
        table.set("max_body", size.to_string());
    }
    if let Some(cache) = cache {
        table.set("cache", cache);
    }
}

/// The largest content of a request. `None`: there is no bound.
fn max_body(context: &mut Context, place: Place<'_, '_>) -> Option<values::Size> {
    let own = match place.max_body {
        Some(MaxBody::Exactly(size)) => size,
        Some(MaxBody::AtLeast(other)) => larger(own_max_body(context, place.level), other),
        None => own_max_body(context, place.level),
    };
    (own > 0).then_some(values::Size(own))
}

fn larger(one: u64, other: u64) -> u64 {
    if one == 0 || other == 0 { 0 } else { one.max(other) }
}

/// The largest content by the directives of a level. 0: there is no bound.
pub(super) fn own_max_body(context: &mut Context, level: &Level<'_>) -> u64 {
    // nginx' default.
    match level.last("client_max_body_size") {
        None => 1 << 20,
        Some(directive) => match values::size(directive.first()) {
            Some(size) => size.0,
            None => {
                context.report_with(directive, "it is no size: set max_body");
                1 << 20
            }
        },
    }
}

/// The Cache-Control that `add_header` alone adds to forwarded responses, beside the application's own: a value that would make clients keep a response that
/// the application forbids to keep is reported. The Cache-Control of `expires` is a setting of the route.
fn cache_control(context: &mut Context, level: &Level<'_>, variables: &Variables) -> Option<String> {
    if level.last("expires").is_some_and(|expires| expires.first() != "off") {
        return None;
    }
    let value = settings::cache_control(context, level, variables)?;
    let is_safe = value
        .split(',')
        .any(|word| matches!(word.trim().to_ascii_lowercase().as_str(), "no-store" | "no-cache" | "max-age=0"));
    if is_safe {
        return Some(value);
    }
    let directive = level.last("add_header")?;
    if !context.is_reported(directive) {
        let remedy = format!(
            "the server's own Cache-Control is sent: let the application send {value}, or set it by response_headers, for errors too"
        );
        context.note(directive, remedy);
    }
    None
}

/// Whether a directive turns off, or leaves at its default, a feature without counterpart.
pub(super) fn is_off(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "proxy_pass_request_body" => directive.first() == "on",
        "proxy_cache" | "uwsgi_cache" | "proxy_store" | "proxy_bind" | "auth_request" => directive.first() == "off",
        _ => false,
    }
}

/// Times, tries and TLS.
fn options<'a>(context: &mut Context, tls: bool, all: &impl Fn(&str) -> Vec<&'a Directive>) -> Options {
    let mut options = Options { scheme: if tls { "https" } else { "http" }, ..Options::default() };
    let last = |name: &str| all(name).pop();
    let mut time = |context: &mut Context, name: &str, keys: &[&'static str]| {
        let Some(directive) = last(name) else { return };
        match values::time(directive.first()).filter(|time| !time.0.is_zero()) {
            Some(time) => keys.iter().for_each(|key| options.keys.push((key, time.to_string().into()))),
            None => context.note(directive, "a time is above 0"),
        }
    };
    time(context, "proxy_connect_timeout", &["connect_timeout"]);
    time(context, "proxy_read_timeout", &["answer_timeout", "stall_timeout", "tunnel_timeout"]);
    if let Some(next) = last("proxy_next_upstream") {
        if next.first() == "off" {
            options.keys.push(("tries", 1.into()));
        } else if next.arguments.iter().any(|case| !matches!(case.as_str(), "error" | "timeout")) {
            let remedy =
                "requests are repeated where no answer came, not after an answer, and only if the method is idempotent";
            context.note(next, remedy);
        }
    }
    if let Some(tries) = last("proxy_next_upstream_tries")
        && !options.keys.iter().any(|(key, _)| *key == "tries")
    {
        match tries.first().parse::<i64>() {
            Ok(0) => options.keys.push(("tries", 16.into())),
            Ok(number @ 1..=16) => options.keys.push(("tries", number.into())),
            _ => context.note(tries, "set tries of the [[upstream]] from 1 to 16"),
        }
    }
    if !tls {
        return options;
    }
    for (name, key) in [
        ("proxy_ssl_trusted_certificate", "roots"),
        ("proxy_ssl_name", "server_name"),
        ("proxy_ssl_certificate", "cert"),
        ("proxy_ssl_certificate_key", "key"),
    ] {
        let Some(directive) = last(name) else { continue };
        match directive.first() {
            "$proxy_host" => {}
            value if value.contains('$') || value.starts_with("engine:") || value.is_empty() => {
                context.note(directive, format!("set {key} in [upstream.tls]"));
            }
            value if key == "server_name" => options.tls_keys.push((key, value.into())),
            value => options.tls_keys.push((key, context.resolve(value).into())),
        }
    }
    options
}
