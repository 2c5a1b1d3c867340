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
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use sealion_http::date::WholeSeconds;
use sealion_http::http1::body::{BodyDrain, Drained};
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::{self, Framing, HeadSpan, Reject, RequestHead, Version};
use sealion_http::http1::write::Connection;
use sealion_http::{HttpTime, Method, Protocol, Request, Status};
use sealion_tls::{ClientAuthId, Part, TlsStream};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::buffer::Buffer;
use super::content::{ContentReader, Step};
use super::guess_method;
use super::respond::{Progress, Sent, respond};
use crate::exchange::{
    Current, End, Error, Exchange, Listener, Outcome, PathChoice, Peer, Shared, address, endpoints, now, poll_idle_end,
};
use crate::limits::{Idle, Permit};
use crate::observe::metrics;
use crate::response::{Body, Response};
use crate::site::{self, Arrival, Client, Site};
use crate::upstream::{Inbound, Interim, InterimReceiver, interim_responses};

/// Serves requests until the connection should be closed in order; the caller closes it.
///
/// # Errors
/// The connection failed.
pub(crate) async fn serve(
    stream: &mut TlsStream,
    peer: &SocketAddr,
    listener: &Listener,
    shared: &Shared,
) -> Result<End, Error> {
    let mut connection =
        Http1 { listener, path: PathChoice::default(), permit: Permit::default(), requests: 0, served: None };
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let mut idle = shared.idle.register(waker);
    let mut in_a_row = 0;
    loop {
        let waited = wait_for_request(stream, &mut idle, &mut in_a_row).await?;
        if let Some(end) = waited {
            return Ok(end);
        }
        // Requests that have all arrived already would keep the worker from its other connections.
        in_a_row += 1;
        if in_a_row > MOST_IN_A_ROW {
            in_a_row = 0;
            yield_now().await;
        }
        // Boxed, so that an idle connection does not hold its memory.
        if !Box::pin(connection.exchange(stream, peer, shared)).await? {
            return Ok(End::Usual);
        }
    }
}

/// Responses to requests that had arrived already, after which other connections have their turn: a yield costs about a microsecond, as much as
/// a tenth of a response.
const MOST_IN_A_ROW: u32 = 4;

/// Connection state that persists across requests.
struct Http1<'a> {
    listener: &'a Listener,
    path: PathChoice,
    permit: Permit,
    requests: u64,
    /// The second of the latest answer.
    served: Option<WholeSeconds>,
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

/// Why a request could not be read.
enum Unread {
    /// The client closed the connection.
    Gone,
    /// Answer with this status and close the connection.
    Refused(Status),
}

impl From<Reject> for Unread {
    fn from(reject: Reject) -> Self {
        tracing::debug!("request refused with {}: {}", reject.status, reject.why);
        Unread::Refused(reject.status)
    }
}

