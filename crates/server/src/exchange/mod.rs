//! One request of any protocol: route, admit, answer, log, count.
//!
//! The driver of a protocol reads requests and sends responses. The steps in between are the same for all protocols.
//!
//! ```text
//! driver ─► Exchange::begin ─► route ─► site::answer ─► [driver: choose the path, write the head, send the body] ─► finish ─► access log, metrics
//! ```

mod clock;
mod connection;
mod error;
mod forwarded;
mod generation;
mod path_choice;
mod shared;

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use sealion_http::{Coding, FieldSection, Protocol, Request, Status, Target};
use sealion_tls::{ClientAuthId, HandshakeInfo, SealedBy};
use serde::{Deserialize, Serialize};

use crate::limits::{Closing, Idle, Moment, Permit, Refusal};
use crate::observe::access_log::{CacheTrace, Entry, Requested, SiteLog, UpstreamTrace};
use crate::observe::metrics::{self, Sent, SiteNumber, WorkerMetrics};
use crate::observe::traces::{Ended, Span};
use crate::path::policy::PathReason;
use crate::response::{Body, Response};
use crate::site::plain_http::{self, PlainResponse};
use crate::site::{self, Site};
use crate::upstream::Endpoints;

pub(crate) use clock::now;
pub(crate) use connection::Connection;
pub(crate) use error::{Cut, Error};
pub(crate) use forwarded::Forwarding;
pub(crate) use generation::{Current, Generation, Generations};
pub(crate) use path_choice::{PathChoice, PathPolicy};
pub(crate) use shared::Shared;

/// One request, from the end of its head to its access log line. A connection can have any number in progress.
pub(crate) struct Exchange<'a> {
    shared: &'a Shared,
    generation: &'a Generation,
    /// The site for the request; the default site if the request could not be parsed.
    site: Option<&'a Site>,
    worker_metrics: Option<&'static WorkerMetrics>,
    /// `None`: neither access log nor metrics are on.
    started: Option<Started>,
}

/// The beginning of an exchange.
#[derive(Clone)]
pub(crate) struct Started {
    /// When the head of the request was complete.
    at: Instant,
    /// `None`: there is no tracer, or the request could not be read.
    span: Option<Arc<Span>>,
}

/// How a connection ends in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With its last response, by the client, or after a timeout.
    Usual,
    /// Idle, to make room for a new connection.
    Evicted,
}

/// A listener, as the requests of its connections see it.
#[derive(Debug)]
pub(crate) struct Listener {
    /// Its address, as configured.
    pub(crate) name: Box<str>,
    /// `None`: the client is the remote end of the connection.
    pub(crate) forwarding: Option<Forwarding>,
    /// Whether its connections have TLS.
    pub(crate) is_tls: bool,
    /// Whether the PROXY protocol names the clients of its connections.
    pub(crate) has_proxy_protocol: bool,
    /// The scheme of requests without TLS, unless a trusted proxy names another: TLS may end at a proxy that names none.
    pub(crate) scheme: Scheme,
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
    fn as_str(self) -> &'static str {
        match self {
            Self::Http => HTTP,
            Self::Https => "https",
        }
    }
}

/// The scheme of requests without TLS on their whole way.
const HTTP: &str = "http";

impl Listener {
    /// Whether the other end of a connection is a trusted proxy.
    pub(crate) fn trusts(&self, remote: SocketAddr) -> bool {
        self.forwarding.as_ref().is_some_and(|forwarding| forwarding.trusts(remote.ip()))
    }

    /// The address to which the limits of one client apply on a connection from `peer`. `None`: clients of a Unix socket have no address, and those
    /// behind a proxy share one.
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

    /// Whether X-Forwarded-Proto and X-Forwarded-Host are those of a trusted proxy. One that names clients in Forwarded may pass on what these sent.
    pub(crate) fn takes_x_forwarded(&self, remote: SocketAddr) -> bool {
        self.trusts(remote) && self.forwarding.as_ref().is_some_and(|forwarding| !forwarding.is_forwarded())
    }

