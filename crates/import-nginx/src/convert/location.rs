//! Converts a `location` to rules of its site.

use toml::Value;

use super::Context;
use super::site::{self, Settings};
use super::values;
use super::{extensions, guards, path_rules, real_ip, targets};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// The paths of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// The whole site.
    Everything,
    /// One path.
    Exact(String),
    /// All paths with this prefix.
    Prefix(String),
    /// The paths matched by an expression.
    Regex {
        /// In Sealion's syntax, if supported.
        regex: Option<String>,
        /// An equivalent file pattern, if there is one.
        pattern: Option<String>,
    },
}

impl Scope {
    /// The paths of a location. `None`: a named location.
    pub(super) fn of(location: &Directive) -> Option<Self> {
        let (modifier, path) = match location.arguments.as_slice() {
            [modifier, path] => (modifier.as_str(), path.as_str()),
            // nginx allows modifier and path without a space.
            [both] => {
                let modifier = ["^~", "~*", "~", "="].into_iter().find(|modifier| both.starts_with(modifier));
                both.split_at(modifier.map_or(0, str::len))
            }
            _ => return None,
        };
        match modifier {
            "=" => Some(Scope::Exact(path.to_owned())),
            // Equivalent to a prefix.
            "~" if prefix_of(path).is_some() => prefix_of(path).map(Scope::Prefix),
            "~" | "~*" => {
                let other_names = values::without_well_known(path);
                let regex = values::regex_of_pcre(other_names.as_deref().unwrap_or(path), modifier == "~*");
                Some(Scope::Regex { regex, pattern: values::pattern_of_regex(path) })
            }
            _ if path == "/" => Some(Scope::Everything),
            _ => path.starts_with('/').then(|| Scope::Prefix(path.to_owned())),
        }
    }

    /// As a pattern for `headers` and `cache_control`. `None`: not expressible.
    pub(super) fn pattern(&self) -> Option<String> {
        match self {
            Scope::Everything => Some("**".to_owned()),
            Scope::Exact(path) => Some(globset::escape(path)),
            Scope::Prefix(path) => Some(format!("{}/**", globset::escape(path.trim_end_matches('/')))),
            Scope::Regex { pattern, .. } => pattern.clone(),
        }
    }

    /// As a path for `listing`. `None`: not expressible.
    pub(super) fn part(&self) -> Option<&str> {
        match self {
            Scope::Everything => Some("/"),
            // The page at the root alone is not expressible.
            Scope::Exact(path) if path == "/" => None,
            Scope::Exact(path) | Scope::Prefix(path) => Some(path),
            Scope::Regex { .. } => None,
        }
    }

    /// As a key of `access` and `basic_auth` with its value. It covers all paths of the location, and little more. `None`: its own
    /// expression is not supported.
    pub(super) fn guarded(&self) -> Option<(&'static str, String)> {
        let is_plain = |path: &str| !path.contains(['%', '?', '#', '*']);
        Some(match self {
            Scope::Everything => ("path", "/".to_owned()),
            Scope::Exact(path) if path != "/" && is_plain(path) => ("path", path.clone()),
            // Prefix `/admin` also matches `/administrator`, which a path does not cover.
            Scope::Prefix(path) if path.ends_with('/') && is_plain(path) => ("path", path.clone()),
            _ => ("regex", values::with_end_of_pcre(&self.regex()?)?),
        })
    }

    /// An expression that matches its paths. `None`: its own expression is not supported.
    pub(super) fn regex(&self) -> Option<String> {
        match self {
            Scope::Everything => Some("^/".to_owned()),
            Scope::Exact(path) => Some(format!("^{}$", values::literally(path))),
            Scope::Prefix(path) => Some(format!("^{}", values::literally(path))),
            Scope::Regex { regex, .. } => regex.clone(),
        }
    }
}

