//! One request to an upstream: choose a server, connect or take a connection, send, wait for the head of the response, and try again if that
//! is safe.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use sealion_http::Status;
use tokio::task::yield_now;
use tokio::time::timeout_at;

use super::balance::Key;
use super::cgi;
use super::config::Protocol;
use super::connect::ConnectError;
use super::content::{ContentProgress, Incomplete, RequestContent};
use super::head::RequestFields;
use super::head_room::{HeadBytes, HeadRoom};
use super::http2::Shared;
use super::interim::InterimSender;
use super::lazy_timer::{LazyTimer, deadline_in};
use super::message::{AnswerHead, Reading, RequestError, RequestHead, Upgrade};
use super::protocol::{AnswerContent, Connected};
use super::proxy_header::{Endpoints, OnBehalf};
use super::reply::{Reply, ReplyBody};
use super::tunnel;
use super::websocket::WEBSOCKET;
use super::{InProgress, Server, Upstream};
use crate::observe::access_log::UpstreamTrace;

/// A request as it is sent to a server, without the fields of one connection.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: Uri,
    pub(crate) fields: RequestFields,
    /// Host, unless it is the server's own.
    pub(crate) host: Option<HeaderValue>,
    pub(crate) content: Option<RequestContent>,
    /// Content that each try sends from its beginning, in place of `content`.
    pub(crate) kept: Option<Bytes>,
    /// Another protocol, if the client wants one: `content` then carries the client's bytes of that protocol.
    pub(crate) upgrade: Option<Upgrade>,
    /// Whether the server is told that trailers are taken (RFC 9110 §10.1.4).
    pub(crate) te: bool,
    /// Whether the client takes trailers.
    pub(crate) takes_trailers: bool,
    /// Takes interim responses, if the client gets them.
    pub(crate) interim: Option<Box<InterimSender>>,
    /// The ends of the client's connection, for the PROXY protocol.
    pub(crate) endpoints: Option<Box<Endpoints>>,
    /// The client's address, for [`super::config::Balance::HashAddress`].
    pub(crate) address: Option<IpAddr>,
    /// The index of the server that the client's cookie names.
    pub(crate) sticky: Option<usize>,
    /// The index of the server that answered.
    pub(crate) answered_by: Option<usize>,
    /// The target in FastCGI and uwsgi.
    pub(crate) script: Option<Box<cgi::Script>>,
    /// How much of the response is read before the client takes it.
    pub(crate) reading: Reading,
    /// As [`super::Inbound::heads`].
    pub(crate) heads: Option<Arc<HeadRoom>>,
}

impl Forwarded {
    /// A request with GET and no content, which no client waits for.
    pub(crate) fn get(target: Uri, fields: RequestFields, host: Option<HeaderValue>) -> Self {
        Forwarded {
            method: Method::GET,
            target,
            fields,
            host,
            content: None,
            kept: None,
            upgrade: None,
            te: false,
            takes_trailers: false,
            interim: None,
            endpoints: None,
            address: None,
            sticky: None,
            answered_by: None,
            script: None,
            reading: Reading::Ahead,
            heads: None,
        }
    }

    /// The same request for a task of its own, with the content that is kept and no other.
    pub(crate) fn without_content(&self) -> Self {
        Forwarded {
            method: self.method.clone(),
            kept: self.kept.clone(),
            endpoints: self.endpoints.clone(),
            address: self.address,
            sticky: self.sticky,
            script: self.script.clone(),
            reading: self.reading,
            ..Self::get(self.target.clone(), self.fields.clone(), self.host.clone())
        }
    }

    /// Whether the request may be sent again after a part of it was sent: its method is idempotent (RFC 9110 §9.2.2, RFC 10008 §2), and its content is
    /// at hand.
    pub(super) fn is_repeatable(&self) -> bool {
        let is_idempotent = self.method.is_idempotent() || self.method.as_str() == "QUERY";
        is_idempotent && (self.content.is_none() || self.kept.is_some() || self.upgrade.is_some())
    }

