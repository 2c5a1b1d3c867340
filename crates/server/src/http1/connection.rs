//! The request loop of an HTTP/1 connection (RFC 9112).
//!
//! ```text
//!   ┌────────────────────────────── persists ─────────────────────────────────────┐
//!   ▼                                                                             │
//! Idle ─first byte─► Head ─complete─► Body ─drained─► Answering ─► Response ──────┴─► end of the connection
//!   │ idle timeout,    │ request        │ request                    stall timeout
//!   │ draining: end    │ timeout: 408   │ timeout: 408
//! ```
//!
//! Content that is forwarded is read while Answering.

use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use sealion_http::date::WholeSeconds;
use sealion_http::http1::body::BodyDrain;
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::{self, Framing, RequestHead, Version};
use sealion_http::http1::write::Connection;
use sealion_http::{HttpTime, Method, Protocol, Status};
use sealion_tls::TlsStream;
use tokio::task::yield_now;

use super::buffer::Buffer;
use super::content::ContentReader;
use super::guess_method;
use super::receive::{Deadline, Unread, drain_body, read_head, status_of};
use super::respond::{Head, Leave, Progress, Sent, respond};
use super::stream::{Stream, Waited};
use super::under_way::{Awaiting, Elsewhere, announced};
use crate::exchange::{
    Context, Current, End, Error, Exchange, Feed, Listener, Outcome, PathChoice, Shared, now, poll_idle_end,
};
use crate::in_box::in_box;
use crate::limits::{Idle, Moment, Permit};
use crate::observe::metrics;
use crate::passing::{Baggage, Driver, Passes, Resting, Turn, UnderWay};
use crate::response::{Body, Response, SourceError};

/// Serves requests until the connection should be closed in order, or pass on; the caller does so. `baggage`: its state at the beginning, and when it passes.
///
/// # Errors
/// The connection failed.
pub(crate) async fn serve(
    baggage: &mut Baggage,
    stream: &mut TlsStream,
    peer: &SocketAddr,
    listener: &Listener,
    shared: &Shared,
) -> Result<End, Error> {
    let mut connection = Http1::new(listener, baggage);
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let mut idle = shared.idle.register(waker);
    if baggage.passes == Passes::WhenItCan {
        idle.can_pass();
    }
    let mut after = match baggage.resting.take().map(|resting| (resting.idle_since, resting.driver)) {
        Some((_, Driver::Http1(Some(under_way)))) => {
            Box::pin(connection.go_on(under_way, stream, peer, shared)).await?
        }
        Some((idle_since, _)) => {
            idle.resume(idle_since);
            After::Next
        }
        None => After::Next,
    };
    let mut in_a_row = 0;
    loop {
        match after {
            After::Next => {}
            After::Close => return Ok(End::Usual),
            After::End(end) => return Ok(end),
            After::Pass(under_way, turn, Some(feed)) => {
                after = Box::pin(connection.leave_feeding((under_way, turn, feed), stream, peer, shared)).await?;
                if connection.passes == Passes::Never {
                    idle.cannot_pass();
                }
                continue;
            }
            After::Pass(under_way, turn, None) => {
                baggage.resting = Some(connection.rest(*peer, Moment::now(), Some(under_way)));
                baggage.turn = Some(turn);
                return Ok(End::Passing);
            }
        }
        let waited = wait_for_request(stream, &mut idle, &mut in_a_row).await?;
        if let Some(end) = waited {
            if end == End::Passing {
                baggage.resting = Some(connection.rest(*peer, idle.since(), None));
            }
            return Ok(end);
        }
        // Requests that have all arrived already would keep the worker from its other connections.
        in_a_row += 1;
        if in_a_row > MOST_IN_A_ROW {
            in_a_row = 0;
            yield_now().await;
        }
        // Boxed, so that an idle connection does not hold its memory.
        after = in_box(|| connection.exchange(stream, peer, shared)).await?;
    }
}

/// The step after a response.
pub(super) enum After {
    /// The next request.
    Next,
    /// The end of the connection.
    Close,
    /// The rest of the response, in another process: it is this connection's turn to pass. This process may go on to feed it.
    Pass(Box<UnderWay>, Turn, Option<Box<Feed>>),
    /// The end of the connection here.
    End(End),
}

