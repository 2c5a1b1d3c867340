//! Rules of a site by path: response fields, error pages, redirects, rewrites.

use toml::Value;

use super::Context;
use super::guards;
use super::location::Scope;
use super::values;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// `add_header` and `expires` of one block. `replaced`: those of the enclosing block, which nginx drops if the block has
/// its own. `sends_files`: whether files are sent there, of which Cache-Control is a rule of the site.
pub(super) fn fields(
    context: &mut Context,
    site: &mut Table,
    pattern: &str,
    sends_files: bool,
    add_header: &[&Directive],
    expires: &[&Directive],
    replaced: &[&Directive],
) {
    let mut cache_control: Vec<String> = Vec::new();
    if let Some(expires) = expires.last().filter(|_| sends_files) {
        match expires_value(expires) {
            Some(value) => cache_control.extend(value),
            None => context.report_with(expires, "use [[site.cache_control]]"),
        }
    }
    let has_cache_control =
        !expires.is_empty() || add_header.iter().any(|d| d.first().eq_ignore_ascii_case("cache-control"));
    let mut rule = Table::default();
    let mut set = 0;
    for directive in add_header {
        let [name, value, ..] = directive.arguments.as_slice() else {
            context.report(directive);
            continue;
        };
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            _ if value == "$upstream_cache_status" => context.report_with(directive, CACHE_STATUS),
            _ if value.contains('$') => context.report_with(directive, "variables are not supported in values"),
            "cache-control" => cache_control.push(value.clone()),
            // Cache-Control overrides them.
            "expires" | "pragma" if has_cache_control => {}
            "expires" | "pragma" if sends_files => context.report_with(directive, "use [[site.cache_control]]"),
            "expires" | "pragma" => context.report_with(directive, "use response_headers of the rule"),
            "strict-transport-security" if pattern == EVERYTHING => hsts(context, site, directive, value),
            "access-control-allow-origin" => cors(context, site, pattern, directive, value),
            _ if lower.starts_with("access-control-") => context.report_with(directive, "use [site.cors]"),
            _ if (context.is_reserved)(name) => {
                context.report_with(directive, "Sealion sets this field itself or by another key")
            }
            _ => {
                rule.table("set").set(name, value.as_str());
                rule.comment(&directive.place);
                set += 1;
            }
        }
    }
    if !cache_control.is_empty() && sends_files {
        let mut table = Table::default();
        let place = expires.iter().chain(add_header).next().map(|directive| directive.place.to_string());
        table.comment(place.unwrap_or_default());
        table.set("path", pattern);
        table.set("value", cache_control.join(", "));
        site.push("cache_control", table);
    }
    if !add_header.is_empty() {
        let gone: Vec<Value> = replaced
            .iter()
            .map(|directive| directive.first())
            .filter(|name| !(context.is_reserved)(name))
            .filter(|name| !add_header.iter().any(|own| own.first().eq_ignore_ascii_case(name)))
            .map(Value::from)
            .collect();
        if !gone.is_empty() {
            rule.comment("nginx drops the server's fields where a location has its own");
            rule.set("unset", gone);
            set += 1;
        }
    }
    if set > 0 {
        rule.set("path", pattern);
        site.push("headers", rule);
    }
}

/// The Cache-Control value of `expires`. `Some(None)`: no field. `None`: a form that is not converted.
pub(super) fn expires_value(directive: &Directive) -> Option<Option<String>> {
    let value = match directive.arguments.as_slice() {
        [value] => value,
        _ => return None,
    };
    match value.as_str() {
        "off" => Some(None),
        "epoch" => Some(Some("no-cache".to_owned())),
        // Ten years, as in nginx.
        "max" => Some(Some("max-age=315360000".to_owned())),
        negative if negative.starts_with('-') => Some(Some("no-cache".to_owned())),
        time => Some(Some(format!("max-age={}", values::time(time)?.0.as_secs()))),
    }
}

fn hsts(context: &mut Context, site: &mut Table, directive: &Directive, value: &str) {
    let parts: Vec<String> = value.split(';').map(|part| part.trim().to_ascii_lowercase()).collect();
    let age = parts.iter().find_map(|part| part.strip_prefix("max-age=")?.trim_matches('"').parse::<u64>().ok());
    let Some(age) = age else { return context.report(directive) };
    let has = |word: &str| parts.iter().any(|part| part == word);
    let table = site.table("hsts");
    table.set("max_age", if age % 86_400 == 0 && age > 0 { format!("{}d", age / 86_400) } else { format!("{age}s") });
    if has("includesubdomains") {
        table.set("include_subdomains", true);
    }
    if has("preload") {
        table.set("preload", true);
    }
}

/// The remedy for a field with what the cache did.
pub(super) const CACHE_STATUS: &str =
    "Cache-Status of each response says what the cache did (RFC 9211): let what reads this field read that one";

/// The pattern of every path.
const EVERYTHING: &str = "**";

