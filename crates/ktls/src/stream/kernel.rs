//! The kernel's path: control records in both directions, and their effect on application data.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::tokio::io::{Interest, ReadBuf};
use ::tokio::net::TcpStream;
use ::tokio::time::{Sleep, sleep};

use super::broken;
use super::keys::Keys;
use crate::{CryptoInfo, Error, Incoming, MAX_PLAINTEXT, More, RecordType, Rx, RxState, Tx, TxState, Version};

/// Both halves of a connection in the kernel, without the socket.
pub(super) struct Kernel {
    tx: TxState,
    rx: RxState,
    keys: Box<dyn Keys>,
    /// Application data that came before the handover or did not fit the reader's buffer, consumed up to `early_at`.
    early: Vec<u8>,
    early_at: usize,
    /// The beginning of a handshake message.
    message: Vec<u8>,
    /// A KeyUpdate was read. The value tells whether it requests a reply.
    updated: Option<bool>,
    /// The next sending key, once derived.
    next: Option<CryptoInfo>,
    /// A KeyUpdate has to be sent.
    owed: bool,
    /// Why a KeyUpdate could not be sent. The reader gets the error after the data received so far.
    unanswered: Option<io::Error>,
    /// The kernel or the protocol cannot renew keys.
    keeps_key: bool,
    /// Upper bound of the records sealed under the present key.
    sealed: u64,
    /// Records without data since the last record with data.
    fruitless: u32,
    /// The pause before asking TCP again, and the length of the next pause.
    pause: Option<Pin<Box<Sleep>>>,
    next_pause: Duration,
}

/// The connection fails after this many records without data in a row, as in rustls.
const FRUITLESS: u32 = 32;
/// Bytes of data to read in search of close_notify after the peer has left, as many as rustls buffers.
const AHEAD: usize = 1 << 14;
/// The maximum length of a handshake message.
const MESSAGE: usize = 1 << 16;
const HELLO_REQUEST: u8 = 0;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// A KeyUpdate that does not request a reply (RFC 8446 §4.6.3).
const UPDATE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];
const UNEXPECTED_MESSAGE: u8 = 10;
const DECODE_ERROR: u8 = 50;
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_millis(100);

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("tx", &self.tx).field("rx", &self.rx).finish_non_exhaustive()
    }
}

impl Kernel {
    /// `early`: application data that came before the handover. `sequence`: records sealed before it.
    pub(super) fn new(
        tx: TxState,
        rx: RxState,
        version: Version,
        keys: Box<dyn Keys>,
        early: Vec<u8>,
        sequence: u64,
    ) -> Self {
        Self {
            tx,
            rx,
            keys,
            early,
            early_at: 0,
            message: Vec::new(),
            updated: None,
            next: None,
            owed: false,
            unanswered: None,
            keeps_key: version == Version::Tls12,
            sealed: sequence,
            fruitless: 0,
            pause: None,
            next_pause: FIRST_PAUSE,
        }
    }

    pub(super) fn wear(&mut self, records: u64) {
        self.sealed = records;
    }

