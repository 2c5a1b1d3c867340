//! The sending half of a connection, in the kernel.

use std::borrow::BorrowMut;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use rustix::pipe::SpliceFlags;

use crate::crypto_info::{live_sequence, suite_of};
use crate::ledger::Ledger;
use crate::stat::TlsStat;
use crate::sys::{msg, sockopt, uapi};
use crate::{Cipher, CryptoInfo, Error, MAX_PLAINTEXT, More, Operation, RecordType, Version, handover};

/// The sending half of a connection that is in the kernel, and the only way to send on it.
///
/// ```text
///            rekey: KeyUpdate sent        next key installed
///   Open ─────────────────────► Rekeying ───────────────────► Open
///    │ close_notify
///    ▼
///   Closed
/// ```
///
/// - In `Rekeying` only [`rekey`](Self::rekey) sends: the peer already expects records under the next key.
/// - In `Closed` nothing sends.
/// - It is neither `Clone` nor `Copy`, so that a connection has one sender and one ledger.
///
/// `S` is the socket, owned or borrowed: a `TcpStream`, a reference, an `Arc`. It may be blocking or not. A call that
/// returns [`Kind::WouldBlock`](crate::Kind::WouldBlock) took nothing and is repeated with the same arguments once the
/// socket is writable. Signals do not interrupt a call.
///
/// Dropping it wipes nothing: the keys live in the kernel as long as the socket.
///
/// # Without the socket
/// [`TxState`] is everything but the socket. Programs that keep their sockets elsewhere take it out with
/// [`into_parts`](Self::into_parts) and join the two for a call, also by reference, with
/// [`from_parts`](Self::from_parts). A state must be joined with its own socket: on another socket the data would leave
/// unsealed.
#[derive(Debug)]
pub struct Tx<S, T = TxState> {
    socket: S,
    state: T,
}

/// The sending half of a connection without its socket: see [`Tx`].
#[derive(Debug)]
pub struct TxState {
    version: Version,
    cipher: Cipher,
    ledger: Ledger,
    /// A record may be open. If this is true without need, a control record costs one more system call, and nothing
    /// else.
    open: bool,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Rekeying,
    Closed,
}

/// A [`TxState`] as numbers, for another process that gets the socket too.
///
/// They also account for bytes that the kernel has not passed to TCP yet, which [`Tx::adopt`] cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrozenTx {
    /// The protocol version of the keys.
    pub version: Version,
    /// The cipher of the keys.
    pub cipher: Cipher,
    /// Bytes that TCP had taken before the keys were installed.
    pub tcp_then: u64,
    /// The first sequence number of the present key.
    pub first: u64,
    /// Records sealed under earlier keys.
    pub sealed: u64,
    /// Plaintext bytes accepted, of every record type.
    pub accepted: u64,
    /// A record may be open.
    pub open: bool,
}

impl<S, T> Tx<S, T> {
    /// Joins a state and its socket. Any other socket is misuse: data would leave it unsealed.
    pub const fn from_parts(socket: S, state: T) -> Self {
        Self { socket, state }
    }

    /// The socket and the state, for [`from_parts`](Self::from_parts).
    pub fn into_parts(self) -> (S, T) {
        (self.socket, self.state)
    }

    /// The socket, for its options and for readiness. Bytes written to it directly are sealed and not counted.
    pub const fn socket(&self) -> &S {
        &self.socket
    }

    #[cfg(feature = "tokio")]
    pub(crate) const fn socket_mut(&mut self) -> &mut S {
        &mut self.socket
    }
}

impl<S: AsFd> Tx<S> {
    /// Takes over a socket whose sending half is already in the kernel: another process passed the descriptor, or
    /// another call of `setsockopt`, for instance by io_uring, installed the keys of [`CryptoInfo::as_bytes`].
    ///
    /// The kernel reports version, cipher and sequence number.
    ///
    /// # Conditions that the caller must meet
    /// No record is open, TCP has all data sent before, and close_notify was not sent: the kernel reports none of this.
    /// Bytes that the kernel still holds are missing from [`unsent`](Self::unsent), and are lost if the socket is
    /// closed early.
    ///
    /// `Misuse`: the socket has no sending keys. `Unsupported`: this crate does not know the version or cipher.
    pub fn adopt(socket: S) -> Result<Self, handover::Refused<S>> {
        let state = || {
            let fd = socket.as_fd();
            let (version, cipher) = suite_of(fd, uapi::TLS_TX)?;
            let sequence = live_sequence(fd, uapi::TLS_TX, cipher)
                .map_err(|errno| Error::from_errno(Operation::Sequence, errno))?;
            Ok(TxState::new(version, cipher, Ledger::begin(fd, version, cipher, sequence)?))
        };
        match state() {
            Ok(state) => Ok(Self { socket, state }),
            Err(error) => Err(handover::Refused { socket, error }),
        }
    }
}

