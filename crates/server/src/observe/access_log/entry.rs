//! The data of a line.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealion_http::{ContentEncoding, Protocol, Request, Status};
use sealion_tls::{HandshakeInfo, SealedBy};

use crate::path::policy::PathReason;
use crate::values::labels;

/// A response and its request.
pub(crate) struct Entry<'a> {
    pub peer: SocketAddr,
    /// `None`: the request could not be read.
    pub request: Option<Requested<'a>>,
    /// From the end of the request's head to the last byte of the response.
    pub duration: Duration,
    /// When the last byte of the response was sent.
    pub ended: Instant,
    /// The outcome of the handshake; `None`: the connection has no TLS.
    pub tls: Option<&'a HandshakeInfo>,
    pub outcome: Outcome<'a>,
}

/// The result of sending a response, for log and metrics.
#[derive(Clone, Copy)]
pub(crate) struct Outcome<'a> {
    pub status: Status,
    /// The Content-Encoding of the body.
    pub encoding: Option<ContentEncoding>,
    /// The authenticated user.
    pub user: Option<&'a str>,
    /// Bytes of the body that were sent.
    pub body: u64,
    /// Bytes that were sent, including head and framing.
    pub wire: u64,
    /// The number of its stream of HTTP/2.
    pub stream: Option<u64>,
    /// The path that sealed the response.
    pub path: SealedBy,
    /// The reason for the path. `None`: the connection was lost before the choice.
    pub reason: Option<PathReason>,
    /// Response bytes that the connection had sent when it moved into the kernel, if it did.
    pub moved_at: Option<u64>,
    /// Duration of the move, if it was made for this response.
    pub set_up: Option<Duration>,
    /// The server that the request was forwarded to.
    pub upstream: Option<&'a UpstreamTrace>,
    /// How the cache treated the request.
    pub cache: Option<CacheTrace>,
    /// The error that cut the response short.
    pub aborted: Option<&'a dyn Display>,
    /// Whether the access log has no line for it.
    pub is_unlogged: bool,
    /// The number of the route that answered.
    pub route: Option<u32>,
}

/// An upstream's handling of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamTrace {
    /// The last server tried, as configured.
    pub server: Arc<str>,
    /// The number of tries to send the request.
    pub tries: u32,
    /// From the first try to the head of the response, or to the failure.
    pub took: Duration,
    /// The status of the response; `None`: there was no response.
    pub status: Option<u16>,
}

/// The response cache's handling of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheTrace {
    pub outcome: CacheOutcome,
    /// The reason why it was not a hit, or why the response was not stored.
    pub reason: Option<&'static str>,
    /// Seconds since the origin made the response.
    pub age: Option<u64>,
}

impl CacheTrace {
    /// The reason for a request that shared another request's fetch.
    pub(crate) const COLLAPSED: &str = "collapsed";

    pub(crate) fn new(outcome: CacheOutcome, reason: Option<&'static str>) -> Self {
        CacheTrace { outcome, reason, age: None }
    }

    pub(crate) fn bypass(reason: &'static str) -> Self {
        Self::new(CacheOutcome::Bypass, Some(reason))
    }
}

labels! {
    /// The result of looking a request up in the cache.
    pub(crate) CacheOutcome {
        /// A fresh stored response was sent.
        Hit = "hit",
        /// Nothing was stored for it.
        Miss = "miss",
        /// The stored response was stale, and the origin sent a new one.
        Expired = "expired",
        /// A stale response was sent.
        Stale = "stale",
        /// The origin confirmed that the stored response is valid.
        Revalidated = "revalidated",
        /// The cache does not handle the request.
        Bypass = "bypass",
    }
}

impl Entry<'_> {
    /// Whether the client got an error or an incomplete response.
    pub(super) fn is_error(&self) -> bool {
        self.outcome.status.code() >= 400 || self.outcome.aborted.is_some()
    }
}

/// A request and the site that served it.
#[derive(Clone, Copy)]
pub(crate) struct Requested<'a> {
    pub request: &'a Request<'a>,
    pub protocol: Protocol,
    /// The name of the site; empty if no site served it.
    pub site: &'a str,
    /// The name or path of the route that answered. `None`: the site itself did, or none.
    pub route: Option<&'a str>,
}

impl<'a> Requested<'a> {
    /// The first value of a request field, unless it is empty.
    pub(super) fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.request.fields.first(name).filter(|value| !value.is_empty())
    }
}
