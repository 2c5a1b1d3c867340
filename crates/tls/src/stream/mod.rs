//! An established connection.

mod close;
mod counts;
mod from_pipe;
mod frozen;
mod io_traits;
mod key_update;
pub(crate) mod move_to_kernel;
mod patience;
mod plain;
mod receive;
pub(crate) mod send;
pub(crate) mod source;

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sealion_ktls::tokio::Sender as KernelTx;
use sealion_ktls::{CryptoInfo, Kind, Tx, Version};
use tokio::io::{AsyncRead, Interest, ReadBuf};

use crate::buffers::{FULL_RECORD, RECORDS_PER_SEND, RECORDS_UNASKED, SendBuffer};
use crate::error::{Error, HandshakeError};
use crate::handshake::config::{Limits, ServerConfig};
use crate::handshake::key_schedule::KeySchedule;
use crate::handshake::{self, HandshakeInfo};
use crate::record::{Aead, ContentType, MAX_PLAINTEXT, Opener, Sealer};
use crate::socket::Socket;
use close::Delivery;
pub use counts::{Counts, Progress};
pub use frozen::{Frozen, FrozenBytes, Malformed, NotFrozen};
use patience::Patience;
use receive::Receiver;

/// Where sent data is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedBy {
    /// The connection has no TLS.
    Nobody,
    /// This process, with aws-lc-rs.
    User,
    /// The kernel, by `TLS_TX`.
    Kernel,
}

impl SealedBy {
    /// `plain`, `user` or `kernel`, as in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nobody => "plain",
            Self::User => "user",
            Self::Kernel => "kernel",
        }
    }
}

/// A TLS connection of a server. [`TlsStream::plain`] makes a connection without TLS that is used in the same way.
///
/// ```text
///             ┌──────────────finish─────────────┐
///             ▼                                 │
///            Open ──begin──► Responding ◄──all with TCP──┐
///             │                │     └─────send──────► Midway
///             │                │                         │ error: Unfinished
///   shutdown: close_notify     └─────────┬───────────────┘
///             │                     abort: alert
///             └───────► Notified ◄───────┘
///                          └──FIN──► Closed
/// ```
///
/// `close_notify` tells the peer that nothing is missing, so it is sent only in `Open`. A response whose caller is
/// dropped between [`begin`](Self::begin) and [`finish`](Self::finish) stays `Responding`, a dropped send stays
/// `Midway`. Neither can return to `Open`, but a response between two sends may continue. [`respond`](Self::respond) is
/// the shortcut for a complete response.
///
/// Without TLS there is no `close_notify`: FIN means the same, and a connection with an unfinished response is reset.
pub struct TlsStream {
    limits: Arc<Limits>,
    /// `None`: the connection has no TLS.
    session: Option<Session>,
    sender: Sender,
    receiver: Receiver,
    outgoing: Option<Outgoing>,
    /// A lower bound of the bytes that TCP takes at once, known without asking it.
    room: usize,
    sending: Sending,
    /// Responses are in progress although none is being sent.
    responding: bool,
    patience: Patience,
    /// Bytes that the socket took from this process: records sealed in user space, or everything without TLS.
    written: u64,
    delivery: Option<Box<Delivery>>,
    payload_sent: u64,
    /// [`Self::payload_sent`] when the present response began.
    response_from: u64,
    /// TCP's congestion window may be as small as at the start.
    small_window: bool,
    progress: Option<&'static Progress>,
    counts: Counts,
}

/// The TLS part of a connection.
struct Session {
    info: HandshakeInfo,
    aead: Aead,
    schedule: KeySchedule,
    records_per_key: u64,
    opener: Opener,
    /// The peer requested new keys and has not received them yet (RFC 8446 §4.6.3).
    key_update_due: bool,
}

/// The sending side and the socket. Nothing else writes to the socket, but receiving shares it.
enum Sender {
    /// Nothing is sealed.
    Plain(Socket),
    User {
        io: Socket,
        sealer: Sealer,
    },
    Kernel(KernelSender),
    /// While [`TlsStream::hand_over`] asks the kernel.
    Moving,
}

