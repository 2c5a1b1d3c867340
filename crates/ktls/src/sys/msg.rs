//! `sendmsg` with a TLS control message, which rustix does not know.

use std::io::IoSlice;
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
