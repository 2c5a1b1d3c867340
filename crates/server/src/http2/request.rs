//! From a request's head to its response, at once or after waiting.

use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use sealion_h2::{HeadBuffer, HeaderBlock, RequestHead, StreamId};
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::Version;
use sealion_http::{Method, Protocol, Request, Status};
use sealion_tls::{ClientAuthId, HandshakeInfo, SealedBy};
use tokio::sync::oneshot;

use crate::exchange::{
    Connection, Current, Exchange, Listener, Outcome, PathChoice, Peer, Shared, Started, address, endpoints, now,
};
use crate::limits::{ConnectionStreams, Permit, Refusal, StreamPlace};
use crate::path::policy::PathReason;
use crate::response::Response;
use crate::site::{self, Arrival, Client};
use crate::upstream::{HeadRoom, Inbound, Interim, InterimReceiver, Reading, RequestContent, interim_responses};

/// What all requests of a connection share.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) shared: &'a Shared,
    pub(super) listener: &'a Listener,
    /// The remote end of the connection.
    pub(super) remote: SocketAddr,
    /// The client authentication that the handshake enforced.
    pub(super) auth: Option<ClientAuthId>,
}

/// A request with its response.
pub(super) struct Answered {
    /// The head, if the access log or the span needs it.
    head: Option<HeadBuffer>,
    current: Current,
    started: Option<Started>,
    /// The client's address.
    client: SocketAddr,
    pub(super) response: Response,
    /// As of HTTP/1.1: HTTP/2 frames content by itself, but announces and omits it by the same rules (RFC 9113 §8.1).
    pub(super) framing: ResponseFraming,
    /// Its content is another protocol's.
    pub(super) is_tunnel: bool,
    /// Room for the descriptors that the response holds.
    _place: Option<StreamPlace>,
}

/// A response that is made while others are sent.
pub(super) type Answering<'a> = Pin<Box<dyn Future<Output = Box<Answered>> + Send + 'a>>;

/// A response, at once or later.
pub(super) enum Answer<'a> {
    Now(Box<Answered>),
    Later(Later<'a>),
}

/// A response that has to be waited for.
pub(super) struct Later<'a> {
    pub(super) answer: Answering<'a>,
    /// Dropped, it says that the client left: the request to a server, or the wait for a place, ends.
    pub(super) cancel: Option<oneshot::Sender<()>>,
    /// The request may be forwarded.
    pub(super) forwards: bool,
    /// The header block of a response 103 that is sent meanwhile.
    pub(super) hints: Option<HeaderBlock>,
    /// Interim responses of a server, sent meanwhile too.
    pub(super) interims: Option<InterimReceiver>,
}

impl<'a> From<Answering<'a>> for Answer<'a> {
    fn from(answer: Answering<'a>) -> Self {
        Answer::Later(Later { answer, cancel: None, forwards: false, hints: None, interims: None })
    }
}

/// The descriptors and the memory of the connection that a response may take.
#[derive(Clone, Copy)]
pub(super) struct StreamRoom<'a> {
    pub(super) streams: &'a Arc<ConnectionStreams>,
    /// How much of it is read before the client takes it: asked if it is forwarded.
    pub(super) reading: &'a dyn Fn() -> Reading,
    /// Whether its head is read from a server, where little is read.
    pub(super) heads: &'a Arc<HeadRoom>,
}

impl<'a> Context<'a> {
    /// Whether the request in `head` may be forwarded, so that its content is passed on as it comes.
    pub(super) fn may_forward(&self, head: &HeadBuffer, current: &Current) -> bool {
        let decoded = head.request();
        let Some(request) = as_seen(&decoded) else { return false };
        let exchange = Exchange::resume(self.shared, current, self.listener, Some(&request), None);
        let peer = self.peer(self.remote, &request);
        exchange.route(peer).is_some_and(|site| site.may_forward(&request))
    }

