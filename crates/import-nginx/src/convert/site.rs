//! Converts a `server` to a site: what it sets, and its locations as routes.

use toml::Value;

use super::context::Context;
use super::level::Level;
use super::listeners::Listeners;
use super::route::{self, Server};
use super::variables::Variables;
use super::{guards, level, path, plain, rewrite_phase, settings, tls};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Converts a server. `None`: it does not become a site.
pub(super) fn convert<'d>(
    context: &mut Context,
    listeners: &mut Listeners,
    server: &'d Directive,
    shared: &[&'d Directive],
) -> Option<Table> {
    context.site = Some(label(server));
    let listens = listeners.take(context, server, shared);
    if !listens.tls && (listeners.redirects(server) || !listeners.serve(server)) {
        plain::redirect(context, listeners, server);
        return None;
    }
    if listens.tls && listens.plain && !listeners.serve(server) {
        context.note(
            server,
            "over plain HTTP, its clients are redirected to HTTPS: plain = \"serve\" of the listener serves them",
        );
    }
    if !listens.tls {
        let remedy =
            "is served without TLS, as by nginx: TLS has to end at a proxy in front, or the server needs a certificate";
        context.note(server, remedy);
    }
    let mut site = Table::default();
    site.comment(&server.place);
    let secure = if listens.tls { Vec::new() } else { plain::secure_names(server, listeners) };
    listeners.redirect_some(&secure);
    let names = names(context, server, &secure, listeners.is_default(server));
    if !names.is_empty() {
        site.set("names", names.clone());
    }
    if listeners.is_default(server) {
        if listens.default || names.is_empty() {
            site.set("default", true);
        }
    } else if names.is_empty() {
        let remedy = "no request reaches it here, as it has no name of its own and another server is the default: give it a name";
        // Without a name, it answers requests without Host.
        let answers = !has_placeholder(server) && guards::refuses_any(server);
        match answers {
            true => context.report_unguarded(
                server,
                format!("{remedy}. Requests without Host, which it refused, get the default site"),
            ),
            false => context.report_closed(server, remedy),
        }
        return None;
    }
    let level = Level::new(shared).within(server);
    tls::certificates(context, &mut site, &level.all("ssl_certificate"), &level.all("ssl_certificate_key"));
    let roots = level.last("ssl_client_certificate").or(level.last("ssl_trusted_certificate"));
    tls::client_auth(context, &mut site, roots, level.last("ssl_verify_client"), level.last("ssl_crl"));
    let mut variables = context.variables.clone();
    variables.server_name = names.first().cloned();
    variables.server_names = names;
    variables.port = only_port(server);
    write(context, &mut site, server, &level, variables);
    Some(site)
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
    let withholds = |location: &&&Directive| {
        let is_open = location.children().iter().all(|inner| inner.name == "internal" || !guards::is_guard(inner));
        !is_open || location.children().iter().any(|inner| guards::passes_to_program(inner) || inner.name == "return")
    };
    context.closed =
        all.locations.iter().filter(withholds).filter_map(|location| path::Path::of(location).ok()).collect();
    context.sized.clear();
    // A server that returns has no locations.
    let returns = server.children().iter().any(|inner| inner.name == "return");
    let named = all.locations.iter().filter(|_| !returns).map(|location| location.first());
    context.named = named.filter(|name| name.starts_with('@')).map(str::to_owned).collect();
    // Files are looked for behind the conditions of the server.
    let mut settled = rewrite_phase::settled(context, server.children().iter(), &variables);
    if let Some(root) = merged.last("root") {
        variables.root = settings::directory(context, root, &settled).ok();
        settled.root = variables.root.clone();
        if let Some(root) = &variables.root {
            own.set("root", root.as_str());
        }
    }
    guards::write(context, &mut own, &merged, &all.locations);
    settings::write(context, &mut own, &merged, &settled);
    of_site(site, own);
    if let Some(reject) =
        server.children().iter().find(|inner| inner.name == "ssl_reject_handshake" && inner.first() == "on")
    {
        context.note(reject, "unknown names get the default site's certificate, then 403 for every request");
        let mut everything = Table::default();
        everything.set("path", "~ ^/");
        everything.set("deny", true);
        return site.push("route", everything);
    }
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

/// Moves the settings of a server to its site.
fn of_site(site: &mut Table, own: Table) {
    for (key, value) in site.append_tables(own) {
        match (key.as_str(), value) {
            // There is nothing around a site that this would take away.
            ("basic_auth" | "forward_auth" | "compress" | "listing", Value::Boolean(false)) => {}
            // A location may have an action of its own.
            ("deny", _) => {
                let everyone = ["0.0.0.0/0", "::/0"].map(Value::from).to_vec();
                let rule: toml::Table = [("deny".to_owned(), Value::from(everyone))].into_iter().collect();
                site.set("access", rule);
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

/// The supported names of a server, without those that sites with TLS have; others are reported.
fn names(context: &mut Context, server: &Directive, secure: &[String], is_default: bool) -> Vec<String> {
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
            let name = name.to_ascii_lowercase();
            let converted = match name.as_str() {
                "_" | "" => vec![],
                name if secure.iter().any(|other| other == name) => vec![],
                name if name.starts_with('~') || name.contains('$') => {
                    unsupported(context, directive, format!("{name}: list the names that it matches"));
                    vec![]
                }
                name if name.trim_start_matches("*.").contains('*') => {
                    unsupported(context, directive, format!("{name}: a wildcard must be the first label"));
                    vec![]
                }
                name => match name.strip_prefix('.') {
                    Some(domain) => vec![domain.to_owned(), format!("*.{domain}")],
                    None => vec![name.to_owned()],
                },
            };
            for name in converted {
                if !context.take_name(&name) {
                    context.report_with(
                        directive,
                        format!("{name} belongs to an earlier server, which gets its requests"),
                    );
                } else {
                    names.push(name);
                }
            }
        }
    }
    names
}

/// The port of a server that listens with TLS at one only.
fn only_port(server: &Directive) -> Option<u16> {
    let listens = server.children().iter().filter(|inner| inner.name == "listen");
    let listens = listens.filter(|listen| listen.arguments.iter().any(|argument| argument == "ssl"));
    let mut ports = listens.map(|listen| listen.first().rsplit(':').next().and_then(|port| port.parse::<u16>().ok()));
    let first = ports.next()??;
    ports.all(|port| port == Some(first)).then_some(first)
}