    /// The scheme of requests for which no trusted proxy names one.
    pub(crate) fn own_scheme(&self) -> &'static str {
        if self.is_tls { Scheme::Https.as_str() } else { self.scheme.as_str() }
    }

    /// The scheme of a request with these fields, on a connection from `peer`: without TLS, a trusted proxy may say that it has it.
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

/// What the connection says of the client of a request.
#[derive(Clone, Copy)]
pub(crate) struct Peer {
    /// The client's address; unspecified over a Unix socket.
    pub(crate) address: SocketAddr,
    /// The client authentication that the handshake enforced.
    pub(crate) auth: Option<ClientAuthId>,
    pub(crate) protocol: Protocol,
    /// The scheme of the request.
    pub(crate) scheme: &'static str,
}

impl Peer {
    /// The client as the site sees it, with `refusal` and `arrival` unset: the driver sets them.
    pub(crate) fn to_site_client(self) -> site::Client {
        site::Client { address: address(self.address), refusal: None, arrival: None, is_plain: self.scheme == HTTP }
    }

    /// Removes the field that must not be sent without TLS (RFC 6797 §7.2).
    fn keep_to_scheme(&self, response: &mut Response) {
        if self.scheme == HTTP {
            response.fields.extra.remove("strict-transport-security");
        }
    }
}

/// The result of sending a response, for log and metrics.
pub(crate) struct Outcome<'a> {
    pub(crate) status: Status,
    /// The Content-Encoding of the body.
    pub(crate) encoding: Option<Coding>,
    /// The authenticated user.
    pub(crate) user: Option<&'a str>,
    /// Bytes of the body that were sent.
    pub(crate) body: u64,
    /// Bytes that were sent, including head and framing.
    pub(crate) wire: u64,
    /// The number of its stream of HTTP/2.
    pub(crate) stream: Option<u64>,
    /// The path that sealed the response.
    pub(crate) path: SealedBy,
    /// The reason for the path. `None`: the connection was lost before the choice.
    pub(crate) reason: Option<PathReason>,
    /// Response bytes that the connection had sent when it moved into the kernel, if it did.
    pub(crate) moved_at: Option<u64>,
    /// Duration of the move, if it was made for this response.
    pub(crate) set_up: Option<Duration>,
    /// The server that the request was forwarded to.
    pub(crate) upstream: Option<&'a UpstreamTrace>,
    /// What the cache did with the request.
    pub(crate) cache: Option<CacheTrace>,
    /// The error that cut the response short.
    pub(crate) aborted: Option<&'a dyn Display>,
    /// Whether the access log has no line for it.
    pub(crate) is_unlogged: bool,
}

impl<'a> Outcome<'a> {
    /// Of `response`, of which `body` and `wire` bytes were sent by `path`, as `choice` has it.
    pub(crate) fn of(
        response: &'a Response,
        (body, wire): (u64, u64),
        path: SealedBy,
        choice: &PathChoice,
        aborted: Option<&'a dyn Display>,
    ) -> Self {
        Outcome {
            status: response.status,
            encoding: response.fields.content_encoding,
            user: response.user.as_deref(),
            body,
            wire,
            stream: None,
            path,
            reason: choice.reason,
            moved_at: choice.moved_at,
            set_up: choice.set_up,
            upstream: response.upstream.as_deref(),
            cache: response.cache,
            aborted,
            is_unlogged: response.is_unlogged,
        }
    }
}

/// Waits for the end of an idle connection: timed out, drained, or evicted. An eviction is taken back while the client has not taken all that
/// was sent to it: that would be lost with the connection.
pub(crate) fn poll_idle_end(connection: &impl Connection, idle: &mut Idle<'_>) -> Poll<End> {
    match ready!(idle.poll_closing(Moment::now)) {
        Closing::Evicted if connection.has_undelivered() => {
            idle.postpone(Moment::now());
            Poll::Pending
        }
        Closing::Evicted => Poll::Ready(End::Evicted),
        Closing::TimedOut => {
            metrics::timed_out(metrics::Deadline::Idle);
            Poll::Ready(End::Usual)
        }
        Closing::Draining => Poll::Ready(End::Usual),
    }
}

