//! Listening addresses of all servers, and which server has a name at each.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use toml::Value;

use super::context::Context;
use super::real_ip::{Field, Source};
use super::values;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Distinct addresses, in order of first mention.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// Addresses with `ssl` in any server: it applies to all servers of the address.
    tls: HashSet<String>,
    /// Addresses with HTTP/3.
    quic: HashSet<String>,
    /// The number of the default server of each address: the first with `default_server`, else the first.
    defaults: HashMap<String, usize>,
    /// The names that servers have at each address.
    taken: HashSet<(String, String)>,
    /// Servers that became sites, with their addresses.
    bound: Vec<(Directive, Vec<String>)>,
}

#[derive(Debug)]
struct Listener {
    address: String,
    tls: bool,
    /// Whether its clients may use HTTP/2, which is always so with TLS.
    http2: bool,
    proxy_protocol: bool,
    /// Networks whose PROXY headers are trusted.
    trusted: Vec<Value>,
    client_address: Option<Field>,
    comment: String,
}

/// Addresses of a server at which it has the same names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) listen: Vec<String>,
    pub(super) names: Vec<String>,
    /// The addresses at which it answers unknown names.
    pub(super) default: Vec<String>,
}

impl Listeners {
    /// Collects the addresses that any server declares `ssl`, and the default servers. `servers`: their places are their numbers.
    pub(super) fn of(servers: &[&Directive]) -> Self {
        let mut listeners = Listeners::default();
        let mut says_so: HashSet<String> = HashSet::new();
        for (number, server) in servers.iter().enumerate() {
            let listens = || server.children().iter().filter(|inner| inner.name == "listen" && !is_quic(inner));
            let tls = listens().filter(|listen| listen.arguments.iter().any(|argument| argument == "ssl"));
            listeners.tls.extend(tls.filter_map(|listen| address(listen.first())));
            if is_all_tls(server) {
                listeners.tls.extend(addresses(server));
            }
            for address in addresses(server) {
                listeners.defaults.entry(address).or_insert(number);
            }
            for address in listens().filter(|listen| is_default(listen)).filter_map(|listen| address(listen.first())) {
                if says_so.insert(address.clone()) {
                    listeners.defaults.insert(address, number);
                }
            }
        }
        listeners
    }

    /// Whether clients of an address use TLS.
    pub(super) fn is_tls(&self, address: &str) -> bool {
        self.tls.contains(address)
    }

    /// Whether a server answers unknown names at one of its addresses.
    pub(super) fn is_default(&self, number: usize) -> bool {
        self.defaults.values().any(|default| *default == number)
    }

    /// The addresses of a server, each with those names that no earlier server has there. An address at which no request reaches the server is left out.
    pub(super) fn parts(&mut self, context: &mut Context, place: (usize, &Directive), names: &[String]) -> Vec<Part> {
        let (number, server) = place;
        let mut parts: Vec<Part> = Vec::new();
        let mut lost: Vec<&String> = Vec::new();
        let mut seen = HashSet::new();
        let of_names = server.children().iter().filter(|inner| inner.name == "server_name");
        let with_dot = of_names.flat_map(|inner| &inner.arguments).filter_map(|name| name.strip_prefix('.'));
        // Both names of `.example.org`, which is lost whole where one of them is taken.
        let pairs: Vec<[String; 2]> =
            with_dot.map(str::to_ascii_lowercase).map(|domain| [format!("*.{domain}"), domain]).collect();
        for address in addresses(server).filter(|address| seen.insert(address.clone())) {
            let taken = |name: &String| self.taken.contains(&(address.clone(), name.clone()));
            let is_new = |name: &&String| match pairs.iter().find(|pair| pair.contains(name)) {
                Some(pair) => !pair.iter().any(taken),
                None => name.starts_with('~') || !taken(name),
            };
            let (own, others): (Vec<&String>, Vec<&String>) = names.iter().partition(is_new);
            self.taken.extend(own.iter().map(|name| (address.clone(), (*name).clone())));
            lost.extend(others);
            let own: Vec<String> = own.into_iter().cloned().collect();
            let is_default = self.defaults.get(&address) == Some(&number);
            if own.is_empty() && !is_default {
                continue;
            }
            let known = parts.iter().position(|part| part.names == own);
            let known = known.unwrap_or_else(|| {
                parts.push(Part { listen: Vec::new(), names: own, default: Vec::new() });
                parts.len() - 1
            });
            parts[known].listen.push(address.clone());
            parts[known].default.extend(is_default.then_some(address));
        }
        lost.sort();
        lost.dedup();
        let directive = server.children().iter().find(|inner| inner.name == "server_name").unwrap_or(server);
        for name in lost {
            context.report_with(directive, format!("{name} belongs to an earlier server, which gets its requests"));
        }
        parts
    }

