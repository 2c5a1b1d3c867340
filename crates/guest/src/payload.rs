//! The files and the jobs of a guest.

use std::path::PathBuf;

use crate::protocol::Job;

/// Files and jobs of a guest, the same for every kernel. Every guest also has busybox, and Debian 12's nginx at its
/// original path.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    /// Run one after another as root, even after a failure.
    pub jobs: Vec<Job>,
    /// Environment of every job, besides PATH, HOME, LANG, TERM, and `SEALION_KERNEL` with the kernel's series.
    pub environment: Vec<(String, String)>,
    /// Programs, found in PATH and copied to the same paths with their libraries.
    pub programs: Vec<String>,
    /// Programs, files and directories of this machine, copied to the same paths; programs with their libraries.
    pub include: Vec<PathBuf>,
    /// Files with their content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Directories that must exist.
    pub directories: Vec<PathBuf>,
    /// A directory whose files are copied into [`Outcome::files`](crate::Outcome::files) after the last job.
    pub bring_back: Option<PathBuf>,
}
