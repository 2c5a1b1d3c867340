//! HTTP/1.1 messages (RFC 9112).

pub mod body;
pub mod framing;
pub mod head;
pub mod write;
