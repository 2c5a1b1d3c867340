//! Stored responses that a worker was asked for lately: a hit takes no lock, no hash of the whole store and no system call.

use std::collections::HashSet;
use std::sync::Arc;

use http::HeaderName;
use lru::LruCache;

use super::key::Key;
use super::object::{Object, Stored};

/// The objects of a worker.
#[derive(Debug)]
pub(super) struct Front {
    entries: LruCache<Box<[u8]>, Entry>,
    memory: usize,
    /// The keys of entries that hold a file.
    files: HashSet<Box<[u8]>>,
    most_memory: usize,
    most_open: usize,
    /// Room for a key.
    pub(super) key: Key,
}

#[derive(Debug)]
struct Entry {
    stored: Stored,
    /// The hash of its key.
    hash: u128,
    /// The state of changes when the entry was last compared with the store.
    epoch: u64,
    /// The second in which the store last heard that it is asked for.
    touched: u64,
}

/// What the worker has under a key.
pub(super) enum Kept {
    Object {
        object: Arc<Object>,
        /// Whether the store has changed since: the object may have been replaced.
        is_old: bool,
        /// Whether the store should hear that it is asked for.
        touches: bool,
    },
    Variants {
        names: Arc<[HeaderName]>,
        is_old: bool,
    },
}

impl Front {
    pub(super) fn new(most_memory: usize, most_open: usize) -> Self {
        Front {
            entries: LruCache::unbounded(),
            memory: 0,
            files: HashSet::new(),
            most_memory,
            most_open,
            key: Key::default(),
        }
    }

    /// `now`: in seconds. `epoch`: gives the state of changes of an object.
    pub(super) fn get(&mut self, key: &[u8], now: u64, epoch: impl Fn(u128) -> u64) -> Option<Kept> {
        let entry = self.entries.get_mut(key)?;
        let is_old = entry.epoch != epoch(entry.hash);
        match &entry.stored {
            Stored::Variants(names) => Some(Kept::Variants { names: Arc::clone(names), is_old }),
            Stored::Object(object) => Some(Kept::Object {
                object: Arc::clone(object),
                is_old,
                touches: std::mem::replace(&mut entry.touched, now) != now,
            }),
        }
    }

    /// The object of a key is that of the store still.
    pub(super) fn confirm(&mut self, key: &[u8], epoch: u64) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.epoch = epoch;
        }
    }

    pub(super) fn keep(&mut self, key: &[u8], hash: u128, stored: Stored, epoch: u64, now: u64) {
        self.remove(key);
        self.memory += memory(key, &stored);
        if matches!(&stored, Stored::Object(object) if object.is_open()) {
            self.files.insert(key.into());
        }
        self.entries.put(key.into(), Entry { stored, hash, epoch, touched: now });
        while self.memory > self.most_memory || self.files.len() > self.most_open {
            let Some((key, oldest)) = self.entries.pop_lru() else { return };
            self.forget(&key, &oldest);
        }
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some((key, entry)) = self.entries.pop_entry(key) {
            self.forget(&key, &entry);
        }
    }

    /// Closes files that were deleted.
    pub(super) fn sweep(&mut self) {
        let is_deleted = |key: &[u8]| match self.entries.peek(key).map(|entry| &entry.stored) {
            Some(Stored::Object(object)) => object.is_deleted(),
            _ => false,
        };
        let deleted: Vec<_> = self.files.iter().filter(|key| is_deleted(key)).cloned().collect();
        for key in deleted {
            self.remove(&key);
        }
    }

    fn forget(&mut self, key: &[u8], entry: &Entry) {
        self.memory -= memory(key, &entry.stored);
        self.files.remove(key);
    }
}

/// Octets of memory that an entry takes.
fn memory(key: &[u8], stored: &Stored) -> usize {
    let memory = match stored {
        Stored::Object(object) => object.memory(),
        Stored::Variants(names) => names.len() * size_of::<HeaderName>(),
    };
    memory + key.len() + OVERHEAD
}

/// GUESS: an entry's place in the map and the list, and its allocations.
const OVERHEAD: usize = 200;
