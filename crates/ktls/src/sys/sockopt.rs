//! `setsockopt`, `getsockopt` and `ioctl` on a kernel-TLS socket.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use zeroize::Zeroizing;

use super::{retry, uapi};

/// Attaches the TLS layer, tcp(7) and `net/tls/tls_main.c`, `tls_init`.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | ENOENT | layer absent, and not loadable by this process | stays in user space |
/// | ENOTCONN | not ESTABLISHED | stays in user space |
/// | EEXIST | a layer is there | looks at its state: [`ulp_is_tls`], [`keys`] |
/// | ENOMEM | | may retry |
pub(crate) fn attach_tls(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    set(fd, libc::IPPROTO_TCP, uapi::TCP_ULP, uapi::ULP_TLS)
}

/// Whether the attached layer is TLS.
pub(crate) fn ulp_is_tls(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    // TCP_ULP_NAME_MAX is 16; the kernel pads the name with zeros.
    let mut name = [0; 16];
    let len = get(fd, libc::IPPROTO_TCP, uapi::TCP_ULP, &mut name)?;
    Ok(name[..len].split(|&b| b == 0).next() == Some(uapi::ULP_TLS))
}

/// Installs keys: `option` is `TLS_TX` or `TLS_RX`, `info` a `struct tls12_crypto_info_*` of exact size.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | EINVAL | version, cipher, size, or other than the other direction's | stays in user space |
/// | ENOENT | cipher unavailable | stays in user space |
/// | EBUSY | keys are there and cannot be renewed | treats as misuse, or as "no rekey" |
/// | ENOPROTOOPT | layer not attached | treats as misuse |
/// | ENOMEM | | may retry |
pub(crate) fn set_keys(fd: BorrowedFd<'_>, option: i32, info: &[u8]) -> Result<(), Errno> {
    set(fd, uapi::SOL_TLS, option, info)
}

/// Sets one of the other options of `SOL_TLS`.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | ENOPROTOOPT | this kernel lacks the option, or the layer is not attached | goes without |
/// | EINVAL | value, version or direction | treats as misuse |
/// | EBUSY | a record is open (TLS_TX_MAX_PAYLOAD_LEN) | seals it first |
pub(crate) fn set_option(fd: BorrowedFd<'_>, option: i32, value: &[u8]) -> Result<(), Errno> {
    set(fd, uapi::SOL_TLS, option, value)
}

