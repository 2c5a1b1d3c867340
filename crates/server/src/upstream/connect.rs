//! A connection to a server: TCP or Unix socket, and TLS where the URL says so.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::Server;
use super::config::{Protocol, ServerUrl};
use super::proxy_header::OnBehalf;
use crate::tls_client::Io;

/// Bytes of a response's head, after which the response is refused.
pub(super) const MOST_HEAD: usize = 64 << 10;

/// Why a server could not be reached.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot connect: {0}")]
    Refused(#[source] io::Error),
    #[error("no connection within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// Nothing is known of the server.
    #[error("this machine lacks descriptors, ports or memory for a connection: {0}")]
    Exhausted(#[source] io::Error),
    #[error("TLS failed: {0}")]
    Tls(#[source] io::Error),
    #[error("HTTP failed: {0}")]
    Http(#[source] hyper::Error),
    #[error("the server does not offer HTTP/2 by ALPN: set protocol = \"http1\"")]
    NoHttp2,
}

impl ConnectError {
    fn refused(error: io::Error) -> Self {
        if is_exhaustion(&error) { Self::Exhausted(error) } else { Self::Refused(error) }
    }

    /// Whether it says something of the server.
    pub(super) fn is_servers_fault(&self) -> bool {
        !matches!(self, Self::Exhausted(_))
    }
}

/// Whether an error of socket(2) or connect(2) is this machine's own: a limit on open files, memory, or no local port is free.
pub(super) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL)
    )
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

/// Opens a connection to a server. With the PROXY protocol, a connection serves one client.
pub(super) async fn connect(
    server: &Server,
    connect_timeout: Duration,
    on_behalf: OnBehalf<'_>,
) -> Result<Box<dyn Io>, ConnectError> {
    server.counts.connected();
    let opened = timeout(connect_timeout, open(server, connect_timeout, on_behalf)).await;
    opened.map_err(|_| ConnectError::Timeout(connect_timeout))?
}

async fn open(
    server: &Server,
    connect_timeout: Duration,
    on_behalf: OnBehalf<'_>,
) -> Result<Box<dyn Io>, ConnectError> {
    let (host, port) = match &server.url {
        ServerUrl::Unix(path) => {
            let mut stream = UnixStream::connect(path).await.map_err(ConnectError::refused)?;
            introduce(&mut stream, server, on_behalf).await?;
            return Ok(Box::new(stream));
        }
        ServerUrl::Tcp { host, port, .. } => (host, *port),
    };
    let stream = server.names.connect(host, port, connect_timeout).await;
    let mut stream = stream.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => ConnectError::Timeout(connect_timeout),
        _ => ConnectError::refused(error),
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
