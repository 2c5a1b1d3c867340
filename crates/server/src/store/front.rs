//! Stored responses that a worker was asked for lately: a hit takes no lock, no hash of the whole store and no system call.

use std::collections::HashSet;
use std::sync::Arc;

use http::HeaderName;
use lru::LruCache;
use sealion_http::ExtraFields;

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
    /// The second of its last use.
    touched: u64,
    /// The lines of its hits in that second: Age and Cache-Status are equal in all of them.
    lines: Option<ExtraFields>,
}

/// The entry of this worker under a key.
pub(super) enum Kept {
    Object {
        object: Arc<Object>,
        /// Whether the store has changed since: the object may have been replaced.
        is_old: bool,
        lines: HitLines,
    },
    Variants {
        names: Arc<[HeaderName]>,
        is_old: bool,
    },
}

/// The field lines of a hit.
pub(super) enum HitLines {
    /// It is the first one in this second. The store should hear that the object is asked for.
    First,
    /// It is a further one: its lines should be kept, by [`Front::keep_lines`].
    Again,
    Kept(ExtraFields),
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
            Stored::Object(object) => {
                let lines = match &entry.lines {
                    _ if entry.touched != now => {
                        entry.touched = now;
                        self.memory -= octets(entry.lines.take().as_ref());
                        HitLines::First
                    }
                    Some(lines) => HitLines::Kept(lines.clone()),
                    None => HitLines::Again,
                };
                Some(Kept::Object { object: Arc::clone(object), is_old, lines })
            }
        }
    }

    /// Keeps the lines of the hit that was found last, for the further ones of its second.
    pub(super) fn keep_lines(&mut self, key: &[u8], lines: &mut ExtraFields) {
        if let Some(entry) = self.entries.get_mut(key) {
            lines.share();
            self.memory += octets(Some(lines));
            self.memory -= octets(entry.lines.replace(lines.clone()).as_ref());
        }
    }

    /// Notes that the object of a key is still the store's.
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
        self.entries.put(key.into(), Entry { stored, hash, epoch, touched: now, lines: None });
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

    /// Closes the files of objects that the store has no more. Their disks are not asked: they may hang.
    pub(super) fn sweep(&mut self, has: impl Fn(&Object) -> bool) {
        let is_gone = |key: &[u8]| match self.entries.peek(key).map(|entry| &entry.stored) {
            Some(Stored::Object(object)) => !has(object),
            _ => false,
        };
        let gone: Vec<_> = self.files.iter().filter(|key| is_gone(key)).cloned().collect();
        for key in gone {
            self.remove(&key);
        }
    }

    fn forget(&mut self, key: &[u8], entry: &Entry) {
        self.memory -= memory(key, &entry.stored) + octets(entry.lines.as_ref());
        self.files.remove(key);
    }
}

/// Bytes of memory that an entry takes.
fn memory(key: &[u8], stored: &Stored) -> usize {
    let memory = match stored {
        Stored::Object(object) => object.memory(),
        Stored::Variants(names) => names.len() * size_of::<HeaderName>(),
    };
    memory + key.len() + OVERHEAD
}

fn octets(lines: Option<&ExtraFields>) -> usize {
    lines.map_or(0, |lines| lines.lines().len())
}

/// GUESS: an entry's place in the map and the list, and its allocations.
const OVERHEAD: usize = 200;
