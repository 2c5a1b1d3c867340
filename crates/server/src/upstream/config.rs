//! `[[upstream]]`

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cgi::Gateway;
use super::sticky::StickyConfig;
use crate::values::{At, Bounded, SecretUrl, Short, Time, Timeout, shown_url};

/// Servers that requests are forwarded to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamConfig {
    /// Name, for `proxy` of sites and routes.
    pub name: At<String>,

    /// Servers of the upstream.
    pub servers: At<Vec<ServerConfig>>,

    /// Protocol of the servers.
    #[serde(default)]
    pub protocol: Protocol,

    /// Version of the PROXY protocol. Each connection then begins with a header that names the client, also before TLS, and is not kept: it serves one
    /// request [default: none]
    #[serde(default)]
    pub proxy_protocol: Option<At<ProxyProtocol>>,

    /// Which server gets a request.
    #[serde(default)]
    pub balance: Balance,

    /// Whether a client stays with the server that answered it first, by a cookie: `true`, or a table. While the server is left out, another server answers,
    /// and the client stays with it.
    #[serde(default = "not_sticky")]
    pub sticky: Short<bool, StickyConfig>,

    /// Most requests that one request of a client causes. A further one goes to another server, or once more to the same one, if nothing was sent, or
    /// if the method is idempotent (RFC 9110 §9.2.2), the request has no content, and no part of a response came.
    #[serde(default = "tries")]
    pub tries: Bounded<1, 16>,

    /// Failures in a row after which a server is left out for `fail_time`. If all are left out, the one whose failure is oldest is asked.
    #[serde(default = "max_fails")]
    pub max_fails: Bounded<1, 1000>,

    /// How long a server that failed is left out.
    #[serde(default = "fail_time")]
    pub fail_time: Timeout,

    /// How long the share of a server that came back grows to its weight; 0s: at once.
    #[serde(default = "slow_start")]
    pub slow_start: Time,

    /// Requests that are made now and then, to leave out a server before a client meets its failure.
    #[serde(default)]
    pub health: Option<HealthConfig>,

    /// Time to connect, TLS included.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Timeout,

    /// Time from the request, with its content, to the head of the response.
    #[serde(default = "patience")]
    pub answer_timeout: Timeout,

    /// Time between two pieces of the response's content.
    #[serde(default = "patience")]
    pub stall_timeout: Timeout,

    /// How long an upgraded connection (WebSocket) may be silent in both directions.
    #[serde(default = "tunnel_timeout")]
    pub tunnel_timeout: Timeout,

    /// Time from the request to the end of the response, all tries included; not for upgraded connections [default: unlimited]
    #[serde(default)]
    pub timeout: Option<Timeout>,

    /// Requests in progress at each server at most: over HTTP/1.1 each has a connection of its own [default: unlimited]
    #[serde(default)]
    pub max_connections: Option<Bounded<1, 1_000_000>>,

    /// Requests that wait for each server while it has `max_connections`, for `connect_timeout` at most. Further ones are answered with 503,
    /// if no other server has room [default: 100]
    #[serde(default)]
    pub queue: Option<At<Bounded<0, 1_000_000>>>,

    /// Idle connections that a worker keeps to each server. Each holds a process of php-fpm [default: 64; to servers of FastCGI none]
    #[serde(default)]
    pub max_idle: Option<Bounded<0, 10_000>>,

    /// How long an idle connection is kept. It should be shorter than the server keeps it.
    #[serde(default = "idle_timeout")]
    pub idle_timeout: Timeout,

    /// Time after which a connection gets no further request, however busy it is: the next one goes to an address that the server's name has
    /// now.
    #[serde(default = "connection_age")]
    pub connection_age: Timeout,

    /// TLS to servers with `https://`.
    #[serde(default)]
    pub tls: UpstreamTlsConfig,
}

