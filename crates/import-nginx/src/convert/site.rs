//! Converts a `server` to a site: its settings, and its locations as routes.

use std::collections::HashSet;

use toml::Value;

use super::context::Context;
use super::level::Level;
use super::listeners::{Listeners, Part, addresses};
use super::route::{self, Server};
use super::variables::{self, Variables};
use super::{error_pages, guards, level, path, proxy, rewrite_phase, settings, tls, values};
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

/// A site, and its listeners and names.
pub(super) type Placed = (Table, Part);

/// Converts a server: one site, or one for each group of addresses at which it has other names. None: no request reaches it.
pub(super) fn convert<'d>(
    context: &mut Context,
    listeners: &mut Listeners,
    (number, server): (usize, &'d Directive),
    shared: &[&'d Directive],
) -> Vec<Placed> {
    context.site = Some(label(server));
    listeners.take(context, server, shared);
    let own: Vec<String> = addresses(server).collect();
    let has_tls = own.iter().any(|address| listeners.is_tls(address));
    context.is_tls = has_tls;
    if !has_tls {
        let is_redirect = server
            .children()
            .iter()
            .any(|inner| inner.name == "return" && inner.arguments.last().is_some_and(|to| to.starts_with("https://")));
        let remedy =
            "is served without TLS, as by nginx: TLS has to end at a proxy in front, or the server needs a certificate";
        if !is_redirect {
            context.note(server, remedy);
        }
    }
    let names = names(context, server, listeners.is_default(number));
    let parts = listeners.parts(context, (number, server), &names);
    if parts.is_empty() {
        report_unreachable(context, server);
        return Vec::new();
    }
    let mut site = Table::default();
    site.comment(&server.place);
    // Their places in the table; each site has its own.
    site.set("names", Vec::<Value>::new());
    site.set("listen", Vec::<Value>::new());
    site.set("default", false);
    let level = Level::new(shared).within(server);
    let rejects = level.last("ssl_reject_handshake").is_some_and(|reject| reject.first() == "on");
    if rejects {
        site.set("reject_handshake", true);
    } else {
        tls::certificates(context, &mut site, &level.all("ssl_certificate"), &level.all("ssl_certificate_key"));
        let roots = level.last("ssl_client_certificate").or(level.last("ssl_trusted_certificate"));
        tls::client_auth(context, &mut site, roots, level.last("ssl_verify_client"), level.last("ssl_crl"));
    }
    let is_never_asked = rejects && own.iter().all(|address| listeners.is_tls(address));
    if !is_never_asked {
        let mut variables = context.variables.clone();
        variables.server_name = names.iter().find(|name| !name.starts_with('~')).cloned();
        let of = |wanted: bool| one_port(own.iter().filter(|address| listeners.is_tls(address) == wanted));
        match (one_port(own.iter()), of(true), of(false)) {
            (None, Some(of_tls), Some(of_plain)) => variables.set_ports(of_tls, of_plain),
            (port, ..) => variables.port = port,
        }
        variables.scheme = match own.iter().filter(|address| listeners.is_tls(address)).count() {
            0 => Some("http"),
            count if count == own.len() => Some("https"),
            _ => None,
        };
        variables.has_usual_ports = own.iter().all(|address| address.ends_with(":80") || address.ends_with(":443"));
        variables.server_names.clone_from(&names);
        let (groups, named) =
            names.iter().find(|name| name.starts_with('~')).map(|name| path::groups(name)).unwrap_or_default();
        (variables.groups, variables.named) = (groups, named);
        write(context, &mut site, server, &level, variables);
    }
    let parts = parts.into_iter().flat_map(|part| by_tls(listeners, &site, part));
    parts.map(|part| (placed(listeners, site.clone(), &part), part)).collect()
}

/// Reports a server that no request reaches: it has no name of its own, and is the default of no address.
fn report_unreachable(context: &mut Context, server: &Directive) {
    let remedy =
        "no request reaches it here, as it has no name of its own and another server is the default: give it a name";
    // Without a name, it answers requests without Host.
    match !has_placeholder(server) && guards::refuses_any(server) {
        true => context.report_unguarded(
            server,
            format!("{remedy}. Requests without Host, which it refused, get the default site"),
        ),
        false => context.report_closed(server, remedy),
    }
}

/// The part itself or, for a site that asks for certificates of clients, its addresses with TLS apart from those without, where nginx does not ask.
fn by_tls(listeners: &Listeners, site: &Table, part: Part) -> Vec<Part> {
    let is_tls = |address: &&String| listeners.is_tls(address);
    let count = part.listen.iter().filter(is_tls).count();
    if site.table_if("client_auth").is_none() || count == 0 || count == part.listen.len() {
        return vec![part];
    }
    let half = |wanted: bool| {
        let of = |all: &[String]| all.iter().filter(|address| listeners.is_tls(address) == wanted).cloned().collect();
        Part { listen: of(&part.listen), names: part.names.clone(), default: of(&part.default) }
    };
    vec![half(true), half(false)]
}

/// The site of a part. Without TLS it has no certificates.
fn placed(listeners: &Listeners, mut site: Table, part: &Part) -> Table {
    if !part.listen.iter().any(|address| listeners.is_tls(address)) {
        for key in ["certificates", "client_auth", "reject_handshake"] {
            site.remove(key);
        }
    }
    match part.names.is_empty() {
        true => _ = site.remove("names"),
        false => site.set("names", part.names.iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>()),
    }
    site
}

/// The name of a server in reports.
fn label(server: &Directive) -> String {
    let names = server.children().iter().filter(|inner| inner.name == "server_name").flat_map(|inner| &inner.arguments);
    match names.into_iter().find(|name| !matches!(name.as_str(), "_" | "")) {
        Some(name) => name.clone(),
        None => format!("server at {}", server.place),
    }
}

/// Writes the settings and routes of a server.
fn write<'d>(
    context: &mut Context,
    site: &mut Table,
    server: &'d Directive,
    level: &Level<'d>,
    mut variables: Variables,
) {
    let all = Server::new(server);
    let mut own = Table::default();
    let merged = level.merged();
    context.chained = chained(server);
    context.sized.clear();
    context.sign_ins = guards::sign_ins(server);
    context.asked = guards::AskedLocations::new(server);
    // A server that returns has no locations, unless a rewrite leads to them.
    let returns = server.children().iter().any(|inner| inner.name == "return");
    let returns = returns && !guards::leads_past_return(level.own());
    let named = all.locations.iter().filter(|location| !returns && location.first().starts_with('@'));
    let answers = |location: &Directive| guards::returns_first(&level.within(location));
    context.named = named.map(|location| (location.first().to_owned(), answers(location))).collect();
    // Files are looked for behind the conditions of the server.
    let mut settled = rewrite_phase::settled(context, server.children().iter(), &variables);
    rewrite_phase::forget_changed(context, server, &mut settled);
    if let Some(root) = merged.last("root") {
        variables.root = settings::directory(context, root, &settled).ok();
        settled.root = variables.root.clone();
        if let Some(root) = &variables.root {
            own.set("root", root.as_str());
        }
    }
    if !returns || guards::may_skip_return(level.own()) {
        guards::write(context, &mut own, &merged, &all.locations);
    }
    settings::write(context, &mut own, &merged, &settled);
    if proxy::passes(server) {
        own.set("accel", true);
    }
    of_site(site, own);
    report_sets(context, server, &all.locations);
    let routes = route::of_server(context, &all, level, server, &mut variables);
    routes.into_iter().for_each(|route| site.push("route", route));
    for further in std::mem::take(&mut context.further) {
        site.push("route", further);
    }
    if site.get("root").is_none() && site.list("route").next().is_none() {
        site.set("root", DEFAULT_ROOT);
    }
    for inner in server.children() {
        match inner.name.as_str() {
            "listen" | "server_name" | "location" | "return" | "rewrite" | "try_files" | "if" | "set" | "break" => {}
            "access_log" | "ssl_reject_handshake" | "set_real_ip_from" | "real_ip_header" | "real_ip_recursive" => {}
            name if level::inherits(name) => {}
            _ if guards::is_guard(inner) => {}
            _ => context.shared(inner),
        }
    }
}

