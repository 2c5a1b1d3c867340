//! The cache of responses: stored in files, sent as files are.
//!
//! ```text
//! site/proxy.rs ─► answer.rs ─► front.rs (this worker's memory) ─► disk.rs ─► index.rs, directory.rs ─► object.rs
//!                     │ nothing, or stale                                                                   ▲
//!                     └─► fill.rs (one fetch for all that wait) ◄─ fetch.rs ─► upstream ─► origin           │
//!                                                                     └────────────────────── format.rs ────┘
//! purge.rs ◄─► purge_file.rs (restarts), successor.rs (the process that takes over), stream.rs (other nodes, by resp.rs)
//! slices.rs: a response as a row of objects, each found or fetched when it is its turn
//! coded.rs: the content of a response in a content coding, as an object beside it
//! ```
//!
//! What may be stored and sent is decided by `sealion-cache`, which has no file and no clock.

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
mod format;
mod former;
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
mod readable;
mod replaced;
mod resp;
mod respond;
mod room;
mod rule;
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
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lru::LruCache;
use thread_local::ThreadLocal;
use tokio::task::spawn_blocking;

pub(crate) use answer::{Answered, Question};
pub(crate) use coded::{Coded, Form};
pub(crate) use config::{CacheConfig, CacheRuleConfig};
pub(crate) use counts::DiskState;
pub(crate) use fetch::bound_fetches;
pub(crate) use purge::{Purge, Target};
pub(crate) use purge_url::one_slash_first;
pub(crate) use rule::{CacheRule, Targeted};
pub(crate) use stream::PurgeStreamState;
pub(crate) use successor::Forward;

use crate::values::Problems;
use changes::Changes;
use coded::Forms;
use disk::Disk;
use fill::{Fill, Joined, Known};
use front::Front;
use key::{KeyHasher, NUMBER};
use object::{Object, Stored};
use opening::Slot;
use purge::{Purges, Verdict};
use purge_file::Durable;
use purge_orders::PurgeFiles;
use rule::Rules;
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
    /// What is being fetched, by the hash of the key.
    fills: Mutex<HashMap<u128, Arc<Fill>>>,
    /// All fetches until their responses are stored, also those that requests do not find.
    under_way: UnderWay,
    /// Keys whose responses were not stored, or not yet.
    passed: Mutex<LruCache<u128, Passed>>,
    variants: Variants,
    forms: Forms,
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

#[derive(Debug, Clone, Copy, Default)]
struct Passed {
    /// Requests for a response that waits for `min_uses`.
    uses: u64,
    /// When its response could not be shared, and why: until [`NOT_SHARED_FOR`] after, requests do not wait for each other's fetch.
    not_shared: NotShared,
}

