//! Handing one half of a connection, or both, over to the kernel.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::ledger::Ledger;
use crate::sys::{sockopt, uapi};
use crate::{CryptoInfo, Error, Operation, Rx, RxState, Tx, TxState};

/// Moves the sending half into the kernel: `TCP_ULP`, then `TLS_TX`. The kernel seals all data written afterwards.
///
/// # Conditions that the caller must meet
/// 1. The handshake is over: the socket is ESTABLISHED, as the kernel requires. If the peer has
///    closed its half, the handover fails (`ENOTCONN`); a later close does no harm.
/// 2. Every record sealed in user space is wholly written to the socket: the kernel's first record follows the last
///    byte written, and half a record before it would corrupt the stream.
/// 3. `info` holds the number of the next record, counting every record sealed under this key: a repeated number is a repeated
///    nonce. For TLS 1.2 see [`CryptoInfo::tls12`].
/// 4. User space no longer seals under this key, and no other thread writes to the socket during the call.
/// 5. From here on the socket is written to only through [`Tx`], and closed only when [`Tx::unsent`] is 0. Plain `write(2)` would
///    be sealed too, but not counted; `shutdown(2)` and `close(2)` send no close_notify.
///
/// # When it fails
/// The connection continues in user space on the socket in [`Refused`]. Nothing was sent, and the keys in `info` are
/// unused. The error's [`Operation`] names the step that failed:
/// - [`Operation::SetUlp`]: the socket is as it was.
/// - [`Operation::TcpState`] or [`Operation::SetTx`]: the TLS layer is attached but has no keys, and passes all bytes
///   through unchanged (`TLS_BASE`). It cannot be detached. A later call may try again, with this or another cipher.
///
/// A second attempt fails with `EEXIST`. It is accepted only if the kernel reports that the attached layer is TLS
/// and has no keys in either direction, as after a failed attempt. This also covers a layer that another program
/// attached. If keys are already installed, the error is [`Kind::Misuse`](crate::Kind::Misuse).
pub fn tx<S: AsFd>(socket: S, info: &CryptoInfo) -> Result<Tx<S>, Refused<S>> {
    match set_tx(socket.as_fd(), info) {
        Ok(state) => Ok(Tx::from_parts(socket, state)),
        Err(error) => Err(Refused { socket, error }),
    }
}

/// A socket whose handover failed, and the error. With `?` it becomes the [`Error`].
pub struct Refused<S> {
    /// The socket, on which user space can continue.
    pub socket: S,
    /// The failed step and the remedy.
    pub error: Error,
}

impl<S> std::fmt::Debug for Refused<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.error, f)
    }
}

impl<S> std::fmt::Display for Refused<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.error, f)
    }
}

impl<S> std::error::Error for Refused<S> {}

impl<S> From<Refused<S>> for Error {
    fn from(refused: Refused<S>) -> Self {
        refused.error
    }
}

fn set_tx(fd: BorrowedFd<'_>, info: &CryptoInfo) -> Result<TxState, Error> {
    attach(fd)?;
    let ledger = Ledger::begin(fd, info.version(), info.cipher(), info.sequence())?;
    sockopt::set_keys(fd, uapi::TLS_TX, info.as_bytes()).map_err(|errno| Error::from_errno(Operation::SetTx, errno))?;
    Ok(TxState::new(info.version(), info.cipher(), ledger))
}

/// Moves the receiving half into the kernel too: `TLS_RX`. From then on, reads return opened records.
///
/// `sending` proves that the sending half is in the kernel: with `TLS_RX` alone a control record would leave **in plain
/// text**. The two halves share the socket, by reference or `Arc`. To receive alone, see [`rx_alone`].
///
/// A server that receives little should not use it. After a record that fails authentication the kernel also refuses to
/// send, so that no alert can leave. Before Linux 6.14 a KeyUpdate from the peer ends the connection.
///
/// # Conditions that the caller must meet
/// 1. User space has consumed all the data that it read from the socket, up to a record boundary. The kernel begins
///    with the next byte in the socket. In the middle of a record it fails with `EMSGSIZE`, `EINVAL` or `EBADMSG`. Bytes
///    that wait in the socket are parsed.
/// 2. `info` holds the number of the next record, counting all records opened so far, and the version and cipher of
///    `sending`.
/// 3. From here on the socket is read only through [`Rx`].
///
/// # When it fails
/// The kernel continues to send, and user space continues to receive.
pub fn rx<S: AsFd + Clone>(sending: &Tx<S>, info: &CryptoInfo) -> Result<Rx<S>, Error> {
    if (info.version(), info.cipher()) != (sending.version(), sending.cipher()) {
        return Err(Error::misuse(
            Operation::SetRx,
            "the kernel wants one version and one cipher for both directions of a connection",
        ));
    }
    let socket = sending.socket().clone();
    sockopt::set_keys(socket.as_fd(), uapi::TLS_RX, info.as_bytes())
        .map_err(|errno| Error::from_errno(Operation::SetRx, errno))?;
    Ok(Rx::from_parts(socket, RxState::new(info.version(), info.cipher())))
}

