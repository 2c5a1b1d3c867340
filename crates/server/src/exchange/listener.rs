//! The listener of a connection, as its requests see it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use schemars::JsonSchema;
use sealion_http::FieldSection;
use serde::{Deserialize, Serialize};

use super::Forwarding;
use crate::response::Response;

/// A listener, as the requests of its connections see it.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Its place in the configuration, which selects its sites.
    pub(crate) place: usize,
    /// Its address, as configured. A process that takes over finds it by this.
    pub(crate) name: Box<str>,
    /// `None`: the client is the remote end of the connection.
    pub(crate) forwarding: Option<Forwarding>,
    /// Whether its connections have TLS.
    pub(crate) is_tls: bool,
    /// Whether the PROXY protocol names the clients of its connections.
    pub(crate) has_proxy_protocol: bool,
    /// Whether it redirects requests for sites with TLS. `None`: it has TLS itself, or serves them without.
    pub(crate) to_https: Option<ToHttps>,
    /// The scheme of requests without TLS, unless a trusted proxy names another: TLS may end at a proxy that names none.
    pub(crate) scheme: Scheme,
    /// Where its sites are served over HTTP/3, for responses of the other versions.
    pub(crate) alternative: Option<Alternative>,
}

/// The redirects of a listener without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToHttps {
    /// `None`: the port of the site's first listener with TLS.
    pub(crate) port: Option<u16>,
}

/// The field Alt-Svc (RFC 7838), made once for a listener.
#[derive(Debug)]
pub(crate) struct Alternative {
    line: Box<str>,
    block: sealion_h2::HeaderBlock,
}

impl Alternative {
    /// HTTP/3 on the same host. `max_age`: how many seconds clients remember it.
    pub(crate) fn http3(port: u16, max_age: u64) -> Self {
        let value = format!("h3=\":{port}\"; ma={max_age}");
        let mut block = sealion_h2::HeaderBlock::default();
        block.field("alt-svc", value.as_bytes());
        Alternative { line: format!("Alt-Svc: {value}\r\n").into(), block }
    }

    /// As a line of HTTP/1.1.
    pub(crate) fn line(&self) -> &[u8] {
        self.line.as_bytes()
    }

    /// As a header block of HTTP/2.
    pub(crate) fn http2(&self) -> &[u8] {
        self.block.as_bytes()
    }
}

/// The scheme of a request's URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    #[default]
    Http,
    Https,
}

impl Scheme {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http => HTTP,
            Self::Https => "https",
        }
    }
}

/// The scheme of requests without TLS on their whole way.
pub(super) const HTTP: &str = "http";

impl Listener {
    /// The port of HTTPS that requests for a site are redirected to, if they are. `https`: the port of the site's first listener with TLS.
    pub(crate) fn redirects(&self, https: Option<u16>) -> Option<u16> {
        let ToHttps { port } = self.to_https?;
        Some(port.unwrap_or(https?)).filter(|_| https.is_some())
    }

    /// The alternative service that a response announces.
    pub(crate) fn alternative(&self, response: &Response) -> Option<&Alternative> {
        self.alternative.as_ref().filter(|_| !response.is_unannounced)
    }

    /// Whether the other end of a connection is a trusted proxy.
    pub(crate) fn trusts(&self, remote: SocketAddr) -> bool {
        self.forwarding.as_ref().is_some_and(|forwarding| forwarding.trusts(remote.ip()))
    }

    /// The address that the limits of one client apply to, on a connection from `peer`. `None`: clients of a Unix socket have no address, and the
    /// clients behind a proxy share one.
    pub(crate) fn one_client(&self, peer: SocketAddr) -> Option<IpAddr> {
        Some(peer.ip()).filter(|address| !address.is_unspecified() && !self.trusts(peer))
    }

    /// Whether a client connected to this address itself, and not to a proxy in front.
    pub(crate) fn is_direct(&self, remote: SocketAddr) -> bool {
        let ends_tls = self.is_tls || matches!(self.scheme, Scheme::Http);
        ends_tls && !self.has_proxy_protocol && !self.trusts(remote)
    }

    /// The client and the proxies behind it, as a trusted proxy at the other end of a connection names them. `None`: it names none.
    pub(crate) fn chain(&self, remote: SocketAddr, fields: FieldSection<'_>) -> Option<Arc<[IpAddr]>> {
        let chain = self.forwarding.as_ref()?.chain(remote, fields);
        (!chain.is_empty()).then(|| chain.into())
    }

    /// Whether a trusted proxy sets X-Forwarded-Proto and X-Forwarded-Host. A proxy that names clients in Forwarded may pass on fields that clients sent.
    pub(crate) fn takes_x_forwarded(&self, remote: SocketAddr) -> bool {
        self.trusts(remote) && self.forwarding.as_ref().is_some_and(|forwarding| !forwarding.is_forwarded())
    }

    /// The scheme of requests that no trusted proxy names a scheme for.
    pub(crate) fn own_scheme(&self) -> &'static str {
        if self.is_tls { Scheme::Https.as_str() } else { self.scheme.as_str() }
    }

    /// The scheme of a request with these fields, on a connection from `peer`: without TLS, a trusted proxy may say that it has TLS.
    pub(crate) fn scheme(&self, peer: SocketAddr, fields: FieldSection<'_>) -> &'static str {
        match &self.forwarding {
            Some(forwarding) if !self.is_tls => {
                forwarding.scheme(peer, fields).map_or(self.own_scheme(), Scheme::as_str)
            }
            _ => self.own_scheme(),
        }
    }

    /// The client of a request with these fields, on a connection from `peer`.
    pub(crate) fn client(&self, peer: SocketAddr, fields: FieldSection<'_>) -> SocketAddr {
        self.forwarding.as_ref().map_or(peer, |forwarding| forwarding.client(peer, fields))
    }
}
