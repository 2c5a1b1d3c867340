//! Files kept open, and small ones kept in memory, so that a hot file costs no system call to find.
//!
//! ```text
//! path ─► kept and young? ─yes─► the file
//!              │ no                ▲
//!              ▼                   │ unchanged
//!         asked again, without waiting for a disk ──the disk must be asked──► an errand for another thread
//! ```
//!
//! With a file is kept what there is of it in content codings (`encoding/`), so that those cost no system call either.
//!
//! A file that is replaced is seen [`CacheLimits::age`] later at most. One that is written to in place is seen at once
//! if it is sent from the disk; from memory it is sent as it was, whole, with the validators of that state. One that changed
//! within the present tick of the file system's clock is not kept: its next change might look like this one.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use sealion_http::{Coding, Status};
use sealion_http::path::SitePath;
use sealion_http::request::FieldLines;
use thread_local::ThreadLocal;
use tokio::task::spawn_blocking;

use crate::files::coding::{Choice, Coder, Variants};
use crate::files::coding::store::{Made, Store};
use crate::files::resolve::{Content, Found, NotOpened, Root, SiteFile, Unresolved, Wait};
use crate::observe::metrics::{self, WorkerMetrics};

/// The files beneath a root.
#[derive(Debug)]
pub(crate) struct Files {
    root: Arc<Root>,
    /// `None`: every file is sent as it is.
    coder: Option<Arc<Coder>>,
    index: String,
    cache: Arc<FileCache>,
    /// Tells the names of this root from those of others in the cache.
    number: [u8; 4],
}

/// What is kept of the files of all sites, by each worker for itself: workers share nothing.
#[derive(Debug)]
pub(crate) struct FileCache {
    limits: CacheLimits,
    roots: AtomicU32,
    workers: ThreadLocal<RefCell<Cache>>,
}

impl FileCache {
    /// An empty one.
    pub(crate) fn new(limits: CacheLimits) -> Arc<Self> {
        Arc::new(FileCache { limits, roots: AtomicU32::new(0), workers: ThreadLocal::new() })
    }
}

/// Bounds of the cache of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheLimits {
    /// How long a file is taken to be what it was. Zero: nothing is kept.
    pub age: Duration,
    /// Files kept, each variant in a content coding counted.
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

/// Blocking tasks in a row for one file: it is opened, then compressed. More of them mean that the file system answers differently each time.
const MOST_BLOCKING_TASKS: usize = 8;

/// Files that nobody asked for in this time are let go, so that what was deleted frees its blocks.
/// INHERITED from nginx' open_file_cache, whose default is the same.
const INACTIVE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Cache {
    /// By the number of the root and the name beneath it.
    entries: LruCache<Box<[u8]>, Entry>,
    /// The key being looked for, so that looking allocates nothing.
    key: Vec<u8>,
    /// Files of all entries.
    files: usize,
    /// Bytes in memory of all entries.
    memory: usize,
    swept: Instant,
    /// What the worker counts, and what it was told of this cache: files and bytes.
    counted: Option<&'static WorkerMetrics>,
    told: (u64, u64),
}

#[derive(Debug)]
struct Entry {
    opened: Opened,
    checked: Instant,
    used: Instant,
}

/// A file with what there is of it in content codings.
#[derive(Debug)]
struct Opened {
    file: Arc<SiteFile>,
    /// `None`: it is sent as it is.
    variants: Option<Box<Variants>>,
}

/// What takes too long for a worker: waiting for a disk, or compressing. For other threads.
#[derive(Debug)]
pub(crate) struct BlockingTask(Task);

#[derive(Debug)]
enum Task {
    Open { root: Arc<Root>, coder: Option<Arc<Coder>>, name: Box<[u8]>, keep: u64 },
    Make { store: Arc<Store>, original: Arc<SiteFile>, coding: Coding },
}

/// What an [`BlockingTask`] brought back, for [`Files::find`].
#[derive(Debug)]
pub(crate) struct TaskResult(Result<Outcome, NotOpened>);

#[derive(Debug)]
enum Outcome {
    Directory,
    File(Opened),
    Made { original: Arc<SiteFile>, coding: Coding, made: Made },
}

