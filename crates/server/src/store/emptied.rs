//! Notices that directories of objects are removed by hand, as operators do to purge the cache of another server.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fd::OwnedFd;
use rustix::fs::{Dir, Stat};

use super::directory::{OUTER, hex};

/// The directories of objects, as they were seen last. The server makes them, and removes none.
#[derive(Debug, Default)]
pub(super) struct OuterDirectories(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// When the directory around them had last changed.
    changed: (i64, i64),
    count: usize,
}

impl OuterDirectories {
    /// Whether there are fewer than before. Counts them if `root` has changed; `stat`: its state.
    pub(super) fn lost_some(&self, root: &OwnedFd, stat: &Stat) -> bool {
        let changed = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
        if self.seen().changed == changed {
            return false;
        }
        let Ok(count) = count(root) else { return false };
        let before = std::mem::replace(&mut *self.seen(), Seen { changed, count });
        count < before.count
    }

    /// They are others from now on.
    pub(super) fn forget(&self) {
        *self.seen() = Seen::default();
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(root: &OwnedFd) -> io::Result<usize> {
    let mut count = 0;
    for entry in Dir::read_from(root)? {
        count += usize::from(hex(entry?.file_name().to_bytes(), OUTER).is_some());
    }
    Ok(count)
}