    pub(super) fn poll_read(
        &mut self,
        socket: &TcpStream,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.try_read(socket, into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(socket.poll_read_ready(cx))?,
                result => return Poll::Ready(result),
            }
        }
    }

    /// Reads the available data. If it leaves a buffer with room empty, the peer has sent close_notify.
    fn try_read(&mut self, socket: &TcpStream, into: &mut ReadBuf<'_>) -> io::Result<()> {
        self.try_read_data(socket, into).map_err(|end| self.unanswered.take().unwrap_or(end))
    }

    fn try_read_data(&mut self, socket: &TcpStream, into: &mut ReadBuf<'_>) -> io::Result<()> {
        if into.remaining() == 0 {
            return Ok(());
        }
        loop {
            if self.take_early(into) {
                return Ok(());
            }
            // A reply that did not fit the socket goes out before the next data. A peer that is gone gets no reply, but
            // its earlier data may still be in the socket.
            self.unanswered = if self.owed { self.try_renew(socket).err() } else { None };
            // Reads at least 2 bytes, so that an alert fits.
            let mut pair = [0; 2];
            let direct = into.remaining() >= pair.len();
            let buffer = if direct { into.initialize_unfilled() } else { &mut pair };
            let mut rx = Rx::from_parts(socket.as_fd(), &mut self.rx);
            match socket.try_io(Interest::READABLE, || rx.recv(buffer).map_err(io::Error::from))? {
                Incoming::Record { record_type: RecordType::APPLICATION_DATA, len, .. } if len > 0 => {
                    self.fruitless = 0;
                    if direct {
                        into.advance(len);
                        return Ok(());
                    }
                    self.early.extend_from_slice(&pair[..len]);
                }
                Incoming::Record { record_type: RecordType::APPLICATION_DATA, .. } => self.bring_nothing(socket)?,
                Incoming::Record { record_type: RecordType::HANDSHAKE, len, whole } => {
                    self.message.extend_from_slice(&buffer[..len]);
                    if whole {
                        self.bring_nothing(socket)?;
                    }
                    self.handshake(socket)?;
                }
                // close_notify: the next read reports the end.
                Incoming::Record { record_type: RecordType::ALERT, len: 2, .. } if buffer[1] == 0 => {}
                Incoming::Record { record_type: RecordType::ALERT, len: 2, .. } => {
                    let what = format!("the peer ended the connection by alert {}", buffer[1]);
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, what));
                }
                Incoming::Record { .. } => {
                    return Err(self.refuse(socket, UNEXPECTED_MESSAGE, "a record of another type"));
                }
                Incoming::KeyExpired => self.follow(socket)?,
                Incoming::End { close_notify: true } => return Ok(()),
                Incoming::End { close_notify: false } => {
                    let what = "the peer ended the connection without close_notify: data may be missing";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
                }
            }
        }
    }

    /// Whether the peer has sent close_notify. Keeps the data before it for the reader.
    pub(super) fn peer_has_closed(&mut self, socket: &TcpStream) -> bool {
        let mut ahead = self.early.split_off(self.early_at);
        (self.early, self.early_at) = (Vec::new(), 0);
        let mut part = [0; 4096];
        let closed = loop {
            let mut part = ReadBuf::new(&mut part);
            match self.try_read(socket, &mut part) {
                Ok(()) if part.filled().is_empty() => break true,
                Ok(()) => ahead.extend_from_slice(part.filled()),
                Err(_) => break false,
            }
            if ahead.len() > AHEAD {
                break false;
            }
        };
        self.early = ahead;
        closed
    }

    pub(super) fn poll_write(
        &mut self,
        socket: &TcpStream,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_key(socket, cx))?;
        let sent = ready!(self.poll_send(socket, cx, |tx| tx.send_vectored(data, More::No)))?;
        self.sealed += sent.div_ceil(MAX_PLAINTEXT) as u64;
        Poll::Ready(Ok(sent))
    }

    pub(super) fn poll_send_file(
        &mut self,
        socket: &TcpStream,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_key(socket, cx))?;
        let sent = ready!(self.poll_send(socket, cx, |tx| tx.send_file(file, &mut { offset }, count)))?;
        // Kernels before 6.5 end a record after 16 pages. Pages may be unaligned, but every record except the last has
        // at least one page.
        self.sealed += (sent / 4096 + 1) as u64;
        Poll::Ready(Ok(sent))
    }

    /// Seals the record that the end of a file may have left open.
    pub(super) fn poll_flush(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(socket, cx, |tx| tx.flush())
    }

    /// Sends KeyUpdate and installs the next key.
    pub(super) fn poll_renew(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.owed = true;
        while !self.try_renew(socket)? {
            ready!(socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends close_notify, and waits until TCP has every byte.
    pub(super) fn poll_close(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(socket, cx, |tx| tx.close_notify()))?;
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            if Tx::from_parts(socket.as_fd(), &mut self.tx).unsent()? == 0 {
                return Poll::Ready(Ok(()));
            }
            self.pause = Some(Box::pin(sleep(self.next_pause)));
            self.next_pause = (2 * self.next_pause).min(MAX_PAUSE);
        }
    }

    fn poll_send<T>(
        &mut self,
        socket: &TcpStream,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&mut Tx<BorrowedFd<'_>, &mut TxState>) -> Result<T, Error>,
    ) -> Poll<io::Result<T>> {
        let mut tx = Tx::from_parts(socket.as_fd(), &mut self.tx);
        loop {
            match socket.try_io(Interest::WRITABLE, || operation(&mut tx).map_err(io::Error::from)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(socket.poll_write_ready(cx))?,
                result => return Poll::Ready(result),
            }
        }
    }

    /// Sends a KeyUpdate that is owed or due. Fails instead of using a key beyond its limit.
    fn poll_key(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let limit = Tx::from_parts(socket.as_fd(), &mut self.tx).cipher().record_limit();
        if self.sealed < limit / 2 && !self.owed {
            return Poll::Ready(Ok(()));
        }
        if !self.keeps_key {
            match ready!(self.poll_renew(socket, cx)) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => self.keeps_key = true,
                result => return Poll::Ready(result),
            }
        }
        // One call seals at most 2^31 bytes.
        if self.sealed >= limit - (1 << 20) {
            let what = "the key is worn out and cannot be renewed: close the connection and open another";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::Unsupported, what)));
        }
        Poll::Ready(Ok(()))
    }

    /// Renews the sending key. False: the socket is full, and the KeyUpdate is still owed.
    ///
    /// `Unsupported`: the key cannot be renewed, and the present key stays in use.
    fn try_renew(&mut self, socket: &TcpStream) -> io::Result<bool> {
        if self.next.is_none() {
            self.next = Some(self.keys.next_tx().inspect_err(|_| self.owed = false)?);
        }
        let Some(next) = &self.next else { return Ok(true) };
        let mut tx = Tx::from_parts(socket.as_fd(), &mut self.tx);
        match socket.try_io(Interest::WRITABLE, || tx.rekey(&UPDATE, next).map_err(io::Error::from)) {
            Ok(()) => {
                (self.next, self.owed, self.sealed) = (None, false, 0);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => {
                self.owed = false;
                Err(error)
            }
        }
    }

    /// Continues after a record that the kernel took for a KeyUpdate.
    fn follow(&mut self, socket: &TcpStream) -> io::Result<()> {
        let mut rx = Rx::from_parts(socket.as_fd(), &mut self.rx);
        match self.updated.take() {
            Some(answer) => {
                rx.rekey(&self.keys.next_rx()?)?;
                self.owed |= answer;
            }
            None => rx.false_alarm()?,
        }
        Ok(())
    }

    /// Handles the complete handshake messages.
    fn handshake(&mut self, socket: &TcpStream) -> io::Result<()> {
        while let Some((header, rest)) = self.message.split_first_chunk::<4>() {
            let [kind, len @ ..] = *header;
            let len = u32::from_be_bytes([0, len[0], len[1], len[2]]) as usize;
            if len > MESSAGE {
                return Err(self.refuse(socket, DECODE_ERROR, "a handshake message of more than 64 KiB"));
            }
            let Some(content) = rest.get(..len) else { break };
            match (kind, content) {
                (HELLO_REQUEST, []) if self.keeps_key => {}
                (NEW_SESSION_TICKET, content) => {
                    let taken = self.keys.ticket(content);
                    if let Err(error) = taken {
                        self.refuse(socket, UNEXPECTED_MESSAGE, "");
                        return Err(broken(error));
                    }
                }
                // A KeyUpdate must be the last message of its record (RFC 8446 §5.1): later data is under the next key.
                (KEY_UPDATE, [wish @ (0 | 1)]) if rest.len() == 1 => self.updated = Some(*wish == 1),
                _ => return Err(self.refuse(socket, UNEXPECTED_MESSAGE, "a handshake message after the handshake")),
            }
            self.message.drain(..4 + len);
        }
        Ok(())
    }

    /// Counts a record without data. Too many in a row are an attack on CPU time.
    fn bring_nothing(&mut self, socket: &TcpStream) -> io::Result<()> {
        self.fruitless += 1;
        if self.fruitless > FRUITLESS {
            return Err(self.refuse(socket, UNEXPECTED_MESSAGE, "too many records without data"));
        }
        Ok(())
    }

    /// Sends a fatal alert if the socket accepts it.
    fn refuse(&mut self, socket: &TcpStream, alert: u8, what: &str) -> io::Error {
        let mut tx = Tx::from_parts(socket.as_fd(), &mut self.tx);
        let _ = tx.send_record(RecordType::ALERT, &[2, alert]);
        io::Error::new(io::ErrorKind::InvalidData, format!("the peer broke TLS: {what}"))
    }

    fn take_early(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let rest = &self.early[self.early_at..];
        if rest.is_empty() {
            return false;
        }
        let len = rest.len().min(into.remaining());
        into.put_slice(&rest[..len]);
        self.early_at += len;
        if self.early_at == self.early.len() {
            (self.early, self.early_at) = (Vec::new(), 0);
        }
        true
    }
}