/// By kind of request: a response may be private to users only.
#[derive(Debug, Clone, Copy, Default)]
struct NotShared {
    /// For requests that name no user.
    anonymous: Option<(Instant, &'static str)>,
    /// For requests that name a user.
    of_user: Option<(Instant, &'static str)>,
}

impl NotShared {
    fn of(self, names_user: bool) -> Option<(Instant, &'static str)> {
        if names_user { self.of_user } else { self.anonymous }
    }

    fn note(&mut self, why: &'static str, names_user: bool) {
        let kind = if names_user { &mut self.of_user } else { &mut self.anonymous };
        *kind = Some((Instant::now(), why));
    }

    fn latest(self) -> Option<(Instant, &'static str)> {
        self.anonymous.max(self.of_user)
    }
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
            let what = format_args!("{} is no directory: name one that the server may write to", other.display());
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
            changes: Arc::default(),
            fronts: ThreadLocal::new(),
            most_open,
        }))
    }

    /// Opens the directories, and makes what is missing in them. Returns what the user that serves must own. Those in trouble are tried again after
    /// [`Self::start`].
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
            tracing::warn!(
                "cache: cannot write down what was purged: {error}; the next start knows it from other disks alone"
            );
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

    /// Those that are used.
    fn disks(&self) -> impl Iterator<Item = &Arc<Disk>> + Clone {
        self.opened().disks()
    }

    /// Whether a disk is used. Otherwise keys have no hashes yet, and requests pass.
    fn has_disk(&self) -> bool {
        self.opened().hasher.get().is_some()
    }

    /// A line: a directory that is not used, so that a purge does not reach what it has.
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

    /// The disk of an object: the one that ranks highest for its hash, so that another disk moves its own share alone.
    fn disk(&self, hash: u128) -> &Arc<Disk> {
        let rank = |disk: &&Arc<Disk>| {
            let number = u128::from_le_bytes(disk.directory.number);
            (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 64
        };
        self.disks().max_by_key(rank).expect("a disk is used")
    }

    fn fills(&self) -> MutexGuard<'_, HashMap<u128, Arc<Fill>>> {
        self.fills.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passed(&self) -> MutexGuard<'_, LruCache<u128, Passed>> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fill of a key. `looked`: the state of its changes before the caller looked for an object and found none; `None`: it needs a fill in any
    /// case.
    /// `rules`: the number of the rule that asks. A place is taken only for a fetch that begins.
    fn join(&self, id: u128, key: &[u8], rules: [u8; NUMBER], names_user: bool, looked: Option<u64>) -> Joined {
        if self.is_passed(id, names_user) {
            return Joined::alone(key, rules);
        }
        let mut fills = self.fills();
        // A fill is forgotten after what it stored has changed the state.
        match (fills.get(&id), looked) {
            (Some(fill), _) if !fill.has_ended() && fill.rules == rules => return Joined::Shared(Arc::clone(fill)),
            (Some(fill), _) if !fill.has_ended() => {}
            (Some(_), Some(_)) => return Joined::Ended,
            (None, Some(looked)) if looked != self.epoch(id) => return Joined::Ended,
            // One that is over answered those that waited for it; its object may be stale by now.
            _ => {}
        }
        let joined = Joined::alone(key, rules);
        if let Joined::New(fill, _) = &joined {
            take_place(&mut fills, id, fill);
        }
        joined
    }

    /// Whether the response to a key was for one request only, a moment ago.
    fn is_passed(&self, id: u128, names_user: bool) -> bool {
        let passed = self.passed().peek(&id).and_then(|passed| passed.not_shared.of(names_user));
        passed.is_some_and(|(at, _)| at.elapsed() < NOT_SHARED_FOR)
    }

    /// What is stored under a key once a fetch has been written: its object, if that is whole, or the fields by which the responses of its URL
    /// differ, as soon as they are known.
    fn being_written(&self, id: u128, key: &[u8], rules: &Rules) -> Option<Stored> {
        let fill = Arc::clone(self.fills().get(&id)?);
        let known = fill.known()?;
        let (own, head) = match &known {
            Known::Object(object) => (&object.key, &object.head),
            Known::Flowing(flowing) => (&flowing.key, &flowing.head),
        };
        if **own != *key {
            return Some(Stored::Variants(rules.vary(&head.fields)?.into()));
        }
        match known {
            Known::Object(object) => {
                let object = if fill.rules == rules.number { object } else { Arc::new(object.made_by(rules)) };
                // It may be older than a purge, if it came from another cache.
                (self.verdict(&object) == Verdict::Valid).then_some(Stored::Object(object))
            }
            Known::Flowing(_) => None,
        }
    }

    /// The response of a fill that was found by the key without variant has one: those that know it find the fill too.
    fn also_found_by(&self, id: u128, variant: u128, fill: &Arc<Fill>) {
        let mut fills = self.fills();
        let is_found = |id| fills.get(&id).is_some_and(|other| Arc::ptr_eq(other, fill));
        let is_free = fills.get(&variant).is_none_or(|other| other.has_ended());
        if variant != id && is_found(id) && is_free {
            let _ = fill.variant.set(variant);
            take_place(&mut fills, variant, fill);
        }
    }

    /// What the purges say of an object, and the times for which disks were not used.
    fn verdict(&self, object: &Object) -> Verdict {
        let purged = self.purges().verdict(&object.key, &object.head.tags, &object.head.groups, object.times.made);
        match purged {
            Verdict::Valid if object.times.asked <= self.changes.doubted_until() => Verdict::Doubtful,
            purged => purged,
        }
    }

    /// A fill that is under way no more. Those whose places it took are found again while their objects wait to be written: a response that is not stored
    /// may take the place of that.
    fn forget(&self, id: u128, fill: &Arc<Fill>) {
        let mut fills = self.fills();
        fill.is_over.store(true, Ordering::Relaxed);
        let mut before = std::mem::take(&mut *fill.before.lock().unwrap_or_else(PoisonError::into_inner));
        before.retain(|(_, before)| !before.is_over.load(Ordering::Relaxed));
        for id in found_by(&fills, id, fill) {
            match before.iter().find(|(own, _)| *own == id) {
                Some((_, before)) => fills.insert(id, Arc::clone(before)),
                None => fills.remove(&id),
            };
        }
    }

    /// Has no further request find a fill.
    fn hide(&self, id: u128, fill: &Arc<Fill>) {
        let mut fills = self.fills();
        for id in found_by(&fills, id, fill) {
            fills.remove(&id);
        }
    }

    /// Has no further request wait for the fetch that others find by this hash, if it began before `at`, and is another than this one.
    fn hide_older(&self, id: u128, at: u64, fill: Option<&Arc<Fill>>) {
        let is_own = |other: &Arc<Fill>| fill.is_some_and(|fill| Arc::ptr_eq(other, fill));
        let mut fills = self.fills();
        if fills.get(&id).is_some_and(|other| other.began <= at && !is_own(other) && !other.has_ended()) {
            fills.remove(&id);
        }
    }

    /// The response to a key was for one request only.
    fn is_not_shared(&self, id: u128, why: &'static str, names_user: bool) {
        let mut passed = self.passed();
        let entry = passed.get_or_insert_mut(id, Passed::default);
        entry.not_shared.note(why, names_user);
    }

    /// Counts a request for a response that is not stored. Returns how many there were, this one included.
    fn asked_for(&self, id: u128) -> u64 {
        let mut passed = self.passed();
        let entry = passed.get_or_insert_mut(id, Passed::default);
        entry.uses += 1;
        entry.uses
    }

    /// An object is stored: nothing of its key is passed any more.
    fn stored(&self, object: &Object) {
        self.passed().pop(&object.hash);
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

    /// Purges. Later requests see it at once, and so do the process that took over and the next one; where there is a purge stream, other nodes see it when
    /// they read it. May block.
    pub(crate) fn purge(&self, target: Target, soft: bool) -> std::io::Result<()> {
        let purge = Purge { target: target.normal(), soft, at: now_ms() };
        let written = self.apply(&purge, Durable::Yes);
        let written = written.and(self.missing()).and(self.successor.forward(&purge));
        self.publish(&purge)?;
        written
    }

    /// Has the other nodes purge, where there is a purge stream. May block.
    fn publish(&self, purge: &Purge) -> std::io::Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        stream.publish(purge, self.node()).map_err(|error| {
            let server = stream.server();
            std::io::Error::other(format!(
                "it holds here alone, as the purge stream at {server} did not take it: {error}: order it again"
            ))
        })
    }

    /// The name of this process in the purge stream: directories may be copied from one node to another.
    fn node(&self) -> &str {
        static NAME: LazyLock<String> = LazyLock::new(|| {
            let mut number = [0; 16];
            aws_lc_rs::rand::fill(&mut number).expect("the system has random numbers");
            format!("{:032x}", u128::from_le_bytes(number))
        });
        &NAME
    }

    /// The purge stream, as metrics show it.
    pub(crate) fn stream_state(&self) -> Option<PurgeStreamState> {
        self.stream.as_ref().map(PurgeStream::state)
    }

    /// As [`Self::purge`], by a request. It holds when this returns; the future ends when it is written down and told.
    fn purge_by_request(
        self: &Arc<Self>,
        target: Target,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        let purge = self.purge_here(&Purge { target, soft: false, at: now_ms() });
        let written = self.opened().purge_files.begin_order(&purge, Durable::Yes);
        let store = Arc::clone(self);
        async move {
            let written = written.wait().await;
            let written = written.and(store.missing()).and(store.forward(purge.clone()).await);
            if store.stream.is_none() {
                return written;
            }
            let published = spawn_blocking(move || store.publish(&purge)).await;
            published.map_err(std::io::Error::other)??;
            written
        }
    }

    /// Purges what a response of the origin invalidates. It holds when this returns; the future ends when it is written down. A loss of power may undo it, as it
    /// may undo the request's own effect. `upstream`: of the request.
    fn invalidate(
        self: &Arc<Self>,
        target: Target,
        upstream: &str,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        let hash = match &target {
            // Files under another spelling, or with further parts of the key, go when they are asked for.
            Target::Invalidated(url) if self.has_disk() && self.may_have(url, upstream) => {
                Some(self.hash(&plain_key(url, upstream)))
            }
            _ => None,
        };
        let purge = self.purge_here(&Purge { target: target.hashed(), soft: false, at: now_ms() });
        let written = self.opened().purge_files.begin_order(&purge, Durable::No);
        let store = Arc::clone(self);
        async move {
            if let Some(hash) = hash {
                // The next such request finds nothing to purge.
                for variant in store.listed_variants(hash).await.into_iter().chain([hash]) {
                    let remove = move |disk: &Disk| {
                        disk.remove_named(variant);
                        Ok(())
                    };
                    store.disk(variant).run("remove an object", remove).await;
                }
            }
            written.wait().await.and(store.forward(purge).await)
        }
    }

    fn apply(&self, purge: &Purge, durable: Durable) -> std::io::Result<()> {
        // It holds even if it cannot be written down.
        self.opened().purge_files.order(&self.purge_here(purge), durable)
    }

    /// Purges, until the process ends. Returns the purge in the spelling by which purges compare.
    fn purge_here(&self, purge: &Purge) -> Purge {
        let purge = Purge { target: purge.target.clone().normal(), ..*purge };
        self.purges().add(&purge);
        // What is on its way was made before.
        self.fills().retain(|_, fill| !purge.target.may_cover(&fill.url));
        self.all_changed();
        purge
    }

    /// Workers compare all that they keep.
    fn all_changed(&self) {
        self.changes.add_all();
    }

    /// Whether something may be stored for a URL whose keys have no further parts, or is on its way.
    fn may_have(&self, url: &str, upstream: &str) -> bool {
        let hash = self.hash(&plain_key(url, upstream));
        let disk = self.disk(hash);
        // Another process may have stored it since it took over. A disk that hangs has files whose removal waits.
        !disk.directory.is_owner() || disk.hangs() || disk.may_have(hash) || self.fills().contains_key(&hash)
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

/// The hashes by which requests find a fill: `id`, and the variant's.
fn found_by(fills: &HashMap<u128, Arc<Fill>>, id: u128, fill: &Arc<Fill>) -> impl Iterator<Item = u128> + use<> {
    let is_found = |id: &u128| fills.get(id).is_some_and(|other| Arc::ptr_eq(other, fill));
    let [own, variant] = [Some(id), fill.variant.get().copied()].map(|id| id.filter(is_found));
    own.into_iter().chain(variant)
}

/// Has requests find a fill by this hash, in place of the one that they find now.
fn take_place(fills: &mut HashMap<u128, Arc<Fill>>, id: u128, fill: &Arc<Fill>) {
    if let Some(before) = fills.insert(id, Arc::clone(fill)) {
        fill.before.lock().unwrap_or_else(PoisonError::into_inner).push((id, before));
    }
}

/// Does works side by side, each on a thread of its own. Returns those that have not ended by the deadline, and leaves them to their threads.
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

/// The key of a URL, without further parts and variant.
fn plain_key(url: &str, upstream: &str) -> Vec<u8> {
    let mut key = url.as_bytes().to_vec();
    key::add_upstream(&mut key, upstream);
    key
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

/// What is fetched from now on is younger than a purge of this time.
fn go_behind(purge: u64) {
    LATEST.fetch_max(purge.saturating_add(1), Ordering::Relaxed);
}

static LATEST: AtomicU64 = AtomicU64::new(0);

/// Bodies of at most so many octets are kept in memory. A response holds its body for as long as its client takes it: 128 streams of a client that takes nothing
/// hold 2 MiB so. Longer bodies are sent from their files, and such responses have places (`limits/streams.rs`).
const KEPT_IN_MEMORY: u64 = 16 << 10;

/// Most files that a worker keeps open.
pub(crate) const MOST_OPEN: usize = 1000;

/// Time for which the end of the process waits for a disk at least.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// Time between calls of [`Store::sweep`].
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

/// Keys of which is remembered that their responses are not stored.
const MOST_PASSED: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

/// How long requests for a response that cannot be shared go to the origin side by side.
const NOT_SHARED_FOR: Duration = Duration::from_secs(60);

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
