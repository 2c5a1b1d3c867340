//! Removes objects: from the index at once, and their files behind it.

use std::sync::atomic::Ordering;

use super::{Disk, LOCKS, MOST_NOT_SENT, Removals};

impl Disk {
    /// Whether the directory may have an object.
    pub(in crate::store) fn may_have(&self, hash: u128) -> bool {
        self.index.peek(hash).is_some() || !self.is_loaded()
    }

    /// Removes a variant of a URL that has too many.
    pub(in crate::store) fn remove_variant(&self, hash: u128) {
        self.counts.variants_removed.fetch_add(1, Ordering::Relaxed);
        self.remove(hash);
    }

    /// Removes an object. Where another process owns the directory, it is not sent from here, and its file stays.
    pub(in crate::store) fn remove(&self, hash: u128) {
        if !self.is_loaded() {
            let mut removals = self.removals.lock();
            if !self.directory.is_owner() && removals.while_loading.len() >= MOST_NOT_SENT {
                removals.while_loading.clear();
            }
            if !removals.while_loading.insert(hash) {
                self.index.remove(hash);
                return;
            }
        }
        self.index.remove(hash);
        self.remove_later(vec![hash]);
    }

    /// Removes an object that was asked for up to `at`. Does not block: a file that is getting its name right now stays, and is removed when it is found.
    pub(in crate::store) fn remove_older(&self, hash: u128, at: u64) {
        if let Some(latest) = self.latest[hash as usize % LOCKS].try_lock()
            && latest.peek(&hash).is_none_or(|asked| *asked <= at)
        {
            self.remove(hash);
        }
    }

    /// Removes an object whose file may just have got its name, and not its entry yet. May block.
    pub(in crate::store) fn remove_named(&self, hash: u128) {
        let _named = self.latest(hash);
        self.remove(hash);
    }

    /// Whether an object was removed while the index is being loaded, and not stored again.
    pub(super) fn is_removed(&self, hash: u128) -> bool {
        !self.is_loaded() && self.removals.lock().while_loading.contains(&hash)
    }

    pub(in crate::store) fn remove_later(&self, hashes: Vec<u128>) {
        if !hashes.is_empty() {
            self.queue(&mut self.removals.lock(), hashes);
        }
    }

    /// Has files removed that went from the index, if they are this process's.
    pub(super) fn queue(&self, removals: &mut Removals, hashes: Vec<u128>) {
        if !hashes.is_empty() && self.directory.is_owner() {
            removals.hashes.extend(hashes);
            self.has_work.notify_one();
        }
    }

    /// The directory has become this process's. The owner before may have stored new objects in place of the objects that were not to be sent.
    pub(super) fn forget_removed(&self) {
        let mut removals = self.removals.lock();
        removals.while_loading.clear();
        self.index.clear();
    }
}
