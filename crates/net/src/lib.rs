//! UDP sockets of a server: batches by GSO and GRO, local addresses, ECN, and steering by connection ID.
//!
//! The sockets do not block. [`UdpSocket`] makes its system calls through quinn-udp, [`Steering`] through nix.

#![forbid(unsafe_code)]

mod steering;
mod udp;

pub use steering::Steering;
pub use udp::{Batch, Group, ReceiveBuffers, Received, UdpOptions, UdpSocket};