impl<S: AsFd, T: BorrowMut<TxState>> Tx<S, T> {
    /// Splits into the socket and a sender that borrows both, so that a runtime's socket can run an operation of the
    /// sender.
    pub fn split(&mut self) -> (&S, Tx<BorrowedFd<'_>, &mut TxState>) {
        (&self.socket, Tx { socket: self.socket.as_fd(), state: self.state.borrow_mut() })
    }

    /// The protocol version of the keys.
    pub fn version(&self) -> Version {
        self.state.borrow().version
    }

    /// The cipher of the keys.
    pub fn cipher(&self) -> Cipher {
        self.state.borrow().cipher
    }

    /// Sends application data in records of up to [`MAX_PLAINTEXT`] bytes, as `send(2)` does.
    ///
    /// Returns how many bytes the kernel took, from the front of `data`; on a non-blocking socket it may be fewer than
    /// all. These bytes are sealed, or kept in the open record, but TCP may not have them yet: see
    /// [`unsent`](Self::unsent).
    ///
    /// Empty `data` does nothing, and does not seal an open record: see [`flush`](Self::flush).
    pub fn send(&mut self, data: &[u8], more: More) -> Result<usize, Error> {
        let (fd, state) = self.ready(Operation::Send)?;
        let sent = retry_on_intr(|| rustix::net::send(fd, data, flags(more)));
        state.taken(sent, more)
    }

