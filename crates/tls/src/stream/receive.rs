//! Receiving, always in user space. Application data goes to the caller; alerts and handshake messages are handled
//! here. Without TLS all bytes are data, and FIN is the orderly end.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use sealion_ktls::Version;
use serde::{Deserialize, Serialize};
use tokio::io::ReadBuf;
use zeroize::Zeroizing;

use super::{Counts, Sending, Session, TlsStream};
use crate::AlertDescription;
use crate::buffers;
use crate::error::Error;
use crate::record::{ContentType, MAX_PLAINTEXT, Opener};

/// The maximum number of consecutive records without effect, that is empty application data and ignored warnings. Same
/// as in rustls.
const MAX_EMPTY_RECORDS: u8 = 32;

/// The maximum number of KeyUpdates without application data between them. Same as in rustls.
const MAX_KEY_UPDATES: u8 = 32;

/// Unread bytes at which [`TlsStream::peer_gone`] stops reading: one record, which holds many pipelined requests.
const MAX_KEPT: usize = MAX_PLAINTEXT;

/// Received bytes that the caller has not consumed, and the state of the receiving side.
pub(super) struct Receiver {
    /// The beginning of an incomplete record.
    sealed: Vec<u8>,
    /// Decrypted application data; the first `read` bytes are consumed.
    plaintext: Vec<u8>,
    read: usize,
    state: State,
    /// The beginning of a handshake message that continues in the next record.
    message: Vec<u8>,
    empty_records: u8,
    key_updates: u8,
}

#[derive(Debug)]
enum State {
    Open,
    /// Reading has ended: `close_notify` arrived (RFC 8446 §6.1), or the connection has to end.
    Notified,
    /// The peer's FIN arrived.
    Finished,
    /// An earlier read returned the error.
    Failed(Error),
}

/// A [`Receiver`] that may go on, for [`Frozen`](super::Frozen).
#[derive(Serialize, Deserialize)]
pub(super) struct FrozenReceiver {
    sealed: Vec<u8>,
    plaintext: Zeroizing<Vec<u8>>,
    message: Vec<u8>,
    empty_records: u8,
    key_updates: u8,
    /// The peer sends no more.
    has_ended: bool,
}

impl FrozenReceiver {
    /// Bytes of its vectors.
    pub(super) fn len(&self) -> usize {
        self.sealed.len() + self.plaintext.len() + self.message.len()
    }
}

impl Receiver {
    /// Whether the peer may send more, or has ended its direction in order: the other direction goes on.
    pub(super) fn may_go_on(&self, has_tls: bool) -> bool {
        match self.state {
            State::Open | State::Notified => true,
            State::Finished => !has_tls,
            State::Failed(_) => false,
        }
    }

    /// See [`Self::may_go_on`].
    pub(super) fn freeze(self) -> FrozenReceiver {
        let Self { sealed, mut plaintext, read, state, message, empty_records, key_updates } = self;
        plaintext.drain(..read);
        let (plaintext, has_ended) = (Zeroizing::new(plaintext), !matches!(state, State::Open));
        FrozenReceiver { sealed, plaintext, message, empty_records, key_updates, has_ended }
    }

    pub(super) fn thaw(frozen: FrozenReceiver) -> Self {
        let FrozenReceiver { sealed, mut plaintext, message, empty_records, key_updates, has_ended } = frozen;
        let plaintext = std::mem::take(&mut *plaintext);
        let state = if has_ended { State::Notified } else { State::Open };
        Self { sealed, plaintext, read: 0, state, message, empty_records, key_updates }
    }

    /// Starts with the bytes after the handshake, which may contain complete records.
    pub(super) fn new(sealed: Vec<u8>) -> Self {
        Self {
            sealed,
            plaintext: Vec::new(),
            read: 0,
            state: State::Open,
            message: Vec::new(),
            empty_records: 0,
            key_updates: 0,
        }
    }

    fn add_data(&mut self, data: &[u8]) {
        if self.plaintext.capacity() == 0 {
            self.plaintext = buffers::take_plaintext();
        }
        self.plaintext.extend_from_slice(data);
    }

    /// Whether the peer has sent FIN.
    pub(super) fn finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// The error of an earlier read, for a call that follows it.
    pub(super) fn failure(&self) -> Option<Error> {
        match &self.state {
            State::Failed(error) => Some(error.again()),
            _ => None,
        }
    }
}

