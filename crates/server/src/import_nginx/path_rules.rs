//! Rules of a site for some of its paths: fields, access, passwords, redirects, rewrites.

use toml::Value;

use super::convert::Context;
use super::location::Scope;
use super::site::Settings;
use super::syntax::Directive;
use super::toml_text::Table;
use super::values;

/// `add_header` and `expires` of one block. `replaced`: those of the block around it, which nginx forgets where a block has its own.
pub(super) fn fields(
    context: &mut Context,
    site: &mut Table,
    scope: &Scope,
    add_header: &[&Directive],
    expires: &[&Directive],
    replaced: &[&Directive],
) {
    let mut cache_control: Vec<String> = Vec::new();
    if let Some(expires) = expires.last() {
        match expires_value(expires) {
            Some(value) => cache_control.extend(value),
            None => context.leave_with(expires, "say it with cache_control"),
        }
    }
    let mut rule = Table::default();
    let mut set = 0;
    for directive in add_header {
        let [name, value, ..] = directive.arguments.as_slice() else {
            context.leave(directive);
            continue;
        };
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            _ if value.contains('$') => context.leave_with(directive, "values have no variables"),
            "cache-control" => cache_control.push(value.clone()),
            "expires" | "pragma" => {}
            "strict-transport-security" if *scope == Scope::Everything => hsts(context, site, directive, value),
            "access-control-allow-origin" => cors(site, scope, value),
            _ if lower.starts_with("access-control-") => context.leave_with(directive, "say it with [site.cors]"),
            _ if crate::site::headers::is_ours(name) => {
                context.leave_with(directive, "Sealion says it itself, or another key does")
            }
            _ => {
                rule.table("set").set(name, value.as_str());
                rule.comment(&directive.place);
                set += 1;
            }
        }
    }
    if !cache_control.is_empty() {
        let mut table = Table::default();
        let place = expires.iter().chain(add_header).next().map(|directive| directive.place.to_string());
        table.comment(place.unwrap_or_default());
        table.set("path", scope.pattern());
        table.set("value", cache_control.join(", "));
        site.push("cache_control", table);
    }
    if !add_header.is_empty() {
        let gone: Vec<Value> = replaced
            .iter()
            .map(|directive| directive.first())
            .filter(|name| !crate::site::headers::is_ours(name))
            .filter(|name| !add_header.iter().any(|own| own.first().eq_ignore_ascii_case(name)))
            .map(Value::from)
            .collect();
        if !gone.is_empty() {
            rule.comment("nginx forgets the server's fields where a location has its own");
            rule.set("unset", gone);
            set += 1;
        }
    }
    if set > 0 {
        rule.set("path", scope.pattern());
        site.push("headers", rule);
    }
}

/// What `expires` says as Cache-Control; `None` inside: nothing. `None`: a form that is not converted.
fn expires_value(directive: &Directive) -> Option<Option<String>> {
    let value = match directive.arguments.as_slice() {
        [value] => value,
        _ => return None,
    };
    match value.as_str() {
        "off" => Some(None),
        "epoch" => Some(Some("no-cache".to_owned())),
        // Ten years, as nginx says it.
        "max" => Some(Some("max-age=315360000".to_owned())),
        negative if negative.starts_with('-') => Some(Some("no-cache".to_owned())),
        time => Some(Some(format!("max-age={}", values::time(time)?.0.as_secs()))),
    }
}