    /// Sends application data from several slices by one `sendmsg(2)`; otherwise as [`send`](Self::send).
    pub fn send_vectored(&mut self, data: &[IoSlice<'_>], more: More) -> Result<usize, Error> {
        let (fd, state) = self.ready(Operation::Send)?;
        let sent = retry_on_intr(|| rustix::net::sendmsg(fd, data, &mut SendAncillaryBuffer::default(), flags(more)));
        state.taken(sent, more)
    }

    /// Sends up to `count` bytes of `file` from `offset`, by `sendfile(2)`, and advances `offset` by the bytes taken.
    ///
    /// An open record is filled first, so a response head sent with [`More::Yes`] leaves in the same records as the
    /// file. Returns fewer than `count` bytes at the end of the file, or when a non-blocking socket is full, or when
    /// the kernel stopped for a signal: call again.
    ///
    /// **0 is the end of the file.** If more bytes were announced, the file shrank: end the connection without
    /// close_notify, so that the peer notices. Otherwise call [`flush`](Self::flush): without bytes from the file the
    /// kernel keeps the record open, and the head would never leave.
    ///
    /// After a short return the last record may be open too. Continue with `send_file`, or flush.
    ///
    /// `sendfile` has no `MSG_NOSIGNAL`: on a closed connection the process gets SIGPIPE unless that is ignored, as
    /// Rust programs do from the start.
    ///
    /// A file that changes while it is sent gives torn content in valid records, as with any server.
    pub fn send_file(&mut self, file: impl AsFd, offset: &mut u64, count: usize) -> Result<usize, Error> {
        let (fd, state) = self.ready(Operation::SendFile)?;
        let file = file.as_fd();
        let sent = retry_on_intr(|| rustix::fs::sendfile(fd, file, Some(offset), count))
            .map_err(|errno| Error::from_errno(Operation::SendFile, errno))?;
        state.ledger.accept(sent);
        if sent > 0 {
            state.open = sent < count;
        }
        Ok(sent)
    }

    /// Sends up to `count` bytes from a pipe, by `splice(2)`; otherwise as [`send`](Self::send). 0: the pipe's writers are gone.
    pub fn send_pipe(&mut self, pipe: impl AsFd, count: usize, more: More) -> Result<usize, Error> {
        let (fd, state) = self.ready(Operation::Splice)?;
        let pipe = pipe.as_fd();
        let flags = match more {
            More::No => SpliceFlags::empty(),
            More::Yes => SpliceFlags::MORE,
        };
        let sent = retry_on_intr(|| rustix::pipe::splice(pipe, None, fd, None, count, flags))
            .map_err(|errno| Error::from_errno(Operation::Splice, errno))?;
        state.ledger.accept(sent);
        // If a pipe holds less than `count`, some kernels leave the record open even without `More`.
        if sent > 0 {
            state.open = more == More::Yes || sent < count;
        }
        Ok(sent)
    }

    /// Seals an open record and passes it to TCP. Without an open record it does nothing.
    ///
    /// An empty `send(2)` seals nothing, but an empty `sendmsg(2)` with the record type application_data does.
    ///
    /// `WouldBlock`: either the record is sealed and the kernel will push it when TCP has room, or the call had no
    /// effect. Repeating the call is harmless in both cases.
    pub fn flush(&mut self) -> Result<(), Error> {
        let (fd, state) = self.ready(Operation::Flush)?;
        state.seal_open(fd)
    }

    /// Sends `data` as one record of its own type, after sealing an open record.
    ///
    /// `data` is 1 to [`MAX_PLAINTEXT`] bytes: an empty control record is forbidden (RFC 8446 §5.1), and the kernel would
    /// not send it.
    ///
    /// For close_notify and KeyUpdate use [`close_notify`](Self::close_notify) and [`rekey`](Self::rekey), which change the
    /// state too.
    pub fn send_record(&mut self, record_type: RecordType, data: &[u8]) -> Result<(), Error> {
        let (fd, state) = self.ready(Operation::SendRecord)?;
        state.record(fd, Operation::SendRecord, record_type, data)
    }

    /// Sends the alert close_notify (RFC 8446 §6.1), after sealing an open record, and sends nothing after that.
    ///
    /// A second call does nothing. The kernel may have accepted an alert that TCP does not have yet: shut the socket
    /// down for writing when [`unsent`](Self::unsent) is 0.
    pub fn close_notify(&mut self) -> Result<(), Error> {
        // AlertLevel warning(1), AlertDescription close_notify(0).
        const CLOSE_NOTIFY: [u8; 2] = [1, 0];
        if self.state.borrow().phase == Phase::Closed {
            return Ok(());
        }
        let (fd, state) = self.ready(Operation::SendRecord)?;
        state.record(fd, Operation::SendRecord, RecordType::ALERT, &CLOSE_NOTIFY)?;
        state.phase = Phase::Closed;
        Ok(())
    }

    /// Renews the sending key (TLS 1.3, RFC 8446 §4.6.3): seals an open record, sends `key_update` under the old key, then
    /// installs `next`. Linux 6.14 or newer.
    ///
    /// `key_update` is the whole handshake message, 5 bytes; `next` has the version and cipher of the present keys, and usually
    /// the sequence number 0.
    ///
    /// The kernel enforces neither the order nor both steps. This function does:
    /// - If the kernel cannot renew keys, this fails before anything is sent: [`Operation::KeyUpdate`] with
    ///   `Unsupported`. The connection continues under the old key.
    /// - `WouldBlock` with [`Operation::KeyUpdate`]: KeyUpdate was not sent. Call again; application data may be sent
    ///   first.
    /// - Any error with [`Operation::Rekey`]: KeyUpdate **was** sent, and the peer expects the next key. Now only
    ///   `rekey` is allowed. A second call with the same `next` only installs the key, which can help after a lack of
    ///   memory. Otherwise close the connection.
    pub fn rekey(&mut self, key_update: &[u8], next: &CryptoInfo) -> Result<(), Error> {
        let (fd, state) = (self.socket.as_fd(), self.state.borrow_mut());
        state.check_next(key_update, next)?;
        if state.phase != Phase::Rekeying {
            state.ready(Operation::KeyUpdate)?;
            ask_for_rekey(fd, state.cipher)?;
            state.record(fd, Operation::KeyUpdate, RecordType::HANDSHAKE, key_update)?;
            state.phase = Phase::Rekeying;
        }
        let failed = |errno| Error::from_errno(Operation::Rekey, errno);
        let last = live_sequence(fd, uapi::TLS_TX, state.cipher).map_err(failed)?;
        sockopt::set_keys(fd, uapi::TLS_TX, next.as_bytes()).map_err(failed)?;
        state.ledger.rekey(last, next.sequence());
        state.phase = Phase::Open;
        Ok(())
    }

    /// Whether this socket's key can be renewed. Sends nothing.
    ///
    /// It installs the present key at its present sequence number again, which has no effect. A kernel that renews keys
    /// in software still refuses to renew keys that a network card holds.
    ///
    /// `Unsupported` ([`Operation::KeyUpdate`]): this kernel cannot, or a network card seals this connection.
    pub fn can_rekey(&self) -> Result<(), Error> {
        if self.version() != Version::Tls13 {
            return Err(Error::misuse(Operation::KeyUpdate, "TLS 1.2 has no KeyUpdate"));
        }
        install_again(self.socket.as_fd(), self.cipher())
    }

    /// The number of the next record under the present key, as the kernel counts it.
    ///
    /// The kernel does not limit the records under one key; the caller observes the AEAD's limit (RFC 8446 §5.5). The
    /// kernel returns the key too, which is wiped at once.
    pub fn sequence(&self) -> Result<u64, Error> {
        live_sequence(self.socket.as_fd(), uapi::TLS_TX, self.cipher())
            .map_err(|errno| Error::from_errno(Operation::Sequence, errno))
    }

    /// Records that may still be sealed under the present key: [`Cipher::record_limit`] minus the records sealed.
    ///
    /// For TLS 1.3, where each key begins at record 0. When it returns 0, renew the key or close the connection.
    pub fn records_left(&self) -> Result<u64, Error> {
        Ok(self.cipher().record_limit().saturating_sub(self.sequence()?))
    }

    /// Limits the content of each record (`TLS_TX_MAX_PAYLOAD_LEN`, Linux 6.19) to `limit` bytes, 64 to
    /// [`MAX_PLAINTEXT`], or from 63 with TLS 1.3. The peer can then open the first bytes of a response before 16 KiB
    /// have arrived. For a peer's extension see [`record_size_limit`](Self::record_size_limit).
    ///
    /// `Misuse` with `EBUSY`: a record is open. `Unsupported`: this kernel lacks it.
    pub fn max_payload(&mut self, limit: u16) -> Result<(), Error> {
        let least = RECORD_SIZE_LIMIT_MIN - self.content_type_bytes();
        if !(least..=MAX_PLAINTEXT as u16).contains(&limit) {
            let advice = match self.version() {
                Version::Tls12 => "the limit is 64 to 16384 bytes",
                Version::Tls13 => "the limit is 63 to 16384 bytes",
            };
            return Err(Error::misuse(Operation::MaxPayload, advice));
        }
        sockopt::set_option(self.socket.as_fd(), uapi::TLS_TX_MAX_PAYLOAD_LEN, &limit.to_ne_bytes())
            .map_err(|errno| Error::from_errno(Operation::MaxPayload, errno))
    }

    /// Applies the value of the peer's record_size_limit extension (RFC 8449 §4). In TLS 1.3 it includes the content
    /// type, so one byte less of content fits. A limit above the protocol's maximum counts as that maximum.
    ///
    /// `Misuse` without an errno: below 64, for which the RFC demands the alert illegal_parameter. Other errors as for
    /// [`max_payload`](Self::max_payload).
    pub fn record_size_limit(&mut self, limit: u16) -> Result<(), Error> {
        if limit < RECORD_SIZE_LIMIT_MIN {
            let advice = "a record_size_limit below 64 is forbidden: send the alert illegal_parameter and close";
            return Err(Error::misuse(Operation::MaxPayload, advice));
        }
        self.max_payload((limit - self.content_type_bytes()).min(MAX_PLAINTEXT as u16))
    }

    /// The limit that [`max_payload`](Self::max_payload) or [`record_size_limit`](Self::record_size_limit) set, in
    /// bytes of content; [`MAX_PLAINTEXT`] if none is set.
    ///
    /// `Unsupported`: this kernel lacks the option.
    pub fn max_payload_now(&self) -> Result<u16, Error> {
        sockopt::option(self.socket.as_fd(), uapi::TLS_TX_MAX_PAYLOAD_LEN)
            .map(u16::from_ne_bytes)
            .map_err(|errno| Error::from_errno(Operation::ReadOption, errno))
    }

    /// Lets a network card that seals read file pages directly instead of a copy (`TLS_TX_ZEROCOPY_RO`, Linux 5.19).
    ///
    /// It has no effect if the kernel seals in software. While it is on, the file **must not change** until the data is
    /// acknowledged: a retransmission would be sealed from different bytes, and would fail authentication at the peer.
    pub fn zerocopy_read_only(&mut self, on: bool) -> Result<(), Error> {
        sockopt::set_option(self.socket.as_fd(), uapi::TLS_TX_ZEROCOPY_RO, &u32::from(on).to_ne_bytes())
            .map_err(|errno| Error::from_errno(Operation::ZerocopyReadOnly, errno))
    }

    /// Whether [`zerocopy_read_only`](Self::zerocopy_read_only) is on. It has effect only where a network card seals.
    ///
    /// `Unsupported`: this kernel lacks the option.
    pub fn is_zerocopy_read_only(&self) -> Result<bool, Error> {
        sockopt::option(self.socket.as_fd(), uapi::TLS_TX_ZEROCOPY_RO)
            .map(|value| u32::from_ne_bytes(value) != 0)
            .map_err(|errno| Error::from_errno(Operation::ReadOption, errno))
    }

    /// Bytes that the kernel has accepted and TCP does not have yet.
    ///
    /// These are the rest of a sealed record, with its overhead, or the plaintext of an open record. `close(2)` and
    /// `shutdown(2)` may lose them. At 0, TCP owns every byte and delivers it after `shutdown(SHUT_WR)` as it would
    /// without TLS (a `close(2)` with unread received data still resets the connection, as always).
    ///
    /// The kernel pushes the rest by itself when acknowledgements make room. A writable socket does not prove that it
    /// has: a worker does it a moment later. Wait for writability, then ask again, with a short timer as a fallback.
    ///
    /// [`Kind::Peer`](crate::Kind::Peer): the connection was reset or timed out, and the unsent bytes are lost.
    ///
    /// It takes three or more system calls, so use it at the end of a connection, not for each send. It is meaningless
    /// after `shutdown(SHUT_WR)`.
    pub fn unsent(&self) -> Result<u64, Error> {
        // Read the expected total first. Between the two reads the kernel may push bytes to TCP, never take them back,
        // so the difference can only be too low, and the lower value is true by then.
        let sequence = self.sequence()?;
        self.state.borrow().ledger.unsent(self.socket.as_fd(), sequence)
    }

    /// Bytes of a TLS 1.3 record's plaintext that are not content: the content type (RFC 8446 §5.2).
    fn content_type_bytes(&self) -> u16 {
        u16::from(self.version() == Version::Tls13)
    }

    /// The socket and the state, if `operation` may send now.
    fn ready(&mut self, operation: Operation) -> Result<(BorrowedFd<'_>, &mut TxState), Error> {
        let state = self.state.borrow_mut();
        state.ready(operation)?;
        Ok((self.socket.as_fd(), state))
    }
}

impl TxState {
    pub(crate) fn new(version: Version, cipher: Cipher, ledger: Ledger) -> Self {
        Self { version, cipher, ledger, open: false, phase: Phase::Open }
    }

