//! The file cache: open files, and small files in memory, so that finding a hot file costs no system call.
//!
//! ```text
//! path ─► cached and fresh? ─yes─► the file
//!              │ no                  ▲
//!              ▼                     │ unchanged
//!         reopen or revalidate without blocking ──would block──► blocking task on another thread
//! ```
//!
//! A cache that is nearly full keeps a file when it misses it for the second time (`admission.rs`): files requested
//! only once do not evict popular files, and cost neither memory nor a copy.
//!
//! An entry includes the file's variants in content codings (`coding/`), so that they cost no system call either.
//!
//! A replaced file is noticed after [`CacheLimits::age`] at the latest. A file modified in place is noticed at once if it is
//! sent from disk; if it is in memory, the old content is sent, complete and with its validators, until the age is over. A file
//! that changed within the current tick of the file system clock is not cached: its next change might leave the same time stamps.

mod worker;

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use sealion_http::path::SitePath;
use sealion_http::request::FieldLines;
use sealion_http::{Coding, Status};
use thread_local::ThreadLocal;
use tokio::task::spawn_blocking;

use crate::files::admission::Admission;
use crate::files::coding::store::{Made, Store};
use crate::files::coding::{Choice, Coder, Variants};
use crate::files::resolve::{Found, NotOpened, Root, SiteFile, Unresolved, Wait};
use crate::observe::metrics::WorkerMetrics;

/// The files below a root.
#[derive(Debug)]
pub(crate) struct Files {
    root: Arc<Root>,
    /// `None`: the site uses no content codings.
    coder: Option<Arc<Coder>>,
    index: String,
    cache: Arc<FileCache>,
    /// The prefix of this root's keys in the cache.
    number: [u8; 4],
}

/// The cache for the files of all sites. Each worker has its own cache and shares nothing.
#[derive(Debug)]
pub(crate) struct FileCache {
    limits: CacheLimits,
    roots: AtomicU32,
    workers: ThreadLocal<RefCell<Cache>>,
}

impl FileCache {
    pub(crate) fn new(limits: CacheLimits) -> Arc<Self> {
        Arc::new(FileCache { limits, roots: AtomicU32::new(0), workers: ThreadLocal::new() })
    }

    /// Evicts files of this worker that were not requested recently. A worker without requests also calls it now and
    /// then, because the space of a deleted file is only freed when the file is closed.
    pub(crate) fn sweep(&self, now: Instant) {
        if let Some(cache) = self.workers.get() {
            let mut cache = cache.borrow_mut();
            cache.sweep(now);
            cache.report();
        }
    }
}

/// Bounds on the cache of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheLimits {
    /// How long a cached file is served without revalidation. Zero: nothing is cached.
    pub age: Duration,
    /// The maximum number of open files in the cache, that is, of files not in memory. Every variant in a content
    /// coding counts.
    pub open: usize,
    /// The maximum number of bytes in memory for all files: content, names, and [`OVERHEAD`] for each file.
    pub memory: usize,
}

impl Default for CacheLimits {
    // One second is less than the usual delay between deploying a file and checking it in a browser. It is also long
    // enough that revalidation costs nothing at any request rate. Few sites have more than a thousand hot files that
    // are too long to keep in memory.
    //
    // MEASURED: how much memory? 100,000 files of 4 kB by Zipf's law: 64 MiB took 5 % less CPU per request than 32
    // (`sealion-lab load --files 100000 --read drain --connections 64`, ten interleaved runs, AMD EPYC Zen 4,
    // 2026-11-22). More memory gains less: a file requested less than once per `age` is revalidated each time, which
    // costs almost as much as opening it.
    fn default() -> Self {
        CacheLimits { age: Duration::from_secs(1), open: 1000, memory: 64 << 20 }
    }
}

