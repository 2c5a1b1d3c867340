//! `[[listen]]`.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use sealion_http::extra_fields::is_name;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Address;
use crate::exchange::{Forwarding, Listener, Scheme, ToHttps};
use crate::values::{At, Bounded, Problems, parse_network};

/// The action of a listener without TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Plain {
    /// Redirects requests for sites with TLS to HTTPS, with status 308, and serves the others.
    #[default]
    Redirect,
    /// Serves all sites.
    Serve,
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenConfig {
    /// Address and port, for instance `0.0.0.0:443` or `[::]:443`; `localhost` means its IPv4 and its IPv6 address. Other names are not
    /// resolved. A port alone, `443`, means all addresses of IPv4 and IPv6. Or a Unix socket: `unix:/run/sealion/sealion.sock`.
    #[schemars(with = "String")]
    pub address: Listen,

    /// Whether connections use TLS. If `false`, `plain` decides what happens.
    #[serde(default = "yes")]
    pub tls: At<bool>,

    /// Action of a listener without TLS: `redirect` sends requests for sites with TLS to HTTPS with status 308, and serves
    /// sites that are on no listener with TLS (`site.listen`); `serve` serves all sites, for instance behind a proxy that
    /// terminates TLS. Both answer the challenges of certificate authorities first.
    #[serde(default)]
    pub plain: At<Plain>,

    /// Scheme of the requests on a listener with `plain = "serve"`, unless a trusted proxy names another: `https` if a
    /// balancer terminates TLS without saying so, and clients cannot reach the listener directly. With
    /// `client_address`, trusted proxies name the scheme in `X-Forwarded-Proto`, or in `proto` of `Forwarded` if that
    /// is the field; they must set it in every request [default: http]
    #[serde(default)]
    pub scheme: Option<At<Scheme>>,

    /// Whether clients of this listener may use HTTP/2, unless `http2.enabled` is `false`: negotiated by ALPN or,
    /// without TLS, if clients begin with it (prior knowledge, RFC 9113 §3.3) [default: true with TLS, false without]
    #[serde(default)]
    pub http2: Option<At<bool>>,

    /// Whether clients may use HTTP/3, over UDP on the same port. Responses of the other versions announce it (`Alt-Svc`). It
    /// needs TLS over TCP: a Unix socket or the PROXY protocol has no HTTP/3.
    #[serde(default)]
    pub http3: At<bool>,

    /// Port of the redirects to HTTPS, for a listener without TLS [default: the port of the site's first listener with TLS]
    #[serde(default)]
    pub https_port: Option<u16>,

    /// Permissions of a Unix socket, in octal digits: a client needs write permission.
    #[serde(default)]
    pub mode: Mode,

    /// Whether each connection begins with a header of the PROXY protocol, version 1 or 2, by which a proxy names the
    /// client. Connections without it are closed.
    #[serde(default)]
    pub proxy_protocol: At<bool>,

    /// Request field in which trusted proxies name the client: `x-forwarded-for`, `forwarded` (RFC 7239), or another
    /// field with addresses, such as `x-real-ip`. It is read from the right. Addresses of trusted proxies are skipped;
    /// the first other address is the client, for access rules, request limits and the access log. An entry that is not
    /// an address stops the search: the client is then the address to its right. Fields with another meaning, such as
    /// `host`, are rejected [default: none, the client is the remote end of the connection]
    #[serde(default)]
    pub client_address: Option<At<String>>,

    /// Maximum number of addresses of `client_address` to read, one for each proxy in a row [default: as long as they
    /// are trusted]
    #[serde(default)]
    pub max_proxies: Option<At<Bounded<1, 100>>>,

    /// Networks of the trusted proxies, for instance `10.0.0.0/8` or `192.0.2.7`. With `proxy_protocol`, connections
    /// from other addresses are closed. With `client_address`, the field of other addresses is ignored. All clients of
    /// a Unix socket are trusted.
    #[serde(default, deserialize_with = "networks")]
    #[schemars(with = "Vec<String>")]
    pub trusted_proxies: At<Vec<IpNet>>,
}

impl ListenConfig {
    /// A listener without TLS that serves the sites.
    pub(crate) fn plain(address: Listen) -> Self {
        ListenConfig { tls: false.into(), plain: Plain::Serve.into(), ..address.into() }
    }

