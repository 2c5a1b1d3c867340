//! HTTP/3 (RFC 9114) over UDP. The protocols themselves are in `crates/quic` and `crates/h3`; here they meet the socket, the sites and the clock.
//!
//! ```text
//! UDP socket ─► endpoint.rs: one task for a socket and all its connections ─► UDP socket: batches by GSO
//!                   │ events of a connection                 ▲ bytes of streams
//!                   ▼                                        │
//!               connection/: requests ─► exchange ─► response.rs
//! ```
//!
//! Each connection is a future, so that it can borrow its context; the task of the socket polls it when it has events, or when a response of its
//! own is ready.

mod config;
mod connection;
mod content;
mod endpoint;
mod failure;
mod link;
mod response;
mod tls;
mod window;

pub(crate) use config::Http3Config;
pub(crate) use endpoint::{Bound, serve};
