//! Access restrictions of a site or a route. None is lost silently: the route of a restriction without counterpart is closed.

use std::collections::HashSet;

use ipnet::IpNet;
use toml::Value;

use super::context::Context;
use super::level::Level;
use super::path::Path;
use super::proxy::{self, Asked};
use super::{auth_request, limits, values};
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

/// All addresses.
const EVERYONE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Whether a directive passes requests to a program, so that nginx sends no files, including the program's source.
pub(super) fn passes_to_program(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "perl" | "js_content" | "stub_status" | "memcached_pass" | "api" => true,
        "passenger_enabled" | "nchan_publisher" | "nchan_subscriber" | "push_stream_subscriber" => {
            directive.first() != "off"
        }
        name => name.ends_with("_pass") || name.starts_with("content_by_"),
    }
}

/// Whether a directive restricts access and has no counterpart.
fn is_lost(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "auth_jwt" | "auth_pam" | "auth_gss" | "auth_ldap" | "modsecurity" | "secure_link" | "secure_link_secret"
        | "auth_digest" | "js_access" => directive.first() != "off",
        name => name.starts_with("access_by_") || name.starts_with("rewrite_by_"),
    }
}

/// Whether a directive restricts access.
pub(super) fn is_guard(directive: &Directive) -> bool {
    let name = directive.name.as_str();
    matches!(name, "allow" | "deny" | "auth_basic" | "auth_request" | "internal") || is_lost(directive)
}

/// Whether a server refuses requests.
pub(super) fn refuses_any(server: &Directive) -> bool {
    let refuses = |status: &str| status.parse::<u16>().is_ok_and(|status| status >= 400);
    server.children().iter().any(|inner| match inner.name.as_str() {
        "ssl_reject_handshake" => inner.first() == "on",
        "return" => refuses(inner.first()),
        "deny" | "auth_basic" | "auth_request" | "ssl_verify_client" => inner.first() != "off",
        name => is_lost(inner) || name == "location" && refuses_any(inner),
    })
}

/// Visits directives recursively.
pub(super) fn walk<'a>(directives: &'a [Directive], visit: &mut impl FnMut(&'a Directive)) {
    for directive in directives {
        visit(directive);
        walk(directive.children(), visit);
    }
}

/// Whether a block returns before nginx asks a guard: its rewrite phase comes first.
pub(super) fn returns_first(level: &Level<'_>) -> bool {
    let own = level.own();
    // Locations within inherit the guards, and may not return.
    own.iter().any(|inner| inner.name == "return")
        && !may_skip_return(own)
        && !level.sets(&["location"])
        && !own.iter().any(|inner| is_lost(inner))
}

/// Whether requests may leave the rewrite phase of a block before its `return`: by `break`, or by a rewrite that sends no redirect.
pub(super) fn may_skip_return(own: &[&Directive]) -> bool {
    own.iter().any(|inner| is_break(inner) || inner.name == "if" && inner.children().iter().any(is_break))
        || leads_past_return(own)
}

fn is_break(directive: &Directive) -> bool {
    directive.name == "break"
}

/// Whether a rewrite of a block leads past its `return`.
pub(super) fn leads_past_return(own: &[&Directive]) -> bool {
    own.iter().any(|inner| leaves_rewrites(inner) || inner.name == "if" && inner.children().iter().any(leaves_rewrites))
}

/// Whether a directive is a rewrite whose flag has nginx leave the rewrites of a block.
fn leaves_rewrites(directive: &Directive) -> bool {
    directive.name == "rewrite" && matches!(directive.arguments.get(2).map(String::as_str), Some("break" | "last"))
}

/// Takes the guards around a block away, which it has not.
pub(super) fn take_away(table: &mut Table, level: &Level<'_>) -> bool {
    let around = level.around();
    let is_set = |names: &[&str]| !around.any_of(names).is_empty();
    if is_set(&["allow", "deny"]) {
        table.set("access", toml::Table::new());
    }
    for (name, key) in [("auth_basic", "basic_auth"), ("auth_request", "forward_auth")] {
        if is_set(&[name]) {
            table.set(key, false);
        }
    }
    if is_set(&["limit_req"]) {
        table.set("limits", toml::Table::new());
    }
    true
}

