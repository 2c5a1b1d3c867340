//! The counters of a disk, and their metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::Disk;

/// Events since the start.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) stored: AtomicU64,
    /// Removed to make room.
    pub(super) evicted: AtomicU64,
    pub(super) failures: AtomicU64,
    /// Removed because their URL had too many.
    pub(super) variants_removed: AtomicU64,
    /// Responses in slices that changed while they were fetched.
    pub(super) slices_changed: AtomicU64,
    /// Responses that came faster than they were written.
    pub(super) dropped: AtomicU64,
}

/// A disk as metrics show it.
#[derive(Debug, Default)]
pub(crate) struct DiskState {
    pub(crate) directory: String,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) is_up: bool,
    /// Whether the files of purged objects are being removed.
    pub(crate) is_swept: bool,
    pub(crate) stored: u64,
    pub(crate) evicted: u64,
    pub(crate) failures: u64,
    pub(crate) variants_removed: u64,
    pub(crate) slices_changed: u64,
    pub(crate) dropped: u64,
}

impl Disk {
    pub(super) fn state(&self) -> DiskState {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DiskState {
            directory: self.directory.path.display().to_string(),
            objects: self.index.len(),
            bytes: self.index.octets(),
            index_bytes: self.index.memory(),
            is_up: self.directory.is_owner()
                && !self.hangs()
                && self.room.is_enough()
                && self.now() >= self.paused_until.load(Ordering::Relaxed),
            is_swept: self.sweeps.is_running(),
            stored: count(&self.counts.stored),
            evicted: count(&self.counts.evicted),
            failures: count(&self.counts.failures),
            variants_removed: count(&self.counts.variants_removed),
            slices_changed: count(&self.counts.slices_changed),
            dropped: count(&self.counts.dropped),
        }
    }
}
