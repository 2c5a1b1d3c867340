//! An HTTPS server for files that lets the kernel seal the records when that is cheaper.
//!
//! The wings, from top to bottom; each uses those below it:
//!
//! ```text
//! commands ─► process ─► monitor ─► config ─► listen ─► http1 ─► exchange ─► site ─► response ─► files
//!                                                                                        │
//!                                                    limits, certificates, path, observe ◄┘ ─► values
//! ```
//!
//! ARCHITECTURE.md has the way of a request, file by file.

mod certificates;
mod commands;
mod config;
mod exchange;
mod files;
mod http1;
mod limits;
mod listen;
mod monitor;
mod observe;
pub mod path;
mod process;
mod response;
mod site;
mod values;

pub use commands::main;