/// The prefix that an expression such as `^/admin/` is equivalent to.
fn prefix_of(regex: &str) -> Option<String> {
    let pattern = values::pattern_of_regex(regex)?;
    pattern.starts_with('/').then(|| pattern.trim_end_matches("**").to_owned())
}

/// Converts a location. `host`: the first name of the site.
pub(super) fn convert(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    host: Option<&str>,
    location: &Directive,
) {
    // A server may have names that begin with a dot.
    if guards::hides_dotfiles(location) && !settings.forwards() {
        return;
    }
    let scope = Scope::of(location);
    if let Some(pass) = location.children().iter().find(|inner| guards::passes_to_program(inner)) {
        return guards::passed_on(context, site, settings, scope.as_ref(), location, pass);
    }
    let Some(scope) = scope else {
        return context
            .report_with(location, "named locations are not supported: consider an error page or a fallback");
    };
    if !guards::of_block(context, site, settings, &scope, location) {
        return;
    }
    if let Some(refusal) = location.children().iter().find(|inner| path_rules::refuses(inner)) {
        if scope == Scope::Everything && settings.all("location").len() > 1 {
            context.report_with(refusal, "it applies to the whole site here, including its other locations");
        }
        return path_rules::answer(context, site, &scope, host, refusal);
    }
    let all = |name: &str| location.children().iter().filter(|inner| inner.name == name).collect::<Vec<_>>();
    let Some(pattern) = scope.pattern() else {
        let is_guard = |inner: &Directive| {
            matches!(inner.name.as_str(), "allow" | "deny" | "auth_basic" | "auth_basic_user_file" | "auth_request")
        };
        if !location.children().iter().all(is_guard) {
            let remedy = "write patterns for its files: *.css by name, /assets/** from the root";
            context.report_with(location, remedy);
        }
        for inner in location.children() {
            match inner.name.as_str() {
                "return" => path_rules::answer(context, site, &scope, host, inner),
                "allow" | "deny" | "auth_basic" | "auth_request" => {}
                "root" if settings.root() == Some(inner.first()) => {}
                "root" | "alias" => mount(context, site, &scope, inner),
                "rewrite" => path_rules::rewrite(context, site, &scope, inner),
                "try_files" => try_files(context, site, &scope, inner),
                "location" if guards::guards(inner) => nested_guard(context, site, settings, inner),
                _ if guards::guards(inner) => context.report(inner),
                _ => {}
            }
        }
        return;
    };
    let from_server = settings.all("add_header");
    path_rules::fields(
        context,
        site,
        &pattern,
        true,
        &all("add_header"),
        &all("expires"),
        if scope == Scope::Everything { &[] } else { &from_server },
    );
    for inner in location.children() {
        match inner.name.as_str() {
            "add_header"
            | "expires"
            | "allow"
            | "deny"
            | "auth_basic"
            | "auth_basic_user_file"
            | "auth_request"
            | "auth_request_set" => {}
            "return" => path_rules::answer(context, site, &scope, host, inner),
            "rewrite" => path_rules::rewrite(context, site, &scope, inner),
            "try_files" => try_files(context, site, &scope, inner),
            "root" if settings.root() == Some(inner.first()) => {}
            "root" | "alias" => mount(context, site, &scope, inner),
            "index" if scope == Scope::Everything => index(context, site, settings, inner),
            "index" => context.report_with(inner, "a site has one index for all paths"),
            // Handled with all locations.
            "autoindex" if inner.first() != "on" => {}
            name if real_ip::is_real_ip_directive(name) => {}
            "autoindex" => listing(context, site, &scope, inner),
            "error_page" if scope == Scope::Everything => path_rules::error_page(context, site, inner),
            "location" if guards::guards(inner) => nested_guard(context, site, settings, inner),
            "location" => context.report_with(inner, NESTED),
            _ => report_other(context, inner),
        }
    }
}

