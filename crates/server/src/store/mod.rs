//! The cache of responses: stored in files, sent as files are.
//!
//! ```text
//! site/proxy.rs ─► answer.rs ─► front.rs (this worker's memory) ─► disk.rs ─► index.rs, directory.rs ─► object.rs
//!                     │ nothing, or stale                                                                   ▲
//!                     └─► fill.rs (one fetch for all that wait) ◄─ fetch.rs ─► upstream ─► origin           │
//!                                                                     └────────────────────── format.rs ────┘
//! purge.rs ◄─► purge_file.rs (restarts), successor.rs (the process that takes over), stream.rs (other nodes, by resp.rs)
//! slices.rs: a response as a row of objects, each found or fetched when it is its turn
//! searches.rs: which response answers a query, where the origin sends No-Vary-Search
//! coded.rs: the content of a response in a content coding, as an object beside it
//! ```
//!
//! `sealion-cache` decides which responses may be stored and sent. It has no file and no clock.

mod answer;
mod changes;
mod check;
mod claim;
mod coded;
mod config;
mod counts;
mod describe;
mod directory;
mod disk;
mod disk_failure;
mod emptied;
mod fetch;
mod file_system;
mod fill;
mod fills;
mod format;
mod front;
mod index;
mod invalidated;
mod key;
mod lookup;
mod object;
mod opening;
mod purge;
mod purge_file;
mod purge_orders;
mod purge_url;
mod purging;
mod query;
mod readable;
mod replaced;
mod resp;
mod respond;
mod room;
mod rule;
mod searches;
mod slices;
mod snapshot;
mod storing;
mod stream;
mod successor;
mod sweep;
mod tail;
mod under_way;
mod variants;
mod writer;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lru::LruCache;
use thread_local::ThreadLocal;

pub(crate) use answer::{Answered, Question};
pub(crate) use config::{CacheConfig, CacheRuleConfig};
pub(crate) use counts::DiskState;
pub(crate) use fetch::bound_fetches;
pub(crate) use purge::{Purge, Target};
pub(crate) use purge_url::one_slash_first;
pub(crate) use query::content_in_key;
pub(crate) use rule::{CacheRule, Targeted};
pub(crate) use stream::PurgeStreamState;
pub(crate) use successor::Forward;

use crate::values::{Mutex, Problems};
use changes::Changes;
use coded::Forms;
use disk::Disk;
use fill::Fill;
use fills::{MOST_PASSED, Passed};
use front::Front;
use key::KeyHasher;
use object::Object;
use opening::Slot;
use purge::{Purges, Verdict};
use purge_orders::PurgeFiles;
use searches::Searches;
use stream::PurgeStream;
use successor::Successor;
use under_way::UnderWay;
use variants::Variants;

/// The store of a process.
#[derive(Debug)]
pub(crate) struct Store {
    config: CacheConfig,
    paths: Box<[PathBuf]>,
    /// Purges of other nodes.
    stream: Option<PurgeStream>,
    successor: Successor,
    /// Set when the process starts to serve.
    opened: OnceLock<Opened>,
    /// The fills, by the hash of the key.
    fills: Mutex<HashMap<u128, Arc<Fill>>>,
    /// All fetches until their responses are stored, also fetches that requests do not find.
    under_way: UnderWay,
    /// Keys whose responses were not stored, or not yet.
    passed: Mutex<LruCache<u128, Passed>>,
    variants: Variants,
    forms: Forms,
    searches: Searches,
    changes: Arc<Changes>,
    fronts: ThreadLocal<RefCell<Front>>,
    /// Files that each worker keeps open.
    most_open: usize,
}

#[derive(Debug)]
struct Opened {
    slots: Box<[Slot]>,
    /// The salt of the hashes of keys, set with the first disk that has it written down.
    salt: OnceLock<[u8; 16]>,
    /// Set with the first disk that is used.
    hasher: OnceLock<KeyHasher>,
    purges: Purges,
    purge_files: PurgeFiles,
}

impl Opened {
    fn disks(&self) -> impl Iterator<Item = &Arc<Disk>> + Clone {
        self.slots.iter().filter_map(Slot::disk)
    }
}