struct KernelSender {
    tx: Tx<Socket>,
    /// An upper bound of the records that the kernel has sealed under the present key.
    records: u64,
    /// The next key, derived but not yet announced to the peer.
    next_key: Option<CryptoInfo>,
}

/// Sealed bytes that TCP has not taken yet.
struct Outgoing {
    buffer: SendBuffer,
    unsent: Range<usize>,
    /// Session tickets, which leave with the first response, or before this side waits for the client.
    held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// Between responses.
    Open,
    /// In a response, between two sends.
    Responding,
    /// In a send, which may have been dropped.
    Midway,
    /// A send or a move failed.
    Unfinished,
    /// The last record, an alert, is sealed.
    Notified,
    Closed,
}

impl TlsStream {
    /// Performs the handshake on an accepted connection. The caller sets a deadline.
    ///
    /// # Errors
    /// [`HandshakeError`]; the alert has been sent if the socket took it.
    pub async fn accept(io: impl Into<Socket>, config: &Arc<ServerConfig>) -> Result<Self, HandshakeError> {
        Self::accept_from(io, config, None).await
    }

    /// As [`accept`](Self::accept), with the address of the client for a
    /// [`CertificateSource`](crate::CertificateSource). `None`: the address is unknown, or many clients share it, as
    /// behind a proxy.
    ///
    /// # Errors
    /// As of [`accept`](Self::accept).
    pub async fn accept_from(
        io: impl Into<Socket>,
        config: &Arc<ServerConfig>,
        client: Option<IpAddr>,
    ) -> Result<Self, HandshakeError> {
        let mut io = io.into();
        let done = handshake::accept(&mut io, config, client).await?;
        let (keys, tx_sequence) = done.tx;
        let session = Session {
            aead: keys.aead(),
            opener: done.opener,
            schedule: done.schedule,
            records_per_key: done.records_per_key,
            info: done.info,
            key_update_due: false,
        };
        let sender = Sender::User { io, sealer: Sealer::new(keys, tx_sequence, done.records_per_key) };
        let mut stream = Self::new(config.limits.clone(), Some(session), sender, Receiver::new(done.incoming));
        stream.outgoing = Outgoing::of(&done.held, true);
        Ok(stream)
    }

    /// A connection without TLS: data passes unchanged in both directions. The key limits in `limits` do not apply.
    pub fn plain(io: impl Into<Socket>, limits: &Arc<Limits>) -> Self {
        Self::new(limits.clone(), None, Sender::Plain(io.into()), Receiver::new(Vec::new()))
    }

    fn new(limits: Arc<Limits>, session: Option<Session>, sender: Sender, receiver: Receiver) -> Self {
        Self {
            limits,
            session,
            sender,
            receiver,
            outgoing: None,
            room: 0,
            sending: Sending::Open,
            responding: false,
            patience: Patience::default(),
            written: 0,
            delivery: None,
            payload_sent: 0,
            response_from: 0,
            small_window: true,
            progress: None,
            counts: Counts::default(),
        }
    }

    /// The result of the handshake; `None` without TLS.
    pub fn info(&self) -> Option<&HandshakeInfo> {
        self.session.as_ref().map(|session| &session.info)
    }

    /// The AEAD of both directions; `None` without TLS.
    pub fn aead(&self) -> Option<Aead> {
        self.session.as_ref().map(|session| session.aead)
    }

    /// Where sent data is sealed now.
    pub fn path(&self) -> SealedBy {
        match self.sender {
            Sender::Plain(_) => SealedBy::Nobody,
            Sender::User { .. } | Sender::Moving => SealedBy::User,
            Sender::Kernel(_) => SealedBy::Kernel,
        }
    }

    /// Response bytes that [`Self::send`] and [`Self::respond`] have passed to TCP or the kernel.
    pub fn payload_sent(&self) -> u64 {
        self.payload_sent
    }

    /// Tells the stream that the connection was idle: TCP's congestion window may be the initial one again
    /// (tcp_slow_start_after_idle), as for the first response. The next response then begins with a short record, even
    /// if that costs a record or a system call.
    pub fn expect_small_window(&mut self) {
        self.small_window = true;
    }

