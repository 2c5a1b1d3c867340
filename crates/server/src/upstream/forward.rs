//! One request to an upstream: choose a server, connect or take a connection, send, wait for the head of the answer, and try again where that
//! is safe.

use std::error::Error as _;
use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version, header};
use http_body::Body;
use hyper::body::Incoming;
use sealion_http::Status;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout, timeout_at};

use super::balance::Key;
use super::config::Protocol;
use super::connect::{ConnectError, Connected, Content, connect_http1, connect_http2};
use super::content::{ContentProgress, Incomplete, RequestContent};
use super::fastcgi;
use super::interim::InterimSender;
use super::proxy_header::{Endpoints, OnBehalf};
use super::reply::{Ends, Reply, ReplyBody};
use super::tunnel;
use super::websocket;
use super::{InProgress, Server, Upstream};
use crate::observe::access_log::UpstreamTrace;

/// A request as it is sent to a server, without what belongs to one connection.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: Uri,
    pub(crate) fields: HeaderMap,
    /// Host, unless it is the server's own.
    pub(crate) host: Option<HeaderValue>,
    pub(crate) content: Option<RequestContent>,
    /// Another protocol, if the client wants one: `content` is then what it sends by that.
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
    pub(crate) address: Vec<u8>,
    /// What FastCGI has instead of a target.
    pub(crate) script: Option<Box<fastcgi::Script>>,
}

/// Another protocol that is asked for (RFC 9110 §7.8).
#[derive(Debug, Clone)]
pub(crate) struct Upgrade {
    /// The value of Upgrade.
    pub(crate) protocol: HeaderValue,
    /// The key of WebSocket's handshake, where the client's own protocol has none.
    pub(crate) key: Option<websocket::Key>,
}

impl Forwarded {
    /// The same request, without content.
    pub(crate) fn without_content(&self) -> Self {
        Forwarded {
            method: self.method.clone(),
            target: self.target.clone(),
            fields: self.fields.clone(),
            host: self.host.clone(),
            content: None,
            upgrade: None,
            te: false,
            takes_trailers: false,
            interim: None,
            endpoints: self.endpoints.clone(),
            address: self.address.clone(),
            script: self.script.clone(),
        }
    }
}

/// Why a request has no answer.
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
    mut request: Forwarded,
) -> (UpstreamTrace, Result<Reply, Failure>) {
    let begun = Instant::now();
    let deadline = upstream.timeout.map(|timeout| begun + timeout);
    let mut tried = Vec::new();
    loop {
        let target = request.target.path_and_query().map_or("", |target| target.as_str());
        let key = Key { address: &request.address, uri: target.as_bytes() };
        let index = upstream.balancer.choose(key, &tried);
        let in_progress = InProgress { upstream: Arc::clone(upstream), server: index, place: None, deadline };
        tried.push(index);
        let asking = ask(in_progress, &mut request);
        let result = match deadline {
            None => asking.await,
            Some(deadline) => within(deadline, upstream, asking).await,
        };
        let server = &upstream.servers[index];
        let mut trace = UpstreamTrace {
            server: Arc::clone(&server.name),
            tries: u32::try_from(tried.len()).unwrap_or(u32::MAX),
            took: begun.elapsed(),
            status: None,
        };
        let failed = match result {
            Ok(reply) => {
                upstream.succeeded(index);
                trace.status = Some(reply.status.code());
                server.counts.answered(reply.status);
                return (trace, Ok(reply));
            }
            Err(failed) => failed,
        };
        server.counts.failed(&failed.failure);
        if failed.is_servers_fault {
            upstream.failed(index, &failed.failure);
        }
        // A server that is silent or busy is not asked again: the client waits long enough for one.
        let is_silent = matches!(failed.failure, Failure::Timeout(_) | Failure::Busy(_));
        let has_others = (0..upstream.servers.len()).any(|other| !tried.contains(&other));
        let is_last = tried.len() >= upstream.tries || (is_silent && !has_others);
        if !failed.may_repeat || is_last || !(failed.is_refusal() || upstream.may_ask_again()) {
            return (trace, Err(failed.failure));
        }
        tracing::debug!("{}: {}; asking again", server.name, failed.failure);
    }
}