impl CacheLimits {
    /// The maximum length of files to keep in memory; 0 if nothing is cached.
    fn keep(&self) -> u64 {
        if self.age.is_zero() { 0 } else { KEPT_IN_MEMORY.min(self.memory.saturating_sub(OVERHEAD) as u64) }
    }
}

/// The maximum length of a file to keep in memory, in bytes.
///
/// MEASURED: at 128 KiB the user path takes 49 µs from memory and 59 µs from the page cache (`sealion-lab load --read
/// drain --connections 64`, AMD EPYC Zen 4, Linux 6.18, 2026-11-21). On the kernel path sendfile takes 1 to 3 % fewer
/// instructions at that length, and 2 % more at 64 KiB (Linux 6.1 and 7.2). The result does not hold if files of this
/// length exceed [`CacheLimits::memory`].
pub(crate) const KEPT_IN_MEMORY: u64 = 128 << 10;

/// The bytes that a file takes in the cache besides its content and its name: its metadata, and the nodes of the entry.
const OVERHEAD: usize = size_of::<SiteFile>() + size_of::<Entry>() + 96;

/// The maximum number of consecutive blocking tasks for one file. Usually two suffice: open it, then compress it.
/// Reaching the maximum means that the file system returns different results each time.
const MAX_BLOCKING_TASKS: usize = 8;

/// Files that were not requested for this long are evicted, so that deleted files free their blocks. INHERITED: the
/// default of nginx's open_file_cache.
const INACTIVE: Duration = Duration::from_secs(60);

/// Time between calls of [`FileCache::sweep`].
pub(crate) const SWEEP: Duration = INACTIVE.checked_div(4).unwrap();

#[derive(Debug)]
struct Cache {
    /// Keyed by the number of the root and the name below it.
    entries: LruCache<Box<[u8]>, Entry>,
    /// Buffer for the key of the current lookup, so that lookups allocate nothing.
    key: Vec<u8>,
    /// Open files of all entries.
    open: usize,
    /// Bytes in memory for all entries, as [`CacheLimits::memory`] counts them.
    memory: usize,
    admission: Admission,
    swept: Instant,
    /// The worker's metrics, and the entries and bytes last reported to them.
    worker_metrics: Option<&'static WorkerMetrics>,
    reported: (u64, u64),
}

#[derive(Debug)]
struct Entry {
    opened: Opened,
    checked: Instant,
    used: Instant,
}

/// An opened file with its variants in content codings.
#[derive(Debug)]
struct Opened {
    file: Arc<SiteFile>,
    /// `None`: the file has no variants.
    variants: Option<Box<Variants>>,
}

/// Work that would block a worker, disk I/O or compression, for the blocking pool.
#[derive(Debug)]
pub(crate) struct BlockingTask(Task);

#[derive(Debug)]
enum Task {
    /// `keep`: the maximum length to read into memory; 0: the file must not be cached.
    Open {
        root: Arc<Root>,
        coder: Option<Arc<Coder>>,
        name: Box<[u8]>,
        keep: u64,
    },
    Make {
        store: Arc<Store>,
        original: Arc<SiteFile>,
        coding: Coding,
    },
}

/// The result of a [`BlockingTask`].
#[derive(Debug)]
pub(crate) struct TaskResult {
    outcome: Result<Outcome, NotOpened>,
    /// As in [`Task::Open`].
    keep: u64,
}

#[derive(Debug)]
enum Outcome {
    Directory,
    File(Opened),
    Made { original: Arc<SiteFile>, coding: Coding, made: Made },
}

/// The reason why there is no file to send.
#[derive(Debug)]
pub(crate) enum Missing {
    /// The file cannot be served.
    Unresolved(Unresolved),
    /// The task has to run first.
    WouldBlock(BlockingTask),
}

