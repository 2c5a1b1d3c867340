//! What a line tells.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use sealion_http::{Coding, Request};
use sealion_tls::{HandshakeInfo, Path};

use crate::path::policy::PathReason;

/// A response, as the log sees it.
pub(crate) struct Entry<'a> {
    /// The client.
    pub peer: SocketAddr,
    /// The request; `None`: it could not be read.
    pub request: Option<Requested<'a>>,
    /// The user that was authenticated.
    pub user: Option<&'a str>,
    /// The response's status.
    pub status: u16,
    /// Body bytes that went out.
    pub body: u64,
    /// The body's Content-Encoding.
    pub encoding: Option<Coding>,
    /// From the end of the request's head to the response's last byte.
    pub duration: Duration,
    /// What the handshake agreed on.
    pub tls: &'a HandshakeInfo,
    /// Who sealed the response.
    pub path: Path,
    /// Why it took its path; `None` when the connection was lost before the path was chosen.
    pub why: Option<PathReason>,
    /// Bytes of responses that this connection had sent before it moved into the kernel, if it has.
    pub moved_at: Option<u64>,
    /// What moving the connection into the kernel took, if this response did that.
    pub set_up: Option<Duration>,
    /// What cut the response short.
    pub aborted: Option<&'a dyn Display>,
}

/// A request, as the log sees it.
#[derive(Clone, Copy)]
pub(crate) struct Requested<'a> {
    /// What was asked.
    pub request: &'a Request<'a>,
    /// The protocol's version, for instance `HTTP/1.1`.
    pub protocol: &'static str,
    /// The site that answered; empty where there was none.
    pub site: &'a str,
}

impl<'a> Requested<'a> {
    /// The first value of a field of the request, unless it is empty.
    pub(super) fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.request.fields.first(name).filter(|value| !value.is_empty())
    }
}
