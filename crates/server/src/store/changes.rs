//! Changes that all disks and workers of a store must notice: responses that were replaced or purged, and responses that are doubted.
//!
//! Workers compare their entries in memory with the store when the count has moved.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts by a part of the hash, and the doubt of all disks.
#[derive(Debug)]
pub(super) struct Changes {
    counts: [AtomicU64; CHANGES],
    /// Responses that were asked for up to then are validated before they are sent again, whichever disk has them: the list of the variants of a URL may lie on
    /// another disk than a variant.
    doubted_until: AtomicU64,
    /// Directories that are not used at the moment: they hang, or are missing.
    unused: AtomicUsize,
}

impl Default for Changes {
    fn default() -> Self {
        Changes {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            doubted_until: AtomicU64::new(0),
            unused: AtomicUsize::new(0),
        }
    }
}

impl Changes {
    /// A response was replaced or removed.
    pub(super) fn add(&self, hash: u128) {
        self.counts[hash as usize % CHANGES].fetch_add(1, Ordering::Release);
    }

    /// Any may have been.
    pub(super) fn add_all(&self) {
        for count in &self.counts {
            count.fetch_add(1, Ordering::Release);
        }
    }

    pub(super) fn of(&self, hash: u128) -> u64 {
        self.counts[hash as usize % CHANGES].load(Ordering::Acquire)
    }

    /// Responses may have been withdrawn while a disk that has them, or the list of them, was not used.
    pub(super) fn doubt_until(&self, at: u64) {
        if self.doubted_until.fetch_max(at, Ordering::AcqRel) < at {
            self.add_all();
        }
    }

    pub(super) fn doubted_until(&self) -> u64 {
        self.doubted_until.load(Ordering::Acquire)
    }

    /// A directory is not used from now on.
    pub(super) fn begin_without(&self) {
        self.unused.fetch_add(1, Ordering::AcqRel);
    }

    /// A directory is used again: responses that were requested before `at` are doubted.
    pub(super) fn end_without(&self, at: u64) {
        self.doubt_until(at);
        self.unused.fetch_sub(1, Ordering::AcqRel);
    }

    /// The time to write for the next start, while the directory is in use: objects requested up to then are doubted.
    pub(super) fn doubt_of_next_start(&self) -> u64 {
        match self.unused.load(Ordering::Acquire) {
            0 => self.doubted_until(),
            // A process that is killed cannot say until when.
            _ => u64::MAX,
        }
    }
}

const CHANGES: usize = 64;
