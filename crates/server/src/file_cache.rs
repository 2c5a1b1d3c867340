//! Files kept open, and small ones kept in memory, so that a hot file costs no system call to find.
//!
//! ```text
//! path ─► kept and young? ─yes─► the file
//!              │ no                ▲
//!              ▼                   │ unchanged
//!         asked again, without waiting for a disk ──the disk must be asked──► an errand for another thread
//! ```
//!
//! A file that is replaced is seen [`CacheLimits::age`] later at most. One that is written to in place is seen at once
//! if it is sent from the disk; from memory it is sent as it was, whole, with the validators of that state. One that changed
//! within the present tick of the file system's clock is not kept: its next change might look like this one.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use thread_local::ThreadLocal;

use crate::metrics::{self, WorkerMetrics};
use crate::resolve::{Content, Found, NotOpened, Root, SiteFile, Unresolved, Wait};
use crate::target::SitePath;

/// The files beneath a root.
#[derive(Debug)]
pub struct Files {
    root: Arc<Root>,
    index: String,
    cache: Arc<FileCache>,
    /// Tells the names of this root from those of others in the cache.
    number: [u8; 4],
}

/// What is kept of the files of all sites, by each worker for itself: workers share nothing.
#[derive(Debug)]
pub struct FileCache {
    limits: CacheLimits,
    roots: AtomicU32,
    workers: ThreadLocal<RefCell<Cache>>,
}

impl FileCache {
    /// An empty one.
    pub fn new(limits: CacheLimits) -> Arc<Self> {
        Arc::new(FileCache { limits, roots: AtomicU32::new(0), workers: ThreadLocal::new() })
    }
}

/// Bounds of the cache of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// How long a file is taken to be what it was. Zero: nothing is kept.
    pub age: Duration,
    /// Files kept.
    pub files: usize,
    /// Bytes in memory, of all files together.
    pub memory: usize,
}

impl Default for CacheLimits {
    // GUESS: a second is less than anybody waits between putting a file in place and looking at it, and long enough
    // that asking again costs nothing at any rate of requests. A site's hot files are fewer than a thousand.
    fn default() -> Self {
        CacheLimits { age: Duration::from_secs(1), files: 1000, memory: 32 << 20 }
    }
}

impl CacheLimits {
    /// The longest file to keep in memory; 0 if nothing is kept at all.
    fn keep(&self) -> u64 {
        if self.age.is_zero() { 0 } else { KEPT_IN_MEMORY.min(self.memory as u64) }
    }
}

/// The longest file that is kept in memory, in bytes.
///
/// MEASURED: does memory or the page cache serve a hot file of 128 KiB cheaper? On the user path 49 µs from memory and 59
/// from the page cache (`sealion-lab load --read drain --connections 64`, AMD EPYC Zen 4, Linux 6.18, 2026-11-21); on the
/// kernel path sendfile takes 1 to 3 % fewer instructions there, and 2 % more at 64 KiB (Linux 6.1 and 7.2). Void where
/// files of this size are too many for [`CacheLimits::memory`].
pub(crate) const KEPT_IN_MEMORY: u64 = 128 << 10;

/// Files that nobody asked for in this time are let go, so that what was deleted frees its blocks.
/// INHERITED from nginx' open_file_cache, whose default is the same.
const INACTIVE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Cache {
    /// By the number of the root and the name beneath it.
    entries: LruCache<Box<[u8]>, Entry>,
    /// The key being looked for, so that looking allocates nothing.
    key: Vec<u8>,
    memory: usize,
    swept: Instant,
    /// What the worker counts, and what it was told of this cache: files and bytes.
    counted: Option<&'static WorkerMetrics>,
    told: (u64, u64),
}

#[derive(Debug)]
struct Entry {
    file: Arc<SiteFile>,
    checked: Instant,
    used: Instant,
}

/// What could not be told without waiting for a disk. To be run on a thread that may wait.
#[derive(Debug)]
pub struct Errand {
    root: Arc<Root>,
    name: Box<[u8]>,
    keep: u64,
}

/// What an [`Errand`] brought back, for [`Files::find`].
#[derive(Debug)]
pub struct Fetched {
    found: Result<Found, NotOpened>,
}

/// Why there is no file to send.
#[derive(Debug)]
pub enum Missing {
    /// It cannot be served.
    Unresolved(Unresolved),
    /// A disk must be asked.
    Waits(Errand),
}

impl Errand {
    /// Asks the disk, for as long as it takes.
    pub fn run(self) -> Fetched {
        Fetched { found: self.root.resolve(&self.name, self.keep, Wait::Yes) }
    }
}

impl Files {
    /// The files beneath `root`; `index` stands for its directory.
    pub fn new(root: Root, index: String, cache: &Arc<FileCache>) -> Self {
        let number = cache.roots.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        Files { root: Arc::new(root), index, cache: Arc::clone(cache), number }
    }