    /// Makes the content of a try from what is kept.
    pub(super) fn renew_content(&mut self) {
        if let Some(kept) = &self.kept {
            self.content = Some(RequestContent::of_bytes(kept.clone()));
        }
    }
}

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// 502
    #[error("{0}")]
    Unreachable(String),
    /// 504
    #[error("{0}")]
    Timeout(String),
    /// 502
    #[error("the answer is incomplete or no HTTP: {0}")]
    Broken(String),
    /// 503
    #[error("{0}")]
    Busy(String),
    /// The client did not send all of its request.
    #[error(transparent)]
    Client(#[from] Incomplete),
}

/// Forwards a request.
///
/// # Errors
/// [`Failure`]: no server answered.
pub(crate) async fn forward(
    upstream: &Arc<Upstream>,
    request: &mut Forwarded,
) -> (UpstreamTrace, Result<Reply, Failure>) {
    let begun = Instant::now();
    let deadline = upstream.timeout.map(|timeout| begun + timeout);
    let mut tried = Vec::new();
    // When this try began.
    let mut asked = begun;
    loop {
        let target = request.target.path_and_query().map_or("", |target| target.as_str());
        let key = Key { address: request.address, uri: target.as_bytes(), sticky: request.sticky };
        let index = upstream.balancer.choose(key, &tried);
        let in_progress = InProgress { upstream: Arc::clone(upstream), server: index, place: None, deadline };
        let result = match deadline {
            None => ask(in_progress, request).await,
            Some(deadline) => Box::pin(within(deadline, upstream, ask(in_progress, request))).await,
        };
        let server = &upstream.servers[index];
        let now = Instant::now();
        let mut trace = UpstreamTrace {
            server: Arc::clone(&server.name),
            tries: u32::try_from(tried.len() + 1).unwrap_or(u32::MAX),
            took: now - begun,
            status: None,
        };
        let failed = match result {
            Ok(reply) => {
                upstream.succeeded(index);
                if tried.is_empty() {
                    upstream.balancer.took(index, trace.took);
                }
                request.answered_by = Some(index);
                trace.status = Some(reply.status.code());
                server.counts.answered(reply.status, now - asked);
                return (trace, Ok(reply));
            }
            Err(failed) => failed,
        };
        // Most requests need no list.
        tried.push(index);
        server.counts.failed(&failed.failure);
        if failed.is_servers_fault {
            upstream.failed(index, &failed.failure);
        }
        if tried.len() == 1 && matches!(failed.failure, Failure::Timeout(_)) {
            upstream.balancer.took(index, trace.took);
        }
        // A server that is silent or busy is not asked again: the client waits long enough for one.
        let is_silent = matches!(failed.failure, Failure::Timeout(_) | Failure::Busy(_));
        let has_others = (0..upstream.servers.len()).any(|other| !tried.contains(&other));
        let is_last = tried.len() >= upstream.tries || (is_silent && !has_others);
        if !failed.may_repeat || is_last || !(failed.is_refusal() || upstream.may_ask_again()) {
            return (trace, Err(failed.failure));
        }
        tracing::debug!("{}: {}; asking again", server.name, failed.failure);
        asked = now;
    }
}

/// The result of a try, up to the deadline of the request.
async fn within(
    deadline: Instant,
    upstream: &Upstream,
    asking: impl Future<Output = Result<Reply, FailedTry>>,
) -> Result<Reply, FailedTry> {
    match timeout_at(deadline.into(), asking).await {
        Ok(result) => result,
        Err(_) => {
            let limit = upstream.timeout.unwrap_or_default();
            let failure = Failure::Timeout(format!("no answer within {} s in all", limit.as_secs_f32()));
            // The client may have taken the time.
            Err(FailedTry { failure, may_repeat: false, is_servers_fault: false })
        }
    }
}

/// A try that failed.
pub(super) struct FailedTry {
    pub(super) failure: Failure,
    /// Whether another try is safe: nothing was sent, or sending it twice changes nothing.
    pub(super) may_repeat: bool,
    pub(super) is_servers_fault: bool,
}