fn hsts(context: &mut Context, site: &mut Table, directive: &Directive, value: &str) {
    let parts: Vec<String> = value.split(';').map(|part| part.trim().to_ascii_lowercase()).collect();
    let age = parts.iter().find_map(|part| part.strip_prefix("max-age=")?.trim_matches('"').parse::<u64>().ok());
    let Some(age) = age else { return context.leave(directive) };
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

fn cors(site: &mut Table, scope: &Scope, origin: &str) {
    let table = site.table("cors");
    let mut push = |key: &str, value: String| {
        let mut values = table.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        if !values.iter().any(|known| known.as_str() == Some(&value)) {
            values.push(Value::from(value));
        }
        table.set(key, values);
    };
    push("origins", origin.to_owned());
    if *scope != Scope::Everything {
        push("paths", scope.pattern());
    }
}

/// `allow` and `deny`, of which nginx takes the first that matches.
pub(super) fn access(context: &mut Context, site: &mut Table, scope: &Scope, rules: &[&Directive]) {
    let Some(first) = rules.first() else { return };
    let Some(part) = scope.part() else {
        return context.leave_with(
            first,
            "access is by path, not by the ends of names: put such files into a directory of their own",
        );
    };
    let (mut allow, mut deny) = (Vec::new(), Vec::new());
    let mut ends_with_deny = false;
    for rule in rules {
        match (rule.name.as_str(), rule.first()) {
            (_, "unix:") => continue,
            ("deny", "all") => {
                ends_with_deny = true;
                break;
            }
            ("allow", "all") => break,
            ("deny", network) if allow.is_empty() => deny.push(Value::from(network)),
            ("deny", _) => {
                return context.leave_with(
                    rule,
                    "a network that is denied after others were allowed: allow what is left of them",
                );
            }
            (_, network) => allow.push(Value::from(network)),
        }
    }
    let mut table = Table::default();
    table.comment(&first.place);
    table.set("path", part);
    match (ends_with_deny, allow.is_empty()) {
        (true, true) => deny = vec!["0.0.0.0/0".into(), "::/0".into()],
        (true, false) => table.set("allow", allow),
        // Allowed is everybody else too.
        (false, _) => {}
    }
    if !deny.is_empty() {
        table.set("deny", deny);
    }
    if table.get("allow").is_some() || table.get("deny").is_some() {
        site.push("access", table);
    }
}

/// `auth_basic` with its users.
pub(super) fn basic_auth(
    context: &mut Context,
    site: &mut Table,
    scope: &Scope,
    realm: Option<&Directive>,
    users: Option<&Directive>,
) {
    let Some(realm) = realm else { return };
    if realm.first() == "off" {
        if *scope != Scope::Everything {
            context.leave_with(realm, "a part of a protected part is protected: name the protected parts one by one");
        }
        return;
    }
    let (Some(part), Some(users)) = (scope.part(), users) else {
        return context.leave_with(realm, "it needs a path, and auth_basic_user_file in the same block");
    };
    if users.first().contains('$') {
        return context.leave_with(users, "the file is named in full");
    }
    let file = context.resolve(users.first());
    if let Ok(text) = std::fs::read_to_string(&file) {
        let old =
            text.lines().filter(|line| line.split_once(':').is_some_and(|(_, hash)| !is_known_hash(hash))).count();
        if old > 0 {
            context.leave_with(
                users,
                format!("{old} passwords are not bcrypt or argon2: htpasswd -B {file} USER sets one anew"),
            );
        }
    }
    let mut table = Table::default();
    table.comment(&realm.place);
    table.set("path", part);
    table.set("realm", realm.first());
    table.set("users", file);
    site.push("basic_auth", table);
}

fn is_known_hash(hash: &str) -> bool {
    ["$2a$", "$2b$", "$2y$", "$argon2"].iter().any(|start| hash.starts_with(start))
}

/// `error_page`
pub(super) fn error_page(context: &mut Context, site: &mut Table, directive: &Directive) {
    let Some((page, rest)) = directive.arguments.split_last() else { return context.leave(directive) };
    let (codes, change): (Vec<&String>, Vec<&String>) = rest.iter().partition(|word| !word.starts_with('='));
    if !page.starts_with('/') || page.contains('$') {
        return context.leave_with(directive, "an error page is a file of the site");
    }
    match change.first().map(|change| change.as_str()) {
        None => {}
        Some("=200") if codes == ["404"] => return site.set("fallback", page.as_str()),
        Some(change) if codes.iter().any(|code| change == format!("={code}")) => {}
        Some(_) => return context.leave_with(directive, "the status stays what it is"),
    }
    for code in codes {
        match code.parse::<u16>() {
            Ok(400 | 401 | 403 | 404 | 405 | 412 | 500 | 501 | 503) => {
                site.table("error_pages").set(code, page.as_str())
            }
            // Never sent: nothing is passed on.
            Ok(_) => {}
            Err(_) => context.leave(directive),
        }
    }
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
        [status, target] => match status.parse::<u16>() {
            Ok(status @ (301 | 302 | 303 | 307 | 308)) => (status, target.as_str()),
            _ => return context.leave_with(directive, "only redirects are answered without a file"),
        },
        [status] if status == "403" && scope.part().is_some() => {
            let mut table = Table::default();
            table.comment(&directive.place);
            table.set("path", scope.part().unwrap_or("/"));
            table.set("deny", vec!["0.0.0.0/0", "::/0"]);
            return site.push("access", table);
        }
        _ => return context.leave_with(directive, "only redirects are answered without a file"),
    };
    let Some((target, keeps_path)) = redirect_target(target, host) else {
        return context.leave_with(directive, "where it leads has a variable that is not converted");
    };
    let to_itself = keeps_path && (target.is_empty() || host.is_some_and(|host| target == format!("https://{host}")));
    if to_itself {
        return context.leave_with(directive, "it leads to where it is: every site is HTTPS already");
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
        (Scope::Pattern(_), _) => return context.leave_with(directive, "say it with a regex of redirects"),
    }
    table.set("status", i64::from(status));
    site.push("redirects", table);
}

