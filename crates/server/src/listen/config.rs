//! `[[listen]]`.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use schemars::JsonSchema;
use sealion_http::extra_fields::is_name;
use serde::{Deserialize, Deserializer, Serialize};

use super::Address;
use super::configured::{Listen, Mode};
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

/// Whether a listener has HTTP/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Http3Use {
    Never,
    /// By default: clients use TCP if the UDP port is not free.
    IfPossible,
    /// By its configuration: the server does not start without it.
    Required,
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListenConfig {
    /// Address and port, for instance `0.0.0.0:443` or `[::]:443`; `localhost` means its IPv4 and its IPv6 address. Other names are not
    /// resolved. A port alone, `443`, means all addresses of IPv4 and IPv6. Or a Unix socket: `unix:/run/sealion/sealion.sock`.
    #[schemars(with = "String")]
    pub address: At<Listen>,

    /// Whether connections use TLS. If `false`, `plain` decides what happens.
    #[serde(default = "yes")]
    pub tls: At<bool>,

    /// Action of a listener without TLS. `redirect`: requests for sites with TLS are sent to HTTPS with status 308, and sites that are on no listener
    /// with TLS (`site.listen`) are served. `serve`: all sites are served, for instance behind a proxy that terminates TLS. Both answer the challenges of
    /// certificate authorities first.
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
    /// needs TLS over TCP: a Unix socket or the PROXY protocol has no HTTP/3. `true`: the server does not start if it cannot
    /// listen on the UDP port [default: `http3.enabled`, as far as the UDP port is free]
    #[serde(default)]
    pub http3: Option<At<bool>>,

    /// Port of the redirects to HTTPS, for a listener without TLS [default: the port of the site's first listener with TLS]
    #[serde(default)]
    pub https_port: Option<u16>,

    /// Permissions of a Unix socket, in octal digits: a client needs write permission.
    #[serde(default)]
    pub mode: Mode,

    /// Whether each connection begins with a header of the PROXY protocol, version 1 or 2, which names the
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

    /// Whether clients may use HTTP/3. `enabled`: `http3.enabled`.
    ///
    /// Another port than 443 is mostly mapped to one: clients could not reach the port that is announced.
    pub(crate) fn http3(&self, enabled: Option<bool>) -> Http3Use {
        let by_default = || enabled.unwrap_or_else(|| self.port() == Some(443)) && self.lacks_for_http3().is_none();
        match self.http3.as_deref() {
            Some(true) => Http3Use::Required,
            None if by_default() => Http3Use::IfPossible,
            Some(false) | None => Http3Use::Never,
        }
    }

    /// The reason why the listener cannot have HTTP/3.
    fn lacks_for_http3(&self) -> Option<&'static str> {
        let is_tcp = |address: &Address| matches!(address, Address::Tcp(_));
        if !*self.tls {
            Some("HTTP/3 has TLS always: remove tls = false, or remove http3")
        } else if *self.proxy_protocol {
            Some("and proxy_protocol exclude each other: the PROXY protocol names no client of UDP")
        } else if !self.address.addresses.iter().all(is_tcp) {
            Some("needs an IP address and a port: a Unix socket has no UDP")
        } else {
            None
        }
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
            let what = "is the port of redirects, but plain = \"serve\" redirects nothing: remove one of the two";
            problems.add(&self.plain.span, "listen.https_port", what);
        }
        if let Some(http2) = self.http2.as_ref().filter(|http2| ***http2 && !self.serves()) {
            let what = "has no effect where every request is redirected: remove it, or add plain = \"serve\"";
            problems.add(&http2.span, "listen.http2", what);
        }
    }

    fn check_http3(&self, problems: &mut Problems) {
        if let Some(asked) = self.http3.as_ref().filter(|asked| asked.value)
            && let Some(what) = self.lacks_for_http3()
        {
            problems.add(&asked.span, "listen.http3", what);
        }
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
                "listen.trusted_proxies: {everybody} makes every client a proxy, which may claim any address: name only the networks of the proxies"
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
                problems.add(&listen.address.span, "listen.address", what);
            }
            taken.push(address.clone());
        }
    }
}

/// Checks that each name is the address of a listener. `key`: the key that contains the names.
pub(crate) fn check_names(all: &[ListenConfig], names: &[At<String>], key: &str, problems: &mut Problems) {
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

/// The addresses of listeners as they are configured.
pub(crate) fn names(all: &[ListenConfig]) -> Vec<String> {
    all.iter().map(|listen| listen.address.name.clone()).collect()
}

/// The default port of redirects to HTTPS: the port of the first of these listeners with TLS.
pub(crate) fn https_port<'a>(listen: impl IntoIterator<Item = &'a ListenConfig>) -> u16 {
    listen.into_iter().filter(|listen| *listen.tls).find_map(ListenConfig::port).unwrap_or(443)
}

/// Request fields with another meaning, which would let a client choose its address or have none: the fields of RFC
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
            address: address.into(),
            tls: yes(),
            plain: At::default(),
            scheme: None,
            http2: None,
            http3: None,
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

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