fn cors(context: &mut Context, site: &mut Table, pattern: &str, directive: &Directive, origin: &str) {
    let table = site.table("cors");
    let origins = Value::Array(vec![origin.into()]);
    let paths = table.get("paths").and_then(Value::as_array).cloned();
    match (table.get("origins"), paths) {
        (None, _) => {
            table.set("origins", origins);
            if pattern != EVERYTHING {
                table.set("paths", vec![Value::from(pattern)]);
            }
        }
        (Some(known), Some(mut paths)) if *known == origins && pattern != EVERYTHING => {
            paths.push(pattern.into());
            table.set("paths", paths);
        }
        (Some(known), None) if *known == origins => {}
        _ => context
            .report_with(directive, "[site.cors] has one list of origins for all paths: an earlier directive set it"),
    }
}

/// `error_page`
pub(super) fn error_page(context: &mut Context, site: &mut Table, directive: &Directive) {
    let Some((page, rest)) = directive.arguments.split_last() else { return context.report(directive) };
    let (codes, change): (Vec<&String>, Vec<&String>) = rest.iter().partition(|word| !word.starts_with('='));
    if !page.starts_with('/') || page.contains('$') {
        return context.report_with(directive, "an error page must be a file of the site");
    }
    if let Some(objection) = context.targets.objection(page) {
        return context.report_with(directive, objection);
    }
    match change.first().map(|change| change.as_str()) {
        None => {}
        Some("=200") if codes == ["404"] => return site.set("fallback", page.as_str()),
        Some(change) if codes.iter().any(|code| change == format!("={code}")) => {}
        Some(_) => return context.report_with(directive, "an error page cannot change the status"),
    }
    for code in codes {
        match code.parse::<u16>() {
            Ok(400 | 401 | 403 | 404 | 405 | 412 | 413 | 429 | 500..=504) => {
                site.table("error_pages").set(code, page.as_str())
            }
            // Sealion has no page for these statuses.
            Ok(_) => {}
            Err(_) => context.report(directive),
        }
    }
}

/// Whether a directive is a `return` with an error status.
pub(super) fn refuses(directive: &Directive) -> bool {
    directive.name == "return" && directive.first().parse::<u16>().is_ok_and(|status| (400..600).contains(&status))
}

/// `return`
pub(super) fn answer(
    context: &mut Context,
    site: &mut Table,
    scope: &Scope,
    host: Option<&str>,
    directive: &Directive,
) {
    let (status, target) = match directive.arguments.as_slice() {
        [url] if url.starts_with("http") => (302, url.as_str()),
        [status, target] if !refuses(directive) => match status.parse::<u16>() {
            Ok(status @ (301 | 302 | 303 | 307 | 308)) => (status, target.as_str()),
            _ => return unanswered(context, site, scope, directive, "only redirects can be answered without a file"),
        },
        [status, ..] if refuses(directive) => {
            guards::close(context, site, scope, directive);
            if status != "403" {
                context.report_with(directive, "the part is closed, with status 403 or 404");
            }
            return;
        }
        _ => return unanswered(context, site, scope, directive, "only redirects can be answered without a file"),
    };
    let Some(RedirectTarget { target, keeps_path, keeps_query }) = redirect_target(target, host) else {
        return unanswered(context, site, scope, directive, "the target contains an unsupported variable");
    };
    let to_itself = keeps_path && (target.is_empty() || host.is_some_and(|host| target == format!("https://{host}")));
    if to_itself {
        return context.report_with(directive, "the redirect leads to itself: every site is HTTPS already");
    }
    let mut table = Table::default();
    table.comment(&directive.place);
    match (scope, keeps_path) {
        (Scope::Everything, true) => {
            table.set("prefix", "/");
            table.set("to", format!("{target}/"));
        }
        (Scope::Prefix(path), true) => {
            table.set("prefix", path.as_str());
            table.set("to", format!("{target}{path}"));
        }
        (Scope::Exact(path), keeps) => {
            table.set("path", path.as_str());
            table.set("to", if keeps { format!("{target}{path}") } else { target });
        }
        (Scope::Everything, false) => {
            table.set("regex", "^/");
            table.set("to", target.replace('$', "$$"));
        }
        (Scope::Prefix(path), false) => {
            table.set("regex", format!("^{}", values::literally(path)));
            table.set("to", target.replace('$', "$$"));
        }
        (Scope::Regex { .. }, _) => {
            return unanswered(context, site, scope, directive, "write it as a redirect with a regex");
        }
    }
    table.set("status", i64::from(status));
    if !keeps_query {
        table.set("query", "drop");
    }
    site.push("redirects", table);
}

/// Closes the paths of an answer that is not converted, since nginx sends no files there.
fn unanswered(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive, remedy: &str) {
    context.report_with(directive, format!("{remedy}; the part is closed, since nginx sends no files there"));
    guards::close(context, site, scope, directive);
}

