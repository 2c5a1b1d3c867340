//! A request of a connection that has several at a time: from its head to its response, at once or after waiting.
//!
//! HTTP/2 and HTTP/3 share it. The driver has the streams.

use std::cell::RefCell;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context as TaskContext, Poll};
use std::time::Instant;

use bytes::Bytes;
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::multiplexed::{HeadBuffer, RequestHead};
use sealion_http::{Method, Protocol, Request, Status, content_length};
use sealion_tls::{HandshakeInfo, SealedBy};
use tokio::sync::oneshot;

use super::{Awaited, Context, Current, Duty, Exchange, Outcome, Owed, PathChoice, Stream, Upload, may_keep, now};
use crate::limits::{ConnectionStreams, Permit, StreamPlace};
use crate::passing::{Ends, Line, Passes};
use crate::path::policy::PathReason;
use crate::response::Response;
use crate::upstream::{HeadRoom, Inbound, Interim, InterimReceiver, Reading, RequestContent, WEBSOCKET};

/// A request with its response.
pub(crate) struct Answered<'a> {
    /// The head, if the access log or the span needs it.
    pub(super) head: Option<Box<HeadBuffer>>,
    pub(super) current: Current,
    pub(super) owed: Owed<'a>,
    pub(crate) response: Response,
    pub(crate) framing: ResponseFraming,
    /// Its content is another protocol's.
    pub(crate) is_tunnel: bool,
    /// The header block that another process has made.
    pub(crate) block: Option<Bytes>,
    /// Room for the descriptors that the response holds.
    pub(super) _place: Option<StreamPlace>,
}

/// A response that is made while others are sent.
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Box<Answered<'a>>> + Send + 'a>>;

/// A request whose response is awaited.
#[derive(Debug, Default)]
pub(crate) struct Later {
    /// The head, while it is awaited.
    pub(crate) head: Weak<Box<HeadBuffer>>,
    /// The duty to write its line.
    pub(crate) duty: Duty,
    /// When the head of the request was complete. `None`: there is no line.
    pub(crate) began: Option<Instant>,
    /// Whether its span is this process's.
    pub(crate) is_traced: bool,
}

/// A head that a request shares with its connection. The box is the driver's, and is free again behind the response.
pub(super) type SharedHead = Arc<Box<HeadBuffer>>;

impl Later {
    /// Shares the head of the request, so that the connection can pass it on.
    pub(super) fn sharing(self, head: Box<HeadBuffer>) -> (SharedHead, Self) {
        let head = Arc::new(head);
        let later = Later { head: Arc::downgrade(&head), ..self };
        (head, later)
    }
}

/// A response, at once or later.
pub(crate) enum Answer<'a> {
    Now(Box<Answered<'a>>),
    Later(Answering<'a>, Later),
}

/// The state of a request that waits for its response, as the connection keeps it.
#[derive(Default)]
pub(crate) struct Wait {
    /// Dropped when the client leaves: the request to a server, or the wait for a place, then ends.
    pub(crate) cancel: Option<oneshot::Sender<()>>,
    pub(crate) awaited: Awaited,
    /// Interim responses of a server, sent meanwhile.
    pub(crate) interims: Option<InterimReceiver>,
}

impl Wait {
    /// Whether the client has reset its stream, so that forwarding ends. The response is for the log.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.awaited != Awaited::None && self.cancel.is_none()
    }

    /// Calls `send` with the interim responses that have come. The response may have come behind them: it is polled before.
    pub(crate) fn poll_interims(&mut self, cx: &mut TaskContext<'_>, mut send: impl FnMut(&Interim)) {
        let Some(receiver) = &mut self.interims else { return };
        while let Some(interim) = match receiver.poll_recv(cx) {
            Poll::Ready(interim) => interim,
            Poll::Pending => receiver.try_recv().ok(),
        } {
            send(&interim);
        }
    }
}