impl Http1<'_> {
    /// Reads a request and sends the response. `false`: close the connection.
    async fn exchange(&mut self, stream: &mut TlsStream, peer: &SocketAddr, shared: &Shared) -> Result<bool, Error> {
        let _active = metrics::worker().map(|worker| worker.active.enter());
        self.requests += 1;
        let current = shared.generations.current();
        let mut deadline = Deadline::new(&current);
        let mut bytes = Buffer::take();
        let span = match read_head(stream, &current, &mut deadline).await? {
            Ok(span) => span,
            Err(Unread::Gone) => return Ok(false),
            Err(Unread::Refused(status)) => {
                let method = guess_method(stream.buffered());
                return Box::pin(self.refuse(stream, peer, shared, &current, status, method)).await;
            }
        };
        // The head is copied, so that the stream can keep reading.
        bytes.extend_from_slice(&stream.buffered()[span.start..span.end]);
        stream.consume(span.end);
        let head = match RequestHead::parse(&bytes, span.from_start()) {
            Ok(head) => head,
            Err(reject) => {
                let Unread::Refused(status) = reject.into() else { return Ok(false) };
                let method = guess_method(&bytes);
                let peer =
                    &head::fields(&bytes, span.from_start()).map_or(*peer, |all| self.listener.client(*peer, all));
                return Box::pin(self.refuse(stream, peer, shared, &current, status, method)).await;
            }
        };
        let exchange = Exchange::begin(shared, &current, self.listener, *peer, Some(&head.request));
        let remote = *peer;
        let peer = &self.listener.client(remote, head.request.fields);
        let date = now();
        // Once a second for a busy connection, and always after a pause.
        if self.served != Some(date.seconds()) {
            self.served = Some(date.seconds());
            stream.expect_small_window();
        }
        let scheme = self.listener.scheme(remote, head.request.fields);
        let client = Peer { address: *peer, auth: client_auth(stream), protocol: head.version.into(), scheme };
        let refusal = exchange.admit(&head.request, client, &mut self.permit, stream);
        let site = exchange.route(client);
        // For requests without content, `may_forward` is computed only after the caches have no answer (below).
        let needs_to_know = head.framing != Framing::None || head.expect_continue;
        let forwards = needs_to_know && site.is_some_and(|site| site.may_forward(&head.request));
        let wants_close = !head.keep_alive || (head.expect_continue && !forwards);
        let is_last = current.limits.max_requests.is_some_and(|most| self.requests >= most.get());
        let mut close = wants_close || is_last || !shared.is_serving();
        let mut content = None;
        let mut unread = None;
        // Before the answer: a client that leaves in its content would learn from the time whether its password is right, and leave no line.
        if head.framing != Framing::None && !wants_close && !forwards {
            let drain = BodyDrain::new(head.framing, current.limits.max_body.0);
            match Box::pin(drain_body(stream, drain, &mut deadline)).await? {
                Ok(drained) => close |= !drained,
                Err(Unread::Gone) => return Ok(false),
                Err(Unread::Refused(status)) => {
                    unread = Some(status);
                    close = true;
                }
            }
        }
        // Where the site is served without TLS, its authority asks there too.
        let challenge = (!self.listener.is_tls).then(|| exchange.challenge(&head.request)).flatten();
        let mut response = match (challenge, unread, site) {
            (Some(response), ..) => response,
            (None, Some(status), _) => Box::pin(exchange.refuse(client, status)).await,
            (None, None, None) => exchange.misdirected(),
            // A client that leaves meanwhile is noticed when the response is sent: what it asked, a wrong password too, is logged.
            (None, None, Some(site)) => {
                // The cache itself leaves out requests that ask for another protocol.
                let is_plain = site.has_proxies() && head.framing == Framing::None;
                let arrival = is_plain.then(|| Arrival { scheme, is_trusted: self.listener.trusts(remote) });
                let asking = client;
                let client = Client { refusal, arrival, ..asking.to_site_client() };
                let cached = site::answer_from_cache(site, &head.request, client, date);
                if cached.is_none()
                    && let Some(hints) = early_hints(site, &head, client, date)
                {
                    // The response meets a failure too, and has a line.
                    let _ = Box::pin(stream.respond(&[Part::Bytes(&hints)])).await;
                }
                match cached {
                    Some(response) => response,
                    // It would be done, and its answer refused all the same.
                    None if head.version == Version::Http10
                        && !is_safe(head.request.method)
                        && !shows_cuts(stream)
                        && site.may_forward(&head.request) =>
                    {
                        close = true;
                        Box::pin(until_close(&exchange, asking)).await
                    }
                    None if forwards || site.may_forward(&head.request) => {
                        let patience = current.limits.request_timeout.duration();
                        let (here, gone) = oneshot::channel();
                        let inbound = self.inbound(&head, remote, asking, patience, &mut content);
                        // HTTP/1.0 has none (RFC 9110 §15.2).
                        let passes_interim = head.version == Version::Http11 && site.passes_interim(&head.request);
                        let (interim, interims) = passes_interim.then(interim_responses).unzip();
                        let endpoints = site.names_endpoints().then(|| endpoints(*peer, stream)).flatten();
                        let inbound =
                            Inbound { gone: Some(gone), interim, endpoints, span: exchange.span(), ..inbound };
                        // It is large, and would be moved again and again.
                        let answer = Box::pin(site::answer(site, &head.request, client, date, inbound));
                        let request = (&head.request, head.version.into());
                        let mut awaiting =
                            Awaiting { stream, exchange: &exchange, request, peer: *peer, is_over: false };
                        let response =
                            Box::pin(answer_meanwhile(awaiting.stream, answer, &mut content, interims, here)).await;
                        awaiting.is_over = true;
                        response
                    }
                    None => {
                        let endpoints = site.names_endpoints().then(|| endpoints(*peer, stream)).flatten();
                        let inbound =
                            Inbound { endpoints, span: exchange.span(), ..self.hop(&head.request, remote, asking) };
                        Box::pin(site::answer(site, &head.request, client, date, inbound)).await
                    }
                }
            }
        };
        match &mut content {
            Some(content) if response.status == Status::SWITCHING_PROTOCOLS => content.open_tunnel(),
            Some(content) => close |= !content.is_complete(),
            None => {}
        }
        let framing_of = |response: &Response| {
            ResponseFraming::of(head.version, head.request.method, response.status, response.body.len())
        };
        let mut framing = framing_of(&response);
        if framing == ResponseFraming::UntilClose && !shows_cuts(stream) {
            let refused = Box::pin(until_close(&exchange, client)).await;
            let Response { user, upstream, cache, .. } = response;
            response = Response { user, upstream, cache, ..refused };
            framing = framing_of(&response);
            close = true;
        }
        exchange.answered(&head.request, client, &mut response);
        close |= stream.should_close();
        let connection = match (close || framing.needs_close(), head.version) {
            _ if framing == ResponseFraming::Tunnel => Connection::Upgrade,
            (true, _) => Connection::Close,
            (false, Version::Http10) => Connection::KeepAlive10,
            (false, Version::Http11) => Connection::KeepAlive,
        };
        let policy = shared.path_policy(current.ktls);
        let request = Some((&head.request, head.version.into()));
        let mut sending = Responding::new(&mut self.path, stream, &exchange, request, *peer, &mut response);
        let Responding { path, stream, response, progress, .. } = &mut sending;
        let content = content.as_mut();
        let result = respond(stream, path, policy, response, framing, connection, &date, progress, content).await;
        sending.end(result).map(|()| !matches!(connection, Connection::Close | Connection::Upgrade))
    }

    /// What an upstream learns of a request on a connection from `remote`. `content`: its reader, if it has content or asks for a tunnel.
    fn inbound(
        &self,
        head: &RequestHead<'_>,
        remote: SocketAddr,
        client: Peer,
        patience: Duration,
        content: &mut Option<ContentReader>,
    ) -> Inbound {
        let has_content = !matches!(head.framing, Framing::None | Framing::Length(0));
        let upgrade =
            head.framing == Framing::None && head.version == Version::Http11 && asks_for_upgrade(&head.request);
        let pipe = match (has_content, upgrade) {
            (true, _) => Some(ContentReader::new(head.framing, head.expect_continue, patience)),
            (false, true) => Some(ContentReader::of_tunnel()),
            (false, false) => None,
        };
        let (reader, passed) = pipe.unzip();
        *content = reader;
        Inbound { content: passed, upgrade, ..self.hop(&head.request, remote, client) }
    }

    /// The same for a request that is not forwarded. Another server may be asked whether it may pass.
    fn hop(&self, request: &Request<'_>, remote: SocketAddr, client: Peer) -> Inbound {
        Inbound {
            remote: address(remote),
            is_trusted: self.listener.trusts(remote),
            is_direct: self.listener.is_direct(remote),
            takes_x_forwarded: self.listener.takes_x_forwarded(remote),
            chain: self.listener.chain(remote, request.fields),
            client: address(client.address),
            scheme: client.scheme,
            protocol: client.protocol,
            ..Inbound::default()
        }
    }

    /// Sends the response to a request that could not be read. `method`: guessed from its first bytes. `false`: close the
    /// connection.
    async fn refuse(
        &mut self,
        stream: &mut TlsStream,
        peer: &SocketAddr,
        shared: &Shared,
        current: &Current,
        status: Status,
        method: Method<'_>,
    ) -> Result<bool, Error> {
        let exchange = Exchange::begin(shared, current, self.listener, *peer, None);
        let client = Peer {
            address: *peer,
            auth: client_auth(stream),
            protocol: Protocol::Http11,
            scheme: self.listener.own_scheme(),
        };
        let mut response = exchange.refuse(client, status).await;
        let framing = ResponseFraming::of(Version::Http11, method, status, response.body.len());
        let (close, date) = (Connection::Close, now());
        let policy = shared.path_policy(current.ktls);
        let mut sending = Responding::new(&mut self.path, stream, &exchange, None, *peer, &mut response);
        let Responding { path, stream, response, progress, .. } = &mut sending;
        let result = respond(stream, path, policy, response, framing, close, &date, progress, None).await;
        sending.end(result).map(|()| false)
    }
}