    /// The state as numbers. From now on only the process that thaws them may send on the socket.
    ///
    /// # Errors
    /// The state itself: close_notify was sent, or a KeyUpdate whose next key is missing.
    pub fn freeze(self) -> Result<FrozenTx, Self> {
        let Self { version, cipher, ledger, open, phase: Phase::Open } = self else { return Err(self) };
        let Ledger { overhead: _, tcp_then, first, sealed, accepted } = ledger;
        Ok(FrozenTx { version, cipher, tcp_then, first, sealed, accepted, open })
    }

    /// The state that was frozen, for the same socket.
    pub fn thaw(frozen: FrozenTx) -> Self {
        let FrozenTx { version, cipher, tcp_then, first, sealed, accepted, open } = frozen;
        let ledger = Ledger { overhead: cipher.overhead(version), tcp_then, first, sealed, accepted };
        Self { version, cipher, ledger, open, phase: Phase::Open }
    }

    fn ready(&self, operation: Operation) -> Result<(), Error> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Rekeying => {
                Err(Error::misuse(operation, "KeyUpdate was sent and the next key is missing: finish the rekey first"))
            }
            Phase::Closed => Err(Error::misuse(operation, "close_notify was sent: nothing may follow it")),
        }
    }

    fn taken(&mut self, sent: Result<usize, Errno>, more: More) -> Result<usize, Error> {
        let sent = sent.map_err(|errno| Error::from_errno(Operation::Send, errno))?;
        self.ledger.accept(sent);
        if sent > 0 {
            self.open = more == More::Yes;
        }
        Ok(sent)
    }

    fn seal_open(&mut self, fd: BorrowedFd<'_>) -> Result<(), Error> {
        if self.open {
            msg::send_record(fd, RecordType::APPLICATION_DATA.0, &[])
                .map_err(|errno| Error::from_errno(Operation::Flush, errno))?;
            self.open = false;
        }
        Ok(())
    }

    /// Seals the open record by a separate call. Kernels before 6.1.158 and 6.12.57 send the control record as data if
    /// that sealing has to wait.
    fn record(
        &mut self,
        fd: BorrowedFd<'_>,
        operation: Operation,
        record_type: RecordType,
        data: &[u8],
    ) -> Result<(), Error> {
        if data.is_empty() || data.len() > MAX_PLAINTEXT {
            return Err(Error::misuse(operation, "a control record holds 1 to 16384 bytes"));
        }
        self.seal_open(fd).map_err(|error| Error::from_errno(operation, error.cause()))?;
        let sent = msg::send_record(fd, record_type.0, data).map_err(|errno| Error::from_errno(operation, errno))?;
        self.ledger.accept(sent);
        if sent < data.len() {
            return Err(Error::new(
                operation,
                crate::Kind::Io,
                Errno::NOBUFS,
                "the kernel cut a control record in two: drop the connection",
            ));
        }
        Ok(())
    }

    fn check_next(&self, key_update: &[u8], next: &CryptoInfo) -> Result<(), Error> {
        let wrong = |advice| Err(Error::misuse(Operation::KeyUpdate, advice));
        if self.version != Version::Tls13 {
            return wrong("TLS 1.2 has no KeyUpdate: close the connection before the key wears out");
        }
        if (next.version(), next.cipher()) != (self.version, self.cipher) {
            return wrong("the next key must be for the version and cipher of the present one");
        }
        // RFC 8446 §4: msg_type key_update(24), length 1 in three bytes, KeyUpdateRequest 0 or 1.
        if !matches!(key_update, [24, 0, 0, 1, 0 | 1]) {
            return wrong("pass the KeyUpdate message: 24, 0, 0, 1, and 0 or 1");
        }
        Ok(())
    }
}

