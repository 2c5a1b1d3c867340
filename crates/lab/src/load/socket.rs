//! A client's TCP socket.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use rustix::io::retry_on_intr;
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};

/// A connected socket with TCP_NODELAY.
pub(super) struct Socket(TcpStream);

impl Socket {
    pub(super) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_nodelay(true)?;
        socket.connect(address).await.map(Self)
    }

    pub(super) async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.0.try_write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.0.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends without waiting, as far as the socket accepts the bytes.
    pub(super) fn send_now(&self, bytes: &[u8]) {
        let _ = self.0.try_write(bytes);
    }

    /// Waits until there may be something to receive.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await
    }

    /// Receives without waiting; 0 is the end of the stream, `None` nothing yet.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// As [`Self::receive`], but the kernel drops the bytes, and only the length of `buffer` matters: tcp(7),
    /// `MSG_TRUNC`.
    pub(super) fn discard(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.receive_with(buffer, RecvFlags::TRUNC)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Option<usize>> {
        let wanted = buffer.len();
        let mut came = None;
        let outcome = self.0.try_io(Interest::READABLE, || {
            let (_, bytes) = retry_on_intr(|| rustix::net::recv(&self.0, &mut *buffer, flags))?;
            came = Some(bytes);
            // A short read means that the socket is empty. WouldBlock informs the runtime, which saves another system
            // call.
            if bytes > 0 && bytes < wanted { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match outcome {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(came),
        }
    }
}
