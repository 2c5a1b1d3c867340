//! Access restrictions of a site or a part of it. None is lost silently: a restriction without a counterpart closes its
//! part of the site, or is reported as UNGUARDED.

use std::net::IpAddr;

use ipnet::IpNet;
use toml::Value;

use super::Context;
use super::auth_request;
use super::location::Scope;
use super::pcre;
use super::site::Settings;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// All addresses.
const EVERYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// A rewrite target that is always refused, since names that begin with a dot are hidden.
const REFUSED: &str = "/.refused";

/// Remedy for a location that no rule can express.
const NO_RULE: &str = "the expression of its location is not supported: keep such files out of the root";

/// Whether `return` of the block itself answers each of its requests.
pub(super) fn returns(block: &Directive) -> bool {
    block.children().iter().any(|inner| inner.name == "return")
}

/// Whether a directive, or one inside it, restricts access.
pub(super) fn guards(directive: &Directive) -> bool {
    let refuses = |status: &str| status.parse::<u16>().is_ok_and(|status| status >= 400);
    match directive.name.as_str() {
        "allow" | "deny" | "internal" => true,
        "auth_basic" | "auth_request" | "auth_jwt" => directive.first() != "off",
        "disable_symlinks" | "modsecurity" | "secure_link" | "ssl_crl" | "ssl_verify_client" | "ssl_verify_depth"
        | "valid_referers" => directive.first() != "off",
        "limit_except" => !directive.arguments.iter().any(|method| method == "GET"),
        "return" => refuses(directive.first()),
        "if" if is_about_clients(directive) => true,
        name if name.starts_with("access_by_") || name.starts_with("rewrite_by_") => true,
        _ => passes_to_program(directive) || directive.children().iter().any(guards),
    }
}

/// Whether a directive passes requests to a program, so that nginx sends no files, including the program's source.
pub(super) fn passes_to_program(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "perl" | "js_content" => true,
        "passenger_enabled" => directive.first() == "on",
        name => name.ends_with("_pass") || name.starts_with("content_by_"),
    }
}

/// Whether a condition diverts clients by their identity or credentials rather than by the requested resource.
fn is_about_clients(condition: &Directive) -> bool {
    const OTHERS: [&str; 21] = [
        "args",
        "document_root",
        "document_uri",
        "host",
        "hostname",
        "http_accept",
        "http_accept_encoding",
        "http_accept_language",
        "http_host",
        "http_user_agent",
        "http_x_forwarded_proto",
        "https",
        "is_args",
        "query_string",
        "request_filename",
        "request_method",
        "request_uri",
        "scheme",
        "server_name",
        "server_port",
        "uri",
    ];
    let leads_away = condition.children().iter().any(|inner| matches!(inner.name.as_str(), "return" | "rewrite"));
    let text = condition.arguments.join(" ");
    let mut variables = text.split('$').skip(1).map(|rest| {
        let rest = rest.trim_start_matches('{');
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
    });
    // A trailing dollar sign ends an expression and names no variable.
    leads_away && variables.any(|variable| !variable.is_empty() && !OTHERS.contains(&variable))
}

/// Whether a server refuses requests.
pub(super) fn refuses_any(server: &Directive) -> bool {
    let rejects = |inner: &Directive| inner.name == "ssl_reject_handshake" && inner.first() == "on";
    server.children().iter().any(|inner| rejects(inner) || guards(inner))
}

/// Whether a part of a site is closed to everybody. `covers`: whether a path covers the part.
pub(super) fn is_closed_part(site: &Table, covers: impl Fn(&str) -> bool) -> bool {
    let everybody = Value::from(EVERYBODY.to_vec());
    let mut closed = site.list("access").filter(|rule| rule.get("deny") == Some(&everybody));
    closed.any(|rule| rule.get("path").and_then(Value::as_str).is_some_and(&covers))
}

/// Whether the paths of a location are closed to everybody by a rule of their own.
pub(super) fn is_closed_scope(site: &Table, scope: &Scope) -> bool {
    let Some((key, paths)) = scope.guarded() else { return false };
    let everybody = Value::from(EVERYBODY.to_vec());
    let paths = Value::from(paths);
    site.list("access").any(|rule| rule.get("deny") == Some(&everybody) && rule.get(key) == Some(&paths))
}

