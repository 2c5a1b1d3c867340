//! A `location`, which becomes rules of its site.

use toml::Value;

use super::convert::Context;
use super::site::Settings;
use super::syntax::Directive;
use super::toml_text::Table;
use super::values;
use super::{guards, path_rules, real_ip, targets};

/// The paths that directives are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of the site.
    Everything,
    /// One path.
    Exact(String),
    /// All paths that begin so.
    Prefix(String),
    /// The paths that an expression matches.
    Regex {
        /// As we write it, if it is one of ours.
        regex: Option<String>,
        /// A pattern of files that says the same, if there is one.
        pattern: Option<String>,
    },
}

impl Scope {
    /// The paths of a location. `None`: it has a name instead.
    pub(super) fn of(location: &Directive) -> Option<Self> {
        let (modifier, path) = match location.arguments.as_slice() {
            [modifier, path] => (modifier.as_str(), path.as_str()),
            // nginx needs no space between them.
            [both] => {
                let modifier = ["^~", "~*", "~", "="].into_iter().find(|modifier| both.starts_with(modifier));
                both.split_at(modifier.map_or(0, str::len))
            }
            _ => return None,
        };
        match modifier {
            "=" => Some(Scope::Exact(path.to_owned())),
            // It says no more than a prefix.
            "~" if prefix_of(path).is_some() => prefix_of(path).map(Scope::Prefix),
            "~" | "~*" => {
                let regex = if modifier == "~*" { format!("(?i){path}") } else { path.to_owned() };
                let regex = Some(regex).filter(|regex| regex::bytes::Regex::new(regex).is_ok());
                Some(Scope::Regex { regex, pattern: values::pattern_of_regex(path) })
            }
            _ if path == "/" => Some(Scope::Everything),
            _ => path.starts_with('/').then(|| Scope::Prefix(path.to_owned())),
        }
    }

    /// As `headers` and `cache_control` name files. `None`: they cannot.
    pub(super) fn pattern(&self) -> Option<String> {
        match self {
            Scope::Everything => Some("**".to_owned()),
            Scope::Exact(path) => Some(globset::escape(path)),
            Scope::Prefix(path) => Some(format!("{}/**", globset::escape(path.trim_end_matches('/')))),
            Scope::Regex { pattern, .. } => pattern.clone(),
        }
    }

    /// As `access` and `basic_auth` name a part of the site. `None`: they cannot.
    pub(super) fn part(&self) -> Option<&str> {
        match self {
            Scope::Everything => Some("/"),
            // The root's own page is no part.
            Scope::Exact(path) if path == "/" => None,
            Scope::Exact(path) | Scope::Prefix(path) => Some(path),
            Scope::Regex { .. } => None,
        }
    }

    /// Whether there is no path of it outside that part: `/admin` is more than `/admin/`.
    pub(super) fn is_all_of_part(&self) -> bool {
        !matches!(self, Scope::Prefix(path) if !path.ends_with('/'))
    }

    /// An expression that matches its paths. `None`: it has one that is none of ours.
    pub(super) fn regex(&self) -> Option<String> {
        match self {
            Scope::Everything => Some("^/".to_owned()),
            Scope::Exact(path) => Some(format!("^{}$", values::literally(path))),
            Scope::Prefix(path) => Some(format!("^{}", values::literally(path))),
            Scope::Regex { regex, .. } => regex.clone(),
        }
    }
}

/// The prefix that an expression such as `^/admin/` matches, and nothing else.
fn prefix_of(regex: &str) -> Option<String> {
    let pattern = values::pattern_of_regex(regex)?;
    pattern.starts_with('/').then(|| pattern.trim_end_matches("**").to_owned())
}