    /// Answers the request in `head`. What has to wait keeps the head. `content`: if it is passed on.
    pub(super) fn answer(
        &self,
        head: &mut HeadBuffer,
        permit: &mut Permit,
        connection: &impl Connection,
        content: Option<RequestContent>,
        current: Current,
        room: StreamRoom<'_>,
    ) -> Answer<'a> {
        let StreamRoom { streams, .. } = room;
        let decoded = head.request();
        let is_tunnel = decoded.protocol.is_some();
        let Some(request) = as_seen(&decoded) else {
            let head = std::mem::replace(head, free_head());
            return self.refuse(Status::BAD_REQUEST, head).into();
        };
        if request.raw_target.len() > current.head_limits.request_line {
            let head = std::mem::replace(head, free_head());
            return self.refuse(Status::URI_TOO_LONG, head).into();
        }
        let exchange = Exchange::begin(self.shared, &current, self.listener, self.remote, Some(&request));
        let client = self.listener.client(self.remote, request.fields);
        let peer = self.peer(client, &request);
        let refusal = exchange.admit(&request, peer, permit, connection);
        let site = exchange.route(peer);
        let response = match site {
            None => Some(exchange.misdirected()),
            Some(_) if is_tunnel => None,
            Some(site) => {
                let is_trusted = self.listener.trusts(self.remote);
                let arrival = content.is_none().then_some(Arrival { scheme: peer.scheme, is_trusted });
                site::answer_from_cache(site, &request, Client { refusal, arrival, ..peer.to_site_client() }, now())
            }
        };
        let needs_place = response.as_ref().is_some_and(|response| response.body.holds_descriptor());
        let place = if needs_place { streams.try_take() } else { None };
        let started = exchange.started();
        match response {
            // Without a place the file is let go, and the request waits for one.
            Some(mut response) if !needs_place || place.is_some() => {
                exchange.answered(&request, peer, &mut response);
                let framing = framing(request.method, &response);
                let head = exchange.describes_request().then(|| std::mem::replace(head, free_head()));
                Answer::Now(Box::new(Answered {
                    head,
                    current,
                    started,
                    client,
                    response,
                    framing,
                    is_tunnel: false,
                    _place: place,
                }))
            }
            _ => {
                let client = Client { refusal, ..peer.to_site_client() };
                let hints =
                    site.filter(|_| !is_tunnel).and_then(|site| site::early_hints(site, &request, client, now()));
                let hints = hints.map(block_of_hints);
                let forwards = site.is_some_and(|site| site.may_forward(&request));
                let passes_interim = forwards && site.is_some_and(|site| site.passes_interim(&request));
                let (interim, interims) = passes_interim.then(interim_responses).unzip();
                let (cancel, gone) = oneshot::channel();
                let endpoints =
                    site.filter(|site| site.names_endpoints()).and_then(|_| endpoints(peer.address, connection));
                let inbound = self.inbound(&request, peer, content, gone);
                let reading = (room.reading)();
                let inbound = Inbound {
                    interim,
                    endpoints,
                    upgrade: is_tunnel,
                    is_connect: is_tunnel,
                    span: exchange.span(),
                    heads: (reading == Reading::Sparing).then(|| Arc::clone(room.heads)),
                    reading,
                    ..inbound
                };
                let head = std::mem::replace(head, free_head());
                let streams = Arc::clone(streams);
                let answer = Box::pin(self.answer_later(head, current, started, peer, refusal, (inbound, streams)));
                Answer::Later(Later { answer, cancel: Some(cancel), forwards, hints, interims })
            }
        }
    }

    /// The client of a request, which has this address.
    fn peer(&self, client: SocketAddr, request: &Request<'_>) -> Peer {
        let scheme = self.listener.scheme(self.remote, request.fields);
        Peer { address: client, auth: self.auth, protocol: Protocol::Http2, scheme }
    }

    async fn answer_later(
        self,
        head: HeadBuffer,
        current: Current,
        started: Option<Started>,
        peer: Peer,
        refusal: Option<Refusal>,
        (mut inbound, streams): (Inbound, Arc<ConnectionStreams>),
    ) -> Box<Answered> {
        let place = match inbound.is_connect {
            // In the connection's own place, it would let the connection's responses wait for as long as it is open.
            true => streams.try_take_shared(),
            false => match streams.try_take() {
                Some(place) => Some(place),
                // Boxed: few requests wait.
                None => Box::pin(wait_for_place(&streams, &current, inbound.gone.as_mut())).await,
            },
        };
        let (response, framing, is_tunnel) = {
            let decoded = head.request();
            let request = as_seen(&decoded);
            let exchange = Exchange::resume(self.shared, &current, self.listener, request.as_ref(), started.clone());
            match (&request, exchange.route(peer)) {
                (Some(request), Some(_)) if place.is_none() => {
                    let mut response = Box::pin(exchange.refuse(peer, Status::SERVICE_UNAVAILABLE)).await;
                    response.cause = Some(io::Error::other(NO_PLACE));
                    let framing = framing(request.method, &response);
                    (response, framing, false)
                }
                (Some(request), Some(site)) => {
                    let client = Client { refusal, ..peer.to_site_client() };
                    let mut response = site::answer(site, request, client, now(), inbound).await;
                    let is_connect = decoded.protocol.is_some();
                    let is_tunnel = is_connect && opens_tunnel(&mut response);
                    // The client would take it for a tunnel.
                    if is_connect && !is_tunnel && (200..300).contains(&response.status.code()) {
                        let refused = Box::pin(exchange.refuse(peer, Status::NOT_IMPLEMENTED)).await;
                        let Response { user, upstream, cache, .. } = response;
                        response = Response { user, upstream, cache, ..refused };
                    }
                    exchange.answered(request, peer, &mut response);
                    let framing = framing(request.method, &response);
                    (response, framing, is_tunnel)
                }
                // Not reached: both were looked at before.
                _ => {
                    let response = exchange.misdirected();
                    let framing = framing(Method::Get, &response);
                    (response, framing, false)
                }
            }
        };
        let client = peer.address;
        let place = place.filter(|_| response.body.holds_descriptor());
        Box::new(Answered { head: Some(head), current, started, client, response, framing, is_tunnel, _place: place })
    }

    fn inbound(
        &self,
        request: &Request<'_>,
        peer: Peer,
        content: Option<RequestContent>,
        gone: oneshot::Receiver<()>,
    ) -> Inbound {
        Inbound {
            content,
            upgrade: false,
            is_connect: false,
            remote: address(self.remote),
            is_trusted: self.listener.trusts(self.remote),
            is_direct: self.listener.is_direct(self.remote),
            takes_x_forwarded: self.listener.takes_x_forwarded(self.remote),
            chain: self.listener.chain(self.remote, request.fields),
            client: address(peer.address),
            endpoints: None,
            scheme: peer.scheme,
            protocol: Protocol::Http2,
            fields: Vec::new(),
            interim: None,
            script: None,
            gone: Some(gone),
            span: None,
            reading: Reading::Ahead,
            heads: None,
        }
    }

    /// Refuses a request, of which `head` has what is known.
    pub(super) fn refuse(&self, status: Status, head: HeadBuffer) -> Answering<'a> {
        let (context, current) = (*self, self.shared.generations.current());
        Box::pin(async move {
            let (response, framing, client, started) = {
                let decoded = head.request();
                let request = decoded.to_request();
                let exchange =
                    Exchange::begin(context.shared, &current, context.listener, context.remote, request.as_ref());
                let client = context.listener.client(context.remote, decoded.fields);
                let scheme = context.listener.scheme(context.remote, decoded.fields);
                let peer = Peer { address: client, auth: context.auth, protocol: Protocol::Http2, scheme };
                let response = exchange.refuse(peer, status).await;
                let framing = framing(Method::from_token(decoded.method), &response);
                (response, framing, client, exchange.started())
            };
            Box::new(Answered {
                head: Some(head),
                current,
                started,
                client,
                response,
                framing,
                is_tunnel: false,
                _place: None,
            })
        })
    }

    /// What the log says of a request that was reset before it had a stream.
    pub(super) fn reset(&self, status: Status) -> Answered {
        let current = self.shared.generations.current();
        let started = Exchange::begin(self.shared, &current, self.listener, self.remote, None).started();
        let response = Response::plain(status);
        let framing = framing(Method::Get, &response);
        let client = self.remote;
        Answered { head: None, current, started, client, response, framing, is_tunnel: false, _place: None }
    }
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

