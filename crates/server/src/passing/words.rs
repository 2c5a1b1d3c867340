//! The messages between the two processes.

use std::fmt;
use std::fs::File;
use std::io::{IoSlice, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::packets;
use super::under_way::{Files, Streams, UnderWay};
use crate::limits::Moment;

/// The format of an offer that this version writes and reads. Another one is refused, and its connection drains. A change of [`Resting`] raises it, and so does a
/// change of [`Word`](super::Word) or [`RelayedHead`](super::RelayedHead): the processes of a relay then speak one version.
pub(super) const FORMAT: u16 = 5;

/// The longest message of an offer, in bytes. It fits the send buffer of a socket as the kernel makes it (212,992 bytes, wmem_default in socket(7)).
pub(super) const LONGEST_MESSAGE: usize = 64 << 10;

/// The longest content of an offer that its message contains, in bytes; the rest is for the heading. A longer one travels in a file in memory.
const LONGEST_INLINE: usize = LONGEST_MESSAGE - 16;

/// The longest content of an offer, in bytes: a response in memory, and its sealed records.
pub(super) const LONGEST_CONTENT: u64 = 32 << 20;

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
    /// The pace of the connection, in bytes per second.
    pub(crate) paced: Option<u64>,
    pub(crate) driver: Driver,
}

/// The driver that serves the connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Driver {
    /// HTTP/1.0 and HTTP/1.1. `None`: it is between two requests.
    Http1(Option<Box<UnderWay>>),
    /// HTTP/2. `None`: it has no streams.
    Http2(Box<sealion_h2::Rest>, Option<Box<Streams>>),
}

/// The beginning of an offer, in each format. The rest depends on the format; the TLS state comes last.
#[derive(Serialize, Deserialize)]
struct Heading {
    format: u16,
    id: u64,
}

/// Where the content of an offer is.
#[derive(Serialize, Deserialize)]
enum Place {
    Here,
    /// In the file whose descriptor follows the socket's.
    File,
    /// It is no connection: its descriptor is the channel over which this older process offers connections.
    Channel(u32),
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
    /// This process has no descriptor left.
    OwnDescriptors,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Format => "its version does not know their format",
            Refused::OwnDescriptors => "this process reached its limit of open files (LimitNOFILE=)",
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

/// The outcome of receiving from the socket pair.
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
    pub(super) content: Result<Offered, Refused>,
}

/// The offer.
pub(super) enum Offered {
    Connection(Content),
    /// The channel of an older process, by its id.
    Channel(u32, OwnedFd),
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

    /// The files that travel with it.
    pub(crate) fn files(&self) -> Vec<Arc<File>> {
        match &self.driver {
            Driver::Http1(Some(under_way)) => under_way.files.all(),
            Driver::Http2(_, Some(streams)) => streams.files.all(),
            Driver::Http1(None) | Driver::Http2(_, None) => Vec::new(),
        }
    }

    /// Adds the files that travelled with it. `false`: it has others.
    pub(super) fn take_files(&mut self, files: impl Iterator<Item = OwnedFd>) -> bool {
        match &mut self.driver {
            Driver::Http1(Some(under_way)) => {
                under_way.files = Files::new(files);
                under_way.is_sound()
            }
            Driver::Http2(rest, Some(streams)) => {
                streams.files = Files::new(files);
                streams.is_sound(rest)
            }
            Driver::Http2(rest, None) => rest.has_streams(Vec::new()),
            Driver::Http1(None) => true,
        }
    }
}

/// Sends an offer: [`Resting::to_bytes`], and the TLS state, with the socket and the files of a response.
pub(super) fn send_offer(
    to: BorrowedFd<'_>,
    id: u64,
    [resting, tls]: [&[u8]; 2],
    socket: BorrowedFd<'_>,
    files: &[Arc<File>],
) -> Result<(), Errno> {
    let length = resting.len() + tls.len();
    let aside = if length > LONGEST_INLINE { Some(set_aside([resting, tls])?) } else { None };
    let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(socket)
        .chain(aside.iter().map(AsFd::as_fd))
        .chain(files.iter().map(|file| file.as_fd()))
        .collect();
    let place = if aside.is_some() { Place::File } else { Place::Here };
    let heading = postcard::to_allocvec(&(Heading { format: FORMAT, id }, place)).expect("it is written to memory");
    match aside {
        Some(_) => packets::send(to, &[IoSlice::new(&heading)], &descriptors),
        None => packets::send(to, &[&heading, resting, tls].map(IoSlice::new), &descriptors),
    }
}

