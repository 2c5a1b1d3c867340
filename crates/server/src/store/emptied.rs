//! Notices that directories of objects are removed by hand, as operators do to purge the cache of another server.

use std::io;

use rustix::fd::OwnedFd;
use rustix::fs::{Dir, Stat};
use rustix::io::Errno;

use super::directory::{OUTER, hex};
use crate::values::Mutex;

/// The directories of objects in a [`Place`](super::directory::Place), as they were seen last. The server makes them, and removes none.
#[derive(Debug, Default)]
pub(super) struct OuterDirectories(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// When the directory around them had last changed.
    changed: (i64, i64),
    count: usize,
}

impl OuterDirectories {
    /// Makes one by `mkdir`, and counts it: it may be removed before anything else counts.
    pub(super) fn make(&self, mkdir: impl FnOnce() -> Result<(), Errno>) -> io::Result<()> {
        let mut seen = self.0.lock();
        match mkdir() {
            Ok(()) => seen.count += 1,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    /// Whether there are fewer than before. Counts them if `root` has changed; `stat`: its state.
    pub(super) fn lost_some(&self, root: &OwnedFd, stat: &Stat) -> bool {
        let changed = (stat.st_mtime, stat.st_mtime_nsec as i64);
        // None is made meanwhile.
        let mut seen = self.0.lock();
        if seen.changed == changed {
            return false;
        }
        let Ok(count) = count(root) else { return false };
        let before = std::mem::replace(&mut *seen, Seen { changed, count });
        count < before.count
    }
}

fn count(root: &OwnedFd) -> io::Result<usize> {
    let mut count = 0;
    for entry in Dir::read_from(root)? {
        count += usize::from(hex(entry?.file_name().to_bytes(), OUTER).is_some());
    }
    Ok(count)
}
