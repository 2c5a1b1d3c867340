//! From a request's head to its response, at once or after waiting.

use std::cell::RefCell;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;

use sealion_h2::{Connection, HeadBuffer, HeaderBlock, RequestHead, StreamId};
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::{Method, Protocol, Request, Status};
use sealion_tls::{HandshakeInfo, SealedBy, TlsStream};
use tokio::sync::oneshot;

use super::response::Sending;
use crate::exchange::{self, Context, Current, Exchange, Outcome, Owed, PathChoice, now};
use crate::limits::{ConnectionStreams, Permit, StreamPlace};
use crate::path::policy::PathReason;
use crate::response::Response;
use crate::upstream::{HeadRoom, Inbound, Interim, InterimReceiver, Reading, RequestContent};

/// A request with its response.
pub(super) struct Answered<'a> {
    /// The head, if the access log or the span needs it.
    head: Option<HeadBuffer>,
    current: Current,
    owed: Owed<'a>,
    pub(super) response: Response,
    pub(super) framing: ResponseFraming,
    /// Its content is another protocol's.
    pub(super) is_tunnel: bool,
    /// Room for the descriptors that the response holds.
    _place: Option<StreamPlace>,
}

/// A response that is made while others are sent.
pub(super) type Answering<'a> = Pin<Box<dyn Future<Output = Box<Sending<'a>>> + Send + 'a>>;

/// A response, at once or later.
pub(super) enum Answer<'a> {
    Now(Box<Sending<'a>>),
    Later(Answering<'a>),
}

/// The stream of a request that is answered now.
pub(super) struct Stream<'s> {
    pub(super) id: StreamId,
    pub(super) connection: &'s TlsStream,
    pub(super) protocol: &'s mut Connection,
    /// Gets the header blocks of interim responses.
    pub(super) heads: &'s mut Vec<u8>,
    /// The content, if it is passed on.
    pub(super) content: Option<RequestContent>,
    pub(super) is_connect: bool,
    /// The connection has many responses under way: servers are read sparingly.
    pub(super) is_busy: bool,
    /// Whether a head is read from a server, where little is read.
    pub(super) head_room: &'s Arc<HeadRoom>,
    pub(super) wait: Wait,
}

/// What the connection keeps of a request whose response has to be waited for.
#[derive(Default)]
pub(super) struct Wait {
    /// Dropped, it says that the client left: the request to a server, or the wait for a place, ends.
    pub(super) cancel: Option<oneshot::Sender<()>>,
    /// The request may be forwarded.
    pub(super) forwards: bool,
    /// Interim responses of a server, sent meanwhile.
    pub(super) interims: Option<InterimReceiver>,
}

impl exchange::Stream for Stream<'_> {
    fn connection(&self) -> &impl exchange::Connection {
        self.connection
    }

    fn has_content(&self) -> bool {
        self.content.is_some()
    }

    fn is_connect(&self) -> bool {
        self.is_connect
    }

    fn takes_interim(&self) -> bool {
        true
    }

    fn interim(&mut self, interim: &Interim) {
        send_interim(self.id, interim, self.protocol, self.heads);
    }

    fn attach(&mut self, inbound: Inbound, forwards: bool, interims: Option<InterimReceiver>) -> Inbound {
        let (cancel, gone) = oneshot::channel();
        self.wait = Wait { cancel: Some(cancel), forwards, interims };
        let reading = if self.is_busy || !self.protocol.has_room(self.id) { Reading::Sparing } else { Reading::Ahead };
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

/// Writes an interim response into `heads`.
pub(super) fn send_interim(id: StreamId, interim: &Interim, protocol: &mut Connection, heads: &mut Vec<u8>) {
    let mut block = HeaderBlock::response(interim.status.code());
    interim.fields.iter().for_each(|(name, value)| block.field(&name.to_ascii_lowercase(), value));
    // A stream that was reset needs none.
    let _ = protocol.informational(id, &[block.as_bytes()], heads);
}

/// Whether the request in `head` may be forwarded, so that its content is passed on as it comes.
pub(super) fn may_forward(context: &Context<'_>, head: &HeadBuffer, current: &Current) -> bool {
    let decoded = head.request();
    let request = as_seen(&decoded);
    request.as_ref().is_some_and(|request| {
        let site = context.route(current, Protocol::Http2, request.authority);
        site.is_some_and(|site| site.may_forward(request))
    })
}

/// Answers the request in `head`. What has to wait keeps the head. `streams`: the places of the connection.
pub(super) fn answer<'a>(
    context: &'a Context<'a>,
    head: &mut HeadBuffer,
    stream: &mut Stream<'_>,
    permit: &mut Permit,
    current: Current,
    streams: &Arc<ConnectionStreams>,
) -> Answer<'a> {
    let decoded = head.request();
    let is_connect = decoded.protocol.is_some();
    stream.is_connect = is_connect;
    let (request, refused) = match as_seen(&decoded) {
        None => (None, Status::BAD_REQUEST),
        Some(request) if request.raw_target.len() > current.head_limits.request_line => (None, Status::URI_TOO_LONG),
        request => (request, Status::OK),
    };
    let Some(request) = request else {
        return Answer::Later(refuse(context, stream.id, refused, std::mem::replace(head, free_head())));
    };
    let now = now();
    let peer = context.peer(request.fields, Protocol::Http2);
    let mut exchange = Exchange::begin(context, &current, peer, Some(&request));
    exchange.admit(permit, stream.connection);
    if let Some(mut response) = exchange.answer_at_once(stream, now) {
        let place = if response.body.holds_descriptor() { streams.try_take().map(Some) } else { Some(None) };
        // Without a place the file is let go, and the request waits for one.
        if let Some(place) = place {
            let framing = exchange.answered(&mut response);
            let describes_request = exchange.describes_request();
            let owed = exchange.park();
            let head = describes_request.then(|| std::mem::replace(head, free_head()));
            let answered = Answered { head, current, owed, response, framing, is_tunnel: false, _place: place };
            return Answer::Now(Sending::new(stream.id, answered));
        }
    }
    let inbound = exchange.inbound(stream, now);
    let owed = exchange.park();
    let head = std::mem::replace(head, free_head());
    Answer::Later(Box::pin(answer_later(stream.id, head, current, owed, inbound, Arc::clone(streams))))
}