/// Converts a location of a server. `host`: the first name of the site.
pub(super) fn convert(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    host: Option<&str>,
    location: &Directive,
) {
    if guards::hides_dotfiles(location) {
        return;
    }
    let scope = Scope::of(location);
    if let Some(pass) = location.children().iter().find(|inner| guards::hands_over(inner)) {
        return guards::passed_on(context, site, settings, scope.as_ref(), location, pass);
    }
    let Some(scope) = scope else {
        return context.leave_with(location, "named locations are not there: an error page or a fallback may do");
    };
    if !guards::of_block(context, site, settings, &scope, location) {
        return;
    }
    if let Some(refusal) = location.children().iter().find(|inner| path_rules::refuses(inner)) {
        if scope == Scope::Everything && settings.all("location").len() > 1 {
            context.leave_with(refusal, "it holds for all of the site here, for its other locations too");
        }
        return path_rules::answer(context, site, &scope, host, refusal);
    }
    let all = |name: &str| location.children().iter().filter(|inner| inner.name == name).collect::<Vec<_>>();
    let Some(pattern) = scope.pattern() else {
        let remedy = "say for which files it is: *.css by name, /assets/** from the root";
        context.leave_with(location, remedy);
        for inner in location.children() {
            match inner.name.as_str() {
                "return" => path_rules::answer(context, site, &scope, host, inner),
                "allow" | "deny" | "auth_basic" => {}
                "location" if guards::guards(inner) => context.unguarded(inner, NESTED),
                _ if guards::guards(inner) => context.leave(inner),
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
        &all("add_header"),
        &all("expires"),
        if scope == Scope::Everything { &[] } else { &from_server },
    );
    for inner in location.children() {
        match inner.name.as_str() {
            "add_header" | "expires" | "allow" | "deny" | "auth_basic" | "auth_basic_user_file" => {}
            "return" => path_rules::answer(context, site, &scope, host, inner),
            "rewrite" => path_rules::rewrite(context, site, &scope, inner),
            "try_files" => try_files(context, site, &scope, inner),
            "root" if settings.root() == Some(inner.first()) => {}
            "root" | "alias" => mount(context, site, &scope, inner),
            "index" if scope == Scope::Everything => index(context, site, inner),
            "index" => context.leave_with(inner, "the index is the same for all of a site"),
            // With all locations.
            "autoindex" if inner.first() != "on" => {}
            name if real_ip::is_one(name) => {}
            "autoindex" => listing(context, site, &scope, inner),
            "error_page" if scope == Scope::Everything => path_rules::error_page(context, site, inner),
            "error_page" => context.leave_with(inner, "error pages are the same for all of a site"),
            "limit_req" | "limit_conn" | "limit_rate" => context.leave_with(inner, "limits hold for all of a site"),
            "access_log" => context.leave_with(inner, "every response has its line: filter where the log is read"),
            "gzip_static" | "gzip" | "gzip_types" | "brotli" | "brotli_static" => {
                context.leave_with(inner, "files are compressed the same way in all of a site");
            }
            "location" if guards::guards(inner) => context.unguarded(inner, NESTED),
            "location" => context.leave_with(inner, NESTED),
            _ => context.leave(inner),
        }
    }
}

/// What is said of a location in another.
const NESTED: &str = "write it beside the outer one";

/// Marks locations without a listing in nginx whose directories are listed here.
pub(super) fn name_listed(context: &mut Context, site: &mut Table, settings: &Settings<'_>) {
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
                (listed.iter().filter_map(Value::as_str).any(is_beneath), guards::is_closed_part(site, is_beneath))
            }
            // It may match directories.
            Some(Scope::Regex { .. }) => (own.is_some() && !listed.is_empty(), false),
            _ => (false, false),
        };
        if covered && !closed {
            let remedy = "nginx lists no directory there; here [site.listing] paths covers it, and shows the names of its files: name \
                          only paths that are to be listed";
            context.unguarded(location, remedy);
        }
    }
}

/// `index`: names of files in a directory.
pub(super) fn index(context: &mut Context, site: &mut Table, directive: &Directive) {
    let (names, others): (Vec<_>, Vec<_>) = directive
        .arguments
        .iter()
        .partition(|name| !name.contains(['/', '$']) && !name.starts_with('.') && !targets::is_program(name));
    if !others.is_empty() {
        context.leave_with(directive, "an index is a file of the directory; programs are not run, and their source is not sent: name a static file");
    }
    if !names.is_empty() {
        site.set("index", names.into_iter().cloned().map(Value::from).collect::<Vec<_>>());
    }
}

/// `try_files`
pub(super) fn try_files(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive) {
    let Some((last, tried)) = directive.arguments.split_last() else { return context.leave(directive) };
    let usual = tried.iter().all(|tried| matches!(tried.as_str(), "$uri" | "$uri/" | "$uri/index.html"));
    let fallback = last.split('?').next().unwrap_or(last);
    let is_file = fallback.starts_with('/') && !fallback.contains('$');
    match last.as_str() {
        _ if !usual => context
            .leave_with(directive, "the path itself is tried, as a file and as a directory: rewrites say the rest"),
        "=404" | "$uri" | "$uri/" => {}
        _ if is_file && *scope == Scope::Everything => match context.targets.objection(last) {
            None => site.set("fallback", fallback),
            Some(objection) => context.leave_with(directive, objection),
        },
        _ => context.leave_with(directive, "a fallback is a file, for all of a site"),
    }
}

/// `autoindex on`
pub(super) fn listing(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive) {
    let Some(part) = scope.part() else {
        return context.leave_with(directive, "directories are listed by their paths");
    };
    let table = site.table("listing");
    table.set("enabled", true);
    let mut paths = table.get("paths").and_then(Value::as_array).cloned().unwrap_or_default();
    paths.push(Value::from(part));
    table.set("paths", paths);
}

/// A directory of its own for a path: `alias`, whose files follow the path, or `root`, which has the path in it.
fn mount(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive) {
    let directory = directive.first();
    let Scope::Prefix(path) = scope else {
        return context.leave_with(directive, "a directory is mounted on a path and all beneath it");
    };
    if !directory.starts_with('/') || directory.contains('$') {
        return context.leave_with(directive, "name the directory in full, with mounts");
    }
    if directive.name == "alias" && path.ends_with('/') && !directory.ends_with('/') {
        let remedy = "nginx appends the rest of the path to it without a slash; nobody gets in now: end both with a slash, as a mount";
        context.leave_with(directive, remedy);
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
}