    /// Frees what the next record can make again: 1,200 bytes with both directions in user space. For a connection that
    /// has been idle for a while.
    pub fn rest(&mut self) {
        if let Some(session) = &mut self.session {
            session.opener.rest();
        }
        if let Sender::User { sealer, .. } = &mut self.sender {
            sealer.rest();
        }
    }

    /// Also adds all bytes sent from now on to these counters. They belong to the thread on which this stream stays.
    pub fn report_progress(&mut self, progress: &'static Progress) {
        self.progress = Some(progress);
    }

    /// The counters of this connection.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn progressed(&mut self, bytes: u64) {
        self.payload_sent += bytes;
        if let Some(progress) = self.progress {
            progress.add(self.path(), bytes);
        }
    }

    /// The socket, for its options and addresses. Writing to it directly breaks the connection.
    pub fn socket(&self) -> &Socket {
        self.sender.socket()
    }

    /// Sets whether responses are in progress between two sends, as in a protocol with streams. While they are, a key
    /// update that is owed but impossible does not end reading ([`Self::read_more`]).
    pub fn set_responding(&mut self, responding: bool) {
        self.responding = responding;
    }

    /// Whether the next response should be the last on this connection: the key is almost used up and cannot be
    /// updated, or the peer requested an update that this kernel cannot make.
    pub fn should_close(&self) -> bool {
        let Some(session) = self.session.as_ref().filter(|_| !self.can_update_keys()) else { return false };
        let limit = session.records_per_key;
        let nearly = limit - limit / 16;
        let used = match &self.sender {
            Sender::Plain(_) => 0,
            Sender::User { sealer, .. } => sealer.sequence(),
            // The count is an upper bound; the kernel has the exact number.
            Sender::Kernel(kernel) if kernel.records > nearly => kernel.tx.sequence().unwrap_or(u64::MAX),
            Sender::Kernel(kernel) => kernel.records,
            Sender::Moving => unreachable!("{MOVING}"),
        };
        session.key_update_due || used > nearly
    }

    /// Whether the sending key of this connection can be changed now.
    fn can_update_keys(&self) -> bool {
        match self.sender {
            Sender::Plain(_) => false,
            Sender::User { .. } | Sender::Moving => self.is_tls13(),
            Sender::Kernel(_) => self.can_update_keys_in_kernel(),
        }
    }

    fn can_update_keys_in_kernel(&self) -> bool {
        self.is_tls13() && self.limits.kernel_rekeys
    }

    fn is_tls13(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.info.version == Version::Tls13)
    }

    fn is_key_update_due(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.key_update_due)
    }

    /// The number of records to seal for a send of `bytes`: few, or as many as TCP reports room for. So little is left
    /// over if the peer has stopped reading.
    ///
    /// TCP's reported room is used up before it is asked again. So small responses seldom ask, and large ones at most
    /// once per batch. Only half of the room counts: TCP's buffer also holds the kernel's overhead, at worst as many
    /// bytes again.
    ///
    /// The number is also small if TCP's window may be small: the client waits for the first packet while a batch is
    /// sealed.
    fn batch(&mut self, bytes: u64) -> usize {
        if self.small_window && self.payload_sent == self.response_from {
            return RECORDS_UNASKED;
        }
        if bytes > (RECORDS_UNASKED * MAX_PLAINTEXT) as u64
            && (self.room as u64) < bytes.min((RECORDS_PER_SEND * FULL_RECORD) as u64)
        {
            self.room = self.socket().room() / 2;
        }
        (self.room / FULL_RECORD).clamp(RECORDS_UNASKED, RECORDS_PER_SEND)
    }

    /// The number of bytes held back that can leave with a response of `payload` bytes. `None`: no bytes are held back,
    /// or they do not fit this response.
    fn held_for(&self, payload: u64) -> Option<usize> {
        let held = self.outgoing.as_ref().filter(|out| out.held)?;
        let short = payload <= MAX_PLAINTEXT as u64 && held.unsent.len() <= FULL_RECORD;
        short.then_some(held.unsent.len())
    }

    /// Before a wait for the client: passes to TCP what no send will, bytes held back and the end of a response that was
    /// paused. A failure is ignored, because the next operation fails too.
    fn release(&mut self, cx: &mut Context<'_>) {
        if self.sending != Sending::Midway {
            let _ = self.poll_drain(cx);
        }
    }

    /// Passes all sealed bytes to TCP.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while let Some(out) = &mut self.outgoing {
            match self.sender.socket().try_write(&out.buffer[out.unsent.clone()]) {
                Ok(sent) => {
                    self.patience.rewarded();
                    self.written += sent as u64;
                    self.room = self.room.saturating_sub(sent);
                    out.unsent.start += sent;
                    if out.unsent.is_empty() {
                        self.outgoing = None;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.room = 0;
                    out.buffer.keep_only(&mut out.unsent);
                    ready!(self.poll_writable(cx))?;
                }
                Err(e) => return Poll::Ready(Err(Error::Io(e))),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until TCP takes more, or the peer times out.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Poll::Ready(ready) = self.socket().poll_write_ready(cx) {
            self.patience.rewarded();
            return Poll::Ready(ready.map_err(Error::Io));
        }
        self.poll_given_up(cx).map(Err)
    }

    /// Waits until the peer times out.
    ///
    /// A socket becomes writable when a third of its buffer is free. Until then only acknowledgements distinguish a
    /// slow peer from a stalled one.
    fn poll_given_up(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let (socket, written) = (self.sender.socket(), self.written);
        let given_up = ready!(self.patience.poll(cx, &self.limits, || socket.taken(written)));
        // The kernel would keep what the peer has not taken, some megabytes, while the peer's window stays closed.
        self.reset_on_close();
        Poll::Ready(given_up)
    }

    /// Repeats an operation of the kernel's record layer until the socket takes it.
    fn poll_kernel<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&mut KernelTx<'_>) -> Result<T, sealion_ktls::Error>,
    ) -> Poll<Result<T, Error>> {
        loop {
            let Sender::Kernel(kernel) = &mut self.sender else {
                unreachable!("only called on the kernel path");
            };
            let (io, mut tx) = kernel.tx.split();
            let mut failure = None;
            let tried = io.try_io(Interest::WRITABLE, || {
                operation(&mut tx).map_err(|e| {
                    failure = Some(e).filter(|e| e.kind() != Kind::WouldBlock);
                    // The real error is returned separately; this one only tells the runtime about readiness.
                    io::Error::from(if failure.is_some() { io::ErrorKind::Other } else { io::ErrorKind::WouldBlock })
                })
            });
            match (tried, failure) {
                (Ok(done), _) => {
                    self.patience.rewarded();
                    return Poll::Ready(Ok(done));
                }
                (Err(_), None) => ready!(self.poll_writable(cx))?,
                (Err(_), Some(e)) if e.kind() == Kind::Peer => {
                    return Poll::Ready(Err(Error::Io(e.into())));
                }
                (Err(_), Some(e)) => return Poll::Ready(Err(Error::Kernel(e))),
            }
        }
    }
}