/// The part of a stream that an upstream gets.
pub(crate) struct UpstreamSide<'s> {
    /// The content, if it is passed on.
    pub(crate) content: Option<RequestContent>,
    /// The request is CONNECT with a protocol.
    pub(crate) is_connect: bool,
    /// Whether a head is read from a server, where little is read.
    head_room: &'s Arc<HeadRoom>,
    pub(crate) wait: Wait,
}

impl<'s> UpstreamSide<'s> {
    pub(crate) fn new(head: &HeadBuffer, content: Option<RequestContent>, head_room: &'s Arc<HeadRoom>) -> Self {
        UpstreamSide { content, is_connect: head.protocol().is_some(), head_room, wait: Wait::default() }
    }

    /// See [`Stream::attach`].
    pub(crate) fn attach(
        &mut self,
        inbound: Inbound,
        awaited: Awaited,
        interims: Option<InterimReceiver>,
        reading: Reading,
    ) -> Inbound {
        let (cancel, gone) = oneshot::channel();
        self.wait = Wait { cancel: Some(cancel), awaited, interims };
        Inbound {
            content: self.content.take(),
            upgrade: self.is_connect,
            is_connect: self.is_connect,
            gone: Some(gone),
            heads: (reading == Reading::Sparing).then(|| Arc::clone(self.head_room)),
            reading,
            ..inbound
        }
    }
}

// MEASURED: with the windows of 64 KiB of the first eight, 128 streams of HTTP/2 pin less than 2 MB (crates/server/tests/it/memory.rs, 2026-11-24).
/// Responses under way on a connection, above which servers are read sparingly.
pub(crate) const MAX_AHEAD_STREAMS: usize = 8;

/// Whether the client waits for a response before it sends content (RFC 9110 §10.1.1).
fn expects_continue(head: &HeadBuffer) -> bool {
    head.fields().first("expect").is_some()
}

/// The announced length of the content, in bytes.
fn announced_length(head: &HeadBuffer) -> Option<u64> {
    content_length(head.fields().first("content-length")?)
}

/// The way of a request whose head is complete.
pub(crate) enum Step {
    /// It is rejected. The head is for the log.
    Refuse(Status, Box<HeadBuffer>),
    /// It is answered now. Content that may be forwarded is passed on.
    Answer(Option<(Upload, RequestContent)>),
    /// It is answered behind its content, which is discarded.
    Discard,
}

/// The connection that asks for responses.
pub(crate) struct Answers<'s, 'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) protocol: Protocol,
    /// The places of the connection.
    pub(crate) streams: &'s Arc<ConnectionStreams>,
}