impl After {
    /// Adds the head of the request, which passes along.
    pub(super) fn with_request(mut self, head: &[u8]) -> Self {
        if let After::Pass(under_way, ..) = &mut self {
            under_way.request = head.to_vec();
        }
        self
    }

    fn of(persists: bool) -> Self {
        if persists { After::Next } else { After::Close }
    }
}

/// Responses to requests that had arrived already, after which other connections have their turn: a yield costs about a microsecond, as much as
/// a tenth of a response.
const MOST_IN_A_ROW: u32 = 4;

/// Connection state that persists across requests.
pub(super) struct Http1<'a> {
    pub(super) listener: &'a Listener,
    pub(super) path: PathChoice,
    pub(super) permit: Permit,
    requests: u64,
    /// The second of the latest answer.
    served: Option<WholeSeconds>,
    pub(super) passes: Passes,
}

impl<'a> Http1<'a> {
    fn new(listener: &'a Listener, baggage: &Baggage) -> Self {
        let passes = baggage.passes;
        let (path, permit, requests) = match baggage.resting.as_deref() {
            Some(Resting { forgone, moved_at, paced, requests, .. }) => {
                (PathChoice::resume(*forgone, *moved_at), Permit::of_paced(*paced), *requests)
            }
            None => (PathChoice::default(), Permit::default(), 0),
        };
        Self { listener, path, permit, requests, served: None, passes }
    }

    /// The state that another process needs to go on.
    pub(super) fn rest(&self, peer: SocketAddr, idle_since: Moment, under_way: Option<Box<UnderWay>>) -> Box<Resting> {
        let kept = Kept { listener: self.listener, peer, requests: self.requests, paced: self.permit.paced() };
        kept.rest(&self.path, idle_since, under_way)
    }
}

/// A connection's state that another process needs, without its path.
pub(super) struct Kept<'a> {
    listener: &'a Listener,
    peer: SocketAddr,
    requests: u64,
    paced: Option<u64>,
}

impl Kept<'_> {
    pub(super) fn rest(&self, path: &PathChoice, idle_since: Moment, under_way: Option<Box<UnderWay>>) -> Box<Resting> {
        Box::new(Resting {
            listener: self.listener.name.clone(),
            peer: self.peer,
            idle_since,
            requests: self.requests,
            forgone: path.forgone(),
            moved_at: path.moved_at,
            paced: self.paced,
            driver: Driver::Http1(under_way),
        })
    }
}

