//! The URLs that requests with unsafe methods invalidated (RFC 9111 §4.4).

use std::hash::Hasher;

use lru::LruCache;
use siphasher::sip::SipHasher13;

/// When URLs were invalidated, in bounded memory. None is lost: the oldest are kept by a part of their hash, so they also invalidate some
/// responses of other URLs, which are then fetched again.
#[derive(Debug)]
pub(super) struct Invalidated {
    /// By the hashes of URLs and keys.
    latest: LruCache<u64, u64>,
    /// By the ends of the hashes. Empty: there are no older ones.
    older: Vec<u64>,
}

impl Default for Invalidated {
    fn default() -> Self {
        Invalidated { latest: LruCache::unbounded(), older: Vec::new() }
    }
}

impl Invalidated {
    pub(super) fn add(&mut self, hash: u64, at: u64) {
        match self.latest.get_mut(&hash) {
            Some(time) => *time = at.max(*time),
            None => drop(self.latest.put(hash, at)),
        }
        while self.latest.len() > MOST_INVALIDATED
            && let Some((hash, at)) = self.latest.pop_lru()
        {
            self.add_older(slot(hash), at);
        }
    }

    pub(super) fn add_older(&mut self, slot: u32, at: u64) {
        if self.older.is_empty() {
            self.older = vec![0; SLOTS];
        }
        let time = &mut self.older[slot as usize % SLOTS];
        *time = at.max(*time);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.latest.is_empty() && self.older.is_empty()
    }

    /// When a response of this URL was invalidated last; 0: never.
    pub(super) fn of(&self, hash: u64) -> u64 {
        let latest = self.latest.peek(&hash).copied().unwrap_or_default();
        latest.max(self.older.get(slot(hash) as usize).copied().unwrap_or_default())
    }

    /// The hashes that are kept whole, and their times.
    pub(super) fn latest(&self) -> impl Iterator<Item = (u64, u64)> {
        self.latest.iter().map(|(hash, at)| (*hash, *at))
    }

    /// The ends of older hashes, and their times.
    pub(super) fn older(&self) -> impl Iterator<Item = (u32, u64)> {
        let times = self.older.iter().enumerate().filter(|(_, at)| **at > 0);
        times.map(|(slot, at)| (slot as u32, *at))
    }
}

/// The hash of a URL, or of a key. It needs no secret: a client that finds two URLs of one hash can invalidate each by its own name.
pub(super) fn hash(name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(name);
    hasher.finish()
}

fn slot(hash: u64) -> u32 {
    (hash % SLOTS as u64) as u32
}

/// Invalidated URLs whose whole hash is kept: 16 MiB at some 80 bytes each (GUESS).
pub(super) const MOST_INVALIDATED: usize = 200_000;

/// Parts of hashes of older ones, 8 bytes each: with 10,000 older ones, a response of another URL meets one with 4 % probability.
const SLOTS: usize = 1 << 18;