impl<'a> Answers<'_, 'a> {
    /// Answers the request in `head`. A request that has to wait keeps the head.
    pub(crate) fn answer(
        &self,
        head: &mut Box<HeadBuffer>,
        stream: &mut impl Stream,
        permit: &mut Permit,
        current: Current,
    ) -> Answer<'a> {
        let Answers { context, protocol, streams } = *self;
        let decoded = head.request();
        let is_too_long = decoded.path.is_some_and(|path| path.len() > current.head_limits.request_line);
        // The request, and the response below, stay where they were made: a move copies hundreds of bytes.
        let request = as_seen(&decoded);
        let Some(request) = &request else {
            let head = std::mem::replace(head, free_head());
            return Answer::Later(refuse(context, protocol, Status::BAD_REQUEST, head), Later::default());
        };
        if is_too_long {
            let head = std::mem::replace(head, free_head());
            return Answer::Later(refuse(context, protocol, Status::URI_TOO_LONG, head), Later::default());
        }
        let now = now();
        let peer = context.peer(request.fields, protocol);
        let mut exchange = Exchange::begin(context, &current, peer, Some(request));
        exchange.admit(permit, stream.connection());
        let mut response = exchange.answer_at_once(stream, now);
        let ready = response.as_mut().and_then(|response| {
            let needs_place = response.body.holds_descriptor();
            let place = if needs_place { streams.try_take() } else { None };
            // Without a place, the file is let go, and the request waits for a place.
            (place.is_some() || !needs_place).then(|| (exchange.answered(response), place))
        });
        if let Some((framing, place)) = ready
            && let Some(response) = response
        {
            let describes_request = exchange.describes_request();
            let owed = exchange.park();
            let head = describes_request.then(|| std::mem::replace(head, free_head()));
            let (is_tunnel, block, _place) = (false, None, place);
            let answered = Answered { head, current, owed, response, framing, is_tunnel, block, _place };
            return Answer::Now(Box::new(answered));
        }
        let inbound = exchange.inbound(stream, now);
        let later = exchange.later();
        let owed = exchange.park();
        let (head, later) = later.sharing(std::mem::replace(head, free_head()));
        Answer::Later(Box::pin(answer_later(head, current, owed, inbound, Arc::clone(streams))), later)
    }

    /// The way of the request in `head`. `end`: nothing follows the head. `kept`: as in [`may_keep`].
    pub(crate) fn step(
        &self,
        head: &mut Box<HeadBuffer>,
        end: bool,
        current: &Current,
        kept: impl FnOnce() -> usize,
    ) -> Step {
        if !may_keep(head, kept) {
            return Step::Refuse(Status::REQUEST_HEADER_FIELDS_TOO_LARGE, Box::default());
        }
        // RFC 9114 §4.3.1.
        if self.protocol == Protocol::Http3 && !head.has_authority() {
            return Step::Refuse(Status::BAD_REQUEST, std::mem::replace(head, free_head()));
        }
        // RFC 8441, RFC 9220: the bytes that follow are the protocol's, and never content to wait for.
        let is_websocket = head.protocol().map(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET));
        if is_websocket == Some(false) {
            return Step::Refuse(Status::NOT_IMPLEMENTED, std::mem::replace(head, free_head()));
        }
        let is_tunnel = is_websocket.is_some();
        let passes = (is_tunnel || !end) && self.may_forward(head, current);
        match (passes, is_tunnel) {
            (true, true) => Step::Answer(Some(Upload::of_tunnel(end))),
            (true, false) => Step::Answer(Some(Upload::new(announced_length(head), expects_continue(head)))),
            (false, _) if is_tunnel || end || expects_continue(head) => Step::Answer(None),
            (false, _) => Step::Discard,
        }
    }

    /// Whether the request in `head` may be forwarded, so that its content is passed on as it comes.
    fn may_forward(&self, head: &HeadBuffer, current: &Current) -> bool {
        let decoded = head.request();
        let request = as_seen(&decoded);
        request.as_ref().is_some_and(|request| {
            let site = self.context.route(current, self.protocol, request.authority);
            site.is_some_and(|site| site.may_forward(request))
        })
    }

    /// Rejects a request; `head` holds what was decoded.
    pub(crate) fn refuse(&self, status: Status, head: Box<HeadBuffer>) -> Answering<'a> {
        refuse(self.context, self.protocol, status, head)
    }
}

async fn answer_later(
    head: SharedHead,
    current: Current,
    owed: Owed<'_>,
    mut inbound: Inbound,
    streams: Arc<ConnectionStreams>,
) -> Box<Answered<'_>> {
    let decoded = head.request();
    let request = as_seen(&decoded);
    let exchange = Exchange::resume(&current, request.as_ref(), owed);
    let mut needs_place = true;
    let place = match inbound.is_connect {
        // In the connection's own place, its responses would wait for as long as it is open.
        true => streams.try_take_shared(),
        false => match streams.try_take() {
            Some(place) => Some(place),
            None => {
                needs_place = !exchange.is_refused_or_redirected(now());
                // Boxed: few requests wait.
                match needs_place {
                    true => Box::pin(wait_for_place(&streams, &current, inbound.gone.as_mut())).await,
                    false => None,
                }
            }
        },
    };
    let is_connect = inbound.is_connect;
    let (mut response, is_tunnel) = match exchange.route() {
        Some(_) if place.is_some() || !needs_place => {
            let response = exchange.answer(inbound, now()).await;
            if is_connect { exchange.answered_connect(response).await } else { (response, false) }
        }
        _ => (Box::pin(exchange.refuse(Status::SERVICE_UNAVAILABLE)).await.into(), false),
    };
    if place.is_none() {
        leave_out_page(&mut response);
    }
    let framing = exchange.answered(&mut response);
    let owed = exchange.park();
    let place = place.filter(|_| response.body.holds_descriptor());
    let head = Arc::into_inner(head);
    Box::new(Answered { head, current, owed, response: *response, framing, is_tunnel, block: None, _place: place })
}

