//! Listening addresses of all servers.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use toml::Value;

use super::context::Context;
use super::plain::{self, SecureNames, is_name_of};
use super::real_ip::{Field, Source};
use super::{guards, values};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// Distinct addresses, in order of first mention.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// Addresses with `ssl` in any server: it applies to all servers of the address.
    tls: HashSet<String>,
    /// The names of servers with TLS.
    secure: SecureNames,
    /// Addresses without TLS at which a server has content: sites are served there.
    served: HashSet<String>,
    /// The default server of each address with sites: the first with `default_server`, else the first.
    defaults: HashMap<String, (Directive, bool)>,
    /// The server whose site is the default.
    default: Option<Directive>,
    /// Addresses of the current server.
    taken: Vec<String>,
    /// Servers that became sites, with the addresses at which nginx answers for them.
    bound: Vec<(Directive, Vec<String>)>,
    /// Addresses at which servers without TLS redirect names to HTTPS. `None`: all names.
    redirects: Vec<(String, Option<Vec<String>>)>,
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
        let mut listeners =
            Listeners { tls: tls.filter_map(|listen| address(listen.first())).collect(), ..Listeners::default() };
        let has_tls = |server: &&&Directive| {
            is_all_tls(server) || addresses(server).any(|address| listeners.tls.contains(&address))
        };
        listeners.secure = SecureNames::of(servers.iter().filter(has_tls).copied());
        let secure = &listeners.secure;
        for server in servers.iter().filter(|server| plain::has_content(server, secure)) {
            let own: Vec<String> = addresses(server).collect();
            // One that has TLS too is redirected to it.
            if !is_all_tls(server) && !own.iter().any(|address| listeners.tls.contains(address)) {
                listeners.served.extend(own);
            }
        }
        listeners.find_defaults(servers);
        listeners
    }

    /// Whether sites answer at one of the server's addresses.
    pub(super) fn serve(&self, server: &Directive) -> bool {
        addresses(server).any(|address| self.served.contains(&address))
    }

    /// Whether a server without TLS only leads to the sites of servers with TLS.
    pub(super) fn redirects(&self, server: &Directive) -> bool {
        plain::is_redirect(server, &self.secure)
    }

    /// Whether a server with TLS has a name.
    pub(super) fn has_secure(&self, name: &str) -> bool {
        self.secure.has(name)
    }

    /// Finds the default server of each address, and the one that becomes the default site: one without names, which nothing else can
    /// reach; else one that says so; else the first.
    fn find_defaults(&mut self, servers: &[&Directive]) {
        let mut order: Vec<String> = Vec::new();
        let secure = &self.secure;
        // A server that only redirects becomes no site.
        let is_site = |server: &Directive| {
            let has_tls = is_all_tls(server) || addresses(server).any(|address| self.tls.contains(&address));
            has_tls || !plain::is_redirect(server, secure)
        };
        for server in servers.iter().filter(|server| is_site(server)) {
            for listen in server.children().iter().filter(|inner| inner.name == "listen") {
                let has_sites = |address: &String| {
                    is_all_tls(server) || self.tls.contains(address) || self.served.contains(address)
                };
                let Some(address) = address(listen.first()).filter(has_sites) else { continue };
                let says_so = is_default(listen);
                match self.defaults.get(&address) {
                    Some((_, true)) => {}
                    Some(_) if !says_so => {}
                    known => {
                        if known.is_none() {
                            order.push(address.clone());
                        }
                        self.defaults.insert(address, ((*server).clone(), says_so));
                    }
                }
            }
        }
        // There is one default site, which clients of HTTPS need first.
        order.sort_by_key(|address| self.served.contains(address));
        let candidates = || order.iter().filter_map(|address| self.defaults.get(address));
        let nameless = candidates().find(|(server, _)| !has_name(server));
        let found = nameless.or_else(|| candidates().find(|(_, says_so)| *says_so)).or_else(|| candidates().next());
        self.default = found.map(|(server, _)| server.clone());
    }

    /// Whether the site of this server is the default.
    pub(super) fn is_default(&self, server: &Directive) -> bool {
        self.default.as_ref() == Some(server)
    }

    /// Adds the `listen` directives of a server. `shared`: the directives of `http`.
    pub(super) fn take(&mut self, context: &mut Context, server: &Directive, shared: &[&Directive]) -> Listens {
        let mut listens = Listens::default();
        self.taken.clear();
        // The obsolete `ssl on;` for the whole server.
        let all_tls = is_all_tls(server);
        let proxies = || server.children().iter().chain(shared.iter().copied()).filter(|inner| is_proxy(inner));
        let trusted = trusted(proxies());
        let switches = || server.children().iter().rev().chain(shared.iter().copied());
        let http2_on = switches().find(|inner| inner.name == "http2").is_some_and(|inner| inner.first() == "on");
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
            if has("quic") {
                context.report_with(
                    directive,
                    "HTTP/3 is not converted: set http3 = true in the [[listen]] of this address",
                );
                continue;
            }
            let Some(address) = address(directive.first()) else {
                let remedy = "write the address with its port, for instance 0.0.0.0:443: names are not resolved";
                context.report_with(directive, remedy);
                continue;
            };
            let tls = all_tls || self.tls.contains(&address);
            if has("ipv6only=off") {
                context.report_with(directive, "an IPv6 address accepts IPv6 only: add an IPv4 address");
            }
            listens.default |= is_default(directive);
            self.taken.push(address.clone());
            if tls {
                listens.tls = true;
            } else {
                listens.plain = true
            }
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
                    self.all.push(Listener {
                        address,
                        tls,
                        http2,
                        proxy_protocol,
                        trusted,
                        client_address: None,
                        comment: directive.place.to_string(),
                    });
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
        listens
    }

    /// Records the addresses of the current server, which became a site. One that asks for certificates of clients is not served without TLS.
    pub(super) fn bind(&mut self, server: &Directive, site: &Table) {
        let mut addresses = std::mem::take(&mut self.taken);
        if site.table_if("client_auth").is_some() {
            addresses.retain(|address| !self.served.contains(address));
        }
        self.bound.push((server.clone(), addresses));
    }

    /// Whether a request can come by HTTPS to a site.
    pub(super) fn can_be_https(&self) -> bool {
        self.all.iter().any(|listener| listener.tls || listener.client_address.is_some())
    }

    /// Records that the current server, without TLS, redirects its names to HTTPS.
    pub(super) fn redirect(&mut self, server: &Directive) {
        let names = server.children().iter().filter(|inner| inner.name == "server_name");
        let names: Vec<String> =
            names.flat_map(|inner| &inner.arguments).map(|name| name.to_ascii_lowercase()).collect();
        let is_any = has_default(server) || !has_name(server) || names.iter().any(|name| name.contains(['~', '$']));
        let names = Some(names).filter(|_| !is_any);
        let addresses = std::mem::take(&mut self.taken);
        self.redirects.extend(addresses.into_iter().map(|address| (address, names.clone())));
    }

    /// Records that the current server, which becomes a site for its other names, redirects these to HTTPS.
    pub(super) fn redirect_some(&mut self, names: &[String]) {
        if !names.is_empty() {
            let addresses = self.taken.clone();
            self.redirects.extend(addresses.into_iter().map(|address| (address, Some(names.to_vec()))));
        }
    }

    /// Restricts sites to the addresses at which nginx answers for them, if others have more. `sites`: those of [`Self::bind`], in order.
    pub(super) fn restrict(&self, context: &mut Context, sites: &mut [Table]) {
        let mut of_default: Vec<&str> = Vec::new();
        for (site, (server, own)) in sites.iter_mut().zip(&self.bound) {
            let names = site.get("names").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let names: Vec<String> = names.map(str::to_owned).collect();
            let redirects = |address: &str| {
                self.redirects.iter().any(|(other, redirected)| {
                    let covers = |pattern: &String| names.iter().any(|name| is_name_of(name, pattern));
                    other == address && redirected.as_ref().is_none_or(|patterns| patterns.iter().any(covers))
                })
            };
            let is_redirected = |address: &str| !own.iter().any(|own| own == address) && redirects(address);
            // Where other servers have content, the site itself redirects, and then at all its addresses without TLS.
            let served = || self.all.iter().filter(|listener| self.served.contains(&listener.address));
            let is_served_too = own.iter().any(|address| self.served.contains(address));
            let has_certificates_of_clients = site.table_if("client_auth").is_some();
            if served().any(|listener| is_redirected(&listener.address)) {
                match is_served_too || has_certificates_of_clients {
                    false => site.set("https_only", true),
                    true => context.report_with(
                        server,
                        "its redirect to HTTPS at an address where other servers have content is left out: requests get 421 there",
                    ),
                }
            }
            let redirects_itself = site.get("https_only").is_some();
            let answers = |listener: &&Listener| {
                let may_redirect = !self.served.contains(&listener.address) || redirects_itself;
                own.contains(&listener.address) || (!listener.tls && may_redirect && is_redirected(&listener.address))
            };
            let addresses: Vec<&str> =
                self.all.iter().filter(answers).map(|listener| listener.address.as_str()).collect();
            if self.is_default(server) {
                of_default.clone_from(&addresses);
            }
            if addresses.len() < self.all.len() {
                site.set("listen", addresses.into_iter().map(Value::from).collect::<Vec<_>>());
            }
        }
        self.report_other_defaults(context, &of_default);
    }

    /// Reports servers that are the default at an address where another answers unknown names now.
    fn report_other_defaults(&self, context: &mut Context, of_default: &[&str]) {
        let mut reported: Vec<&Directive> = Vec::new();
        for listener in &self.all {
            let Some((server, _)) = self.defaults.get(&listener.address) else { continue };
            let answers = of_default.contains(&listener.address.as_str());
            if self.is_default(server) || reported.contains(&server) || !(answers || has_default(server)) {
                continue;
            }
            reported.push(server);
            let remedy = "only one site can be the default, and another server is";
            if !answers {
                context.report_with(server, format!("{remedy}: at {}, unknown names get 421", listener.address));
            } else if guards::refuses_any(server) {
                let remedy =
                    format!("{remedy}: at {}, it now answers unknown names that this server refused", listener.address);
                context.report_unguarded(server, remedy);
            } else {
                context.report_with(server, remedy);
            }
        }
    }

    /// Lets listeners read the client's address from the field that all their servers read it from. `servers`: those that became sites.
    /// Returns them with whether that of each is converted.
    pub(super) fn read_client_addresses<'a>(
        &mut self,
        servers: &[&'a Directive],
        shared: &[&Directive],
    ) -> Vec<(&'a Directive, bool)> {
        let sources: Vec<Source> = servers.iter().map(|server| Source::of(server, shared)).collect();
        for listener in self
            .all
            .iter_mut()
            .filter(|listener| (listener.tls || self.served.contains(&listener.address)) && !listener.proxy_protocol)
        {
            let mut its = self.bound.iter().zip(&sources).filter(|((_, own), _)| own.contains(&listener.address));
            let Some((_, Source::Field(field))) = its.next() else { continue };
            let is_unix = listener.address.starts_with("unix:");
            let can_be = if is_unix { field.trusts_unix } else { !field.trusted.is_empty() };
            if can_be && its.all(|(_, other)| *other == Source::Field(field.clone())) {
                listener.client_address = Some(field.clone());
            }
        }
        let is_converted = |own: &Vec<String>| {
            let mut its = self.all.iter().filter(|listener| {
                (listener.tls || self.served.contains(&listener.address)) && own.contains(&listener.address)
            });
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
            }
            if self.served.contains(&listener.address) {
                table.comment("Without TLS, as in nginx: for a proxy in front at which TLS ends.");
                table.set("plain", "serve");
                if listener.http2 {
                    table.set("http2", true);
                }
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
fn addresses(server: &Directive) -> impl Iterator<Item = String> {
    let listens: Vec<&Directive> = server.children().iter().filter(|inner| inner.name == "listen").collect();
    // nginx's default address.
    let implicit = listens.is_empty().then(|| "0.0.0.0:80".to_owned());
    implicit.into_iter().chain(listens.into_iter().filter_map(|listen| address(listen.first())))
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

/// Whether a server says of any address that it is the default there.
fn has_default(server: &Directive) -> bool {
    server.children().iter().any(|inner| inner.name == "listen" && is_default(inner))
}

/// Whether a server has the obsolete `ssl on;` for all its addresses.
fn is_all_tls(server: &Directive) -> bool {
    server.children().iter().any(|inner| inner.name == "ssl" && inner.first() == "on")
}

/// Whether a server has a name that a request can have.
fn has_name(server: &Directive) -> bool {
    let names = server.children().iter().filter(|inner| inner.name == "server_name").flat_map(|inner| &inner.arguments);
    names.into_iter().any(|name| !matches!(name.as_str(), "_" | ""))
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
