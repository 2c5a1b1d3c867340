//! A `location`, which becomes rules of its site.

use toml::Value;

use super::convert::Context;
use super::path_rules;
use super::site::Settings;
use super::syntax::Directive;
use super::toml_text::Table;
use super::values;

/// The paths that directives are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of the site.
    Everything,
    /// One path.
    Exact(String),
    /// A path and what is beneath it.
    Prefix(String),
    /// Files by their names: a pattern of ours.
    Pattern(String),
}

impl Scope {
    /// As `headers` and `cache_control` name files.
    pub(super) fn pattern(&self) -> String {
        match self {
            Scope::Everything => "**".to_owned(),
            Scope::Exact(path) | Scope::Pattern(path) => path.clone(),
            Scope::Prefix(path) => format!("{}/**", path.trim_end_matches('/')),
        }
    }

    /// As `access` and `basic_auth` name a part of the site. `None`: they cannot.
    pub(super) fn part(&self) -> Option<&str> {
        match self {
            Scope::Everything => Some("/"),
            Scope::Exact(path) | Scope::Prefix(path) => Some(path),
            Scope::Pattern(_) => None,
        }
    }
}

/// Converts a location of a server. `host`: the first name of the site.
pub(super) fn convert(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    host: Option<&str>,
    location: &Directive,
) {
    if hides_dotfiles(location) {
        return;
    }
    if let Some(pass) = location.children().iter().find(|inner| inner.name.ends_with("_pass")) {
        return context.leave_with(
            pass,
            format!(
                "{location} is passed on; Sealion serves files: leave this path with nginx, under a name of its own"
            ),
        );
    }
    let scope = match location.arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["/"] | ["^~", "/"] => Scope::Everything,
        ["=", path] => Scope::Exact((*path).to_owned()),
        ["~" | "~*", regex] => match values::pattern_of_regex(regex) {
            Some(pattern) => Scope::Pattern(pattern),
            None => {
                return context
                    .leave_with(location, "say for which files it is: *.css by name, /assets/** from the root");
            }
        },
        [path] | ["^~", path] if path.starts_with('/') => Scope::Prefix((*path).to_owned()),
        _ => return context.leave_with(location, "named locations are not there: an error page or a fallback may do"),
    };
    let all = |name: &str| location.children().iter().filter(|inner| inner.name == name).collect::<Vec<_>>();
    let access: Vec<_> =
        location.children().iter().filter(|inner| matches!(inner.name.as_str(), "allow" | "deny")).collect();
    let from_server = settings.all("add_header");
    path_rules::fields(
        context,
        site,
        &scope,
        &all("add_header"),
        &all("expires"),
        if scope == Scope::Everything { &[] } else { &from_server },
    );
    path_rules::access(context, site, &scope, &access);
    path_rules::basic_auth(context, site, &scope, all("auth_basic").pop(), all("auth_basic_user_file").pop());
    for inner in location.children() {
        match inner.name.as_str() {
            "add_header" | "expires" | "allow" | "deny" | "auth_basic" | "auth_basic_user_file" => {}
            "return" => path_rules::answer(context, site, &scope, host, inner),
            "rewrite" => path_rules::rewrite(context, site, inner),
            "try_files" => try_files(context, site, &scope, inner),
            "root" if settings.root() == Some(inner.first()) => {}
            "root" | "alias" => mount(context, site, &scope, inner),
            "index" if scope == Scope::Everything => index(context, site, inner),
            "index" => context.leave_with(inner, "the index is the same for all of a site"),
            "autoindex" if inner.first() != "on" => {}
            "autoindex" => listing(context, site, &scope, inner),
            "error_page" if scope == Scope::Everything => path_rules::error_page(context, site, inner),
            "error_page" => context.leave_with(inner, "error pages are the same for all of a site"),
            "limit_req" | "limit_conn" | "limit_rate" => context.leave_with(inner, "limits hold for all of a site"),
            "access_log" => context.leave_with(inner, "every response has its line: filter where the log is read"),
            "gzip_static" | "gzip" | "gzip_types" | "brotli" | "brotli_static" => {
                context.leave_with(inner, "files are compressed the same way in all of a site");
            }
            "location" => context.leave_with(inner, "write it beside the outer one"),
            _ => context.leave(inner),
        }
    }
}

/// What guards names that begin with a dot: they are hidden without being told.
fn hides_dotfiles(location: &Directive) -> bool {
    let [tilde, regex] = location.arguments.as_slice() else { return false };
    let refuses = |inner: &Directive| match inner.name.as_str() {
        "deny" => inner.first() == "all",
        "return" => matches!(inner.first(), "403" | "404" | "444"),
        "access_log" | "log_not_found" => inner.first() == "off",
        _ => false,
    };
    tilde.starts_with('~')
        && regex.trim_start_matches('^').starts_with(r"/\.")
        && location.children().iter().all(refuses)
}

/// `index`: names of files in a directory.
pub(super) fn index(context: &mut Context, site: &mut Table, directive: &Directive) {
    let (names, others): (Vec<_>, Vec<_>) =
        directive.arguments.iter().partition(|name| !name.contains(['/', '$']) && !name.ends_with(".php"));
    if !others.is_empty() {
        context.leave_with(directive, "an index is a file of the directory; programs are not run");
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
    let is_file = fallback.starts_with('/') && !fallback.contains('$') && !fallback.ends_with(".php");
    match last.as_str() {
        _ if !usual => context
            .leave_with(directive, "the path itself is tried, as a file and as a directory: rewrites say the rest"),
        "=404" | "$uri" | "$uri/" => {}
        _ if is_file && *scope == Scope::Everything => site.set("fallback", fallback),
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
