//! A connection at rest as a value, which another process can continue.

use std::fmt;
use std::io;
use std::mem;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use sealion_ktls::{FrozenTx, Tx, TxState, Version};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::patience::{Patience, Waits};
use super::receive::{FrozenReceiver, Receiver};
use super::{Counts, KernelSender, Outgoing, Sender, Sending, Session, TlsStream};
use crate::AlertDescription;
use crate::handshake::certificate::Fingerprint;
use crate::handshake::client_auth::{ClientAuthId, ClientCertificate};
use crate::handshake::config::Limits;
use crate::handshake::key_schedule::{KeySchedule, Tls13Schedule};
use crate::handshake::secrets::{self, suite_name};
use crate::handshake::{Group, HandshakeInfo};
use crate::record::{Aead, Opener, Sealer, TrafficKeys};
use crate::socket::Socket;

/// A connection between two responses, or between two sends of one, without its socket: [`TlsStream::freeze`] takes it out, [`TlsStream::thaw`] continues with it.
///
/// ```text
/// TlsStream ──freeze──► (socket, Frozen) ──to_bytes──► another process ──from_bytes──► Frozen ──thaw──► TlsStream
/// ```
///
/// It has the keys of the connection. **Only one process may thaw it**: two that seal under one key repeat nonces. It is therefore neither `Clone` nor `Copy`,
/// and a process that has passed its bytes on must not thaw it before the other process has refused them. Keys are wiped on drop, and are never printed.
pub struct Frozen(Parts);

/// The bytes of a [`Frozen`] connection. They contain keys, and are wiped on drop.
pub struct FrozenBytes(Zeroizing<Vec<u8>>);

impl Deref for FrozenBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Serialize, Deserialize)]
struct Parts {
    format: u16,
    is_tcp: bool,
    session: Option<FrozenSession>,
    sender: FrozenSender,
    receiver: FrozenReceiver,
    /// Sealed bytes that TCP has not taken.
    unsent: Zeroizing<Vec<u8>>,
    /// They wait for the next response: session tickets.
    held: bool,
    waits: Waits,
    written: u64,
    payload_sent: u64,
    response_from: u64,
    small_window: bool,
    /// A response has begun, and goes on.
    is_responding: bool,
    counts: FrozenCounts,
}

#[derive(Serialize, Deserialize)]
struct FrozenSession {
    suite: u16,
    alpn: Option<Vec<u8>>,
    resumed: bool,
    server_name: Option<Box<str>>,
    group: Option<u16>,
    client_auth: Option<[u8; 32]>,
    client_certificate: Option<(String, [u8; 32])>,
    keys: FrozenKeys,
    records_per_key: u64,
    /// The number of the client's next record.
    opens_next: u64,
    key_update_due: bool,
}

#[derive(Serialize, Deserialize)]
enum FrozenKeys {
    /// Keys of the client's data.
    Tls12(RawKeys),
    /// Traffic secrets of the client's and of the server's data.
    Tls13([Zeroizing<Vec<u8>>; 2]),
}

#[derive(Serialize, Deserialize)]
struct RawKeys {
    key: Zeroizing<Vec<u8>>,
    iv: Zeroizing<[u8; 12]>,
}

#[derive(Serialize, Deserialize)]
enum FrozenSender {
    Plain,
    /// `keys`: only with TLS 1.2, whose keys follow from nothing that is kept.
    User {
        next: u64,
        keys: Option<RawKeys>,
    },
    Kernel {
        records: u64,
        tcp_then: u64,
        first: u64,
        sealed: u64,
        accepted: u64,
        open: bool,
    },
}

#[derive(Serialize, Deserialize)]
struct FrozenCounts {
    key_updates_sent: u32,
    key_updates_received: u32,
    alert_sent: Option<u8>,
    alert_received: Option<u8>,
}

/// The format that this version writes and reads.
const FORMAT: u16 = 4;

/// Bytes of all other fields, at most.
const FIXED: usize = 2048;

/// A connection was not frozen.
pub enum NotFrozen {
    /// The response, the end or the renewal of a key that is under way: see [`TlsStream::freeze`]. The connection is unchanged.
    NotAtRest(&'static str),
    /// The runtime did not give the socket back. The connection is closed.
    Lost(io::Error),
}

impl fmt::Debug for NotFrozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NotFrozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAtRest(why) => f.write_str(why),
            Self::Lost(error) => write!(f, "the runtime did not give the socket back: {error}"),
        }
    }
}