    /// Whether it serves sites, as opposed to redirecting.
    pub(crate) fn serves(&self) -> bool {
        *self.tls || *self.plain == Plain::Serve
    }

    /// Whether it serves sites without TLS.
    pub(crate) fn serves_plain(&self) -> bool {
        !*self.tls && self.serves()
    }

    /// Whether clients may use HTTP/2.
    pub(crate) fn http2(&self) -> bool {
        self.http2.as_ref().map_or(*self.tls, |http2| **http2)
    }

    /// Whether clients may use HTTP/3.
    pub(crate) fn http3(&self) -> bool {
        *self.http3
    }

    /// Whether requests can have the scheme `https`.
    pub(crate) fn may_be_https(&self) -> bool {
        *self.tls || self.serves() && (self.client_address.is_some() || self.scheme.as_deref() == Some(&Scheme::Https))
    }

    /// Whether the plain-text bytes of its connections may leave this machine.
    pub(crate) fn is_exposed(&self) -> bool {
        !*self.tls
            && !self.may_be_https()
            && self.address.addresses.iter().any(|address| match address {
                Address::Tcp(address) => !address.ip().is_loopback(),
                Address::Unix(_) => false,
            })
    }

    fn check_plain(&self, problems: &mut Problems) {
        if *self.tls && *self.plain == Plain::Serve {
            let what = "has no effect with TLS: add tls = false, or remove it";
            problems.add(&self.plain.span, "listen.plain", what);
        }
        if let Some(scheme) = self.scheme.as_ref().filter(|_| !self.serves_plain()) {
            let what = "has effect only where sites are served without TLS: remove it, or add tls = false and plain = \"serve\"";
            problems.add(&scheme.span, "listen.scheme", what);
        }
        if self.https_port.is_some() && self.serves_plain() {
            let what = "is the port of redirects, and plain = \"serve\" makes none: remove one of the two";
            problems.add(&self.plain.span, "listen.https_port", what);
        }
        if let Some(http2) = self.http2.as_ref().filter(|http2| ***http2 && !self.serves()) {
            let what = "has no effect where every request is redirected: remove it, or add plain = \"serve\"";
            problems.add(&http2.span, "listen.http2", what);
        }
    }

    fn check_http3(&self, problems: &mut Problems) {
        let is_tcp = |address: &Address| matches!(address, Address::Tcp(_));
        let what = if !self.http3() {
            return;
        } else if !*self.tls {
            "HTTP/3 has TLS always: remove tls = false, or remove http3"
        } else if *self.proxy_protocol {
            "and proxy_protocol exclude each other: the PROXY protocol names no client of UDP"
        } else if !self.address.addresses.iter().all(is_tcp) {
            "needs an IP address and a port: a Unix socket has no UDP"
        } else {
            return;
        };
        problems.add(&self.http3.span, "listen.http3", what);
    }

    fn check(&self, problems: &mut Problems) {
        self.check_plain(problems);
        self.check_http3(problems);
        let tcp = self.address.addresses.iter().any(|address| matches!(address, Address::Tcp(_)));
        let span = &self.proxy_protocol.span;
        if *self.proxy_protocol && tcp && self.trusted_proxies.is_empty() {
            problems.add(
                span,
                "listen.proxy_protocol",
                "without trusted_proxies any client could claim any address: name the networks of the proxies there, for instance [\"10.0.0.0/8\"]",
            );
        }
        for network in self.trusted_proxies.iter().filter(|network| network.trunc() != **network) {
            let (whole, one) = (network.trunc(), network.addr());
            let what = format_args!("{network} has bits beyond its prefix length: write {whole} or {one}");
            problems.add(&self.trusted_proxies.span, "listen.trusted_proxies", what);
        }
        if let Some(everybody) = self.trusted_proxies.iter().find(|network| network.prefix_len() == 0) {
            tracing::warn!(
                "listen.trusted_proxies: {everybody} makes every client a proxy, which may claim any address: name the networks of the proxies alone"
            );
        }
        self.check_client_address(tcp, problems);
        if !*self.proxy_protocol && self.client_address.is_none() && !self.trusted_proxies.is_empty() {
            problems.add(
                &self.trusted_proxies.span,
                "listen.trusted_proxies",
                "trusted_proxies has no effect without proxy_protocol = true or client_address: add one of them, or remove trusted_proxies",
            );
        }
    }

