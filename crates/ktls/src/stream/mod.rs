//! A TLS connection whose records the kernel seals and opens, as a stream of tokio. Feature `stream`.
//!
//! [`KtlsStream::accept`] and [`KtlsStream::connect`] perform a rustls handshake and hand both halves over.
//! [`KtlsStream::from_rustls`] takes over a connection whose handshake happened elsewhere, for instance in
//! tokio-rustls.
//!
//! ```no_run
//! # async fn example(listener: tokio::net::TcpListener, mut config: rustls::ServerConfig, file: std::fs::File) -> std::io::Result<()> {
//! use sealion_ktls::stream::KtlsStream;
//! use tokio::io::AsyncReadExt;
//!
//! config.enable_secret_extraction = true;
//! let (socket, _) = listener.accept().await?;
//! let mut stream = KtlsStream::accept(socket, std::sync::Arc::new(config)).await?;
//! let mut request = [0; 1024];
//! let _len = stream.read(&mut request).await?;
//! let len = file.metadata()?.len();
//! stream.send_file(&file, 0..len).await?;
//! # Ok(())
//! # }
//! ```

mod handshake;
mod kernel;
mod keys;
mod record_reader;
mod user;

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::net::TcpStream;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, CommonState, ServerConfig};

pub use keys::SecretLog;
pub use record_reader::RecordReader;

/// A TLS connection of a server or a client over a tokio TCP socket.
///
/// If the kernel knows every configured cipher suite, it seals and opens the records ([`SealedBy::Kernel`]): reading
/// and writing cost one system call each and no buffer, and [`send_file`](Self::send_file) is `sendfile(2)`. Otherwise
/// rustls does both in user space, with the same interface ([`SealedBy::UserSpace`]).
///
/// - Key updates: the stream follows the peer's key updates and replies to them. It renews its own key before the key's
///   limit, and on [`renew_key`](Self::renew_key). This needs Linux 6.14 or newer. On older kernels a peer's KeyUpdate
///   ends the connection with [`io::ErrorKind::Unsupported`], and so does the key's limit, 388 GB with AES-GCM.
/// - Session tickets go to the client's configuration, so that its next connection resumes.
/// - The end: reading returns 0 bytes after close_notify, and [`io::ErrorKind::UnexpectedEof`] without it. `shutdown`
///   sends close_notify, waits until TCP has every byte, and shuts the socket down for writing. It waits for as long as
///   the peer takes nothing, so put a timeout around it. If the peer sent close_notify and left, `shutdown` succeeds,
///   although the peer did not wait for the rest. If the peer left without close_notify, or with more than 16 KB unread
///   here, the error is [`io::ErrorKind::BrokenPipe`] or [`io::ErrorKind::ConnectionReset`]. Dropping the stream
///   without `shutdown` cuts the connection.
#[derive(Debug)]
pub struct KtlsStream {
    socket: TcpStream,
    layer: Layer,
    negotiated: Negotiated,
}

#[derive(Debug)]
enum Layer {
    Kernel(Box<kernel::Kernel>),
    User(Box<user::User>),
}

/// Where the records of a [`KtlsStream`] are sealed and opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedBy {
    /// The kernel, or a network card on its behalf.
    Kernel,
    /// rustls.
    UserSpace,
}

/// The results of the handshake, kept because rustls' connection does not survive the handover.
#[derive(Debug, Default)]
struct Negotiated {
    alpn: Option<Vec<u8>>,
    certificates: Option<Vec<CertificateDer<'static>>>,
}

impl Negotiated {
    fn of(connection: &CommonState) -> Self {
        Self {
            alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
            certificates: connection
                .peer_certificates()
                .map(|chain| chain.iter().map(|certificate| certificate.clone().into_owned()).collect()),
        }
    }
}

