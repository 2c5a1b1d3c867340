//! The connection of a request, and its client.

use std::net::{IpAddr, SocketAddr};

use sealion_http::{FieldSection, Protocol, Request};
use sealion_tls::ClientAuthId;

use super::listener::HTTP;
use super::{Connection, Generation, Listener, Shared};
use crate::response::Response;
use crate::site::{Site, host};
use crate::upstream::{Endpoints, Inbound};

/// The connection, as all of its requests share it.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) listener: &'a Listener,
    /// The remote end of the connection.
    pub(crate) remote: SocketAddr,
    /// The client authentication that the handshake enforced.
    pub(crate) auth: Option<ClientAuthId>,
    /// The name in the handshake of QUIC. `None`: requests may name any host. Over TCP they may: proxies send requests for many hosts over one
    /// connection of HTTP/2.
    pub(crate) server_name: Option<&'a str>,
}

/// The client of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    /// The client's address; unspecified over a Unix socket.
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    /// The scheme of the request.
    pub(crate) scheme: &'static str,
}

impl Context<'_> {
    /// The client of a request with these fields.
    pub(crate) fn peer(&self, fields: FieldSection<'_>, protocol: Protocol) -> Peer {
        let address = self.listener.client(self.remote, fields);
        Peer { address, protocol, scheme: self.listener.scheme(self.remote, fields) }
    }

    /// The client at `address` of a request whose scheme is not known.
    pub(crate) fn peer_at(&self, address: SocketAddr, protocol: Protocol) -> Peer {
        Peer { address, protocol, scheme: self.listener.own_scheme() }
    }

    /// The site that answers requests for this authority. `None`: no site has the name on this listener, the listener redirects its requests, or the
    /// connection was opened for another site with other client authentication, or does not have its version.
    pub(crate) fn route<'g>(
        &self,
        generation: &'g Generation,
        protocol: Protocol,
        authority: Option<&str>,
    ) -> Option<&'g Site> {
        let site = generation.sites.find(authority, self.listener.place);
        site.filter(|site| self.permits(site, protocol) && self.covers(generation, authority))
    }

    /// Whether the connection's certificate covers the host of a request. A client that asks for another host by mistake learns so (421), and a connection
    /// for one name does not go around guards that the network has for another.
    pub(super) fn covers(&self, generation: &Generation, authority: Option<&str>) -> bool {
        let (Some(own), Some(authority)) = (self.server_name, authority) else { return true };
        let host = host(authority).trim_end_matches('.');
        let is_covered = || generation.tls.quic(self.listener.place).is_some_and(|tls| tls.covers_both(own, host));
        own.trim_end_matches('.').eq_ignore_ascii_case(host) || is_covered()
    }

    /// Whether requests for a site may come on this connection.
    pub(super) fn permits(&self, site: &Site, protocol: Protocol) -> bool {
        self.listener.redirects(site.https).is_none() && self.may_serve(site, protocol)
    }

    /// As [`Self::permits`], where the listener does not redirect.
    pub(super) fn may_serve(&self, site: &Site, protocol: Protocol) -> bool {
        let has_shown = site.client_auth.as_ref().is_none_or(|auth| self.auth == Some(auth.id()));
        let is_refused = site.rejects_handshake && self.listener.is_tls;
        let has_version = match protocol {
            Protocol::Http2 => site.http2,
            Protocol::Http3 => site.http3,
            Protocol::Http10 | Protocol::Http11 => true,
        };
        !is_refused && has_shown && has_version
    }

    /// The connection, as the upstream of a request learns of it.
    pub(super) fn inbound(&self, request: &Request<'_>, peer: Peer) -> Inbound {
        Inbound {
            remote: address(self.remote),
            is_trusted: self.listener.trusts(self.remote),
            is_direct: self.listener.is_direct(self.remote),
            takes_x_forwarded: self.listener.takes_x_forwarded(self.remote),
            chain: self.listener.chain(self.remote, request.fields),
            client: address(peer.address),
            scheme: peer.scheme,
            protocol: peer.protocol,
            ..Inbound::default()
        }
    }
}

impl Peer {
    pub(super) fn is_plain(self) -> bool {
        self.scheme == HTTP
    }

    /// Removes the field that must not be sent without TLS (RFC 6797 §7.2).
    pub(super) fn keep_to_scheme(self, response: &mut Response) {
        if self.is_plain() {
            response.fields.extra.remove("strict-transport-security");
        }
    }
}

/// The ends of a client's connection; `None` over a Unix socket.
pub(super) fn endpoints(client: SocketAddr, connection: &impl Connection) -> Option<Box<Endpoints>> {
    address(client)?;
    let local = connection.local_address()?;
    Some(Box::new(Endpoints { client, local }))
}

/// The address of a client; `None` over a Unix socket.
pub(super) fn address(peer: SocketAddr) -> Option<IpAddr> {
    Some(peer.ip()).filter(|address| !address.is_unspecified())
}