/// Where a redirect leads, and whether what was asked for is appended. The scheme here is https, and the host a name of the site.
fn redirect_target(target: &str, host: Option<&str>) -> Option<(String, bool)> {
    let target = target.replace("${", "$").replace('}', "").replace("$scheme", "https");
    let target = match host {
        Some(host) => target.replace("$server_name", host),
        None => target,
    };
    let target = match target.strip_prefix("https://$http_host").or_else(|| target.strip_prefix("https://$host")) {
        Some(path) => path.to_owned(),
        None => target,
    };
    let (target, keeps_path) =
        match ["$request_uri", "$uri$is_args$args", "$uri"].iter().find_map(|end| target.strip_suffix(end)) {
            Some(target) => (target.to_owned(), true),
            None => (target.trim_end_matches("?$args").trim_end_matches("$is_args$args").to_owned(), false),
        };
    (!target.contains('$')).then_some((target, keeps_path))
}

/// `rewrite`
pub(super) fn rewrite(context: &mut Context, site: &mut Table, directive: &Directive) {
    let (regex, to, flag) = match directive.arguments.as_slice() {
        [regex, to] => (regex, to, ""),
        [regex, to, flag] => (regex, to, flag.as_str()),
        _ => return context.leave(directive),
    };
    if let Err(error) = regex::bytes::Regex::new(regex) {
        let error = error.to_string();
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        return context.leave_with(directive, format!("the expression is not one of ours ({why}): write it without"));
    }
    let Some(to) = values::replacement(to.trim_end_matches('?')) else {
        return context.leave_with(directive, "the replacement has a variable that is not converted");
    };
    let mut table = Table::default();
    table.comment(&directive.place);
    table.set("regex", regex.as_str());
    table.set("to", to.as_str());
    match flag {
        "permanent" => table.set("status", 301),
        "redirect" => table.set("status", 302),
        "" | "last" | "break" if to.starts_with("http") => table.set("status", 302),
        "" | "last" | "break" => return site.push("rewrites", table),
        _ => return context.leave(directive),
    }
    site.push("redirects", table);
}

/// `limit_req`, `limit_conn`, `limit_rate`
pub(super) fn limits(context: &mut Context, site: &mut Table, settings: &Settings<'_>) {
    if let Some(directive) = settings.last("limit_rate") {
        match values::size(directive.first()) {
            Some(rate) if rate.0 > 0 => site.table("limits").set("bandwidth", rate.to_string()),
            Some(_) => {}
            None => context.leave(directive),
        }
    }
    if let Some(directive) = settings.last("limit_conn") {
        match directive.arguments.get(1).and_then(|number| number.parse::<i64>().ok()) {
            Some(connections) => context.root.table("limits").set("max_connections_per_address", connections),
            None => context.leave(directive),
        }
    }
    for directive in settings.all("limit_req") {
        let argument = |name: &str| directive.arguments.iter().find_map(|argument| argument.strip_prefix(name));
        let rate = argument("zone=")
            .and_then(|zone| context.rates.iter().find(|(name, _)| name == zone))
            .map(|(_, rate)| rate.clone());
        let per_second = rate.as_deref().and_then(|rate| {
            let (number, unit) = rate.split_once("r/")?;
            let number: f64 = number.parse().ok()?;
            Some(if unit == "m" { number / 60.0 } else { number })
        });
        let Some(per_second) = per_second else {
            context.leave_with(directive, "its zone is not by the client's address");
            continue;
        };
        let table = site.table("limits");
        table.set("requests_per_second", per_second.ceil() as i64);
        if let Some(burst) = argument("burst=").and_then(|burst| burst.parse::<i64>().ok()) {
            table.set("burst", burst);
        }
    }
}
