//! The HTTP/1.1 driver: reads requests from a connection and writes responses to it.

mod buffer;
pub(crate) mod connection;
pub(crate) mod plain;
mod respond;

use std::future::pending;

use sealion_http::Method;
use sealion_tls::TlsStream;

use crate::exchange::Error;

/// Completes when the connection is lost; for use beside another wait. Never completes if the client closed its own direction
/// in order, since it may still read.
async fn client_lost(stream: &mut TlsStream) -> Error {
    match stream.peer_gone().await {
        Ok(()) | Err(sealion_tls::Error::Truncated) => pending().await,
        Err(error) => error.into(),
    }
}

/// The method of a request that cannot be read, for the framing of the refusal. Empty lines before a request do not count (RFC 9112 §2.2).
fn guess_method(mut bytes: &[u8]) -> Method<'static> {
    while let Some(rest) = bytes.strip_prefix(b"\r\n") {
        bytes = rest;
    }
    if bytes.starts_with(b"HEAD ") { Method::Head } else { Method::Get }
}
