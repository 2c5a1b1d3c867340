//! The program that an upgrade starts.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The command line of this process, so that an upgrade can start a replaced binary in the same way.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(super) path: PathBuf,
    pub(super) name: OsString,
    pub(super) arguments: Vec<OsString>,
}

impl Program {
    /// Call it at the start, before the binary may be replaced. Symbolic links in the path are kept, so that an upgrade follows a link
    /// that has changed.
    pub(crate) fn of_this_process() -> Self {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_default();
        Self { path: find_program(&name), name, arguments: arguments.collect() }
    }

    /// The binary that an upgrade starts.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The file of this process by the name it was started with, so that links are kept; else from /proc. Without /proc, as in a bare
/// chroot, the name is not checked.
fn find_program(name: &OsString) -> PathBuf {
    let running = std::fs::metadata("/proc/self/exe").ok().map(|running| (running.dev(), running.ino()));
    let is_this = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| running.is_none_or(|running| running == (found.dev(), found.ino())))
    };
    let named = if Path::new(name).components().count() > 1 {
        std::path::absolute(name).ok().filter(is_this)
    } else {
        let directories = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&directories).map(|directory| directory.join(name)).find(is_this)
    };
    named.or_else(|| env::current_exe().ok()).unwrap_or_else(|| name.into())
}
