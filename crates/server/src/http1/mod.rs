//! HTTP/1.1 messages (RFC 9112).

pub mod body;
pub(crate) mod connection;
pub mod head;
pub(crate) mod plain;
pub mod write;
