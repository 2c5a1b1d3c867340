//! Connections from the client's view: bytes of streams in, bytes out.

mod abuse;
mod control;
mod differential;

mod drain;
mod memory;
mod priorities;
mod requests;
mod responses;
mod splits;
mod support;
mod wire;