impl BlockingTask {
    /// Runs the task on the blocking pool.
    ///
    /// # Errors
    /// The task panicked.
    pub(crate) async fn run(self) -> io::Result<TaskResult> {
        match self.0 {
            Task::Open { root, coder, name, keep } => {
                let open = move || open(&root, coder.as_deref(), &name, keep, Wait::Yes);
                let outcome = spawn_blocking(open).await.map_err(io::Error::other)?;
                Ok(TaskResult { outcome, keep })
            }
            Task::Make { store, original, coding } => {
                let made = store.make(&original, coding).await.unwrap_or_else(|error| {
                    tracing::warn!(
                        "cannot compress a file of {} bytes: {error}: sending it uncompressed",
                        original.len
                    );
                    Made::NotYet
                });
                Ok(TaskResult { outcome: Ok(Outcome::Made { original, coding, made }), keep: 0 })
            }
        }
    }
}

#[cfg(test)]
impl Files {
    /// As [`Self::find`], with the time as an argument.
    pub(crate) fn find_for_tests(
        &self,
        path: &str,
        accept: &FieldLines<'_>,
        now: Instant,
    ) -> Result<Found, Unresolved> {
        let path = SitePath::parse(path, true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        match self.try_find(&path, accept, None, now) {
            Ok(found) => Ok(found),
            Err(Missing::Unresolved(unresolved)) => Err(unresolved),
            Err(Missing::WouldBlock(task)) => runtime.block_on(self.find_blocking(&path, accept, task, || now)),
        }
    }

    /// Files in the cache, and their bytes in memory.
    pub(crate) fn kept_for_tests(&self) -> (usize, usize) {
        let cache = self.cache.workers.get().unwrap().borrow();
        (cache.entries.iter().map(|(_, entry)| entry.opened.files().count()).sum(), cache.memory)
    }
}

impl Files {
    /// The files below `root`. `index`: the name of a directory's index file.
    pub(crate) fn new(root: Root, index: String, cache: &Arc<FileCache>) -> Self {
        let number = cache.roots.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        Files { root: Arc::new(root), coder: None, index, cache: Arc::clone(cache), number }
    }

    /// Sets the content codings.
    pub(crate) fn with_codings(self, coder: Option<Arc<Coder>>) -> Self {
        Files { coder, ..self }
    }

    pub(crate) fn root(&self) -> Arc<Root> {
        Arc::clone(&self.root)
    }

    /// The name of a directory's index file.
    pub(crate) fn index(&self) -> &str {
        &self.index
    }

    /// The file at `path`, or its index file if `path` is a directory with a trailing slash. A directory without an
    /// index file is not found. `accept` (Accept-Encoding) selects among the variants of the file.
    ///
    /// A cached file is found without waiting. Otherwise disk I/O and compression run on the blocking pool.
    ///
    /// # Errors
    /// The file cannot be served.
    pub(crate) async fn find(&self, path: &SitePath<'_>, accept: &FieldLines<'_>) -> Result<Found, Unresolved> {
        match self.try_find(path, accept, None, Instant::now()) {
            Ok(found) => Ok(found),
            Err(Missing::Unresolved(unresolved)) => Err(unresolved),
            // Boxed, so that a request that does not block does not reserve its memory.
            Err(Missing::WouldBlock(task)) => Box::pin(self.find_blocking(path, accept, task, Instant::now)).await,
        }
    }

    /// The file that [`Self::find`] would find, if it is in the cache.
    pub(crate) fn find_cached(&self, path: &SitePath<'_>, accept: &FieldLines<'_>) -> Option<Arc<SiteFile>> {
        if self.cache.limits.keep() == 0 {
            return None;
        }
        let name = &*self.name_of(path);
        let mut cache = self.cache.workers.get()?.borrow_mut();
        cache.set_key(self.number, name);
        let Found::File(file) = cache.get(name, Instant::now(), self, accept)?.ok()? else { return None };
        if let Some(worker) = cache.worker_metrics {
            worker.cache_hits.add(1);
        }
        Some(file)
    }