    /// `tcp`: whether it has a TCP address.
    fn check_client_address(&self, tcp: bool, problems: &mut Problems) {
        let Some(field) = &self.client_address else {
            if let Some(most) = &self.max_proxies {
                let what = "has no effect without client_address: add it, or remove max_proxies";
                problems.add(&most.span, "listen.max_proxies", what);
            }
            return;
        };
        let what = if !is_name(field) {
            "is not the name of a field: write for instance x-forwarded-for or forwarded"
        } else if NO_ADDRESS.iter().any(|name| field.eq_ignore_ascii_case(name)) {
            "names a field that carries no address of a client: write the one that the proxies set, for instance x-forwarded-for or forwarded"
        } else if *self.proxy_protocol {
            "and proxy_protocol both name the client: choose one"
        } else if !self.serves() {
            "has no effect without TLS, where every request is redirected: remove it, or add plain = \"serve\""
        } else if tcp && self.trusted_proxies.is_empty() {
            "without trusted_proxies any client could claim any address: name the networks of the proxies there, for instance [\"10.0.0.0/8\"]"
        } else {
            return;
        };
        problems.add(&field.span, "listen.client_address", what);
    }

    /// The listener as seen by its requests.
    ///
    /// `place`: its place in the configuration.
    pub(crate) fn listener(&self, place: usize) -> Listener {
        let forwarding = self.client_address.as_ref().map(|field| Forwarding {
            trusted: self.trusted_proxies.value.clone(),
            field: field.value.as_str().into(),
            most: self.max_proxies.as_ref().map(|most| most.usize()),
        });
        let scheme = self.scheme.as_ref().map_or(Scheme::Http, |scheme| **scheme);
        Listener {
            place,
            name: self.address.name.as_str().into(),
            forwarding,
            is_tls: *self.tls,
            has_proxy_protocol: *self.proxy_protocol,
            to_https: (!self.serves()).then_some(ToHttps { port: self.https_port }),
            scheme,
            alternative: None,
        }
    }

    /// Its first TCP port.
    pub(crate) fn port(&self) -> Option<u16> {
        self.address.addresses.iter().find_map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            Address::Unix(_) => None,
        })
    }

    /// Whether the proxy at this address is trusted.
    pub(crate) fn trusts(&self, proxy: IpAddr) -> bool {
        proxy.is_unspecified() || self.trusted_proxies.iter().any(|network| network.contains(&proxy))
    }
}

/// Checks each listener, and checks all together for duplicate addresses. `metrics`: the address of the metrics
/// listener.
pub(crate) fn check(all: &[ListenConfig], metrics: Option<SocketAddr>, problems: &mut Problems) {
    let mut taken: Vec<Address> =
        metrics.into_iter().map(Address::Tcp).filter(|address| !address.is_free_port()).collect();
    for listen in all {
        listen.check(problems);
        for address in listen.address.addresses.iter().filter(|address| !address.is_free_port()) {
            if taken.contains(address) {
                let what =
                    format_args!("{address} is configured twice: remove it from one [[listen]] or from [metrics]");
                problems.add(&listen.tls.span, "listen.address", what);
            }
            taken.push(address.clone());
        }
    }
}

/// Checks that each name is the address of a listener. `key`: the key that contains the names.
pub(crate) fn check_names(all: &[ListenConfig], names: &[At<String>], key: &str, problems: &mut Problems) {
    // Without a [[listen]] table there is the default listener.
    let development = [ListenConfig::from(Listen::development())];
    let all = if all.is_empty() { &development } else { all };
    if names.is_empty() {
        problems.add(&(0..0), key, "is empty, so no request can reach the site: name a listener, or remove the key");
    }
    for name in names {
        if !all.iter().any(|listen| listen.address.name == name.value) {
            let known: Vec<_> = all.iter().map(|listen| listen.address.name.as_str()).collect();
            let what = format_args!("no [[listen]] has the address {:?}: use one of {}", name.value, known.join(", "));
            problems.add(&name.span, key, what);
        }
    }
}