impl TlsStream {
    /// Received application data that was not consumed yet.
    pub fn buffered(&self) -> &[u8] {
        &self.receiver.plaintext[self.receiver.read..]
    }

    /// Removes `bytes` from the front of [`Self::buffered`].
    ///
    /// # Panics
    /// [`Self::buffered`] has fewer bytes.
    pub fn consume(&mut self, bytes: usize) {
        let receiver = &mut self.receiver;
        receiver.read += bytes;
        assert!(receiver.read <= receiver.plaintext.len(), "consumed more than was received");
        if receiver.read == receiver.plaintext.len() {
            receiver.read = 0;
            buffers::keep_plaintext(std::mem::take(&mut receiver.plaintext));
        }
    }

    /// Waits for more application data and appends it to [`Self::buffered`]. Returns their number, or 0 if the peer has
    /// closed by `close_notify` or, without TLS, by FIN. Dropping the future loses nothing.
    ///
    /// Between responses it also returns 0, and drops the buffered data, if the peer requested a key update that is
    /// impossible: before Linux 6.14 the kernel cannot change its key. Data must not precede the update (RFC 8446
    /// §4.6.3), but `close_notify` may.
    ///
    /// # Errors
    /// [`Error::Truncated`] at FIN without `close_notify`, otherwise the error of the peer or the transport; tell the
    /// peer with [`Self::abort`].
    pub async fn read_more(&mut self) -> Result<usize, Error> {
        poll_fn(|cx| self.poll_read_more(cx)).await
    }

    /// Whether, between responses, the peer requested an update before our next data, and the update is impossible.
    fn owes_an_update_in_vain(&self) -> bool {
        self.is_key_update_due() && self.sending == Sending::Open && !self.responding && !self.can_update_keys()
    }