/// Why there is no file to send.
#[derive(Debug)]
pub(crate) enum Missing {
    /// It cannot be served.
    Unresolved(Unresolved),
    /// Another thread must be asked.
    WouldBlock(BlockingTask),
}

impl BlockingTask {
    /// Has it done by another thread, for as long as it takes.
    ///
    /// # Errors
    /// That thread panicked.
    pub(crate) async fn run(self) -> io::Result<TaskResult> {
        match self.0 {
            Task::Open { root, coder, name, keep } => {
                let open = move || open(&root, coder.as_deref(), &name, keep, Wait::Yes);
                spawn_blocking(open).await.map(TaskResult).map_err(io::Error::other)
            }
            Task::Make { store, original, coding } => {
                let made = store.make(&original, coding).await.unwrap_or_else(|error| {
                    tracing::warn!("a file of {} bytes could not be compressed: {error}; sent as it is", original.len);
                    Made::NotYet
                });
                Ok(TaskResult(Ok(Outcome::Made { original, coding, made })))
            }
        }
    }
}

#[cfg(test)]
impl Files {
    /// As [`Self::find`] with a clock of the test's own.
    pub(crate) fn find_for_tests(
        &self,
        path: &str,
        accept: &FieldLines<'_>,
        now: Instant,
    ) -> Result<Found, Unresolved> {
        let path = SitePath::parse(path, true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.find_from(&path, accept, || now))
    }

    /// Files kept, and their bytes in memory.
    pub(crate) fn kept_for_tests(&self) -> (usize, usize) {
        let cache = self.cache.workers.get().unwrap().borrow();
        (cache.files, cache.memory)
    }
}

impl Files {
    /// The files beneath `root`; `index` stands for its directory.
    pub(crate) fn new(root: Root, index: String, cache: &Arc<FileCache>) -> Self {
        let number = cache.roots.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        Files { root: Arc::new(root), coder: None, index, cache: Arc::clone(cache), number }
    }

    /// The same, in content codings too.
    pub(crate) fn with_codings(self, coder: Option<Arc<Coder>>) -> Self {
        Files { coder, ..self }
    }