impl<'a> Exchange<'a> {
    /// Begins an exchange when the head of a request is complete. `None`: the request could not be parsed; the default site
    /// answers. `listener`: that of the connection, whose other end is `remote`.
    pub(crate) fn begin(
        shared: &'a Shared,
        generation: &'a Generation,
        listener: &Listener,
        remote: SocketAddr,
        request: Option<&Request<'_>>,
    ) -> Self {
        let is_timed = shared.access_log.is_on() || metrics::worker().is_some();
        let started = is_timed.then(|| {
            let span = shared.tracer.as_ref().zip(request).and_then(|(tracer, request)| {
                tracer.begin(request, listener.trusts(remote), listener.scheme(remote, request.fields))
            });
            Started { at: Instant::now(), span: span.map(Arc::new) }
        });
        Self::resume(shared, generation, listener, request, started)
    }

    /// The exchange of a request that was kept aside after [`Self::begin`], at `started`, while others went on. `generation`: as then.
    pub(crate) fn resume(
        shared: &'a Shared,
        generation: &'a Generation,
        listener: &Listener,
        request: Option<&Request<'_>>,
        started: Option<Started>,
    ) -> Self {
        let site = generation.sites.find(request.and_then(|request| request.authority), &listener.name);
        Exchange { shared, generation, site, worker_metrics: metrics::worker(), started }
    }

    /// The beginning, for [`Self::resume`].
    pub(crate) fn started(&self) -> Option<Started> {
        self.started.clone()
    }

    /// The span of the request, for those that it is forwarded to.
    pub(crate) fn span(&self) -> Option<Arc<Span>> {
        self.started.as_ref()?.span.clone()
    }

    /// Whether [`Self::finish`] needs the request.
    pub(crate) fn describes_request(&self) -> bool {
        let is_sampled =
            || self.started.as_ref().and_then(|started| started.span.as_ref()).is_some_and(|span| span.is_sampled());
        self.shared.access_log.is_on() || is_sampled()
    }

    /// Counts the request against the limits of its site, and applies the site's pacing to the connection. `permit`: the
    /// connection's share of its sites' limits.
    pub(crate) fn admit(
        &self,
        request: &Request<'_>,
        peer: Peer,
        permit: &mut Permit,
        connection: &impl Connection,
    ) -> Option<Refusal> {
        let limits = self.site.and_then(|site| site.limits(request, peer.to_site_client()));
        let rate = match permit.admit(limits, address(peer.address)) {
            Ok(rate) => rate,
            Err(refusal) => return Some(refusal),
        };
        if let Some(rate) = rate {
            connection.pace(rate);
        }
        None
    }