    /// [`Self::read_more`] for a caller that polls; it may be polled while a send waits, see [`Self::poll_send`].
    ///
    /// # Errors
    /// As [`Self::read_more`].
    pub fn poll_read_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        loop {
            match &self.receiver.state {
                State::Open if self.owes_an_update_in_vain() => {
                    // The responses to earlier requests would be data.
                    self.receiver.plaintext.clear();
                    self.receiver.read = 0;
                    self.receiver.state = State::Notified;
                    return Poll::Ready(Ok(0));
                }
                State::Open => {}
                State::Notified => return Poll::Ready(Ok(0)),
                State::Finished if self.session.is_none() => return Poll::Ready(Ok(0)),
                State::Finished => return Poll::Ready(Err(Error::Truncated)),
                State::Failed(error) => return Poll::Ready(Err(error.again())),
            }
            // With pipelined requests the buffer may never become empty, so remove the consumed part here.
            self.receiver.plaintext.drain(..std::mem::take(&mut self.receiver.read));
            let before = self.receiver.plaintext.len();
            let Poll::Ready(received) = buffers::with_receive_buffer(|buffer| self.poll_receive(cx, buffer)) else {
                self.release(cx);
                return Poll::Pending;
            };
            if let Err(error) = received {
                if matches!(error, Error::Io(_)) {
                    // Reading has consumed the socket's error, so sending would not report it. On a reset connection in
                    // kernel TLS, sendfile(2) would continue to return 64 KiB at a time up to the end of the file
                    // (Linux 6.1 and 7.2).
                    self.sending = Sending::Closed;
                }
                if self.receiver.is_open() {
                    self.receiver.state = State::Failed(error.again());
                }
                return Poll::Ready(Err(error));
            }
            let came = self.receiver.plaintext.len() - before;
            if came > 0 && !self.owes_an_update_in_vain() {
                return Poll::Ready(Ok(came));
            }
        }
    }

    /// As [`Self::poll_read_more`], but ready as soon as the beginning of a record has arrived, so that a deadline can
    /// start. `false`: the peer has closed.
    ///
    /// # Errors
    /// As [`Self::read_more`].
    pub fn poll_wait_for_record(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        match self.poll_read_more(cx) {
            Poll::Pending if !self.receiver.sealed.is_empty() => Poll::Ready(Ok(true)),
            came => came.map_ok(|came| came > 0),
        }
    }

    /// Whether there are unconsumed bytes, or the beginning of a record.
    pub fn is_receiving(&self) -> bool {
        !self.buffered().is_empty() || !self.receiver.sealed.is_empty()
    }

    /// Waits until the peer closes while nothing is sent or received, so that a server can stop waiting for an upstream
    /// if the client has left. Data that the peer sends meanwhile is kept in [`Self::buffered`]. Dropping the future
    /// loses nothing.
    ///
    /// It returns `Ok` after `close_notify`, [`Error::Truncated`] at a bare FIN, and another error if the connection
    /// was reset or the peer violated the protocol.
    ///
    /// - `close_notify` and FIN close one direction. A peer that closed only one direction still reads (`shutdown(2)`).
    ///   It looks like a peer that left, until our data causes a reset.
    /// - They arrive after all earlier data. This stops reading at 16 KiB of unread bytes, so it misses the end of a
    ///   peer that sends more.
    /// - A peer that vanishes without FIN or reset is not noticed.
    ///
    /// # Errors
    /// See above.
    pub async fn peer_gone(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_peer_gone(cx)).await
    }

    /// [`Self::peer_gone`] for a caller that polls.
    ///
    /// # Errors
    /// As [`Self::peer_gone`].
    pub fn poll_peer_gone(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.receiver.is_open() || self.buffered().len() < MAX_KEPT {
            if ready!(self.poll_read_more(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// Reads once and decrypts every complete record.
    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<(), Error>> {
        let Self { session, receiver, sender, counts, .. } = self;
        let Some(session) = session else {
            let mut into = ReadBuf::new(buffer);
            ready!(sender.poll_read(cx, &mut into)).map_err(Error::Io)?;
            match into.filled() {
                [] => receiver.state = State::Finished,
                data => receiver.add_data(data),
            }
            return Poll::Ready(Ok(()));
        };
        let held = receiver.sealed.len();
        let mut end = held;
        // Opens complete records that followed the handshake before it reads.
        let waits_for_more = match session.opener.record_len(&receiver.sealed)? {
            Some(len) => held < len,
            None => true,
        };
        if waits_for_more {
            let mut into = ReadBuf::new(&mut buffer[held..]);
            ready!(sender.poll_read(cx, &mut into)).map_err(Error::Io)?;
            let came = into.filled().len();
            if came == 0 {
                receiver.state = State::Finished;
                return Poll::Ready(Err(Error::Truncated));
            }
            end += came;
        }
        // The handshake may have left more bytes than fit into the receive buffer.
        let mut large;
        let bytes = match buffer.get_mut(..end) {
            Some(bytes) => bytes,
            None => {
                large = vec![0; end];
                &mut large[..]
            }
        };
        bytes[..held].copy_from_slice(&receiver.sealed);
        let opened = Opening { session, receiver, counts }.open_records(bytes)?;
        receiver.sealed.clear();
        receiver.sealed.extend_from_slice(&bytes[opened..]);
        receiver.sealed.shrink_to(bytes.len() - opened);
        Poll::Ready(Ok(()))
    }

    /// Reads and discards until FIN.
    pub(super) async fn discard_until_fin(&mut self) {
        poll_fn(|cx| {
            buffers::with_receive_buffer(|buffer| {
                loop {
                    let mut into = ReadBuf::new(buffer);
                    match ready!(self.sender.poll_read(cx, &mut into)) {
                        Ok(()) if !into.filled().is_empty() => {}
                        _ => return Poll::Ready(()),
                    }
                }
            })
        })
        .await;
        self.receiver.state = State::Finished;
    }
}

/// The receiving side of a connection with TLS.
struct Opening<'a> {
    session: &'a mut Session,
    receiver: &'a mut Receiver,
    counts: &'a mut Counts,
}

impl Opening<'_> {
    /// Decrypts the complete records in `bytes`. Returns their total length.
    fn open_records(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        let mut at = 0;
        while self.receiver.is_open() {
            let Some(len) = self.session.opener.record_len(&bytes[at..])? else { break };
            let Some(record) = bytes.get_mut(at..at + len) else { break };
            let opened = self.session.opener.open(record)?;
            self.receive(opened.content_type, &record[opened.payload])?;
            at += len;
        }
        // Bytes after close_notify are ignored.
        Ok(if self.receiver.is_open() { at } else { bytes.len() })
    }

    fn receive(&mut self, content_type: ContentType, payload: &[u8]) -> Result<(), Error> {
        if content_type != ContentType::Handshake && !self.receiver.message.is_empty() {
            return Err(unexpected("another record in the middle of a handshake message"));
        }
        match content_type {
            ContentType::ApplicationData if payload.is_empty() => self.count_empty(),
            ContentType::ApplicationData => {
                self.receiver.empty_records = 0;
                self.receiver.key_updates = 0;
                self.receiver.add_data(payload);
                Ok(())
            }
            ContentType::Alert => self.receive_alert(payload),
            ContentType::Handshake => self.receive_handshake(payload),
            ContentType::ChangeCipherSpec => Err(unexpected("change_cipher_spec after the handshake")),
        }
    }

    fn count_empty(&mut self) -> Result<(), Error> {
        self.receiver.empty_records += 1;
        if self.receiver.empty_records > MAX_EMPTY_RECORDS {
            return Err(unexpected("too many records without data in a row"));
        }
        Ok(())
    }

    fn receive_alert(&mut self, payload: &[u8]) -> Result<(), Error> {
        let &[level, description] = payload else {
            return Err(Error::Protocol {
                alert: AlertDescription::DECODE_ERROR,
                what: "an alert that is not two bytes long",
            });
        };
        let alert = AlertDescription(description);
        self.counts.alert_received = Some(alert);
        match (self.session.info.version, level) {
            _ if alert == AlertDescription::CLOSE_NOTIFY => {
                self.receiver.state = State::Notified;
                Ok(())
            }
            // RFC 8446 §6: in TLS 1.3 the level is ignored, and user_canceled is followed by close_notify.
            (Version::Tls13, _) if alert == AlertDescription::USER_CANCELED => self.count_empty(),
            (Version::Tls12, 1) => self.count_empty(),
            _ => Err(Error::PeerAlert(alert)),
        }
    }

    /// A client may only send KeyUpdate (RFC 8446 §4.6). In TLS 1.2 it may request a renegotiation, which is rejected.
    fn receive_handshake(&mut self, payload: &[u8]) -> Result<(), Error> {
        const KEY_UPDATE: u8 = 24;
        if self.session.info.version == Version::Tls12 {
            return Err(Error::Protocol {
                alert: AlertDescription::NO_RENEGOTIATION,
                what: "a request to renegotiate, which is not supported",
            });
        }
        if payload.is_empty() {
            return Err(unexpected("an empty handshake record"));
        }
        self.receiver.message.extend_from_slice(payload);
        let message = &self.receiver.message;
        if message[0] != KEY_UPDATE {
            return Err(unexpected("a handshake message after the handshake"));
        }
        if message.len() >= 4 && message[1..4] != [0, 0, 1] {
            return Err(Error::Protocol {
                alert: AlertDescription::DECODE_ERROR,
                what: "a KeyUpdate of the wrong length",
            });
        }
        let requested = match message.len() {
            ..5 => return Ok(()),
            5 => match message[4] {
                0 => false,
                1 => true,
                _ => {
                    return Err(Error::Protocol {
                        alert: AlertDescription::ILLEGAL_PARAMETER,
                        what: "a KeyUpdate with an unknown request_update",
                    });
                }
            },
            // RFC 8446 §5.1: a message before a key change ends its record.
            _ => return Err(unexpected("data after a KeyUpdate in one record")),
        };
        self.receiver.message = Vec::new();
        self.receiver.key_updates += 1;
        self.counts.key_updates_received += 1;
        if self.receiver.key_updates > MAX_KEY_UPDATES {
            return Err(unexpected("too many key updates in a row"));
        }
        let keys = self.session.schedule.next_rx().map_err(|_| unexpected("a KeyUpdate"))?;
        self.session.opener = Opener::new(&keys, 0);
        // One update covers several requests, before the next application data (RFC 8446 §4.6.3): many requests cost us
        // one record.
        self.session.key_update_due |= requested;
        Ok(())
    }
}

fn unexpected(what: &'static str) -> Error {
    Error::Protocol { alert: AlertDescription::UNEXPECTED_MESSAGE, what }
}
