//! HTTP/2 (RFC 9113) over an established TLS connection. The protocol itself is in `crates/h2`; here it meets the socket, the sites and the
//! clock.
//!
//! ```text
//!            ┌──────────────────────── connection/ ─────────────────────────┐
//! records ─► │ Event::Request ─► request.rs: answer, or wait ─► response.rs  │ ─► batch.rs: one send for frames of several streams
//!            └────────────────────────────────────────────────────────────────┘
//! ```

mod batch;
mod config;
pub(crate) mod connection;
mod content;
mod request;
mod response;

pub(crate) use config::Http2Config;
