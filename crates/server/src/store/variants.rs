//! The variants of a URL: its list of them, and which go first where there are too many.

use std::io;
use std::num::NonZeroUsize;

use lru::LruCache;

use super::Store;
use super::disk::{Disk, Times};
use super::format::{Kind, Metadata};
use crate::files::resolve::Wait;
use crate::values::Mutex;

/// The variants' state in memory; their lists lie on the disks.
#[derive(Debug)]
pub(super) struct Variants {
    last_uses: Mutex<LastUses>,
}

/// When variants were last requested, by the hashes of their keys. A variant that is missing was not requested lately.
#[derive(Debug)]
struct LastUses {
    times: LruCache<u128, u64>,
    now: u64,
}

impl Variants {
    pub(super) fn new() -> Self {
        let last_uses = LastUses { times: LruCache::new(MOST_REMEMBERED), now: 0 };
        Variants { last_uses: Mutex::new(last_uses) }
    }

    /// A variant was asked for.
    pub(super) fn used(&self, variant: u128) {
        let mut uses = self.last_uses.lock();
        uses.now += 1;
        let now = uses.now;
        uses.times.put(variant, now);
    }

    /// Takes the least recently requested variants out of a list, until it has `most`. Returns them.
    fn take_excess(&self, list: &mut Vec<u128>, most: usize) -> Vec<u128> {
        let excess = list.len().saturating_sub(most);
        let mut by_use = list.clone();
        {
            let uses = self.last_uses.lock();
            // Of two unknown variants, the one that was stored first goes first.
            by_use.sort_by_key(|variant| uses.times.peek(variant).copied().unwrap_or(0));
        }
        by_use.truncate(excess);
        list.retain(|variant| !by_use.contains(variant));
        by_use
    }
}

impl Store {
    /// Adds a variant that is stored to the list of its URL, and removes the variants above `most`. Returns whether other fields select among the variants
    /// than before. `disk`: of the list; only its writer calls this, so that one thread at a time reads and writes a list.
    pub(super) fn add_to_variants(
        &self,
        disk: &Disk,
        (key, names): (Vec<u8>, Vec<String>),
        variant: u128,
        times: Times,
        most: usize,
    ) -> io::Result<bool> {
        let hash = self.hash(&key);
        self.variants.used(variant);
        let (before, mut hashes) = match disk.directory.find(hash, Wait::Yes)?.map(|opened| opened.metadata) {
            Some(Metadata { key: own, kind: Kind::Variants { names, hashes } }) if own == key => (Some(names), hashes),
            _ => (None, Vec::new()),
        };
        let is_other = before.as_ref() != Some(&names);
        if !is_other && hashes.contains(&variant) {
            return Ok(false);
        }
        // Variants of other fields stay in the list until they are the oldest: nothing else finds them.
        hashes.retain(|other| *other != variant && self.disk(*other).may_have(*other));
        hashes.push(variant);
        let excess = self.variants.take_excess(&mut hashes, most);
        disk.write(&[], &Metadata { key, kind: Kind::Variants { names, hashes } }, hash, times)?;
        for other in excess {
            self.disk(other).remove_variant(other);
            self.changed(other);
        }
        Ok(is_other)
    }

    /// The hashes of the variants that are listed under a key.
    pub(super) async fn listed_variants(&self, hash: u128) -> Vec<u128> {
        let opened =
            self.disk(hash).run("read the variants of a URL", move |disk| disk.directory.find(hash, Wait::Yes));
        match opened.await.flatten().map(|opened| opened.metadata.kind) {
            Some(Kind::Variants { hashes, .. }) => hashes,
            _ => Vec::new(),
        }
    }
}

/// Variants whose last request is remembered.
const MOST_REMEMBERED: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

#[cfg(test)]
mod tests {
    use super::super::config::CacheConfig;
    use super::super::key::add_variant;
    use super::*;
    use crate::values::{At, Problems, Size};

    #[test]
    fn a_list_stays_as_long_as_one_of_its_variants_is_asked_for() {
        let scratch = tempfile::tempdir().unwrap();
        let directories = At::from(vec![scratch.path().to_owned()]);
        let config = CacheConfig { directories, size: Size(1 << 20), ..CacheConfig::default() };
        let store = Store::build(&config, 0, None, &mut Problems::of_arguments()).unwrap();
        store.open().unwrap();
        let disk = store.disks().next().unwrap();
        assert!(disk.directory.try_own().unwrap());
        const TIMES: Times = Times { made: 1, asked: 1 };
        let response = |key: &[u8]| {
            let kind = Kind::Response { status: 200, fields: Vec::new(), lifetime: Vec::new() };
            disk.write(b"body", &Metadata { key: key.to_vec(), kind }, store.hash(key), TIMES).unwrap();
        };
        let fill = |n: usize| response(format!("https://c.example/{n}").as_bytes());
        // An object that enters a full disk goes first.
        (0..300).for_each(fill);
        let [touched, other] = ["https://a.example/", "https://b.example/"].map(|url| {
            let mut key = url.as_bytes().to_vec();
            let list = store.hash(&key);
            add_variant(&mut key, b"x-lang:de");
            response(&key);
            let (variant, names) = (store.hash(&key), vec!["x-lang".to_owned()]);
            store.add_to_variants(disk, (url.as_bytes().to_vec(), names), variant, TIMES, 64).unwrap();
            (list, variant, key)
        });
        for n in 300..1300 {
            store.touch(touched.1, &touched.2);
            disk.touch(other.1);
            fill(n);
        }
        let is_there = |hash| disk.version(hash).is_some();
        assert!(is_there(touched.1) && is_there(touched.0));
        // Otherwise the list is lost, and the variant cannot be found.
        assert!(is_there(other.1) && !is_there(other.0));
    }

    #[test]
    fn the_variants_that_were_asked_for_least_recently_are_above_the_bound() {
        let variants = Variants::new();
        [3, 1, 5].into_iter().for_each(|variant| variants.used(variant));
        let mut list = vec![1, 2, 3, 4, 5];
        assert_eq!(variants.take_excess(&mut list, 5), []);
        assert_eq!(variants.take_excess(&mut list, 4), [2]);
        assert_eq!(variants.take_excess(&mut list, 2), [4, 3]);
        assert_eq!(list, [1, 5]);
        variants.used(1);
        assert_eq!(variants.take_excess(&mut list, 1), [5]);
    }
}
