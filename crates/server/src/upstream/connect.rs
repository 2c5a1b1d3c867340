//! A connection to a server: TCP or Unix socket, TLS where the URL says so, and the client's side of HTTP/1.1.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Server;
use super::config::ServerUrl;
use super::content::{Incomplete, RequestContent};

/// Octets of an answer's head, after which the answer is refused.
const MOST_HEAD: usize = 64 << 10;

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

/// A connection on which no request is in progress.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) sender: SendRequest<Content>,
    uses: Arc<Uses>,
}

/// How often a connection was taken and given back: odd while a request is in progress.
#[derive(Debug)]
struct Uses(AtomicU64);

impl Connected {
    /// Marks the connection as idle: it is closed after the upstream's `idle_timeout`.
    pub(super) fn rest(&self) {
        self.uses.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the connection for a request. `false`: it is closed, or still ends its last answer. The server may close at the same moment: this
    /// race is inherent, and the request then fails.
    pub(super) fn take(&self) -> bool {
        let is_ready = self.sender.is_ready();
        if is_ready {
            self.uses.0.fetch_add(1, Ordering::Relaxed);
        }
        is_ready
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

/// Connects to a server. The connection closes after it has been idle for `idle_timeout`, or as soon as nobody has its sender.
pub(super) async fn connect(
    server: &Server,
    connect_timeout: Duration,
    idle_timeout: Duration,
) -> Result<Connected, ConnectError> {
    server.counts.connected();
    let connected = timeout(connect_timeout, async {
        match &server.url {
            ServerUrl::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(ConnectError::Refused)?;
                shake_hands(stream, idle_timeout).await
            }
            ServerUrl::Tcp { host, port, .. } => {
                let stream = server.names.connect(host, *port, connect_timeout).await;
                let stream = stream.map_err(|error| match error.kind() {
                    io::ErrorKind::TimedOut => ConnectError::Timeout(connect_timeout),
                    _ => ConnectError::Refused(error),
                })?;
                stream.set_nodelay(true).map_err(ConnectError::Refused)?;
                match &server.tls {
                    None => shake_hands(stream, idle_timeout).await,
                    Some(tls) => {
                        let stream = tls.connector.connect(tls.name.clone(), stream).await;
                        shake_hands(stream.map_err(ConnectError::Tls)?, idle_timeout).await
                    }
                }
            }
        }
    });
    connected.await.map_err(|_| ConnectError::Timeout(connect_timeout))?
}

async fn shake_hands<T>(io: T, idle_timeout: Duration) -> Result<Connected, ConnectError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MOST_HEAD);
    let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(ConnectError::Http)?;
    let uses = Arc::new(Uses(AtomicU64::new(1)));
    let watched = Arc::clone(&uses);
    tokio::spawn(async move {
        let mut connection = std::pin::pin!(connection.with_upgrades());
        // Looks once in each `idle_timeout`, so that a request need not set a timer.
        let mut last = 1;
        while timeout(idle_timeout, connection.as_mut()).await.is_err() {
            let uses = watched.0.load(Ordering::Relaxed);
            if uses == last && uses.is_multiple_of(2) {
                break;
            }
            last = uses;
        }
    });
    Ok(Connected { sender, uses })
}