    /// The root.
    pub(crate) fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root)
    }

    /// What stands for a directory.
    pub(crate) fn index(&self) -> &str {
        &self.index
    }

    /// The file that `path` names; for a directory named with its slash, the index in it. A directory without index is not found. Of a file
    /// that exists in several content codings, the one that a client wants that sent `accept` as Accept-Encoding.
    ///
    /// A file that is kept is found without waiting. Else the disk, or compression, is waited for on another thread.
    ///
    /// # Errors
    /// The file cannot be served.
    pub(crate) async fn find(&self, path: &SitePath<'_>, accept: &FieldLines<'_>) -> Result<Found, Unresolved> {
        self.find_from(path, accept, Instant::now).await
    }

    async fn find_from(
        &self,
        path: &SitePath<'_>,
        accept: &FieldLines<'_>,
        now: impl Fn() -> Instant,
    ) -> Result<Found, Unresolved> {
        match self.try_find(path, accept, None, now()) {
            Ok(found) => Ok(found),
            Err(Missing::Unresolved(unresolved)) => Err(unresolved),
            // Boxed, so that a request that waits for nothing has no room for it.
            Err(Missing::WouldBlock(task)) => Box::pin(self.find_blocking(path, accept, task, now)).await,
        }
    }

    async fn find_blocking(
        &self,
        path: &SitePath<'_>,
        accept: &FieldLines<'_>,
        mut task: BlockingTask,
        now: impl Fn() -> Instant,
    ) -> Result<Found, Unresolved> {
        for _ in 0..MOST_BLOCKING_TASKS {
            let result = task.run().await.map_err(|error| Unresolved {
                status: Status::INTERNAL_SERVER_ERROR,
                cause: Some(io::Error::other(format!("blocking task panicked: {error}"))),
            })?;
            match self.try_find(path, accept, Some(result), now()) {
                Ok(found) => return Ok(found),
                Err(Missing::Unresolved(unresolved)) => return Err(unresolved),
                Err(Missing::WouldBlock(next)) => task = next,
            }
        }
        Err(Unresolved {
            status: Status::SERVICE_UNAVAILABLE,
            cause: Some(io::Error::other("the file system keeps nothing that it has just read")),
        })
    }

    fn try_find(
        &self,
        path: &SitePath<'_>,
        accept: &FieldLines<'_>,
        result: Option<TaskResult>,
        now: Instant,
    ) -> Result<Found, Missing> {
        let mut name = path.as_bytes();
        let with_index;
        if path.names_directory() {
            let index = self.index.as_bytes();
            with_index = if name.is_empty() { index.to_vec() } else { [name, b"/", index].concat() };
            name = &with_index;
        }
        match self.find_name(name, accept, result, now)? {
            // An index that is a directory: nothing to show, and no slash would help.
            Found::Directory if path.names_directory() => Err(Missing::Unresolved(Unresolved::not_found(None))),
            found => Ok(found),
        }
    }

    fn find_name(
        &self,
        name: &[u8],
        accept: &FieldLines<'_>,
        result: Option<TaskResult>,
        now: Instant,
    ) -> Result<Found, Missing> {
        let limits = &self.cache.limits;
        let keep = limits.keep();
        if keep == 0 {
            let found = result.map_or_else(|| self.open(name, 0), |result| result.0);
            return match found.map_err(|error| self.missing(error, name, 0))? {
                Outcome::Directory => Ok(Found::Directory),
                Outcome::Made { original, made, .. } => Ok(Found::File(made.or(original))),
                Outcome::File(opened) => self.choose(&opened, accept).into_found(&opened.file),
            };
        }
        let mut cache = self.cache.workers.get_or(|| RefCell::new(Cache::new(limits, now))).borrow_mut();
        cache.look_for(self.number, name);
        let found = match result {
            Some(TaskResult(Ok(Outcome::Made { original, coding, made }))) => {
                cache.remember(&original, coding, &made, limits);
                return Ok(Found::File(made.or(original)));
            }
            Some(result) => result.0,
            None => {
                if let Some(found) = cache.get(name, now, self, accept) {
                    if let Some(worker) = cache.counted {
                        worker.cache_hits.add(1);
                    }
                    return found;
                }
                if let Some(worker) = cache.counted {
                    worker.cache_misses.add(1);
                }
                self.open(name, keep)
            }
        };
        cache.remove();
        match found.map_err(|error| self.missing(error, name, keep))? {
            Outcome::Directory => Ok(Found::Directory),
            Outcome::Made { original, .. } => Ok(Found::File(original)),
            Outcome::File(opened) => {
                let chosen = self.choose(&opened, accept).into_found(&opened.file);
                if opened.is_settled() {
                    cache.keep(opened, now, limits);
                }
                chosen
            }
        }
    }

    fn open(&self, name: &[u8], keep: u64) -> Result<Outcome, NotOpened> {
        open(&self.root, self.coder.as_deref(), name, keep, Wait::No)
    }

    /// Whether a kept file and its variants are what they were. What cannot be told now is opened anew, which tells why.
    fn is_unchanged(&self, name: &[u8], opened: &Opened) -> bool {
        let Opened { file, variants } = opened;
        self.root.is_unchanged(name, file, Wait::No).is_ok_and(|unchanged| unchanged)
            && match (variants, &self.coder) {
                (Some(variants), Some(coder)) => coder.are_unchanged(variants, &self.root, name, Wait::No),
                _ => true,
            }
    }

    fn choose(&self, opened: &Opened, accept: &FieldLines<'_>) -> Chosen {
        let (Some(variants), Some(coder)) = (&opened.variants, &self.coder) else {
            return Chosen::File(Arc::clone(&opened.file));
        };
        match (variants.choose(accept), coder.store()) {
            (Choice::Variant(variant), _) => Chosen::File(variant),
            (Choice::Make(coding), Some(store)) => match store.get(&opened.file, coding) {
                Some(made) => Chosen::Stored(coding, made),
                None => Chosen::Make(Arc::clone(store), coding),
            },
            (Choice::Original | Choice::Make(_), _) => Chosen::File(Arc::clone(&opened.file)),
        }
    }

    fn missing(&self, error: NotOpened, name: &[u8], keep: u64) -> Missing {
        match error {
            NotOpened::Waits => {
                let (root, coder) = (Arc::clone(&self.root), self.coder.clone());
                Missing::WouldBlock(BlockingTask(Task::Open { root, coder, name: name.into(), keep }))
            }
            NotOpened::Unresolved(unresolved) => Missing::Unresolved(unresolved),
        }
    }
}

