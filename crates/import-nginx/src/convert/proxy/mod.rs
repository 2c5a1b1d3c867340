//! Locations that pass requests to a server over HTTP, as `[[site.proxy]]`.
//!
//! nginx takes the most specific location, Sealion the first rule. So the rules of a site are written together, after all its locations, in
//! the order of nginx: exact paths, prefixes with `^~`, expressions, other prefixes by length. A location with files inside a forwarded one is
//! left out of the rule's expression, where that can be written; else the forwarded one is closed.

mod cache;
mod fields;
mod paths;
mod redirects;
mod remainder;
mod scripts;
mod upstreams;
mod url;

use toml::Value;

use super::Context;
use super::location::{self, Scope};
use super::site::{self, Settings};
use super::{auth_request, extensions, guards, path_rules, real_ip, values};
use crate::syntax::Directive;
use crate::toml_text::Table;
use fields::Constants;
use paths::{files, paths, start};
use upstreams::Options;
use url::{Url, replaces, rewritten};

pub(super) use cache::CacheZones;
pub(super) use upstreams::Upstreams;
pub(super) use url::url_of;

/// A location whose requests are forwarded, until its rule can be written.
#[derive(Debug)]
pub(super) struct Draft {
    /// Its number among the locations of the server.
    order: usize,
    location: Directive,
    pass: Directive,
    kind: Kind,
    scope: Scope,
    strips: bool,
    keys: Vec<(&'static str, Value)>,
}

/// The precedence of a location: earlier ones are taken first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Exact,
    /// `^~`
    Preferred,
    Regex,
    Prefix,
}

impl Kind {
    fn of(location: &Directive) -> Self {
        match location.first() {
            modifier if modifier.starts_with('=') => Kind::Exact,
            modifier if modifier.starts_with("^~") => Kind::Preferred,
            modifier if modifier.starts_with('~') => Kind::Regex,
            _ => Kind::Prefix,
        }
    }
}

/// The location that passes the requests of a location: itself, or the named one of its `try_files`; with the directive that says so.
fn passes<'a>(settings: &Settings<'a>, location: &'a Directive) -> Option<(&'a Directive, &'a Directive)> {
    let is_pass = |inner: &&Directive| matches!(inner.name.as_str(), "proxy_pass" | "fastcgi_pass" | "grpc_pass");
    let own = location.children().iter().find(is_pass);
    if let Some(pass) = own {
        return Some((location, pass));
    }
    let is_answered = |inner: &Directive| inner.name == "return" || guards::passes_to_program(inner);
    if location.children().iter().any(is_answered) {
        return None;
    }
    let try_files = location.children().iter().rfind(|inner| inner.name == "try_files")?;
    if let Some(found) = scripts::front_of(try_files).and_then(|front| scripts::runs(settings, front)) {
        return Some(found);
    }
    let named = named(settings, try_files)?;
    Some((named, named.children().iter().find(is_http_pass)?))
}

/// Whether a directive passes requests to a server over HTTP, HTTP/1.1 or, for gRPC, HTTP/2.
fn is_http_pass(directive: &&Directive) -> bool {
    matches!(directive.name.as_str(), "proxy_pass" | "grpc_pass")
}

/// The named location at the end of a `try_files`.
fn named<'a>(settings: &Settings<'a>, try_files: &Directive) -> Option<&'a Directive> {
    let name = try_files.arguments.last().filter(|name| name.starts_with('@'))?;
    settings.all("location").into_iter().find(|location| location.arguments == [name.as_str()])
}

