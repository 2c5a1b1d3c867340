//! One request of any protocol: admit, route, answer, log, count.
//!
//! The driver of a protocol reads requests from streams and sends responses on them. The steps in between are the same for all protocols.
//!
//! ```text
//! driver ─► Exchange::begin ─► admit ─► answer_at_once ─────────────────────────────► answered ─► [driver: head, body] ─► finish ─► access log, metrics
//!                                             └─ it may wait ─► inbound ─► site::answer ──┘
//! ```
//!
//! A driver has two seams, both generic: the layer below it implements [`Connection`], and the driver implements [`Stream`]. An exchange owes a line in the
//! access log. [`Exchange::finish`] writes it once, and an exchange that is dropped without it writes one that says so.

mod clock;
mod connection;
mod context;
mod error;
mod forwarded;
mod generation;
mod head_blocks;
mod listener;
mod multiplexed;
mod outcome;
mod passing;
mod path_choice;
mod receiving;
mod relay;
mod relayed;
mod relayed_answer;
mod shared;
mod stream;
mod upload;

use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Instant;

use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::Version;
use sealion_http::{ExtraFields, HttpTime, Method, Protocol, Request, Status, Target};

use crate::limits::{Closing, Idle, Moment, Pace, Permit, Place, Refusal, SiteLimits};
pub(crate) use crate::observe::access_log::Outcome;
use crate::observe::metrics;
use crate::observe::traces::Span;
use crate::placeholders::Template;
use crate::response::{Body, Response};
use crate::site::{self, Arrival, Client, LimitedBy, Site, plain_http};
use crate::upstream::{Inbound, Interim, interim_responses};
use context::{address, endpoints};

pub(crate) use clock::now;
pub(crate) use connection::Connection;
pub(crate) use context::{Context, Peer};
pub(crate) use error::{Cut, Error};
pub(crate) use forwarded::Forwarding;
pub(crate) use generation::{Current, Generation, Generations, Http3Limits};
pub(crate) use head_blocks::HeadBlocks;
pub(crate) use listener::{Alternative, Listener, Scheme, ToHttps};
pub(crate) use multiplexed::{
    Answer, Answered, Answering, Answers, Delivery, Later, MAX_AHEAD_STREAMS, Step, UpstreamSide, Wait, free_head,
    keep_head,
};
pub(crate) use passing::{Duty, LostConnection, Passed, pass, thaw};
pub(crate) use path_choice::{PathChoice, PathPolicy};
pub(crate) use receiving::{MAX_BEHIND_THE_LAST, Receiving, may_keep};
pub(crate) use relay::{Feed, Home, RequestSide};
pub(crate) use relayed::{ContentRest, Demand, RelayedAnswer, RelayedContent, RelayedSource, fields};
pub(crate) use relayed_answer::feed_answer;
pub(crate) use shared::Shared;
pub(crate) use stream::{Awaited, Stream};
pub(crate) use upload::Upload;

/// One request, from the end of its head to its line in the access log. A connection can have any number in progress.
pub(crate) struct Exchange<'c, 'r> {
    generation: &'r Generation,
    /// `None`: it could not be read.
    request: Option<&'r Request<'r>>,
    /// The site for the request; the default site if the request could not be read.
    site: Option<&'r Site>,
    owed: Owed<'c>,
}

/// The part of an exchange that stays while the head of its request is kept elsewhere. It owes a line in the access log.
pub(crate) struct Owed<'c> {
    context: &'c Context<'c>,
    peer: Peer,
    /// The index of the site within its generation.
    site: Option<usize>,
    /// The limit that the client exceeds.
    refusal: Option<Refusal>,
    /// The route whose limits count the request. `None`: it was not admitted yet.
    limited_by: Option<LimitedBy>,
    /// Among the requests in progress that limits count.
    places: Box<[Place]>,
    /// `None`: neither access log nor metrics are on, or the line is written.
    started: Option<Started>,
    /// Whether another process writes the line, where it may. `None`: it stays here.
    duty: Option<Duty>,
}

/// The beginning of an exchange.
struct Started {
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
    /// Not at all: idle, it passes to the process that has taken over.
    Passing,
    /// Not here: it has passed to that process, or was lost on its way.
    Passed,
}

