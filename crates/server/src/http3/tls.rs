//! Handshakes over QUIC, by the certificates of the current generation.

use std::any::Any;
use std::sync::{Arc, Weak};

use rustls::quic::{KeyChange, ServerConnection};
use rustls::server::ClientHello;
use sealion_quic::{Handshake, Handshakes};
use sealion_tls::{QuicHandshake, ServerConfig};

use crate::exchange::Shared;

/// The certificates and client authentication of the current generation.
pub(super) struct CurrentTls {
    pub(super) shared: Weak<Shared>,
    /// The place of the listener.
    pub(super) listener: usize,
}

impl CurrentTls {
    fn config(&self) -> Option<Arc<ServerConfig>> {
        self.shared.upgrade()?.generations.current().tls.quic(self.listener).cloned()
    }
}

impl Handshakes for CurrentTls {
    fn needs_client_hello(&self) -> bool {
        self.config().is_some_and(|config| config.needs_client_hello())
    }

    fn begin(&self, hello: Option<&ClientHello<'_>>) -> Option<Box<dyn Handshake>> {
        Some(Box::new(OneHandshake(self.config()?.begin_quic(hello))))
    }
}

struct OneHandshake(QuicHandshake);

impl Handshake for OneHandshake {
    fn config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(self.0.rustls())
    }

    fn read(&mut self, connection: &mut ServerConnection, bytes: &[u8]) -> Result<(), rustls::Error> {
        self.0.read(connection, bytes)
    }

    fn write(&mut self, connection: &mut ServerConnection, out: &mut Vec<u8>) -> Option<KeyChange> {
        self.0.write(connection, out)
    }

    fn result(&self, connection: &ServerConnection) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(self.0.info(connection)?))
    }
}
