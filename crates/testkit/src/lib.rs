//! Shared by the tests of this workspace: a TLS client that controls record boundaries, a tap on
//! what it receives, certificates, file contents that can be checked at any offset, HTTP responses,
//! and the server as a process.
//!
//! Errors of the test itself panic with an explanation. Behaviour of the server under test is a [`std::io::Result`] or
//! an [`Event`].

mod client;
mod tap;

pub mod http;
pub mod ktls;
pub mod pattern;
pub mod pki;
pub mod server;

pub use client::receive::{Ending, Event, Received};
pub use client::{Client, Connector, Info, Suite};
pub use tap::{SeenRecord, Tap};

use std::time::Duration;

/// How long a test waits for anything before it fails. Far longer than an emulated machine needs for the largest step
/// of a test.
pub const PATIENCE: Duration = Duration::from_secs(30);
