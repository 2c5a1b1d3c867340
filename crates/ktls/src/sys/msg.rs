//! `sendmsg` and `recvmsg` with a TLS control message, which rustix does not know.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{mem, ptr};

use rustix::io::Errno;

use super::{retry, uapi};

/// Room for one control message with one byte; 8 times the alignment of `cmsghdr` is more than any ABI needs.
#[repr(C)]
union Control {
    _align: libc::cmsghdr,
    bytes: [u8; 64],
}

/// Sends `data` as one record of the type `record_type`, sealing an open record before. Never raises SIGPIPE.
///
/// `data` may be empty: then the open record is sealed and nothing else happens.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | EAGAIN | nothing of `data` was taken; an open record may have been sealed | waits, repeats |
/// | EINVAL | the socket has no TLS layer, or a broken control message | treats as misuse |
/// | EPIPE, ECONNRESET, ETIMEDOUT | connection over | drops it |
/// | EBADMSG | sealing failed, the sequence wrapped, or receiving failed before | drops it |
/// | ENOMEM | | may retry |
pub(crate) fn send_record(fd: BorrowedFd<'_>, record_type: u8, data: &[u8]) -> Result<usize, Errno> {
    let mut control = Control { bytes: [0; 64] };
    let mut slice = IoSlice::new(data);
    // SAFETY: all-zero bytes are a valid `msghdr`: null pointers and zero lengths.
    let mut msg: libc::msghdr = unsafe { mem::zeroed() };
    msg.msg_iov = (&raw mut slice).cast();
    msg.msg_iovlen = 1;
    msg.msg_control = (&raw mut control).cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN are arithmetic. The space of one byte (at most 32) is within `control`, which is
    // aligned for `cmsghdr`, so CMSG_FIRSTHDR returns its start and CMSG_DATA a place within it; nothing else refers to it.
    unsafe {
        msg.msg_controllen = libc::CMSG_SPACE(1) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const msg);
        (*header).cmsg_level = uapi::SOL_TLS;
        (*header).cmsg_type = uapi::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as _;
        ptr::write(libc::CMSG_DATA(header), record_type);
    }
    // SAFETY: `msg` points to `slice` (an `IoSlice` has the layout of `iovec`, by its documentation) and to `control`,
    // both alive across the call; the kernel reads them and keeps no pointer.
    retry(|| unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const msg, libc::MSG_NOSIGNAL) })
}

/// What one `recvmsg` gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) len: usize,
    /// The type of the record; absent at the end of the stream, and on a socket that does not receive by kernel TLS.
    pub(crate) record_type: Option<u8>,
    /// MSG_EOR: the end of a record was read.
    pub(crate) end_of_record: bool,
    /// MSG_CTRUNC: the kernel had more control messages than fitted.
    pub(crate) control_truncated: bool,
}

/// Receives data of one record type, and that type.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | EAGAIN | no whole record | waits, repeats |
/// | EBADMSG | a record does not authenticate, or is too short; repeats, and sending is dead too | closes |
/// | EMSGSIZE, EINVAL | a header's length or version is impossible; told once, then EAGAIN for ever | closes at once |
/// | EKEYEXPIRED | KeyUpdate was read, and the next key is missing | installs it |
/// | EIO | a control record without room for its type: never, there is room | |
/// | ECONNRESET, ETIMEDOUT | connection over | drops it |
pub(crate) fn recv_record(fd: BorrowedFd<'_>, into: &mut [u8]) -> Result<Received, Errno> {
    let mut control = Control { bytes: [0; 64] };
    let mut slice = IoSliceMut::new(into);
    // SAFETY: all-zero bytes are a valid `msghdr`: null pointers and zero lengths.
    let mut msg: libc::msghdr = unsafe { mem::zeroed() };
    msg.msg_iov = (&raw mut slice).cast();
    msg.msg_iovlen = 1;
    msg.msg_control = (&raw mut control).cast();
    msg.msg_controllen = mem::size_of::<Control>() as _;
    let len = retry(|| {
        // SAFETY: `msg` points to `slice` (an `IoSliceMut` has the layout of `iovec`, by its documentation), whose bytes are
        // unshared, and to `control`, both alive across the call; the kernel writes within their lengths and keeps no pointer.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, 0) }
    })?;
    let mut record_type = None;
    // SAFETY: the kernel has left whole control messages within `msg_controllen` bytes of `control`. CMSG_FIRSTHDR and CMSG_NXTHDR
    // return such headers or null, and CMSG_DATA of one that holds a byte is within `control`.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const msg);
        while !header.is_null() {
            let (level, kind) = ((*header).cmsg_level, (*header).cmsg_type);
            let has_data = (*header).cmsg_len as usize >= libc::CMSG_LEN(1) as usize;
            if (level, kind) == (uapi::SOL_TLS, uapi::TLS_GET_RECORD_TYPE) && has_data {
                record_type = Some(ptr::read(libc::CMSG_DATA(header)));
            }
            header = libc::CMSG_NXTHDR(&raw const msg, header);
        }
    }
    Ok(Received {
        len,
        record_type,
        end_of_record: msg.msg_flags & libc::MSG_EOR != 0,
        control_truncated: msg.msg_flags & libc::MSG_CTRUNC != 0,
    })
}