impl KtlsStream {
    /// Performs the handshake as a server.
    ///
    /// The first call probes the kernel, which takes milliseconds: [`probe`](crate::probe::probe).
    ///
    /// [`io::ErrorKind::InvalidInput`]: `config` has `enable_secret_extraction` unset, or a `max_early_data_size`.
    pub async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        handshake::accept(socket, config).await
    }

    /// Performs the handshake as a client of the server `name`; otherwise as [`accept`](Self::accept).
    pub async fn connect(socket: TcpStream, config: Arc<ClientConfig>, name: ServerName<'static>) -> io::Result<Self> {
        handshake::connect(socket, config, name).await
    }

    /// Takes over a rustls connection after its handshake over `socket`, from rustls' buffered interface or from
    /// tokio-rustls. Data that it has buffered in either direction is kept.
    ///
    /// rustls does not reveal the traffic secrets except to a key log: `secrets` is the key log of its configuration.
    /// Without it, or if a key was updated before, later key updates fail with [`io::ErrorKind::Unsupported`]. Session
    /// tickets that arrive later are dropped.
    ///
    /// [`io::ErrorKind::InvalidInput`]: the handshake is not over. Where the kernel seals, the configuration needs
    /// `enable_secret_extraction`.
    pub async fn from_rustls(
        socket: RecordReader,
        connection: impl Into<rustls::Connection>,
        secrets: Option<&SecretLog>,
    ) -> io::Result<Self> {
        handshake::go_on(socket, connection.into(), secrets).await
    }

    /// Where records are sealed and opened.
    pub fn path(&self) -> SealedBy {
        match self.layer {
            Layer::Kernel(_) => SealedBy::Kernel,
            Layer::User(_) => SealedBy::UserSpace,
        }
    }

    /// The protocol chosen by ALPN.
    pub fn alpn_protocol(&self) -> Option<&[u8]> {
        self.negotiated.alpn.as_deref()
    }

    /// The peer's certificates, its own first. A server has them only if it requested a certificate.
    pub fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.negotiated.certificates.as_deref()
    }

    /// The socket, for its addresses and options. Reading or writing it directly breaks the connection.
    pub const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends these bytes of `file`, by `sendfile(2)` from the page cache if the kernel seals.
    ///
    /// [`io::ErrorKind::UnexpectedEof`]: the file ended early, and its content was sent. Drop the stream without
    /// `shutdown`, so that the peer notices. A slow disk blocks the thread. If the future is dropped, the number of
    /// bytes sent is unknown.
    pub async fn send_file(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        let mut offset = range.start;
        let mut buffer = Vec::new();
        while offset < range.end {
            let left = range.end - offset;
            let sent = match &mut self.layer {
                Layer::Kernel(kernel) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX);
                    let socket = &self.socket;
                    poll_fn(|cx| kernel.poll_send_file(socket, cx, file, offset, count)).await?
                }
                Layer::User(_) => {
                    buffer.resize(usize::try_from(left).unwrap_or(usize::MAX).min(1 << 16), 0);
                    let len = file.read_at(&mut buffer, offset)?;
                    self.write_all(&buffer[..len]).await?;
                    len
                }
            };
            if sent == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ended before its promised length"));
            }
            offset += sent as u64;
        }
        poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx)).await
    }

    /// Renews the sending key (TLS 1.3, RFC 8446 §4.6.3). The stream also renews it by itself before the key's limit.
    ///
    /// [`io::ErrorKind::Unsupported`]: the kernel cannot, or the traffic secrets are unknown. Nothing was sent, and the
    /// connection continues.
    pub async fn renew_key(&mut self) -> io::Result<()> {
        match &mut self.layer {
            Layer::Kernel(kernel) => {
                let socket = &self.socket;
                poll_fn(|cx| kernel.poll_renew(socket, cx)).await
            }
            Layer::User(user) => {
                user.renew_key()?;
                poll_fn(|cx| Pin::new(&mut *self).poll_flush(cx)).await
            }
        }
    }

    pub(crate) fn wear(&mut self, records: u64) {
        if let Layer::Kernel(kernel) = &mut self.layer {
            kernel.wear(records);
        }
    }

    /// Whether the peer has sent close_notify, read or not.
    fn peer_has_closed(&mut self) -> bool {
        match &mut self.layer {
            Layer::Kernel(kernel) => kernel.peer_has_closed(&self.socket),
            Layer::User(user) => user.peer_has_closed(&self.socket),
        }
    }

    async fn write_all(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let written = poll_fn(|cx| Pin::new(&mut *self).poll_write(cx, data)).await?;
            data = &data[written..];
        }
        Ok(())
    }
}

impl AsyncRead for KtlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        match &mut stream.layer {
            Layer::Kernel(kernel) => kernel.poll_read(&stream.socket, cx, into),
            Layer::User(user) => user.poll_read(&stream.socket, cx, into),
        }
    }
}

impl AsyncWrite for KtlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        match &mut stream.layer {
            Layer::Kernel(kernel) => kernel.poll_write(&stream.socket, cx, data),
            Layer::User(user) => user.poll_write(&stream.socket, cx, data),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        match &mut stream.layer {
            // The kernel pushes sealed data by itself.
            Layer::Kernel(kernel) => kernel.poll_flush(&stream.socket, cx),
            Layer::User(user) => user.poll_flush(&stream.socket, cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let said = match &mut stream.layer {
            Layer::Kernel(kernel) => kernel.poll_close(&stream.socket, cx),
            Layer::User(user) => user.poll_close(&stream.socket, cx),
        };
        let ended = match said {
            Poll::Ready(Ok(())) => Pin::new(&mut stream.socket).poll_shutdown(cx),
            waiting_or_failed => waiting_or_failed,
        };
        match ended {
            Poll::Ready(Err(error)) if has_left(&error) && stream.peer_has_closed() => Poll::Ready(Ok(())),
            result => result,
        }
    }
}

/// Whether the peer has closed or reset the connection.
fn has_left(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected)
}

/// Converts a rustls error as tokio-rustls does.
fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
