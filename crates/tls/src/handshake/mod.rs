//! The rustls handshake, and the state taken over from it. No other module uses rustls.
//!
//! rustls gets one record at a time, so that it stops exactly after the client's Finished. Later bytes of the client
//! (its first request, or part of a record) stay in our buffer for our opener, and the sequence numbers taken over are
//! right.

mod callbacks;
pub(crate) mod certificate;
pub(crate) mod client_auth;
mod compression;
pub(crate) mod config;
pub(crate) mod key_log;
pub(crate) mod key_schedule;
pub(crate) mod names;
pub(crate) mod quic;
pub(crate) mod resolver;
pub(crate) mod secrets;
#[cfg(test)]
mod tests;
pub(crate) mod tickets;

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use rustix::net::Shutdown;
use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{CommonState, HandshakeKind, ProtocolVersion};
use sealion_ktls::Version;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::AlertDescription;
use crate::error::HandshakeError;
use crate::record::{ContentType, HEADER_LEN, MAX_CIPHERTEXT_TLS12, Opener, TrafficKeys};
use crate::socket::Socket;
use callbacks::CallbackState;
use certificate::Certificate;
use client_auth::{ClientAuthId, ClientCertificate};
use config::{Limits, Policy, ServerConfig};
use key_schedule::KeySchedule;
use resolver::{NoCertificate, Obtaining};

/// The parameters that both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeInfo {
    /// The negotiated version.
    pub version: Version,
    /// The suite by its IANA name, for instance `TLS_AES_128_GCM_SHA256`.
    pub suite: &'static str,
    /// The application protocol chosen by ALPN (RFC 7301), for instance `http/1.1`.
    pub alpn: Option<Vec<u8>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The host name in the ClientHello (RFC 6066 §3), in lower case.
    pub server_name: Option<Box<str>>,
    /// The group of the key exchange.
    pub group: Option<Group>,
    /// The client authentication of the site that the client named. A site with another must not serve requests on this
    /// connection (RFC 9110 §15.5.20, 421 Misdirected Request).
    pub client_auth: Option<ClientAuthId>,
    /// The certificate that the client presented, in this handshake or in the resumed session's. It was verified
    /// against the site's roots.
    pub client_certificate: Option<Arc<ClientCertificate>>,
}

/// A group for key exchange, by its number in the IANA registry "TLS Supported Groups".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(pub u16);

impl Group {
    /// The name in the registry; `unknown` if rustls does not have it.
    pub fn as_str(self) -> &'static str {
        match self.0 {
            0x0017 => "secp256r1",
            0x0018 => "secp384r1",
            0x0019 => "secp521r1",
            0x001d => "x25519",
            0x11eb => "SecP256r1MLKEM768",
            0x11ec => "X25519MLKEM768",
            _ => "unknown",
        }
    }
}

impl HandshakeInfo {
    /// A full handshake of this version and suite, with no further information.
    pub fn new(version: Version, suite: &'static str) -> Self {
        Self {
            version,
            suite,
            alpn: None,
            resumed: false,
            server_name: None,
            group: None,
            client_auth: None,
            client_certificate: None,
        }
    }

    /// Whether the connection is an ACME server's validation (TLS-ALPN-01, RFC 8737), which ends with the handshake.
    pub fn is_validation(&self) -> bool {
        self.alpn.as_deref() == Some(resolver::ACME_TLS)
    }
}

/// A finished handshake: everything that the record layer needs to continue.
pub(crate) struct Finished {
    pub(crate) info: HandshakeInfo,
    pub(crate) schedule: KeySchedule,
    pub(crate) tx: (TrafficKeys, u64),
    pub(crate) opener: Opener,
    /// Records that one key may seal.
    pub(crate) records_per_key: u64,
    /// Bytes that the client sent after its Finished.
    pub(crate) incoming: Vec<u8>,
    /// Sealed records that were not sent: the session tickets of TLS 1.3. Clients do not wait for them, so they leave
    /// with the first response.
    pub(crate) held: Vec<u8>,
}

/// The buffer limit for a client without authentication: one record of the maximum length. A ClientHello with a
/// post-quantum key share is below 2 KiB, and the rest of the flight without a certificate is below 1 KiB.
const MAX_FLIGHT: usize = HEADER_LEN + MAX_CIPHERTEXT_TLS12;

/// The buffer limit for a client that was asked for a certificate: rustls' limit for one message, in records.
const MAX_FLIGHT_WITH_CERTIFICATE: usize = (1 << 16) + MAX_FLIGHT;

/// The maximum bytes of tickets held back for the first response. Two tickets of a client without a certificate take
/// about 400.
const MAX_HELD: usize = 4096;

/// The length of the first read: twice a ClientHello with a post-quantum key share.
const FIRST_READ: usize = 4096;