/// Offers the channel over which the process `pid` offers connections.
pub(super) fn send_channel(to: BorrowedFd<'_>, id: u64, pid: u32, channel: BorrowedFd<'_>) -> Result<(), Errno> {
    let heading = (Heading { format: FORMAT, id }, Place::Channel(pid));
    let heading = postcard::to_allocvec(&heading).expect("it is written to memory");
    packets::send(to, &[IoSlice::new(&heading)], &[channel])
}

/// The content of an offer in a file that no path leads to.
fn set_aside(content: [&[u8]; 2]) -> Result<File, Errno> {
    let mut file = File::from(memfd_create("sealion-passing", MemfdFlags::CLOEXEC)?);
    let written = content.into_iter().try_for_each(|part| file.write_all(part));
    written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOSPC))?;
    Ok(file)
}

/// The content of an offer from [`set_aside`]. The file has keys: it is emptied.
fn read_aside(file: OwnedFd) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let file = File::from(file);
    let length = file.metadata().map_err(|_| Refused::Format)?.len();
    if length > LONGEST_CONTENT {
        return Err(Refused::Length);
    }
    let mut content = Zeroizing::new(vec![0; length as usize]);
    file.read_exact_at(&mut content, 0).map_err(|_| Refused::Format)?;
    file.set_len(0).map_err(|_| Refused::Format)?;
    Ok(content)
}

pub(super) fn send_answer(to: BorrowedFd<'_>, answer: Answer) -> Result<(), Errno> {
    let bytes = postcard::to_allocvec(&answer).expect("it is written to memory");
    packets::send(to, &[IoSlice::new(&bytes)], &[])
}

pub(super) fn receive_answer(from: BorrowedFd<'_>) -> Result<Received<Answer>, Errno> {
    let mut bytes = [0; LONGEST_ANSWER];
    loop {
        return match packets::receive(from, &mut bytes) {
            // The other process has left offers unread, which the kernel tells before it gives out answers that wait.
            Err(Errno::CONNRESET) => continue,
            Err(Errno::AGAIN) => Ok(Received::Silence),
            Err(errno) => Err(errno),
            Ok(packet) if packet.length == 0 => Ok(Received::Closed),
            Ok(packet) => match postcard::from_bytes(&bytes[..packet.length]) {
                Ok(answer) => Ok(Received::Message(answer)),
                Err(_) => Err(Errno::PROTO),
            },
        };
    }
}

/// Receives an offer. `space`: for [`LONGEST_MESSAGE`] bytes; the offer is wiped from it.
pub(super) fn receive_offer(from: BorrowedFd<'_>, space: &mut [u8]) -> Result<Received<Offer>, Errno> {
    let packet = match packets::receive(from, space) {
        Err(Errno::AGAIN) => return Ok(Received::Silence),
        Err(Errno::CONNRESET) => return Ok(Received::Closed),
        packet => packet?,
    };
    let length = packet.length;
    if length == 0 {
        return Ok(Received::Closed);
    }
    let (Heading { format, id }, rest) = postcard::take_from_bytes(&space[..length]).map_err(|_| Errno::PROTO)?;
    let content = match format {
        FORMAT if packet.is_truncated => Err(Refused::Descriptors),
        FORMAT => Offered::read(rest, packet.descriptors),
        _ => Err(Refused::Format),
    };
    space[..length].zeroize();
    Ok(Received::Message(Offer { id, content }))
}

impl Offered {
    /// `message`: behind the heading.
    fn read(message: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self, Refused> {
        let (place, rest) = postcard::take_from_bytes::<Place>(message).map_err(|_| Refused::Format)?;
        let mut descriptors = descriptors.into_iter();
        let socket = descriptors.next().ok_or(Refused::Descriptors)?;
        let aside = match place {
            Place::Channel(pid) => return Ok(Offered::Channel(pid, socket)),
            Place::Here => None,
            Place::File => Some(read_aside(descriptors.next().ok_or(Refused::Descriptors)?)?),
        };
        let content = aside.as_ref().map_or(rest, |content| content);
        let (mut resting, tls) = postcard::take_from_bytes::<Resting>(content).map_err(|_| Refused::Format)?;
        if !resting.take_files(descriptors) {
            return Err(Refused::Format);
        }
        Ok(Offered::Connection(Content { resting, tls: Zeroizing::new(tls.to_vec()), socket }))
    }
}

/// A socket pair for offers and answers. Reads and writes end after `patience`.
pub(super) fn set_patience(socket: impl AsFd, patience: std::time::Duration) -> Result<(), Errno> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    [Timeout::Recv, Timeout::Send].into_iter().try_for_each(|which| set_socket_timeout(&socket, which, Some(patience)))
}