    /// The root.
    pub(crate) fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root)
    }

    /// What stands for a directory.
    pub(crate) fn index(&self) -> &str {
        &self.index
    }

    /// Tells it from other files, within a generation.
    pub(crate) fn number(&self) -> [u8; 4] {
        self.number
    }

    /// The file that `path` names; for a directory named with its slash, the index in it. A directory without index is
    /// not found: there are no listings.
    ///
    /// # Errors
    /// [`Missing`]. After [`Missing::Waits`], run the errand elsewhere and ask again with what it `fetched`.
    pub fn find(&self, path: &SitePath<'_>, fetched: Option<Fetched>) -> Result<Found, Missing> {
        self.find_at(path, fetched, Instant::now())
    }

    fn find_at(&self, path: &SitePath<'_>, fetched: Option<Fetched>, now: Instant) -> Result<Found, Missing> {
        let mut name = path.as_bytes();
        let with_index;
        if path.names_directory() {
            let index = self.index.as_bytes();
            with_index = if name.is_empty() { index.to_vec() } else { [name, b"/", index].concat() };
            name = &with_index;
        }
        match self.find_name(name, fetched, now)? {
            // An index that is a directory: nothing to show, and no slash would help.
            Found::Directory if path.names_directory() => Err(Missing::Unresolved(Unresolved::not_found(None))),
            found => Ok(found),
        }
    }

    fn find_name(&self, name: &[u8], fetched: Option<Fetched>, now: Instant) -> Result<Found, Missing> {
        let limits = &self.cache.limits;
        let keep = limits.keep();
        if keep == 0 {
            let found = fetched.map_or_else(|| self.root.resolve(name, 0, Wait::No), |fetched| fetched.found);
            return found.map_err(|error| self.missing(error, name, 0));
        }
        let mut cache = self.cache.workers.get_or(|| RefCell::new(Cache::new(limits, now))).borrow_mut();
        cache.look_for(self.number, name);
        let found = match fetched {
            Some(fetched) => fetched.found,
            None => {
                if let Some(file) = cache.get(name, now, limits.age, &self.root) {
                    if let Some(worker) = cache.counted {
                        worker.cache_hits.add(1);
                    }
                    return Ok(Found::File(file));
                }
                if let Some(worker) = cache.counted {
                    worker.cache_misses.add(1);
                }
                self.root.resolve(name, keep, Wait::No)
            }
        };
        cache.remove();
        let found = found.map_err(|error| self.missing(error, name, keep))?;
        if let Found::File(file) = &found
            && file.is_settled()
        {
            cache.keep(file, now, limits);
        }
        Ok(found)
    }

    fn missing(&self, error: NotOpened, name: &[u8], keep: u64) -> Missing {
        match error {
            NotOpened::Waits => Missing::Waits(Errand { root: Arc::clone(&self.root), name: name.into(), keep }),
            NotOpened::Unresolved(unresolved) => Missing::Unresolved(unresolved),
        }
    }
}

impl Cache {
    fn new(limits: &CacheLimits, now: Instant) -> Self {
        let files = std::num::NonZeroUsize::new(limits.files).unwrap_or(std::num::NonZeroUsize::MIN);
        Cache {
            entries: LruCache::new(files),
            key: Vec::new(),
            memory: 0,
            swept: now,
            counted: metrics::worker(),
            told: (0, 0),
        }
    }

    /// The file that the next calls are about.
    fn look_for(&mut self, root: [u8; 4], name: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(&root);
        self.key.extend_from_slice(name);
    }

    fn get(&mut self, name: &[u8], now: Instant, age: Duration, root: &Root) -> Option<Arc<SiteFile>> {
        let entry = self.entries.get_mut(&self.key[..])?;
        entry.used = now;
        if now.duration_since(entry.checked) >= age {
            // One that cannot be told now is opened anew, which tells why.
            if !root.is_unchanged(name, &entry.file, Wait::No).is_ok_and(|unchanged| unchanged) {
                return None;
            }
            entry.checked = now;
            let file = Arc::clone(&entry.file);
            self.sweep(now);
            return Some(file);
        }
        entry.file.is_intact().then(|| Arc::clone(&entry.file))
    }

    fn keep(&mut self, file: &Arc<SiteFile>, now: Instant, limits: &CacheLimits) {
        self.memory += in_memory(file);
        let entry = Entry { file: Arc::clone(file), checked: now, used: now };
        if let Some((_, pushed_out)) = self.entries.push(self.key.as_slice().into(), entry) {
            self.memory -= in_memory(&pushed_out.file);
        }
        while self.memory > limits.memory {
            self.remove_oldest();
        }
        self.sweep(now);
        self.tell();
    }

    fn remove(&mut self) {
        if let Some(entry) = self.entries.pop(&self.key[..]) {
            self.memory -= in_memory(&entry.file);
            self.tell();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some((_, entry)) = self.entries.pop_lru() {
            self.memory -= in_memory(&entry.file);
        }
    }

    /// Tells what changed since it was last told.
    fn tell(&mut self) {
        self.tell_that((self.entries.len() as u64, self.memory as u64));
    }

    fn tell_that(&mut self, now: (u64, u64)) {
        if let Some(worker) = self.counted {
            // Another thread may drop the cache of an old configuration.
            worker.cache_entries.fetch_add(now.0.wrapping_sub(self.told.0), Ordering::Relaxed);
            worker.cache_bytes.fetch_add(now.1.wrapping_sub(self.told.1), Ordering::Relaxed);
            self.told = now;
        }
    }

    /// Lets go what nobody asked for, once in a while.
    fn sweep(&mut self, now: Instant) {
        if now.duration_since(self.swept) < INACTIVE / 4 {
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
        self.tell_that((0, 0));
    }
}

fn in_memory(file: &SiteFile) -> usize {
    match &file.content {
        Content::Memory(bytes) => bytes.len(),
        Content::File(_) => 0,
    }
}

#[cfg(test)]
#[path = "file_cache_tests.rs"]
mod tests;