/// What `return` leads to.
struct RedirectTarget {
    /// The scheme is https, the host a name of the site.
    target: String,
    /// Whether the request's path is appended.
    keeps_path: bool,
    /// Whether the request's query is.
    keeps_query: bool,
}

fn redirect_target(target: &str, host: Option<&str>) -> Option<RedirectTarget> {
    let target = target.replace("${", "$").replace('}', "").replace("$scheme", "https");
    let target = match host {
        Some(host) => target.replace("$server_name", host),
        None => target,
    };
    let target = match target.strip_prefix("https://$http_host").or_else(|| target.strip_prefix("https://$host")) {
        Some(path) => path.to_owned(),
        None => target,
    };
    let ends = [
        ("$request_uri", true, true),
        ("$uri$is_args$args", true, true),
        ("$uri", true, false),
        ("?$args", false, true),
        ("$is_args$args", false, true),
        ("", false, false),
    ];
    let end = ends.iter().find_map(|end| Some((target.strip_suffix(end.0)?, end)));
    let (target, (_, keeps_path, keeps_query)) = end.expect("everything ends with nothing");
    (!target.contains('$')).then(|| RedirectTarget {
        target: target.to_owned(),
        keeps_path: *keeps_path,
        keeps_query: *keeps_query,
    })
}

/// `rewrite`
pub(super) fn rewrite(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive) {
    let (regex, to, flag) = match directive.arguments.as_slice() {
        [regex, to] => (regex, to, ""),
        [regex, to, flag] => (regex, to, flag.as_str()),
        _ => return context.report(directive),
    };
    let redirects = matches!(flag, "permanent" | "redirect") || to.starts_with("http");
    let objection = context.targets.objection(to).filter(|_| !redirects && !context.targets.forwards(to));
    let within = scope.regex().is_some_and(|scope| regex.starts_with(scope.trim_end_matches('$')));
    if *scope != Scope::Everything && !within {
        let remedy =
            "rewrites and redirects apply to a whole site: begin the expression with ^ and the location's path";
        if !redirects && objection.is_none() {
            let remedy = format!("{remedy}. Until then, files at this path are sent, where nginx sends others");
            return context.report_unguarded(directive, remedy);
        }
        return report_rewrite(context, directive, remedy, objection);
    }
    if let Err(error) = regex::bytes::Regex::new(regex) {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let remedy = format!("the expression is not supported ({why}): rewrite it without");
        return report_refused(context, directive, &remedy, objection);
    }
    let Some(ours) = values::regex_of_pcre(regex, false) else {
        let remedy = "the expression means something else here: write it without set operations, \\<, \\>, \\v, possessive \
                      quantifiers, flags other than i, m and s, and items after $";
        return report_refused(context, directive, remedy, objection);
    };
    if let Some(objection) = objection {
        context.report_with(directive, format!("{objection}. The path is closed"));
        guards::refuse_by_rewrite(site, directive, &values::with_end_of_pcre(&ours).unwrap_or(ours));
        return;
    }
    let original = to;
    let Some(to) = values::replacement(to.trim_end_matches('?')) else {
        return report_refused(context, directive, "the replacement contains an unsupported variable", None);
    };
    let mut table = Table::default();
    table.comment(&directive.place);
    // Octets, as nginx matches them, where characters are matched otherwise.
    table.set("regex", if values::is_same_for_octets(&ours) { ours } else { format!("(?-u){ours}") });
    table.set("to", to.as_str());
    match flag {
        "permanent" => table.set("status", 301),
        "redirect" => table.set("status", 302),
        "" | "last" | "break" if to.starts_with("http") => table.set("status", 302),
        "" | "last" | "break" => return site.push("rewrites", table),
        _ => return context.report(directive),
    }
    // nginx puts the request's query behind that of the replacement, unless a question mark ends it.
    if original.ends_with('?') {
        table.set("query", "drop");
    } else if original.contains('?') {
        table.set("query", "append");
    }
    site.push("redirects", table);
}

/// Reports a rewrite or redirect that is not converted because of its text. The rewrites of a site may guard files together: one leads away from
/// a path, and a later one sends it. Without the first, the files at its path are open.
fn report_refused(context: &mut Context, directive: &Directive, remedy: &str, objection: Option<String>) {
    if objection.is_some() {
        return report_rewrite(context, directive, remedy, objection);
    }
    let remedy = format!("{remedy}. Until then, files at this path are sent, where nginx leads to another");
    context.report_unguarded(directive, remedy);
}

/// Reports a rewrite that is not converted. A rewrite to a program hides the files at its path.
fn report_rewrite(context: &mut Context, directive: &Directive, remedy: &str, objection: Option<String>) {
    match objection {
        None => context.report_with(directive, remedy),
        Some(objection) => {
            let remedy =
                format!("{remedy}. Until then, files at this path are sent, where nginx sends none: {objection}");
            context.report_unguarded(directive, remedy);
        }
    }
}