/// A server of an upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// `http://host:port`, `https://host`, `fastcgi://host:port`, `uwsgi://host:port`, or `unix:/run/app.sock`. A name is resolved for each new connection.
    #[schemars(with = "String")]
    pub url: At<ServerUrl>,

    /// Share of requests, relative to the other servers.
    #[serde(default = "weight")]
    pub weight: Bounded<1, 1000>,

    /// Whether it gets requests only while all others are left out.
    #[serde(default)]
    pub backup: bool,

    /// Which clients it answers. `drain`: clients that a `sticky` cookie leads to it, and others only while all other servers are left out.
    #[serde(default)]
    pub state: AdminState,

    /// Name in the cookie of `sticky` [default: a hash of the URL]
    #[serde(default)]
    pub id: Option<At<String>>,
}

/// The state that an operator gives a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AdminState {
    /// It answers all clients.
    #[default]
    Ready,
    /// It gets no new clients.
    Drain,
}

impl AdminState {
    /// As the configuration spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            AdminState::Ready => "ready",
            AdminState::Drain => "drain",
        }
    }
}

/// Health checks of each server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HealthConfig {
    /// Path to ask for. A response below 400 is healthy.
    pub path: At<SecretUrl>,

    /// Time between two checks.
    #[serde(default = "check_every")]
    pub every: Timeout,

    /// Time for a response.
    #[serde(default = "check_timeout")]
    pub timeout: Timeout,

    /// Failures in a row after which a server is left out, until a check succeeds.
    #[serde(default = "check_fails")]
    pub fails: Bounded<1, 100>,

    /// Value of Host [default: the host of the server's URL]
    pub host: Option<At<String>>,
}

/// TLS to upstream servers: verified by the system's roots, unless `roots` names others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamTlsConfig {
    /// Certificates of the authorities that sign the servers' certificates, PEM [default: the system's]
    pub roots: Option<At<PathBuf>>,

    /// Name that the servers' certificates must have, and that SNI carries [default: the host in the URL]
    pub server_name: Option<At<String>>,

    /// Certificate chain that is shown to servers that ask for one, PEM.
    pub cert: Option<At<PathBuf>>,

    /// Private key of `cert`, PEM.
    pub key: Option<At<PathBuf>>,
}

/// The protocol of the servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Protocol {
    /// HTTP/1.1: a connection for each request in progress.
    #[default]
    Http1,
    /// HTTP/2: many requests on a connection, as gRPC needs. Servers with TLS have to offer it by ALPN; of others it is known beforehand (h2c).
    Http2,
    /// FastCGI, as php-fpm speaks it: rules name the scripts by `fastcgi`. Each request has a connection of its own.
    Fastcgi,
    /// uwsgi, as servers of Python and Ruby speak it. Each request has a connection of its own.
    Uwsgi,
}

impl Protocol {
    /// The framing of a server that gets the variables of CGI. `None`: servers of HTTP.
    pub(super) fn gateway(self) -> Option<Gateway> {
        match self {
            Protocol::Http1 | Protocol::Http2 => None,
            Protocol::Fastcgi => Some(Gateway::Fastcgi),
            Protocol::Uwsgi => Some(Gateway::Uwsgi),
        }
    }

    /// As the configuration spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http1",
            Protocol::Http2 => "http2",
            Protocol::Fastcgi => "fastcgi",
            Protocol::Uwsgi => "uwsgi",
        }
    }
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary. Health checks are marked as such.
    V2,
}

/// The rule that chooses a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Balance {
    /// One after another, by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in progress, by weight.
    LeastConnections,
    /// The less busy of two chosen at random.
    TwoChoices,
    /// The first in the list that is not left out.
    First,
    /// The one with the shortest time to the head of its responses, by its requests in progress and weight.
    LeastTime,
    /// By the client's address.
    HashAddress,
    /// By path and query, as for caches.
    HashUri,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerUrl {
    Tcp {
        /// Name or address; an IPv6 address without brackets.
        host: String,
        port: u16,
        scheme: UrlScheme,
    },
    Unix(PathBuf),
}

/// The protocol of a server, by its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UrlScheme {
    Http,
    Https,
    Fastcgi,
    Uwsgi,
}

impl UrlScheme {
    const ALL: [Self; 4] = [UrlScheme::Http, UrlScheme::Https, UrlScheme::Fastcgi, UrlScheme::Uwsgi];