/// Replaces the page of an error that needs a descriptor.
pub(super) fn leave_out_page(response: &mut Response) {
    if response.body.holds_descriptor() {
        let page = Response::plain(response.status);
        response.body = page.body;
        (response.fields.content_type, response.fields.content_encoding) = (page.fields.content_type, None);
    }
}

/// Refuses a request whose head is malformed or too large. `head` holds what was decoded.
fn refuse<'a>(context: &'a Context<'a>, protocol: Protocol, status: Status, head: Box<HeadBuffer>) -> Answering<'a> {
    let current = context.shared.generations.current();
    Box::pin(async move {
        let decoded = head.request();
        let request = decoded.to_request();
        let peer = context.peer(decoded.fields, protocol);
        let exchange = Exchange::begin(context, &current, peer, request.as_ref());
        let response = exchange.refuse(status).await;
        let framing = exchange.framing(Method::from_token(decoded.method), &response);
        let owed = exchange.park();
        let (head, is_tunnel, block) = (Some(head), false, None);
        Box::new(Answered { head, current, owed, response, framing, is_tunnel, block, _place: None })
    })
}

/// How a response was sent.
pub(crate) struct Delivery<'a> {
    /// The number of its stream.
    pub(crate) stream: u64,
    /// Bytes of content.
    pub(crate) body: u64,
    /// Bytes of frames.
    pub(crate) wire: u64,
    pub(crate) path: SealedBy,
    pub(crate) choice: &'a mut PathChoice,
    /// Why the response is incomplete.
    pub(crate) aborted: Option<&'a dyn Display>,
}

impl Delivery<'_> {
    /// Writes the line of the access log and updates the metrics.
    fn finish(self, mut exchange: Exchange<'_, '_>, response: &Response, tls: Option<&HandshakeInfo>) {
        let Delivery { stream, body, wire, path, choice, aborted } = self;
        let outcome = Outcome::of(response, (body, wire), path, choice, aborted);
        let mut outcome = Outcome { stream: Some(stream), ..outcome };
        // The line of one response has the move, however many responses it was made for.
        if outcome.reason == Some(PathReason::Moved) && outcome.set_up.is_none() {
            outcome.reason = Some(PathReason::MovedBefore);
        }
        choice.set_up = None;
        exchange.finish(tls, &outcome);
    }

    /// The same for a request that was reset before it had a stream.
    pub(crate) fn of_reset(
        self,
        context: &Context<'_>,
        protocol: Protocol,
        status: Status,
        tls: Option<&HandshakeInfo>,
    ) {
        let current = context.shared.generations.current();
        let exchange = Exchange::begin(context, &current, context.peer_at(context.remote, protocol), None);
        self.finish(exchange, &Response::plain(status), tls);
    }
}

impl<'a> Answered<'a> {
    /// Whether the connection may pass while the response is under way. A relay feeds a part that only this process has.
    pub(crate) fn can_leave(&self) -> bool {
        self.owed.passes(Passes::WhenItCan) == Passes::WhenItCan
    }

    /// Ends it here without a line. Returns the head of the request, and the data for the line in the other process. `counts`: bytes of content and of
    /// frames.
    pub(crate) fn leave(mut self, path: &PathChoice, counts: (u64, u64)) -> (Option<Box<HeadBuffer>>, Line) {
        let response = std::mem::replace(&mut self.response, Response::plain(Status::OK));
        let head = self.head.take();
        let decoded = head.as_ref().map(|head| head.request());
        let request = decoded.as_ref().and_then(|decoded| decoded.to_request());
        let line = Exchange::resume(&self.current, request.as_ref(), self.owed.take()).leave(response, path, counts);
        (head, line)
    }

