//! What goes into a guest and what runs there.

use std::path::PathBuf;

use crate::protocol::Job;

/// What a guest gets and does, whatever its kernel. Every guest also has busybox, and Debian 12's nginx at its own path.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    /// Run one after another as root, also when one fails.
    pub jobs: Vec<Job>,
    /// Variables of every job's environment, besides PATH, HOME, LANG, TERM and `SEALION_KERNEL`, the kernel's series.
    pub environment: Vec<(String, String)>,
    /// Programs, looked up in PATH, that go to their own paths with their libraries.
    pub programs: Vec<String>,
    /// Programs, files and directories of this machine that go to their own paths, programs with their libraries.
    pub include: Vec<PathBuf>,
    /// Files with their content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Directories that must exist.
    pub directories: Vec<PathBuf>,
    /// A directory whose files are brought back into [`Outcome::files`](crate::Outcome::files) after the last job.
    pub bring_back: Option<PathBuf>,
}