    fn prefix(self) -> &'static str {
        match self {
            UrlScheme::Http => "http://",
            UrlScheme::Https => "https://",
            UrlScheme::Fastcgi => "fastcgi://",
            UrlScheme::Uwsgi => "uwsgi://",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            UrlScheme::Http => 80,
            UrlScheme::Https => 443,
            UrlScheme::Fastcgi => 9000,
            UrlScheme::Uwsgi => 3031,
        }
    }

    /// The protocol of its servers, if there is only one. `None`: a version of HTTP.
    fn gateway(self) -> Option<Protocol> {
        match self {
            UrlScheme::Http | UrlScheme::Https => None,
            UrlScheme::Fastcgi => Some(Protocol::Fastcgi),
            UrlScheme::Uwsgi => Some(Protocol::Uwsgi),
        }
    }
}

impl ServerUrl {
    /// Whether it can be a server that speaks this protocol: a socket can be any.
    pub(super) fn may_speak(&self, protocol: Protocol) -> bool {
        match self {
            ServerUrl::Unix(_) => true,
            ServerUrl::Tcp { scheme, .. } => scheme.gateway() == Some(protocol).filter(|own| own.gateway().is_some()),
        }
    }

    /// The value of Host for requests that do not keep the client's.
    pub(crate) fn authority(&self) -> String {
        match self {
            ServerUrl::Unix(_) => "localhost".to_owned(),
            ServerUrl::Tcp { host, port, scheme } => {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                if *port == scheme.default_port() { host } else { format!("{host}:{port}") }
            }
        }
    }
}

impl ServerUrl {
    /// A server as people write it on a command line: besides URLs, a port of this machine (`3000`), `HOST:PORT` for HTTP, and the path of a socket.
    ///
    /// # Errors
    /// One line, with the remedy.
    pub(crate) fn from_argument(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix(':').unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            return format!("http://localhost:{port}").parse();
        }
        if text.starts_with('/') {
            return format!("unix:{text}").parse();
        }
        let is_named = |text: &str| text.contains("://") || text.starts_with("unix:");
        match text.rsplit_once(':') {
            Some((_, "443")) if !is_named(text) => {
                Err(format!("{:?} names the port of HTTPS: write https:// before it", shown_url(text)))
            }
            Some((host, port)) if !is_named(text) && !host.is_empty() && port.parse::<u16>().is_ok() => {
                format!("http://{text}").parse()
            }
            _ => text.parse(),
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerUrl::Unix(path) => write!(f, "unix:{}", path.display()),
            ServerUrl::Tcp { scheme, .. } => write!(f, "{}{}", scheme.prefix(), self.authority()),
        }
    }
}

impl FromStr for ServerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = shown_url(text);
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").filter(|rest| rest.starts_with('/')).unwrap_or(path);
            return match path.starts_with('/') {
                true => Ok(ServerUrl::Unix(path.into())),
                false => Err(format!("{shown:?}: write the whole path of the socket, for instance unix:/run/app.sock")),
            };
        }
        let found = UrlScheme::ALL.into_iter().find_map(|scheme| Some((scheme, text.strip_prefix(scheme.prefix())?)));
        let Some((scheme, rest)) = found else {
            return Err(format!(
                "{shown:?} is not the URL of a server: write http://host:port, https://host or unix:/run/app.sock"
            ));
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            let path = &authority[authority.find(['/', '?', '#']).unwrap_or_default()..];
            let path = path.split(['?', '#']).next().unwrap_or_default();
            let remedy = match path {
                "" => String::new(),
                path => format!(", and to_prefix = {path:?} in the rule"),
            };
            return Err(format!("{shown:?} has a path: write it up to the host{remedy}"));
        }
        if authority.contains('@') {
            return Err(format!("{shown:?} has a user: set the field Authorization in the rule's request_headers"));
        }
        let wrong = |what: &str| format!("{shown:?}: {what}: write for instance http://127.0.0.1:3000");
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| wrong("the address has no end"))?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong("that is not an IPv6 address"))?;
                (
                    host,
                    port.strip_prefix(':')
                        .or(port.is_empty().then_some(""))
                        .ok_or_else(|| wrong("that is not a port"))?,
                )
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        let is_host = |octet: u8| octet.is_ascii_alphanumeric() || b"-._:".contains(&octet);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(wrong("that is not a host"));
        }
        let port = match port {
            "" => scheme.default_port(),
            port => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong("that is not a port"))?,
        };
        Ok(ServerUrl::Tcp { host: host.to_ascii_lowercase(), port, scheme })
    }
}

