//! Handshakes over QUIC. Another crate has the transport and drives rustls; certificates, tickets and client authentication are the same as over TCP.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustls::quic::{KeyChange, ServerConnection};
use rustls::server::ClientHello;

use super::callbacks::CallbackState;
use super::config::{Policy, ServerConfig};
use super::{HandshakeInfo, is_full, secrets};

/// A handshake over QUIC.
pub struct QuicHandshake {
    policy: Policy,
    callbacks: CallbackState,
}

impl ServerConfig {
    /// Whether [`begin_quic`](Self::begin_quic) needs the ClientHello.
    pub fn needs_client_hello(&self) -> bool {
        self.only_policy().is_none()
    }

    /// Begins the handshake of a client. `hello`: its ClientHello, if it could be parsed.
    ///
    /// Nothing waits for a certificate that has to be obtained: without one at hand, the client gets a certificate for another name, and falls
    /// back to TCP.
    pub fn begin_quic(&self, hello: Option<&ClientHello<'_>>) -> QuicHandshake {
        let mut callbacks = CallbackState::default();
        if let Some((source, name)) = hello.and_then(|hello| self.source(hello)) {
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(Ok(certificate)) = pin!(source.certificate(&name, None)).poll(&mut cx) {
                callbacks.obtained = Some(certificate);
            }
        }
        QuicHandshake { policy: self.policy(hello).clone(), callbacks }
    }
}

impl QuicHandshake {
    /// The configuration for the client.
    pub fn rustls(&self) -> &Arc<rustls::ServerConfig> {
        &self.policy.rustls
    }

    /// Has rustls read bytes of the client.
    ///
    /// # Errors
    /// The handshake failed.
    pub fn read(&mut self, connection: &mut ServerConnection, bytes: &[u8]) -> Result<(), rustls::Error> {
        self.forget_ticket(connection);
        self.callbacks.during(|| connection.read_hs(bytes))
    }

    /// Has rustls write bytes for the client.
    pub fn write(&mut self, connection: &mut ServerConnection, out: &mut Vec<u8>) -> Option<KeyChange> {
        self.forget_ticket(connection);
        self.callbacks.during(|| connection.write_hs(out))
    }

    /// A ticket may have been opened, but rustls did not resume its session.
    fn forget_ticket(&mut self, connection: &ServerConnection) {
        if is_full(connection) {
            self.callbacks.opened_ticket = None;
        }
    }

    /// The result of the handshake. `None`: it has not ended.
    pub fn info(&self, connection: &ServerConnection) -> Option<HandshakeInfo> {
        if connection.is_handshaking() {
            return None;
        }
        Some(HandshakeInfo {
            server_name: self.callbacks.server_name.clone(),
            client_auth: self.policy.client_auth,
            ..secrets::info(connection).ok()?
        })
    }
}
