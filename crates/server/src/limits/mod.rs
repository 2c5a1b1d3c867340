//! What one client, and one site, may take at most.
//!
//! ```text
//! accept ─► addresses: connections of this client ─► handshake ─► request ─► requests: a bucket for this client, on this site ─► slots of the site
//!              too many: closed, counted                                        empty: 429 with Retry-After                      none: 503
//! ```

mod address;
mod addresses;
mod requests;
mod site;

pub use address::ClientNetwork;
pub use addresses::{Addresses, Admitted};
pub use requests::Requests;
pub use site::{Refusal, Share, SiteLimits, SiteLimitsConfig};