/// The result of a try, up to the deadline of the request.
async fn within(
    deadline: Instant,
    upstream: &Upstream,
    asking: impl Future<Output = Result<Reply, FailedTry>>,
) -> Result<Reply, FailedTry> {
    match Box::pin(timeout_at(deadline.into(), asking)).await {
        Ok(result) => result,
        Err(_) => {
            let limit = upstream.timeout.unwrap_or_default();
            let failure = Failure::Timeout(format!("no answer within {} s in all", limit.as_secs_f32()));
            // It may be the client who took the time.
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
    let mut patience = upstream.connect_timeout;
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
    if server.protocol == Protocol::Fastcgi {
        return Box::pin(fastcgi::ask(in_progress, request)).await;
    }
    let is_repeatable = request.method.is_idempotent() && (request.content.is_none() || request.upgrade.is_some());
    // Connections that are kept may have closed just now: each costs a turn here, and no try.
    if !is_repeatable {
        // The end of a kept connection may have come with this request: its task notices first.
        yield_now().await;
    }
    loop {
        let (connected, is_kept) = match server.protocol {
            Protocol::Http1 | Protocol::Fastcgi => match server.pool.take() {
                Some(connected) => (connected, true),
                None => {
                    let client = OnBehalf::Client(request.endpoints.as_deref());
                    let connected = server.connect(patience, upstream.idle_timeout, client).await;
                    (connected.map_err(|error| unreachable_server(&error))?, false)
                }
            },
            Protocol::Http2 => share(&upstream, server, patience).await?,
        };
        let sent = send(connected, server, request, upstream.answer_timeout).await;
        match sent {
            Ok((connected, response)) => return reply(in_progress, connected, response, request).await,
            Err(Unanswered::NotSent(_)) if is_kept => {}
            Err(Unanswered::NotSent(error)) => {
                let failure = Failure::Broken(describe(&error));
                return Err(FailedTry { failure, may_repeat: true, is_servers_fault: true });
            }
            Err(Unanswered::Failed(failure)) => {
                let is_server = !matches!(failure, Failure::Client(_));
                return Err(FailedTry { failure, may_repeat: is_repeatable && is_server, is_servers_fault: is_server });
            }
            // Its content is lost.
            Err(Unanswered::Refused(failure, has_content)) => {
                return Err(FailedTry { failure, may_repeat: !has_content, is_servers_fault: false });
            }
            // A server may give up on a client that does not go on.
            Err(Unanswered::Impatient(failure)) => {
                return Err(FailedTry { failure, may_repeat: false, is_servers_fault: false });
            }
        }
    }
}

/// A share of a connection of HTTP/2, and whether the connection had been used before.
async fn share(upstream: &Upstream, server: &Server, patience: Duration) -> Result<(Connected, bool), FailedTry> {
    loop {
        let opening = match server.pool.share() {
            Ok(connected) => return Ok((connected, true)),
            Err(opening) => opening,
        };
        let connect = || connect_http2(server, patience, upstream.idle_timeout);
        match Box::pin(opening.get_or_init(connect)).await {
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

impl Server {
    /// A new connection, for one request.
    pub(super) async fn connect(
        &self,
        connect: Duration,
        idle: Duration,
        on_behalf: OnBehalf<'_>,
    ) -> Result<Connected, ConnectError> {
        match self.protocol {
            Protocol::Http1 | Protocol::Fastcgi => {
                connect_http1(self, connect, idle, on_behalf).await.map(Connected::Http1)
            }
            Protocol::Http2 => {
                let shared = connect_http2(self, connect, idle).await?;
                shared
                    .lease()
                    .map(Connected::Http2)
                    .ok_or_else(|| ConnectError::Refused(ErrorKind::ConnectionReset.into()))
            }
        }
    }
}

pub(super) fn unreachable_server(error: &ConnectError) -> FailedTry {
    let failure = match error {
        ConnectError::Timeout(_) => Failure::Timeout(error.to_string()),
        _ => Failure::Unreachable(error.to_string()),
    };
    FailedTry { failure, may_repeat: true, is_servers_fault: true }
}

enum Unanswered {
    /// Nothing of the request left.
    NotSent(hyper::Error),
    Failed(Failure),
    /// The server has not begun with it (RFC 9113 §8.7). With whether the request has content.
    Refused(Failure, bool),
    /// The server ended the connection while the client owed content.
    Impatient(Failure),
}

/// Sends the request and waits for the head of the answer. A request that was not sent has its content again.
async fn send(
    mut connected: Connected,
    server: &Server,
    request: &mut Forwarded,
    patience: Duration,
) -> Result<(Connected, http::Response<Incoming>), Unanswered> {
    let content = match request.upgrade {
        // What follows is of another protocol.
        Some(_) => None,
        None => request.content.take(),
    };
    let progress = content.as_ref().map(RequestContent::progress);
    let body = content.map_or(Content::Nothing, Content::OfClient);
    let mut message = Request::new(body);
    *message.method_mut() = request.method.clone();
    *message.uri_mut() = request.target.clone();
    *message.headers_mut() = request.fields.clone();
    if let Err(error) = address(&mut message, server, request.host.as_ref()) {
        tracing::debug!("the request's host cannot be sent: {error}");
        return Err(Unanswered::Failed(Failure::Client(Incomplete { status: Status::BAD_REQUEST })));
    }
    if server.protocol == Protocol::Http1 && message.body().size_hint().exact().is_none() {
        // Without it, the library sends content of a GET as none at all.
        message.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if request.te {
        message.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
        if server.protocol == Protocol::Http1 {
            message.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("te"));
        }
    }
    if let Some(Upgrade { protocol, key }) = &request.upgrade {
        message.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        message.headers_mut().insert(UPGRADE, protocol.clone());
        if let Some(key) = key {
            key.add_to(message.headers_mut());
        }
    }
    // Over HTTP/2 the library does not give them.
    if let (Protocol::Http1, Some(interim)) = (server.protocol, &request.interim) {
        let interim = interim.clone();
        hyper::ext::on_informational(&mut message, move |response| {
            interim.pass(response.status().as_u16(), response.headers());
        });
    }
    let answered = wait(connected.ask(message), progress.as_ref(), patience).await;
    match answered {
        Err(InVain::ClientOwes) => {
            Err(Unanswered::Failed(Failure::Client(Incomplete { status: Status::REQUEST_TIMEOUT })))
        }
        Err(InVain::ServerIsSilent) => {
            let waited = format!("no answer within {} s", patience.as_secs_f32());
            Err(Unanswered::Failed(Failure::Timeout(waited)))
        }
        Ok(Ok(response)) => Ok((connected, response)),
        Ok(Err(mut unsent)) => match unsent.take_message() {
            Some(message) => {
                if let Content::OfClient(content) = message.into_body() {
                    request.content = Some(content);
                }
                Err(Unanswered::NotSent(unsent.into_error()))
            }
            None => {
                let error = unsent.into_error();
                if is_refusal(&error) {
                    return Err(Unanswered::Refused(Failure::Broken(describe(&error)), progress.is_some()));
                }
                if let Some(incomplete) = progress.as_ref().and_then(ContentProgress::incomplete) {
                    return Err(Unanswered::Failed(Failure::Client(incomplete)));
                }
                match error.source().and_then(|source| source.downcast_ref::<Incomplete>()) {
                    Some(incomplete) => Err(Unanswered::Failed(Failure::Client(*incomplete))),
                    None if progress.is_some_and(|progress| progress.is_owed()) => {
                        Err(Unanswered::Impatient(Failure::Broken(describe(&error))))
                    }
                    None => Err(Unanswered::Failed(Failure::Broken(describe(&error)))),
                }
            }
        },
    }
}

/// Sets whom a request is for: Host, or what HTTP/2 has instead. `host`: if it is not the server's own.
pub(super) fn address(
    message: &mut Request<Content>,
    server: &Server,
    host: Option<&HeaderValue>,
) -> Result<(), http::Error> {
    let own = || HeaderValue::try_from(server.url.authority());
    let host = match host.filter(|host| !host.is_empty()) {
        Some(host) => host.clone(),
        None => own()?,
    };
    if server.protocol == Protocol::Http1 {
        message.headers_mut().insert(header::HOST, host);
        return Ok(());
    }
    let mut parts = std::mem::take(message.uri_mut()).into_parts();
    parts.scheme = Some(if server.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(Authority::try_from(host.as_bytes())?);
    *message.uri_mut() = Uri::from_parts(parts)?;
    Ok(())
}

/// Whether the server has not begun with a request: it refused the stream, or its GOAWAY names an earlier one as the last (RFC 9113 §8.7).
fn is_refusal(error: &hyper::Error) -> bool {
    let error = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    error.is_some_and(|error| {
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// Who held an answer up. A client cannot have a server left out.
pub(super) enum InVain {
    ClientOwes,
    ServerIsSilent,
}

/// Waits for `answer`, for `patience` after the content has moved last.
pub(super) async fn wait<F: Future>(
    answer: F,
    progress: Option<&ContentProgress>,
    patience: Duration,
) -> Result<F::Output, InVain> {
    let mut answer = pin!(answer);
    let Some(progress) = progress else {
        return timeout(patience, answer).await.map_err(|_| InVain::ServerIsSilent);
    };
    let mut taken = progress.taken();
    loop {
        tokio::select! {
            biased;
            answered = answer.as_mut() => return Ok(answered),
            () = sleep(patience) => {
                let now = progress.taken();
                if now == taken {
                    return Err(if progress.is_owed() { InVain::ClientOwes } else { InVain::ServerIsSilent });
                }
                taken = now;
            }
        }
    }
}

async fn reply(
    in_progress: InProgress,
    connected: Connected,
    response: http::Response<Incoming>,
    request: &mut Forwarded,
) -> Result<Reply, FailedTry> {
    let refuse =
        |what: &str| FailedTry { failure: Failure::Broken(what.to_owned()), may_repeat: false, is_servers_fault: true };
    let Some(status) = Status::new(response.status().as_u16()) else {
        return Err(refuse(&format!("{} is no status of HTTP", response.status().as_str())));
    };
    let codings = response.headers().get_all(header::TRANSFER_ENCODING);
    if codings.iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Err(refuse("it has a transfer coding other than chunked"));
    }
    if status != Status::SWITCHING_PROTOCOLS {
        let (mut head, body) = response.into_parts();
        if head.headers.contains_key(header::TRANSFER_ENCODING) {
            // RFC 9112 §6.3: it counts alone.
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let ends = if head.version == Version::HTTP_2 { Ends::WithStream } else { Ends::AsFramed };
        let has_content = request.method != Method::HEAD && !status.has_no_content();
        if has_content && body.is_end_stream() {
            // Over HTTP/2 nothing else says so before the end of the stream.
            head.headers.entry(header::CONTENT_LENGTH).or_insert(const { HeaderValue::from_static("0") });
        }
        // What a server sends behind the head of an answer to HEAD would be taken for its next answer.
        let kept = Some(connected).filter(|_| request.method != Method::HEAD);
        let body = ReplyBody::new(in_progress, kept, body, ends, request.takes_trailers);
        let ends_with_stream = ends == Ends::WithStream;
        return Ok(Reply { status, fields: head.headers, body: body.into(), ends_with_stream });
    }
    let asked = request.upgrade.as_ref();
    let Some(asked) = asked.filter(|asked| names_protocol(response.headers(), &asked.protocol)) else {
        return Err(refuse("it switches to a protocol that was not asked for"));
    };
    let mut fields = response.headers().clone();
    if asked.key.as_ref().is_some_and(|key| !key.take_reply(&mut fields)) {
        return Err(refuse("its Sec-WebSocket-Accept does not fit the key that it was sent"));
    }
    let content =
        request.content.take().ok_or_else(|| refuse(&format!("nothing can be sent by {:?}", asked.protocol)))?;
    let upgraded = hyper::upgrade::on(response).await.map_err(|error| refuse(&describe(&error)))?;
    let body = tunnel::open(upgraded, content, in_progress);
    Ok(Reply { status, fields, body: body.into(), ends_with_stream: false })
}

/// Whether Upgrade of the answer names one of the protocols in `asked` (RFC 9110 §7.8).
fn names_protocol(fields: &HeaderMap, asked: &HeaderValue) -> bool {
    let (Some(Ok(chosen)), Ok(asked)) = (fields.get(UPGRADE).map(HeaderValue::to_str), asked.to_str()) else {
        return false;
    };
    asked.split(',').any(|protocol| protocol.trim().eq_ignore_ascii_case(chosen.trim()))
}

const UPGRADE: HeaderName = header::UPGRADE;

/// An error of HTTP with its cause.
fn describe(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