/// Converts a location that passes requests to a server. `false`: it does not, or it cannot be converted at all.
pub(super) fn convert(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    constants: (Option<&str>, Option<u16>),
    location: &Directive,
) -> bool {
    if location.first().starts_with('@') {
        let Some(pass) = location.children().iter().find(is_http_pass) else { return false };
        // Converted with the location that leads there.
        let try_files = settings.all("location").into_iter().flat_map(Directive::children);
        let mut try_files = try_files.chain(settings.all("try_files")).filter(|inner| inner.name == "try_files");
        if !try_files.any(|inner| inner.arguments.last() == location.arguments.first()) {
            context.report_with(
                pass,
                format!("{location} is not forwarded: a named location is reached by try_files alone"),
            );
        }
        return true;
    }
    if let Some(purge) = only_purges(location) {
        let allowed = location.children().iter().filter(|inner| inner.name == "allow" && inner.first() != "all");
        let networks: Vec<_> = allowed.map(|allow| format!("{:?}", allow.first())).collect();
        let networks = if networks.is_empty() { "…".to_owned() } else { networks.join(", ") };
        let remedy = format!(
            "{location} is left out: with purge_from = [{networks}] in the rule's cache, clients send PURGE for the URL itself; or use sealion purge"
        );
        context.report_with(purge, remedy);
        return true;
    }
    let Some((block, pass)) = passes(settings, location) else { return false };
    let constants = Constants { name: constants.0, port: constants.1 };
    let scope = Scope::of(location);
    let refuse = |context: &mut Context, site: &mut Table, why: &str| {
        refuse(context, site, settings, scope.as_ref(), location, pass, why);
        true
    };
    let Some(scope) = scope.clone() else { return refuse(context, site, "its location has an unknown form") };
    if guards::returns(location) {
        return refuse(context, site, "a return goes before it");
    }
    if location.children().iter().any(|inner| inner.name == "location" && !is_closed(inner)) {
        return refuse(context, site, "locations inside a forwarded one have to stand beside it");
    }
    let is_runner = scripts::only_front(settings).is_some_and(|only| std::ptr::eq(only.runner, location));
    let guarded = if is_runner { without_internal(context, location) } else { location.clone() };
    if !guards::of_block(context, site, settings, &scope, &guarded) {
        return true;
    }
    if !std::ptr::eq(block, location) {
        let mut named = block.clone();
        named.block.iter_mut().for_each(|inner| inner.retain(|inner| inner.name != "internal"));
        if !guards::of_block(context, site, settings, &scope, &named) {
            return true;
        }
    }
    match draft(context, site, settings, constants, &scope, location, block, pass) {
        Ok(draft) => context.drafts.push(draft),
        Err(why) => return refuse(context, site, &why),
    }
    true
}

/// The location of a front script without `internal`: the front script answers all paths, and so may be asked for itself.
fn without_internal(context: &mut Context, location: &Directive) -> Directive {
    let mut open = location.clone();
    let own = open.block.get_or_insert_default();
    if let Some(at) = own.iter().position(|inner| inner.name == "internal") {
        let remedy = "the front script is run for its own path too, with the guards of the path that follows it";
        context.report_with(&own.remove(at), remedy);
    }
    open
}

/// The `proxy_cache_purge` of a location that does nothing else: it sends no files.
fn only_purges(location: &Directive) -> Option<&Directive> {
    let is_beside = |inner: &Directive| {
        guards::is_access(inner)
            || matches!(
                inner.name.as_str(),
                "proxy_cache_purge"
                    | "satisfy"
                    | "auth_basic"
                    | "auth_basic_user_file"
                    | "access_log"
                    | "default_type"
                    | "set"
            )
    };
    let purge = location.children().iter().find(|inner| inner.name == "proxy_cache_purge")?;
    location.children().iter().all(is_beside).then_some(purge)
}

/// Converts the `try_files` of a server that leads to a named location. `false`: it does not.
pub(super) fn convert_server(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    constants: (Option<&str>, Option<u16>),
    try_files: &Directive,
) -> bool {
    let mut locations = settings.all("location").into_iter();
    let front = scripts::front_of(try_files).and_then(|front| scripts::runs(settings, front));
    if front.is_none() && named(settings, try_files).is_none() || locations.any(|location| location.arguments == ["/"])
    {
        return false;
    }
    // As nginx has it, for paths without a location.
    let everything = Directive {
        name: "location".to_owned(),
        arguments: vec!["/".to_owned()],
        block: Some(vec![try_files.clone()]),
        place: try_files.place.clone(),
    };
    convert(context, site, settings, constants, &everything)
}

