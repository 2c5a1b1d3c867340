//! Connections pass to the process that has taken over, so that an upgrade ends none of them: idle connections, and connections with exchanges in progress. An
//! exchange that an upstream feeds goes on by a relay.
//!
//! ```text
//! old process        connection ─► freeze ─► OFFER, socket ─┐                    ┌─► TAKEN: its keys are wiped, its socket is closed
//!                                                           ▼                    │   REFUSED: it is thawed, and ends with its next response
//! new process                                     find listener, place, worker ──┤
//!                                                                                └─► TAKEN sent: thaw ─► serve
//! ```
//!
//! Exactly one process seals records of a connection. The old one has nothing but the frozen value from OFFER on, and thaws it only after a refusal, or when it is
//! certain that no TAKEN was sent. The new one reads and seals only after TAKEN was sent.
//!
//! Both talk over a Unix socket pair of their own, one offer at a time. When the new process is replaced too, its end goes to the next one.

mod baggage;
mod clock;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod giver;
pub(crate) mod packets;
mod relay;
mod taker;
mod under_way;
mod words;

pub(crate) use baggage::{Baggage, Passes};
pub(crate) use giver::{Giver, Offered, Turn, TurnWait};
pub(crate) use relay::{Ends, LONGEST_PACKET, LONGEST_PIECE, Link, Packet, RelayedHead, Word, lost, unexpected};
pub(crate) use taker::{Arrival, Taking};
pub(crate) use under_way::{
    Cache, ContentEnd, ContentForm, ContentUnderWay, Files, Line, MOST_FILES, Relayed, Segment, Stage, StreamUnderWay,
    Streams, UnderWay, Upstream,
};
pub(crate) use words::{Driver, Refused, Resting};

#[cfg(fuzzing)]
pub(crate) use fuzz::{offer as fuzz_offer, packet as fuzz_packet};

#[cfg(test)]
mod tests;