/// Reports a directive that has no rule for a part of a site.
pub(super) fn report_other(context: &mut Context, directive: &Directive) {
    match directive.name.as_str() {
        "limit_req" | "limit_conn" => {
            let remedy = "requests here are not limited: limits apply to a whole site, set [site.limits] for it";
            context.report_unguarded(directive, remedy);
        }
        "limit_rate" => context.report_with(directive, "limits apply to a whole site"),
        "access_log" => context.report_with(directive, "every response is logged: filter when reading the log"),
        "gzip_static" | "gzip" | "gzip_types" | "brotli" | "brotli_static" => {
            context.report_with(directive, "compression applies to a whole site");
        }
        "error_page" => context.report_with(directive, "a site has one set of error pages"),
        "limit_except" if guards::guards(directive) => {
            context.report_unguarded(directive, "methods are not restricted: GET, HEAD and OPTIONS are answered");
        }
        // Concerns requests that are forwarded.
        name if site::is_of_proxies(name) => {}
        _ => context.report(directive),
    }
}

/// A location inside another that restricts access. Without an expression it has the effect of one beside the outer one.
pub(super) fn nested_guard(context: &mut Context, site: &mut Table, settings: &Settings<'_>, location: &Directive) {
    let scope = Scope::of(location).filter(|scope| matches!(scope, Scope::Exact(_) | Scope::Prefix(_)));
    let has = |name: &str| location.children().iter().any(|inner| inner.name == name);
    // The file of users may be that of the outer location.
    let is_whole = !has("auth_basic") || has("auth_basic_user_file");
    let is_guard = |inner: &Directive| {
        guards::is_access(inner) || matches!(inner.name.as_str(), "auth_basic" | "auth_basic_user_file" | "internal")
    };
    match scope {
        Some(scope) if is_whole && location.children().iter().all(is_guard) => {
            guards::of_block(context, site, settings, &scope, location);
        }
        _ => context.report_unguarded(location, NESTED),
    }
}

/// Remedy for nested locations.
const NESTED: &str = "nested locations are not supported: write it beside the outer one";