/// Whether a location refuses all scripts but a front script, whose rule refuses them itself.
pub(super) fn is_left_to_front(settings: &Settings<'_>, location: &Directive) -> bool {
    scripts::only_front(settings).is_some_and(|only| std::ptr::eq(only.refusal, location))
}

/// Whether a location inside another refuses everything.
fn is_closed(location: &Directive) -> bool {
    let is_refusal = |inner: &Directive| inner.name == "deny" && inner.first() == "all" || path_rules::refuses(inner);
    let may_permit = |inner: &Directive| matches!(inner.name.as_str(), "allow" | "satisfy" | "location");
    location.children().iter().any(is_refusal) && !location.children().iter().any(may_permit)
}

/// Names what cannot be converted, and closes the paths: their files may be a program's.
fn refuse(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    scope: Option<&Scope>,
    location: &Directive,
    pass: &Directive,
    why: &str,
) {
    context.report_with(pass, format!("{location} is not forwarded: {why}"));
    guards::close_program(context, site, settings, scope, location);
}

/// The rule of a location but for its paths. An error says why there is none.
#[expect(clippy::too_many_arguments, reason = "what a location and the one that passes its requests are")]
fn draft(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    constants: Constants<'_>,
    scope: &Scope,
    location: &Directive,
    block: &Directive,
    pass: &Directive,
) -> Result<Draft, String> {
    let kind = Kind::of(location);
    if pass.name == "fastcgi_pass" {
        return scripts::draft(context, site, settings, kind, scope, location, block, pass);
    }
    let is_grpc = pass.name == "grpc_pass";
    let url = if is_grpc { Url::of_grpc(pass.first())? } else { Url::of(pass.first())? };
    let files_first = files_first(context, site, scope, location);
    let by_rewrite = rewritten(location, block, scope)?;
    let (strips, to_prefix) = match (&url.path, by_rewrite) {
        (None, strips) => (strips, None),
        // After a rewrite with `break`, nginx sends the whole path.
        (Some(_), true) => return Err("its URL has a path beside a rewrite: remove the path".to_owned()),
        (Some(path), false) => replaces(path, kind, scope)?,
    };
    let all = |name: &str| {
        // The directives of both modules have the same names but for their start.
        let of_grpc = name.strip_prefix("proxy_").filter(|_| is_grpc).map(|rest| format!("grpc_{rest}"));
        let name = of_grpc.as_deref().unwrap_or(name);
        let own: Vec<_> = block.children().iter().filter(|inner| inner.name == name).collect();
        if own.is_empty() { settings.all(name) } else { own }
    };
    let last = |name: &str| all(name).pop();
    let mut options = options(context, url.tls, &all)?;
    if is_grpc {
        options.keys.insert(0, ("protocol", "http2".into()));
    }
    let verifies = last("proxy_ssl_verify").is_some_and(|verify| verify.first() == "on");
    if url.tls && !verifies {
        let remedy =
            "certificates of servers are verified here, by the system's roots: set roots in [upstream.tls] for others";
        context.report_with(pass, remedy);
    }
    let target = upstreams::target(context, &url.authority, options)?;
    let mut keys: Vec<(&'static str, Value)> = vec![("upstream", target.name.into())];
    if strips {
        keys.push(("strip_prefix", true.into()));
    }
    if files_first {
        keys.push(("files_first", true.into()));
    }
    let copied = auth_request::copied(&all("auth_request_set"), &all("proxy_set_header"));
    let is_ours = |field: &&Directive| !field.arguments.first().is_some_and(|name| copied.contains(name));
    let set: Vec<_> = all("proxy_set_header").into_iter().filter(is_ours).collect();
    let (of_requests, host) = fields::of_requests(context, &set, &target.host, constants);
    let prefix = if strips { scope_prefix(scope) } else { "" };
    let forwarding = redirects::Forwarding {
        prefix,
        to_prefix: to_prefix.as_deref().unwrap_or_default(),
        url: &url,
        has_variable: pass.first().contains('$'),
        host: &host,
        constants,
    };
    if !is_grpc && redirects::of_rule(context, pass, &forwarding, &all) {
        keys.push(("redirects", "rewrite".into()));
    }
    keys.extend(to_prefix.map(|path| ("to_prefix", path.into())));
    if host != "client" {
        keys.push(("host", host.into()));
    }
    keys.extend(of_requests.into_value().map(|fields| ("request_headers", fields)));
    let added = added(context, site, settings, scope, location, block, files_first);
    let mut of_answers = fields::of_answers(context, &all("proxy_hide_header"), &added);
    if let Some(value) = fields::cache_control(context, &all) {
        of_answers.set("Cache-Control", &value);
    }
    keys.extend(of_answers.into_value().map(|fields| ("response_headers", fields)));
    let mut limits = location.children().iter().chain(block.children()).filter(|inner| inner.name == "limit_except");
    if let Some(limit) = limits.rfind(|limit| denies_all(limit)) {
        keys.push(("methods", limit.arguments.clone().into()));
    }
    if last("proxy_intercept_errors").is_some_and(|intercept| intercept.first() == "on") {
        keys.push(("intercept_errors", true.into()));
    }
    // nginx' default.
    match last("client_max_body_size").map_or(Some(values::Size(1 << 20)), |size| values::size(size.first())) {
        Some(values::Size(0)) => {}
        Some(size) => keys.push(("max_body", size.to_string().into())),
        None => context.report_with(pass, "client_max_body_size is no size: set max_body"),
    }
    keys.extend(cache::of_rule(context, &all).map(|cache| ("cache", cache)));
    others(context, site, settings, scope, location, block, files_first);
    let order = settings.all("location").into_iter().position(|other| other == location).unwrap_or(usize::MAX);
    Ok(Draft { order, location: location.clone(), pass: pass.clone(), kind, scope: scope.clone(), strips, keys })
}

/// The path of a location without its slash at the end.
fn scope_prefix(scope: &Scope) -> &str {
    match scope {
        Scope::Prefix(path) => path.trim_end_matches('/'),
        _ => "",
    }
}

/// Whether a field that is made for each request has the same value.
pub(super) fn is_made_here(name: &str, value: &str) -> bool {
    fields::is_made_here(name, value)
}

/// Whether files go before, by the location's `try_files`.
fn files_first(context: &mut Context, site: &mut Table, scope: &Scope, location: &Directive) -> bool {
    let Some(try_files) = location.children().iter().rfind(|inner| inner.name == "try_files") else { return false };
    let Some((last, tried)) = try_files.arguments.split_last().filter(|(last, _)| last.starts_with('@')) else {
        return false;
    };
    let files_first = tried.iter().any(|tried| tried == "$uri");
    if files_first {
        extensions::convert(context, site, scope, try_files);
    }
    let is_usual = |tried: &String| {
        matches!(tried.as_str(), "$uri" | "$uri/" | "$uri/index.html" | "")
            || files_first && extensions::of_argument(tried).is_some()
    };
    // Idioms for what is never there.
    let is_nothing =
        |tried: &String| ["/nonexist", "/non-exist", "/dev/null", "/none"].iter().any(|start| tried.starts_with(start));
    if !tried.iter().all(|tried| is_usual(tried) || is_nothing(tried)) {
        let remedy = format!("only the file at the path itself goes before {last}");
        context.report_with(try_files, remedy);
    }
    files_first
}

/// The fields that nginx adds to answers and that are set in the rule, since no pattern has its paths. The others are set in the site. Of
/// Cache-Control see [`fields::cache_control`].
fn added<'a>(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'a>,
    scope: &Scope,
    location: &'a Directive,
    block: &'a Directive,
    files_first: bool,
) -> Vec<&'a Directive> {
    let of = |block: &'a Directive, name: &str| -> Vec<&'a Directive> {
        block.children().iter().filter(|inner| inner.name == name).collect()
    };
    let mut rest = match std::ptr::eq(location, block) {
        true => Vec::new(),
        false => of(block, "add_header"),
    };
    let (own, expires) = (of(location, "add_header"), of(location, "expires"));
    match scope.pattern() {
        Some(pattern) => {
            let from_server = if *scope == Scope::Everything { Vec::new() } else { settings.all("add_header") };
            path_rules::fields(context, site, &pattern, files_first, &own, &expires, &from_server);
        }
        None => {
            let of_files = expires.iter().filter(|_| files_first);
            of_files.for_each(|expires| context.report_with(expires, "use [[site.cache_control]]"));
            rest.extend(own);
        }
    }
    rest.retain(|directive| !directive.first().eq_ignore_ascii_case("cache-control"));
    rest
}

