//! Packets of Unix sockets between processes: bytes, and descriptors (SCM_RIGHTS, unix(7)).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::under_way::MOST_FILES;

/// The descriptors of a packet: the socket, the file that has its content, and the files of a response.
const MOST_DESCRIPTORS: usize = 2 + MOST_FILES;

/// A packet that was received.
pub(crate) struct Received {
    /// Its bytes. 0: the other end is closed.
    pub(crate) length: usize,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Bytes or descriptors were lost.
    pub(crate) is_truncated: bool,
}

/// Sends a packet.
///
/// # Errors
/// `TOOBIG`: it has too many descriptors.
pub(crate) fn send(to: BorrowedFd<'_>, bytes: &[IoSlice<'_>], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    retry_on_intr(|| sendmsg(to, bytes, &mut control, SendFlags::NOSIGNAL)).map(drop)
}

/// Receives a packet into `space`.
pub(crate) fn receive(from: BorrowedFd<'_>, space: &mut [u8]) -> Result<Received, Errno> {
    let mut ancillary = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut ancillary);
    let received =
        retry_on_intr(|| recvmsg(from, &mut [IoSliceMut::new(space)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let is_truncated = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    Ok(Received { length: received.bytes, descriptors: descriptors.collect(), is_truncated })
}