impl FailedTry {
    /// Whether the server refused the request before it began with it: another try costs it next to nothing.
    fn is_refusal(&self) -> bool {
        self.may_repeat && !self.is_servers_fault && matches!(self.failure, Failure::Broken(_))
    }
}

/// Asks a server once, over a kept connection or a new one.
async fn ask(mut in_progress: InProgress, request: &mut Forwarded) -> Result<Reply, FailedTry> {
    let upstream = Arc::clone(&in_progress.upstream);
    let server = &upstream.servers[in_progress.server];
    let heads = request.heads.clone();
    let mut patience = upstream.connect_timeout;
    // Nothing of the server is held while the client's other requests have the room, and no room while others have the server.
    let _expected = loop {
        if server.protocol == Protocol::Http2 {
            room_for_head(heads.as_deref(), upstream.answer_timeout).await?;
        }
        if let Some(gate) = &server.gate {
            let begun = Instant::now();
            let place = Box::pin(gate.enter(patience)).await.map_err(|full| FailedTry {
                failure: Failure::Busy(full.to_string()),
                may_repeat: true,
                is_servers_fault: false,
            })?;
            in_progress.place = Some(place);
            patience = patience.saturating_sub(begun.elapsed());
        }
        if server.protocol != Protocol::Http2 {
            break None;
        }
        if let Some(head) = HeadBytes::expected(heads.as_deref(), server.head_size.bytes()) {
            break Some(head);
        }
        in_progress.place = None;
    };
    if let Some(gateway) = server.protocol.gateway() {
        return Box::pin(cgi::ask(in_progress, request, patience, gateway)).await;
    }
    let is_repeatable = request.is_repeatable();
    // Connections that are kept may have closed just now: each costs a turn here, and no try.
    if !is_repeatable {
        // The end of a kept connection may have come with this request: the runtime looks at its sockets first.
        yield_now().await;
    }
    loop {
        request.renew_content();
        let (connected, is_kept) = match server.protocol {
            Protocol::Http1 | Protocol::Fastcgi | Protocol::Uwsgi => {
                match server.pool.take(request.method == Method::HEAD).await {
                    Some(connection) => (Connected::Http1(connection), true),
                    None => {
                        let client = OnBehalf::Client(request.endpoints.as_deref());
                        let connected = Connected::new(server, patience, upstream.idle_timeout, client);
                        (Box::pin(connected).await.map_err(|error| unreachable_server(&error))?, false)
                    }
                }
            }
            Protocol::Http2 => Box::pin(share(&upstream, server, patience, request.reading)).await?,
        };
        let is_behind_head = matches!(&connected, Connected::Http1(kept) if kept.past.is_behind_head);
        let sent = send(connected, server, request, upstream.answer_timeout).await;
        if is_behind_head && matches!(sent, Err(SendError::AnswerBegun(_))) {
            server.pool.distrust();
        }
        match sent {
            Ok((head, content)) => return reply(in_progress, head, content, request),
            Err(SendError::NotSent(_)) if is_kept => {}
            Err(SendError::NotSent(error)) => {
                let failure = Failure::Broken(error);
                return Err(FailedTry { failure, may_repeat: true, is_servers_fault: true });
            }
            Err(SendError::Failed(failure)) => {
                let is_server = !matches!(failure, Failure::Client(_));
                return Err(FailedTry { failure, may_repeat: is_repeatable && is_server, is_servers_fault: is_server });
            }
            // Its content was used up, and cannot be sent again.
            Err(SendError::Refused(failure, has_content)) => {
                let may_repeat = !has_content || request.kept.is_some();
                return Err(FailedTry { failure, may_repeat, is_servers_fault: false });
            }
            Err(SendError::AnswerBegun(failure)) => {
                return Err(FailedTry { failure, may_repeat: false, is_servers_fault: true });
            }
            // A server may give up on a client that does not go on.
            Err(SendError::ClosedEarly(failure) | SendError::NoRoom(failure)) => {
                return Err(FailedTry { failure, may_repeat: false, is_servers_fault: false });
            }
        }
    }
}