/// Performs the handshake as the server. On failure, rustls' alert has been sent if the socket took it. `client`: for
/// sources of certificates.
pub(crate) async fn accept(
    io: &mut Socket,
    config: &ServerConfig,
    client: Option<IpAddr>,
) -> Result<Finished, HandshakeError> {
    let mut flight = Flight { incoming: Vec::with_capacity(FIRST_READ), ..Flight::default() };
    let mut callbacks = CallbackState::default();
    let policy = match config.only_policy() {
        Some(policy) => policy,
        None => Box::pin(flight.choose_policy(io, config, client, &mut callbacks.obtained)).await?,
    };
    flight.asks = policy.client_auth.is_some();
    let mut connection =
        UnbufferedServerConnection::new(policy.rustls.clone()).map_err(|e| HandshakeError::Tls(e.to_string()))?;
    loop {
        if is_full(&connection) {
            // A ticket may have been opened, but rustls did not resume its session.
            callbacks.opened_ticket = None;
        }
        let UnbufferedStatus { discard, state } =
            callbacks.during(|| connection.process_tls_records(&mut flight.incoming[..flight.fed]));
        let next = match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut data, &mut flight.outgoing)?;
                Next::Again
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Next::Transmit
            }
            Ok(ConnectionState::BlockedHandshake) => Next::Read,
            Ok(ConnectionState::WriteTraffic(_)) => Next::Established,
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                return Err(HandshakeError::ClosedByPeer);
            }
            Ok(other) => return Err(HandshakeError::Tls(format!("unexpected state {other:?}"))),
            Err(error) => {
                if callbacks.is_refused {
                    flight.queue(Some(AlertDescription::UNRECOGNIZED_NAME));
                    flight.end(io, &config.limits).await;
                    let name = callbacks.server_name.map_or_else(|| "clients without a name".to_owned(), Into::into);
                    return Err(HandshakeError::NoCertificate { name, why: NoCertificate::NotAllowed });
                }
                let own_alert = alert_of(&error);
                let error = HandshakeError::from_rustls(error, &flight.incoming);
                queue_alert(&mut connection, &mut flight);
                if matches!(error, HandshakeError::PlainHttp) {
                    // A client without TLS would see an alert as noise.
                    flight.outgoing = refuse_plain_http(&flight.incoming);
                } else if flight.has_sent_nothing() {
                    flight.queue(own_alert);
                }
                flight.end(io, &config.limits).await;
                return Err(error);
            }
        };
        flight.discard(discard);
        match next {
            Next::Again => {}
            Next::Transmit if is_tls13_established(&connection) => {}
            Next::Transmit => flight.transmit(io).await?,
            Next::Read => flight.feed_one_record(io, &config.limits).await?,
            Next::Established if connection.is_handshaking() => flight.feed_one_record(io, &config.limits).await?,
            Next::Established => break,
        }
    }
    if !is_tls13_established(&connection) || flight.outgoing.len() > MAX_HELD {
        flight.transmit(io).await?;
    }
    flight.incoming.shrink_to_fit();
    if flight.fed != 0 {
        return Err(HandshakeError::Tls("handshake bytes after the client's Finished".into()));
    }
    let info = HandshakeInfo {
        server_name: callbacks.server_name,
        client_auth: policy.client_auth,
        ..secrets::info(&connection)?
    };
    let records_per_key = config.limits.records_per_key.min(secrets::confidentiality_limit(&connection));
    let suite = connection.negotiated_cipher_suite();
    let (extracted, _) =
        connection.dangerous_into_kernel_connection().map_err(|e| HandshakeError::Tls(e.to_string()))?;
    let (tx_sequence, tx) = extracted.tx;
    let (rx_sequence, rx) = extracted.rx;
    let tx = secrets::traffic_keys(info.version, &tx)?;
    let rx = secrets::traffic_keys(info.version, &rx)?;
    let opener = Opener::new(&rx, rx_sequence);
    let schedule = suite.and_then(|suite| KeySchedule::new(suite, tx.aead(), callbacks.secrets));
    Ok(Finished {
        tx: (tx, tx_sequence),
        opener,
        schedule: schedule.ok_or_else(|| HandshakeError::Tls("rustls showed no traffic secrets".into()))?,
        records_per_key,
        incoming: flight.incoming,
        held: flight.outgoing,
        info,
    })
}

/// The response to a plain HTTP request, in words for a user who forgot the `s` of `https://`.
fn refuse_plain_http(request: &[u8]) -> Vec<u8> {
    const TEXT: &str = "This port speaks HTTPS: write https:// instead of http:// in the address.\n";
    let content = if request.starts_with(b"HEAD ") { "" } else { TEXT };
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{content}",
        TEXT.len()
    )
    .into_bytes()
}

/// Whether rustls has decided not to resume a session.
fn is_full(connection: &CommonState) -> bool {
    matches!(connection.handshake_kind(), Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest))
}

