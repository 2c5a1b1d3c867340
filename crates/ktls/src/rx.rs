//! The receiving half of a connection, in the kernel.

use std::borrow::BorrowMut;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::SpliceFlags;

use crate::crypto_info::{live_sequence, suite_of};
use crate::faults::{EXPECT_NO_PAD, Kernel, Standing};
use crate::handover::Refused;
use crate::sys::msg::{self, Read};
use crate::sys::{sockopt, uapi};
use crate::{Cipher, CryptoInfo, Error, Kind, Operation, RecordType, Version};

/// The receiving half of a connection that is in the kernel, and the only way to read from it.
///
/// ```text
///            KeyUpdate was read            next key installed, or false alarm
///   Open ────────────────────────► Expired ───────────────────────────────────► Open
///    │ close_notify, or end of stream        │ a malformed record
///    ▼                                       ▼
///   Ended                                   Broken (the same error again and again)
/// ```
///
/// `S` is the socket of the [`Tx`](crate::Tx), shared by reference or `Arc`; it may be blocking or not, and signals do
/// not interrupt a call. [`RxState`] corresponds to [`TxState`](crate::TxState) of `Tx`.
#[derive(Debug)]
pub struct Rx<S, T = RxState> {
    socket: S,
    state: T,
}

/// The receiving half of a connection without its socket: see [`Rx`].
#[derive(Debug)]
pub struct RxState {
    version: Version,
    cipher: Cipher,
    phase: Phase,
    /// The last read ended inside a control record.
    inside: bool,
    /// The control record being read begins like a KeyUpdate.
    key_update: bool,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The buffer's first `len` bytes are content of this type.
    Record {
        /// A read may return application data from several records. It never joins two types or two control records.
        record_type: RecordType,
        /// It may be 0: a peer may send empty records. Bound their number, because each costs a system call.
        len: usize,
        /// False: the buffer was too small, and the next read returns the rest of the same record. RFC 8446 §4.6.3 and
        /// §6 require KeyUpdate and alerts in records of their own.
        whole: bool,
    },
    /// The peer renewed its key, and nothing more can be read until [`Rx::rekey`]. This is not an error, but the state
    /// after KeyUpdate.
    KeyExpired,
    /// The end of the stream.
    End {
        /// Whether the peer sent close_notify. Without it the data may be truncated (RFC 8446 §6.1).
        close_notify: bool,
    },
}

/// The result of [`Rx::splice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spliced {
    /// Bytes of application data moved into the pipe.
    Data(usize),
    /// The next record is not application data: call [`Rx::recv`].
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Expired,
    Ended { close_notify: bool },
    Broken(Error),
}

impl<S, T> Rx<S, T> {
    /// Joins a state and its socket. Any other socket is misuse.
    pub const fn from_parts(socket: S, state: T) -> Self {
        Self { socket, state }
    }

    /// The socket and the state, for [`from_parts`](Self::from_parts).
    pub fn into_parts(self) -> (S, T) {
        (self.socket, self.state)
    }

    /// The socket, for its options and for readiness.
    pub const fn socket(&self) -> &S {
        &self.socket
    }
}

impl<S: AsFd> Rx<S> {
    /// Takes over a socket whose receiving half is already in the kernel, as [`Tx::adopt`](crate::Tx::adopt) does for
    /// the sending half.
    ///
    /// # Conditions that the caller must meet
    /// The last read ended at the end of a control record or within application data, and close_notify was not read.
    ///
    /// `Misuse`: the socket has no receiving keys. `Unsupported`: this crate does not know the version or cipher.
    pub fn adopt(socket: S) -> Result<Self, Refused<S>> {
        match suite_of(socket.as_fd(), uapi::TLS_RX) {
            Ok((version, cipher)) => Ok(Self { socket, state: RxState::new(version, cipher) }),
            Err(error) => Err(Refused { socket, error }),
        }
    }
}

