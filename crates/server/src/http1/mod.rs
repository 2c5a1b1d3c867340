//! The HTTP/1.1 driver: reads requests from a connection and writes responses to it.

mod buffer;
pub(crate) mod connection;
mod content;
mod receive;
mod respond;
mod stream;
mod under_way;

use sealion_http::Method;

/// The method of a request that cannot be read, for the framing of the refusal. Empty lines before a request do not count (RFC 9112 §2.2).
fn guess_method(mut bytes: &[u8]) -> Method<'static> {
    while let Some(rest) = bytes.strip_prefix(b"\r\n") {
        bytes = rest;
    }
    if bytes.starts_with(b"HEAD ") { Method::Head } else { Method::Get }
}
