//! An exchange whose response goes on in another process: that one writes the line in the access log.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use sealion_http::{Fields, Protocol, Request, Status};
use sealion_tls::{Frozen, HandshakeInfo, NotFrozen, SealedBy, TlsStream};

use super::{
    Answered, Context, Delivery, Exchange, Generation, Later, Outcome, Owed, PathChoice, Peer, Shared, Started,
};
use crate::limits::Permit;
use crate::observe::metrics;
use crate::passing::{
    Cache, Driver, Giver, Line, Offered, Passes, Refused, Resting, StreamUnderWay, UnderWay, Upstream,
};
use crate::response::{Body, Response};

/// The outcome for a connection that was offered to the process that has taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The other process serves it: what is left of the stream has no socket.
    Taken,
    /// It was refused, and goes on here unchanged.
    Stays,
    /// It is closed.
    Lost,
}

/// Offers a connection, whose turn it is, to the process that has taken over.
pub(crate) async fn pass(stream: &mut TlsStream, resting: &Resting, giver: &Giver, shared: &Shared) -> Passed {
    let (head, files) = (resting.to_bytes(), resting.files());
    let (socket, frozen) = match stream.freeze() {
        Ok(parts) => parts,
        Err(NotFrozen::NotAtRest(_)) => {
            giver.stays(Refused::Busy);
            return Passed::Stays;
        }
        Err(error @ NotFrozen::Lost(_)) => {
            tracing::warn!("{}: closed: {error}", resting.peer);
            return Passed::Lost;
        }
    };
    let refused = giver.offer(Offered { head, files, socket, frozen }).await;
    let Some(Offered { socket, frozen, .. }) = refused else { return Passed::Taken };
    match thaw(socket, frozen, resting.peer, shared) {
        Some(thawed) => {
            *stream = thawed;
            Passed::Stays
        }
        None => Passed::Lost,
    }
}

/// Continues a connection that was taken apart, here or in another process. `None`: it is closed.
pub(crate) fn thaw(socket: OwnedFd, frozen: Frozen, peer: SocketAddr, shared: &Shared) -> Option<TlsStream> {
    let bounds = Arc::clone(&shared.generations.current().tls.bounds);
    match TlsStream::thaw(socket, frozen, &bounds) {
        Ok(mut stream) => {
            if let Some(worker) = metrics::worker() {
                stream.report_progress(&worker.progress);
            }
            Some(stream)
        }
        Err(error) => {
            tracing::warn!("{peer}: closed on its way from one process to another: {error}");
            None
        }
    }
}

/// A connection that was lost on its way to another process.
pub(crate) struct LostConnection<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) tls: Option<&'a HandshakeInfo>,
    pub(crate) path: SealedBy,
    /// Bytes of its responses.
    pub(crate) sent: u64,
}

/// Why its responses are incomplete.
const LOST: &str = "the connection was lost on its way to another process";

impl LostConnection<'_> {
    /// Writes the lines of the exchanges that were packed.
    pub(crate) fn finish(&self, driver: Driver) {
        match driver {
            Driver::Http1(Some(under_way)) => self.finish_response(*under_way),
            Driver::Http2(_, Some(streams)) => {
                streams.responses.into_iter().for_each(|response| self.finish_stream(response));
            }
            Driver::Http1(None) | Driver::Http2(_, None) => {}
        }
    }

    fn finish_response(&self, UnderWay { request, mut line, .. }: UnderWay) {
        let Some(head) = UnderWay::head_of(&request) else { return };
        let current = self.context.shared.generations.current();
        let peer = self.context.peer(head.request.fields, head.version.into());
        let mut exchange = Exchange::continued(self.context, &current, peer, Some(&head.request), &line);
        let response = exchange.response_of(&mut line);
        let (before, overhead) = line.counts;
        let wire = self.sent.saturating_sub(before);
        let sent = (wire.saturating_sub(overhead), wire);
        exchange.finish(self.tls, &Outcome::of(&response, sent, self.path, &PathChoice::default(), Some(&LOST)));
    }

    fn finish_stream(&self, StreamUnderWay { stream, request, mut line, ends, .. }: StreamUnderWay) {
        let mut answered = Answered::continued(self.context, Protocol::Http2, (request, &mut line), ends, None);
        let ((body, wire), choice) = (line.counts, &mut PathChoice::default());
        let stream = stream.get().into();
        answered.finish(self.tls, Delivery { stream, body, wire, path: self.path, choice, aborted: Some(&LOST) });
    }
}

/// The duty to write the line of a request that is awaited, which another process may take.
#[derive(Debug, Clone, Default)]
pub(crate) struct Duty(Arc<AtomicBool>);

