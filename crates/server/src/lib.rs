//! An HTTPS server of files and a caching reverse proxy, which lets the kernel seal TLS records where that is cheaper.
//!
//! The modules, from top to bottom; each uses only modules below it:
//!
//! ```text
//! commands ─► process ─► monitor ─► config ─► listen ─► http1, http2 ─► exchange ─► site ─► placeholders, store ─► upstream ─► response ─► files
//!                                                                                                                       │
//!                                                                          passing, limits, certificates, path, observe ◄┘ ─► fetch, values
//! ```
//!
//! ARCHITECTURE.md follows a request through them, file by file.

mod certificates;
mod commands;
mod config;
mod exchange;
mod fetch;
mod files;
#[cfg(fuzzing)]
pub mod fuzz;
#[cfg(any(test, fuzzing))]
mod guarded;
mod http1;
mod http2;
mod http3;
mod in_box;
mod limits;
mod listen;
mod monitor;
mod observe;
mod passing;
pub mod path;
mod placeholders;
mod process;
mod response;
mod site;
mod store;
mod tls_client;
mod upstream;
mod values;

pub use commands::main;
pub use config::reference;