impl<'de> Deserialize<'de> for ServerUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for ServerUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for ServerUrl {
    fn schema_name() -> Cow<'static, str> {
        "URL".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl ServerConfig {
    /// A server with the defaults.
    pub(crate) fn of(url: At<ServerUrl>) -> Self {
        ServerConfig { url, weight: weight(), backup: false, state: AdminState::default(), id: None }
    }
}

impl UpstreamConfig {
    /// `max_idle` unless it is given.
    // INHERITED: HTTP libraries keep 32 to 256 connections to a host.
    pub(crate) const DEFAULT_MAX_IDLE: u64 = 64;

    /// An upstream with the defaults.
    pub(crate) fn of(name: &str, servers: Vec<ServerConfig>) -> Self {
        let protocol = servers.iter().find_map(|server| match &server.url.value {
            ServerUrl::Tcp { scheme, .. } => scheme.gateway(),
            ServerUrl::Unix(_) => None,
        });
        UpstreamConfig {
            name: name.to_owned().into(),
            servers: servers.into(),
            protocol: protocol.unwrap_or_default(),
            proxy_protocol: None,
            balance: Balance::default(),
            sticky: not_sticky(),
            tries: tries(),
            max_fails: max_fails(),
            fail_time: fail_time(),
            slow_start: slow_start(),
            health: None,
            connect_timeout: connect_timeout(),
            answer_timeout: patience(),
            stall_timeout: patience(),
            tunnel_timeout: tunnel_timeout(),
            timeout: None,
            max_connections: None,
            queue: None,
            max_idle: None,
            idle_timeout: idle_timeout(),
            connection_age: connection_age(),
            tls: UpstreamTlsConfig::default(),
        }
    }
}

impl UpstreamConfig {
    /// Whether its servers are asked by uwsgi.
    pub(crate) fn speaks_uwsgi(&self) -> bool {
        self.protocol == Protocol::Uwsgi
    }

    /// Idle connections that a worker keeps to each server.
    pub(crate) fn idle_connections(&self) -> u64 {
        let default = if self.protocol.gateway().is_some() { 0 } else { Self::DEFAULT_MAX_IDLE };
        self.max_idle.map_or(default, Bounded::get)
    }

