//! Listening addresses of all servers.

use std::collections::HashSet;

use toml::Value;

use super::Context;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Distinct addresses, in order of first mention.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// Addresses with `ssl` in any server: it applies to all servers of the address.
    tls: HashSet<String>,
    /// TLS addresses of the current server.
    taken: Vec<String>,
    bound: Vec<Bound>,
}

/// A server that became a site, and the addresses at which nginx answers for it.
#[derive(Debug)]
struct Bound {
    server: Directive,
    addresses: Vec<String>,
    is_closed: bool,
}

#[derive(Debug)]
struct Listener {
    address: String,
    tls: bool,
    proxy_protocol: bool,
    /// Networks whose PROXY headers are trusted.
    trusted: Vec<Value>,
    comment: String,
}

/// Summary of the `listen` directives of one server.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Listens {
    pub(super) tls: bool,
    pub(super) plain: bool,
    pub(super) default: bool,
}

impl Listeners {
    /// Collects the addresses that any server declares `ssl`.
    pub(super) fn of(servers: &[&Directive]) -> Self {
        let listens = servers.iter().flat_map(|server| server.children()).filter(|inner| inner.name == "listen");
        let tls = listens.filter(|listen| listen.arguments.iter().any(|argument| argument == "ssl"));
        Listeners { tls: tls.filter_map(|listen| address(listen.first())).collect(), ..Listeners::default() }
    }

    /// Adds the `listen` directives of a server. `shared`: the directives of `http`.
    pub(super) fn take(&mut self, context: &mut Context, server: &Directive, shared: &[&Directive]) -> Listens {
        let mut listens = Listens::default();
        self.taken.clear();
        // The obsolete `ssl on;` for the whole server.
        let all_tls = server.children().iter().any(|inner| inner.name == "ssl" && inner.first() == "on");
        let trusted = trusted(server.children().iter().chain(shared.iter().copied()));
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
            if has("quic") {
                context.report_with(directive, "HTTP/3 is not supported: clients use TCP");
                continue;
            }
            let Some(address) = address(directive.first()) else {
                context.report_with(directive, "write the address with its port, for instance 0.0.0.0:443");
                continue;
            };
            let tls = all_tls || self.tls.contains(&address);
            if has("ipv6only=off") {
                context.report_with(directive, "an IPv6 address accepts IPv6 only: add an IPv4 address");
            }
            if has("http2") || has("spdy") {
                context.report_with(directive, "HTTP/2 is not supported: clients fall back to HTTP/1.1 automatically");
            }
            listens.default |= has("default_server") || has("default");
            if tls {
                listens.tls = true;
                self.taken.push(address.clone());
            } else {
                listens.plain = true
            }
            let proxy_protocol = has("proxy_protocol");
            match self.all.iter_mut().find(|known| known.address == address) {
                Some(known) => known.proxy_protocol |= proxy_protocol,
                None => {
                    let trusted = match (proxy_protocol, trusted.is_empty()) {
                        (false, _) => Vec::new(),
                        (true, false) => trusted.clone(),
                        // `trusted_proxies` must not be empty; default to this machine.
                        (true, true) => vec!["127.0.0.0/8".into(), "::1".into()],
                    };
                    self.all.push(Listener {
                        address,
                        tls,
                        proxy_protocol,
                        trusted,
                        comment: directive.place.to_string(),
                    });
                }
            }
            if proxy_protocol && trusted.is_empty() {
                context.report_with(directive, "list the proxies in trusted_proxies of the listener");
            }
        }
        listens
    }

    /// Records the addresses of the current server. `is_closed`: its site is closed to everybody.
    pub(super) fn bind(&mut self, server: &Directive, is_closed: bool) {
        let addresses = std::mem::take(&mut self.taken);
        self.bound.push(Bound { server: server.clone(), addresses, is_closed });
    }

    /// Marks servers that become reachable at addresses where nginx did not answer for them.
    pub(super) fn report_new_addresses(&self, context: &mut Context) {
        for Bound { server, addresses, .. } in self.bound.iter().filter(|bound| !bound.is_closed) {
            let reaches = |other: &str| addresses.iter().any(|own| own == other || is_wildcard_of(own, other));
            let mut new: Vec<&str> = Vec::new();
            for listener in self.all.iter().filter(|listener| listener.tls) {
                if !reaches(&listener.address) {
                    new.push(&listener.address);
                }
            }
            if !new.is_empty() {
                let remedy = format!(
                    "nginx answers for it at {} only; a site answers on every listener, hence also on {}. Restrict it with \
                     [[site.access]] allow, or run a separate Sealion with only its listeners",
                    addresses.join(", "),
                    new.join(", ")
                );
                context.report_unguarded(server, remedy);
            }
        }
    }

    pub(super) fn write(&self, root: &mut Table) {
        for listener in &self.all {
            let mut table = Table::default();
            table.comment(&listener.comment);
            table.set("address", listener.address.as_str());
            if !listener.tls {
                table.set("tls", false);
            }
            if listener.proxy_protocol {
                table.set("proxy_protocol", true);
                table.set("trusted_proxies", listener.trusted.clone());
            }
            root.push("listen", table);
        }
    }
}

/// The distinct networks of `set_real_ip_from`.
fn trusted<'a>(directives: impl Iterator<Item = &'a Directive>) -> Vec<Value> {
    let mut networks: Vec<Value> = Vec::new();
    for directive in directives.filter(|directive| directive.name == "set_real_ip_from" && directive.first() != "unix:")
    {
        let network = Value::from(directive.first());
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

/// Whether `own` is the wildcard address at the port of `other`. IPv4 and IPv6 are not distinguished, as both reach the same
/// machine.
fn is_wildcard_of(own: &str, other: &str) -> bool {
    match (own.rsplit_once(':'), other.rsplit_once(':')) {
        (Some(("0.0.0.0" | "[::]", own)), Some((host, other))) => own == other && host != "unix",
        _ => false,
    }
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
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '[' | ']' | '-'));
    (plain && !text.is_empty()).then(|| if has_port { text.to_owned() } else { format!("{text}:80") })
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
            ("unix:/run/x.sock", Some("unix:/run/x.sock")),
            ("$port", None),
            ("", None),
        ] {
            assert_eq!(address(nginx).as_deref(), ours, "{nginx}");
        }
    }
}