impl Store {
    /// `None`: there are no directories. `before`: the store in use. `most_open`: files that each worker may keep open. Opens nothing.
    pub(crate) fn build(
        config: &CacheConfig,
        most_open: usize,
        before: Option<&Arc<Store>>,
        problems: &mut Problems,
    ) -> Option<Arc<Self>> {
        if config.directories.is_empty() {
            return None;
        }
        if let Some(same) = before.filter(|before| before.config == *config) {
            return Some(Arc::clone(same));
        }
        if config.size.0 == 0 {
            let what = "is 0: nothing would be stored: remove [cache], or write for instance 10GB";
            problems.add(&config.directories.span, "cache.size", what);
        }
        let paths: Box<[PathBuf]> = config.directories.iter().map(|path| problems.resolve(path)).collect();
        if let Some(twice) = paths.iter().enumerate().find_map(|(n, path)| paths[..n].contains(path).then_some(path)) {
            let what = format_args!("{} is named twice: each disk has one directory", twice.display());
            problems.add(&config.directories.span, "cache.directories", what);
        }
        if let Some(other) = paths.iter().find(|path| path.exists() && !path.is_dir()) {
            let what = format_args!("{} is not a directory: name one that the server may write to", other.display());
            problems.add(&config.directories.span, "cache.directories", what);
        }
        let stream = PurgeStream::build(config, problems);
        Some(Arc::new(Store {
            config: config.clone(),
            paths,
            stream,
            successor: Successor::default(),
            opened: OnceLock::new(),
            fills: Mutex::default(),
            under_way: UnderWay::default(),
            passed: Mutex::new(LruCache::new(MOST_PASSED)),
            variants: Variants::new(),
            forms: Forms::default(),
            searches: Searches::default(),
            changes: Arc::default(),
            fronts: ThreadLocal::new(),
            most_open,
        }))
    }

    /// Opens the directories, and makes the missing files in them. Returns the paths that the serving user must own. Directories in trouble are
    /// tried again after [`Self::start`].
    ///
    /// # Errors
    /// A line: a directory holds files of others.
    pub(crate) fn open(&self) -> Result<Vec<PathBuf>, String> {
        let opened = Opened::new(&self.paths, &self.config, &self.changes)?;
        let made = opened.disks().flat_map(|disk| disk.directory.own_paths()).collect();
        let _ = self.opened.set(opened);
        Ok(made)
    }