impl Duty {
    /// Another process writes the line.
    pub(crate) fn leave(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_left(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Line {
    /// The line of a request whose response is awaited. `began`: see [`Self::began`].
    pub(crate) fn awaited(began: Option<Instant>) -> Self {
        Line {
            site: None,
            began: began.map(Into::into),
            status: Status::BAD_GATEWAY.code(),
            encoding: None,
            user: None,
            upstream: None,
            cache: None,
            is_unlogged: false,
            route: None,
            reason: None,
            set_up: None,
            counts: (0, 0),
        }
    }
}

impl Owed<'_> {
    /// Whether the connection may pass while this response is under way, if it otherwise `passes`. The process that began a span also reports it to the
    /// tracer.
    pub(crate) fn passes(&self, passes: Passes) -> Passes {
        match self.started.as_ref().and_then(|started| started.span.as_ref()) {
            Some(span) if span.is_sampled() => Passes::Never,
            _ => passes,
        }
    }
}

impl PathChoice {
    /// Goes on with the path that another process chose for a response.
    pub(crate) fn go_on(&mut self, line: &Line) {
        (self.reason, self.set_up) = (line.path_reason(), line.set_up);
    }
}

impl<'c, 'r> Exchange<'c, 'r> {
    /// See [`Owed::passes`].
    pub(crate) fn passes(&self, passes: Passes) -> Passes {
        self.owed.passes(passes)
    }

    /// A handle on the duty to write the line while the response is awaited.
    pub(crate) fn share_duty(&mut self) -> Duty {
        self.owed.duty.get_or_insert_default().clone()
    }

    /// The state that goes along while the response is awaited.
    pub(crate) fn later(&mut self) -> Later {
        let began = self.owed.started.as_ref().map(|started| started.at);
        let is_traced = self.passes(Passes::WhenItCan) == Passes::Never;
        Later { duty: self.share_duty(), began, is_traced, ..Later::default() }
    }

    /// The line as far as it is known while the response is awaited.
    pub(crate) fn awaited(&self) -> Line {
        Line::awaited(self.owed.started.as_ref().map(|started| started.at))
    }

    /// Ends it here without a line, before its response. See [`Self::awaited`].
    pub(crate) fn leave_awaited(&mut self) -> Line {
        let line = self.awaited();
        self.owed.started = None;
        line
    }

    /// The process.
    pub(crate) fn shared(&self) -> &'c Shared {
        self.owed.context.shared
    }

    /// Ends it here without a line. Returns the data for the line in the other process. `counts`: see [`Line::counts`].
    pub(crate) fn leave(&mut self, response: Response, path: &PathChoice, counts: (u64, u64)) -> Line {
        let name = self.site.and_then(|site| site.route_name(response.route));
        Line {
            site: self.site.map(|site| (*site.name).into()),
            began: self.owed.started.take().map(|started| started.at.into()),
            status: response.status.code(),
            encoding: response.fields.content_encoding,
            user: response.user,
            upstream: response.upstream.as_deref().map(Upstream::of),
            cache: response.cache.map(Cache::of),
            is_unlogged: response.is_unlogged,
            route: response.route.zip(name.map(Into::into)),
            reason: path.reason.map(|reason| reason.label().into()),
            set_up: path.set_up,
            counts,
        }
    }

    /// Goes on with an exchange that another process began.
    pub(crate) fn continued(
        context: &'c Context<'c>,
        generation: &'r Generation,
        peer: Peer,
        request: Option<&'r Request<'r>>,
        line: &Line,
    ) -> Self {
        let started = line.began.map(|began| Started { at: began.into(), span: None });
        let authority = request.and_then(|request| request.authority);
        // Without its head the site is known by its name alone.
        let named = line.site.as_deref().filter(|_| request.is_none()).and_then(|name| generation.sites.named(name));
        let site = named.or_else(|| generation.sites.place(authority, context.listener.place));
        Self::resume(
            generation,
            request,
            Owed { context, peer, site, refusal: None, limited_by: None, places: Box::default(), started, duty: None },
        )
    }

    /// Counts the connection for the site. It is not refused: it was admitted when the request came.
    pub(crate) fn keep_place(&self, permit: &mut Permit) {
        permit.keep_place(self.limits());
    }

    /// The response that another process described by `line`, without its content and the part of its head that was sent.
    pub(crate) fn response_of(&self, line: &mut Line) -> Response {
        // The route may have another number, or may be gone.
        let is_same =
            |(number, name): &(u32, Box<str>)| self.site?.route_name(Some(*number)).filter(|own| **own == **name);
        let route = line.route.take().filter(|route| is_same(route).is_some()).map(|(number, _)| number);
        let fields = Fields { content_encoding: line.encoding, ..Fields::default() };
        let status = Status::new(line.status).unwrap_or(Status::OK);
        Response {
            user: line.user.take(),
            upstream: line.upstream.take().map(|upstream| Box::new(upstream.trace())),
            cache: line.cache.take().and_then(Cache::trace),
            is_unlogged: line.is_unlogged,
            route,
            ..Response::new(status, fields, Body::Empty)
        }
    }
}
