//! A connection to a server: TCP or Unix socket, TLS where the URL says so, and the client's side of HTTP/1.1 or HTTP/2.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Server;
use super::config::{Protocol, ServerUrl};
use super::content::{Incomplete, RequestContent};
use super::proxy_header::OnBehalf;

/// Octets of an answer's head, after which the answer is refused.
pub(super) const MOST_HEAD: usize = 64 << 10;

/// What a request to a server carries.
#[derive(Debug)]
pub(super) enum Content {
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

/// A connection, for one request.
#[derive(Debug)]
pub(super) enum Connected {
    /// All of a connection.
    Http1(Whole),
    /// A share of a connection.
    Http2(Lease),
}

impl Connected {
    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// With the request, if nothing of it was sent.
    pub(super) async fn ask(
        &mut self,
        message: http::Request<Content>,
    ) -> Result<http::Response<Incoming>, TrySendError<http::Request<Content>>> {
        match self {
            Connected::Http1(whole) => whole.sender.try_send_request(message).await,
            Connected::Http2(lease) => lease.sender.try_send_request(message).await,
        }
    }
}

/// A connection of HTTP/1.1.
#[derive(Debug)]
pub(super) struct Whole {
    sender: http1::SendRequest<Content>,
    uses: Arc<Uses>,
}

impl Whole {
    pub(super) fn age(&self) -> Duration {
        self.uses.since.elapsed()
    }

