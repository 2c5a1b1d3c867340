//! HTTP/2 with a server (RFC 9113), by the library hyper: a connection answers many requests at once.

use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Request, Uri, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sealion_http::Status;
use tokio::time::timeout;

use super::Server;
use super::connect::{ConnectError, MOST_HEAD, connect};
use super::content::{Incomplete, RequestContent};
use super::message::{AnswerFrame, AnswerHead, Reading, RequestError, RequestHead};
use super::proxy_header::OnBehalf;

/// The content of a request.
#[derive(Debug)]
enum Content {
    Nothing,
    OfClient(RequestContent),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        match self.get_mut() {
            Content::Nothing => Poll::Ready(None),
            Content::OfClient(content) => Pin::new(content).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Content::Nothing => true,
            Content::OfClient(content) => content.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Content::Nothing => SizeHint::with_exact(0),
            Content::OfClient(content) => content.size_hint(),
        }
    }
}

/// A connection of HTTP/2, which answers many requests at once.
#[derive(Debug)]
pub(super) struct Shared {
    sender: http2::SendRequest<Content>,
    uses: Arc<Uses>,
    is_tls: bool,
}

/// Requests on a connection of HTTP/2 at once; a server may allow fewer. The next one opens another connection.
const MOST_STREAMS: u64 = 100;

impl Shared {
    /// `None`: the connection is closed, or has enough to do.
    pub(super) fn lease(&self) -> Option<Lease> {
        let most = self.uses.streams.load(Ordering::Relaxed).min(MOST_STREAMS);
        let is_free = !self.sender.is_closed() && self.uses.active() < most;
        is_free.then(|| {
            self.uses.begin();
            Lease { sender: self.sender.clone(), uses: Arc::clone(&self.uses), is_tls: self.is_tls }
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) fn age(&self) -> Duration {
        self.uses.since.elapsed()
    }
}

/// One of the requests of a connection of HTTP/2.
#[derive(Debug)]
pub(super) struct Lease {
    sender: http2::SendRequest<Content>,
    uses: Arc<Uses>,
    is_tls: bool,
}

/// Bytes of memory that the largest of the last heads of a server has taken. The library reads heads whether they are taken or not, so that their
/// number is bounded before they come.
#[derive(Debug, Default)]
pub(super) struct HeadSize(AtomicUsize);

/// Bytes that a field takes beside name and value, about.
const FIELD: usize = 64;

/// After a smaller head, the size falls by this part of itself at most.
const FALL: usize = 32;

impl HeadSize {
    /// Bytes of memory that the head of the next response is likely to take.
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn note(&self, fields: &HeaderMap) {
        let size: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum();
        let before = self.0.load(Ordering::Relaxed);
        let now = size.max(before - before / FALL);
        if now != before {
            self.0.store(now, Ordering::Relaxed);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.uses.end();
    }
}

/// How often a connection was taken for a request, and how often it was given back.
#[derive(Debug)]
struct Uses {
    /// When the connection was opened.
    since: Instant,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Requests that a server of HTTP/2 answers at once, as far as it has said: 0 sends requests to other connections.
    streams: AtomicU64,
    /// The head size of the server.
    head_size: Arc<HeadSize>,
}

impl Uses {
    fn new(head_size: &Arc<HeadSize>) -> Self {
        let [begun, ended, streams] = [0, 0, MOST_STREAMS].map(AtomicU64::new);
        Uses { since: Instant::now(), begun, ended, streams, head_size: Arc::clone(head_size) }
    }

    fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn active(&self) -> u64 {
        self.begun.load(Ordering::Relaxed).saturating_sub(self.ended.load(Ordering::Relaxed))
    }

    /// Drives a connection until it ends, or has been idle for `idle_timeout`.
    async fn drive(&self, connection: impl Future, idle_timeout: Duration) {
        let mut connection = std::pin::pin!(connection);
        // Looks once in each `idle_timeout`, so that a request need not set a timer.
        let mut last = 0;
        while timeout(idle_timeout, connection.as_mut()).await.is_err() {
            let begun = self.begun.load(Ordering::Relaxed);
            if begun == last && self.active() == 0 {
                break;
            }
            last = begun;
        }
    }
}

// SPEC: RFC 9113 §6.9.2, 65,535 rounded up.
/// Bytes of a response over HTTP/2 that a server may send before they are taken. The library keeps them, whether the client takes them or not.
const STREAM_WINDOW: u32 = 64 << 10;

// MEASURED: 128 streams whose windows are closed take 4.1 MB of a connection with 8 KiB, 2.7 MB with 4 KiB. The library keeps a frame in a buffer of 8 KiB,
// which holds three frames of 2 KiB (memory::stalled_streams_over_http2_pin_little_memory, 2026-11-24).
/// The same where little is read before the client takes it: [`Reading::Sparing`].
const SPARING_WINDOW: u32 = 2 << 10;

/// How long a connection of HTTP/2 with requests in progress may be silent before it gets a PING.
const PING_AFTER: Duration = Duration::from_secs(20);

impl Shared {
    /// Connects to a server. The connection closes after it has been idle for `idle_timeout`.
    pub(super) async fn connect(
        server: &Server,
        connect_timeout: Duration,
        idle_timeout: Duration,
        reading: Reading,
    ) -> Result<Shared, ConnectError> {
        // Without a header of the PROXY protocol: its requests come from many clients.
        let io = connect(server, connect_timeout, OnBehalf::Own).await?;
        let window = match reading {
            Reading::Ahead => STREAM_WINDOW,
            Reading::Sparing => SPARING_WINDOW,
        };
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(window)
            // Responses that no client takes leave room for all others.
            .initial_connection_window_size(window * MOST_STREAMS as u32)
            .max_header_list_size(MOST_HEAD as u32)
            .max_send_buf_size(MOST_BUFFERED)
            .keep_alive_interval(PING_AFTER);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(ConnectError::Http)?;
        let uses = Arc::new(Uses::new(&server.head_size));
        let watched = Arc::clone(&uses);
        tokio::spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let polled = poll_fn(|cx| {
                let polled = connection.as_mut().poll(cx);
                let streams = connection.current_max_send_streams();
                watched.streams.store(streams as u64, Ordering::Relaxed);
                polled
            });
            watched.drive(polled, idle_timeout).await;
        });
        Ok(Shared { sender, uses, is_tls: server.tls.is_some() })
    }
}

/// Bytes of a request's content that the library of HTTP/2 keeps for a stream.
const MOST_BUFFERED: usize = 64 << 10;

impl Lease {
    /// Sends a request and waits for the head of its response. Interim responses do not come through the library.
    pub(super) async fn ask(
        mut self,
        request: RequestHead<'_>,
        content: Option<RequestContent>,
    ) -> Result<(AnswerHead, AnswerBody), RequestError> {
        let mut message = Request::new(content.map_or(Content::Nothing, Content::OfClient));
        *message.method_mut() = request.method.clone();
        *message.headers_mut() = HeaderMap::clone(request.fields);
        *message.uri_mut() = match self.uri(&request) {
            Ok(uri) => uri,
            Err(error) => {
                tracing::debug!("the request's host cannot be sent: {error}");
                return Err(RequestError::Client(Incomplete { status: Status::BAD_REQUEST }));
            }
        };
        if request.te {
            message.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
        }
        let mut unsent = match self.sender.try_send_request(message).await {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                self.uses.head_size.note(&head.headers);
                let code = head.status.as_u16();
                let status = Status::new(code)
                    .ok_or_else(|| RequestError::BadAnswer(format!("{code} is not an HTTP status")))?;
                return Ok((AnswerHead { status, fields: head.headers.into() }, AnswerBody { body, _lease: self }));
            }
            Err(unsent) => unsent,
        };
        let message = unsent.take_message();
        let error = unsent.into_error();
        match message.map(Request::into_body) {
            Some(Content::OfClient(content)) => Err(RequestError::NotSent(describe(&error), Some(content))),
            Some(Content::Nothing) => Err(RequestError::NotSent(describe(&error), None)),
            None if is_refusal(&error) => Err(RequestError::Refused(describe(&error))),
            None => match error.source().and_then(|source| source.downcast_ref::<Incomplete>()) {
                Some(incomplete) => Err(RequestError::Client(*incomplete)),
                None => Err(RequestError::Closed(describe(&error))),
            },
        }
    }

