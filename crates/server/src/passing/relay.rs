//! The messages of two processes about an exchange: one process feeds it, and the other sends it.
//!
//! ```text
//! upstream ◄──► old process: Home ◄── SOCK_SEQPACKET ──► new process: content of the response, content of the request ◄──► client
//! ```
//!
//! The socket's buffer bounds the content of the response that is under way. The content of the request has room that the old process grants: it always reads its
//! end, and learns at once that the client has left. The far end is a descriptor: the next upgrade passes it on, so that no process stays between.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sealion_http::http1::framing::ResponseFraming;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::packets;
use super::under_way::Line;

/// Bytes of content in a packet, at most.
pub(crate) const LONGEST_PIECE: usize = 64 << 10;

/// The longest packet, in bytes: it fits the send buffer of a socket as the kernel makes it (212,992 bytes, wmem_default in socket(7)).
pub(crate) const LONGEST_PACKET: usize = 160 << 10;

/// The meaning of a packet. Its payload follows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// Content of the response.
    Piece,
    /// The end of the response, with the lines of its trailers.
    End,
    /// The response breaks off, because of this text.
    Failed,
    /// The response begins. Its head follows.
    Head(Box<RelayedHead>),
    /// An interim response of this status, with its lines.
    Interim(u16),
    /// So many more bytes of the request's content are wanted.
    Wanted(u32),
    /// No more content of the request is taken.
    Closed,
    /// Content of the request.
    Content,
    /// The end of the content, with the lines of its trailers.
    ContentEnd,
    /// The content breaks off. The client is told this status.
    ContentFailed(u16),
}

/// A response that was awaited.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RelayedHead {
    pub(crate) line: Line,
    pub(crate) framing: ResponseFraming,
    /// The length of its content, if it is known.
    pub(crate) length: Option<u64>,
    pub(crate) ends: Ends,
}

/// How an awaited response ends its stream or connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ends {
    /// As its framing says.
    Usual,
    /// The connection closes behind it.
    Closes,
    /// Its content is another protocol's.
    Tunnel,
    /// The client does not get it.
    Withheld,
}

/// A word with its payload.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) word: Word,
    pub(crate) payload: Bytes,
}

impl Packet {
    pub(crate) fn new(word: Word, payload: impl Into<Bytes>) -> Self {
        Packet { word, payload: payload.into() }
    }

    /// Whether the other process can receive it.
    pub(crate) fn fits(&self) -> bool {
        self.word_to_bytes().len() + self.payload.len() <= LONGEST_PACKET
    }

    /// A packet as it came.
    ///
    /// # Errors
    /// This version does not know its word.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Errno> {
        let (word, payload) = postcard::take_from_bytes(bytes).map_err(|_| Errno::PROTO)?;
        Ok(Packet { word, payload: Bytes::copy_from_slice(payload) })
    }

    pub(super) fn word_to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(&self.word).expect("it is written to memory")
    }
}

/// An end of a relay.
#[derive(Debug, Clone)]
pub(crate) struct Link(Arc<UnixStream>);

impl Link {
    /// An end for this process, and one for another.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self::new(near)?, far))
    }

    /// The end that another process gave.
    ///
    /// # Errors
    /// It is no socket, or the runtime does not take it.
    pub(crate) fn new(end: OwnedFd) -> io::Result<Self> {
        Ok(Link(Arc::new(UnixStream::from_std(end.into())?)))
    }

    /// The descriptor for yet another process. This one must not be used afterwards.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Sends a packet, once the other process has read enough.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>, packet: &Packet) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_io(Interest::WRITABLE, || Ok(self.send(packet)?)) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// Sends a packet if there is room.
    pub(crate) fn try_send(&self, packet: &Packet) {
        let _ = self.send(packet);
    }

    fn send(&self, packet: &Packet) -> Result<(), Errno> {
        let word = packet.word_to_bytes();
        let bytes = [IoSlice::new(&word), IoSlice::new(&packet.payload)];
        packets::send(self.0.as_fd(), &bytes, &[])
    }

    /// The next packet. `None`: the other process has closed its end.
    pub(crate) fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Packet>>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_io(Interest::READABLE, || Ok(self.receive()?)) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // The other process has left packets unread, which the kernel tells before it gives out those that wait.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn receive(&self) -> Result<Option<Packet>, Errno> {
        SPACE.with_borrow_mut(|space| {
            space.resize(LONGEST_PACKET, 0);
            match packets::receive(self.0.as_fd(), space)? {
                received if received.length == 0 => Ok(None),
                received if received.is_truncated => Err(Errno::MSGSIZE),
                received => Packet::from_bytes(&space[..received.length]).map(Some),
            }
        })
    }
}

thread_local! {
    static SPACE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The error of an exchange whose other process is gone.
pub(crate) fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the process before an upgrade, which had the rest, has ended")
}

/// The error of a word that has no place there.
pub(crate) fn unexpected(word: &Word) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the process before an upgrade said {word:?}"))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;

    #[tokio::test]
    async fn no_more_is_sent_than_is_read() {
        let (near, far) = Link::pair().unwrap();
        let far = Link::new(far).unwrap();
        let piece = Packet::new(Word::Piece, vec![7; LONGEST_PIECE]);
        poll_fn(|cx| near.poll_send(cx, &piece)).await.unwrap();
        let mut sent = 1;
        while near.poll_send(&mut Context::from_waker(Waker::noop()), &piece).is_ready() {
            sent += 1;
        }
        assert!((1..10).contains(&sent), "{sent}");
        for _ in 0..sent {
            let packet = poll_fn(|cx| far.poll_receive(cx)).await.unwrap().unwrap();
            assert_eq!(packet.payload, piece.payload);
        }
        poll_fn(|cx| near.poll_send(cx, &piece)).await.unwrap();
        // Packets that were sent arrive, even if the other end left some unread.
        poll_fn(|cx| far.poll_send(cx, &Packet::new(Word::Wanted(1), &b""[..]))).await.unwrap();
        drop(near);
        assert!(poll_fn(|cx| far.poll_receive(cx)).await.unwrap().is_some());
        assert!(poll_fn(|cx| far.poll_receive(cx)).await.unwrap().is_none());
    }
}