/// Reports the directives of a forwarded location that have no effect on its rule.
fn others(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    scope: &Scope,
    location: &Directive,
    block: &Directive,
    files_first: bool,
) {
    let of_block = block.children().iter().filter(|_| !std::ptr::eq(location, block));
    for inner in location.children().iter().chain(of_block) {
        match inner.name.as_str() {
            name if scripts::is_about(name) => {}
            "proxy_pass"
            | "grpc_pass"
            | "allow"
            | "deny"
            | "auth_basic"
            | "auth_basic_user_file"
            | "auth_request"
            | "auth_request_set"
            | "internal"
            | "add_header"
            | "expires"
            | "rewrite"
            | "try_files" => {}
            name if site::is_of_proxies(name) => {}
            name if real_ip::is_real_ip_directive(name) => {}
            _ if is_off(inner) => {}
            "root" if settings.root() == Some(inner.first()) => {}
            "root" | "alias" if files_first => location::mount(context, site, scope, inner),
            // No file is sent there.
            "root" | "alias" | "index" | "autoindex" if !files_first => {}
            "autoindex" if inner.first() != "on" => {}
            "location" => location::nested_guard(context, site, settings, inner),
            "limit_except" if denies_all(inner) => {}
            "limit_except" => {
                let remedy = "methods are not restricted: let the application refuse those that it does not want";
                context.report_unguarded(inner, remedy);
            }
            "error_page" if *scope == Scope::Everything => path_rules::error_page(context, site, inner),
            _ => location::report_other(context, inner),
        }
    }
}

