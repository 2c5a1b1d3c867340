//! Parses received records, and one response at a time within them. No socket; the clock only records when bodies began.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use aws_lc_rs::digest;
use rustls::ConnectionTrafficSecrets;
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use sealion_tls::record::{ContentType, HEADER_LEN, Opened, Opener, TrafficKeys};
use sealion_tls::{AlertDescription, Version};

use super::Read;
use super::failure::{Failure, Kind};
use super::http2::Frames;
use super::response_head::{Cache, Head};

/// ```text
/// Idle ─expect─► Head ─┬─► Body ─┬─► Idle
///   └──────────────────┴─► Walk ─┘
/// ```
/// Control records (tickets, KeyUpdate, alerts) are handled in every state.
pub(super) struct Receiving {
    version: Version,
    opener: Opener,
    schedule: KernelConnection<ClientConnectionData>,
    reading: Reading,
    state: State,
    /// The beginning of an incomplete record.
    carry: Vec<u8>,
    /// Bytes still to come of a record that is skipped.
    skip: usize,
    /// The content of a complete response on this connection, if responses are drained and all have the same length.
    whole: Option<Whole>,
    /// Keys for our next record, after the server requested new ones.
    new_keys: Option<(TrafficKeys, u64)>,
    /// Whether the server has closed the connection, or announced that it will.
    ended: bool,
    /// Whether the response is cut short, so that the connection cannot be used again.
    cut: bool,
}

/// How responses are read, the same for all connections of a load.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) read: Read,
    /// Bytes of a body after which reading stops.
    pub(super) cap: u64,
    /// The body that all later bodies must equal.
    pub(super) reference: Arc<Reference>,
}

/// The first response of a load; the body of every other response must equal its body.
#[derive(Default)]
pub(super) struct Reference {
    pub(super) body_len: OnceLock<u64>,
    pub(super) sha256: OnceLock<[u8; 32]>,
}

/// A body that is being received.
pub(super) struct ReceivedBody {
    /// When its first byte came.
    pub(super) began: Option<Instant>,
    bytes: u64,
    hash: Option<digest::Context>,
}

impl ReceivedBody {
    pub(super) fn new(reference: &Reference, read: Read) -> Self {
        Self { began: None, bytes: 0, hash: reference.hash(read) }
    }

    pub(super) fn add(&mut self, content: &[u8]) {
        if self.began.is_none() && !content.is_empty() {
            self.began = Some(Instant::now());
        }
        self.bytes += content.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(content);
        }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> u64 {
        self.bytes
    }

    /// Compares the whole body with the first one of the load.
    pub(super) fn end(self, reference: &Reference) -> Result<Done, Failure> {
        reference.compare(self.bytes, self.hash)
    }
}

impl Reference {
    /// The hash of a body that is about to be received, if it is compared.
    pub(super) fn hash(&self, read: Read) -> Option<digest::Context> {
        let hashes = match read {
            Read::Verify => true,
            Read::Decrypt => false,
            Read::Drain => self.sha256.get().is_none(),
        };
        hashes.then(|| digest::Context::new(&digest::SHA256))
    }

    /// Compares a whole body with the first one.
    pub(super) fn compare(&self, body: u64, hash: Option<digest::Context>) -> Result<Done, Failure> {
        let first = *self.body_len.get_or_init(|| body);
        if body != first {
            return Err(Failure::new(Kind::Body, format!("a body of {body} bytes, and the first had {first}")));
        }
        if let Some(hash) = hash {
            let hash: [u8; 32] = hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
            if *self.sha256.get_or_init(|| hash) != hash {
                return Err(Failure::new(Kind::Body, "a body of another content than the first one's"));
            }
        }
        Ok(Done { body })
    }
}

enum State {
    /// No request is open.
    Idle,
    Head {
        bytes: Vec<u8>,
    },
    Body {
        /// Bytes of the body still to come, up to the cap.
        left: u64,
        taken: u64,
        hash: Option<digest::Context>,
    },
    /// HTTP/2, for the whole connection.
    Frames(Box<Frames>),
    Walk {
        /// Bytes of content received and expected, including the head.
        seen: u64,
        wanted: u64,
        /// As in [`Whole`].
        slack: u64,
        /// Body bytes of the response, up to the cap.
        body: u64,
    },
}

/// The content of a complete response, including the head.
#[derive(Debug, Clone, Copy)]
struct Whole {
    bytes: u64,
    /// The number of bytes by which a record may end too early or too late and still end a response. If another
    /// record's end was meant, the rest is noticed as data after a response.
    slack: u64,
}

/// A correct response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    /// Body bytes, up to the cap.
    pub(super) body: u64,
}

/// The next read from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// As much as is available.
    Bytes,
    /// Only a record's header, because its content will be discarded.
    Header(usize),
    /// Discard this many bytes.
    Discard(usize),
}