impl Answered {
    /// Octets of the head that is kept.
    pub(super) fn memory(&self) -> usize {
        self.head.as_ref().map_or(0, HeadBuffer::memory)
    }

    /// Writes the line of the access log and updates the metrics.
    pub(super) fn finish(mut self, context: &Context<'_>, tls: Option<&HandshakeInfo>, delivery: Delivery<'_>) {
        let Delivery { stream, body, wire, path, choice, aborted } = delivery;
        let head = self.head.take();
        let decoded = head.as_ref().map(HeadBuffer::request);
        let request = decoded.as_ref().and_then(|decoded| decoded.to_request());
        let exchange =
            Exchange::resume(context.shared, &self.current, context.listener, request.as_ref(), self.started);
        let mut outcome = Outcome {
            stream: Some(stream.get().into()),
            ..Outcome::of(&self.response, (body, wire), path, choice, aborted)
        };
        // The move is that of one response, of however many it was made for.
        if outcome.reason == Some(PathReason::Moved) && outcome.set_up.is_none() {
            outcome.reason = Some(PathReason::MovedBefore);
        }
        choice.set_up = None;
        exchange.finish(request.as_ref().map(|request| (request, Protocol::Http2)), self.client, tls, &outcome);
        if let Some(head) = head {
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

/// Why a request is refused for which no place is free.
const NO_PLACE: &str =
    "no descriptor was free for this stream: raise the limit on open files (LimitNOFILE=, ulimit -Hn)";

/// The request as sites see it. To them CONNECT with a protocol is what asks for the protocol over HTTP/1.1: a GET (RFC 8441 §5).
fn as_seen<'a>(decoded: &RequestHead<'a>) -> Option<Request<'a>> {
    let mut request = decoded.to_request()?;
    if decoded.protocol.is_some() {
        request.method = Method::Get;
    }
    Some(request)
}

/// Whether a tunnel is open: 101 says so to GET, and becomes the 2xx that says so to CONNECT with a protocol.
fn opens_tunnel(response: &mut Response) -> bool {
    let is_open = response.status == Status::SWITCHING_PROTOCOLS;
    if is_open {
        response.status = Status::OK;
        response.fields.extra.remove("Upgrade");
        // The reply to a key that the client did not send.
        response.fields.extra.remove("Sec-WebSocket-Accept");
    }
    is_open
}

fn block_of_hints(links: &[String]) -> HeaderBlock {
    let mut block = HeaderBlock::response(Status::EARLY_HINTS.code());
    links.iter().for_each(|link| block.field("link", link.as_bytes()));
    block
}

/// The header block of an interim response.
pub(super) fn block_of_interim(interim: &Interim) -> HeaderBlock {
    let mut block = HeaderBlock::response(interim.status.code());
    // The names of a server's fields are in lower case already.
    interim.fields.iter().for_each(|(name, value)| block.field(name, value));
    block
}

fn framing(method: Method<'_>, response: &Response) -> ResponseFraming {
    ResponseFraming::of(Version::Http11, method, response.status, response.body.len())
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
