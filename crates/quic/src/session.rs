//! TLS of connections: rustls as the transport calls it, with a configuration that is chosen by the ClientHello.

use std::any::Any;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::crypto::{
    ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectionId, Side, TransportError, TransportErrorCode, crypto};
use rustls::AlertDescription;
use rustls::pki_types::CertificateDer;
use rustls::quic::{KeyChange, Secrets, ServerConnection, Version};
use rustls::server::{Acceptor, ClientHello};

/// The TLS of new connections.
pub trait Handshakes: Send + Sync + 'static {
    /// Whether [`begin`](Self::begin) needs the ClientHello: otherwise it is parsed once less.
    fn needs_client_hello(&self) -> bool;

    /// Begins the handshake of a client. `hello`: its ClientHello, if it is needed and could be parsed. `None`: the handshake fails.
    fn begin(&self, hello: Option<&ClientHello<'_>>) -> Option<Box<dyn Handshake>>;
}

/// One handshake. All calls into rustls pass through it, so that callbacks can be told whose they are.
pub trait Handshake: Send + Sync + 'static {
    /// The configuration for the client.
    fn config(&self) -> Arc<rustls::ServerConfig>;

    /// Has rustls read bytes of the client.
    ///
    /// # Errors
    /// The handshake failed.
    fn read(&mut self, connection: &mut ServerConnection, bytes: &[u8]) -> Result<(), rustls::Error> {
        connection.read_hs(bytes)
    }

    /// Has rustls write bytes for the client.
    fn write(&mut self, connection: &mut ServerConnection, out: &mut Vec<u8>) -> Option<KeyChange> {
        connection.write_hs(out)
    }

    /// The result, for [`Connection::handshake_result`](crate::Connection::handshake_result). `None`: the session has no result, or the handshake has not ended.
    fn result(&self, _connection: &ServerConnection) -> Option<Box<dyn Any + Send>> {
        None
    }
}

/// The same configuration for all clients.
pub(crate) struct OneForAll(pub(crate) Arc<rustls::ServerConfig>);

impl Handshakes for OneForAll {
    fn needs_client_hello(&self) -> bool {
        false
    }

    fn begin(&self, _hello: Option<&ClientHello<'_>>) -> Option<Box<dyn Handshake>> {
        Some(Box::new(OneForAll(Arc::clone(&self.0))))
    }
}

impl Handshake for OneForAll {
    fn config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.0)
    }
}

/// The transport's view of [`Handshakes`].
pub(crate) struct SessionConfig {
    pub(crate) handshakes: Arc<dyn Handshakes>,
    /// Protects Initial and Retry packets.
    pub(crate) initial: Arc<QuicServerConfig>,
}

impl crypto::ServerConfig for SessionConfig {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.initial.initial_keys(version, id)
    }

    fn retry_tag(&self, version: u32, original: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.initial.retry_tag(version, original, packet)
    }

    fn start_session(self: Arc<Self>, _version: u32, parameters: &TransportParameters) -> Box<dyn Session> {
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let mut session = TlsSession { config: self, state: State::Waiting(Vec::new(), encoded), is_told: false };
        if !session.config.handshakes.needs_client_hello() {
            session.begin(None);
        }
        Box::new(session)
    }
}

struct TlsSession {
    config: Arc<SessionConfig>,
    state: State,
    /// The transport knows that the client's first flight was read.
    is_told: bool,
}

enum State {
    /// The ClientHello is incomplete. The encoded transport parameters wait.
    Waiting(Vec<u8>, Vec<u8>),
    Begun(Box<Begun>),
    /// The handshake has ended.
    Ended(Box<Ended>),
    /// There is no configuration for the client, or it is not one for QUIC.
    Failed,
}

struct Begun {
    handshake: Box<dyn Handshake>,
    connection: ServerConnection,
    next_keys: Option<Secrets>,
}

/// The rest of a handshake: rustls' own state is several times as large.
struct Ended {
    next_keys: Option<Secrets>,
    facts: HandshakeFacts,
    certificates: Option<Vec<CertificateDer<'static>>>,
}