/// The maximum length of a record that may be an alert or a KeyUpdate, with room for padding. In TLS 1.3 such records
/// look like data, so records up to this length are opened even if others are skipped. The longest such message has 7
/// bytes; a server that pads it beyond this limit would be counted as sending data of the wrong length.
const MAX_CONTROL: usize = HEADER_LEN + 64;

/// The minimum number of bytes to discard by a separate system call. Fewer bytes are copied together with the following
/// data. This only affects the client's cost.
const WORTH_DISCARDING: usize = 4096;

/// The maximum difference between the length of a connection's last head and its other heads: the last has `Connection:
/// close`, or lacks `keep-alive`.
const LAST_HEAD_DIFFERS: u64 = 32;

/// The maximum difference between heads of a stored response: a cache states its age and remaining lifetime in a few
/// digits.
const STORED_HEAD_DIFFERS: u64 = 8;

impl Receiving {
    pub(super) fn new(
        version: Version,
        (keys, sequence): (&TrafficKeys, u64),
        schedule: KernelConnection<ClientConnectionData>,
        reading: Reading,
        carry: Vec<u8>,
    ) -> Self {
        Self {
            version,
            opener: Opener::new(keys, sequence),
            schedule,
            reading,
            state: State::Idle,
            carry,
            skip: 0,
            whole: None,
            new_keys: None,
            ended: false,
            cut: false,
        }
    }

    /// A request was sent; expects its response.
    pub(super) fn expect(&mut self) {
        self.state = match self.whole {
            Some(Whole { bytes, slack }) => {
                let body = *self.reading.reference.body_len.get().unwrap_or(&0);
                State::Walk { seen: 0, wanted: bytes, slack, body }
            }
            None => State::Head { bytes: Vec::new() },
        };
    }

    /// Speaks HTTP/2 from now on.
    pub(super) fn multiplex(&mut self) {
        let frames = Frames::new(self.reading.read, self.reading.reference.clone());
        self.state = State::Frames(Box::new(frames));
    }

    /// The streams, on a connection with HTTP/2.
    pub(super) fn frames(&mut self) -> Option<&mut Frames> {
        match &mut self.state {
            State::Frames(frames) => Some(frames),
            _ => None,
        }
    }

    /// Whether any byte of the response has been received.
    pub(super) fn begun(&self) -> bool {
        match &self.state {
            State::Idle | State::Body { .. } | State::Frames(_) => true,
            State::Head { bytes } => !bytes.is_empty(),
            State::Walk { seen, .. } => *seen > 0,
        }
    }

    /// Whether a byte of the body has been opened. Only valid while the response is open.
    pub(super) fn body_began(&self) -> bool {
        matches!(self.state, State::Body { taken: 1.., .. })
    }

    /// Whether bodies are opened, so that their first byte has a time.
    pub(super) fn opens_bodies(&self) -> bool {
        self.reading.read != Read::Drain
    }

    /// Whether the connection can carry no further request.
    pub(super) fn ended(&self) -> bool {
        let over = matches!(&self.state, State::Frames(frames) if frames.ended());
        over || self.ended || self.cut
    }

    /// Keys for the record after the KeyUpdate that the server requested.
    pub(super) fn take_new_keys(&mut self) -> Option<(TrafficKeys, u64)> {
        self.new_keys.take()
    }

    pub(super) fn want(&self) -> Want {
        match self.state {
            _ if self.skip >= WORTH_DISCARDING => Want::Discard(self.skip),
            State::Walk { seen, wanted, .. }
                if self.skip == 0 && self.carry.len() < HEADER_LEN && wanted.saturating_sub(seen) >= 1 << 14 =>
            {
                Want::Header(HEADER_LEN - self.carry.len())
            }
            _ => Want::Bytes,
        }
    }

    /// Bytes to leave free at the front of the buffer, where [`Self::receive`] puts the rest of the previous read.
    pub(super) fn carried(&self) -> usize {
        self.carry.len()
    }

    /// Reports that `bytes` were discarded for [`Want::Discard`].
    pub(super) fn discarded(&mut self, bytes: usize) -> Result<Option<Done>, Failure> {
        self.skip -= bytes;
        if self.skip == 0 { self.walked() } else { Ok(None) }
    }