/// Moves the receiving half alone into the kernel: `TCP_ULP`, then `TLS_RX`. User space continues to seal the data it
/// sends.
///
/// The kernel sends written bytes unchanged, so that records sealed in user space pass. It would also send a control
/// record **in plain text**: without `TLS_TX` it ignores the record type. [`Rx`] therefore has no function that sends;
/// user space seals alerts and KeyUpdate itself. A later [`tx`] on this socket fails.
///
/// # Conditions that the caller must meet
/// The first and third condition of [`rx`]. `info` holds the number of the next record, counting all records opened so
/// far.
///
/// # When it fails
/// As for [`tx`], with [`Operation::SetRx`] instead of [`Operation::SetTx`].
pub fn rx_alone<S: AsFd>(socket: S, info: &CryptoInfo) -> Result<Rx<S>, Refused<S>> {
    let fd = socket.as_fd();
    let set = attach(fd).and_then(|()| {
        sockopt::set_keys(fd, uapi::TLS_RX, info.as_bytes()).map_err(|errno| Error::from_errno(Operation::SetRx, errno))
    });
    match set {
        Ok(()) => Ok(Rx::from_parts(socket, RxState::new(info.version(), info.cipher()))),
        Err(error) => Err(Refused { socket, error }),
    }
}

/// Durations of the system calls of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetUpTimes {
    /// Attaching the TLS layer, `TCP_ULP`.
    pub ulp: Duration,
    /// Installing the sending keys, `TLS_TX`.
    pub tx: Duration,
    /// Installing the receiving keys, `TLS_RX`.
    pub rx: Duration,
}

/// Moves both halves into the kernel and returns the duration of each call. For measurements only: afterwards the
/// connection can only be closed.
///
/// # Errors
/// As [`tx`] and [`rx`].
pub fn measure(fd: impl AsFd, sending: &CryptoInfo, receiving: &CryptoInfo) -> Result<SetUpTimes, Error> {
    let fd = fd.as_fd();
    let begun = Instant::now();
    sockopt::attach_tls(fd).map_err(|errno| Error::from_errno(Operation::SetUlp, errno))?;
    let attached = Instant::now();
    sockopt::set_keys(fd, uapi::TLS_TX, sending.as_bytes())
        .map_err(|errno| Error::from_errno(Operation::SetTx, errno))?;
    let sends = Instant::now();
    sockopt::set_keys(fd, uapi::TLS_RX, receiving.as_bytes())
        .map_err(|errno| Error::from_errno(Operation::SetRx, errno))?;
    Ok(SetUpTimes { ulp: attached - begun, tx: sends - attached, rx: sends.elapsed() })
}

/// Attaches the TLS layer, or accepts a layer that is attached without keys.
pub(crate) fn attach(fd: BorrowedFd<'_>) -> Result<(), Error> {
    let refused = match sockopt::attach_tls(fd) {
        Ok(()) => return Ok(()),
        Err(errno) => Error::from_errno(Operation::SetUlp, errno),
    };
    let ours = refused.errno() == Some(Errno::EXIST.raw_os_error())
        && sockopt::ulp_is_tls(fd) == Ok(true)
        && sockopt::suite(fd, uapi::TLS_TX) == Ok(None)
        && sockopt::suite(fd, uapi::TLS_RX) == Ok(None);
    if ours { Ok(()) } else { Err(refused) }
}
