//! What the two processes say.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use crate::limits::Moment;

/// The format of an offer that this version writes and reads. Another one is refused, and its connection drains.
pub(super) const FORMAT: u16 = 1;

/// The longest offer, in bytes. It fits the send buffer of a socket as the kernel makes it (212,992 bytes, wmem_default in socket(7)).
pub(super) const LONGEST_OFFER: usize = 128 << 10;

/// The longest content of an offer, in bytes; the rest is for its heading.
pub(super) const LONGEST_CONTENT: usize = LONGEST_OFFER - 16;

/// The longest answer, in bytes.
const LONGEST_ANSWER: usize = 64;

/// A connection at rest, without its socket and its TLS state.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Resting {
    /// The name of its listener.
    pub(crate) listener: Box<str>,
    /// The client's end, or the client that the PROXY protocol named.
    pub(crate) peer: SocketAddr,
    /// When it became idle.
    pub(crate) idle_since: Moment,
    /// Requests so far.
    pub(crate) requests: u64,
    /// Nanoseconds that an earlier move to the kernel would have saved.
    pub(crate) forgone: u64,
    /// Response bytes that it had sent when it moved to the kernel.
    pub(crate) moved_at: Option<u64>,
    /// Bytes per second to which it is paced.
    pub(crate) paced: Option<u64>,
    pub(crate) driver: Driver,
}

/// The driver that serves the connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Driver {
    /// HTTP/1.0 and HTTP/1.1, between two requests.
    Http1,
    /// HTTP/2 without streams.
    Http2(Box<sealion_h2::Rest>),
}

/// The beginning of an offer, in each format. What follows depends on the format; the TLS state comes last.
#[derive(Serialize, Deserialize)]
struct Heading {
    format: u16,
    id: u64,
}

/// The answer to an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The new process serves the connection.
    Taken(u64),
    Refused(u64, Refused),
}

/// Why a connection was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Refused {
    /// The new process does not know the format.
    Format,
    /// The new process has no descriptor left.
    Descriptors,
    /// Its listener is gone, or has TLS where it had none.
    Listener,
    /// All places for connections are taken.
    Places,
    /// The new process ends, or is itself being replaced.
    Ending,
    /// More bytes wait in it than an offer holds.
    Length,
    /// The new process does not answer.
    Silence,
    /// The new process has ended.
    Ended,
    /// Something was under way.
    Busy,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Format => "its version does not know their format",
            Refused::Descriptors => "it reached its limit of open files (LimitNOFILE=)",
            Refused::Listener => "their listener is gone",
            Refused::Places => "all its places are taken (limits.max_connections)",
            Refused::Ending => "it ends",
            Refused::Length => "too many bytes wait in them",
            Refused::Silence => "it does not answer",
            Refused::Ended => "it has ended",
            Refused::Busy => "a handshake of HTTP/2 or the renewal of a key was under way",
        })
    }
}

/// What came over the socket pair.
pub(super) enum Received<T> {
    Message(T),
    /// The other process has closed its end, and everything before it was read.
    Closed,
    /// Nothing came within the time-out of the socket.
    Silence,
}

/// An offer as it came.
pub(super) struct Offer {
    pub(super) id: u64,
    pub(super) content: Result<Content, Refused>,
}

pub(super) struct Content {
    pub(super) resting: Resting,
    pub(super) tls: Zeroizing<Vec<u8>>,
    pub(super) socket: OwnedFd,
}

impl Resting {
    /// The part of an offer between heading and TLS state.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("it is written to memory")
    }
}

/// Sends an offer: [`Resting::to_bytes`], and the TLS state.
pub(super) fn send_offer(
    to: BorrowedFd<'_>,
    id: u64,
    [resting, tls]: [&[u8]; 2],
    socket: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket];
    control.push(SendAncillaryMessage::ScmRights(&sockets));
    let heading = postcard::to_allocvec(&Heading { format: FORMAT, id }).expect("it is written to memory");
    send(to, &[IoSlice::new(&heading), IoSlice::new(resting), IoSlice::new(tls)], &mut control)
}

pub(super) fn send_answer(to: BorrowedFd<'_>, answer: Answer) -> Result<(), Errno> {
    let bytes = postcard::to_allocvec(&answer).expect("it is written to memory");
    send(to, &[IoSlice::new(&bytes)], &mut SendAncillaryBuffer::default())
}

fn send(to: BorrowedFd<'_>, bytes: &[IoSlice<'_>], control: &mut SendAncillaryBuffer<'_, '_, '_>) -> Result<(), Errno> {
    loop {
        match sendmsg(to, bytes, control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop),
        }
    }
}

pub(super) fn receive_answer(from: BorrowedFd<'_>) -> Result<Received<Answer>, Errno> {
    let mut bytes = [0; LONGEST_ANSWER];
    loop {
        let received = recvmsg(
            from,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut RecvAncillaryBuffer::default(),
            RecvFlags::CMSG_CLOEXEC,
        );
        return match received {
            // The other process has left offers unread, which the kernel tells before it gives out answers that wait.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Err(Errno::AGAIN) => Ok(Received::Silence),
            Err(errno) => Err(errno),
            Ok(received) if received.bytes == 0 => Ok(Received::Closed),
            Ok(received) => match postcard::from_bytes(&bytes[..received.bytes]) {
                Ok(answer) => Ok(Received::Message(answer)),
                Err(_) => Err(Errno::PROTO),
            },
        };
    }
}

/// Receives an offer. `space`: for [`LONGEST_OFFER`] bytes. What came is wiped from it.
pub(super) fn receive_offer(from: BorrowedFd<'_>, space: &mut [u8]) -> Result<Received<Offer>, Errno> {
    let mut ancillary = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut ancillary);
    let received = loop {
        match recvmsg(from, &mut [IoSliceMut::new(space)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::Silence),
            Err(Errno::CONNRESET) => return Ok(Received::Closed),
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Ok(Received::Closed);
    }
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    let length = received.bytes;
    let bytes = &space[..length];
    let (Heading { format, id }, rest) = postcard::take_from_bytes(bytes).map_err(|_| Errno::PROTO)?;
    let is_whole = !received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let content = || {
        let (resting, tls) = postcard::take_from_bytes::<Resting>(rest).map_err(|_| Refused::Format)?;
        let socket = socket.filter(|_| is_whole).ok_or(Refused::Descriptors)?;
        Ok(Content { resting, tls: Zeroizing::new(tls.to_vec()), socket })
    };
    let content = if format == FORMAT { content() } else { Err(Refused::Format) };
    space[..length].zeroize();
    Ok(Received::Message(Offer { id, content }))
}

/// A socket pair for offers and answers. Reads and writes end after `patience`.
pub(super) fn set_patience(socket: impl AsFd, patience: std::time::Duration) -> Result<(), Errno> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    [Timeout::Recv, Timeout::Send].into_iter().try_for_each(|which| set_socket_timeout(&socket, which, Some(patience)))
}