/// Visits directives recursively.
pub(super) fn walk<'a>(directives: &'a [Directive], visit: &mut impl FnMut(&'a Directive)) {
    for directive in directives {
        visit(directive);
        walk(directive.children(), visit);
    }
}

/// Whether a location only refuses names that begin with a dot, which Sealion hides by default.
pub(super) fn hides_dotfiles(location: &Directive) -> bool {
    let [tilde, regex] = location.arguments.as_slice() else { return false };
    let refuses = |inner: &Directive| match inner.name.as_str() {
        "deny" => inner.first() == "all",
        "return" => matches!(inner.first(), "403" | "404" | "444"),
        "access_log" | "log_not_found" => inner.first() == "off",
        _ => false,
    };
    let Some(name) = regex.trim_start_matches('^').strip_prefix(r"/\.") else { return false };
    let or_no_dot = name.starts_with(['*', '?', '{']);
    tilde.starts_with('~')
        && !(or_something_else(name) || or_no_dot || may_be_well_known(name))
        && location.children().iter().all(refuses)
}

/// Whether an expression has, or may have, an alternative outside its groups.
fn or_something_else(regex: &str) -> bool {
    let Some(items) = pcre::items(&pcre::without_look_around(regex)) else { return true };
    let mut depth = 0;
    items.iter().any(|item| {
        match item.kind {
            pcre::Kind::Open => depth += 1,
            pcre::Kind::Close => depth -= 1,
            _ => {}
        }
        item.kind == pcre::Kind::Or && depth == 0
    })
}

/// Whether the text after the dot may match `well-known`, the only such name that is served.
fn may_be_well_known(name: &str) -> bool {
    if name.starts_with("(?!well-known") {
        return false;
    }
    let name = name.strip_prefix('(').unwrap_or(name);
    name.strip_prefix("?:").unwrap_or(name).split('|').any(|one| {
        let literal = one.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(one.len());
        // The last character may be repeated zero times.
        let sure = if one[literal..].starts_with(['?', '*', '{']) { literal.saturating_sub(1) } else { literal };
        let sure = one[..sure].to_ascii_lowercase();
        "well-known".starts_with(&sure) || sure.starts_with("well-known")
    })
}

/// Reports rewrites that may lead to a path that an expression refuses.
pub(super) fn report_rewrites_to_refused(context: &mut Context, site: &Table, server: &Directive) {
    let is_refusal = |rule: &Table| rule.get("to").and_then(Value::as_str) == Some(REFUSED);
    let (refusals, others): (Vec<_>, Vec<_>) = site.list("rewrites").partition(|rule| is_refusal(rule));
    if !refusals.is_empty() && !others.is_empty() {
        let remedy = "rewrite targets are not checked against other rewrites: make sure that none leads to a path that another refuses (/.refused)";
        context.report_unguarded(server, remedy);
    }
}

/// Closes a part of a site.
pub(super) fn close(context: &mut Context, site: &mut Table, scope: &Scope, directive: &Directive) {
    let Some((key, paths)) = scope.guarded() else { return context.report_unguarded(directive, NO_RULE) };
    let mut rule = Table::default();
    rule.comment(&directive.place);
    rule.set(key, paths);
    rule.set("deny", EVERYBODY.to_vec());
    site.push("access", rule);
}

/// Refuses the paths of a rewrite whose target may be a program.
pub(super) fn refuse_by_rewrite(site: &mut Table, directive: &Directive, regex: &str) {
    let mut rule = Table::default();
    rule.comment(&directive.place);
    // Octets, as nginx matches them: else `.` would not match names outside UTF-8.
    rule.set("regex", format!("(?-u){regex}"));
    rule.set("to", REFUSED);
    site.push("rewrites", rule);
}

/// Closes a location that nginx passes to a program: its files may be source code.
pub(super) fn passed_on(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    scope: Option<&Scope>,
    location: &Directive,
    pass: &Directive,
) {
    let remedy = format!(
        "{location} is passed to a program, and requests are forwarded over HTTP and FastCGI only: let the program listen for HTTP, or keep nginx \
         for this path"
    );
    context.report_with(pass, remedy);
    close_program(context, site, settings, scope, location);
}

/// Closes a location whose files may be those of a program. The whole of a site with other locations is marked instead.
pub(super) fn close_program(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    scope: Option<&Scope>,
    location: &Directive,
) {
    match scope {
        Some(Scope::Everything) if settings.all("location").len() > 1 => context.report_unguarded(
            location,
            "files beneath the root are sent unmodified, including programs and settings: choose a root without them",
        ),
        Some(scope) => close(context, site, scope, location),
        None => {}
    }
}