    /// Starts to own the directories, and to load their indexes. Before, nothing is stored. Applies the purges that other nodes ordered meanwhile.
    ///
    /// # Errors
    /// A line: no thread can be started.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), String> {
        let started = self.disks().try_for_each(Disk::start);
        let started = started.and_then(|()| self.opened().purge_files.start(&Arc::downgrade(self)));
        let started = started.and_then(|()| self.try_missing());
        let started = started.and_then(|()| if self.stream.is_some() { stream::follow(self) } else { Ok(()) });
        started.map_err(|error| format!("cannot start the cache: {error}"))
    }

    /// Has the worker of this thread close files that were deleted. Workers call it each [`SWEEP`], asked or not: the room of a deleted file is
    /// free when the last one has closed it.
    pub(crate) fn sweep(&self) {
        if let Some(front) = self.fronts.get() {
            let has = |object: &Object| self.disk(object.hash).version(object.hash) == object.version();
            front.borrow_mut().sweep(has);
        }
    }

    /// Leaves the directories to the next process. `is_clean`: all of it is to reach the disks first. A disk that hangs is waited for until `deadline`; its
    /// directory stays with this process until that ends.
    pub(crate) fn close(self: &Arc<Self>, is_clean: bool, deadline: Instant) {
        let part = deadline.saturating_duration_since(Instant::now()) / 4;
        if let Err(error) = self.opened().purge_files.complete(Instant::now() + part) {
            tracing::warn!("cache: cannot write down a purge: {error}; the next start knows it only from other disks");
        }
        let disks: Vec<_> = self.disks().cloned().collect();
        let closing = disks.iter().cloned().map(|disk| move || disk.close(is_clean));
        for n in finish_until(deadline, closing) {
            let path = disks[n].directory.path.display();
            tracing::warn!(
                "cache {path}: the disk hangs: it was left as it is, and the next start reads the whole directory"
            );
        }
    }

    fn opened(&self) -> &Opened {
        self.opened.get().expect("a process opens its store before it serves")
    }

    /// The disks that are used.
    fn disks(&self) -> impl Iterator<Item = &Arc<Disk>> + Clone {
        self.opened().disks()
    }

    /// Whether a disk is used. Otherwise keys have no hashes yet, and requests pass.
    fn has_disk(&self) -> bool {
        self.opened().hasher.get().is_some()
    }

    /// A line: a directory that is not used, so that a purge does not reach its objects.
    fn missing(&self) -> std::io::Result<()> {
        match self.opened().slots.iter().find_map(Slot::trouble) {
            Some(trouble) => Err(std::io::Error::other(trouble)),
            None => Ok(()),
        }
    }

    fn purges(&self) -> &Purges {
        &self.opened().purges
    }

    fn hash(&self, key: &[u8]) -> u128 {
        self.opened().hasher.get().expect("a disk is used").hash(key)
    }

    /// The disk of an object: the highest rank for its hash, so that another disk moves only its own share.
    fn disk(&self, hash: u128) -> &Arc<Disk> {
        let rank = |disk: &&Arc<Disk>| {
            let number = u128::from_le_bytes(disk.directory.number);
            (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 64
        };
        self.disks().max_by_key(rank).expect("a disk is used")
    }

    /// The verdict on an object, by the purges and by the times when disks were not used.
    fn verdict(&self, object: &Object) -> Verdict {
        let purged = self.purges().verdict(&object.key, &object.head.tags, &object.head.groups, object.times.made);
        match purged {
            Verdict::Valid if object.times.asked <= self.changes.doubted_until() => Verdict::Doubtful,
            purged => purged,
        }
    }

    /// Notes that an object is stored: later requests for its key find it.
    fn stored(&self, object: &Object) {
        self.passed.lock().pop(&object.hash);
        self.changed(object.hash);
    }

    /// The object of a key is asked for.
    fn touch(&self, hash: u128, key: &[u8]) {
        self.disk(hash).touch(hash);
        if key::is_slice(key) || key::is_form(key) {
            return;
        }
        if let Some(of_url) = key::without_variant(key) {
            self.variants.used(hash);
            // Workers keep the list too: nothing else says that it is asked for.
            let list = self.hash(of_url);
            self.disk(list).touch(list);
        }
    }

    /// An object was replaced.
    fn changed(&self, hash: u128) {
        self.changes.add(hash);
    }

    fn epoch(&self, hash: u128) -> u64 {
        self.changes.of(hash)
    }

    /// The purge stream, as metrics show it.
    pub(crate) fn stream_state(&self) -> Option<PurgeStreamState> {
        self.stream.as_ref().map(PurgeStream::state)
    }

    fn front(&self) -> &RefCell<Front> {
        self.fronts.get_or(|| {
            let memory = usize::try_from(self.config.memory.0).unwrap_or(usize::MAX);
            RefCell::new(Front::new(memory, self.most_open))
        })
    }

    /// Its disks, as metrics show them.
    pub(crate) fn disk_states(&self) -> impl Iterator<Item = DiskState> {
        self.opened().slots.iter().map(Slot::state)
    }
}

/// Does works side by side, each on a thread of its own. Returns the works that have not ended by the deadline, and leaves them to their threads.
fn finish_until<W: FnOnce() + Send + 'static>(deadline: Instant, works: impl IntoIterator<Item = W>) -> Vec<usize> {
    let (ended, each) = std::sync::mpsc::channel();
    let mut missing = Vec::new();
    for (n, work) in works.into_iter().enumerate() {
        let ended = ended.clone();
        let work = move || {
            work();
            let _ = ended.send(n);
        };
        missing.push(n);
        if let Err(error) = std::thread::Builder::new().name("sealion-close".to_owned()).spawn(work) {
            tracing::warn!("cache: cannot start a thread: {error}");
        }
    }
    drop(ended);
    while let Ok(n) = each.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        missing.retain(|other| *other != n);
    }
    missing
}

/// Seconds since 1970-01-01.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Milliseconds since 1970-01-01, for the order of fetches and purges: it never goes back, even if the clock is set back, and goes on behind each
/// purge.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    LATEST.fetch_max(now, Ordering::Relaxed).max(now)
}

/// Makes responses that are fetched from now on younger than a purge of this time.
fn go_behind(purge: u64) {
    LATEST.fetch_max(purge.saturating_add(1), Ordering::Relaxed);
}

static LATEST: AtomicU64 = AtomicU64::new(0);

/// Bodies of at most so many bytes are kept in memory. A response holds its body for as long as its client takes it: the 128 streams of a stalled client
/// hold 2 MiB. Longer bodies are sent from their files, and such responses have places (`limits/streams.rs`).
const KEPT_IN_MEMORY: u64 = 16 << 10;

/// Most files that a worker keeps open.
pub(crate) const MOST_OPEN: usize = 1000;

/// How long the end of the process waits for a disk at least.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// Time between calls of [`Store::sweep`].
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