/// The minimum record_size_limit (RFC 8449 §4).
const RECORD_SIZE_LIMIT_MIN: u16 = 64;

/// Asks whether this socket's key can be renewed, with the least effect on the kernel's statistics.
///
/// Kernels that can rekey have a counter of rekeys, so the counter's presence means yes. This holds for every socket
/// unless a network card has sealed in this network namespace: then it tries on the socket itself. If the counters
/// cannot be read, it offers the kernel a structure that is never valid.
fn ask_for_rekey(fd: BorrowedFd<'_>, cipher: Cipher) -> Result<(), Error> {
    match TlsStat::read() {
        Ok(stat) if stat.tx_device().is_some_and(|sockets| sockets > 0) => install_again(fd, cipher),
        Ok(stat) if stat.tx_rekey_ok().is_some() => Ok(()),
        _ => offer_nonsense(fd, cipher),
    }
}

/// Installs the present key again at its current sequence number. The kernel then continues with the same record. A
/// network card that holds the key is not given another, which it would reject with EOPNOTSUPP.
fn install_again(fd: BorrowedFd<'_>, cipher: Cipher) -> Result<(), Error> {
    let failed = |errno| Error::from_errno(Operation::KeyUpdate, errno);
    let size = cipher.layout().size();
    let live = sockopt::keys(fd, uapi::TLS_TX, size).map_err(failed)?;
    sockopt::set_keys(fd, uapi::TLS_TX, &live[..size]).map_err(failed)
}

/// Offers a structure that is never valid (version 0).
///
/// A kernel that renews keys checks the version and returns EINVAL. Other kernels return EBUSY without checking. Only
/// the kernel's count of failed rekeys changes, so a yes is remembered.
fn offer_nonsense(fd: BorrowedFd<'_>, cipher: Cipher) -> Result<(), Error> {
    static YES: AtomicBool = AtomicBool::new(false);
    if YES.load(Ordering::Relaxed) {
        return Ok(());
    }
    let nonsense = [0; uapi::MAX_LEN];
    match sockopt::set_keys(fd, uapi::TLS_TX, &nonsense[..cipher.layout().size()]) {
        Err(Errno::INVAL) => {
            YES.store(true, Ordering::Relaxed);
            Ok(())
        }
        Err(errno) => Err(Error::from_errno(Operation::KeyUpdate, errno)),
        Ok(()) => Err(Error::misuse(Operation::KeyUpdate, "the socket has no sending keys: hand over first")),
    }
}

fn flags(more: More) -> SendFlags {
    match more {
        More::No => SendFlags::NOSIGNAL,
        More::Yes => SendFlags::NOSIGNAL | SendFlags::MORE,
    }
}
