//! Which objects a disk holds, and which go first when it is full.
//!
//! quick_cache evicts by S3-FIFO: an object that is requested once goes before objects that are requested again, whatever their order.

use std::hash::{BuildHasher, Hasher};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quick_cache::sync::{Cache, EntryAction};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::values::Mutex;

/// The objects of a disk.
#[derive(Debug)]
pub(super) struct Index {
    objects: Cache<u128, Entry, ByBlocks, KeysAreHashes, Evictions>,
    /// Blocks of all objects.
    blocks: AtomicU64,
    next_version: AtomicU32,
    bound: Mutex<Bound>,
    /// Objects that went because the bound was lowered, until [`Self::shrink`] takes them.
    shrunk: Arc<Mutex<Vec<Evicted>>>,
}

/// The weight that all objects may have.
#[derive(Debug)]
struct Bound {
    now: u64,
    /// As the configuration sets it.
    whole: u64,
}

type Evicted = (u128, Entry);

/// An object, as known without its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Size on the disk.
    pub(super) blocks: Blocks,
    /// Differs between two objects of one key.
    pub(super) version: u32,
    /// Whether this process has checked its body in a file.
    pub(super) is_checked: bool,
}

/// Blocks of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocks(u32);

impl Blocks {
    pub(super) fn of(octets: u64) -> Self {
        Blocks(u32::try_from(octets.div_ceil(BLOCK)).unwrap_or(u32::MAX))
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }
}

impl Index {
    /// For at most `octets` on the disk and `objects`.
    pub(super) fn new(octets: u64, objects: u64) -> Self {
        // A shard admits nothing larger than itself, and evicts when it is full, however many objects the others have.
        let shards: u64 = 1 << (octets / LEAST_SHARD).min(objects / LEAST_OBJECTS).clamp(1, 16).ilog2();
        let blocks = (octets / BLOCK / shards).max(1) * shards;
        // An object weighs its blocks, or its share of all if that is more: then no more than `objects` fit.
        let least = blocks.div_ceil(objects);
        let estimate = objects.min(blocks / 4).clamp(64, MOST_ESTIMATED) as usize;
        let options = OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity(estimate)
            .weight_capacity(blocks)
            .build()
            .expect("capacities are given");
        let shrunk = Arc::default();
        let evictions = Evictions { shrunk: Arc::clone(&shrunk) };
        Index {
            objects: Cache::with_options(options, ByBlocks { least }, KeysAreHashes, evictions),
            blocks: AtomicU64::new(0),
            next_version: AtomicU32::new(0),
            bound: Mutex::new(Bound { now: blocks, whole: blocks }),
            shrunk,
        }
    }

    /// Lowers the bound until objects of so many bytes have gone. Returns them. The bound stays: the disk has no room for more.
    pub(super) fn shrink(&self, bytes: u64) -> Vec<u128> {
        let mut bound = self.bound.lock();
        let (wanted, shards) = (bytes.div_ceil(BLOCK), self.objects.num_shards() as u64);
        let (mut gone, mut freed) = (Vec::new(), 0);
        while freed < wanted && self.len() > 0 {
            let (weight, blocks) = (self.objects.weight(), self.blocks.load(Ordering::Relaxed).saturating_sub(freed));
            // Small objects may weigh more than their blocks. Each shard rounds its part of the bound up.
            let less = u128::from(wanted - freed) * u128::from(weight) / u128::from(blocks.max(1));
            let less = u64::try_from(less).unwrap_or(u64::MAX).max(shards);
            bound.now = weight.saturating_sub(less).max(shards);
            self.objects.set_capacity(bound.now);
            let mut evicted = mem::take(&mut *self.shrunk.lock());
            if evicted.is_empty() {
                // Each shard keeps a block.
                evicted.extend(self.objects.drain());
            }
            freed += evicted.iter().map(|(_, entry)| u64::from(entry.blocks.0)).sum::<u64>();
            gone.extend(evicted.into_iter().map(|(hash, _)| hash));
        }
        self.blocks.fetch_sub(freed, Ordering::Relaxed);
        gone
    }