/// The version and cipher numbers of a direction, without its key. `None` if the layer is attached but this direction
/// has no keys.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | ENOPROTOOPT, EOPNOTSUPP | not a kernel-TLS socket | treats as misuse |
pub(crate) fn suite(fd: BorrowedFd<'_>, option: i32) -> Result<Option<(u16, u16)>, Errno> {
    let mut header = [0; uapi::HEADER_LEN];
    match get(fd, uapi::SOL_TLS, option, &mut header) {
        Ok(_) => {
            let [v0, v1, c0, c1] = header;
            Ok(Some((u16::from_ne_bytes([v0, v1]), u16::from_ne_bytes([c0, c1]))))
        }
        Err(Errno::BUSY) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Reads one of the other options of `SOL_TLS`, a number of `N` bytes.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | ENOPROTOOPT | this kernel lacks the option, or the layer is not attached | goes without |
/// | EINVAL | version or direction | treats as misuse |
pub(crate) fn option<const N: usize>(fd: BorrowedFd<'_>, option: i32) -> Result<[u8; N], Errno> {
    let mut value = [0; N];
    match get(fd, uapi::SOL_TLS, option, &mut value)? {
        len if len == N => Ok(value),
        _ => Err(Errno::INVAL),
    }
}

/// The current structure of a direction, `size` bytes, **with the key**. It is wiped on drop.
///
/// | errno | meaning | caller |
/// |---|---|---|
/// | EBUSY | no keys in this direction | treats as misuse |
/// | EINVAL | `size` is another cipher's | treats as misuse |
/// | ENOPROTOOPT, EOPNOTSUPP | not a kernel-TLS socket | treats as misuse |
pub(crate) fn keys(fd: BorrowedFd<'_>, option: i32, size: usize) -> Result<Zeroizing<[u8; uapi::MAX_LEN]>, Errno> {
    let mut info = Zeroizing::new([0; uapi::MAX_LEN]);
    get(fd, uapi::SOL_TLS, option, &mut info[..size])?;
    Ok(info)
}

/// Bytes that TCP has taken over the life of the connection: acknowledged, queued, or in flight.
///
/// The sum is consistent: the count of acknowledged bytes is read before and after the queue, until both readings
/// agree. `TCP_INFO` (tcp(7), `tcpi_bytes_acked`, Linux 4.1) and `SIOCOUTQ` (tcp(7)).
pub(crate) fn tcp_taken(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut acked = bytes_acked(fd)?;
    loop {
        let queued = out_queue(fd)?;
        let again = bytes_acked(fd)?;
        if again == acked {
            return Ok(acked + u64::from(queued));
        }
        acked = again;
    }
}

/// Bytes that the peer has acknowledged over the life of the connection (`tcpi_bytes_acked`).
pub(crate) fn bytes_acked(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    // struct tcp_info, include/uapi/linux/tcp.h: 8 one-byte fields, 24 of u32, pacing_rate and max_pacing_rate u64.
    const BYTES_ACKED: usize = 8 + 24 * 4 + 2 * 8;
    let mut info = [0; BYTES_ACKED + 8];
    let len = get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    if len < info.len() {
        return Err(Errno::NOPROTOOPT);
    }
    let mut field = [0; 8];
    field.copy_from_slice(&info[BYTES_ACKED..]);
    Ok(u64::from_ne_bytes(field))
}

/// Whether TCP has closed the connection after a reset or a timeout: `tcpi_state`, the first field of `TCP_INFO`.
pub(crate) fn is_closed(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    // TCP_CLOSE, include/net/tcp_states.h.
    const CLOSE: u8 = 7;
    let mut state = [0];
    get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
    Ok(state == [CLOSE])
}

/// The free room of a send buffer: `SO_MEMINFO`, an array of u32 (include/uapi/linux/sock_diag.h).
///
/// TCP counts its queue in `SK_MEMINFO_WMEM_QUEUED`, a Unix socket in `SK_MEMINFO_WMEM_ALLOC`: the larger number is taken.
pub(crate) fn send_room(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    const SK_MEMINFO_WMEM_ALLOC: usize = 2;
    const SK_MEMINFO_SNDBUF: usize = 3;
    const SK_MEMINFO_WMEM_QUEUED: usize = 5;
    let mut info = [0; 4 * (SK_MEMINFO_WMEM_QUEUED + 1)];
    if get(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut info)? < info.len() {
        return Err(Errno::NOPROTOOPT);
    }
    let (fields, _) = info.as_chunks::<4>();
    let field = |n: usize| u32::from_ne_bytes(fields[n]);
    Ok(field(SK_MEMINFO_SNDBUF).saturating_sub(field(SK_MEMINFO_WMEM_QUEUED).max(field(SK_MEMINFO_WMEM_ALLOC))))
}

/// Bounds TCP's rate in bytes per second. The kernel accepts a value of 8 bytes since Linux 4.20 (net/core/sock.c,
/// SO_MAX_PACING_RATE).
pub(crate) fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_second: u64) -> Result<(), Errno> {
    set(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second.to_ne_bytes())
}

/// The bound; all bits set if there is no bound.
pub(crate) fn max_pacing_rate(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut rate = [0; 8];
    get(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut rate)?;
    Ok(u64::from_ne_bytes(rate))
}

/// Bytes sent but not acknowledged (TCP) or not read by the peer (Unix socket): `SIOCOUTQ`, tcp(7).
pub(crate) fn out_queue(fd: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut queued: libc::c_int = 0;
    retry(|| {
        // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one int; `queued` lives across the call and nothing else refers to it.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        done as isize
    })?;
    Ok(queued.try_into().unwrap_or(0))
}

/// Sets any option.
pub(crate) fn set(fd: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> Result<(), Errno> {
    let len = value.len() as libc::socklen_t;
    retry(|| {
        // SAFETY: the kernel reads `len` bytes from `value`, a live slice of that length, and keeps no pointer to it.
        let done = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value.as_ptr().cast(), len) };
        done as isize
    })?;
    Ok(())
}

/// Returns the number of bytes that the kernel reports to have written, at most `value.len()`.
fn get(fd: BorrowedFd<'_>, level: i32, option: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut len = value.len() as libc::socklen_t;
    retry(|| {
        // SAFETY: the kernel writes at most `len` bytes to `value`, a live and unshared slice of that length, and
        // the new length to `len`, a local; it keeps no pointer to either.
        let done = unsafe {
            let to = value.as_mut_ptr().cast();
            libc::getsockopt(fd.as_raw_fd(), level, option, to, &raw mut len)
        };
        done as isize
    })?;
    Ok((len as usize).min(value.len()))
}