/// Whether the end of the connection tells a response that is cut from one that is whole: by close_notify, or by a reset, which a Unix socket has not.
fn shows_cuts(stream: &TlsStream) -> bool {
    let is_unix = |socket: socket2::SockRef<'_>| socket.local_addr().is_ok_and(|local| local.is_unix());
    stream.info().is_some() || !is_unix(socket2::SockRef::from(stream.socket()))
}

/// The refusal of a request whose answer may have no length, or has none.
async fn until_close(exchange: &Exchange<'_>, client: Peer) -> Response {
    exchange.refuse(client, Status::HTTP_VERSION_NOT_SUPPORTED).await.because(Some(io::Error::other(UNTIL_CLOSE)))
}

/// Whether a request asks for nothing to be done (RFC 9110 §9.2.1).
fn is_safe(method: Method<'_>) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS")
}

const UNTIL_CLOSE: &str = "an answer without a length, over a Unix socket and to HTTP/1.0, could not be told from one that is cut: have the proxy in front use HTTP/1.1 (nginx: proxy_http_version 1.1)";

fn client_auth(stream: &TlsStream) -> Option<ClientAuthId> {
    stream.info().and_then(|info| info.client_auth)
}

/// A request whose answer is awaited. It has a line in the log if it is dropped before, at the end of the grace time.
struct Awaiting<'a> {
    stream: &'a mut TlsStream,
    exchange: &'a Exchange<'a>,
    request: (&'a Request<'a>, Protocol),
    peer: SocketAddr,
    is_over: bool,
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let response = Response::plain(Status::SERVICE_UNAVAILABLE);
            let (cut, path) = (self.exchange.cut(), self.stream.path());
            let outcome = Outcome::of(&response, (0, 0), path, &PathChoice::default(), Some(&cut));
            self.exchange.finish(Some(self.request), self.peer, self.stream.info(), &outcome);
        }
    }
}