impl std::error::Error for NotFrozen {}

/// Bytes that are no connection which this version can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Frozen")
    }
}

impl TlsStream {
    /// Takes the connection apart, if nothing is under way: no send, no renewal of the kernel's key, and no end but the peer's orderly one. Received bytes that
    /// were not consumed, half a record, sealed bytes that TCP has not taken and a key update that is owed go along. A response that has begun
    /// ([`Self::begin`], [`Self::pause`]) goes on with a [`Self::send`] after [`Self::thaw`].
    ///
    /// The socket no longer belongs to the runtime. Nobody may read it, write to it or change its options until the connection is thawed: they belong to all
    /// processes that hold it. The rest here has no socket: only [`Self::info`], [`Self::path`] and the counters may be asked.
    ///
    /// # Errors
    /// [`NotFrozen`].
    pub fn freeze(&mut self) -> Result<(OwnedFd, Frozen), NotFrozen> {
        if let Some(why) = self.is_busy() {
            return Err(NotFrozen::NotAtRest(why));
        }
        // Every field is named, so that none is forgotten.
        let Self {
            limits: _,
            session,
            sender,
            receiver,
            outgoing,
            room: _,
            sending,
            responding: _,
            patience,
            written,
            delivery: _,
            payload_sent,
            response_from,
            small_window,
            progress: _,
            counts,
        } = self;
        let parts = Parts {
            format: FORMAT,
            is_tcp: sender.socket().is_tcp(),
            session: None,
            sender: FrozenSender::Plain,
            receiver: mem::replace(receiver, Receiver::new(Vec::new())).freeze(),
            held: outgoing.as_ref().is_some_and(|out| out.held),
            unsent: Zeroizing::new(outgoing.take().map_or_else(Vec::new, |out| out.buffer[out.unsent].to_vec())),
            waits: patience.stop(),
            written: *written,
            payload_sent: *payload_sent,
            response_from: *response_from,
            small_window: *small_window,
            is_responding: *sending == Sending::Responding,
            counts: FrozenCounts::of(*counts),
        };
        let (socket, sender) = match mem::replace(sender, Sender::Moving) {
            Sender::Plain(io) => (io, FrozenSender::Plain),
            Sender::User { io, sealer } => {
                let (next, keys) = sealer.into_parts();
                let keys = (keys.version() == Version::Tls12).then(|| RawKeys::of(&keys));
                (io, FrozenSender::User { next, keys })
            }
            Sender::Kernel(KernelSender { tx, records, next_key: _ }) => {
                let (io, state) = tx.into_parts();
                let Ok(FrozenTx { version: _, cipher: _, tcp_then, first, sealed, accepted, open }) = state.freeze()
                else {
                    unreachable!("the connection is at rest");
                };
                (io, FrozenSender::Kernel { records, tcp_then, first, sealed, accepted, open })
            }
            Sender::Moving => unreachable!("{}", super::MOVING),
        };
        let parts = Parts { sender, session: session.take().map(FrozenSession::of), ..parts };
        Ok((socket.into_fd().map_err(NotFrozen::Lost)?, Frozen(parts)))
    }

    /// The reason why the connection is not at rest.
    fn is_busy(&self) -> Option<&'static str> {
        if !matches!(self.sending, Sending::Open | Sending::Responding) || self.responding {
            return Some("a response is being sent");
        }
        if self.delivery.is_some() || !self.receiver.may_go_on(self.session.is_some()) {
            return Some("the connection ends");
        }
        match &self.sender {
            Sender::Kernel(kernel) if kernel.next_key.is_some() => Some("the kernel's key is being renewed"),
            _ => None,
        }
    }

    /// Continues a connection that was frozen, here or in another process, with its socket. The runtime's thread calls it.
    ///
    /// # Errors
    /// The runtime's; the connection is closed then.
    pub fn thaw(socket: OwnedFd, frozen: Frozen, limits: &Arc<Limits>) -> io::Result<Self> {
        let Frozen(Parts {
            format: _,
            is_tcp,
            session,
            sender,
            receiver,
            unsent,
            held,
            waits,
            written,
            payload_sent,
            response_from,
            small_window,
            is_responding,
            counts,
        }) = frozen;
        let io = Socket::from_fd(socket, is_tcp)?;
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "keys that do not belong to their suite");
        let session = session.map(|session| session.thaw().ok_or_else(invalid)).transpose()?;
        let sender = sender.thaw(io, session.as_ref()).ok_or_else(invalid)?;
        let mut stream = Self::new(limits.clone(), session, sender, Receiver::thaw(receiver));
        stream.outgoing = Outgoing::of(&unsent, held);
        stream.patience = Patience::resume(waits);
        stream.written = written;
        stream.payload_sent = payload_sent;
        stream.response_from = response_from;
        stream.small_window = small_window;
        if is_responding {
            stream.sending = Sending::Responding;
        }
        stream.counts = counts.thaw();
        Ok(stream)
    }
}