    /// Adds the `listen` directives of a server. `shared`: the directives of `http`.
    pub(super) fn take(&mut self, context: &mut Context, server: &Directive, shared: &[&Directive]) {
        let proxies = || server.children().iter().chain(shared.iter().copied()).filter(|inner| is_proxy(inner));
        let trusted = trusted(proxies());
        let switches = || server.children().iter().rev().chain(shared.iter().copied());
        let http2_on = switches().find(|inner| inner.name == "http2").is_some_and(|inner| inner.first() == "on");
        let http3_off = switches().find(|inner| inner.name == "http3").is_some_and(|inner| inner.first() == "off");
        let names_a_proxy = proxies().any(|proxy| values::network(proxy.first()).is_none());
        let mut directives: Vec<&Directive> = server.children().iter().filter(|inner| inner.name == "listen").collect();
        // nginx's default address.
        let implicit = Directive {
            name: "listen".to_owned(),
            arguments: vec!["80".to_owned()],
            block: None,
            place: server.place.clone(),
        };
        if directives.is_empty() {
            directives.push(&implicit);
        }
        for directive in directives {
            let has = |word: &str| directive.arguments.iter().skip(1).any(|argument| argument == word);
            if is_quic(directive) {
                match address(directive.first()).filter(|address| self.is_tls(address)) {
                    Some(address) => _ = !http3_off && self.quic.insert(address),
                    None => context.report_with(directive, "HTTP/3 needs `listen … ssl` at the same address"),
                }
                continue;
            }
            let Some(address) = address(directive.first()) else {
                let remedy = "write the address with its port, for instance 0.0.0.0:443: names are not resolved";
                context.report_with(directive, remedy);
                continue;
            };
            if has("ipv6only=off") {
                context.report_with(directive, "an IPv6 address accepts IPv6 only: add an IPv4 address");
            }
            let tls = self.is_tls(&address);
            let proxy_protocol = has("proxy_protocol");
            let http2 = tls || http2_on || has("http2");
            match self.all.iter_mut().find(|known| known.address == address) {
                Some(known) => {
                    known.proxy_protocol |= proxy_protocol;
                    known.http2 |= http2;
                }
                None => {
                    let trusted = match (proxy_protocol, trusted.is_empty()) {
                        (false, _) => Vec::new(),
                        (true, false) => trusted.clone(),
                        // `trusted_proxies` must not be empty; default to this machine.
                        (true, true) => vec!["127.0.0.0/8".into(), "::1".into()],
                    };
                    let comment = directive.place.to_string();
                    let client_address = None;
                    self.all.push(Listener { address, tls, http2, proxy_protocol, trusted, client_address, comment });
                }
            }
            if proxy_protocol && trusted.is_empty() {
                context.report_with(directive, "list the proxies in trusted_proxies of the listener");
            }
            if proxy_protocol && names_a_proxy {
                context.report_with(
                    directive,
                    "trusted_proxies has networks: write those of the names in set_real_ip_from",
                );
            }
        }
    }

    /// Records the addresses of a server that became sites.
    pub(super) fn bind(&mut self, server: &Directive) {
        self.bound.push((server.clone(), addresses(server).collect()));
    }

    /// Writes the listeners of a site: none if it is served on all.
    pub(super) fn place(&self, site: &mut Table, part: &Part) {
        let values = |addresses: &[String]| addresses.iter().map(|address| Value::from(address.as_str())).collect();
        // A site with addresses compares its expressions before a site without.
        let has_order = self.all.len() > 1 && part.names.iter().any(|name| name.starts_with('~'));
        match part.listen.len() == self.all.len() && !has_order {
            true => _ = site.remove("listen"),
            false => site.set("listen", Value::Array(values(&part.listen))),
        }
        match (part.default.is_empty(), part.default.len() == part.listen.len()) {
            (true, _) => _ = site.remove("default"),
            (_, true) => site.set("default", true),
            _ => site.set("default", Value::Array(values(&part.default))),
        }
    }

    /// Whether a request can come by HTTPS to these addresses.
    pub(super) fn can_be_https(&self, addresses: &[String]) -> bool {
        let mut its = self.all.iter().filter(|listener| addresses.contains(&listener.address));
        its.any(|listener| listener.tls || listener.client_address.is_some())
    }

    /// Lets listeners read the client's address from the field that all their servers read it from. `servers`: those that became sites.
    /// Returns each with whether its field is converted.
    pub(super) fn read_client_addresses<'a>(
        &mut self,
        servers: &[&'a Directive],
        shared: &[&Directive],
    ) -> Vec<(&'a Directive, bool)> {
        let sources: Vec<Source> = servers.iter().map(|server| Source::of(server, shared)).collect();
        for listener in self.all.iter_mut().filter(|listener| !listener.proxy_protocol) {
            let mut its = self.bound.iter().zip(&sources).filter(|((_, own), _)| own.contains(&listener.address));
            let Some((_, Source::Field(field))) = its.next() else { continue };
            let is_unix = listener.address.starts_with("unix:");
            let can_be = if is_unix { field.trusts_unix } else { !field.trusted.is_empty() };
            if can_be && its.all(|(_, other)| *other == Source::Field(field.clone())) {
                listener.client_address = Some(field.clone());
            }
        }
        let is_converted = |own: &Vec<String>| {
            let mut its = self.all.iter().filter(|listener| own.contains(&listener.address));
            its.all(|listener| listener.client_address.is_some())
        };
        let bound = self.bound.iter().zip(&sources).zip(servers);
        bound
            .map(|(((_, own), source), server)| (*server, matches!(source, Source::Field(_)) && is_converted(own)))
            .collect()
    }