impl<S: AsFd, T: BorrowMut<RxState>> Rx<S, T> {
    /// Splits into the socket and a receiver that borrows both, so that a runtime's socket can run an operation of the
    /// receiver.
    pub fn split(&mut self) -> (&S, Rx<BorrowedFd<'_>, &mut RxState>) {
        (&self.socket, Rx { socket: self.socket.as_fd(), state: self.state.borrow_mut() })
    }

    /// The protocol version of the keys.
    pub fn version(&self) -> Version {
        self.state.borrow().version
    }

    /// The cipher of the keys.
    pub fn cipher(&self) -> Cipher {
        self.state.borrow().cipher
    }

    /// Reads into `buffer`, at least 2 bytes, so that an alert fits.
    ///
    /// The result always contains the record type, so that a control record cannot be mistaken for data, nor an empty
    /// record for the end of the stream.
    ///
    /// The caller must parse a handshake record: it may be KeyUpdate, or a session ticket on a client. The caller then
    /// calls [`rekey`](Self::rekey) or [`false_alarm`](Self::false_alarm).
    ///
    /// `Peer` is final: later reads return the same error. `WouldBlock`: no whole record has arrived.
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<Incoming, Error> {
        self.read(&mut [IoSliceMut::new(buffer)], Read::Take)
    }

    /// Reads into several buffers, one after the other; otherwise as [`recv`](Self::recv).
    pub fn recv_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> Result<Incoming, Error> {
        self.read(buffers, Read::Take)
    }

    /// Reads without consuming (`MSG_PEEK`); otherwise as [`recv`](Self::recv).
    ///
    /// `whole` is false for control records, because the kernel sets `MSG_EOR` inconsistently when peeking.
    ///
    /// It changes no state: after peeking at a KeyUpdate or close_notify, reading continues with that record. The end
    /// of the stream and errors are remembered, since they would come again.
    pub fn peek(&mut self, buffer: &mut [u8]) -> Result<Incoming, Error> {
        self.read(&mut [IoSliceMut::new(buffer)], Read::Peek)
    }

