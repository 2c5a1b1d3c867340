//! WebSocket handshakes: the client's side over HTTP/2, and the upstream's side over HTTP/1.1.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::http2::{block, literal};
use crate::upstream::Received;

/// The header block of CONNECT with a protocol (RFC 8441 §4), and these fields.
pub fn connect_block(path: &str, protocol: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut all = block("CONNECT", path, &[]);
    literal(&mut all, ":protocol", protocol);
    for (name, value) in [("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat")].iter().chain(fields) {
        literal(&mut all, name, value);
    }
    all
}

/// The value of Sec-WebSocket-Accept in the response to a handshake (RFC 6455 §4.2.2).
///
/// # Panics
/// The request has no key.
pub fn accept_of(request: &Received) -> String {
    let seed = format!("{}258EAFA5-E914-47DA-95CA-C5AB0DC85B11", request.field("sec-websocket-key"));
    STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, seed.as_bytes()))
}

/// The upstream's response to a handshake.
///
/// # Panics
/// The request has no key.
pub fn switch(request: &Received) -> String {
    let accept = accept_of(request);
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\
         Sec-WebSocket-Protocol: chat\r\n\r\n"
    )
}