/// The facts of a handshake, as [`crate::Connection`] hands them out.
#[derive(Clone)]
pub(crate) struct HandshakeFacts {
    pub(crate) protocol: Option<Vec<u8>>,
    pub(crate) server_name: Option<String>,
    /// Is taken once.
    pub(crate) result: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
}

impl HandshakeFacts {
    pub(crate) fn take_result(&self) -> Option<Box<dyn Any + Send>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Begun {
    fn facts(&self) -> HandshakeFacts {
        let Begun { handshake, connection, .. } = self;
        HandshakeFacts {
            protocol: connection.alpn_protocol().map(<[u8]>::to_vec),
            server_name: connection.server_name().map(str::to_owned),
            result: Arc::new(Mutex::new(handshake.result(connection))),
        }
    }

    fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let certificates = self.connection.peer_certificates()?;
        Some(certificates.iter().map(|certificate| certificate.clone().into_owned()).collect())
    }
}

/// Bytes of a ClientHello, as many as the transport keeps.
const MAX_CLIENT_HELLO: usize = 16 * 1024;

impl TlsSession {
    fn begin(&mut self, hello: Option<&ClientHello<'_>>) {
        let State::Waiting(_, parameters) = &mut self.state else { return };
        let parameters = std::mem::take(parameters);
        let begun = self.config.handshakes.begin(hello).and_then(|handshake| {
            let connection = ServerConnection::new(handshake.config(), Version::V1, parameters).ok()?;
            Some(Box::new(Begun { handshake, connection, next_keys: None }))
        });
        self.state = begun.map_or(State::Failed, State::Begun);
    }

    /// Collects the ClientHello, and begins when it is complete. Returns it then.
    fn collect(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, TransportError> {
        let State::Waiting(seen, _) = &mut self.state else { return Ok(None) };
        seen.extend_from_slice(bytes);
        if seen.len() > MAX_CLIENT_HELLO {
            return Err(failure(TransportErrorCode::PROTOCOL_VIOLATION, "the ClientHello is too long"));
        }
        let Some([_, a, b, c]) = seen.first_chunk() else { return Ok(None) };
        if seen.len() < 4 + u32::from_be_bytes([0, *a, *b, *c]) as usize {
            return Ok(None);
        }
        let seen = std::mem::take(seen);
        match accepted(&seen) {
            Some(accepted) => self.begin(Some(&accepted.client_hello())),
            None => self.begin(None),
        }
        Ok(Some(seen))
    }

    /// Frees rustls' state. All was written, and a client may send nothing more: messages after a handshake are the server's, or belong to what QUIC
    /// forbids (RFC 9001 §4.4, §6).
    fn end(&mut self) {
        let State::Begun(begun) = &mut self.state else { return };
        let (facts, certificates) = (begun.facts(), begun.certificates());
        self.state = State::Ended(Box::new(Ended { next_keys: begun.next_keys.take(), facts, certificates }));
    }
}

/// Parses a ClientHello, which rustls expects in a record (RFC 8446 §5.1).
fn accepted(hello: &[u8]) -> Option<rustls::server::Accepted> {
    let length = u16::try_from(hello.len()).ok()?.to_be_bytes();
    let record = [&[22, 3, 1], &length[..], hello].concat();
    let (mut acceptor, mut record) = (Acceptor::default(), &record[..]);
    while !record.is_empty() {
        acceptor.read_tls(&mut record).ok()?;
    }
    acceptor.accept().ok()?
}

impl Session for TlsSession {
    fn initial_keys(&self, id: &ConnectionId, _side: Side) -> Keys {
        const VERSION_1: u32 = 1;
        crypto::ServerConfig::initial_keys(&*self.config, VERSION_1, id).unwrap_or_else(|_| unreachable!("version 1"))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let facts = match &self.state {
            State::Begun(begun) if self.is_told => begun.facts(),
            State::Ended(ended) => ended.facts.clone(),
            _ => return None,
        };
        Some(Box::new(facts))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        let certificates = match &self.state {
            State::Begun(begun) => begun.certificates(),
            State::Ended(ended) => ended.certificates.clone(),
            State::Waiting(..) | State::Failed => None,
        };
        Some(Box::new(certificates?))
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        match &self.state {
            State::Begun(begun) => begun.connection.is_handshaking(),
            State::Ended(_) => false,
            State::Waiting(..) | State::Failed => true,
        }
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let hello = match &self.state {
            State::Waiting(..) => match self.collect(bytes)? {
                None => return Ok(false),
                hello => hello,
            },
            State::Ended(_) => {
                let code = TransportErrorCode::crypto(AlertDescription::UnexpectedMessage.into());
                return Err(failure(code, "a message of TLS after the handshake"));
            }
            State::Begun(_) | State::Failed => None,
        };
        let State::Begun(begun) = &mut self.state else {
            return Err(failure(TransportErrorCode::INTERNAL_ERROR, "no configuration of TLS"));
        };
        let Begun { handshake, connection, .. } = &mut **begun;
        handshake.read(connection, hello.as_deref().unwrap_or(bytes)).map_err(|error| {
            let code = match connection.alert() {
                Some(alert) => TransportErrorCode::crypto(alert.into()),
                None => TransportErrorCode::PROTOCOL_VIOLATION,
            };
            failure(code, &error.to_string())
        })?;
        let is_known = connection.quic_transport_parameters().is_some();
        Ok(is_known && !std::mem::replace(&mut self.is_told, true))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let State::Begun(begun) = &self.state else { return Ok(None) };
        let Some(encoded) = begun.connection.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Server, &mut Cursor::new(encoded))?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let State::Begun(begun) = &mut self.state else { return None };
        let Begun { handshake, connection, next_keys } = &mut **begun;
        let change = handshake.write(connection, out);
        if change.is_none() && out.is_empty() && !connection.is_handshaking() {
            self.end();
            return None;
        }
        let keys = match change? {
            KeyChange::Handshake { keys } => keys,
            KeyChange::OneRtt { keys, next } => {
                *next_keys = Some(next);
                keys
            }
        };
        let (local, remote) = (keys.local, keys.remote);
        Some(Keys {
            header: KeyPair { local: Box::new(local.header), remote: Box::new(remote.header) },
            packet: KeyPair { local: Box::new(local.packet), remote: Box::new(remote.packet) },
        })
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let next_keys = match &mut self.state {
            State::Begun(begun) => begun.next_keys.as_mut(),
            State::Ended(ended) => ended.next_keys.as_mut(),
            State::Waiting(..) | State::Failed => None,
        };
        let keys = next_keys?.next_packet_keys();
        Some(KeyPair { local: Box::new(keys.local), remote: Box::new(keys.remote) })
    }