/// Whether a request asks for another protocol (RFC 9110 §7.8).
fn asks_for_upgrade(request: &Request<'_>) -> bool {
    let names_it =
        |line: &[u8]| line.split(|octet| *octet == b',').any(|name| name.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    request.fields.first("upgrade").is_some() && request.fields.all("connection").any(names_it)
}

/// What happened while an answer was awaited.
#[expect(clippy::large_enum_variant, reason = "it is moved once, and a box would be one for each answer")]
enum Meanwhile {
    Answered(Response),
    /// The content of the request is wanted: 100 is to be sent.
    Continue,
    Interim(Interim),
}

/// Awaits an answer that may come from an upstream. Meanwhile it reads the content of the request and passes `interims` on. A client that leaves
/// ends what is forwarded, by `here`. What the site answers by itself is awaited: a wrong password is logged as such.
async fn answer_meanwhile(
    stream: &mut TlsStream,
    mut answer: Pin<Box<impl Future<Output = Response>>>,
    content: &mut Option<ContentReader>,
    mut interims: Option<InterimReceiver>,
    here: oneshot::Sender<()>,
) -> Response {
    let mut here = Some(here);
    // Whether the client may still send, or close.
    let mut is_open = true;
    loop {
        let event = poll_fn(|cx| {
            if let Poll::Ready(response) = answer.as_mut().poll(cx) {
                return Poll::Ready(Meanwhile::Answered(response));
            }
            if let Some(receiver) = &mut interims
                && let Poll::Ready(received) = receiver.poll_recv(cx)
            {
                match received {
                    Some(interim) => return Poll::Ready(Meanwhile::Interim(interim)),
                    None => interims = None,
                }
            }
            let was_open = is_open;
            while is_open {
                let lost = match content.as_mut().map(|content| content.poll(cx, stream)) {
                    Some(Poll::Pending) => return Poll::Pending,
                    Some(Poll::Ready(Ok(Step::Continue))) => return Poll::Ready(Meanwhile::Continue),
                    Some(Poll::Ready(Err(error))) => Some(error),
                    // The content is complete.
                    Some(Poll::Ready(Ok(Step::Done))) | None => match stream.poll_peer_gone(cx) {
                        Poll::Pending => return Poll::Pending,
                        // A half-close before the head of the response counts as gone: status 499.
                        Poll::Ready(gone) => {
                            Some(gone.map_or_else(Error::from, |()| sealion_tls::Error::Truncated.into()))
                        }
                    },
                };
                is_open = false;
                if let Some(error) = lost {
                    tracing::debug!("the client left before the answer: {error}");
                    here = None;
                }
            }
            // What waited for the client goes on now.
            if was_open { answer.as_mut().poll(cx).map(Meanwhile::Answered) } else { Poll::Pending }
        })
        .await;
        let sent = match event {
            Meanwhile::Answered(response) => {
                // Those that came with it. The response meets a failure too.
                while let Some(interim) = interims.as_mut().and_then(|receiver| receiver.try_recv().ok()) {
                    let _ = stream.respond(&[Part::Bytes(&head_of_interim(&interim))]).await;
                }
                drop(here);
                return response;
            }
            Meanwhile::Continue => stream.respond(&[Part::Bytes(b"HTTP/1.1 100 Continue\r\n\r\n")]).await,
            Meanwhile::Interim(interim) => stream.respond(&[Part::Bytes(&head_of_interim(&interim))]).await,
        };
        if let Err(error) = sent {
            tracing::debug!("the client left before an interim response: {error}");
            (here, is_open) = (None, false);
        }
    }
}

fn head_of_interim(interim: &Interim) -> Vec<u8> {
    let mut head = Vec::with_capacity(interim.fields.lines().len() + 64);
    interim.status.write_line(&mut head);
    head.extend_from_slice(interim.fields.lines());
    head.extend_from_slice(b"\r\n");
    head
}

/// A response being sent. Its line is written when it ends, or when it is dropped before: with the worker's runtime, at the end of the grace
/// time.
struct Responding<'a> {
    path: &'a mut PathChoice,
    stream: &'a mut TlsStream,
    exchange: &'a Exchange<'a>,
    request: Option<(&'a Request<'a>, Protocol)>,
    peer: SocketAddr,
    response: &'a mut Response,
    progress: Progress,
    has_ended: bool,
}