    /// Keys that differ from their defaults for nothing, and why.
    pub(super) fn without_effect(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let not_kept = match self.protocol {
            Protocol::Fastcgi => Some("connections to servers of FastCGI are kept only with max_idle")
                .filter(|_| self.idle_connections() == 0),
            Protocol::Uwsgi => Some("each request of uwsgi has a connection of its own"),
            _ if self.proxy_protocol.is_some() => Some("connections with proxy_protocol are not kept"),
            _ => None,
        };
        let never_kept = not_kept.filter(|_| self.protocol != Protocol::Fastcgi);
        let shared =
            Some("a worker has one connection of HTTP/2 to each server").filter(|_| self.protocol == Protocol::Http2);
        let no_tunnel = Some("only servers of protocol = \"http1\" can have tunnels");
        let no_tls = Some("no server has a URL with https://");
        let has_tls =
            |server: &ServerConfig| matches!(server.url.value, ServerUrl::Tcp { scheme: UrlScheme::Https, .. });
        [
            ("max_idle", never_kept.or(shared).filter(|_| self.max_idle.is_some())),
            ("connection_age", not_kept.filter(|_| self.connection_age != connection_age())),
            ("idle_timeout", not_kept.filter(|_| self.idle_timeout != idle_timeout())),
            (
                "tunnel_timeout",
                no_tunnel.filter(|_| self.protocol != Protocol::Http1 && self.tunnel_timeout != tunnel_timeout()),
            ),
            ("tls", no_tls.filter(|_| self.tls != UpstreamTlsConfig::default() && !self.servers.iter().any(has_tls))),
        ]
        .into_iter()
        .filter_map(|(name, why)| Some((name, why?)))
    }
}

const fn within<const MIN: u64, const MAX: u64>(number: u64) -> Bounded<MIN, MAX> {
    match Bounded::new(number) {
        Some(bounded) => bounded,
        None => panic!("a default lies within its bounds"),
    }
}

/// Requests that wait for a server, unless `queue` says otherwise.
pub(super) const QUEUE: usize = 100;

fn not_sticky() -> Short<bool, StickyConfig> {
    Short::Short(false)
}

fn weight() -> Bounded<1, 1000> {
    within(1)
}

fn tries() -> Bounded<1, 16> {
    within(3)
}

fn max_fails() -> Bounded<1, 1000> {
    within(3)
}

// INHERITED: nginx' fail_timeout.
fn fail_time() -> Timeout {
    Timeout::seconds(10)
}

fn slow_start() -> Time {
    Time::seconds(10)
}

fn check_every() -> Timeout {
    Timeout::seconds(5)
}

fn check_timeout() -> Timeout {
    Timeout::seconds(2)
}

fn check_fails() -> Bounded<1, 100> {
    within(2)
}

fn connect_timeout() -> Timeout {
    Timeout::seconds(5)
}

// INHERITED: nginx' proxy_read_timeout.
fn patience() -> Timeout {
    Timeout::seconds(60)
}

fn tunnel_timeout() -> Timeout {
    Timeout::seconds(3600)
}

fn idle_timeout() -> Timeout {
    Timeout::seconds(30)
}

// INHERITED: nginx' keepalive_time.
fn connection_age() -> Timeout {
    Timeout::seconds(3600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_on_a_command_line() {
        for (text, expected) in [
            ("3000", Ok("http://localhost:3000")),
            (":3000", Ok("http://localhost:3000")),
            ("localhost:3000", Ok("http://localhost:3000")),
            ("127.0.0.1:3000", Ok("http://127.0.0.1:3000")),
            ("[::1]:3000", Ok("http://[::1]:3000")),
            ("/run/app.sock", Ok("unix:/run/app.sock")),
            ("https://app.internal", Ok("https://app.internal")),
            ("unix:/run/app:1", Ok("unix:/run/app:1")),
            ("app.internal:443", Err("write https:// before it")),
            ("0", Err("that is not a port")),
            ("70000", Err("write http://host:port")),
            ("app", Err("write http://host:port")),
            (":app", Err("write http://host:port")),
        ] {
            match (ServerUrl::from_argument(text), expected) {
                (Ok(url), Ok(shown)) => assert_eq!(url.to_string(), shown, "{text}"),
                (Err(error), Err(words)) => assert!(error.contains(words), "{text}: {error}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }

    #[test]
    fn urls_of_servers() {
        for (text, expected) in [
            ("http://127.0.0.1:3000", Ok("http://127.0.0.1:3000")),
            ("http://App.Internal/", Ok("http://app.internal")),
            ("https://[2001:db8::1]:8443", Ok("https://[2001:db8::1]:8443")),
            ("https://[2001:db8::1]", Ok("https://[2001:db8::1]")),
            ("fastcgi://127.0.0.1:9000", Ok("fastcgi://127.0.0.1")),
            ("fastcgi://php:9001", Ok("fastcgi://php:9001")),
            ("uwsgi://127.0.0.1:3031", Ok("uwsgi://127.0.0.1")),
            ("uwsgi://[::1]:4000", Ok("uwsgi://[::1]:4000")),
            ("unix:/run/app.sock", Ok("unix:/run/app.sock")),
            ("unix:///run/app.sock", Ok("unix:/run/app.sock")),
            ("unix:app.sock", Err("whole path of the socket")),
            ("127.0.0.1:3000", Err("write http://host:port")),
            ("http://", Err("that is not a host")),
            ("http://a:0", Err("that is not a port")),
            ("http://a:x", Err("that is not a port")),
            ("http://[::1", Err("has no end")),
            ("http://[::g]", Err("not an IPv6 address")),
            ("http://a/b", Err("has a path")),
            ("http://u:p@a", Err("has a user")),
            ("http://a b", Err("that is not a host")),
        ] {
            match (text.parse::<ServerUrl>(), expected) {
                (Ok(url), Ok(expected)) => assert_eq!(url.to_string(), expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{text}: {error}"),
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }
}