/// Waits for the end of an idle connection: timed out, drained, passed on, or evicted. An eviction is taken back while the client has not taken all that
/// was sent to it: that would be lost with the connection.
pub(crate) fn poll_idle_end(connection: &mut impl Connection, idle: &mut Idle<'_>) -> Poll<End> {
    if idle.rests() {
        connection.rest();
    }
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
        Closing::Passing => Poll::Ready(End::Passing),
    }
}

impl<'c> Owed<'c> {
    /// Whether the line is still to be written.
    pub(crate) fn is_owed(&self) -> bool {
        self.started.is_some() && !self.duty.as_ref().is_some_and(Duty::has_left)
    }

    /// Takes the duty to write the line.
    pub(crate) fn take(&mut self) -> Self {
        let places = std::mem::take(&mut self.places);
        Owed { started: self.started.take(), duty: self.duty.take(), places, ..*self }
    }
}

impl<'c, 'r> Exchange<'c, 'r> {
    /// Begins an exchange when the head of a request is complete. `None`: the request could not be read; the default site answers.
    pub(crate) fn begin(
        context: &'c Context<'c>,
        generation: &'r Generation,
        peer: Peer,
        request: Option<&'r Request<'r>>,
    ) -> Self {
        let Context { shared, listener, remote, .. } = *context;
        let is_timed = shared.access_log.is_on() || metrics::worker().is_some();
        let started = is_timed.then(|| {
            let span = shared.tracer.as_ref().zip(request);
            let span = span.and_then(|(tracer, request)| tracer.begin(request, listener.trusts(remote), peer.scheme));
            Started { at: Instant::now(), span: span.map(Arc::new) }
        });
        let site = generation.sites.place(request.and_then(|request| request.authority), listener.place);
        Self::resume(
            generation,
            request,
            Owed { context, peer, site, refusal: None, limited_by: None, places: Box::default(), started, duty: None },
        )
    }

    /// The exchange that was parked while the head of its request was kept elsewhere. `generation`: as before.
    pub(crate) fn resume(generation: &'r Generation, request: Option<&'r Request<'r>>, owed: Owed<'c>) -> Self {
        let site = owed.site.and_then(|place| generation.sites.at(place));
        Exchange { generation, request, site, owed }
    }