async fn answer_later(
    id: StreamId,
    head: HeadBuffer,
    current: Current,
    owed: Owed<'_>,
    mut inbound: Inbound,
    streams: Arc<ConnectionStreams>,
) -> Box<Sending<'_>> {
    let decoded = head.request();
    let request = as_seen(&decoded);
    let exchange = Exchange::resume(&current, request.as_ref(), owed);
    let mut needs_place = true;
    let place = match inbound.is_connect {
        // In the connection's own place, it would let the connection's responses wait for as long as it is open.
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
        _ => (Box::pin(exchange.refuse(Status::SERVICE_UNAVAILABLE)).await, false),
    };
    if place.is_none() && response.body.holds_descriptor() {
        // The page of an error: it is sent without.
        let page = Response::plain(response.status);
        response.body = page.body;
        (response.fields.content_type, response.fields.content_encoding) = (page.fields.content_type, None);
    }
    let framing = exchange.answered(&mut response);
    let owed = exchange.park();
    let place = place.filter(|_| response.body.holds_descriptor());
    Sending::new(id, Answered { head: Some(head), current, owed, response, framing, is_tunnel, _place: place })
}

/// Refuses a request whose head is malformed or too large. `head` holds what was decoded.
pub(super) fn refuse<'a>(context: &'a Context<'a>, id: StreamId, status: Status, head: HeadBuffer) -> Answering<'a> {
    let current = context.shared.generations.current();
    Box::pin(async move {
        let decoded = head.request();
        let request = decoded.to_request();
        let peer = context.peer(decoded.fields, Protocol::Http2);
        let exchange = Exchange::begin(context, &current, peer, request.as_ref());
        let response = exchange.refuse(status).await;
        let framing = exchange.framing(Method::from_token(decoded.method), &response);
        let owed = exchange.park();
        let (head, is_tunnel) = (Some(head), false);
        Sending::new(id, Answered { head, current, owed, response, framing, is_tunnel, _place: None })
    })
}

/// How a response was sent.
pub(super) struct Delivery<'a> {
    pub(super) stream: StreamId,
    /// Octets of content.
    pub(super) body: u64,
    /// Octets of frames.
    pub(super) wire: u64,
    pub(super) path: SealedBy,
    pub(super) choice: &'a mut PathChoice,
    /// Why the response is incomplete.
    pub(super) aborted: Option<&'a dyn Display>,
}

impl Delivery<'_> {
    /// Writes the line of the access log and updates the metrics.
    fn finish(self, mut exchange: Exchange<'_, '_>, response: &Response, tls: Option<&HandshakeInfo>) {
        let Delivery { stream, body, wire, path, choice, aborted } = self;
        let outcome = Outcome::of(response, (body, wire), path, choice, aborted);
        let mut outcome = Outcome { stream: Some(stream.get().into()), ..outcome };
        // One response is logged with the move, of however many it was made for.
        if outcome.reason == Some(PathReason::Moved) && outcome.set_up.is_none() {
            outcome.reason = Some(PathReason::MovedBefore);
        }
        exchange.finish(tls, &outcome);
        choice.set_up = None;
    }

    /// The same for a request that was reset before it had a stream.
    pub(super) fn of_reset(self, context: &Context<'_>, status: Status, tls: Option<&HandshakeInfo>) {
        let current = context.shared.generations.current();
        let exchange = Exchange::begin(context, &current, context.peer_at(context.remote, Protocol::Http2), None);
        self.finish(exchange, &Response::plain(status), tls);
    }
}

impl Answered<'_> {
    /// Octets of the head that is kept.
    pub(super) fn memory(&self) -> usize {
        self.head.as_ref().map_or(0, HeadBuffer::memory)
    }

    /// Writes the line of the access log and updates the metrics.
    pub(super) fn finish(&mut self, tls: Option<&HandshakeInfo>, delivery: Delivery<'_>) {
        if self.owed.is_owed() {
            let decoded = self.head.as_ref().map(HeadBuffer::request);
            let request = decoded.as_ref().and_then(|decoded| decoded.to_request());
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

/// The request as sites see it. To them CONNECT with a protocol is what asks for the protocol over HTTP/1.1: a GET (RFC 8441 §5).
fn as_seen<'a>(decoded: &RequestHead<'a>) -> Option<Request<'a>> {
    let mut request = decoded.to_request()?;
    if decoded.protocol.is_some() {
        request.method = Method::Get;
    }
    Some(request)
}

thread_local! {
    static FREE: RefCell<Vec<HeadBuffer>> = const { RefCell::new(Vec::new()) };
}

/// Buffers kept per thread: as many as there are responses in a batch of small ones.
const MOST_KEPT: usize = 64;

/// Octets above which a buffer is freed, as for HTTP/1.
const LONGEST_KEPT: usize = 8 << 10;

/// An empty buffer, from the thread's store if it has one.
pub(super) fn free_head() -> HeadBuffer {
    FREE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives a buffer to the thread's store.
pub(super) fn keep_head(head: HeadBuffer) {
    if head.memory() <= LONGEST_KEPT {
        FREE.with_borrow_mut(|free| {
            if free.len() < MOST_KEPT {
                free.push(head);
            }
        });
    }
}
