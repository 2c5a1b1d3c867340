//! The cache of one worker: its entries, and the memory that they take.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lru::LruCache;
use sealion_http::Coding;
use sealion_http::request::FieldLines;

use super::{Cache, CacheLimits, Chosen, Entry, Files, INACTIVE, Missing, OVERHEAD, Opened, SWEEP};
use crate::files::admission::Admission;
use crate::files::coding::Variants;
use crate::files::coding::store::Made;
use crate::files::resolve::{Content, Found, SiteFile};
use crate::observe::metrics;

impl Opened {
    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<SiteFile>> {
        std::iter::once(&self.file).chain(self.variants.iter().flat_map(|variants| variants.files()))
    }

    /// The memory of the table of variants, in addition to the files in it.
    pub(super) fn memory_of_variants(&self) -> usize {
        self.variants.as_ref().map_or(0, |_| size_of::<Variants>())
    }

    pub(super) fn is_settled(&self) -> bool {
        self.file.is_settled() && self.variants.as_ref().is_none_or(|variants| variants.are_settled())
    }
}

impl Cache {
    pub(super) fn new(now: Instant) -> Self {
        Cache {
            entries: LruCache::unbounded(),
            key: Vec::new(),
            open: 0,
            memory: 0,
            admission: Admission::default(),
            swept: now,
            worker_metrics: metrics::worker(),
            reported: (0, 0),
        }
    }

    /// Sets the key for the following calls.
    pub(super) fn set_key(&mut self, root: [u8; 4], name: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(&root);
        self.key.extend_from_slice(name);
    }

    /// `None`: not cached, or changed.
    pub(super) fn get(
        &mut self,
        name: &[u8],
        now: Instant,
        site: &Files,
        accept: &FieldLines<'_>,
    ) -> Option<Result<Found, Missing>> {
        let entry = self.entries.get_mut(&self.key[..])?;
        entry.used = now;
        let old = now.duration_since(entry.checked) >= site.cache.limits.age;
        if old {
            if !site.is_unchanged(name, &entry.opened) {
                return None;
            }
            entry.checked = now;
        }
        let chosen = match entry.opened.variants {
            None => Chosen::File(Arc::clone(&entry.opened.file)),
            Some(_) => site.choose(&entry.opened, accept),
        };
        if let Chosen::File(file) = &chosen
            && !old
            && !file.is_intact()
        {
            return None;
        }
        let found = match chosen {
            Chosen::File(file) => Ok(Found::File(file)),
            chosen => {
                let original = Arc::clone(&entry.opened.file);
                if let Chosen::Stored(coding, made) = &chosen {
                    self.remember(&original, *coding, made, &site.cache.limits);
                }
                chosen.into_found(&original)
            }
        };
        if old {
            self.sweep(now);
        }
        Some(found)
    }

    pub(super) fn keep(&mut self, opened: Opened, now: Instant, limits: &CacheLimits) {
        self.count(&opened);
        if let Some((name, replaced)) =
            self.entries.push(self.key.as_slice().into(), Entry { opened, checked: now, used: now })
        {
            self.discount(&name, &replaced.opened);
        }
        self.shrink_to(limits);
        self.sweep(now);
        self.report();
    }

    /// Records the variant made from `original`, if `original` is still the cached file.
    pub(super) fn remember(&mut self, original: &Arc<SiteFile>, coding: Coding, made: &Made, limits: &CacheLimits) {
        let Some((name, mut entry)) = self.entries.pop_entry(&self.key[..]) else { return };
        self.discount(&name, &entry.opened);
        if entry.opened.file.state() == original.state()
            && let Some(variants) = &mut entry.opened.variants
        {
            variants.remember(coding, made);
        }
        self.count(&entry.opened);
        self.entries.push(name, entry);
        self.shrink_to(limits);
        self.report();
    }

    pub(super) fn remove(&mut self) {
        if let Some((name, entry)) = self.entries.pop_entry(&self.key[..]) {
            self.discount(&name, &entry.opened);
            self.report();
        }
    }

    pub(super) fn remove_oldest(&mut self) {
        if let Some((name, entry)) = self.entries.pop_lru() {
            self.discount(&name, &entry.opened);
        }
    }

    /// Whether to keep the file of the current key, which was looked up but not found.
    pub(super) fn admits(&mut self, limits: &CacheLimits) -> bool {
        let is_nearly_full = |used: usize, limit: usize| used > limit / 8 * 7;
        if !is_nearly_full(self.memory, limits.memory) && !is_nearly_full(self.open, limits.open) {
            return true;
        }
        // An existing entry means that the file has changed.
        self.entries.contains(&self.key[..]) || self.admission.missed(&self.key)
    }

    pub(super) fn shrink_to(&mut self, limits: &CacheLimits) {
        while !self.entries.is_empty() && (self.memory > limits.memory || self.open > limits.open.max(1)) {
            self.remove_oldest();
        }
    }

    /// Counts an entry with the current key.
    pub(super) fn count(&mut self, opened: &Opened) {
        self.memory += self.key.len() + opened.memory_of_variants();
        for file in opened.files() {
            self.open += usize::from(is_open(file));
            self.memory += in_memory(file) + OVERHEAD;
        }
    }

    pub(super) fn discount(&mut self, name: &[u8], opened: &Opened) {
        self.memory -= name.len() + opened.memory_of_variants();
        for file in opened.files() {
            self.open -= usize::from(is_open(file));
            self.memory -= in_memory(file) + OVERHEAD;
        }
    }

    /// Reports the change since the last report.
    pub(super) fn report(&mut self) {
        self.report_totals((self.entries.len() as u64, self.memory as u64));
    }

    pub(super) fn report_totals(&mut self, now: (u64, u64)) {
        if let Some(worker) = self.worker_metrics {
            // Atomic, because another thread may drop the cache of an old configuration.
            worker.cache_entries.fetch_add(now.0.wrapping_sub(self.reported.0), Ordering::Relaxed);
            worker.cache_bytes.fetch_add(now.1.wrapping_sub(self.reported.1), Ordering::Relaxed);
            self.reported = now;
        }
    }

    /// Evicts entries that were not requested recently, at intervals.
    pub(super) fn sweep(&mut self, now: Instant) {
        if now.duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        while self.entries.peek_lru().is_some_and(|(_, entry)| now.duration_since(entry.used) > INACTIVE) {
            self.remove_oldest();
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.report_totals((0, 0));
    }
}

pub(super) fn is_open(file: &SiteFile) -> bool {
    matches!(file.content, Content::File(_))
}

pub(super) fn in_memory(file: &SiteFile) -> usize {
    match &file.content {
        Content::Memory(bytes) => bytes.len(),
        Content::File(_) => 0,
    }
}