/// `internal`, `allow`, `deny`, `auth_basic`, `auth_request` of a location. `false`: the location is closed, and its other directives
/// have no effect.
pub(super) fn of_block(
    context: &mut Context,
    site: &mut Table,
    settings: &Settings<'_>,
    scope: &Scope,
    location: &Directive,
) -> bool {
    let last = |name: &str| location.children().iter().rfind(|inner| inner.name == name);
    if let Some(internal) = last("internal") {
        close(context, site, scope, internal);
        return false;
    }
    let rules: Vec<_> = location.children().iter().filter(|inner| is_access(inner)).collect();
    if let (Some(first), Some(of_server)) = (rules.first(), settings.access().first()) {
        context.report_with(first, format!("rules add up: those at {} apply here too", of_server.place));
    }
    let open = access(context, site, scope, &rules);
    let (realm, users) = (last("auth_basic"), last("auth_basic_user_file"));
    if open && (realm.is_some() || users.is_some()) {
        let of_server = settings.last("auth_basic").filter(|realm| realm.first() != "off");
        match realm.or(of_server) {
            Some(off) if off.first() == "off" && of_server.is_none() => {}
            Some(off) if off.first() == "off" => {
                context.report_with(
                    off,
                    "exceptions inside a protected part are not supported: list the protected parts one by one",
                );
            }
            Some(realm) => {
                let of_site = settings.last("auth_basic_user_file");
                if let (Some(of_server), Some(own), Some(other)) = (of_server, users, of_site)
                    && own.first() != other.first()
                    && scope.guarded().is_some_and(|(key, _)| key == "regex")
                {
                    let remedy = format!(
                        "passwords add up: the one at {} is needed here too, by the same user",
                        of_server.place
                    );
                    context.report_with(realm, remedy);
                }
                basic_auth(context, site, scope, realm, users.or(of_site));
            }
            // A password file without a realm has no effect.
            None => {}
        }
    }
    if open {
        auth_request::of_location(context, site, settings, scope, location);
    }
    let asks = last("auth_request").filter(|asks| asks.first() != "off");
    let own = rules.first().copied().or(realm.filter(|realm| realm.first() != "off")).or(asks);
    if let (Scope::Everything, Some(own)) = (scope, own)
        && settings.all("location").len() > 1
    {
        context.report_with(own, "it applies to the whole site here, including its other locations");
    }
    open
}

/// Whether a directive restricts access by address.
pub(super) fn is_access(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "allow" | "deny")
}

/// `allow` and `deny`, of which nginx applies the first match. `false`: the part is closed.
pub(super) fn access(context: &mut Context, site: &mut Table, scope: &Scope, rules: &[&Directive]) -> bool {
    let Some(first) = rules.first() else { return true };
    let (mut allow, mut deny): (Vec<IpNet>, Vec<IpNet>) = (Vec::new(), Vec::new());
    let mut ends_with_deny = false;
    for rule in rules {
        let allows = rule.name == "allow";
        match (rule.first(), network(rule.first())) {
            // Later rules have no effect.
            ("all", _) => {
                ends_with_deny = !allows;
                break;
            }
            ("unix:", _) if allows => context.report_with(rule, "clients on a Unix socket have no address to allow"),
            ("unix:", _) => context.report_unguarded(
                rule,
                "clients on a Unix socket have no address to deny: restrict the mode of the socket",
            ),
            (_, Some(network)) if allows => allow.push(network),
            // In Sealion, `deny` takes precedence over `allow`.
            (_, Some(network)) => deny.extend(without(network, &allow)),
            (_, None) if allows => context.report_with(rule, "write the networks that the name stands for"),
            (_, None) => {
                context.report_with(rule, "not a network, so the part is closed: write the networks");
                close(context, site, scope, rule);
                return false;
            }
        }
    }
    match (ends_with_deny, scope.guarded()) {
        (true, _) if allow.is_empty() => {
            close(context, site, scope, first);
            return false;
        }
        (false, _) if deny.is_empty() => return true,
        (_, None) => {
            context.report_unguarded(first, NO_RULE);
            return false;
        }
        (_, Some((key, paths))) => {
            let written =
                |networks: Vec<IpNet>| networks.into_iter().map(|n| Value::from(short(n))).collect::<Vec<_>>();
            let mut table = Table::default();
            table.comment(&first.place);
            table.set(key, paths);
            // Without `deny all`, everybody else is allowed too.
            if ends_with_deny {
                table.set("allow", written(allow));
            }
            if !deny.is_empty() {
                table.set("deny", written(deny));
            }
            site.push("access", table);
        }
    }
    true
}