/// The addresses of listeners as they are configured, that of the default listener if there is no `[[listen]]`.
pub(crate) fn names(all: &[ListenConfig]) -> Vec<String> {
    match all {
        [] => vec![Listen::development().name],
        all => all.iter().map(|listen| listen.address.name.clone()).collect(),
    }
}

/// The default port of redirects to HTTPS: the port of the first of these listeners with TLS.
pub(crate) fn https_port<'a>(listen: impl IntoIterator<Item = &'a ListenConfig>) -> u16 {
    listen.into_iter().filter(|listen| *listen.tls).find_map(ListenConfig::port).unwrap_or(443)
}

/// Request fields with another meaning, from which a client could choose its address or have none: the fields of RFC
/// 9110 to 9112, of the Fetch standard and of cookies, and the other fields of proxies.
const NO_ADDRESS: [&str; 52] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-method",
    "age",
    "alt-used",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "dnt",
    "expect",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "last-modified",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
];

impl From<Listen> for ListenConfig {
    fn from(address: Listen) -> Self {
        ListenConfig {
            address,
            tls: yes(),
            plain: At::default(),
            scheme: None,
            http2: None,
            http3: At::default(),
            https_port: None,
            mode: Mode::default(),
            proxy_protocol: At::default(),
            client_address: None,
            max_proxies: None,
            trusted_proxies: At::default(),
        }
    }
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<At<Vec<IpNet>>, D::Error> {
    let network = |text: String| {
        let hint = "write for instance 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7";
        parse_network(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not a network: {hint}")))
    };
    let At { value, span } = At::<Vec<String>>::deserialize(deserializer)?;
    Ok(At { value: value.into_iter().map(network).collect::<Result<_, _>>()?, span })
}

fn yes() -> At<bool> {
    true.into()
}

/// Permissions of a file, written in octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(pub u32);

impl Default for Mode {
    /// Owner and group may connect.
    fn default() -> Self {
        Mode(0o660)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        match u32::from_str_radix(&text, 8) {
            Ok(mode @ ..=0o777) => Ok(Mode(mode)),
            _ => Err(serde::de::Error::custom(format!(
                "\"{text}\" is not a mode: write octal digits, for instance \"0660\" or \"0666\""
            ))),
        }
    }
}

impl JsonSchema for Mode {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "mode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A configured address, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    /// As configured.
    pub name: String,
    /// Several for `localhost`; this machine may lack some of them.
    pub addresses: Vec<Address>,
}

impl Listen {
    /// The default address for trying out the server: localhost:8443.
    pub(crate) fn development() -> Self {
        Listen::localhost(8443)
    }

    /// A port of all addresses of this machine, over IPv4 and IPv6.
    pub(crate) fn everywhere(port: u16) -> Self {
        let addresses: [SocketAddr; 2] = [(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()];
        Listen { name: port.to_string(), addresses: addresses.map(Address::Tcp).into() }
    }

    /// A port of localhost, over IPv4 and IPv6.
    pub(crate) fn localhost(port: u16) -> Self {
        Listen { name: format!("localhost:{port}"), addresses: localhost(port) }
    }
}

fn localhost(port: u16) -> Vec<Address> {
    let addresses: [SocketAddr; 2] = [([127, 0, 0, 1], port).into(), ([0, 0, 0, 0, 0, 0, 0, 1], port).into()];
    addresses.map(Address::Tcp).into()
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(address) = Address::parse_unix(name) {
            return Ok(Listen { name: name.to_owned(), addresses: vec![address?] });
        }
        // Does not use the hosts file, which may lack the IPv6 line although the machine has the address.
        if let Some(port) = name.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
            return Ok(Listen { name: name.to_owned(), addresses: localhost(port) });
        }
        if let Ok(address) = name.parse() {
            return Ok(Listen { name: name.to_owned(), addresses: vec![Address::Tcp(address)] });
        }
        let all = name.strip_prefix(':').or_else(|| name.strip_prefix("*:")).unwrap_or(name);
        if let Ok(port) = all.parse() {
            return Ok(Listen { name: name.to_owned(), ..Listen::everywhere(port) });
        }
        let hint = "write HOST:PORT, for instance 0.0.0.0:443, [::]:443 or localhost:8443, a port alone for all addresses, or a path: unix:/run/sealion.sock";
        // Resolving a name could block a reload, and may return another address later.
        Err(match name.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                format!("{host:?} is not an address of this machine, and names are not resolved: {hint}")
            }
            _ => hint.to_owned(),
        })
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn localhost_is_both_families() {
        let listen: Listen = "localhost:8443".parse().unwrap();
        assert_eq!(listen, Listen::development());
        let addresses: Vec<String> = listen.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:8443", "[::1]:8443"]);
    }

