//! The HTTP/1.1 driver: bytes of one connection to requests, and responses to bytes.

mod buffer;
pub(crate) mod connection;
pub(crate) mod plain;
mod respond;

use std::future::pending;

use sealion_tls::TlsStream;

use crate::exchange::Error;

/// Waits until the connection is lost while something else is waited for. A client that closed its own direction in order may still read: it
/// is waited for without end.
async fn client_lost(stream: &mut TlsStream) -> Error {
    match stream.peer_gone().await {
        Ok(()) => pending().await,
        Err(error) => error.into(),
    }
}
