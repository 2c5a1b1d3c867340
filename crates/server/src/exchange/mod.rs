//! One request of any protocol: route, admit, answer, log, count.
//!
//! A protocol's driver reads requests and sends responses; what lies between is the same for every protocol and lies here.
//!
//! ```text
//! driver ─► Exchange::begin ─► answer ─► [driver: choose the path, write the head, send the body] ─► finish ─► access log, metrics
//!             route              admit, site
//! ```

mod clock;
mod error;
mod generation;
mod path_choice;
mod shared;

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sealion_http::{Coding, HttpTime, Request, Status, Target};
use sealion_tls::{ClientAuthId, HandshakeInfo, Path, Socket};

use crate::limits::{Permit, Refusal};
use crate::observe::access_log::{Entry, Requested};
use crate::observe::metrics::{self, Sent, WorkerMetrics};
use crate::path::policy::PathReason;
use crate::response::Response;
use crate::site::{self, Client, Site};

pub(crate) use clock::now;
pub(crate) use error::Error;
pub(crate) use generation::{Current, Generation, Generations};
pub(crate) use path_choice::{PathChoice, PathPolicy};
pub(crate) use shared::Shared;

/// One request, from the end of its head to its line in the access log. Any number of them can be under way on one connection.
pub(crate) struct Exchange<'a> {
    shared: &'a Shared,
    generation: &'a Generation,
    /// The site that the request is for. Without a request that could be read: the default site.
    site: Option<&'a Site>,
    counted: Option<&'static WorkerMetrics>,
    /// When the head of the request was complete; `None` where nothing is measured.
    started: Option<Instant>,
}

/// The end of a connection that requests come from.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    /// Its address; unspecified over a Unix socket.
    pub(crate) address: SocketAddr,
    /// What its certificate was checked against in the handshake.
    pub(crate) auth: Option<ClientAuthId>,
}

/// What became of a response.
pub(crate) struct Outcome<'a> {
    /// The status.
    pub(crate) status: Status,
    /// The Content-Encoding of the body.
    pub(crate) encoding: Option<Coding>,
    /// The user who was authenticated.
    pub(crate) user: Option<&'a str>,
    /// Bytes of the body that went out.
    pub(crate) body: u64,
    /// Bytes that went out, head and framing included.
    pub(crate) wire: u64,
    /// Which path the response took.
    pub(crate) path: Path,
    /// Why the response took its path; `None` when the connection was lost before it was chosen.
    pub(crate) reason: Option<PathReason>,
    /// Bytes of responses that the connection had sent when it moved into the kernel, if it has.
    pub(crate) moved_at: Option<u64>,
    /// What the move took, if it was made for this response.
    pub(crate) set_up: Option<Duration>,
    /// What cut the response short.
    pub(crate) aborted: Option<&'a dyn Display>,
}

impl<'a> Exchange<'a> {
    /// Begins with a request whose head is complete. `None`: it could not be read, and is for the default site.
    pub(crate) fn begin(shared: &'a Shared, generation: &'a Generation, request: Option<&Request<'_>>) -> Self {
        let counted = metrics::worker();
        let is_timed = shared.access_log.is_on() || counted.is_some();
        Exchange {
            shared,
            generation,
            site: generation.sites.find(request.and_then(|request| request.authority)),
            counted,
            started: is_timed.then(Instant::now),
        }
    }

    /// Counts the request against the limits of its site, and paces the connection as the site wants it. `permit`: what the connection has
    /// taken of its sites' limits.
    pub(crate) fn admit(&self, peer: SocketAddr, permit: &mut Permit, socket: &Socket) -> Option<Refusal> {
        let limits = self.site.and_then(|site| site.limits.as_ref());
        permit.admit(limits, address(peer), socket).err()
    }

    /// Answers the request. `refusal`: what [`Self::admit`] said. `now` is the value of Date.
    pub(crate) async fn answer(
        &self,
        request: &Request<'_>,
        peer: Peer,
        refusal: Option<Refusal>,
        now: HttpTime,
    ) -> Response {
        let response = match self.site {
            // The connection may have been made for another site, which asked its clients for something else.
            Some(site) if site.client_auth.as_ref().is_none_or(|auth| peer.auth == Some(auth.id())) => {
                let client = Client { address: address(peer.address), refusal };
                site::answer(site, request, client, now).await
            }
            _ => self.generation.sites.plain(Status::MISDIRECTED_REQUEST),
        };
        if let (Some(worker), Target::Path { path, .. }) = (self.counted, request.target) {
            worker.asked_for(path, response.body.len().unwrap_or(0));
        }
        if let Some(cause) = &response.cause {
            let target = request.raw_target.escape_default();
            tracing::warn!("{}: {target}: answered {}: {cause}", peer.address, response.status);
        }
        response
    }

    /// The response to a request that cannot be answered, because it, or its content, could not be read.
    pub(crate) async fn refuse(&self, status: Status) -> Response {
        match self.site {
            Some(site) => site::refuse(site, status).await,
            None => self.generation.sites.plain(status),
        }
    }

    /// Writes the request's line and counts it. `request` with its protocol, for instance `HTTP/1.1`; `None`: it could not be read.
    pub(crate) fn finish(
        &self,
        request: Option<(&Request<'_>, &'static str)>,
        peer: SocketAddr,
        tls: &HandshakeInfo,
        outcome: &Outcome<'_>,
    ) {
        let Some(started) = self.started else { return };
        let took = started.elapsed();
        if let Some(worker) = self.counted {
            let Outcome { reason, wire, set_up, .. } = *outcome;
            worker.sent(Sent { status: outcome.status.code(), why: reason, bytes: wire, took, set_up });
        }
        let silent = request.is_some() && self.site.is_some_and(|site| !site.access_log);
        if self.shared.access_log.is_on() && !silent {
            self.shared.access_log.write(&Entry {
                peer,
                request: request.map(|(request, protocol)| Requested {
                    request,
                    protocol,
                    site: self.site.map_or("", |site| &site.name),
                }),
                user: outcome.user,
                status: outcome.status.code(),
                body: outcome.body,
                encoding: outcome.encoding,
                duration: took,
                tls,
                path: outcome.path,
                why: outcome.reason,
                moved_at: outcome.moved_at,
                set_up: outcome.set_up,
                aborted: outcome.aborted,
            });
        }
    }
}

/// The address of a client; `None` over a Unix socket.
fn address(peer: SocketAddr) -> Option<IpAddr> {
    Some(peer.ip()).filter(|address| !address.is_unspecified())
}