/// Marks locations whose directories nginx does not list, but Sealion does.
pub(super) fn report_listed(context: &mut Context, site: &mut Table, settings: &Settings<'_>) {
    let listed = site.table_if("listing").and_then(|table| table.get("paths")).and_then(Value::as_array).cloned();
    let listed = listed.unwrap_or_default();
    for location in settings.all("location") {
        let own = location.children().iter().rfind(|inner| inner.name == "autoindex");
        if own.or(settings.last("autoindex")).is_some_and(|autoindex| autoindex.first() == "on") {
            continue;
        }
        let (covered, closed) = match Scope::of(location) {
            Some(Scope::Prefix(path)) => {
                let is_beneath = |outer: &str| {
                    let outer = outer.trim_end_matches('/');
                    path.trim_end_matches('/')
                        .strip_prefix(outer)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                let closed = guards::is_closed_part(site, is_beneath)
                    || guards::is_closed_scope(site, &Scope::Prefix(path.clone()));
                (listed.iter().filter_map(Value::as_str).any(is_beneath), closed)
            }
            // The expression may match directories.
            Some(Scope::Regex { .. }) => (own.is_some() && !listed.is_empty(), false),
            _ => (false, false),
        };
        if covered && !closed {
            let remedy = "nginx lists no directories there, but [site.listing] paths covers it and would show its file names: list \
                          only the paths that may be shown";
            context.report_unguarded(location, remedy);
        }
    }
}

/// `index`
pub(super) fn index(context: &mut Context, site: &mut Table, settings: &Settings<'_>, directive: &Directive) {
    let (names, others): (Vec<_>, Vec<_>) = directive
        .arguments
        .iter()
        .partition(|name| !name.contains(['/', '$']) && !name.starts_with('.') && !targets::is_program(name));
    // A rule runs them.
    let is_run = |name: &&String| name.ends_with(".php") && settings.runs_scripts();
    if !others.iter().all(is_run) {
        context.report_with(directive, "an index is a static file in the directory; programs are not run, and their source is not sent: name a static file");
    }
    if !names.is_empty() {
        site.set("index", names.into_iter().cloned().map(Value::from).collect::<Vec<_>>());
    }
}

/// `try_files`
pub(super) fn try_files(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive) {
    let Some((last, tried)) = directive.arguments.split_last() else { return context.report(directive) };
    extensions::convert(context, site, scope, directive);
    let is_usual =
        |tried: &str| matches!(tried, "$uri" | "$uri/" | "$uri/index.html") || extensions::of_argument(tried).is_some();
    let fallback = last.split('?').next().unwrap_or(last);
    let is_file = fallback.starts_with('/') && !fallback.contains('$');
    match last.as_str() {
        _ if !directive.arguments.iter().any(|argument| argument == "$uri") => {
            let remedy = "nginx does not try the file at the path itself";
            if *scope == Scope::Everything {
                let remedy = format!("{remedy}, but it is sent here: keep files that must not be sent out of the root");
                context.report_unguarded(directive, remedy);
            } else {
                let remedy = format!("{remedy}, so the part is closed: try $uri too, or write [[site.rewrites]] to the files that are sent");
                context.report_with(directive, remedy);
                guards::close(context, site, scope, directive);
            }
        }
        _ if !tried.iter().all(|tried| is_usual(tried)) => context.report_with(
            directive,
            "only the path itself is tried, as a file, with an extension, and as a directory: write [[site.rewrites]] for the rest",
        ),
        "=404" => {}
        last if is_usual(last) => {}
        _ if is_file && *scope == Scope::Everything => match context.targets.objection(last) {
            None => site.set("fallback", fallback),
            Some(objection) => context.report_with(directive, objection),
        },
        _ => context.report_with(directive, "a fallback is a file and applies to a whole site"),
    }
}

/// `autoindex on`
pub(super) fn listing(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive) {
    let Some(part) = scope.part() else {
        return context.report_with(directive, "listings are enabled by path");
    };
    let table = site.table("listing");
    table.set("enabled", true);
    let mut paths = table.get("paths").and_then(Value::as_array).cloned().unwrap_or_default();
    paths.push(Value::from(part));
    table.set("paths", paths);
}

/// `alias` or `root`, as a mount. With `alias` the directory replaces the path, with `root` the path is appended.
pub(super) fn mount(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive) {
    let directory = directive.first();
    // nginx sends no files of the root there.
    let Scope::Prefix(path) = scope else {
        let remedy = "a mount applies to a path and its subtree, so the part is closed: use a prefix location";
        context.report_with(directive, remedy);
        return guards::close(context, site, scope, directive);
    };
    if !directory.starts_with('/') || directory.contains('$') {
        let remedy = "variables and relative directories are not supported, so the part is closed: write a mount with the full path";
        context.report_with(directive, remedy);
        return guards::close(context, site, scope, directive);
    }
    if directive.name == "alias" && path.ends_with('/') && !directory.ends_with('/') {
        let remedy = "nginx appends the rest of the path without a slash, so the part is closed: write a mount, with a slash at the end of both";
        context.report_with(directive, remedy);
        return guards::close(context, site, scope, directive);
    }
    let root = if directive.name == "alias" {
        directory.to_owned()
    } else {
        format!("{}{path}", directory.trim_end_matches('/'))
    };
    let mut table = Table::default();
    table.comment(&directive.place);
    table.set("path", path.as_str());
    table.set("root", root);
    site.push("mounts", table);
    // Prefix `/docs` also matches `/docs.gz`, which nginx seeks in the other directory.
    if !path.ends_with('/') {
        let others = Scope::Regex { regex: Some(format!("^{}[^/]", values::literally(path))), pattern: None };
        guards::close(context, site, &others, directive);
    }
}
