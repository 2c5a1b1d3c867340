//! HTTP/1.1 message syntax (RFC 9112).

pub mod body;
pub mod framing;
pub mod head;
pub mod write;