/// Whether the client's Finished of TLS 1.3 has arrived. After it rustls encodes only tickets. In TLS 1.2 it encodes
/// the server's Finished.
fn is_tls13_established(connection: &UnbufferedServerConnection) -> bool {
    !connection.is_handshaking() && connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
}

/// How long a peer may take to close after a failed handshake: several round trips. It still occupies a connection
/// slot.
const MAX_LINGER: Duration = Duration::from_secs(1);

enum Next {
    Again,
    Transmit,
    Read,
    Established,
}

/// The bytes of a handshake in both directions.
#[derive(Default)]
struct Flight {
    incoming: Vec<u8>,
    /// The length of `incoming` passed to rustls: whole records.
    fed: usize,
    /// Encoded but not yet sent. It outlives single states, because rustls may request a read between encoding and
    /// sending.
    outgoing: Vec<u8>,
    /// Whether anything was sent, which means that the ClientHello was accepted.
    sent: bool,
    /// Whether the client is asked for a certificate.
    asks: bool,
}

impl Flight {
    fn discard(&mut self, bytes: usize) {
        self.incoming.drain(..bytes);
        self.fed -= bytes;
    }

    async fn transmit(&mut self, io: &mut Socket) -> Result<(), HandshakeError> {
        use tokio::io::AsyncWriteExt;
        io.write_all(&self.outgoing).await.map_err(HandshakeError::Io)?;
        self.sent |= !self.outgoing.is_empty();
        self.outgoing = Vec::new();
        Ok(())
    }

    fn has_sent_nothing(&self) -> bool {
        !self.sent && self.outgoing.is_empty()
    }

    /// Queues an alert in plain text, which is correct until a ServerHello was sent.
    fn queue(&mut self, alert: Option<AlertDescription>) {
        let Some(alert) = alert else { return };
        self.outgoing.extend_from_slice(&[ContentType::Alert as u8, 3, 3, 0, 2]);
        self.outgoing.extend_from_slice(&alert.to_wire());
    }

    async fn feed_one_record(&mut self, io: &mut Socket, limits: &Limits) -> Result<(), HandshakeError> {
        self.fed += self.wait_for_record_or_alert(io, self.fed, limits).await?;
        Ok(())
    }

    /// As [`Self::wait_for_record`], with an alert if the flight is too long.
    async fn wait_for_record_or_alert(
        &mut self,
        io: &mut Socket,
        at: usize,
        limits: &Limits,
    ) -> Result<usize, HandshakeError> {
        let len = self.wait_for_record(io, at).await;
        if matches!(len, Err(HandshakeError::TooLong(_))) && self.has_sent_nothing() {
            self.queue(Some(AlertDescription::RECORD_OVERFLOW));
            self.end(io, limits).await;
        }
        len
    }

    /// Sends the queued bytes and FIN, then waits for the peer's FIN for a bounded time: closing with unread bytes
    /// would reset the connection, and the reset could overtake the alert. The connection has failed anyway, so this
    /// does not wait for a socket that does not take the alert at once.
    async fn end(&mut self, io: &mut Socket, limits: &Limits) {
        let _ = io.try_write(&self.outgoing);
        if rustix::net::shutdown(&*io, Shutdown::Write).is_ok() {
            let discard = async {
                let mut buffer = [0; 1024];
                while io.read(&mut buffer).await.is_ok_and(|came| came > 0) {}
            };
            let _ = timeout(limits.linger.min(MAX_LINGER), discard).await;
        }
    }