/// Waits for the first byte of a request, or of the record that holds it. `Some`: close the connection; it ended, timed out, was evicted, or
/// the server is draining.
async fn wait_for_request(
    stream: &mut TlsStream,
    idle: &mut Idle<'_>,
    in_a_row: &mut u32,
) -> Result<Option<End>, Error> {
    skip_empty_lines(stream);
    if !stream.buffered().is_empty() {
        return Ok(None);
    }
    poll_fn(|cx| {
        while let Poll::Ready(came) = stream.poll_wait_for_record(cx) {
            match came {
                Ok(false) => return Poll::Ready(Ok(Some(End::Usual))),
                Ok(true) => {
                    skip_empty_lines(stream);
                    if stream.is_receiving() {
                        return Poll::Ready(Ok(if idle.begin() { None } else { Some(End::Evicted) }));
                    }
                }
                // Between requests no data can be lost, and many clients close without close_notify.
                Err(sealion_tls::Error::Truncated) => return Poll::Ready(Ok(Some(End::Usual))),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        *in_a_row = 0;
        poll_idle_end(stream, idle).map(|end| Ok(Some(end)))
    })
    .await
}

/// Discards the bytes received so far if they are empty lines (RFC 9112 §2.2). Some clients send one after the content of a POST; it begins
/// no request, and the connection stays idle.
fn skip_empty_lines(stream: &mut TlsStream) {
    let received = stream.buffered();
    if received.first() == Some(&b'\r') && received.chunks(2).all(|line| line == b"\r\n") {
        stream.consume(received.len());
    }
}

impl Http1<'_> {
    /// Reads a request and sends the response.
    async fn exchange(&mut self, tls: &mut TlsStream, remote: &SocketAddr, shared: &Shared) -> Result<After, Error> {
        let _active = metrics::worker().map(|worker| worker.active.enter());
        self.requests += 1;
        let current = shared.generations.current();
        let auth = tls.info().and_then(|info| info.client_auth);
        let context = Context { shared, listener: self.listener, remote: *remote, auth, server_name: None };
        let unread = |client| Exchange::begin(&context, &current, context.peer_at(client, Protocol::Http11), None);
        let mut deadline = Deadline::new(&current);
        let mut bytes = Buffer::take();
        let span = match read_head(tls, &current, &mut deadline).await {
            Ok(span) => span,
            Err(Unread::Refused(status)) => {
                let method = guess_method(tls.buffered());
                Box::pin(self.refuse(tls, unread(*remote), method, status)).await?;
                return Ok(After::Close);
            }
            Err(gone) => return gone.end().map(After::of),
        };
        // The head is copied, so that the stream can keep reading.
        bytes.extend_from_slice(&tls.buffered()[span.start..span.end]);
        tls.consume(span.end);
        match RequestHead::parse(&bytes, span.from_start()) {
            Ok(head) => {
                let after = self.answer(tls, &context, &current, (&head, &bytes), deadline).await;
                after.map(|after| after.with_request(&bytes))
            }
            Err(reject) => {
                let client = head::fields(&bytes, span.from_start())
                    .map_or(*remote, |fields| self.listener.client(*remote, fields));
                let method = guess_method(&bytes);
                Box::pin(self.refuse(tls, unread(client), method, status_of(reject))).await?;
                Ok(After::Close)
            }
        }
    }

    /// Answers a request.
    async fn answer(
        &mut self,
        tls: &mut TlsStream,
        context: &Context<'_>,
        current: &Current,
        (head, octets): (&RequestHead<'_>, &[u8]),
        deadline: Deadline,
    ) -> Result<After, Error> {
        let peer = context.peer(head.request.fields, head.version.into());
        let mut exchange = Exchange::begin(context, current, peer, Some(&head.request));
        let date = now();
        // Once a second for a busy connection, and always after a pause.
        if self.served != Some(date.seconds()) {
            self.served = Some(date.seconds());
            tls.expect_small_window();
        }
        exchange.admit(&mut self.permit, tls);
        let is_last = current.limits.max_requests.is_some_and(|most| self.requests >= most.get());
        let (mut close, refused) = match read_content(tls, &exchange, head, current, deadline).await {
            Ok(close) => (close, None),
            Err(Unread::Refused(status)) => (true, Some(status)),
            Err(unread) => {
                exchange.abandon();
                return unread.end().map(After::of);
            }
        };
        close |= is_last || !context.shared.goes_on(self.passes);
        let stream = Stream::new(tls, &mut self.path, Some(head), current.limits.request_timeout.duration());
        let mut reply = Reply::new(exchange, stream);
        let Reply { exchange, stream, response, progress } = &mut reply;
        *response = answer_at_once(exchange, stream, refused, date);
        let response = match response {
            Some(response) => response,
            none => {
                let (duty, passes) = (exchange.share_duty(), exchange.passes(self.passes));
                let (requests, paced) = (self.requests, self.permit.paced());
                let kept = Kept { listener: self.listener, peer: context.remote, requests, paced };
                let awaiting = Awaiting { context, kept, request: octets, duty };
                match in_box(|| answer(exchange, stream, (head, awaiting), refused, passes, &mut close)).await {
                    Awaited::Here(response) => none.insert(*response),
                    Awaited::Elsewhere(elsewhere) => {
                        Box::pin(elsewhere.feed(exchange, head, context)).await;
                        return Ok(After::End(End::Passed));
                    }
                    Awaited::Lost => return Ok(After::End(End::Passed)),
                }
            }
        };
        if response.is_withheld {
            reply.finish(None);
            return Ok(After::Close);
        }
        close |= !stream.continues_after(response);
        if head.version == Version::Http10
            && exchange.framing(head.request.method, response) == ResponseFraming::UntilClose
            && !shows_cuts(stream.tls)
        {
            let without_length = std::mem::replace(response, Response::plain(Status::HTTP_VERSION_NOT_SUPPORTED));
            *response = Box::pin(until_close(exchange, without_length)).await;
            close = true;
        }
        let framing = exchange.answered(response);
        close |= stream.tls.should_close();
        let connection = announced(close, framing, head.version);
        let head = Head { framing, connection, date, alternative: context.listener.alternative(response) };
        // Content that is still coming is read where the upstream is.
        let is_ready = !matches!(response.body, Body::Stream(_));
        let passes = match stream.content.as_ref().is_some_and(ContentReader::is_open) && is_ready {
            true => Passes::Never,
            false => exchange.passes(self.passes),
        };
        let leave = Leave::of(context.shared, passes);
        let result = respond(stream, response, head, (exchange.path_policy(), leave), progress).await;
        reply.end(result, !matches!(connection, Connection::Close | Connection::Upgrade), context.shared)
    }

    /// Sends the response to a request that could not be read: the last one of its connection. `method`: guessed from its first bytes.
    async fn refuse(
        &mut self,
        tls: &mut TlsStream,
        exchange: Exchange<'_, '_>,
        method: Method<'_>,
        status: Status,
    ) -> Result<(), Error> {
        let response = exchange.refuse(status).await;
        let framing = exchange.framing(method, &response);
        let stream = Stream::new(tls, &mut self.path, None, Duration::ZERO);
        let mut reply = Reply::new(exchange, stream);
        let Reply { exchange, stream, response: place, progress } = &mut reply;
        let response = place.insert(response);
        let head = Head { framing, connection: Connection::Close, date: now(), alternative: None };
        let result = respond(stream, response, head, (exchange.path_policy(), Leave::never()), progress).await;
        reply.finish(result.as_ref().err().map(|error| error as &dyn Display));
        result.map(drop)
    }
}

/// Discards the content of a request, unless it is forwarded: before the response, since otherwise a client that leaves in its content would learn from the
/// time whether its password is right, and leave no line. `true`: close the connection behind the response.
async fn read_content(
    tls: &mut TlsStream,
    exchange: &Exchange<'_, '_>,
    head: &RequestHead<'_>,
    current: &Current,
    mut deadline: Deadline,
) -> Result<bool, Unread> {
    // For requests without content, `may_forward` is computed only after the caches have no response.
    let needs_to_know = head.framing != Framing::None || head.expect_continue;
    let forwards = needs_to_know && exchange.route().is_some_and(|site| site.may_forward(&head.request));
    let wants_close = !head.keep_alive || (head.expect_continue && !forwards);
    if head.framing == Framing::None || wants_close || forwards {
        return Ok(wants_close);
    }
    let drain = BodyDrain::new(head.framing, current.limits.max_discarded_body.0);
    Ok(!Box::pin(drain_body(tls, drain, &mut deadline)).await?)
}

/// The response, if it need not be waited for. `refused`: see [`answer`].
fn answer_at_once(
    exchange: &Exchange<'_, '_>,
    stream: &Stream<'_>,
    refused: Option<Status>,
    date: HttpTime,
) -> Option<Response> {
    // Where the site is served without TLS, its authority asks there too.
    if let Some(response) = exchange.challenge() {
        return Some(response);
    }
    if refused.is_some() { None } else { exchange.answer_at_once(stream, date) }
}

/// The response that has to be waited for. `refused`: the status if the content of the request could not be read. A client that leaves meanwhile is noticed
/// when the response is sent: its request is logged, a wrong password too.
async fn answer(
    exchange: &Exchange<'_, '_>,
    stream: &mut Stream<'_>,
    (head, awaiting): (&RequestHead<'_>, Awaiting<'_>),
    refused: Option<Status>,
    mut passes: Passes,
    close: &mut bool,
) -> Awaited {
    if let Some(status) = refused {
        return Awaited::Here(exchange.refuse(status).await.into());
    }
    // It would be done, and its response refused all the same.
    if head.version == Version::Http10
        && !is_safe(head.request.method)
        && !shows_cuts(stream.tls)
        && exchange.route().is_some_and(|site| site.may_forward(&head.request))
    {
        *close = true;
        return Awaited::Here(until_close(exchange, Response::plain(Status::OK)).await.into());
    }
    let date = now();
    let inbound = exchange.inbound(stream, date);
    // It is large, and would be moved again and again.
    let mut answer = in_box(|| exchange.answer(inbound, date));
    loop {
        let leave = Leave::of(awaiting.context.shared, passes);
        let turn = match in_box(|| stream.wait_for(answer.as_mut(), leave)).await {
            Waited::Answered(response) => return Awaited::Here(response),
            Waited::Leaves(turn) => turn,
        };
        let shows_cuts = shows_cuts(stream.tls);
        match Box::pin(awaiting.pass(stream, (exchange.awaited(), !*close), turn)).await {
            None => passes = Passes::Never,
            Some(None) => return Awaited::Lost,
            Some(Some(mut home)) => {
                let response = home.wait_for(answer.as_mut()).await;
                return Awaited::Elsewhere(Box::new(Elsewhere { home, response, shows_cuts }));
            }
        }
    }
}

/// The outcome of a response that was awaited.
enum Awaited {
    Here(Box<Response>),
    /// Its client is another process's.
    Elsewhere(Box<Elsewhere>),
    /// The connection was lost on its way to another process.
    Lost,
}

/// Whether the end of the connection tells a cut response from a whole one: by close_notify, or by a reset, which a Unix socket lacks.
fn shows_cuts(stream: &TlsStream) -> bool {
    let is_unix = |socket: socket2::SockRef<'_>| socket.local_addr().is_ok_and(|local| local.is_unix());
    stream.info().is_some() || !is_unix(socket2::SockRef::from(stream.socket()))
}

/// The refusal of a request whose `response` may have no length, or has none.
pub(super) async fn until_close(exchange: &Exchange<'_, '_>, response: Response) -> Response {
    let refused = exchange.refuse_instead(response, Status::HTTP_VERSION_NOT_SUPPORTED).await;
    refused.because(Some(io::Error::other(UNTIL_CLOSE)))
}

/// Whether a request asks for nothing to be done (RFC 9110 §9.2.1).
fn is_safe(method: Method<'_>) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS")
}

const UNTIL_CLOSE: &str = "an answer without a length, over a Unix socket and to HTTP/1.0, could not be told from one that is cut: have the proxy in front use HTTP/1.1 (nginx: proxy_http_version 1.1)";

/// A request from the end of its content. Its line in the log is written when the response is sent, or when this is dropped before: with the worker's
/// runtime, at the end of the grace time.
pub(super) struct Reply<'a, 'c> {
    pub(super) exchange: Exchange<'c, 'a>,
    pub(super) stream: Stream<'a>,
    /// The response, once it is made. It is not moved from here: a move costs a quarter of writing its head.
    pub(super) response: Option<Response>,
    pub(super) progress: Progress,
}

impl<'a, 'c> Reply<'a, 'c> {
    pub(super) fn new(exchange: Exchange<'c, 'a>, stream: Stream<'a>) -> Self {
        let progress = Progress::new(stream.tls);
        Reply { exchange, stream, response: None, progress }
    }

    /// Ends the response: here, or by packing it for another process. `persists`: the next request follows.
    pub(super) fn end(&mut self, result: Result<Sent, Error>, persists: bool, shared: &Shared) -> Result<After, Error> {
        match result {
            Ok(Sent::Paused(departure)) => self.pack(persists, departure, shared).map_err(|error| {
                let error = Error::from(SourceError::Failed(error));
                self.finish(Some(&error));
                error
            }),
            result => {
                self.finish(result.as_ref().err().map(|error| error as &dyn Display));
                result.map(|_| After::of(persists))
            }
        }
    }

    /// Lets go of the response, and writes the line.
    pub(super) fn finish(&mut self, aborted: Option<&dyn Display>) {
        let Stream { tls, path, .. } = &mut self.stream;
        let Some(response) = &self.response else {
            return self.exchange.cut_short(tls.info(), tls.path());
        };
        let (body, wire) = self.progress.sent(tls);
        self.progress.content.take_back(body);
        if self.exchange.owes_line() {
            let outcome = Outcome::of(response, (body, wire), tls.path(), path, aborted);
            self.exchange.finish(tls.info(), &outcome);
        }
        self.response = None;
    }
}

impl Drop for Reply<'_, '_> {
    fn drop(&mut self) {
        if self.response.is_some() || self.exchange.owes_line() {
            let cut = self.exchange.why_cut();
            self.finish(Some(&cut));
        }
    }
}