    /// The name of the file at `path`, or of its index file if `path` is a directory with a trailing slash.
    fn name_of<'p>(&self, path: &'p SitePath<'_>) -> Cow<'p, [u8]> {
        let (name, index) = (path.as_bytes(), self.index.as_bytes());
        match path.names_directory() {
            true if name.is_empty() => index.to_vec().into(),
            true => [name, b"/", index].concat().into(),
            false => name.into(),
        }
    }

    async fn find_blocking(
        &self,
        path: &SitePath<'_>,
        accept: &FieldLines<'_>,
        mut task: BlockingTask,
        now: impl Fn() -> Instant,
    ) -> Result<Found, Unresolved> {
        for _ in 0..MAX_BLOCKING_TASKS {
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
            cause: Some(io::Error::other(format!("gave up after {MAX_BLOCKING_TASKS} blocking tasks for one file"))),
        })
    }

    fn try_find(
        &self,
        path: &SitePath<'_>,
        accept: &FieldLines<'_>,
        result: Option<TaskResult>,
        now: Instant,
    ) -> Result<Found, Missing> {
        let name = &*self.name_of(path);
        match self.find_name(name, accept, result, now)? {
            // The index file is itself a directory: a redirect to a trailing slash would not help.
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
            let found = result.map_or_else(|| self.open(name, 0), |result| result.outcome);
            return match found.map_err(|error| self.missing(error, name, 0))? {
                Outcome::Directory => Ok(Found::Directory),
                Outcome::Made { original, made, .. } => Ok(Found::File(made.or(original))),
                Outcome::File(opened) => self.choose(&opened, accept).into_found(&opened.file),
            };
        }
        let mut cache = self.cache.workers.get_or(|| RefCell::new(Cache::new(now))).borrow_mut();
        cache.set_key(self.number, name);
        let (found, keep) = match result {
            Some(TaskResult { outcome: Ok(Outcome::Made { original, coding, made }), .. }) => {
                cache.remember(&original, coding, &made, limits);
                return Ok(Found::File(made.or(original)));
            }
            Some(result) => (result.outcome, result.keep),
            None => {
                if let Some(found) = cache.get(name, now, self, accept) {
                    if let Some(worker) = cache.worker_metrics {
                        worker.cache_hits.add(1);
                    }
                    return found;
                }
                if let Some(worker) = cache.worker_metrics {
                    worker.cache_misses.add(1);
                }
                let keep = if cache.admits(limits) { keep } else { 0 };
                (self.open(name, keep), keep)
            }
        };
        cache.remove();
        match found.map_err(|error| self.missing(error, name, keep))? {
            Outcome::Directory => Ok(Found::Directory),
            Outcome::Made { original, .. } => Ok(Found::File(original)),
            Outcome::File(opened) => {
                let chosen = self.choose(&opened, accept).into_found(&opened.file);
                if keep > 0 && opened.is_settled() {
                    cache.keep(opened, now, limits);
                }
                chosen
            }
        }
    }

    /// `keep`: as in [`Task::Open`].
    fn open(&self, name: &[u8], keep: u64) -> Result<Outcome, NotOpened> {
        open(&self.root, self.coder.as_deref(), name, keep, Wait::No)
    }

    /// Whether a cached file and its variants are unchanged. On an error the file counts as changed; reopening it returns the error.
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

/// The representation to send.
enum Chosen {
    File(Arc<SiteFile>),
    /// A variant, or its absence, as known from another worker.
    Stored(Coding, Made),
    Make(Arc<Store>, Coding),
}

impl Chosen {
    fn into_found(self, original: &Arc<SiteFile>) -> Result<Found, Missing> {
        let original = Arc::clone(original);
        match self {
            Chosen::File(file) => Ok(Found::File(file)),
            Chosen::Stored(_, made) => Ok(Found::File(made.or(original))),
            Chosen::Make(store, coding) => {
                Err(Missing::WouldBlock(BlockingTask(Task::Make { store, original, coding })))
            }
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

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