    /// Lets go of the request, for [`Self::resume`].
    pub(crate) fn park(mut self) -> Owed<'c> {
        self.owed.take()
    }

    /// Whether [`Self::finish`] needs the request.
    pub(crate) fn describes_request(&self) -> bool {
        self.owed.context.shared.access_log.is_on() || self.span().is_some_and(|span| span.is_sampled())
    }

    fn span(&self) -> Option<&Arc<Span>> {
        self.owed.started.as_ref()?.span.as_ref()
    }

    /// The inputs to the choice of path.
    pub(crate) fn path_policy(&self) -> PathPolicy<'c> {
        self.owed.context.shared.path_policy(self.generation.ktls)
    }

    /// Counts the request against the limits of its site, and applies the site's pacing to the connection. `permit`: the connection's share of its
    /// sites' limits.
    pub(crate) fn admit(&mut self, permit: &mut Permit, connection: &impl Connection) {
        self.owed.limited_by = self.limited_by();
        let (limits, client) = (self.limits(), address(self.owed.peer.address));
        let value = |key: &Template| self.site?.limit_value(key, self.request?, self.client());
        let admitted = permit.admit(limits, client, limits.and_then(SiteLimits::key).and_then(value).as_deref());
        let places = limits.filter(|_| admitted.is_ok()).map(|limits| limits.enter(client, value));
        match admitted {
            Ok(None) => {}
            Ok(Some(rate)) => connection.pace(rate),
            Err(refusal) => self.owed.refusal = Some(refusal),
        }
        match places {
            None => {}
            Some(Ok(places)) => self.owed.places = places,
            Some(Err(refusal)) => self.owed.refusal = Some(refusal),
        }
    }

    /// The site that answers the request: see [`Context::route`]. `None`: the response is [`Self::misdirected`].
    pub(crate) fn route(&self) -> Option<&'r Site> {
        let Owed { context, peer, .. } = &self.owed;
        let authority = self.request.and_then(|request| request.authority);
        let answers = |site: &&Site| {
            let permits =
                context.permits(site, peer.protocol) || self.is_validation() && context.may_serve(site, peer.protocol);
            permits && context.covers(self.generation, authority)
        };
        self.site.filter(answers)
    }

    /// Whether it may be the validation of a certificate that another program ordered: the site answers it where others are redirected.
    fn is_validation(&self) -> bool {
        self.request.is_some_and(|request| match request.target {
            Target::Path { path, .. } => plain_http::is_validation(path),
            Target::Asterisk => false,
        })
    }

    /// The response to a request that no site answers on this connection (RFC 9110 §15.5.20).
    fn misdirected(&self) -> Response {
        Response { is_unannounced: self.is_on_tcp(), ..self.plain(Status::MISDIRECTED_REQUEST) }
    }

    /// Whether no response of the site announces HTTP/3.
    fn is_on_tcp(&self) -> bool {
        self.site.is_some_and(|site| !site.http3)
    }

    /// A response where no site shows anything of itself.
    fn plain(&self, status: Status) -> Response {
        self.generation.sites.plain(status, self.owed.context.listener.place)
    }

    /// The redirect of a listener without TLS to a site with TLS.
    ///
    /// Strict-Transport-Security is not sent: browsers ignore it here (RFC 6797 §7.2).
    fn redirect_to_https(&self) -> Option<Response> {
        let Context { listener, .. } = *self.owed.context;
        let port = listener.redirects(self.site?.https)?;
        let request = self.request?;
        let status = match (request.target, request.authority) {
            // Any host could be named, and the client be led there.
            (_, Some(authority)) if !self.generation.sites.has_name(Some(authority), listener.place) => {
                Status::MISDIRECTED_REQUEST
            }
            (Target::Path { path, query }, Some(authority)) => {
                let mut response = self.plain(Status::PERMANENT_REDIRECT);
                response.fields.location = Some(plain_http::over_https(authority, port, path, query));
                return Some(response);
            }
            // A request of HTTP/1.0 without Host has no other address.
            _ => Status::BAD_REQUEST,
        };
        Some(self.plain(status))
    }

    /// The response to a validation request of a certificate authority on a listener without TLS, if the request is expected.
    pub(crate) fn challenge(&self) -> Option<Response> {
        let Context { shared, listener, .. } = self.owed.context;
        let Target::Path { path, .. } = self.request.filter(|_| !listener.is_tls)?.target else { return None };
        let authorization = shared.tls.http.answer(path.strip_prefix(plain_http::CHALLENGES)?)?;
        Some(plain_http::of_challenge(authorization))
    }

    /// The response, if no step on the way to it may wait. `None`: [`Self::answer`] makes it.
    pub(crate) fn answer_at_once(&self, stream: &impl Stream, now: HttpTime) -> Option<Response> {
        let (Some(site), Some(request)) = (self.route(), self.request) else {
            return Some(self.redirect_to_https().unwrap_or_else(|| self.misdirected()));
        };
        if stream.is_connect() {
            return None;
        }
        let Context { listener, remote, .. } = *self.owed.context;
        // The cache itself leaves out requests that ask for another protocol.
        let is_plain = site.has_proxies() && !stream.has_content();
        let arrival = is_plain.then(|| Arrival { scheme: self.owed.peer.scheme, is_trusted: listener.trusts(remote) });
        site::answer_at_once(site, request, Client { arrival, ..self.client() }, now)
    }

    /// Prepares [`Self::answer`]: sends early hints, and gathers the facts about the request for an upstream.
    pub(crate) fn inbound(&self, stream: &mut impl Stream, now: HttpTime) -> Inbound {
        let (Some(site), Some(request)) = (self.route(), self.request) else { return Inbound::default() };
        let Owed { context, peer, .. } = self.owed;
        if stream.takes_interim()
            && !stream.is_connect()
            && let Some(links) = site::early_hints(site, request, self.client(), now)
        {
            let mut fields = ExtraFields::default();
            links.iter().for_each(|link| fields.add("Link", link));
            stream.interim(&Interim { status: Status::EARLY_HINTS, fields });
        }
        let awaited = match site.may_forward(request) {
            true => Awaited::Upstream,
            false if site.asks() => Awaited::Consent,
            false => Awaited::None,
        };
        let passes_interim = awaited == Awaited::Upstream && stream.takes_interim() && site.passes_interim(request);
        let (interim, interims) = passes_interim.then(interim_responses).unzip();
        let endpoints = site.names_endpoints().then(|| endpoints(peer.address, stream.connection())).flatten();
        let span = self.span().cloned();
        let inbound = Inbound { interim, endpoints, span, ..context.inbound(request, peer) };
        stream.attach(inbound, awaited, interims)
    }

    /// The route that limits the request.
    #[inline]
    fn limited_by(&self) -> Option<LimitedBy> {
        Some(self.site?.limited_by(self.request?, || self.client()))
    }

    /// The limits of the route.
    #[inline]
    fn limits(&self) -> Option<&'r SiteLimits> {
        self.site?.limits(self.owed.limited_by.or_else(|| self.limited_by())?)
    }

    /// The client as the site sees it.
    fn client(&self) -> Client {
        let Owed { context, peer, refusal, .. } = self.owed;
        let (address, remote) = (address(peer.address), address(context.remote));
        Client { address, remote, refusal, arrival: None, is_plain: peer.is_plain() }
    }

    /// Whether the response needs no descriptor: a refusal or a redirect, whose error page is left out.
    pub(crate) fn is_refused_or_redirected(&self, now: HttpTime) -> bool {
        let (Some(site), Some(request)) = (self.route(), self.request) else { return true };
        site::is_refused_or_redirected(site, request, self.client(), now)
    }

    /// The response that the site makes. It may wait: for a disk, a password, an upstream.
    pub(crate) async fn answer(&self, inbound: Inbound, now: HttpTime) -> Box<Response> {
        match (self.route(), self.request) {
            (Some(site), Some(request)) => site::answer(site, request, self.client(), now, inbound).await,
            _ => self.misdirected().into(),
        }
    }

    /// The response to CONNECT with a protocol, and whether it opens the tunnel. 101 says so to GET, as sites see the request, and becomes the 2xx that
    /// says so to CONNECT. Another 2xx becomes 501: the client would take it for a tunnel.
    pub(crate) async fn answered_connect(&self, mut response: Box<Response>) -> (Box<Response>, bool) {
        let is_open = response.status == Status::SWITCHING_PROTOCOLS;
        if is_open {
            response.status = Status::OK;
            response.fields.extra.remove("Upgrade");
            // The reply to a key that the client did not send.
            response.fields.extra.remove("Sec-WebSocket-Accept");
        } else if (200..300).contains(&response.status.code()) {
            response = Box::pin(self.refuse_instead(*response, Status::NOT_IMPLEMENTED)).await.into();
        }
        (response, is_open)
    }

    /// The refusal instead of a response that cannot be sent.
    pub(crate) async fn refuse_instead(&self, response: Response, status: Status) -> Response {
        let Response { user, upstream, cache, .. } = response;
        Response { user, upstream, cache, ..self.refuse(status).await }
    }

    /// The response to a request that could not be read, or whose content could not. A site whose client authentication the connection did not
    /// pass shows nothing of itself.
    pub(crate) async fn refuse(&self, status: Status) -> Response {
        let mut response = match self.route() {
            Some(site) => site::refuse(site, status).await,
            None => self.plain(status),
        };
        self.owed.peer.keep_to_scheme(&mut response);
        response.is_unannounced |= self.is_on_tcp();
        response
    }

    /// Makes a response ready to be sent: logs the error behind it, adapts it to the scheme of the request, and has the site's bandwidth pace its
    /// content.
    pub(crate) fn answered(&self, response: &mut Response) -> ResponseFraming {
        let (peer, method) = (self.owed.peer, self.request.map_or(Method::Get, |request| request.method));
        let framing = self.framing(method, response);
        peer.keep_to_scheme(response);
        response.is_unannounced |= self.is_on_tcp();
        let own = response.rate.map(Pace::of_response);
        let of_site = self.limits().and_then(|limits| limits.pace(address(peer.address)));
        for pace in own.into_iter().chain(of_site) {
            response.body = std::mem::replace(&mut response.body, Body::Empty).paced(pace);
        }
        if let (Some(cause), Some(request)) = (&response.cause, self.request) {
            let target = request.raw_target.escape_default();
            tracing::warn!("{}: {target}: answered {}: {cause}", peer.address, response.status);
        }
        framing
    }

    /// The framing of a response, by the rules of HTTP/1. Later versions frame content by themselves, but announce and omit it by the same rules
    /// (RFC 9113 §8.1).
    pub(crate) fn framing(&self, method: Method<'_>, response: &Response) -> ResponseFraming {
        let version = match self.owed.peer.protocol {
            Protocol::Http10 => Version::Http10,
            Protocol::Http11 | Protocol::Http2 | Protocol::Http3 => Version::Http11,
        };
        ResponseFraming::of(version, method, response.status, response.body.len())
    }
}

#[cfg(test)]
#[path = "stub_tests.rs"]
mod tests;
