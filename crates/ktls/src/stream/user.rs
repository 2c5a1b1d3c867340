//! The path in user space: a rustls connection over the socket.

use std::io::{self, IoSlice, Read, Write};
use std::task::{Context, Poll, ready};

use ::tokio::io::ReadBuf;
use ::tokio::net::TcpStream;
use rustls::Connection;

use super::broken;

/// A rustls connection after its handshake.
#[derive(Debug)]
pub(super) struct User {
    connection: Connection,
    closed: bool,
}

/// The socket as rustls reads and writes it: `WouldBlock` clears tokio's readiness.
pub(super) struct Io<'a>(pub(super) &'a TcpStream);

impl Read for Io<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Io<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.try_write(data)
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl User {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, closed: false }
    }

    pub(super) fn renew_key(&mut self) -> io::Result<()> {
        self.connection.refresh_traffic_keys().map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))
    }

    pub(super) fn poll_read(
        &mut self,
        socket: &TcpStream,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.connection.reader().read(into.initialize_unfilled()) {
                Ok(len) => {
                    into.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            match self.connection.read_tls(&mut Io(socket)) {
                Ok(_) => {
                    let result = self.connection.process_new_packets();
                    // Replies to key updates, or the alert for an error. If the socket is full, they go out with the
                    // next write.
                    self.write_some(socket)?;
                    result.map_err(broken)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(socket.poll_read_ready(cx))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    pub(super) fn poll_write(
        &mut self,
        socket: &TcpStream,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(socket, cx))?;
        let taken = self.connection.writer().write_vectored(data)?;
        self.write_some(socket)?;
        Poll::Ready(Ok(taken))
    }

    pub(super) fn poll_flush(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.write_some(socket)? {
            ready!(socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_close(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closed {
            self.connection.send_close_notify();
            self.closed = true;
        }
        self.poll_flush(socket, cx)
    }

    /// Whether the peer has sent close_notify. Keeps the data before it for the reader, as much as rustls buffers.
    pub(super) fn peer_has_closed(&mut self, socket: &TcpStream) -> bool {
        loop {
            let read = self.connection.read_tls(&mut Io(socket));
            match self.connection.process_new_packets() {
                Ok(state) if state.peer_has_closed() => return true,
                Ok(_) if read.is_ok_and(|len| len > 0) => {}
                _ => return false,
            }
        }
    }

    /// Writes rustls' pending data. False: the socket is full.
    fn write_some(&mut self, socket: &TcpStream) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Io(socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