/// Writes the restrictions that the innermost block of a level sets. `false`: the route is closed, and has no action beside.
pub(super) fn write(context: &mut Context, table: &mut Table, level: &Level<'_>, locations: &[&Directive]) -> bool {
    if let Some(lost) = level.own().iter().find(|directive| is_lost(directive)) {
        context.report_closed(
            lost,
            "no guard has its meaning: the part is closed until you write one, for instance forward_auth",
        );
        table.set("deny", true);
        return false;
    }
    if let Some(satisfy) = level.own().iter().rfind(|directive| directive.name == "satisfy") {
        table.set("satisfy", if satisfy.first() == "any" { "any" } else { "all" });
    }
    if let Some(satisfy) = level.last("satisfy").filter(|satisfy| satisfy.first() == "any")
        && (level.sets(&["satisfy"]) || level.sets(&SIGN_INS))
        && SIGN_INS.into_iter().all(|name| is_on(level, name))
    {
        let remedy = "clients need both the password and the consent of the other server: remove one of them";
        context.report_with(satisfy, remedy);
    }
    // Locations within may allow clients again, and `deny` closes them for good.
    let has_locations = level.sets(&["location", "limit_except"]);
    let unmatched = Unmatched::of(level);
    let may_open = has_locations || unmatched == Unmatched::Asked;
    let rules = level.any_of(&["allow", "deny"]);
    // The rules around a block mean something else where the block changes `satisfy` or the other guards.
    let is_changed = !rules.is_empty() && Unmatched::of(&level.around()) != unmatched;
    let is_open = !(level.sets(&["allow", "deny"]) || is_changed)
        || access(context, table, (&rules, unmatched), if may_open { Deny::Addresses } else { Deny::Route });
    is_open && basic_auth(context, table, level) && forward_auth(context, table, level, locations) && {
        limits::write(context, table, level);
        true
    }
}

/// The guards that know a client by more than its address.
const SIGN_INS: [&str; 2] = ["auth_basic", "auth_request"];

/// Whether one of them applies in a block.
fn is_on(level: &Level<'_>, guard: &str) -> bool {
    level.last(guard).is_some_and(|directive| directive.first() != "off")
}

/// The clients that no rule of `allow` and `deny` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unmatched {
    /// They pass.
    Allowed,
    /// `satisfy any` has them asked by the other guards.
    Asked,
}

impl Unmatched {
    fn of(level: &Level<'_>) -> Self {
        let is_any = level.last("satisfy").is_some_and(|satisfy| satisfy.first() == "any");
        match is_any && SIGN_INS.into_iter().any(|name| is_on(level, name)) {
            true => Unmatched::Asked,
            false => Unmatched::Allowed,
        }
    }
}

/// How rules that deny all clients are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deny {
    /// As `deny`, which nothing opens again.
    Route,
    /// As addresses: other guards, or locations within, may let clients pass.
    Addresses,
}

/// Writes `allow` and `deny`. nginx applies the first match. `false`: the route is closed.
fn access(
    context: &mut Context,
    table: &mut Table,
    (rules, unmatched): (&[&Directive], Unmatched),
    deny_all: Deny,
) -> bool {
    let (mut allow, mut deny): (Vec<IpNet>, Vec<IpNet>) = (Vec::new(), Vec::new());
    let mut ends_with_deny = unmatched == Unmatched::Asked;
    for rule in rules {
        let allows = rule.name == "allow";
        match (rule.first(), values::network(rule.first())) {
            // Later rules have no effect.
            ("all", _) => {
                ends_with_deny = !allows;
                break;
            }
            ("unix:", _) if allows => context.note(rule, "clients on a Unix socket have no address to allow"),
            ("unix:", _) => context.report_unguarded(
                rule,
                "clients on a Unix socket have no address to deny: restrict the mode of the socket",
            ),
            (_, Some(network)) if allows => allow.push(network),
            // Here `deny` takes precedence over `allow`.
            (_, Some(network)) => deny.extend(values::without(network, &allow)),
            (_, None) if allows => context.report_with(rule, "write the networks that the name stands for"),
            (_, None) => {
                context.report_closed(rule, "not a network, so the part is closed: write the networks");
                table.set("deny", true);
                return false;
            }
        }
    }
    // nginx compares the IPv4 clients of an IPv6 socket with these, where there are no others.
    let is_ipv4 = |network: &IpNet| network.addr().is_ipv4();
    let is_mapped = |network: &IpNet| {
        values::network("::ffff:0:0/96").is_some_and(|all| all.contains(network) || network.contains(&all))
    };
    if deny.iter().any(is_mapped)
        && !allow.iter().chain(&deny).any(is_ipv4)
        && let Some(rule) = rules.iter().find(|rule| rule.name == "deny")
    {
        let remedy = "clients of IPv4 are not refused here, on no socket: write a rule for them, such as deny all";
        context.report_unguarded(rule, remedy);
    }
    let written =
        |networks: Vec<IpNet>| networks.into_iter().map(|n| Value::from(values::short(n))).collect::<Vec<_>>();
    let mut rule = toml::Table::new();
    match (ends_with_deny, allow.is_empty()) {
        (true, true) if deny_all == Deny::Route => {
            table.set("deny", true);
            return false;
        }
        (true, true) => drop(rule.insert("deny".to_owned(), EVERYONE.to_vec().into())),
        // Without `deny all`, all other clients are allowed too.
        (true, false) => drop(rule.insert("allow".to_owned(), written(allow).into())),
        (false, _) => {}
    }
    match (deny.is_empty(), ends_with_deny) {
        (false, _) => drop(rule.entry("deny").or_insert(written(deny).into())),
        (true, true) => {}
        // It replaces the rules around it.
        (true, false) => drop(rule.insert("allow".to_owned(), EVERYONE.to_vec().into())),
    }
    table.set("access", rule);
    true
}