/// Whether a `limit_except` refuses all methods but those that it names.
fn denies_all(limit: &Directive) -> bool {
    matches!(limit.children(), [deny] if deny.name == "deny" && deny.arguments == ["all"])
}

/// Whether a directive turns off, or leaves at its default, what has no counterpart.
pub(super) fn is_off(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "proxy_pass_request_headers" | "proxy_pass_request_body" => directive.first() == "on",
        "proxy_cache" | "proxy_store" | "proxy_bind" | "auth_request" => directive.first() == "off",
        _ => false,
    }
}

/// Times, tries and TLS.
fn options<'a>(context: &mut Context, tls: bool, all: &impl Fn(&str) -> Vec<&'a Directive>) -> Result<Options, String> {
    let mut options = Options { scheme: if tls { "https" } else { "http" }, ..Options::default() };
    let last = |name: &str| all(name).pop();
    let mut time = |context: &mut Context, name: &str, keys: &[&'static str]| {
        let Some(directive) = last(name) else { return };
        match values::time(directive.first()).filter(|time| !time.0.is_zero()) {
            Some(time) => keys.iter().for_each(|key| options.keys.push((key, time.to_string().into()))),
            None => context.report_with(directive, "a time is above 0"),
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
            context.report_with(next, remedy);
        }
    }
    if let Some(tries) = last("proxy_next_upstream_tries")
        && !options.keys.iter().any(|(key, _)| *key == "tries")
    {
        match tries.first().parse::<i64>() {
            Ok(0) => options.keys.push(("tries", 16.into())),
            Ok(number @ 1..=16) => options.keys.push(("tries", number.into())),
            _ => context.report_with(tries, "set tries of the [[upstream]] from 1 to 16"),
        }
    }
    if !tls {
        return Ok(options);
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
                context.report_with(directive, format!("set {key} in [upstream.tls]"));
            }
            value if key == "server_name" => options.tls_keys.push((key, value.into())),
            value => options.tls_keys.push((key, context.resolve(value).into())),
        }
    }
    Ok(options)
}