/// Reports variables that a location sets for another one: here, a variable has the value that its own location gives it.
fn report_sets(context: &mut Context, server: &Directive, locations: &[&Directive]) {
    let pages = server.children().iter().filter(|inner| inner.name == "error_page");
    for location in locations {
        let own = all_within(location);
        let leads_to = |other: &Directive| {
            let name = other.arguments.last().map_or("", String::as_str);
            let is_it = |last: &String| if name.starts_with('@') { last == name } else { last.starts_with('/') };
            own.iter().copied().chain(pages.clone()).any(|inner| match (inner.name.as_str(), inner.arguments.get(2)) {
                ("rewrite", None) => !name.starts_with('@'),
                ("rewrite", Some(flag)) => flag == "last" && !name.starts_with('@'),
                ("try_files" | "error_page", _) => inner.arguments.last().is_some_and(is_it),
                _ => false,
            })
        };
        for other in locations.iter().filter(|other| !std::ptr::eq(**other, *location) && leads_to(other)) {
            own.iter().for_each(|set| report_set(context, set, other));
        }
    }
    // The query that a server makes is known by `$args` alone.
    let own = server.children().iter().filter(|inner| inner.name != "location");
    let own: Vec<_> = own.flat_map(|inner| std::iter::once(inner).chain(all_within(inner))).collect();
    for set in own.into_iter().filter(|inner| matches!(inner.first(), "$args" | "${args}")) {
        locations.iter().for_each(|location| report_set(context, set, location));
    }
}