    /// Raises a bound that was lowered: there is room for so many bytes more than the objects have now.
    pub(super) fn grow(&self, bytes: u64) {
        let mut bound = self.bound.lock();
        let (weight, blocks) = (self.objects.weight(), self.blocks.load(Ordering::Relaxed).max(1));
        // Small objects may weigh more than their blocks.
        let more = u128::from(bytes / BLOCK) * u128::from(weight.max(blocks)) / u128::from(blocks);
        let raised = weight.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)).min(bound.whole);
        // Each change of the bound rounds quick_cache's own: small ones wait.
        if raised == bound.whole || raised > bound.now + bound.now / 16 {
            bound.now = raised;
            self.objects.set_capacity(raised);
        }
    }

    /// Whether the bound is lower than the configuration sets it.
    pub(super) fn is_shrunk(&self) -> bool {
        let bound = self.bound.lock();
        bound.now < bound.whole
    }

    /// Bytes of the largest object that is not evicted as soon as it is stored.
    pub(super) fn largest(&self) -> u64 {
        // quick_cache keeps 3 in 100 for objects that are new.
        self.objects.shard_capacity() * 97 / 100 * BLOCK
    }

    /// The entry of an object, which is asked for again by that.
    pub(super) fn get(&self, hash: u128) -> Option<Entry> {
        self.objects.get(&hash)
    }

    /// The entry of an object. The look does not count as a request.
    pub(super) fn peek(&self, hash: u128) -> Option<Entry> {
        self.objects.peek(&hash)
    }

    /// Adds or replaces an object. Returns its version, and the hashes of objects that must go: perhaps this one, if it is larger than a shard.
    pub(super) fn insert(&self, hash: u128, blocks: Blocks) -> (u32, Vec<u128>) {
        let version = self.next_version.fetch_add(1, Ordering::Relaxed);
        let mut evicted = Some(Vec::new());
        self.blocks.fetch_add(blocks.0.into(), Ordering::Relaxed);
        self.objects.insert_with_lifecycle(hash, Entry { blocks, version, is_checked: false }, &mut evicted);
        let evicted = evicted.unwrap_or_default();
        let freed = evicted.iter().map(|(_, entry)| u64::from(entry.blocks.0)).sum();
        self.blocks.fetch_sub(freed, Ordering::Relaxed);
        // An older object of the same key was replaced, file and all.
        let is_gone = |(other, entry): &(u128, Entry)| *other != hash || entry.version == version;
        (version, evicted.into_iter().filter(is_gone).map(|(other, _)| other).collect())
    }

    /// The body of this version of an object was checked.
    pub(super) fn note_checked(&self, hash: u128, version: u32) {
        // Only if it is there: quick_cache makes a place for a missing key.
        if self.objects.contains_key(&hash) {
            self.objects.entry(&hash, None, |_, entry| {
                entry.is_checked |= entry.version == version;
                EntryAction::Retain(())
            });
        }
    }

    pub(super) fn remove(&self, hash: u128) {
        if let Some((_, entry)) = self.objects.remove(&hash) {
            self.blocks.fetch_sub(entry.blocks.0.into(), Ordering::Relaxed);
        }
    }

    /// Makes room for so many objects at once.
    pub(super) fn reserve(&self, objects: u64) {
        self.objects.reserve(usize::try_from(objects).unwrap_or(0));
    }

    pub(super) fn clear(&self) {
        for (_, entry) in self.objects.drain() {
            self.blocks.fetch_sub(entry.blocks.0.into(), Ordering::Relaxed);
        }
    }

    /// Objects in the index.
    pub(super) fn len(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Bytes that the objects take on the disk.
    pub(super) fn octets(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed) * BLOCK
    }

    /// Bytes of memory that the index takes.
    pub(super) fn memory(&self) -> u64 {
        self.objects.memory_used().total() as u64
    }

    /// Hash and blocks of every object.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, Blocks)> {
        self.objects.iter().map(|(hash, entry)| (hash, entry.blocks))
    }
}

#[derive(Debug, Clone)]
struct ByBlocks {
    least: u64,
}

impl Weighter<u128, Entry> for ByBlocks {
    fn weight(&self, _: &u128, entry: &Entry) -> u64 {
        u64::from(entry.blocks.0).max(self.least)
    }
}

/// Collects evicted objects.
#[derive(Debug, Clone)]
struct Evictions {
    shrunk: Arc<Mutex<Vec<Evicted>>>,
}

impl Lifecycle<u128, Entry> for Evictions {
    /// The objects that an insertion evicts. `None`: the bound is being lowered, which takes no state of its caller.
    type RequestState = Option<Vec<Evicted>>;

    fn on_evict(&self, state: &mut Self::RequestState, hash: u128, entry: Entry) {
        match state {
            Some(evicted) => evicted.push((hash, entry)),
            None => self.shrunk.lock().push((hash, entry)),
        }
    }
}

/// The keys are keyed hashes already.
#[derive(Debug, Clone, Default)]
struct KeysAreHashes;

impl BuildHasher for KeysAreHashes {
    type Hasher = HalfOfKey;

    fn build_hasher(&self) -> HalfOfKey {
        HalfOfKey(0)
    }
}

struct HalfOfKey(u64);

impl Hasher for HalfOfKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = self.0.rotate_left(8) ^ u64::from(*octet);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