impl<'a> Responding<'a> {
    /// `request`: with its protocol; `None`: it could not be read.
    fn new(
        path: &'a mut PathChoice,
        stream: &'a mut TlsStream,
        exchange: &'a Exchange<'a>,
        request: Option<(&'a Request<'a>, Protocol)>,
        peer: SocketAddr,
        response: &'a mut Response,
    ) -> Self {
        let progress = Progress::begin(stream);
        Responding { path, stream, exchange, request, peer, response, progress, has_ended: false }
    }

    /// Ends it with the result of [`respond`].
    fn end(mut self, result: Result<(), Error>) -> Result<(), Error> {
        self.has_ended = true;
        if let Err(Error::Tls(error)) = &result
            && error.is_of_file()
        {
            self.response.body.note_unreadable();
        }
        self.finish(result.as_ref().err().map(|error| error as &dyn Display));
        result
    }

    fn finish(&self, aborted: Option<&dyn Display>) {
        let Sent { body, wire, unsent } = self.progress.sent(self.stream);
        if let Body::Stream(stream) = &self.response.body
            && unsent > 0
        {
            stream.source.take_back(unsent);
        }
        let outcome = Outcome::of(self.response, (body, wire), self.stream.path(), self.path, aborted);
        self.exchange.finish(self.request, self.peer, self.stream.info(), &outcome);
    }
}