/// Waits until the client's connection has room for a head that comes over HTTP/2.
async fn room_for_head(heads: Option<&HeadRoom>, patience: Duration) -> Result<(), FailedTry> {
    let no_room = |_| FailedTry { failure: no_room(patience), may_repeat: false, is_servers_fault: false };
    wait(pin!(HeadBytes::room(heads)), None, patience, heads, &mut LazyTimer::default()).await.map_err(no_room)
}

/// The client's connection had no room for the head of a response.
pub(super) fn no_room(patience: Duration) -> Failure {
    let waited = patience.as_secs_f32();
    Failure::Busy(format!("other responses with large heads took the room of the client's connection for {waited} s"))
}

/// A share of a connection of HTTP/2, and whether the connection had been used before.
async fn share(
    upstream: &Upstream,
    server: &Server,
    patience: Duration,
    reading: Reading,
) -> Result<(Connected, bool), FailedTry> {
    loop {
        let opening = match server.pool.share(reading) {
            Ok(lease) => return Ok((Connected::Http2(lease), true)),
            Err(opening) => opening,
        };
        let connect = || Shared::connect(server, patience, upstream.idle_timeout, reading);
        match opening.get_or_init(connect).await {
            Err(error) => return Err(unreachable_server(error)),
            Ok(shared) if shared.is_closed() => {
                let failure = Failure::Broken("the server closed the connection at once".to_owned());
                return Err(FailedTry { failure, may_repeat: true, is_servers_fault: true });
            }
            Ok(shared) => {
                if let Some(lease) = shared.lease() {
                    return Ok((Connected::Http2(lease), false));
                }
            }
        }
    }
}

pub(super) fn unreachable_server(error: &ConnectError) -> FailedTry {
    let failure = match error {
        ConnectError::Timeout(_) => Failure::Timeout(error.to_string()),
        ConnectError::Exhausted(_) => Failure::Busy(error.to_string()),
        _ => Failure::Unreachable(error.to_string()),
    };
    FailedTry { failure, may_repeat: true, is_servers_fault: error.is_servers_fault() }
}

/// A try over one connection that failed.
enum SendError {
    /// Nothing of the request was sent.
    NotSent(String),
    Failed(Failure),
    /// The server has not begun with it (RFC 9113 §8.7). The flag: whether the request has content.
    Refused(Failure, bool),
    /// The server ended the connection while the client owed content.
    ClosedEarly(Failure),
    /// The head of the response was not read: it had no room.
    NoRoom(Failure),
    /// The response was partial or malformed.
    AnswerBegun(Failure),
}

