//! How often stored responses were replaced or purged: workers compare what they keep in memory with the store when the count has moved.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts by a part of the hash.
#[derive(Debug)]
pub(super) struct Changes([AtomicU64; CHANGES]);

impl Default for Changes {
    fn default() -> Self {
        Changes(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Changes {
    /// A response was replaced or removed.
    pub(super) fn add(&self, hash: u128) {
        self.0[hash as usize % CHANGES].fetch_add(1, Ordering::Release);
    }

    /// Any may have been.
    pub(super) fn add_all(&self) {
        for count in &self.0 {
            count.fetch_add(1, Ordering::Release);
        }
    }

    pub(super) fn of(&self, hash: u128) -> u64 {
        self.0[hash as usize % CHANGES].load(Ordering::Acquire)
    }
}

const CHANGES: usize = 64;