/// Reports a `set` whose variable another location uses.
fn report_set(context: &mut Context, set: &Directive, location: &Directive) {
    if set.name != "set" {
        return;
    }
    let name = set.first().trim_start_matches(['$', '{']).trim_end_matches('}');
    let is_it = |own: &str| own == name || name == "args" && (own.starts_with("arg_") || own == "query_string");
    let uses = |inner: &Directive| {
        let mut texts = inner.arguments.iter().flat_map(|text| text.split('$').skip(1));
        texts.any(|behind| is_it(variables::name(behind).0))
    };
    let sets = |inner: &Directive| inner.name == "set" && inner.first() == set.first();
    let all = all_within(location);
    let users: Vec<_> = all.iter().filter(|inner| uses(inner)).collect();
    if users.is_empty() || all.iter().copied().any(sets) {
        return;
    }
    let remedy = format!("{} has this value in no other location: ask there what the set asks", set.first());
    match users.iter().any(|inner| inner.name == "if" && guards::refuses_any(inner)) {
        true => context.report_unguarded(set, remedy),
        false => context.report_with(set, remedy),
    }
}

/// All directives of a block and of those in it.
fn all_within(block: &Directive) -> Vec<&Directive> {
    let mut all = Vec::new();
    guards::walk(block.children(), &mut |inner| all.push(inner));
    all
}

/// The error pages of a server whose locations have error pages of their own.
fn chained(server: &Directive) -> HashSet<String> {
    let mut pages = Vec::new();
    guards::walk(server.children(), &mut |inner| {
        pages.extend(inner.arguments.last().filter(|_| inner.name == "error_page"));
    });
    pages.into_iter().filter(|page| error_pages::has_pages(server, page)).cloned().collect()
}

/// Moves the settings of a server to its site.
fn of_site(site: &mut Table, own: Table) {
    for (key, value) in site.append_tables(own) {
        match (key.as_str(), value) {
            // There is nothing around a site that this would take away.
            ("basic_auth" | "forward_auth" | "compress" | "listing", Value::Boolean(false)) => {}
            // A location may have an action of its own.
            ("deny", _) => {
                let everyone = ["0.0.0.0/0", "::/0"].map(Value::from).to_vec();
                site.set("access", inline_table([("deny", everyone.into())]));
            }
            (key, value) => site.set(key, value),
        }
    }
}

/// The directory of Debian's package, which nginx has without a root.
const DEFAULT_ROOT: &str = "/usr/share/nginx/html";

/// Whether a server has a name that no request has, or one that is not supported.
fn has_placeholder(server: &Directive) -> bool {
    let names = server.children().iter().filter(|inner| inner.name == "server_name").flat_map(|inner| &inner.arguments);
    names.into_iter().any(|name| !name.is_empty())
}

/// The supported names of a server; others are reported.
fn names(context: &mut Context, server: &Directive, is_default: bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let refuses = !is_default && guards::refuses_any(server);
    // Requests for such a name get the default site.
    let unsupported = |context: &mut Context, directive: &Directive, remedy: String| match refuses {
        true => context.report_unguarded(
            directive,
            format!("{remedy}. Until then the default site answers, where this server refused"),
        ),
        false => context.report_with(directive, remedy),
    };
    for directive in server.children().iter().filter(|inner| inner.name == "server_name") {
        for name in &directive.arguments {
            let lower = name.to_ascii_lowercase();
            let converted = match lower.as_str() {
                // It has the requests without Host.
                "" if !is_default && has_placeholder(server) => {
                    let remedy = "requests without Host get the default site".to_owned();
                    unsupported(context, directive, remedy);
                    vec![]
                }
                "_" | "" => vec![],
                text if text.starts_with('~') => match expression(&name[1..]) {
                    Some(expression) => vec![expression],
                    None => {
                        unsupported(context, directive, format!("{name}: list the names that it matches"));
                        vec![]
                    }
                },
                text if text.contains('$') => {
                    unsupported(context, directive, format!("{text}: list the names that it matches"));
                    vec![]
                }
                text => match text.strip_prefix('.') {
                    Some(domain) => vec![domain.to_owned(), format!("*.{domain}")],
                    None => vec![text.to_owned()],
                },
            };
            converted.into_iter().for_each(|name| {
                if !names.contains(&name) {
                    names.push(name);
                }
            });
        }
    }
    names
}

/// The name of a site for an expression of `server_name`. nginx ignores case where the expression has upper case.
fn expression(text: &str) -> Option<String> {
    let sign = if text.bytes().any(|byte| byte.is_ascii_uppercase()) { "~*" } else { "~" };
    Some(format!("{sign} {}", values::regex_of_pcre(text, false)?))
}

/// The ports of addresses, if all have one.
fn one_port<'a>(mut addresses: impl Iterator<Item = &'a String>) -> Option<u16> {
    let port = |address: &String| address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let first = port(addresses.next()?)?;
    addresses.all(|address| port(address) == Some(first)).then_some(first)
}