/// `auth_basic` and `auth_basic_user_file`. `false`: the route is closed.
fn basic_auth(context: &mut Context, table: &mut Table, level: &Level<'_>) -> bool {
    if !level.sets(&["auth_basic", "auth_basic_user_file"]) {
        return true;
    }
    let realm = match level.last("auth_basic") {
        // A file without a realm has no effect.
        None => return true,
        Some(off) if off.first() == "off" => {
            table.set("basic_auth", false);
            return true;
        }
        Some(realm) => realm,
    };
    let Some(users) = level.last("auth_basic_user_file") else {
        context.report_closed(realm, "it has no auth_basic_user_file, so the part is closed: set users of basic_auth");
        table.set("deny", true);
        return false;
    };
    if users.first().contains('$') || realm.first().contains('$') {
        context.report_closed(users, "realm and file of users are constants, so the part is closed: write basic_auth");
        table.set("deny", true);
        return false;
    }
    let file = context.resolve(users.first());
    if !std::path::Path::new(&file).is_file() {
        context.note(users, "the file of users is not readable here, and is needed at start");
    }
    table.set("basic_auth", inline_table([("realm", realm.first().into()), ("users", file.into())]));
    true
}

/// `auth_request`: nginx takes the request to the server from the named location. `false`: the route is closed.
fn forward_auth(context: &mut Context, table: &mut Table, level: &Level<'_>, locations: &[&Directive]) -> bool {
    if !level.sets(&["auth_request"]) {
        return true;
    }
    let Some(directive) = level.last("auth_request") else { return true };
    if directive.first() == "off" {
        table.set("forward_auth", false);
        return true;
    }
    match asked(context, level, locations, directive.first()) {
        Ok((location, Asked { upstream, to, host })) => {
            let mut auth = toml::Table::new();
            auth.extend(upstream.map(|name| ("upstream".to_owned(), name.into())));
            auth.insert("to".to_owned(), to.into());
            auth_request::write(context, &mut auth, (level, location), host);
            let signs_in = leads_to_sign_in(level)
                || sign_in(level, locations)
                    .is_some_and(|location| context.sign_ins.iter().any(|name| name == location.first()));
            auth.insert("refusal".to_owned(), if signs_in { "redirect" } else { "status" }.into());
            if let Some(cookies) = cookies(level, locations) {
                auth.insert("cookies".to_owned(), cookies.into());
            }
            let (same, others): (Vec<_>, Vec<_>) =
                copied(level).into_iter().partition(|(name, source)| name.eq_ignore_ascii_case(source));
            if !same.is_empty() {
                let names: Vec<Value> = same.into_iter().map(|(name, _)| name.into()).collect();
                auth.insert("copy".to_owned(), names.into());
            }
            if !others.is_empty() {
                let names = others.into_iter().map(|(name, source)| (name, Value::from(source)));
                auth.insert("copy_as".to_owned(), names.collect::<toml::Table>().into());
            }
            table.set("forward_auth", auth);
            true
        }
        Err(why) => {
            context.report_closed(
                directive,
                format!("{why}, so the part is closed: write forward_auth, with to = the URL that is asked"),
            );
            table.set("deny", true);
            false
        }
    }
}

/// Whether the page of requests without consent is the Location of the answer: `forward_auth` redirects there itself.
fn leads_to_sign_in(level: &Level<'_>) -> bool {
    let is_it = |page: &&Directive| page.arguments.iter().any(|code| code == "401") && is_sign_in(level, page);
    level.all("error_page").iter().any(is_it)
}

/// Whether an `error_page` redirects to the Location of the answer.
pub(super) fn is_sign_in(level: &Level<'_>, page: &Directive) -> bool {
    let redirects = page.arguments.iter().any(|word| word == "=302" || word == "=303");
    redirects && page.arguments.last().is_some_and(|to| is_set(&level.all("auth_request_set"), to, "location"))
}