impl Sender {
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(io) | Self::User { io, .. } => io,
            Self::Kernel(kernel) => kernel.tx.socket(),
            Self::Moving => unreachable!("{MOVING}"),
        }
    }

    /// Receives from the socket, on any path.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(io) | Self::User { io, .. } => Pin::new(io).poll_read(cx, into),
            Self::Kernel(kernel) => Pin::new(&mut kernel.tx).poll_read(cx, into),
            Self::Moving => unreachable!("{MOVING}"),
        }
    }
}

const MOVING: &str = "handing over does not wait, so nothing comes between";

impl Outgoing {
    fn control(sealer: &mut Sealer, content_type: ContentType, payload: &[u8]) -> Result<Self, Error> {
        let len = sealer.sealed_len(payload.len());
        let mut buffer = SendBuffer::take(len);
        buffer[sealer.prefix_len()..][..payload.len()].copy_from_slice(payload);
        sealer.seal(content_type, &mut buffer[..len])?;
        Ok(Self { buffer, unsent: 0..len, held: false })
    }

    /// Sealed records. `held`: they need not leave at once.
    fn of(records: &[u8], held: bool) -> Option<Self> {
        if records.is_empty() {
            return None;
        }
        let mut buffer = SendBuffer::of_length(records.len());
        buffer[..records.len()].copy_from_slice(records);
        Some(Self { buffer, unsent: 0..records.len(), held })
    }
}
