//! Limits per client and per site. A semaphore limits the total number of connections (`Shared::slots`). When it has no
//! permits, the longest idle connection is closed (`idle.rs`).
//!
//! ```text
//! accept ─► addresses: connections of this client ─► handshake ─► request ─► requests: a bucket for this client, on this site ─► slots of the site
//!              too many: closed, counted                                        empty: 429 with Retry-After                      none: 503
//! ```
//!
//! Contents that wait for a slow side share memory (`buffered.rs`). HTTP/2 streams share places for the descriptors that they hold (`streams.rs`). Buckets of
//! the site and of the client pace the content of responses (`bandwidth.rs`); TCP paces each connection.

mod address;
mod addresses;
mod bandwidth;
mod buffered;
mod concurrent;
mod config;
mod idle;
mod requests;
mod site;
mod streams;

pub(crate) use address::ClientNetwork;
pub(crate) use addresses::{Addresses, Admitted};
pub(crate) use bandwidth::Pace;
pub(crate) use buffered::{BufferBudget, NoRoom, Part, Reservation};
pub(crate) use concurrent::Place;
pub(crate) use config::LimitsConfig;
pub(crate) use idle::{Closing, Idle, IdleConnections, Moment};
pub(crate) use site::{PacingRate, Permit, Refusal, SiteLimits, SiteLimitsConfig, Zones};
pub(crate) use streams::{ConnectionStreams, StreamPlace, StreamPlaces};