/// An address or a network; host bits are ignored, as in nginx.
pub(super) fn network(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().map(|network| network.trunc()).ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

pub(super) fn short(network: IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() { network.addr().to_string() } else { network.to_string() }
}

/// A network minus others.
fn without(network: IpNet, others: &[IpNet]) -> Vec<IpNet> {
    if others.iter().any(|other| other.contains(&network)) {
        return Vec::new();
    }
    if !others.iter().any(|other| network.contains(other)) {
        return vec![network];
    }
    let halves = network.subnets(network.prefix_len() + 1).into_iter().flatten();
    halves.flat_map(|half| without(half, others)).collect()
}

/// `auth_basic` and `auth_basic_user_file`.
pub(super) fn basic_auth(
    context: &mut Context,
    site: &mut Table,
    scope: &Scope,
    realm: &Directive,
    users: Option<&Directive>,
) {
    let Some(users) = users else {
        return context.report_unguarded(realm, "without auth_basic_user_file, nginx accepts everybody");
    };
    let Some((key, paths)) = scope.guarded() else { return context.report_unguarded(realm, NO_RULE) };
    if users.first().contains('$') {
        context.report_with(users, "variables are not supported, so the part is closed: write the full path");
        return close(context, site, scope, users);
    }
    let file = context.resolve(users.first());
    if let Ok(text) = std::fs::read_to_string(&file) {
        let old = text.lines().filter(|line| line.split_once(':').is_some_and(|(_, hash)| !is_known_hash(hash)));
        let old = old.count();
        if old > 0 {
            let remedy =
                format!("{old} passwords are neither bcrypt nor argon2: reset each with htpasswd -B {file} USER");
            context.report_with(users, remedy);
        }
    }
    let mut table = Table::default();
    table.comment(&realm.place);
    table.set(key, paths);
    table.set("realm", realm.first());
    table.set("users", file);
    site.push("basic_auth", table);
}

fn is_known_hash(hash: &str) -> bool {
    ["$2a$", "$2b$", "$2y$", "$argon2"].iter().any(|start| hash.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_outside_groups_are_found() {
        for (regex, is_found) in [
            ("(git|svn)", false),
            ("(?!well-known)(a|b)$", false),
            ("a|b", true),
            (r"(a\(|b)|secret", true),
            ("[(]|secret", true),
            ("[](]|secret", true),
            (r"a(?#()|secret", true),
            (r"a\|b", false),
        ] {
            assert_eq!(or_something_else(regex), is_found, "{regex}");
        }
    }

    #[test]
    fn networks_are_subtracted() {
        let of = |text: &str| text.parse::<IpNet>().unwrap();
        let left = |network: &str, others: &[&str]| {
            let others: Vec<IpNet> = others.iter().map(|other| of(other)).collect();
            without(of(network), &others).into_iter().map(short).collect::<Vec<_>>()
        };
        assert_eq!(left("10.0.0.0/8", &[]), ["10.0.0.0/8"]);
        assert_eq!(left("10.0.0.0/8", &["192.0.2.0/24", "::/0"]), ["10.0.0.0/8"]);
        assert!(left("10.0.0.0/8", &["0.0.0.0/0"]).is_empty());
        assert_eq!(left("192.0.2.0/30", &["192.0.2.1/32"]), ["192.0.2.0", "192.0.2.2/31"]);
        assert_eq!(left("0.0.0.0/0", &["0.0.0.0/1", "192.0.0.0/2"]), ["128.0.0.0/2"]);
        // A pair of addresses at most for each bit.
        assert_eq!(left("::/0", &["2001:db8::7/128"]).len(), 128);
    }

    #[test]
    fn networks_parse_as_in_nginx() {
        for (text, taken) in [
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("10.1.2.3", Some("10.1.2.3")),
            ("2001:db8::1/32", Some("2001:db8::/32")),
            ("office.example", None),
            ("$ip", None),
        ] {
            assert_eq!(network(text).map(short).as_deref(), taken, "{text}");
        }
    }
}