    /// Goes on with the request in `head`, whose response another process began.
    pub(crate) fn continued(
        context: &'a Context<'a>,
        protocol: Protocol,
        (head, line): (Option<Box<HeadBuffer>>, &mut Line),
        ends: Ends,
        place: Option<StreamPlace>,
    ) -> Box<Self> {
        let current = context.shared.generations.current();
        let decoded = head.as_ref().map(|head| head.request());
        let request = decoded.as_ref().and_then(|decoded| decoded.to_request());
        let peer = match &request {
            Some(request) => context.peer(request.fields, protocol),
            None => context.peer_at(context.remote, protocol),
        };
        let exchange = Exchange::continued(context, &current, peer, request.as_ref(), line);
        let response = exchange.response_of(line);
        let owed = exchange.park();
        let framing = ResponseFraming::Nothing;
        let is_tunnel = ends == Ends::Tunnel;
        Box::new(Answered { head, current, owed, response, framing, is_tunnel, block: None, _place: place })
    }
}

impl Answered<'_> {
    /// Counts the connection for the site of the request, if it is known.
    pub(crate) fn keep_place(&mut self, permit: &mut Permit) {
        let decoded = self.head.as_ref().map(|head| head.request());
        let request = decoded.as_ref().and_then(|decoded| decoded.to_request());
        let exchange = Exchange::resume(&self.current, request.as_ref(), self.owed.take());
        exchange.keep_place(permit);
        self.owed = exchange.park();
    }

    /// Bytes of the head that is kept.
    pub(crate) fn memory(&self) -> usize {
        self.head.as_ref().map_or(0, |head| head.memory())
    }

    /// Writes the line of the access log and updates the metrics.
    pub(crate) fn finish(&mut self, tls: Option<&HandshakeInfo>, delivery: Delivery<'_>) {
        if self.owed.is_owed() {
            let decoded = self.head.as_ref().map(|head| head.request());
            let request = decoded.as_ref().and_then(|decoded| decoded.to_described());
            let exchange = Exchange::resume(&self.current, request.as_ref(), self.owed.take());
            delivery.finish(exchange, &self.response, tls);
        }
        if let Some(head) = self.head.take() {
            keep_head(head);
        }
    }
}

/// Waits for a place for the descriptors of a response. `None`: none came in time, or the client left (`gone`).
async fn wait_for_place(
    streams: &Arc<ConnectionStreams>,
    current: &Current,
    gone: Option<&mut oneshot::Receiver<()>>,
) -> Option<StreamPlace> {
    let place = streams.wait(current.limits.stall_timeout.duration());
    match gone {
        Some(gone) => tokio::select! {
            place = place => place,
            _ = gone => None,
        },
        None => place.await,
    }
}

/// The request as sites see it. CONNECT with a protocol becomes the request for this protocol over HTTP/1.1: a GET (RFC 8441 §5).
pub(super) fn as_seen<'a>(decoded: &RequestHead<'a>) -> Option<Request<'a>> {
    // In its place from the start, so that it is not moved there.
    let mut request = decoded.to_request();
    if let Some(request) = request.as_mut().filter(|_| decoded.protocol.is_some()) {
        request.method = Method::Get;
    }
    request
}

thread_local! {
    #[expect(clippy::vec_box, reason = "a head is not moved on its way from request to request")]
    static FREE: RefCell<Vec<Box<HeadBuffer>>> = const { RefCell::new(Vec::new()) };
}

/// Buffers kept per thread: as many as there are responses in a batch of small ones.
const MOST_KEPT: usize = 64;

/// Bytes above which a buffer is freed, as for HTTP/1.
const LONGEST_KEPT: usize = 8 << 10;

/// An empty buffer, from the thread's store if it has one.
pub(crate) fn free_head() -> Box<HeadBuffer> {
    FREE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives a buffer to the thread's store.
pub(crate) fn keep_head(head: Box<HeadBuffer>) {
    if head.memory() <= LONGEST_KEPT {
        FREE.with_borrow_mut(|free| {
            if free.len() < MOST_KEPT {
                free.push(head);
            }
        });
    }
}