impl Drop for Responding<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.finish(Some(&self.exchange.cut()));
        }
    }
}

/// The request timeout. It starts with the first wait for missing bytes; usually there is none.
struct Deadline {
    timeout: Duration,
    at: Option<Instant>,
}

impl Deadline {
    fn new(current: &Current) -> Self {
        Deadline { timeout: current.limits.request_timeout.duration(), at: None }
    }

    /// Reads more of the request, until the deadline.
    async fn read_more(&mut self, stream: &mut TlsStream) -> Result<Result<(), Unread>, Error> {
        let at = *self.at.get_or_insert_with(|| Instant::now() + self.timeout);
        match timeout_at(at, stream.read_more()).await {
            Ok(Ok(0)) | Ok(Err(sealion_tls::Error::Truncated)) => Ok(Err(Unread::Gone)),
            Ok(Ok(_)) => Ok(Ok(())),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => {
                metrics::timed_out(metrics::Deadline::Request);
                Ok(Err(Unread::Refused(Status::REQUEST_TIMEOUT)))
            }
        }
    }
}

/// The response 103 for a request whose response has to be waited for. HTTP/1.0 has none (RFC 9110 §15.2).
fn early_hints(site: &Site, head: &RequestHead<'_>, client: Client, now: HttpTime) -> Option<Vec<u8>> {
    let links = site::early_hints(site, &head.request, client, now).filter(|_| head.version == Version::Http11)?;
    let fields: String = links.iter().map(|link| format!("Link: {link}\r\n")).collect();
    Some(format!("HTTP/1.1 103 Early Hints\r\n{fields}\r\n").into_bytes())
}

/// Reads until the head is complete.
async fn read_head(
    stream: &mut TlsStream,
    current: &Current,
    deadline: &mut Deadline,
) -> Result<Result<HeadSpan, Unread>, Error> {
    loop {
        match head::find(stream.buffered(), &current.head_limits) {
            Ok(Some(span)) => return Ok(Ok(span)),
            Ok(None) => {}
            Err(reject) => return Ok(Err(reject.into())),
        }
        if let Err(unread) = Box::pin(deadline.read_more(stream)).await? {
            return Ok(Err(unread));
        }
    }
}

/// Reads and discards the content of a request. `false`: the content is longer than `max_body`, so the connection must close.
async fn drain_body(
    stream: &mut TlsStream,
    mut body: BodyDrain,
    deadline: &mut Deadline,
) -> Result<Result<bool, Unread>, Error> {
    loop {
        if body.is_too_long() {
            return Ok(Ok(false));
        }
        match body.feed(stream.buffered()) {
            Drained::NeedMore => stream.consume(stream.buffered().len()),
            Drained::Done { consumed } => {
                stream.consume(consumed);
                return Ok(Ok(true));
            }
            Drained::TooLong => return Ok(Ok(false)),
            Drained::Broken(reject) => return Ok(Err(reject.into())),
        }
        if let Err(unread) = deadline.read_more(stream).await? {
            return Ok(Err(unread));
        }
    }
}