    /// Processes received bytes, which follow [`Self::carried`] free bytes.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Done>, Failure> {
        buffer[..self.carry.len()].copy_from_slice(&self.carry);
        self.carry.clear();
        let mut rest = buffer;
        let mut done = None;
        loop {
            if self.cut && done.is_some() {
                return Ok(done);
            }
            if self.skip > 0 {
                let passed = self.skip.min(rest.len());
                rest = &mut rest[passed..];
                self.skip -= passed;
                if self.skip > 0 {
                    return Ok(done);
                }
                done = done.or(self.walked()?);
            }
            let len = match self.opener.record_len(rest).map_err(broken)? {
                Some(len) if self.is_walked(rest[0], len) => {
                    self.walk(len);
                    continue;
                }
                Some(len) if len <= rest.len() => len,
                _ => {
                    self.carry.extend_from_slice(rest);
                    return Ok(done);
                }
            };
            let (record, behind) = rest.split_at_mut(len);
            rest = behind;
            let opened = self.opener.open(record).map_err(broken)?;
            done = done.or(self.opened(&opened, record)?);
        }
    }

    /// The failure if the stream ends in this state.
    pub(super) fn end(&mut self) -> Failure {
        self.lost("the server closed the connection")
    }

    /// The failure for an ended stream; `how` describes the end.
    pub(super) fn lost(&mut self, how: &str) -> Failure {
        self.ended = true;
        let io = |where_: &str| Failure::new(Kind::Io, format!("{how}{where_}"));
        let body = |where_: &str| Failure::new(Kind::Body, format!("{how} {where_}"));
        match &self.state {
            State::Idle => io(""),
            State::Frames(frames) if frames.open() == 0 => io(""),
            State::Frames(frames) => io(&format!(" with {} requests open", frames.open())),
            State::Walk { seen: 0, .. } => io(" instead of answering"),
            State::Head { bytes } if bytes.is_empty() => io(" instead of answering"),
            State::Head { .. } => body("inside the response's head"),
            State::Body { left, taken, .. } => body(&format!("after {taken} bytes of a body, {left} before its end")),
            State::Walk { seen, wanted, .. } => {
                body(&format!("inside or after the record that brings a response to {seen} of {wanted} bytes"))
            }
        }
    }

    fn is_walked(&self, outer_type: u8, len: usize) -> bool {
        matches!(self.state, State::Walk { .. })
            && outer_type == ContentType::ApplicationData as u8
            && (len > MAX_CONTROL || self.version == Version::Tls12)
    }

    fn walk(&mut self, len: usize) {
        self.opener.pass_over();
        self.skip = len;
        let added = self.opener.added_len();
        if let State::Walk { seen, .. } = &mut self.state {
            *seen += len.saturating_sub(added) as u64;
        }
    }

    /// Handles the end of a skipped record, or of the data in an opened one.
    fn walked(&mut self) -> Result<Option<Done>, Failure> {
        let State::Walk { seen, wanted, slack, body } = self.state else {
            return Ok(None);
        };
        if seen.abs_diff(wanted) <= slack || (self.cut && seen > wanted) {
            self.state = State::Idle;
            return Ok(Some(Done { body }));
        }
        if seen > wanted + LAST_HEAD_DIFFERS {
            return Err(wrong_length(seen, wanted));
        }
        Ok(None)
    }

    fn opened(&mut self, opened: &Opened, record: &[u8]) -> Result<Option<Done>, Failure> {
        let payload = &record[opened.payload.clone()];
        match opened.content_type {
            ContentType::ApplicationData => self.data(payload),
            ContentType::Handshake => self.handshake_messages(payload).map(|()| None),
            ContentType::Alert => self.alert(payload),
            ContentType::ChangeCipherSpec => unreachable!("the opener refuses it"),
        }
    }

    fn data(&mut self, payload: &[u8]) -> Result<Option<Done>, Failure> {
        match &mut self.state {
            _ if payload.is_empty() => Ok(None),
            State::Idle => Err(Failure::new(Kind::Body, "data after the end of a response")),
            State::Head { bytes } => {
                bytes.extend_from_slice(payload);
                let bytes = std::mem::take(bytes);
                self.head(bytes)
            }
            State::Body { .. } => self.body(payload),
            State::Frames(frames) => frames.receive(payload).map(|()| None),
            State::Walk { seen, .. } => {
                *seen += payload.len() as u64;
                self.walked()
            }
        }
    }

    fn head(&mut self, bytes: Vec<u8>) -> Result<Option<Done>, Failure> {
        let Some(head) = Head::parse(&bytes)? else {
            self.state = State::Head { bytes };
            return Ok(None);
        };
        self.ended |= head.last;
        let first = *self.reading.reference.body_len.get_or_init(|| head.body_len);
        if head.body_len != first {
            let words = format!("Content-Length is {}, and was {first} in the first response", head.body_len);
            return Err(Failure::new(Kind::Body, words));
        }
        let wanted = head.body_len.min(self.reading.cap);
        self.cut = wanted < head.body_len;
        let hashes = match self.reading.read {
            Read::Verify => true,
            Read::Decrypt => false,
            Read::Drain => self.reading.reference.sha256.get().is_none(),
        };
        let begun = &bytes[head.len..];
        if self.reading.read == Read::Drain {
            let bytes = head.len as u64 + head.body_len;
            self.whole = match head.cache {
                Cache::None => Some(Whole { bytes, slack: 0 }),
                Cache::Fetched => None,
                Cache::Stored => Some(Whole { bytes, slack: STORED_HEAD_DIFFERS }),
            };
        }
        if self.reading.read == Read::Drain && (!hashes || self.cut) {
            let (seen, wanted_in_all) = (bytes.len() as u64, head.len as u64 + wanted);
            self.state = State::Walk { seen, wanted: wanted_in_all, slack: 0, body: wanted };
            return self.walked();
        }
        let hash = (hashes && !self.cut).then(|| digest::Context::new(&digest::SHA256));
        self.state = State::Body { left: wanted, taken: 0, hash };
        self.body(begun)
    }

    fn body(&mut self, payload: &[u8]) -> Result<Option<Done>, Failure> {
        let State::Body { left, taken, hash } = &mut self.state else {
            return Ok(None);
        };
        let len = (payload.len() as u64).min(*left);
        let over = payload.len() as u64 - len;
        if over > 0 && !self.cut {
            return Err(Failure::new(Kind::Body, format!("{over} bytes after the body's end")));
        }
        if let Some(hash) = hash {
            hash.update(&payload[..len as usize]);
        }
        *left -= len;
        *taken += len;
        if *left > 0 {
            return Ok(None);
        }
        let body = *taken;
        let hash = hash.take();
        self.state = State::Idle;
        if let Some(hash) = hash {
            let hash: [u8; 32] = hash.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
            if *self.reading.reference.sha256.get_or_init(|| hash) != hash {
                return Err(Failure::new(Kind::Body, "a body of another content than the first one's"));
            }
        }
        Ok(Some(Done { body }))
    }

    fn alert(&mut self, payload: &[u8]) -> Result<Option<Done>, Failure> {
        let &[_, description] = payload else {
            return Err(Failure::new(Kind::Body, format!("an alert of {} bytes", payload.len())));
        };
        let description = AlertDescription(description);
        self.ended = true;
        match self.state {
            State::Idle => Ok(None),
            State::Frames(ref frames) if frames.open() == 0 => Ok(None),
            // The last response of a connection has a different head.
            State::Walk { seen, wanted, body, .. }
                if description == AlertDescription::CLOSE_NOTIFY && seen.abs_diff(wanted) <= LAST_HEAD_DIFFERS =>
            {
                self.state = State::Idle;
                Ok(Some(Done { body }))
            }
            _ if description == AlertDescription::CLOSE_NOTIFY => Err(self.end()),
            _ => Err(Failure::new(Kind::Io, format!("the server ended the connection: {description}"))),
        }
    }

    /// Supports complete messages only; several tickets may share a record.
    fn handshake_messages(&mut self, mut payload: &[u8]) -> Result<(), Failure> {
        let refuse = |words: String| Err(Failure::new(Kind::Io, words));
        while let Some((&[message_type, a, b, c], rest)) = payload.split_first_chunk::<4>() {
            let Some((body, rest)) = rest.split_at_checked(u32::from_be_bytes([0, a, b, c]) as usize) else {
                return refuse("a handshake message in two records".into());
            };
            payload = rest;
            match (message_type, body) {
                (NEW_SESSION_TICKET, _) => {
                    self.schedule.handle_new_session_ticket(body).map_err(|e| Failure::new(Kind::Io, e))?;
                }
                (KEY_UPDATE, &[asks_for_ours @ 0..=1]) => {
                    let (keys, sequence) = self.renewed(KernelConnection::update_rx_secret)?;
                    self.opener = Opener::new(&keys, sequence);
                    if asks_for_ours == 1 {
                        self.new_keys = Some(self.renewed(KernelConnection::update_tx_secret)?);
                    }
                }
                _ => return refuse(format!("a handshake message of type {message_type}")),
            }
        }
        if payload.is_empty() { Ok(()) } else { refuse("a handshake message without its length".into()) }
    }

    fn renewed(&mut self, update: Update) -> Result<(TrafficKeys, u64), Failure> {
        let (sequence, secrets) = update(&mut self.schedule).map_err(|e| Failure::new(Kind::Io, e))?;
        let keys = sealion_tls::traffic_keys(self.version, &secrets).map_err(|e| Failure::new(Kind::Io, e))?;
        Ok((keys, sequence))
    }
}

/// Makes the next secrets of one direction.
type Update = fn(&mut KernelConnection<ClientConnectionData>) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error>;

/// HandshakeType, RFC 8446 §4.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

fn broken(error: sealion_tls::record::OpenError) -> Failure {
    Failure::new(Kind::Body, error)
}

fn wrong_length(seen: u64, wanted: u64) -> Failure {
    Failure::new(Kind::Body, format!("a response of {seen} bytes or more, head included, where the first had {wanted}"))
}
