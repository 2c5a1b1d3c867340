//! A server's endpoint and clients of quinn-proto over a network in memory, with its own clock.

mod abuse;
mod connections;
mod interop;
mod network;
mod routes;
mod streams;
