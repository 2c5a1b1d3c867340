//! QUIC (RFC 9000) for a server, without a socket and without a clock: datagrams in, events out; bytes of streams in, datagrams out.
//!
//! ```text
//!  receive(now, datagram) ─► Endpoint ─► next_incoming ─► accept, refuse, retry     driver
//!  handle_timeouts(now)   ─►    │    ─► next_event ─► connection(key) ─► read, write, finish, reset, stop
//!                               └────► poll_transmit(now) ─► batches of datagrams; next_timeout
//! ```
//!
//! A worker has one [`Endpoint`], and sockets of its own that [`Route`] steers datagrams to. The transport is
//! quinn-proto. No type of it appears in this interface, so that another transport can take its place.
//!
//! Duties of a driver:
//! - Hand in one reading of the clock for each round; it must not go back.
//! - Accept, refuse, or retry each [`Incoming`].
//! - After each round, call [`Endpoint::next_event`] until it returns `None`, then [`Endpoint::poll_transmit`] until it
//!   returns `None` or the socket is full, then sleep until [`Endpoint::next_timeout`].
//! - Write little ahead on streams: priorities order the bytes that are written, and no more.
//!
//! The tests in `tests/it` are complete drivers over a network in memory.

#![forbid(unsafe_code)]

mod clock;
mod config;
mod congestion;
mod connection;
mod endpoint;
mod event;
mod route;
mod session;
mod timers;

pub use config::{Limits, Secrets, TlsConfig, UnusableTls};
pub use congestion::Congestion;
pub use connection::{Connection, Read, Statistics, WriteError};
pub use endpoint::{Config, Endpoint, Incoming, MAX_BATCH, Totals};
pub use event::{CloseReason, ConnectionKey, Datagram, Ecn, Event, StreamId, Transmit};
pub use route::{CONNECTION_ID_LEN, Route, SHARES};
pub use session::{Handshake, Handshakes};