    /// Only clients receive Retry packets.
    fn is_valid_retry(&self, _original: &ConnectionId, _header: &[u8], _payload: &[u8]) -> bool {
        false
    }

    /// HTTP/3 exports none.
    fn export_keying_material(&self, _: &mut [u8], _: &[u8], _: &[u8]) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

fn failure(code: TransportErrorCode, reason: &str) -> TransportError {
    TransportError { code, frame: None, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsConfig;

    struct NoHandshakes;

    impl Handshakes for NoHandshakes {
        fn needs_client_hello(&self) -> bool {
            false
        }

        fn begin(&self, _hello: Option<&ClientHello<'_>>) -> Option<Box<dyn Handshake>> {
            None
        }
    }

    /// RFC 9001 §6: a KeyUpdate is an error of type 0x010a.
    #[test]
    fn a_message_after_the_handshake_ends_the_connection() {
        let facts = HandshakeFacts { protocol: None, server_name: Some("a.test".into()), result: Arc::default() };
        let ended = Ended { next_keys: None, facts, certificates: None };
        let config = TlsConfig::chosen_by(Arc::new(NoHandshakes)).unwrap().0;
        let mut session = TlsSession { config, state: State::Ended(Box::new(ended)), is_told: true };
        assert!(!session.is_handshaking());
        let key_update = [24, 0, 0, 1, 0];
        assert_eq!(session.read_handshake(&key_update).unwrap_err().code, TransportErrorCode::crypto(10));
        let facts = session.handshake_data().unwrap().downcast::<HandshakeFacts>().unwrap();
        assert_eq!(facts.server_name.as_deref(), Some("a.test"));
    }
}