impl Frozen {
    /// Whether the connection has TLS.
    pub fn has_tls(&self) -> bool {
        self.0.session.is_some()
    }

    /// The value as bytes, for [`Self::from_bytes`].
    pub fn to_bytes(&self) -> FrozenBytes {
        // All of it at once: a vector that grows leaves copies behind.
        let mut bytes = Zeroizing::new(vec![0; FIXED + self.0.open_length()]);
        let length = postcard::to_slice(&self.0, &mut bytes).expect("it has room for all fields").len();
        bytes.truncate(length);
        FrozenBytes(bytes)
    }

    /// The value that [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// [`Malformed`]: another version wrote it, or something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = |_| Malformed("bytes that are no connection");
        let (format, _) = postcard::take_from_bytes::<u16>(bytes).map_err(malformed)?;
        if format != FORMAT {
            return Err(Malformed("a connection in the format of another version"));
        }
        let (parts, rest) = postcard::take_from_bytes::<Parts>(bytes).map_err(malformed)?;
        if !rest.is_empty() {
            return Err(Malformed("bytes behind a connection"));
        }
        let has_keys = match (&parts.session, &parts.sender) {
            (None, FrozenSender::Plain) => true,
            (None, _) | (Some(_), FrozenSender::Plain) => false,
            (Some(session), sender) => session.is_whole(sender),
        };
        if has_keys { Ok(Self(parts)) } else { Err(Malformed("a connection whose keys are missing")) }
    }
}

impl Parts {
    /// Bytes of the fields whose length is open: received and sealed bytes, and names of the peer's choice.
    fn open_length(&self) -> usize {
        let names = self.session.as_ref().map_or(0, |session| {
            let certificate = session.client_certificate.as_ref().map_or(0, |(subject, _)| subject.len());
            let server_name = session.server_name.as_ref().map_or(0, |name| name.len());
            certificate + server_name + session.alpn.as_ref().map_or(0, Vec::len)
        });
        self.unsent.len() + self.receiver.len() + names
    }
}

impl FrozenSession {
    fn of(session: Session) -> Self {
        let Session { info, aead: _, schedule, records_per_key, opener, key_update_due } = session;
        let HandshakeInfo { version: _, suite, alpn, resumed, server_name, group, client_auth, client_certificate } =
            info;
        let (opens_next, rx) = opener.into_parts();
        let keys = match schedule {
            KeySchedule::Tls12 => FrozenKeys::Tls12(RawKeys::of(&rx)),
            KeySchedule::Tls13(schedule) => FrozenKeys::Tls13(schedule.secrets()),
        };
        Self {
            suite: number_of(suite),
            alpn,
            resumed,
            server_name,
            group: group.map(|Group(number)| number),
            client_auth: client_auth.map(|ClientAuthId(id)| id),
            client_certificate: client_certificate
                .map(|certificate| (certificate.subject.clone(), certificate.fingerprint.0)),
            keys,
            records_per_key,
            opens_next,
            key_update_due,
        }
    }

    /// Whether the suite is known here, and `sender` has its keys.
    fn is_whole(&self, sender: &FrozenSender) -> bool {
        match (suite_of(self.suite), &self.keys, sender) {
            (Some(SupportedCipherSuite::Tls12(_)), FrozenKeys::Tls12(_), FrozenSender::User { keys: None, .. }) => {
                false
            }
            (Some(SupportedCipherSuite::Tls12(_)), FrozenKeys::Tls12(_), _)
            | (Some(SupportedCipherSuite::Tls13(_)), FrozenKeys::Tls13(_), _) => true,
            _ => false,
        }
    }

