//! Boots Debian's kernels under QEMU, without KVM, with files and programs of this machine. Runs commands there as root
//! and returns their output, exit codes and files.
//!
//! ```text
//! Payload ─► Initramfs (programs, libraries, modules, a plan) ─► Machine (QEMU) ─► init: this very binary as process 1 ─► jobs
//!                    marks among the lines of the second serial port, files as an archive on the third ◄──────────────┘
//! ```
//!
//! A program that boots guests is also their `/init`: its `main` must begin with [`init_if_process_one`].
//!
//! ```no_run
//! use sealion_guest::{Job, Machine, Payload, Series};
//!
//! fn main() -> anyhow::Result<()> {
//!     sealion_guest::init_if_process_one();
//!     let payload = Payload { jobs: vec![Job::shell("uname -r")], ..Payload::default() };
//!     for (series, outcome) in sealion_guest::run_on(&[Series::V6_1], &payload, &Machine::default())? {
//!         println!("{}: {}", series.name(), outcome.jobs[0].output);
//!     }
//!     Ok(())
//! }
//! ```

#![deny(unsafe_code)]

mod apt;
mod cache;
mod cpio;
pub mod follow;
mod init;
mod initramfs;
mod kernels;
mod libraries;
mod machine;
mod modules;
mod payload;
mod protocol;
mod run;
mod sources;
pub mod tools;

pub use cache::output;
pub use kernels::Series;
pub use machine::{JobEnd, Machine, Outcome, Trouble};
pub use payload::Payload;
pub use protocol::Job;
pub use run::{download, run_on};

/// Whether this program runs in a guest, as the guest's first process or as a job of its plan.
pub fn is_inside() -> bool {
    std::path::Path::new(protocol::PLAN_PATH).exists()
}

/// In a guest, where this program is process 1: runs the host's plan, powers off, and does not return. Elsewhere it
/// does nothing. Call it first in `main`.
pub fn init_if_process_one() {
    if std::process::id() == 1 {
        init::run();
    }
}
