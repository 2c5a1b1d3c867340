//! Connections from the client's view: frames in, frames out.

mod abuse;
mod content;
mod differential;
mod drain;
mod memory;
mod priorities;
mod rest;
mod splits;
mod streams;
mod support;
mod windows;