    fn thaw(self) -> Option<Session> {
        let suite = suite_of(self.suite)?;
        let aead = secrets::aead(suite)?;
        let (version, schedule, rx) = match (suite, self.keys) {
            (SupportedCipherSuite::Tls12(_), FrozenKeys::Tls12(raw)) => {
                (Version::Tls12, KeySchedule::Tls12, Opener::new(&raw.thaw(aead)?, self.opens_next))
            }
            (SupportedCipherSuite::Tls13(suite), FrozenKeys::Tls13(secrets)) => {
                let schedule = Tls13Schedule::resume(suite, aead, secrets)?;
                let opener = Opener::new(&schedule.rx().ok()?, self.opens_next);
                (Version::Tls13, KeySchedule::Tls13(schedule), opener)
            }
            _ => return None,
        };
        let certificate = |(subject, fingerprint)| ClientCertificate { subject, fingerprint: Fingerprint(fingerprint) };
        let info = HandshakeInfo {
            alpn: self.alpn,
            resumed: self.resumed,
            server_name: self.server_name,
            group: self.group.map(Group),
            client_auth: self.client_auth.map(ClientAuthId),
            client_certificate: self.client_certificate.map(certificate).map(Arc::new),
            ..HandshakeInfo::new(version, suite_name(suite))
        };
        Some(Session {
            info,
            aead,
            schedule,
            records_per_key: self.records_per_key,
            opener: rx,
            key_update_due: self.key_update_due,
        })
    }
}

impl FrozenSender {
    /// `None`: `session` lacks what the sender needs.
    fn thaw(self, io: Socket, session: Option<&Session>) -> Option<Sender> {
        Some(match self {
            Self::Plain => Sender::Plain(io),
            Self::User { next, keys } => {
                let session = session?;
                let keys = match (&session.schedule, keys) {
                    (KeySchedule::Tls13(schedule), _) => schedule.tx().ok()?,
                    (KeySchedule::Tls12, raw) => raw?.thaw(session.aead)?,
                };
                Sender::User { io, sealer: Sealer::new(keys, next, session.records_per_key) }
            }
            Self::Kernel { records, tcp_then, first, sealed, accepted, open } => {
                let session = session?;
                let (version, cipher) = (session.info.version, session.aead.cipher());
                let state = TxState::thaw(FrozenTx { version, cipher, tcp_then, first, sealed, accepted, open });
                Sender::Kernel(KernelSender { tx: Tx::from_parts(io, state), records, next_key: None })
            }
        })
    }
}

impl RawKeys {
    fn of(keys: &TrafficKeys) -> Self {
        let (key, iv) = keys.as_bytes();
        Self { key: Zeroizing::new(key.to_vec()), iv: Zeroizing::new(*iv) }
    }

    /// Keys of TLS 1.2. `None`: not of the AEAD's length.
    fn thaw(self, aead: Aead) -> Option<TrafficKeys> {
        (self.key.len() == aead.key_len()).then(|| TrafficKeys::new(Version::Tls12, aead, &self.key, &self.iv))
    }
}

impl FrozenCounts {
    fn of(counts: Counts) -> Self {
        let Counts { key_updates_sent, key_updates_received, alert_sent, alert_received } = counts;
        let number = |AlertDescription(number)| number;
        Self {
            key_updates_sent,
            key_updates_received,
            alert_sent: alert_sent.map(number),
            alert_received: alert_received.map(number),
        }
    }

    fn thaw(self) -> Counts {
        let Self { key_updates_sent, key_updates_received, alert_sent, alert_received } = self;
        Counts {
            key_updates_sent,
            key_updates_received,
            alert_sent: alert_sent.map(AlertDescription),
            alert_received: alert_received.map(AlertDescription),
        }
    }
}

fn suite_of(number: u16) -> Option<SupportedCipherSuite> {
    ALL_CIPHER_SUITES.iter().copied().find(|suite| u16::from(suite.suite()) == number)
}

/// The number of the suite with this name; 0 for an unknown name.
fn number_of(name: &str) -> u16 {
    ALL_CIPHER_SUITES.iter().find(|suite| suite_name(**suite) == name).map_or(0, |suite| suite.suite().into())
}
