//! Load: the plan of the clients, their connections, and the outcome.

mod beside;
mod connection;
mod failure;
mod handshake;
mod held;
mod http2;
mod http3;
mod http3_client;
mod outcome;
mod plan;
mod qpack;
mod quic;
mod receiving;
mod requests;
mod response_head;
mod run;
mod schedule;
mod socket;
mod tally;
mod tls_client;
mod worker;

pub use beside::run_beside;
pub use held::hold;
pub use outcome::{Failures, Outcome};
pub use plan::{Arrival, Extent, LoadPlan, Popularity, Protocol, Read, Suite};
pub(crate) use requests::file_number;
pub use run::{Progress, run, run_watched};