/// Sends the request and waits for the head of the response. A request that was not sent has its content again.
async fn send(
    mut connected: Connected,
    server: &Server,
    request: &mut Forwarded,
    patience: Duration,
) -> Result<(AnswerHead, AnswerContent), SendError> {
    let content = match request.upgrade {
        // The following bytes belong to another protocol.
        Some(_) => None,
        None => request.content.take(),
    };
    let progress = content.as_ref().map(RequestContent::progress);
    let own_host;
    let host = match request.host.as_ref().filter(|host| !host.is_empty()) {
        Some(host) => host,
        None => {
            own_host = server.host()?;
            &own_host
        }
    };
    let head = RequestHead {
        method: &request.method,
        target: &request.target,
        host,
        fields: &request.fields,
        te: request.te,
        upgrade: request.upgrade.as_ref(),
        interim: request.interim.as_deref(),
        reading: request.reading,
        heads: request.heads.as_deref(),
    };
    let mut timer = connected.take_timer();
    let asking = pin!(connected.ask(head, content));
    let broken = match wait(asking, progress.as_ref(), patience, head.heads, &mut timer).await {
        Ok(Ok((head, mut content))) => {
            content.keep_timer(timer);
            return Ok((head, content));
        }
        Ok(Err(RequestError::NotSent(error, content))) => {
            if content.is_some() {
                request.content = content;
            }
            return Err(SendError::NotSent(error));
        }
        Ok(Err(RequestError::Refused(error))) => {
            return Err(SendError::Refused(Failure::Broken(error), progress.is_some()));
        }
        Ok(Err(RequestError::Client(incomplete))) => return Err(SendError::Failed(Failure::Client(incomplete))),
        Ok(Err(RequestError::BadAnswer(error))) => return Err(SendError::AnswerBegun(Failure::Broken(error))),
        Ok(Err(RequestError::Closed(error))) => Failure::Broken(error),
        Err(Stalled::Client) => {
            let incomplete = Incomplete { status: Status::REQUEST_TIMEOUT };
            return Err(SendError::Failed(Failure::Client(incomplete)));
        }
        Err(Stalled::Room) => return Err(SendError::NoRoom(no_room(patience))),
        Err(Stalled::Server) => {
            let waited = format!("no answer within {} s", patience.as_secs_f32());
            return Err(SendError::Failed(Failure::Timeout(waited)));
        }
    };
    match progress {
        Some(progress) => match progress.incomplete() {
            Some(incomplete) => Err(SendError::Failed(Failure::Client(incomplete))),
            None if progress.is_owed() => Err(SendError::ClosedEarly(broken)),
            None => Err(SendError::Failed(broken)),
        },
        None => Err(SendError::Failed(broken)),
    }
}

impl Server {
    /// The Host of requests that have none of their own.
    fn host(&self) -> Result<HeaderValue, SendError> {
        HeaderValue::try_from(self.url.authority())
            .map_err(|error| SendError::Failed(Failure::Broken(format!("its URL is not a value of Host: {error}"))))
    }
}

/// The side that did not go on in time. A slow client must not have a server left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stalled {
    /// Content of the request is missing.
    Client,
    /// Other heads take the room of the client's connection: the response was not read.
    Room,
    /// It does not answer.
    Server,
}

/// Waits for `answer`, for `patience` after the content has moved last, the client has read, or the response may be read again. No time runs while the client
/// owes content and cannot send it. `timer`: of an earlier wait on the connection.
pub(super) async fn wait<F: Future>(
    mut answer: Pin<&mut F>,
    progress: Option<&ContentProgress>,
    patience: Duration,
    heads: Option<&HeadRoom>,
    timer: &mut LazyTimer,
) -> Result<F::Output, Stalled> {
    let mut deadline = deadline_in(patience);
    let mut moves = progress.map(ContentProgress::moves);
    // Other answers have the room, too: reads that are withheld in a poll of this answer are its own.
    let held = || heads.map(HeadRoom::held);
    let mut was_withheld = false;
    poll_fn(|cx| {
        let held_before = held();
        if let Poll::Ready(answered) = answer.as_mut().poll(cx) {
            return Poll::Ready(Ok(answered));
        }
        let is_withheld = held() != held_before;
        was_withheld |= is_withheld;
        while timer.poll(deadline, cx).is_ready() {
            let now = progress.map(ContentProgress::moves);
            let is_held = progress.is_some_and(ContentProgress::is_held) || heads.is_some_and(HeadRoom::is_full);
            if now == moves && !is_held {
                if progress.is_some_and(ContentProgress::is_owed) {
                    return Poll::Ready(Err(Stalled::Client));
                }
                if is_withheld {
                    return Poll::Ready(Err(Stalled::Room));
                }
                if !was_withheld {
                    return Poll::Ready(Err(Stalled::Server));
                }
            }
            (moves, was_withheld) = (now, is_withheld);
            deadline = deadline_in(patience);
        }
        Poll::Pending
    })
    .await
}

