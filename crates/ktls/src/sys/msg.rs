//! `sendmsg` and `recvmsg` with a TLS control message, which rustix does not support.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::{mem, ptr};

use rustix::io::Errno;

use super::{retry, uapi};

/// Room for one control message with one byte; 8 words of `cmsghdr`'s alignment are more than any ABI needs.
#[repr(C)]
union Control {
    _align: libc::cmsghdr,
    bytes: [u8; 64],
}

/// Seals an open record, then sends `data` as one record of the type `record_type`. Never raises SIGPIPE.
///
/// With empty `data` it only seals the open record.
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

/// The result of one `recvmsg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) len: usize,
    /// The type of the record. Absent at the end of the stream, and on a socket without kernel TLS in the receiving
    /// direction.
    pub(crate) record_type: Option<u8>,
    /// MSG_EOR: the end of a record was read.
    pub(crate) end_of_record: bool,
    /// MSG_CTRUNC: the kernel had more control messages than fitted.
    pub(crate) control_truncated: bool,
}

/// Whether a read consumes the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Take,
    /// MSG_PEEK: the next read returns the same data again.
    Peek,
}

/// Receives data of one record type into the slices, one after the other, and returns the type.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | EAGAIN | no whole record | waits, repeats |
/// | EBADMSG | a record does not authenticate, or is too short; repeats, and sending is dead too | closes |
/// | EMSGSIZE, EINVAL | a header's length or version is impossible; told once, then EAGAIN for ever | closes at once |
/// | EKEYEXPIRED | KeyUpdate was read, and the next key is missing | installs it |
/// | EIO | a control record without room for its type: never, there is room | |
/// | ECONNRESET, ETIMEDOUT | connection over | drops it |
pub(crate) fn recv_record(fd: BorrowedFd<'_>, into: &mut [IoSliceMut<'_>], read: Read) -> Result<Received, Errno> {
    let mut control = Control { bytes: [0; 64] };
    let flags = match read {
        Read::Take => 0,
        Read::Peek => libc::MSG_PEEK,
    };
    // SAFETY: all-zero bytes are a valid `msghdr`: null pointers and zero lengths.
    let mut msg: libc::msghdr = unsafe { mem::zeroed() };
    msg.msg_iov = into.as_mut_ptr().cast();
    msg.msg_iovlen = into.len() as _;
    msg.msg_control = (&raw mut control).cast();
    msg.msg_controllen = mem::size_of::<Control>() as _;
    let len = retry(|| {
        // SAFETY: `msg` points to `into` (an `IoSliceMut` has the layout of `iovec`, by its documentation), a live slice of
        // `msg_iovlen` elements whose bytes are unshared, and to `control`, alive across the call; the kernel writes within their
        // lengths and keeps no pointer.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut msg, flags) }
    })?;
    let filled = (msg.msg_controllen as usize).min(mem::size_of::<Control>());
    // SAFETY: every byte of `control` was initialised above, and any value is valid for a byte.
    let record_type = record_type_in(unsafe { &control.bytes[..filled] });
    Ok(Received {
        len,
        record_type,
        end_of_record: msg.msg_flags & libc::MSG_EOR != 0,
        control_truncated: msg.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// The record type among control messages, cmsg(3), as the kernel lays them out: length (of a `long`), level, type, data, padding to a `long`.
pub(crate) fn record_type_in(mut control: &[u8]) -> Option<u8> {
    const LONG: usize = mem::size_of::<usize>();
    const HEADER: usize = LONG + 4 + 4;
    let mut found = None;
    while let Some((header, _)) = control.split_first_chunk::<HEADER>() {
        let (len, rest) = header.split_first_chunk::<LONG>()?;
        let (level, rest) = rest.split_first_chunk()?;
        let (kind, _) = rest.split_first_chunk()?;
        let len = usize::from_ne_bytes(*len);
        let data = control.get(HEADER..len)?;
        if (i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind)) == (uapi::SOL_TLS, uapi::TLS_GET_RECORD_TYPE) {
            found = data.first().copied().or(found);
        }
        control = control.get(len.next_multiple_of(LONG)..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let len = mem::size_of::<usize>() + 8 + data.len();
        let mut bytes = [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), data].concat();
        bytes.resize(len.next_multiple_of(mem::size_of::<usize>()), 0);
        bytes
    }

    #[test]
    fn the_type_is_found_among_others() {
        let tls = message(uapi::SOL_TLS, uapi::TLS_GET_RECORD_TYPE, &[22]);
        let time = message(libc::SOL_SOCKET, libc::SCM_TIMESTAMP, &[9; 16]);
        assert_eq!(record_type_in(&tls), Some(22));
        assert_eq!(record_type_in(&[time.clone(), tls.clone()].concat()), Some(22));
        assert_eq!(record_type_in(&[tls, time.clone()].concat()), Some(22));
        assert_eq!(record_type_in(&time), None);
        assert_eq!(record_type_in(&[]), None);
        assert_eq!(record_type_in(&message(uapi::SOL_TLS, uapi::TLS_GET_RECORD_TYPE, &[])), None);
        assert_eq!(record_type_in(&message(uapi::SOL_TLS, uapi::TLS_SET_RECORD_TYPE, &[22])), None);
    }

    #[test]
    fn broken_messages_end_it() {
        let whole = message(uapi::SOL_TLS, uapi::TLS_GET_RECORD_TYPE, &[22]);
        crate::netlink::tests::break_every_byte(&whole, |control| {
            record_type_in(control);
        });
        let mut endless = whole;
        endless[..mem::size_of::<usize>()].fill(0xFF);
        assert_eq!(record_type_in(&endless), None);
    }
}