/// Writes the rules of a site. Locations that none can express are closed.
pub(super) fn write(context: &mut Context, site: &mut Table, settings: &Settings<'_>) {
    let mut drafts = std::mem::take(&mut context.drafts);
    drafts.sort_by_key(|draft| match (draft.kind, &draft.scope) {
        // The order of expressions stays.
        (Kind::Regex, _) => (Kind::Regex, 0),
        (kind, Scope::Prefix(path)) => (kind, usize::MAX - path.len()),
        (kind, _) => (kind, usize::MAX - 1),
    });
    let others = files(site, settings, &drafts);
    let mut written = Vec::new();
    for draft in &drafts {
        let behind_fallback = draft.keys.iter().any(|(key, _)| *key == "files_first") && site.get("fallback").is_some();
        let found = if behind_fallback {
            Err("the site's fallback goes before it".to_owned())
        } else if draft.pass.name != "fastcgi_pass" && takes_index(site, draft, &drafts) {
            Err("nginx forwards the index of a directory there, and it would be sent as a file here".to_owned())
        } else {
            paths(draft, &drafts, &others)
        };
        match found {
            Ok((key, paths)) => {
                let mut rule = Table::default();
                rule.comment(&draft.pass.place);
                rule.set(key, paths);
                draft.keys.iter().for_each(|(key, value)| rule.set(key, value.clone()));
                site.push("proxy", rule);
                redirect_to_slash(site, draft, settings);
                written.extend((draft.pass.name == "fastcgi_pass").then_some(draft));
            }
            Err(why) => {
                let Draft { location, pass, scope, .. } = draft;
                refuse(context, site, settings, Some(scope), location, pass, &why);
            }
        }
    }
    scripts::of_index(site, settings, &written, &drafts);
    let has_front = written.iter().any(|draft| draft.scope == Scope::Everything);
    if let Some(only) = scripts::only_front(settings).filter(|_| !has_front) {
        location::convert(context, site, settings, None, only.refusal);
    }
}

/// Whether nginx forwards the index of a directory that is not forwarded itself.
fn takes_index(site: &Table, draft: &Draft, drafts: &[Draft]) -> bool {
    if drafts.iter().any(|other| other.scope == Scope::Everything) {
        return false;
    }
    let names: Vec<String> = match site.get("index").and_then(Value::as_array) {
        Some(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => vec!["index.html".to_owned()],
    };
    let name_of = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match (&draft.scope, draft.kind) {
        (Scope::Exact(path), _) => names.contains(&name_of(path)),
        (Scope::Prefix(prefix), Kind::Preferred | Kind::Prefix) => {
            let start = name_of(prefix);
            !start.is_empty() && names.iter().any(|name| name.starts_with(&start))
        }
        (scope, _) => {
            let built = scope.regex().and_then(|regex| regex::bytes::Regex::new(&format!("(?s-u){regex}")).ok());
            let start = start(scope);
            let directory = &start[..start.rfind('/').map_or(0, |slash| slash + 1)];
            let directory = if directory.is_empty() { "/" } else { directory };
            let takes = |regex: &regex::bytes::Regex, name: &String| {
                regex.is_match(format!("{directory}{name}").as_bytes()) && !regex.is_match(directory.as_bytes())
            };
            built.is_some_and(|regex| names.iter().any(|name| takes(&regex, name)))
        }
    }
}

/// nginx redirects the path of a forwarded directory to itself with a slash, where no location has it.
fn redirect_to_slash(site: &mut Table, draft: &Draft, settings: &Settings<'_>) {
    let (Kind::Preferred | Kind::Prefix, Scope::Prefix(path)) = (draft.kind, &draft.scope) else { return };
    let Some(without) = path.strip_suffix('/') else { return };
    let is_plain = without.bytes().all(|octet| octet.is_ascii_alphanumeric() || b"/-._~".contains(&octet));
    let has_location = settings
        .all("location")
        .into_iter()
        .filter_map(Scope::of)
        .any(|scope| matches!(scope, Scope::Exact(path) | Scope::Prefix(path) if path == without));
    if without.is_empty() || !is_plain || has_location {
        return;
    }
    let mut redirect = Table::default();
    redirect.comment(&draft.location.place);
    redirect.set("path", without);
    redirect.set("to", path.as_str());
    redirect.set("status", 301);
    site.push("redirects", redirect);
}

#[cfg(test)]
mod tests;