    /// Target and host as HTTP/2 has them (RFC 9113 §8.3.1).
    fn uri(&self, request: &RequestHead<'_>) -> Result<Uri, http::Error> {
        let mut parts = request.target.clone().into_parts();
        parts.scheme = Some(if self.is_tls { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(Authority::try_from(request.host.as_bytes())?);
        Ok(Uri::from_parts(parts)?)
    }
}

/// Whether the server has not begun with a request: it refused the stream, or its GOAWAY names an earlier one as the last (RFC 9113 §8.7).
fn is_refusal(error: &hyper::Error) -> bool {
    let error = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    error.is_some_and(|error| {
        error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// An error of HTTP with its cause.
fn describe(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The content of a response.
pub(super) struct AnswerBody {
    body: Incoming,
    /// The stream counts until its end.
    _lease: Lease,
}

impl AnswerBody {
    /// Whether the end has come.
    pub(super) fn has_ended(&self) -> bool {
        self.body.is_end_stream()
    }

    /// The next part; `None`: the response is whole.
    ///
    /// # Errors
    /// The response is not whole.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<AnswerFrame>>> {
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(content) => return Poll::Ready(Some(Ok(AnswerFrame::Content(content)))),
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            return Poll::Ready(Some(Ok(AnswerFrame::Trailers(trailers))));
                        }
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                // The library takes a reset without an error for the end (RST_STREAM, GOAWAY).
                None if !self.body.is_end_stream() => {
                    return Poll::Ready(Some(Err(io::Error::other("its stream was reset before its end"))));
                }
                None => return Poll::Ready(None),
            }
        }
    }
}