    pub(super) fn write(&self, root: &mut Table) {
        for listener in &self.all {
            let mut table = Table::default();
            table.comment(&listener.comment);
            table.set("address", listener.address.as_str());
            if !listener.tls {
                table.set("tls", false);
                table.set("plain", "serve");
                if listener.http2 {
                    table.set("http2", true);
                }
            }
            if self.quic.contains(&listener.address) && !listener.proxy_protocol {
                table.set("http3", true);
            }
            if listener.proxy_protocol {
                table.set("proxy_protocol", true);
                table.set("trusted_proxies", listener.trusted.clone());
            }
            if let Some(field) = &listener.client_address {
                table.set("client_address", field.name.to_ascii_lowercase());
                if !field.is_recursive {
                    table.set("max_proxies", 1);
                }
                let trusted = field.trusted.iter().map(|network| Value::from(values::short(*network)));
                table.set("trusted_proxies", trusted.collect::<Vec<_>>());
            }
            root.push("listen", table);
        }
    }
}

/// The addresses of a server.
pub(super) fn addresses(server: &Directive) -> impl Iterator<Item = String> {
    let listens: Vec<&Directive> = server.children().iter().filter(|inner| inner.name == "listen").collect();
    // nginx's default address.
    let implicit = listens.is_empty().then(|| "0.0.0.0:80".to_owned());
    let tcp = listens.into_iter().filter(|listen| !is_quic(listen));
    implicit.into_iter().chain(tcp.filter_map(|listen| address(listen.first())))
}

/// Whether a directive trusts a proxy that has an address.
fn is_proxy(directive: &Directive) -> bool {
    directive.name == "set_real_ip_from" && directive.first() != "unix:"
}

/// The distinct networks of `set_real_ip_from`, without host names, which are not resolved.
fn trusted<'a>(directives: impl Iterator<Item = &'a Directive>) -> Vec<Value> {
    let mut networks: Vec<Value> = Vec::new();
    for network in directives.filter_map(|directive| values::network(directive.first())) {
        let network = Value::from(values::short(network));
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

/// Whether a `listen` makes its server the default of the address.
fn is_default(listen: &Directive) -> bool {
    listen.arguments.iter().skip(1).any(|argument| argument == "default_server" || argument == "default")
}

/// Whether a `listen` is for HTTP/3.
fn is_quic(listen: &Directive) -> bool {
    listen.arguments.iter().any(|argument| argument == "quic")
}

/// Whether a server has the obsolete `ssl on;` for all its addresses.
fn is_all_tls(server: &Directive) -> bool {
    server.children().iter().any(|inner| inner.name == "ssl" && inner.first() == "on")
}

/// The address in Sealion's notation; nginx accepts a port, an address, or both.
fn address(text: &str) -> Option<String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Some(format!("unix:{path}"));
    }
    if text.chars().all(|c| c.is_ascii_digit()) && !text.is_empty() {
        return Some(format!("0.0.0.0:{text}"));
    }
    if let Some(port) = text.strip_prefix("*:") {
        return Some(format!("0.0.0.0:{port}"));
    }
    let has_port = match text.rsplit_once(']') {
        Some((_, after)) => after.starts_with(':'),
        None => text.contains(':'),
    };
    let address = if has_port { text.to_owned() } else { format!("{text}:80") };
    let is_local = address.strip_prefix("localhost:").is_some_and(|port| port.parse::<u16>().is_ok());
    (is_local || address.parse::<SocketAddr>().is_ok()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_their_ports() {
        for (nginx, ours) in [
            ("443", Some("0.0.0.0:443")),
            ("*:443", Some("0.0.0.0:443")),
            ("[::]:443", Some("[::]:443")),
            ("[::1]", Some("[::1]:80")),
            ("127.0.0.1", Some("127.0.0.1:80")),
            ("192.0.2.1:8443", Some("192.0.2.1:8443")),
            ("localhost:8443", Some("localhost:8443")),
            ("localhost", Some("localhost:80")),
            // nginx resolves them when it reads its file.
            ("www.example.org:443", None),
            ("www.example.org", None),
            ("unix:/run/x.sock", Some("unix:/run/x.sock")),
            ("$port", None),
            ("", None),
        ] {
            assert_eq!(address(nginx).as_deref(), ours, "{nginx}");
        }
    }
}