fn reply(
    in_progress: InProgress,
    head: AnswerHead,
    content: AnswerContent,
    request: &mut Forwarded,
) -> Result<Reply, FailedTry> {
    let refuse =
        |what: &str| FailedTry { failure: Failure::Broken(what.to_owned()), may_repeat: false, is_servers_fault: true };
    let AnswerHead { status, mut fields } = head;
    if status != Status::SWITCHING_PROTOCOLS {
        let has_content = request.method != Method::HEAD && !status.has_no_content();
        if has_content && content.ends_with_stream() && content.has_ended() {
            // Over HTTP/2 nothing else says so before the end of the stream.
            fields.map_mut().entry(header::CONTENT_LENGTH).or_insert(const { HeaderValue::from_static("0") });
        }
        let ends_with_stream = content.ends_with_stream();
        let body = ReplyBody::new(in_progress, content, request.takes_trailers);
        return Ok(Reply { status, fields, body: body.into(), ends_with_stream });
    }
    let asked = request.upgrade.as_ref();
    let Some((asked, chosen)) = asked.and_then(|asked| Some((asked, chosen_protocol(&fields, &asked.protocol)?)))
    else {
        return Err(refuse("it switches to a protocol that was not asked for"));
    };
    if chosen.eq_ignore_ascii_case(WEBSOCKET) && !asked.key.as_ref().is_some_and(|key| key.is_replied_to(&fields)) {
        return Err(refuse("its Sec-WebSocket-Accept does not fit the request's Sec-WebSocket-Key"));
    }
    let sent = request.content.take().ok_or_else(|| refuse(&format!("nothing can be sent by {:?}", asked.protocol)))?;
    let (io, first) = content.upgrade().ok_or_else(|| refuse("its connection cannot become a tunnel"))?;
    let body = tunnel::open(io, first, sent, in_progress);
    Ok(Reply { status, fields, body: body.into(), ends_with_stream: false })
}

/// The protocol that Upgrade of the response names, if it is one of the protocols in `asked` (RFC 9110 §7.8).
fn chosen_protocol<'a>(fields: &'a HeaderMap, asked: &HeaderValue) -> Option<&'a str> {
    let chosen = fields.get(header::UPGRADE)?.to_str().ok()?.trim();
    let mut asked = asked.to_str().ok()?.split(',');
    asked.any(|protocol| protocol.trim().eq_ignore_ascii_case(chosen)).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::super::head_room::MAX_BEGUN;
    use super::*;

    #[test]
    fn a_server_whose_response_has_no_room_did_not_stall() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let room = HeadRoom::default();
        let mut others = HeadBytes::new(Some(&room));
        let stalled = |answer: Pin<&mut dyn Future<Output = ()>>| {
            let (answer, timer) = (pin!(answer), &mut LazyTimer::default());
            runtime.block_on(wait(answer, None, Duration::ZERO, Some(&room), timer)).unwrap_err()
        };
        let own = HeadBytes::new(Some(&room));
        let read = || poll_fn(|cx| own.poll(cx, |_| Poll::<()>::Pending));
        others.set(MAX_BEGUN);
        assert_eq!(stalled(pin!(read())), Stalled::Room);
        assert_eq!(stalled(pin!(pending::<()>())), Stalled::Server, "the server took no connection, or no request");
        others.set(0);
        assert_eq!(stalled(pin!(read())), Stalled::Server);
    }

    #[tokio::test]
    async fn a_second_request_on_a_kept_connection_has_its_own_timeout() {
        const SHORT: Duration = Duration::from_millis(5);
        const LONG: Duration = Duration::from_secs(1000);
        let mut timer = LazyTimer::default();
        assert_eq!(wait(pin!(yield_now()), None, SHORT, None, &mut timer).await, Ok(()));
        // The timer of the request before goes off meanwhile.
        let second = async {
            sleep(2 * SHORT).await;
            yield_now().await;
        };
        assert_eq!(wait(pin!(second), None, LONG, None, &mut timer).await, Ok(()));
        // The far deadline does not hold for the next request.
        let silent = wait(pin!(pending::<()>()), None, SHORT, None, &mut timer).await;
        assert_eq!(silent, Err(Stalled::Server));
    }
}