    /// Chooses by the ClientHello, which stays in the buffer for the handshake. A malformed ClientHello fails there. If
    /// the site has a source of certificates, `obtained` is set to its result.
    async fn choose_policy<'c>(
        &mut self,
        io: &mut Socket,
        config: &'c ServerConfig,
        client: Option<IpAddr>,
        obtained: &mut Option<Certificate>,
    ) -> Result<&'c Policy, HandshakeError> {
        let mut acceptor = Acceptor::default();
        let mut seen = 0;
        loop {
            let len = self.wait_for_record_or_alert(io, seen, &config.limits).await?;
            let mut record = &self.incoming[seen..seen + len];
            seen += len;
            while !record.is_empty() {
                if acceptor.read_tls(&mut record).is_err() {
                    return Ok(config.policy(None));
                }
                match acceptor.accept() {
                    Ok(None) => {}
                    Ok(Some(accepted)) => {
                        let hello = accepted.client_hello();
                        let (policy, source) = (config.policy(Some(&hello)), config.source(&hello));
                        drop(accepted);
                        if let Some((source, name)) = source {
                            let obtaining = source.certificate(&name, client);
                            *obtained = Some(self.obtain(io, obtaining, &name, &config.limits).await?);
                        }
                        return Ok(policy);
                    }
                    Err(_) => return Ok(config.policy(None)),
                }
            }
        }
    }

    /// Obtains the certificate for the client's name, or rejects the client with an alert. Notices a client that leaves
    /// meanwhile.
    async fn obtain(
        &mut self,
        io: &mut Socket,
        mut obtaining: Obtaining<'_>,
        name: &str,
        limits: &Limits,
    ) -> Result<Certificate, HandshakeError> {
        let obtained = poll_fn(|cx| {
            if let Poll::Ready(obtained) = obtaining.as_mut().poll(cx) {
                return Poll::Ready(Ok(obtained));
            }
            // Bytes that the client sends in the meantime stay for the handshake. If it fills the buffer, its close is
            // not noticed.
            while self.incoming.len() < MAX_FLIGHT {
                match ready!(pin!(io.read_buf(&mut self.incoming)).poll(cx)) {
                    Ok(0) => return Poll::Ready(Err(HandshakeError::Truncated)),
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Err(HandshakeError::Io(error))),
                }
            }
            Poll::Pending
        });
        let why = match obtained.await? {
            Ok(certificate) => return Ok(certificate),
            Err(why) => why,
        };
        self.queue(Some(match why {
            NoCertificate::NotAllowed => AlertDescription::UNRECOGNIZED_NAME,
            NoCertificate::Unavailable => AlertDescription::INTERNAL_ERROR,
        }));
        self.end(io, limits).await;
        Err(HandshakeError::NoCertificate { name: name.to_owned(), why })
    }

    /// Waits for the record that begins at `at` and returns its length.
    async fn wait_for_record(&mut self, io: &mut Socket, at: usize) -> Result<usize, HandshakeError> {
        loop {
            if let Some(len) = self.next_record_len(at) {
                return Ok(len);
            }
            let most = if self.sent && self.asks { MAX_FLIGHT_WITH_CERTIFICATE } else { MAX_FLIGHT };
            let len = self.incoming.len();
            if len >= most {
                return Err(HandshakeError::TooLong(most));
            }
            if len == self.incoming.capacity() {
                self.incoming.reserve_exact(len.min(most - len));
            }
            match io.read_buf(&mut self.incoming).await.map_err(HandshakeError::Io)? {
                0 if self.incoming.is_empty() => return Err(HandshakeError::ClosedByPeer),
                0 => return Err(HandshakeError::Truncated),
                _ => {}
            }
        }
    }

    /// The length of the record at `at`, once it is complete. Bytes that cannot be a record go to rustls unchanged,
    /// which rejects them at once.
    fn next_record_len(&self, at: usize) -> Option<usize> {
        let unseen = &self.incoming[at..];
        let &[content_type, _, _, hi, lo] = unseen.first_chunk::<HEADER_LEN>()?;
        let len = usize::from(u16::from_be_bytes([hi, lo]));
        if !(20..=23).contains(&content_type) || len > MAX_CIPHERTEXT_TLS12 {
            return Some(unseen.len());
        }
        (unseen.len() >= HEADER_LEN + len).then_some(HEADER_LEN + len)
    }
}

fn encode<T>(
    data: &mut rustls::unbuffered::EncodeTlsData<'_, T>,
    outgoing: &mut Vec<u8>,
) -> Result<(), HandshakeError> {
    let at = outgoing.len();
    let needed = match data.encode(&mut []) {
        Ok(_) => return Ok(()),
        Err(EncodeError::InsufficientSize(e)) => e.required_size,
        Err(e) => return Err(HandshakeError::Tls(e.to_string())),
    };
    outgoing.resize(at + needed, 0);
    data.encode(&mut outgoing[at..]).map_err(|e| HandshakeError::Tls(e.to_string()))?;
    Ok(())
}

/// Takes the alert that rustls has queued after an error.
fn queue_alert(connection: &mut UnbufferedServerConnection, flight: &mut Flight) {
    // If asked for more than is queued, rustls would continue with its earlier input, and panic without it.
    while connection.wants_write() {
        let Ok(ConnectionState::EncodeTlsData(mut data)) = connection.process_tls_records(&mut []).state else {
            break;
        };
        if encode(&mut data, &mut flight.outgoing).is_err() {
            break;
        }
    }
}

/// The alert for an error that rustls has queued none for, such as data in the middle of a handshake message.
fn alert_of(error: &rustls::Error) -> Option<AlertDescription> {
    match error {
        rustls::Error::AlertReceived(_) => None,
        rustls::Error::InvalidMessage(_) => Some(AlertDescription::DECODE_ERROR),
        rustls::Error::PeerMisbehaved(_) | rustls::Error::InappropriateMessage { .. } => {
            Some(AlertDescription::UNEXPECTED_MESSAGE)
        }
        _ => Some(AlertDescription::INTERNAL_ERROR),
    }
}
