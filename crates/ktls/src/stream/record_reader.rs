//! Reading that never passes the end of a record.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::net::TcpStream;

/// A socket whose reads never pass the end of a record, for TLS libraries that read as much as they get.
///
/// The kernel opens records from the next byte in the socket on, so user space must not read past the last record that
/// it opens. Give this to tokio-rustls instead of the [`TcpStream`], and then pass it to
/// [`KtlsStream::from_rustls`](super::KtlsStream::from_rustls).
#[derive(Debug)]
pub struct RecordReader {
    socket: TcpStream,
    header: [u8; HEADER],
    /// Bytes of the header read so far.
    read: usize,
    /// Bytes of the record's body not read yet.
    left: usize,
}

/// Type, version and length, RFC 8446 §5.1.
const HEADER: usize = 5;

impl RecordReader {
    /// Only whole records may have been read from `socket` before.
    pub const fn new(socket: TcpStream) -> Self {
        Self { socket, header: [0; HEADER], read: 0, left: 0 }
    }

    /// The socket.
    pub const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The socket. `Err` if part of a record was read: then the socket lacks the rest of it.
    pub fn into_socket(self) -> Result<TcpStream, Self> {
        if self.at_boundary() { Ok(self.socket) } else { Err(self) }
    }

    /// Whether only whole records were read.
    pub const fn at_boundary(&self) -> bool {
        self.read == 0
    }

    /// The maximum length of the next read.
    fn room(&self) -> usize {
        if self.read < HEADER { HEADER - self.read } else { self.left }
    }

    /// Counts bytes that were read, at most `room`.
    fn advance(&mut self, bytes: &[u8]) {
        if self.read < HEADER {
            self.header[self.read..][..bytes.len()].copy_from_slice(bytes);
            self.read += bytes.len();
            if self.read == HEADER {
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            }
        } else {
            self.left -= bytes.len();
        }
        if self.read == HEADER && self.left == 0 {
            self.read = 0;
        }
    }
}

impl AsyncRead for RecordReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let reader = self.get_mut();
        let room = reader.room().min(into.remaining());
        let mut part = ReadBuf::new(into.initialize_unfilled_to(room));
        ready!(Pin::new(&mut reader.socket).poll_read(cx, &mut part))?;
        let len = part.filled().len();
        reader.advance(part.filled());
        into.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordReader {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