    /// Marks the connection as idle: it is closed after the upstream's `idle_timeout`.
    pub(super) fn rest(&self) {
        self.uses.end();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Takes the connection for a request. `false`: it is closed, or still ends its last answer. The server may close at the same moment: this
    /// race is inherent, and the request then fails.
    pub(super) fn take(&self) -> bool {
        let is_ready = self.sender.is_ready();
        if is_ready {
            self.uses.begin();
        }
        is_ready
    }
}

/// A connection of HTTP/2, which answers many requests at once.
#[derive(Debug)]
pub(super) struct Shared {
    sender: http2::SendRequest<Content>,
    uses: Arc<Uses>,
}

/// Requests on a connection of HTTP/2 at once, of which a server may allow fewer. The next one opens another connection.
const MOST_STREAMS: u64 = 100;

impl Shared {
    /// `None`: the connection is closed, or has enough to do.
    pub(super) fn lease(&self) -> Option<Lease> {
        let most = match self.uses.streams.load(Ordering::Relaxed) {
            0 => MOST_STREAMS,
            streams => streams.min(MOST_STREAMS),
        };
        let is_free = !self.sender.is_closed() && self.uses.active() < most;
        is_free.then(|| {
            self.uses.begin();
            Lease { sender: self.sender.clone(), uses: Arc::clone(&self.uses) }
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
    /// Requests that a server of HTTP/2 answers at once; 0: not known yet.
    streams: AtomicU64,
}

impl Uses {
    fn new() -> Self {
        let [begun, ended, streams] = [(); 3].map(|()| AtomicU64::new(0));
        Uses { since: Instant::now(), begun, ended, streams }
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

/// Why a server could not be reached.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot connect: {0}")]
    Refused(#[source] io::Error),
    #[error("no connection within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    #[error("TLS failed: {0}")]
    Tls(#[source] io::Error),
    #[error("HTTP failed: {0}")]
    Http(#[source] hyper::Error),
    #[error("the server does not offer HTTP/2 by ALPN: set protocol = \"http1\"")]
    NoHttp2,
}

/// TLS to a server.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Connects to a server for one request over HTTP/1.1. The connection closes after it has been idle for `idle_timeout`, or as soon as nobody
/// has its sender.
pub(super) async fn connect_http1(
    server: &Server,
    connect_timeout: Duration,
    idle_timeout: Duration,
    on_behalf: OnBehalf<'_>,
) -> Result<Whole, ConnectError> {
    connect(server, connect_timeout, on_behalf, |io| async move {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(MOST_HEAD);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(ConnectError::Http)?;
        let uses = Arc::new(Uses::new());
        uses.begin();
        let watched = Arc::clone(&uses);
        tokio::spawn(async move { watched.drive(connection.with_upgrades(), idle_timeout).await });
        Ok(Whole { sender, uses })
    })
    .await
}

/// Connects to a server of FastCGI, for one request.
pub(super) async fn connect_fastcgi(server: &Server, connect_timeout: Duration) -> Result<Box<dyn Io>, ConnectError> {
    connect(server, connect_timeout, OnBehalf::Own, |io| async move { Ok(io) }).await
}

/// Octets of an answer over HTTP/2 that a server may send before they are taken.
const STREAM_WINDOW: u32 = 128 << 10;

/// Time without an octet, after which a connection of HTTP/2 with requests in progress is asked whether it still is one.
const PING_AFTER: Duration = Duration::from_secs(20);

/// Connects to a server that answers many requests at once, over HTTP/2. It closes after it has been idle for `idle_timeout`.
pub(super) async fn connect_http2(
    server: &Server,
    connect_timeout: Duration,
    idle_timeout: Duration,
) -> Result<Shared, ConnectError> {
    // Without a header: its requests are those of many clients.
    connect(server, connect_timeout, OnBehalf::Own, |io| async move {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            // Answers that nobody takes leave room for all others.
            .initial_connection_window_size(STREAM_WINDOW * MOST_STREAMS as u32)
            .max_header_list_size(MOST_HEAD as u32)
            .max_send_buf_size(MOST_BUFFERED)
            .keep_alive_interval(PING_AFTER);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(ConnectError::Http)?;
        let uses = Arc::new(Uses::new());
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
        Ok(Shared { sender, uses })
    })
    .await
}

/// Octets of a request's content that the library of HTTP/2 keeps for a stream.
const MOST_BUFFERED: usize = 64 << 10;

/// The octets of a connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Opens a connection, and lets `shake_hands` begin HTTP on it.
async fn connect<T, F: Future<Output = Result<T, ConnectError>>>(
    server: &Server,
    connect_timeout: Duration,
    on_behalf: OnBehalf<'_>,
    shake_hands: impl FnOnce(Box<dyn Io>) -> F,
) -> Result<T, ConnectError> {
    server.counts.connected();
    let connected =
        timeout(connect_timeout, async { shake_hands(open(server, connect_timeout, on_behalf).await?).await });
    connected.await.map_err(|_| ConnectError::Timeout(connect_timeout))?
}

async fn open(
    server: &Server,
    connect_timeout: Duration,
    on_behalf: OnBehalf<'_>,
) -> Result<Box<dyn Io>, ConnectError> {
    let (host, port) = match &server.url {
        ServerUrl::Unix(path) => {
            let mut stream = UnixStream::connect(path).await.map_err(ConnectError::Refused)?;
            introduce(&mut stream, server, on_behalf).await?;
            return Ok(Box::new(stream));
        }
        ServerUrl::Tcp { host, port, .. } => (host, *port),
    };
    let stream = server.names.connect(host, port, connect_timeout).await;
    let mut stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => ConnectError::Timeout(connect_timeout),
        _ => ConnectError::Refused(error),
    })?;
    stream.set_nodelay(true).map_err(ConnectError::Refused)?;
    introduce(&mut stream, server, on_behalf).await?;
    let Some(tls) = &server.tls else { return Ok(Box::new(stream)) };
    let stream = tls.connector.connect(tls.name.clone(), stream).await.map_err(ConnectError::Tls)?;
    if server.protocol == Protocol::Http2 && stream.get_ref().1.alpn_protocol() != Some(ALPN_HTTP2) {
        return Err(ConnectError::NoHttp2);
    }
    Ok(Box::new(stream))
}

/// Begins a connection with the header of the PROXY protocol, if the server wants one.
async fn introduce(
    io: &mut (impl AsyncWrite + Unpin),
    server: &Server,
    on_behalf: OnBehalf<'_>,
) -> Result<(), ConnectError> {
    let Some(version) = server.proxy_protocol else { return Ok(()) };
    io.write_all(&version.header(on_behalf)).await.map_err(ConnectError::Refused)
}

/// The name of HTTP/2 in ALPN (RFC 9113 §3.2).
pub(super) const ALPN_HTTP2: &[u8] = b"h2";