    /// The site that answers the request: its [`site::answer`] makes the response. `None`: no site has the name on this listener, or the
    /// connection was opened for another site with other client authentication, or with HTTP/2; the response is [`Self::misdirected`].
    pub(crate) fn route(&self, peer: Peer) -> Option<&'a Site> {
        let has_shown = |site: &Site| site.client_auth.as_ref().is_none_or(|auth| peer.auth == Some(auth.id()));
        self.site.filter(|site| has_shown(site) && (site.http2 || peer.protocol != Protocol::Http2))
    }

    /// The response to a request that no site answers on this connection (RFC 9110 §15.5.20).
    pub(crate) fn misdirected(&self) -> Response {
        self.generation.sites.plain(Status::MISDIRECTED_REQUEST)
    }

    /// The answer to the validation of a certificate authority that a listener without TLS receives, if it is one that is expected.
    pub(crate) fn challenge(&self, request: &Request<'_>) -> Option<Response> {
        let Target::Path { path, .. } = request.target else { return None };
        let authorization = self.shared.tls.http.answer(path.strip_prefix(plain_http::CHALLENGES)?)?;
        let PlainResponse { status, fields, content } = PlainResponse::of_challenge(authorization);
        Some(Response::new(status, fields, Body::Bytes(content)))
    }

    /// Logs the error behind the response, adapts it to the scheme of the request, and has the site's bandwidth pace its content.
    pub(crate) fn answered(&self, request: &Request<'_>, peer: Peer, response: &mut Response) {
        peer.keep_to_scheme(response);
        let limits = self.site.and_then(|site| site.limits(request, peer.to_site_client()));
        if let Some(pace) = limits.and_then(|limits| limits.pace(address(peer.address))) {
            response.body = std::mem::replace(&mut response.body, Body::Empty).paced(pace);
        }
        if let Some(cause) = &response.cause {
            let target = request.raw_target.escape_default();
            tracing::warn!("{}: {target}: answered {}: {cause}", peer.address, response.status);
        }
    }

    /// The response to a request that could not be read, or whose content could not. A site whose client authentication the connection did not
    /// pass shows nothing of itself.
    pub(crate) async fn refuse(&self, peer: Peer, status: Status) -> Response {
        let mut response = match self.route(peer) {
            Some(site) => site::refuse(site, status).await,
            None => self.generation.sites.plain(status),
        };
        peer.keep_to_scheme(&mut response);
        response
    }

    /// Why a response is dropped before its end.
    pub(crate) fn cut(&self) -> Cut {
        Cut::of(self.shared)
    }

    /// Writes the access log line and updates the metrics. `request`: with its protocol; `None`: it could not be parsed.
    pub(crate) fn finish(
        &self,
        request: Option<(&Request<'_>, Protocol)>,
        peer: SocketAddr,
        tls: Option<&HandshakeInfo>,
        outcome: &Outcome<'_>,
    ) {
        let Some(started) = &self.started else { return };
        let ended = Instant::now();
        let took = ended - started.at;
        if let Some(worker) = self.worker_metrics {
            let Outcome { reason, wire, set_up, .. } = *outcome;
            let number = self.site.map_or(SiteNumber::NONE, |site| site.number);
            worker.sent(Sent { status: outcome.status.code(), why: reason, bytes: wire, took, set_up, site: number });
            if let Some(cache) = outcome.cache {
                worker.reused[cache.outcome as usize].add(1);
                worker.reused_bytes[cache.outcome as usize].add(outcome.body);
                worker.collapsed.add(u64::from(cache.reason == Some(CacheTrace::COLLAPSED)));
            }
            if let Some((Request { target: Target::Path { path, .. }, .. }, _)) = request {
                let site = self.site.filter(|_| self.generation.sites.are_several()).map_or("", |site| &site.name);
                worker.asked_for(site, path, outcome.body);
            }
        }
        if let (Some(tracer), Some(span), Some((request, protocol))) = (&self.shared.tracer, &started.span, request)
            && span.is_sampled()
        {
            let (status, aborted) = (outcome.status.code(), outcome.aborted);
            let upstream = outcome.upstream.map(|upstream| &*upstream.server);
            let ended = Ended { request, protocol, client: peer, status, took, upstream, aborted };
            if !tracer.end(span, &ended) {
                self.shared.metrics.otlp_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        if outcome.is_unlogged {
            return;
        }
        // What could not be read is no request to a site.
        let log = self.site.filter(|_| request.is_some()).map_or(SiteLog::Common, |site| site.log);
        if let Some(log) = self.shared.access_log.of(log) {
            log.write(&Entry {
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
                stream: outcome.stream,
                duration: took,
                ended,
                tls,
                path: outcome.path,
                why: outcome.reason,
                moved_at: outcome.moved_at,
                set_up: outcome.set_up,
                upstream: outcome.upstream,
                cache: outcome.cache,
                aborted: outcome.aborted,
            });
        }
    }
}

/// The ends of a client's connection; `None` over a Unix socket.
pub(crate) fn endpoints(client: SocketAddr, connection: &impl Connection) -> Option<Box<Endpoints>> {
    address(client)?;
    let local = connection.local_address()?;
    Some(Box::new(Endpoints { client, local }))
}

/// The address of a client; `None` over a Unix socket.
pub(crate) fn address(peer: SocketAddr) -> Option<IpAddr> {
    Some(peer.ip()).filter(|address| !address.is_unspecified())
}