/// Which representation to send.
enum Chosen {
    File(Arc<SiteFile>),
    /// What another worker had made.
    Stored(Coding, Made),
    Make(Arc<Store>, Coding),
}

impl Chosen {
    fn into_found(self, original: &Arc<SiteFile>) -> Result<Found, Missing> {
        let original = Arc::clone(original);
        match self {
            Chosen::File(file) => Ok(Found::File(file)),
            Chosen::Stored(_, made) => Ok(Found::File(made.or(original))),
            Chosen::Make(store, coding) => Err(Missing::WouldBlock(BlockingTask(Task::Make { store, original, coding }))),
        }
    }
}

fn open(root: &Root, coder: Option<&Coder>, name: &[u8], keep: u64, wait: Wait) -> Result<Outcome, NotOpened> {
    match root.resolve(name, keep, wait)? {
        Found::Directory => Ok(Outcome::Directory),
        Found::File(mut file) => {
            let variants = match coder {
                Some(coder) => coder.variants(root, name, &mut file, keep, wait)?,
                None => None,
            };
            Ok(Outcome::File(Opened { file, variants }))
        }
    }
}

impl Opened {
    fn files(&self) -> impl Iterator<Item = &Arc<SiteFile>> {
        std::iter::once(&self.file).chain(self.variants.iter().flat_map(|variants| variants.files()))
    }

    fn is_settled(&self) -> bool {
        self.file.is_settled() && self.variants.as_ref().is_none_or(|variants| variants.are_settled())
    }
}

impl Cache {
    fn new(limits: &CacheLimits, now: Instant) -> Self {
        let files = std::num::NonZeroUsize::new(limits.files).unwrap_or(std::num::NonZeroUsize::MIN);
        Cache {
            entries: LruCache::new(files),
            key: Vec::new(),
            files: 0,
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

    /// `None`: it is not kept, or has changed.
    fn get(
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

    fn keep(&mut self, opened: Opened, now: Instant, limits: &CacheLimits) {
        self.count(&opened);
        if let Some((_, pushed_out)) =
            self.entries.push(self.key.as_slice().into(), Entry { opened, checked: now, used: now })
        {
            self.discount(&pushed_out.opened);
        }
        self.shrink_to(limits);
        self.sweep(now);
        self.tell();
    }

    /// Takes note of what was made of `original`, if that is still what is kept.
    fn remember(&mut self, original: &Arc<SiteFile>, coding: Coding, made: &Made, limits: &CacheLimits) {
        let Some(mut entry) = self.entries.pop(&self.key[..]) else { return };
        self.discount(&entry.opened);
        if entry.opened.file.etag == original.etag
            && let Some(variants) = &mut entry.opened.variants
        {
            variants.remember(coding, made);
        }
        self.count(&entry.opened);
        self.entries.push(self.key.as_slice().into(), entry);
        self.shrink_to(limits);
        self.tell();
    }

    fn remove(&mut self) {
        if let Some(entry) = self.entries.pop(&self.key[..]) {
            self.discount(&entry.opened);
            self.tell();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some((_, entry)) = self.entries.pop_lru() {
            self.discount(&entry.opened);
        }
    }

    fn shrink_to(&mut self, limits: &CacheLimits) {
        while !self.entries.is_empty() && (self.memory > limits.memory || self.files > limits.files.max(1)) {
            self.remove_oldest();
        }
    }

    fn count(&mut self, opened: &Opened) {
        for file in opened.files() {
            self.files += 1;
            self.memory += in_memory(file);
        }
    }

    fn discount(&mut self, opened: &Opened) {
        for file in opened.files() {
            self.files -= 1;
            self.memory -= in_memory(file);
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
#[path = "cache_tests.rs"]
mod tests;
