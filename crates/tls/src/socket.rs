//! The transport of a connection: TCP, or a Unix stream socket, which has no kernel TLS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected stream socket.
#[derive(Debug)]
pub enum Socket {
    /// A TCP connection (tcp(7)).
    Tcp(TcpStream),
    /// A Unix stream socket (unix(7)).
    Unix(UnixStream),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Socket {
    /// Whether it is TCP, which kernel TLS needs.
    pub fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    /// The socket without the runtime, which no longer waits for it.
    pub(crate) fn into_fd(self) -> io::Result<OwnedFd> {
        Ok(match self {
            Self::Tcp(stream) => stream.into_std()?.into(),
            Self::Unix(stream) => stream.into_std()?.into(),
        })
    }

    /// A socket that does not block, for the runtime of this thread.
    pub(crate) fn from_fd(fd: OwnedFd, is_tcp: bool) -> io::Result<Self> {
        Ok(match is_tcp {
            true => Self::Tcp(TcpStream::from_std(fd.into())?),
            false => Self::Unix(UnixStream::from_std(fd.into())?),
        })
    }

    /// Waits until data or the end of the connection can be read.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    /// Runs `operation` if the socket is ready for it. If it returns `WouldBlock`, the readiness is cleared.
    ///
    /// # Errors
    /// The operation's, and `WouldBlock` if the socket is not ready.
    pub fn try_io<T>(&self, interest: Interest, operation: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self {
            Self::Tcp(stream) => stream.try_io(interest, operation),
            Self::Unix(stream) => stream.try_io(interest, operation),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Unix(stream) => stream.poll_write_ready(cx),
        }
    }

    /// Bytes that the socket takes at once, including the kernel's overhead.
    pub(crate) fn room(&self) -> usize {
        sealion_ktls::room(self).unwrap_or(0)
    }

    /// Bytes that the peer has taken over the life of the connection. `written`: the bytes that this process wrote.
    pub(crate) fn taken(&self, written: u64) -> u64 {
        match self {
            Self::Tcp(stream) => sealion_ktls::acknowledged(stream).unwrap_or(0),
            // The queue includes the kernel's overhead, so the result is too low while the queue is not empty.
            Self::Unix(stream) => sealion_ktls::queued(stream).map_or(0, |bytes| written.saturating_sub(bytes.into())),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    /// This type buffers nothing.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
