//! The source of the client address: the connection, the PROXY protocol, or a request field of trusted proxies.

use ipnet::IpNet;

use super::context::Context;
use super::{guards, values};
use crate::syntax::Directive;

/// Whether a directive is handled here.
pub(super) fn is_real_ip_directive(name: &str) -> bool {
    matches!(name, "real_ip_header" | "real_ip_recursive" | "set_real_ip_from")
}

/// Where a server finds the client address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// The connection, or the PROXY protocol.
    Connection,
    Field(Field),
    /// A form that is not converted.
    Unsupported,
}

/// A request field in which trusted proxies name the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) trusted: Vec<IpNet>,
    /// Whether clients of Unix sockets are trusted.
    pub(super) trusts_unix: bool,
    /// Whether addresses of trusted proxies are passed over.
    pub(super) is_recursive: bool,
}

impl Source {
    /// `shared`: the directives of `http`.
    pub(super) fn of(server: &Directive, shared: &[&Directive]) -> Self {
        let all = |name: &str| -> Vec<&Directive> {
            let of = |directive: &&Directive| directive.name == name;
            let own: Vec<_> = server.children().iter().filter(of).collect();
            if own.is_empty() { shared.iter().copied().filter(of).collect() } else { own }
        };
        let mut in_locations = false;
        for block in server.children().iter().filter(|inner| inner.block.is_some()) {
            guards::walk(block.children(), &mut |inner| in_locations |= is_real_ip_directive(&inner.name));
        }
        if in_locations {
            return Source::Unsupported;
        }
        let networks = all("set_real_ip_from");
        let header = all("real_ip_header").last().map_or("X-Real-IP", |header| header.first()).to_owned();
        // Without networks, nginx believes no proxy.
        if networks.is_empty() || header == "proxy_protocol" {
            return Source::Connection;
        }
        let trusts_unix = networks.iter().any(|network| network.first() == "unix:");
        let parsed = networks.iter().filter(|network| network.first() != "unix:");
        let parsed: Option<Vec<IpNet>> = parsed.map(|network| values::network(network.first())).collect();
        let is_name = header.bytes().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_'));
        match parsed {
            // nginx reads Forwarded as a list of addresses.
            Some(mut trusted) if is_name && !header.is_empty() && !header.eq_ignore_ascii_case("forwarded") => {
                trusted.sort();
                trusted.dedup();
                let is_recursive = all("real_ip_recursive").last().is_some_and(|switch| switch.first() == "on");
                Source::Field(Field { name: header, trusted, trusts_unix, is_recursive })
            }
            _ => Source::Unsupported,
        }
    }
}

/// Reports the directives of servers whose source is not converted, and marks them where rules compare addresses. `servers`: those that
/// become sites, and whether the source of each is converted.
pub(super) fn report(context: &mut Context, shared: &[&Directive], servers: &[(&Directive, bool)]) {
    let of_http: Vec<&Directive> =
        shared.iter().copied().filter(|directive| is_real_ip_directive(&directive.name)).collect();
    let mut reported: Vec<(&Directive, bool)> = Vec::new();
    for (server, is_converted) in servers {
        let mut all: Vec<&Directive> = Vec::new();
        guards::walk(server.children(), &mut |inner| all.push(inner));
        if *is_converted {
            continue;
        }
        let compares = shared.iter().chain(&all).any(|directive| compares_addresses(directive));
        let has_proxy_protocol = all.iter().any(|directive| {
            directive.name == "listen" && directive.arguments.iter().any(|argument| argument == "proxy_protocol")
        });
        // A server's directives replace the directives of `http`.
        let of = |name: &str| {
            let own: Vec<_> = all.iter().copied().filter(|directive| directive.name == name).collect();
            let inherited = of_http.iter().copied().filter(|directive| directive.name == name);
            if own.is_empty() { inherited.collect() } else { own }
        };
        let networks = of("set_real_ip_from");
        // Without networks, nginx believes no proxy.
        let Some(first) = networks.first() else { continue };
        let mut unconverted = of("real_ip_header");
        unconverted.retain(|header| header.first() != "proxy_protocol");
        if unconverted.is_empty() && !has_proxy_protocol {
            // One report, though each network may have a line.
            unconverted.push(first);
        }
        reported.extend(unconverted.into_iter().map(|one| (one, compares)));
    }
    for (directive, _) in &reported {
        let remedy = "the client address comes from the connection, as it differs among the servers of a listener or has no counterpart";
        if reported.iter().any(|(other, compares)| other == directive && *compares) {
            let remedy = format!(
                "{remedy}. Rules and limits by address now see the address of the proxy in front of Sealion: set client_address and \
                 trusted_proxies for the listener, or restrict access at the proxy"
            );
            context.report_unguarded(directive, remedy);
        } else {
            context.report_with(directive, remedy);
        }
    }
}

/// Whether a directive's effect depends on the client's address.
fn compares_addresses(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "allow" | "deny" => directive.first() != "all",
        "limit_req" | "limit_conn" | "geo" => true,
        _ => false,
    }
}
