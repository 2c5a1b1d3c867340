//! Shared by the tests of this workspace: a TLS client that controls record boundaries, a tap on its received bytes,
//! certificates, and file contents that can be checked at any offset. Also HTTP responses, a client of HTTP/2, upstream
//! servers, a load with verifiable responses, and the server as a process.
//!
//! Errors of the test itself panic with an explanation. Behaviour of the server under test is a [`std::io::Result`] or
//! an [`Event`].

mod client;
mod course;
mod fault;
mod tap;

pub mod content;
pub mod generations;
pub mod http;
pub mod http2;
pub mod ktls;
pub mod pattern;
pub mod pki;
pub mod random;
pub mod server;
pub mod service;
pub mod upstream;
pub mod websocket;

pub use client::receive::{Ending, Event, Received};
pub use client::{Client, Connector, Info, Suite};
pub use course::Course;
pub use fault::Fault;
pub use tap::{SeenRecord, Tap};

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a test waits for anything before it fails: far longer than the largest step of a test takes on an emulated
/// machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Writes a program that can be executed at once.
///
/// Another test may start a process at the same time, which inherits every descriptor that is open for writing. The
/// kernel does not execute a file that is open for writing (`ETXTBSY`, execve(2)). So a separate process writes the
/// file.
///
/// # Panics
///
/// If `install` of coreutils cannot write it.
pub fn write_program(path: &Path, text: &str) {
    let mut install = install(Path::new("/dev/stdin"), path).stdin(Stdio::piped()).spawn().expect("install starts");
    install.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("install reads");
    assert!(install.wait().expect("its status").success(), "{path:?} cannot be written");
}

/// Copies a program so that the copy can be executed at once, as [`write_program`] writes one.
///
/// # Panics
///
/// If `install` of coreutils cannot copy it.
pub fn copy_program(from: &Path, to: &Path) {
    let status = install(from, to).status().expect("install starts");
    assert!(status.success(), "{from:?} cannot be copied to {to:?}");
}

fn install(from: &Path, to: &Path) -> Command {
    let mut install = Command::new("install");
    install.args(["-m", "755"]).arg(from).arg(to);
    install
}