    fn read(&mut self, buffers: &mut [IoSliceMut<'_>], how: Read) -> Result<Incoming, Error> {
        let (fd, state) = (self.socket.as_fd(), self.state.borrow_mut());
        match state.phase {
            Phase::Open => {}
            Phase::Expired => return Ok(Incoming::KeyExpired),
            Phase::Ended { close_notify } => return Ok(Incoming::End { close_notify }),
            Phase::Broken(error) => return Err(error),
        }
        if buffers.iter().map(|buffer| buffer.len()).sum::<usize>() < 2 {
            return Err(Error::misuse(Operation::Receive, "pass a buffer of at least 2 bytes"));
        }
        let read = match msg::recv_record(fd, buffers, how) {
            Ok(read) => read,
            Err(Errno::KEYEXPIRED) => {
                state.phase = Phase::Expired;
                return Ok(Incoming::KeyExpired);
            }
            Err(errno) => return Err(state.failed(Error::from_errno(Operation::Receive, errno))),
        };
        if read.control_truncated {
            let advice =
                "the record's type was lost among other control messages: switch off socket options that add some";
            return Err(state.failed(Error::misuse(Operation::Receive, advice)));
        }
        let Some(record_type) = read.record_type.map(RecordType) else {
            if read.len > 0 {
                let advice = "data without a record type: pass the descriptor that was handed over";
                return Err(state.failed(Error::misuse(Operation::Receive, advice)));
            }
            state.phase = Phase::Ended { close_notify: false };
            return Ok(Incoming::End { close_notify: false });
        };
        let ended = how == Read::Take && (read.end_of_record || read.len == 0);
        let whole = record_type == RecordType::APPLICATION_DATA || ended;
        if how == Read::Take && record_type != RecordType::APPLICATION_DATA {
            let mut bytes = buffers.iter().flat_map(|buffer| buffer.iter().copied()).take(read.len);
            let start = [bytes.next(), bytes.next()];
            state.look_at(record_type, start, read.len, whole);
        }
        Ok(Incoming::Record { record_type, len: read.len, whole })
    }

    /// Moves up to `count` bytes of application data into a pipe, from one record at most (`splice(2)`).
    ///
    /// Errors are as for [`recv`](Self::recv); a full pipe also returns `WouldBlock`.
    pub fn splice(&mut self, pipe: impl AsFd, count: usize) -> Result<Spliced, Error> {
        let (fd, pipe, state) = (self.socket.as_fd(), pipe.as_fd(), self.state.borrow_mut());
        match state.phase {
            Phase::Open => {}
            Phase::Expired | Phase::Ended { .. } => return Ok(Spliced::Other),
            Phase::Broken(error) => return Err(error),
        }
        match retry_on_intr(|| rustix::pipe::splice(fd, None, pipe, None, count, SpliceFlags::empty())) {
            // EINVAL means a control record, 0 the end of the stream. `recv` reports either, or a worse failure.
            Ok(0) | Err(Errno::INVAL | Errno::KEYEXPIRED) => Ok(Spliced::Other),
            Ok(moved) => Ok(Spliced::Data(moved)),
            Err(errno) => Err(state.failed(Error::from_errno(Operation::Receive, errno))),
        }
    }

    /// Installs the peer's next key (TLS 1.3, RFC 8446 §4.6.3), after its KeyUpdate was read. Linux 6.14 or newer.
    ///
    /// `Unsupported`: this kernel cannot. Nothing more can be read, so close the connection.
    pub fn rekey(&mut self, next: &CryptoInfo) -> Result<(), Error> {
        let (fd, state) = (self.socket.as_fd(), self.state.borrow_mut());
        if state.phase != Phase::Expired {
            return Err(Error::misuse(Operation::RekeyRx, "no KeyUpdate was read: the present key still holds"));
        }
        if (next.version(), next.cipher()) != (state.version, state.cipher) {
            return Err(Error::misuse(
                Operation::RekeyRx,
                "the next key must be for the version and cipher of the present one",
            ));
        }
        sockopt::set_keys(fd, uapi::TLS_RX, next.as_bytes())
            .map_err(|errno| Error::from_errno(Operation::RekeyRx, errno))?;
        state.phase = Phase::Open;
        Ok(())
    }

    /// Continues under the present key, because a message only looked like KeyUpdate.
    ///
    /// The kernel checks only the first byte of a handshake record. It therefore mistakes a later part of a longer
    /// message for KeyUpdate if that part begins with 24, and waits for a key. This installs the present key again.
    ///
    /// `Unsupported`: kernels since 6.14 make the same mistake with TLS 1.2, which has no KeyUpdate, and cannot
    /// recover. Close the connection.
    pub fn false_alarm(&mut self) -> Result<(), Error> {
        let (fd, state) = (self.socket.as_fd(), self.state.borrow_mut());
        if state.phase != Phase::Expired {
            return Ok(());
        }
        let failed = |errno| Error::from_errno(Operation::RekeyRx, errno);
        let size = state.cipher.layout().size();
        let live = sockopt::keys(fd, uapi::TLS_RX, size).map_err(failed)?;
        match sockopt::set_keys(fd, uapi::TLS_RX, &live[..size]) {
            Ok(()) => {
                state.phase = Phase::Open;
                Ok(())
            }
            // A kernel that cannot renew keys does not wait for one either.
            Err(Errno::BUSY) if state.version == Version::Tls13 => {
                state.phase = Phase::Open;
                Ok(())
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Promises that the peer's records have no padding (`TLS_RX_EXPECT_NO_PAD`, TLS 1.3, Linux 6.0), so that the
    /// kernel opens them straight into the reader's memory. A padded record is opened twice, and counted in
    /// [`TlsStat::rx_no_pad_violation`](crate::stat::TlsStat::rx_no_pad_violation).
    ///
    /// **Only for a trusted peer**: a peer that pads every record doubles the cost of opening them (`tls.rst`).
    ///
    /// `Unsupported`: this kernel lacks the option, or has or may have a fault that lets a peer overwrite later buffers
    /// of the reader ([CVE-2026-74611](crate::faults)). Kernels from 6.18.45, 7.1.9 and 7.2 on have the fix.
    pub fn expect_no_pad(&mut self, on: bool) -> Result<(), Error> {
        let standing = Kernel::running().map_or(Standing::NotKnown, |kernel| EXPECT_NO_PAD.standing(kernel));
        self.set_no_pad(on, standing)
    }

    /// As [`expect_no_pad`](Self::expect_no_pad), but also on a kernel where **a peer can overwrite later buffers of
    /// the reader**. Such a kernel writes padded records, and records other than data, a second time after the bytes
    /// that the read reports. Read into one buffer per call, and use no other byte of it.
    pub fn expect_no_pad_despite_cve_2026_74611(&mut self, on: bool) -> Result<(), Error> {
        self.set_no_pad(on, Standing::Absent)
    }

    fn set_no_pad(&mut self, on: bool, fault: Standing) -> Result<(), Error> {
        if self.version() != Version::Tls13 {
            return Err(Error::misuse(Operation::ExpectNoPad, "only TLS 1.3 records have padding"));
        }
        if on && fault != Standing::Absent {
            let advice = "the peer could overwrite later buffers of the reader (CVE-2026-74611): go without the option, or use Linux 6.18.45, 7.1.9, 7.2 or newer";
            return Err(Error::unsupported(Operation::ExpectNoPad, advice));
        }
        sockopt::set_option(self.socket.as_fd(), uapi::TLS_RX_EXPECT_NO_PAD, &u32::from(on).to_ne_bytes())
            .map_err(|errno| Error::from_errno(Operation::ExpectNoPad, errno))
    }

    /// Whether [`expect_no_pad`](Self::expect_no_pad) is on.
    ///
    /// `Misuse`: the keys are for TLS 1.2, for which the kernel does not report the option. `Unsupported`: this kernel
    /// lacks the option.
    pub fn expects_no_pad(&self) -> Result<bool, Error> {
        sockopt::option(self.socket.as_fd(), uapi::TLS_RX_EXPECT_NO_PAD)
            .map(|value| u32::from_ne_bytes(value) != 0)
            .map_err(|errno| Error::from_errno(Operation::ReadOption, errno))
    }

    /// The number of the next record under the present key, as the kernel counts it. The kernel returns the key too,
    /// which is wiped at once.
    pub fn sequence(&self) -> Result<u64, Error> {
        live_sequence(self.socket.as_fd(), uapi::TLS_RX, self.cipher())
            .map_err(|errno| Error::from_errno(Operation::Sequence, errno))
    }
}

impl RxState {
    pub(crate) fn new(version: Version, cipher: Cipher) -> Self {
        Self { version, cipher, phase: Phase::Open, inside: false, key_update: false }
    }

    /// Updates the state for a control record of `len` bytes that begins with `start`.
    fn look_at(&mut self, record_type: RecordType, start: [Option<u8>; 2], len: usize, whole: bool) {
        // RFC 8446 §4: HandshakeType key_update(24). §6: AlertDescription close_notify(0), the second byte.
        let first_part = !self.inside;
        self.inside = !whole;
        if first_part {
            self.key_update =
                self.version == Version::Tls13 && record_type == RecordType::HANDSHAKE && start[0] == Some(24);
        }
        if whole && self.key_update {
            self.key_update = false;
            self.phase = Phase::Expired;
        }
        if record_type == RecordType::ALERT && len == 2 && start[1] == Some(0) {
            self.phase = Phase::Ended { close_notify: true };
        }
    }

    /// Keeps an error that the kernel reports only once. Afterwards the kernel acts as if nothing had arrived.
    fn failed(&mut self, error: Error) -> Error {
        if matches!(error.kind(), Kind::Peer | Kind::Misuse) {
            self.phase = Phase::Broken(error);
        }
        error
    }
}