    #[test]
    fn a_port_alone_is_all_addresses_of_both_families() {
        for name in ["8443", ":8443", "*:8443"] {
            let listen: Listen = name.parse().unwrap();
            let addresses: Vec<String> = listen.addresses.iter().map(ToString::to_string).collect();
            assert_eq!((listen.name.as_str(), addresses), (name, vec!["0.0.0.0:8443".into(), "[::]:8443".into()]));
        }
        for name in ["70000", "-1", ":", "*"] {
            assert!(name.parse::<Listen>().is_err(), "{name}");
        }
    }

    #[test]
    fn bad_addresses_say_what_to_write() {
        for listen in ["localhost", "localhost:99999", "localhost:", "", "127.0.0.1", "::1:443", "ip6-localhost:443"] {
            assert!(listen.parse::<Listen>().unwrap_err().contains("HOST:PORT"), "{listen}");
        }
        let error = "www.example.org:443".parse::<Listen>().unwrap_err();
        assert!(error.starts_with("\"www.example.org\" is not an address of this machine"), "{error}");
    }

    #[test]
    fn proxies_are_networks_or_addresses() {
        let listen = |proxies: &str| {
            let text = format!("address = '127.0.0.1:0'\nproxy_protocol = true\ntrusted_proxies = [{proxies}]");
            toml::from_str::<ListenConfig>(&text)
        };
        let listening = listen("'10.0.0.0/8', '192.0.2.7', '2001:db8::1'").unwrap();
        for (proxy, trusted) in [
            ("10.2.3.4", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8::1", true),
            ("2001:db8::2", false),
        ] {
            assert_eq!(listening.trusts(proxy.parse().unwrap()), trusted, "{proxy}");
        }
        assert!(listen("'here'").unwrap_err().to_string().contains("\"here\" is not a network: write for instance"));
        let text = "address = '127.0.0.1:0'\nproxy_protocol = true\ntrusted_proxies = ['10.0.0.5/8']";
        let mut problems = Problems::of_file(Path::new("f"), text);
        check(&[toml::from_str(text).unwrap()], None, &mut problems);
        assert_eq!(
            problems.to_string(),
            "f:3: listen.trusted_proxies: 10.0.0.5/8 has bits beyond its prefix length: write 10.0.0.0/8 or 10.0.0.5"
        );
    }

    #[test]
    fn names_of_listeners_are_checked() {
        let listen = |text: &str| toml::from_str::<ListenConfig>(text).unwrap();
        let all = [
            listen("address = '127.0.0.1:443'"),
            listen("address = '[::1]:443'"),
            listen("address = '127.0.0.1:80'\ntls = false"),
            listen("address = '127.0.0.1:444'"),
            listen("address = '127.0.0.1:81'\ntls = false\nhttps_port = 444"),
            listen("address = '127.0.0.1:82'\ntls = false\nplain = 'serve'"),
        ];
        for (names, words) in [
            (&["127.0.0.1:443"][..], ""),
            (&["127.0.0.1:80", "[::1]:443"], ""),
            (
                &["127.0.0.1:8443"],
                "no [[listen]] has the address \"127.0.0.1:8443\": use one of 127.0.0.1:443, [::1]:443",
            ),
            (&["127.0.0.1:443", "x"], "no [[listen]] has the address \"x\""),
            (&["127.0.0.1:80"], ""),
            (&["127.0.0.1:82"], ""),
            (&["127.0.0.1:82", "127.0.0.1:444"], ""),
            (&[], "is empty, so no request can reach the site"),
        ] {
            let names: Vec<At<String>> = names.iter().map(|name| (*name).to_owned().into()).collect();
            let mut problems = Problems::of_arguments();
            check_names(&all, &names, "site.listen", &mut problems);
            assert!(problems.to_string().starts_with(words), "{problems}");
            assert_eq!(problems.is_empty(), words.is_empty(), "{problems}");
        }
        let mut problems = Problems::of_arguments();
        check_names(&[], &["localhost:8443".to_owned().into()], "site.listen", &mut problems);
        assert!(problems.is_empty(), "{problems}");
    }

    #[test]
    fn the_clients_address_has_one_source_that_is_trusted() {
        for (keys, words) in [
            ("client_address = 'x-forwarded-for'\ntrusted_proxies = ['10.0.0.0/8']\nmax_proxies = 1", ""),
            ("client_address = 'x-forwarded-for'", "without trusted_proxies any client could claim any address"),
            ("client_address = 'a b'\ntrusted_proxies = ['10.0.0.0/8']", "is not the name of a field"),
            ("client_address = 'Host'\ntrusted_proxies = ['10.0.0.0/8']", "names a field that carries no address"),
            ("client_address = 'x-forwarded-proto'\ntrusted_proxies = ['10.0.0.0/8']", "names a field that carries no"),
            ("client_address = 'user-agent'\ntrusted_proxies = ['10.0.0.0/8']", "names a field that carries no"),
            ("client_address = 'true-client-ip'\ntrusted_proxies = ['10.0.0.0/8']", ""),
            (
                "client_address = 'x-a'\nproxy_protocol = true\ntrusted_proxies = ['10.0.0.0/8']",
                "and proxy_protocol both",
            ),
            ("client_address = 'x-a'\ntls = false\ntrusted_proxies = ['10.0.0.0/8']", "has no effect without TLS"),
            ("client_address = 'x-a'\ntls = false\nplain = 'serve'\ntrusted_proxies = ['10.0.0.0/8']", ""),
            ("max_proxies = 1", "has no effect without client_address"),
            (
                "trusted_proxies = ['10.0.0.0/8']",
                "trusted_proxies has no effect without proxy_protocol = true or client_address",
            ),
        ] {
            let mut problems = Problems::of_arguments();
            check(&[toml::from_str(&format!("address = '127.0.0.1:0'\n{keys}")).unwrap()], None, &mut problems);
            assert!(problems.to_string().starts_with(words), "{keys}: {problems}");
            assert_eq!(problems.is_empty(), words.is_empty(), "{keys}: {problems}");
        }
    }

    #[test]
    fn keys_of_another_kind_of_listener_are_refused() {
        for (keys, words) in [
            ("tls = false\nplain = 'serve'\nscheme = 'https'\nhttp2 = true", ""),
            ("tls = false\nplain = 'redirect'\nhttps_port = 444", ""),
            ("tls = false\nhttp2 = false", ""),
            ("plain = 'serve'", "has no effect with TLS: add tls = false"),
            ("scheme = 'https'", "has effect only where sites are served without TLS"),
            ("tls = false\nscheme = 'https'", "has effect only where sites are served without TLS"),
            ("tls = false\nplain = 'serve'\nhttps_port = 444", "is the port of redirects"),
            ("tls = false\nhttp2 = true", "has no effect where every request is redirected"),
        ] {
            let mut problems = Problems::of_arguments();
            check(&[toml::from_str(&format!("address = '127.0.0.1:0'\n{keys}")).unwrap()], None, &mut problems);
            assert!(problems.to_string().starts_with(words), "{keys}: {problems}");
            assert_eq!(problems.is_empty(), words.is_empty(), "{keys}: {problems}");
        }
        let listen = |keys: &str| toml::from_str::<ListenConfig>(&format!("address = '127.0.0.1:0'\n{keys}")).unwrap();
        assert!(listen("").http2() && !listen("http2 = false").http2());
        assert!(!listen("tls = false\nplain = 'serve'").http2());
        assert!(listen("tls = false\nplain = 'serve'\nhttp2 = true").http2());
    }

    #[test]
    fn modes_are_octal() {
        let listen = |mode: &str| toml::from_str::<ListenConfig>(&format!("address = 'unix:/run/s'\nmode = '{mode}'"));
        assert_eq!(listen("0666").unwrap().mode, Mode(0o666));
        for bad in ["888", "rw", "1777", ""] {
            assert!(listen(bad).unwrap_err().to_string().contains("0660"), "{bad}");
        }
    }
}