const BLOCK: u64 = 4096;

/// Least size of a shard.
const LEAST_SHARD: u64 = 8 << 30;

/// Least bound on the objects of a shard.
const LEAST_OBJECTS: u64 = 1000;

/// Most objects that memory is reserved for at once; beyond, the index grows.
const MOST_ESTIMATED: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_index_names_what_must_go_and_stays_within_its_bound() {
        let index = Index::new(100 * BLOCK, 1000);
        let mut gone = std::collections::BTreeSet::new();
        for hash in 0..1000 {
            gone.extend(index.insert(hash, Blocks::of(BLOCK)).1);
        }
        assert!(index.octets() <= 100 * BLOCK);
        assert_eq!(gone.len() as u64 + index.len(), 1000);
        assert!(gone.iter().all(|hash| index.peek(*hash).is_none()));
    }

    #[test]
    fn replacing_an_object_evicts_nothing() {
        let index = Index::new(100 * BLOCK, 1000);
        let (first, _) = index.insert(1, Blocks::of(1));
        let (second, gone) = index.insert(1, Blocks::of(3 * BLOCK));
        assert_eq!((gone, index.len(), index.octets()), (Vec::new(), 1, 3 * BLOCK));
        assert_ne!(first, second);
        assert_eq!(index.peek(1).map(|entry| entry.version), Some(second));
    }

    #[test]
    fn an_object_larger_than_the_disk_must_go_at_once() {
        let index = Index::new(100 * BLOCK, 1000);
        let (_, gone) = index.insert(1, Blocks::of(101 * BLOCK));
        assert_eq!((gone, index.peek(1)), (vec![1], None));
    }

    #[test]
    fn there_are_at_most_as_many_objects_as_are_set_however_small() {
        for (octets, objects) in [(1 << 30, 10), (1 << 40, 10), (1 << 40, 5000), (10 * BLOCK, 10)] {
            let index = Index::new(octets, objects);
            let mut gone = 0;
            for hash in 0..u128::from(objects * 6) {
                gone +=
                    index.insert(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835), Blocks::of(1)).1.len();
            }
            assert!(index.len() <= objects && index.len() >= objects / 2, "{} of {objects}", index.len());
            assert_eq!(index.len() + gone as u64, objects * 6);
            assert_eq!(index.octets(), index.len() * BLOCK);
        }
    }

    #[test]
    fn a_bound_that_is_lowered_names_what_must_go_and_holds_until_it_is_raised() {
        for (octets, objects) in [(1 << 30, 1_000_000), (1 << 40, 100_000)] {
            let index = Index::new(octets, objects);
            let add = |from: u128| {
                let spread = |n: u128| n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                (from..from + 10_000).map(|n| index.insert(spread(n), Blocks::of(BLOCK)).1.len()).sum::<usize>()
            };
            assert_eq!((add(0), index.is_shrunk()), (0, false));
            let gone = index.shrink(1000 * BLOCK);
            assert!((1000..2000).contains(&gone.len()), "{} have gone", gone.len());
            assert!(gone.iter().all(|hash| index.peek(*hash).is_none()) && index.is_shrunk());
            assert_eq!((index.len(), index.octets()), (10_000 - gone.len() as u64, index.len() * BLOCK));
            // For each object that comes, another goes.
            let before = index.len();
            assert_eq!(add(1_000_000), 10_000);
            assert_eq!(index.len(), before);
            index.grow(u64::MAX);
            assert!(!index.is_shrunk());
            assert_eq!(add(2_000_000), 0);
            assert_eq!(index.shrink(u64::MAX).len() as u64, before + 10_000);
            assert_eq!((index.len(), index.octets(), index.shrink(BLOCK)), (0, 0, Vec::new()));
        }
    }

    #[test]
    fn the_octets_of_what_was_removed_are_free() {
        let index = Index::new(1 << 30, 10);
        index.insert(1, Blocks::of(1));
        index.insert(2, Blocks::of(2 * BLOCK));
        index.remove(1);
        assert_eq!(index.octets(), 2 * BLOCK);
        index.clear();
        assert_eq!((index.octets(), index.len()), (0, 0));
    }

    /// The bound of the documentation: 80 bytes an object.
    #[test]
    fn an_object_takes_at_most_80_octets_of_memory() {
        const OBJECTS: u64 = 1_000_000;
        let index = Index::new(OBJECTS * BLOCK * 2, OBJECTS);
        for hash in 0..u128::from(OBJECTS) {
            index.insert(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835), Blocks::of(BLOCK));
        }
        assert_eq!(index.len(), OBJECTS);
        assert!(index.memory() <= 80 * OBJECTS, "{} octets an object", index.memory() / OBJECTS);
    }
}
