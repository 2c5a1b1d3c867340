//! Counters of a connection and of a thread's connections.

use std::sync::atomic::{AtomicU64, Ordering};

use super::SealedBy;
use crate::AlertDescription;

/// The counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// KeyUpdates sent.
    pub key_updates_sent: u32,
    /// KeyUpdates received.
    pub key_updates_received: u32,
    /// The alert that this side sent.
    pub alert_sent: Option<AlertDescription>,
    /// The last alert received.
    pub alert_received: Option<AlertDescription>,
}

/// Response bytes that the connections of one thread have sent, by path. Only that thread adds; any thread may read.
#[derive(Debug, Default)]
pub struct Progress {
    plain: AtomicU64,
    user: AtomicU64,
    kernel: AtomicU64,
}

impl Progress {
    /// Bytes that this path has sent.
    pub fn sent(&self, path: SealedBy) -> u64 {
        self.of(path).load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, path: SealedBy, bytes: u64) {
        let counter = self.of(path);
        // Only one thread adds, so a plain store suffices, which costs no bus lock.
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }

    fn of(&self, path: SealedBy) -> &AtomicU64 {
        match path {
            SealedBy::Nobody => &self.plain,
            SealedBy::User => &self.user,
            SealedBy::Kernel => &self.kernel,
        }
    }
}
