//! The thread of a disk: it becomes the owner of the directory, loads the index, and removes files.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::super::directory::Scan;
use super::super::snapshot;
use super::{Disk, REMOVALS_AT_ONCE, TAKEOVER, TURN};

impl Disk {
    /// Starts the thread of the disk: it becomes the owner of the directory, loads the index, and removes files.
    pub(in crate::store) fn start(self: &Arc<Self>) -> io::Result<()> {
        self.writer.start()?;
        let disk = Arc::downgrade(self);
        std::thread::Builder::new().name("sealion-cache".to_owned()).spawn(move || {
            loop {
                let Some(disk) = disk.upgrade() else { return };
                if !disk.work() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// One turn of the thread. `false`: the disk is being closed.
    fn work(&self) -> bool {
        if self.hangs() {
            self.try_again();
        }
        if !self.directory.is_owner() {
            match self.directory.try_own() {
                Ok(true) => {
                    // The owner before may have written it, or the directory was replaced.
                    self.changes.doubt_until(self.directory.read_doubt());
                    if self.is_of_another.swap(false, Ordering::Relaxed) {
                        self.forget_removed();
                    }
                }
                Ok(false) => {
                    self.is_of_another.store(true, Ordering::Relaxed);
                    // While one process takes over from another, that is usual.
                    if self.begun.elapsed() > TAKEOVER && !self.is_told.swap(true, Ordering::Relaxed) {
                        let path = self.directory.path.display();
                        tracing::warn!(
                            "cache {path}: another process uses the directory: nothing is stored here until that one ends"
                        );
                    }
                }
                Err(error) => self.cannot_take_over(&error),
            }
        }
        if self.directory.is_owner() && !self.hangs() && !self.is_paused() {
            self.write_doubt();
        }
        if self.directory.is_owner() && !self.is_loaded() && !self.is_paused() {
            self.load();
        }
        if !self.directory.is_in_place() {
            self.reopen();
            return !self.is_stopping();
        }
        self.keep_room();
        let mut removals = self.removals.lock();
        if removals.is_left {
            // It became the owner meanwhile, and would keep the next process out.
            drop(removals);
            if let Err(error) = self.directory.disown(false) {
                self.failed("close", &error);
            }
            return false;
        }
        if removals.hashes.is_empty() && !removals.is_stopping {
            removals = self.has_work.wait_timeout(removals, TURN).unwrap_or_else(PoisonError::into_inner).0;
        }
        if removals.is_stopping {
            return false;
        }
        let hashes = std::mem::take(&mut removals.hashes);
        self.is_removing.store(!hashes.is_empty(), Ordering::Relaxed);
        drop(removals);
        for (n, hash) in hashes.iter().enumerate() {
            let alone = self.latest(*hash);
            // An object that was stored again meanwhile stays.
            if self.index.peek(*hash).is_none()
                && let Some(owned) = self.directory.owned()
                && let Err(error) = owned.remove(*hash)
            {
                self.failed("remove an object", &error);
            }
            drop(alone);
            // Removing many files at once holds up everything else that the file system does.
            if n % REMOVALS_AT_ONCE == REMOVALS_AT_ONCE - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.is_removing.store(false, Ordering::Relaxed);
        true
    }

    /// The directory was removed, emptied or replaced: opens the directory at its path now.
    fn reopen(&self) {
        if let Err(error) = self.directory.reopen() {
            self.failed("find the directory again", &error);
            // At the next turn.
            std::thread::sleep(TURN);
            return;
        }
        tracing::warn!(
            "cache {}: the directory was removed, emptied or replaced; it begins again",
            self.directory.path.display()
        );
        self.is_loaded.store(false, Ordering::Release);
        self.index.clear();
        // The objects that workers keep in memory were removed too.
        self.changes.add_all();
        self.paused_until.store(0, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.removals.lock().is_stopping
    }

    /// Fills the index: from the snapshot of an orderly stop, otherwise from the directory itself. After a failure, a later turn tries again.
    pub(super) fn load(&self) {
        if !self.load_snapshot() {
            let scanned = self.directory.scan(|hash, length| {
                self.add_found(hash, length);
                !self.is_stopping()
            });
            match scanned {
                Ok(Scan::Complete) => {}
                Ok(Scan::Stopped) => return,
                Err(error) => return self.failed("read the directory", &error),
            }
        }
        self.is_loaded.store(true, Ordering::Release);
        self.removals.lock().while_loading = HashSet::new();
        let (objects, octets) = (self.index.len(), self.index.octets());
        tracing::info!("cache {}: {objects} objects, {} MB", self.directory.path.display(), octets / 1_000_000);
    }

    /// Fills the index from the snapshot, if there is a whole one.
    fn load_snapshot(&self) -> bool {
        let reserve = |rows| self.index.reserve(rows);
        let add = |hash, blocks| self.add_found(hash, u64::from(blocks) * 4096);
        snapshot::read(&self.directory, reserve, add).unwrap_or_else(|error| {
            self.failed("read the snapshot", &error);
            false
        })
    }

    /// Writes the snapshot and leaves the directory to the next process.
    pub(in crate::store) fn close(&self, is_clean: bool) {
        self.writer.stop();
        let _all_named = self.naming.write().unwrap_or_else(PoisonError::into_inner);
        let mut removals = self.removals.lock();
        if std::mem::replace(&mut removals.is_stopping, true) {
            return;
        }
        removals.is_left = !self.directory.is_owner();
        let left = std::mem::take(&mut removals.hashes);
        drop(removals);
        self.has_work.notify_all();
        let Some(owned) = self.directory.owned() else { return };
        self.write_doubt();
        for hash in left {
            if self.index.peek(hash).is_none() {
                let _ = owned.remove(hash);
            }
        }
        // Files that the thread has not come to would never be found: without a snapshot, the next process reads the directory.
        let is_whole = self.is_loaded() && !self.is_removing.load(Ordering::Relaxed);
        if is_whole {
            let objects = self.index.iter().map(|(hash, blocks)| (hash, blocks.number()));
            if let Err(error) = snapshot::write(&self.directory, self.index.len(), objects) {
                self.failed("write the snapshot", &error);
            }
        }
        if let Err(error) = self.directory.disown(is_clean) {
            self.failed("close", &error);
        }
    }
}