/// The location that `error_page` names for requests without consent.
fn sign_in<'d>(level: &Level<'d>, locations: &[&'d Directive]) -> Option<&'d Directive> {
    let pages = level.all("error_page");
    let page = pages.into_iter().find(|page| page.arguments.iter().any(|code| code == "401"))?;
    let to = page.arguments.last()?;
    locations.iter().copied().find(|location| location.arguments.last() == Some(to))
}

/// The named locations of a server that redirect to the Location of the answer: `forward_auth` does so itself.
pub(super) fn sign_ins(server: &Directive) -> Vec<String> {
    let mut sets = Vec::new();
    walk(server.children(), &mut |inner| sets.extend((inner.name == "auth_request_set").then_some(inner)));
    let redirects = |location: &&Directive| {
        let returned = location.children().iter().find(|inner| inner.name == "return");
        matches!(returned.map(|returned| returned.arguments.as_slice()), Some([status, to]) if status == "302" && is_set(&sets, to, "location"))
    };
    let named = server.children().iter().filter(|inner| inner.name == "location" && inner.first().starts_with('@'));
    named.filter(redirects).map(|location| location.first().to_owned()).collect()
}

fn sets_of(location: &Directive) -> Vec<&Directive> {
    location.children().iter().filter(|inner| inner.name == "auth_request_set").collect()
}

/// Whether a variable has the value of a field of the answer.
fn is_set(sets: &[&Directive], variable: &str, field: &str) -> bool {
    let source = format!("$upstream_http_{field}");
    sets.iter().any(|set| set.arguments.iter().map(String::as_str).eq([variable, &source]))
}

/// Whether `add_header` sends the cookies of the answer.
pub(super) fn is_cookie_of_answer(field: &Directive, sets: &[&Directive]) -> bool {
    let [name, value, ..] = field.arguments.as_slice() else { return false };
    name.eq_ignore_ascii_case("set-cookie") && is_set(sets, value, "set_cookie")
}

/// The responses that have the cookies of the answer: all, where the location itself adds them.
fn cookies(level: &Level<'_>, locations: &[&Directive]) -> Option<&'static str> {
    let sets = level.all("auth_request_set");
    if sends_cookies(level.own(), (&sets, &level.all("add_header"))) {
        return Some("all");
    }
    let location = sign_in(level, locations)?;
    let sets = [sets, sets_of(location)].concat();
    let mut fields = location.children().iter().filter(|inner| inner.name == "add_header");
    fields.any(|field| is_cookie_of_answer(field, &sets)).then_some("refused")
}

/// Whether a block, or a location in it that inherits its guard, sends the cookies of the answer. `around`: the directives of the block.
fn sends_cookies(block: &[&Directive], around: (&[&Directive], &[&Directive])) -> bool {
    let (sets, fields) = (replaced(block, "auth_request_set", around.0), replaced(block, "add_header", around.1));
    let within =
        |location: &Directive| sends_cookies(&location.children().iter().collect::<Vec<_>>(), (&sets, &fields));
    fields.iter().any(|field| is_cookie_of_answer(field, &sets)) || locations_of_guard(block).any(within)
}

/// The directives of a name in a block: they replace those around it, as in nginx.
fn replaced<'d>(block: &[&'d Directive], name: &str, around: &[&'d Directive]) -> Vec<&'d Directive> {
    let own: Vec<_> = block.iter().copied().filter(|inner| inner.name == name).collect();
    if own.is_empty() { around.to_vec() } else { own }
}

/// The locations in a block that have the guard of the block.
fn locations_of_guard<'b, 'd>(block: &'b [&'d Directive]) -> impl Iterator<Item = &'d Directive> + 'b {
    let is_it = |inner: &&Directive| {
        inner.name == "location" && !inner.children().iter().any(|inner| inner.name == "auth_request")
    };
    block.iter().copied().filter(is_it)
}

/// The locations of a server that `auth_request` asks, by their paths.
#[derive(Debug, Default)]
pub(super) struct AskedLocations {
    all: HashSet<String>,
    /// Paths that other directives name too.
    named: HashSet<String>,
    /// The variables with the cookies of an answer.
    cookies: HashSet<String>,
}

impl AskedLocations {
    pub(super) fn new(server: &Directive) -> Self {
        let mut found = AskedLocations::default();
        walk(server.children(), &mut |inner| match inner.name.as_str() {
            "auth_request" => drop(found.all.insert(path_of(inner.first()))),
            "auth_request_set" if inner.arguments.get(1).is_some_and(|value| value == "$upstream_http_set_cookie") => {
                found.cookies.insert(inner.first().to_owned());
            }
            "location" => {}
            _ => found.named.extend(inner.arguments.iter().map(|argument| path_of(argument))),
        });
        found
    }

    pub(super) fn has(&self, location: &Directive) -> bool {
        self.all.iter().any(|path| begins(location, path).is_some())
    }

    /// Whether a field has the cookies of an answer, wherever they were set.
    pub(super) fn is_cookie(&self, value: &str) -> bool {
        self.cookies.contains(value)
    }

    /// Whether no request but the one for consent reaches a location.
    pub(super) fn are_alone_with(&self, location: &Directive) -> bool {
        let is_internal = location.children().iter().any(|inner| inner.name == "internal");
        let is_alone = |path: &String| self.all.contains(path) && !self.named.contains(path);
        is_internal && !location.first().starts_with('~') && location.arguments.last().is_some_and(is_alone)
    }
}

fn path_of(text: &str) -> String {
    text.split('?').next().unwrap_or(text).to_owned()
}

/// The length of a location's path, if a path begins with it, or is it where the location is exact.
fn begins(location: &Directive, path: &str) -> Option<usize> {
    let own = location.arguments.last()?;
    match location.arguments.as_slice() {
        [sign, _] if sign == "=" => (own == path).then_some(usize::MAX),
        [sign, _] if sign.starts_with('~') => None,
        _ if own.starts_with('/') && own.len() > 1 => path.starts_with(own.as_str()).then_some(own.len()),
        _ => None,
    }
}

/// The location that is asked, and its server.
fn asked<'d>(
    context: &mut Context,
    level: &Level<'_>,
    locations: &[&'d Directive],
    path: &str,
) -> Result<(&'d Directive, Asked), String> {
    let path = path.split('?').next().unwrap_or(path);
    let found = locations.iter().copied().filter_map(|location| Some((begins(location, path)?, location)));
    let Some((length, location)) = found.max_by_key(|(length, _)| *length) else {
        return Err(format!("no location has the path {path}"));
    };
    let has_it = |location: &&Directive| Path::of(location).is_ok_and(|own| own.is_expression() && own.has(path));
    if length != usize::MAX && location.first() != "^~" && locations.iter().copied().any(|own| has_it(&own)) {
        return Err(format!("the location of {path} has an expression"));
    }
    let mut within = location.children().iter().filter(|inner| inner.name == "location");
    if within.any(|inner| begins(inner, path).is_some() || has_it(&inner)) {
        return Err(format!("the location of {path} stands within another one"));
    }
    let behind = path.get(length..).unwrap_or_default();
    let Some(pass) = location.children().iter().find(|inner| inner.name == "proxy_pass") else {
        return Err(format!("{location} is not passed to a server over HTTP"));
    };
    Ok((location, proxy::url_of(context, level, location, pass, (path, behind))?))
}

/// The fields that requests get from the answer, and their names there, here or in a location that inherits the guard:
/// `auth_request_set $user $upstream_http_x_user` with `proxy_set_header X-User $user`.
fn copied(level: &Level<'_>) -> Vec<(String, String)> {
    let (sets, fields) = (level.all("auth_request_set"), level.all("proxy_set_header"));
    let mut copied = Vec::new();
    copied_within(level.own(), (&sets, &fields), &mut copied);
    copied.sort();
    copied.dedup();
    copied
}

/// Adds the fields of a block and of the locations in it.
fn copied_within(block: &[&Directive], around: (&[&Directive], &[&Directive]), copied: &mut Vec<(String, String)>) {
    let (sets, fields) = (replaced(block, "auth_request_set", around.0), replaced(block, "proxy_set_header", around.1));
    let of_field = |field: &&Directive| Some((field.arguments.first()?.clone(), source_of(field, &sets)?));
    copied.extend(fields.iter().filter_map(of_field));
    for location in locations_of_guard(block) {
        copied_within(&location.children().iter().collect::<Vec<_>>(), (&sets, &fields), copied);
    }
}

/// The field of the answer of the server that is asked, whose value a field of a request has.
pub(super) fn source_of(field: &Directive, sets: &[&Directive]) -> Option<String> {
    let [name, value] = field.arguments.as_slice() else { return None };
    let value = value.replace("${", "$").replace('}', "");
    let set = sets.iter().rfind(|set| set.first() == value)?;
    let source = set.arguments.get(1)?.strip_prefix("$upstream_http_")?.replace('_', "-");
    // As the operator spells it.
    Some(if name.eq_ignore_ascii_case(&source) { name.clone() } else { source })
}
