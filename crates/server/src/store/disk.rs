//! A disk: its directory, its index, and a thread that removes objects.

mod removing;
mod thread;

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use lru::LruCache;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::changes::Changes;
use super::check::Checks;
use super::counts::Counts;
use super::directory::{Directory, Opened, Temporary};
use super::format::{Kind, Metadata, tail};
use super::index::{Blocks, Entry, Index};
use super::object::{Object, Stored};
use super::room::{LARGE, Room};
use super::rule::Rules;
use super::sweep::Sweeps;
use super::writer::{Full, Writer};
use crate::files::resolve::Wait;
use crate::observe::Warnings;
use crate::values::Mutex;

/// A disk with stored responses.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) directory: Arc<Directory>,
    pub(super) index: Index,
    pub(super) room: Room,
    pub(super) sweeps: Sweeps,
    pub(super) checks: Checks,
    /// Whether the index has every object of the directory.
    is_loaded: AtomicBool,
    /// Whether the thread is removing files.
    is_removing: AtomicBool,
    /// Whether another process owned the directory when the thread looked last.
    is_of_another: AtomicBool,
    /// Whether it was said that another process owns the directory.
    is_told: AtomicBool,
    /// Until when nothing is written, in milliseconds after `begun`: the disk failed.
    pub(super) paused_until: AtomicU64,
    begun: Instant,
    /// Held while a file gets its name and its entry: the snapshot has all files or none is written.
    naming: RwLock<()>,
    /// Request times of the objects that were stored last: two responses to one request are written in any order, and the newer one stays. One of the locks
    /// is held, before `naming`, while a file gets its name or loses it.
    pub(super) latest: [Mutex<LruCache<u128, u64>>; LOCKS],
    pub(super) writer: Writer,
    /// The lines about responses that came faster than they were written.
    dropped: Warnings,
    /// The lines about operations that the disk had no time for.
    pub(super) overloads: Warnings,
    pub(super) removals: Mutex<Removals>,
    has_work: Condvar,
    pub(super) counts: Counts,
    /// The changes of the store, whose workers keep objects of this disk.
    pub(super) changes: Arc<Changes>,
    /// Whether it was said that this process cannot become the owner.
    pub(super) is_told_of_owner: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Removals {
    pub(super) hashes: Vec<u128>,
    /// Objects that were removed while the index is being loaded, and not stored again: loading may still find their files. While another process owns the
    /// directory, objects that this process does not send: only the owner removes their files.
    while_loading: HashSet<u128>,
    pub(super) is_stopping: bool,
    /// Whether the disk was closed before this process owned the directory.
    is_left: bool,
}

impl Disk {
    /// Opens the directory, and starts to load its index.
    pub(super) fn open(
        path: &Path,
        size: u64,
        objects: u64,
        reserve: u64,
        changes: &Arc<Changes>,
    ) -> io::Result<Arc<Self>> {
        let disk = Arc::new(Disk {
            directory: Arc::new(Directory::open(path)?),
            index: Index::new(size, objects),
            room: Room::new(reserve),
            sweeps: Sweeps::default(),
            checks: Checks::default(),
            is_loaded: AtomicBool::new(false),
            is_removing: AtomicBool::new(false),
            is_of_another: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            paused_until: AtomicU64::new(0),
            begun: Instant::now(),
            naming: RwLock::default(),
            latest: std::array::from_fn(|_| Mutex::new(LruCache::new(MOST_LATEST))),
            writer: Writer::default(),
            dropped: Warnings::default(),
            overloads: Warnings::default(),
            removals: Mutex::default(),
            has_work: Condvar::new(),
            counts: Counts::default(),
            changes: Arc::clone(changes),
            is_told_of_owner: AtomicBool::new(false),
        });
        Ok(disk)
    }

    /// Adds an object that was there at the start, unless a newer one is, or it was removed.
    fn add_found(&self, hash: u128, length: u64) {
        // The lock is held, so that no removal comes in between.
        let mut removals = self.removals.lock();
        if self.index.peek(hash).is_none() && !removals.while_loading.contains(&hash) {
            let (_, gone) = self.add_to_index(hash, length);
            self.queue(&mut removals, gone);
        }
    }

    /// Adds an object to the index, and has the objects removed that must go for it. Returns its version.
    fn add(&self, hash: u128, length: u64) -> u32 {
        if !self.is_loaded() {
            self.removals.lock().while_loading.remove(&hash);
        }
        let (version, gone) = self.add_to_index(hash, length);
        self.remove_later(gone);
        version
    }

    /// Adds an object to the index. Returns its version, and the objects that must go for it.
    fn add_to_index(&self, hash: u128, length: u64) -> (u32, Vec<u128>) {
        let (version, gone) = self.index.insert(hash, Blocks::of(length));
        if self.directory.is_owner() {
            self.counts.evicted.fetch_add(gone.len() as u64, Ordering::Relaxed);
        }
        (version, gone)
    }

    /// Whether the index has every object of the directory.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire)
    }

    /// Has the thread look at once.
    pub(super) fn wake(&self) {
        self.has_work.notify_one();
    }

    /// Whether an object may be stored now. `length`: of its body, if it is known.
    pub(super) async fn may_store(self: &Arc<Self>, length: Option<u64>) -> bool {
        self.directory.is_owner() && !self.hangs() && !self.is_paused() && self.has_room_for(length).await
    }

    /// Whether it failed a moment ago.
    fn is_paused(&self) -> bool {
        self.now() < self.paused_until.load(Ordering::Relaxed)
    }

    /// Has a response written behind the request that fetched it: `job` takes so many bytes of memory until then. Where too much waits already, it is not
    /// stored, and the disk goes on with the others.
    pub(super) fn write_later(&self, octets: usize, job: impl FnOnce() + Send + 'static) {
        if self.hangs() {
            return;
        }
        if let Err(Full { hangs }) = self.writer.push(octets, job) {
            if hangs {
                return self.begin_to_hang();
            }
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            let path = self.directory.path.display();
            let what = format_args!(
                "cache {path}: responses come faster than the disk writes them: one is not stored: add a directory on another disk, or store less by min_uses"
            );
            if let Some(line) = self.dropped.line(what, "more before it were not") {
                tracing::warn!("{line}");
            }
        }
    }

    /// Has something done once all that was given to [`Self::write_later`] before is written. Waits for it, but not for long, since the disk may hang.
    pub(super) async fn behind_writes(&self, job: impl FnOnce() + Send + 'static) {
        let (ended, has_ended) = oneshot::channel();
        let job = move || {
            job();
            let _ = ended.send(());
        };
        if self.writer.push(0, job).is_ok() && !self.hangs() {
            let _ = timeout(Duration::from_secs(1), has_ended).await;
        }
    }

    fn naming(&self) -> RwLockReadGuard<'_, ()> {
        self.naming.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since it was opened.
    pub(super) fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// The entry of an object that is asked for. [`Lookup::Unknown`]: the index is not loaded yet, and the directory may have it. A disk that hangs has none.
    pub(super) fn lookup(&self, hash: u128) -> Lookup {
        if self.hangs() {
            return Lookup::None;
        }
        match self.index.get(hash) {
            Some(entry) => Lookup::Found(entry),
            None if self.is_loaded() => Lookup::None,
            None => Lookup::Unknown,
        }
    }

    /// Says that an object is asked for again.
    pub(super) fn touch(&self, hash: u128) {
        self.index.get(hash);
    }

    pub(super) fn version(&self, hash: u128) -> Option<u32> {
        self.index.peek(hash).map(|entry| entry.version)
    }

    /// Loads an object. Removes a damaged one.
    pub(super) fn load_object(
        &self,
        hash: u128,
        key: &[u8],
        rules: &Rules,
        wait: Wait,
    ) -> Result<Option<Stored>, Waits> {
        let Some(opened) = self.open_object(hash, key, wait)? else { return Ok(None) };
        let is_suspect = self.directory.is_suspect(&opened.footer);
        match Stored::load(opened, is_suspect, rules, wait, &self.directory.threads) {
            Ok(Some(stored)) => Ok(Some(stored)),
            Ok(None) => {
                tracing::warn!("cache {}: a damaged object was removed", self.directory.path.display());
                self.remove(hash);
                Ok(None)
            }
            Err(error) => self.unread(hash, &error, wait),
        }
    }

    /// Opens an object. Removes a damaged one.
    pub(super) fn open_object(&self, hash: u128, key: &[u8], wait: Wait) -> Result<Option<Opened>, Waits> {
        match self.directory.find(hash, wait) {
            Ok(Some(opened)) if opened.metadata.key == key => {
                // A file that was removed may be there still.
                if self.index.peek(hash).is_none() && self.is_removed(hash) {
                    return Ok(None);
                }
                self.add_found(hash, opened.length);
                Ok(Some(opened))
            }
            // Another key has the same hash.
            Ok(Some(_)) => Ok(None),
            // While the index is loaded, clients may ask for very many that are not there.
            Ok(None) => {
                if self.index.peek(hash).is_some() {
                    self.remove(hash);
                }
                Ok(None)
            }
            Err(error) => self.unread(hash, &error, wait),
        }
    }

    /// An object was not read: the disk failed, or the call would have blocked.
    fn unread<T>(&self, hash: u128, error: &io::Error, wait: Wait) -> Result<Option<T>, Waits> {
        if wait == Wait::No && error.kind() == io::ErrorKind::WouldBlock {
            return Err(Waits);
        }
        self.failed("read an object", error);
        // A damaged object must not stay: each request for it would pause the disk again. Without descriptors or memory, no object can be read.
        let errno = error.raw_os_error();
        let is_ours = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].iter().any(|own| errno == Some(own.raw_os_error()));
        if !is_ours {
            self.remove(hash);
        }
        Ok(None)
    }

    /// Begins a file with room for a body of this length. May block.
    pub(super) fn create(&self, length: Option<u64>) -> io::Result<Temporary> {
        let temporary = self.directory.create()?;
        if let Some(length) = length.filter(|length| *length >= LARGE) {
            // Without it, a disk that fills up is noticed when clients already read the object.
            match rustix::fs::fallocate(&temporary.file, FallocateFlags::KEEP_SIZE, 0, length) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(temporary)
    }

    /// Ends the file of an object whose body is written, and adds it to the index. May block. Returns its version; `Ok(None)`: a newer one is there.
    pub(super) fn finish(
        &self,
        temporary: Temporary,
        metadata: &Metadata,
        hash: u128,
        times: Times,
        body: (u64, u32),
    ) -> io::Result<Option<u32>> {
        let (tail, length) = tail(metadata, hash, times.made, body, self.directory.boot())?;
        temporary.file.write_all_at(&tail, body.0)?;
        let version = self.publish(temporary, hash, times, length)?;
        self.counts.stored.fetch_add(u64::from(version.is_some()), Ordering::Relaxed);
        Ok(version)
    }

    /// Gives a file its name, in place of an older object. `Ok(None)`: a newer one is there.
    fn publish(&self, temporary: Temporary, hash: u128, times: Times, length: u64) -> io::Result<Option<u32>> {
        match self.turn(hash, times) {
            Some(_alone) => self.replace(temporary, hash, length).map(Some),
            None => Ok(None),
        }
    }

    /// Gives a file its name, while no other one can get it.
    fn replace(&self, temporary: Temporary, hash: u128, length: u64) -> io::Result<u32> {
        let _naming = self.naming();
        temporary.publish(hash)?;
        Ok(self.add(hash, length))
    }

    fn latest(&self, hash: u128) -> MutexGuard<'_, LruCache<u128, u64>> {
        self.latest[hash as usize % LOCKS].lock()
    }

    /// Keeps other writers from the name of an object. `None`: the object there was requested later.
    fn turn(&self, hash: u128, times: Times) -> Option<MutexGuard<'_, LruCache<u128, u64>>> {
        let mut latest = self.latest(hash);
        if latest.peek(&hash).is_some_and(|other| *other > times.asked) {
            return None;
        }
        latest.put(hash, times.asked);
        Some(latest)
    }

    /// Writes a small object at once. May block. Returns its version; `Ok(None)`: a newer one is there.
    pub(super) fn write(&self, body: &[u8], metadata: &Metadata, hash: u128, times: Times) -> io::Result<Option<u32>> {
        let mut temporary = self.create(None)?;
        let of_body = (body.len() as u64, crc32c::crc32c(body));
        let (tail, length) = tail(metadata, hash, times.made, of_body, self.directory.boot())?;
        let parts = [io::IoSlice::new(body), io::IoSlice::new(&tail)];
        let written = temporary.file.write_vectored(&parts)?;
        if written < body.len() + tail.len() {
            let rest = [body, &tail].concat().split_off(written);
            temporary.file.write_all(&rest)?;
        }
        let version = self.publish(temporary, hash, times, length)?;
        if version.is_some() && matches!(metadata.kind, Kind::Response { .. }) {
            self.counts.stored.fetch_add(1, Ordering::Relaxed);
        }
        Ok(version)
    }

    /// Appends metadata to an object, after its validation. May block. Returns its version; `Ok(None)`: the file belongs to another object by now.
    pub(super) fn append(&self, object: &Object, metadata: &Metadata, times: Times) -> io::Result<Option<u32>> {
        let hash = object.hash;
        let Some(_alone) = self.turn(hash, times) else { return Ok(None) };
        let Some(Opened { file, footer, metadata: old, length }) = self.directory.find(hash, Wait::Yes)? else {
            return Ok(None);
        };
        let is_same = old.key == metadata.key
            && (footer.stored, footer.body, footer.body_checksum)
                == (object.times.made, object.body.len, object.checksum);
        let Some(owned) = self.directory.owned().filter(|_| is_same) else { return Ok(None) };
        let (tail, whole) = tail(metadata, hash, times.made, (footer.body, footer.body_checksum), footer.boot)?;
        // Clients can have a response validated as often as they like.
        if length - footer.body > MOST_TAILS.max(footer.body / 8) {
            let temporary = self.create(None)?;
            let mut target = &temporary.file;
            if io::copy(&mut file.take(footer.body), &mut target)? != footer.body {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            temporary.file.write_all_at(&tail, footer.body)?;
            return self.replace(temporary, hash, whole).map(Some);
        }
        let mut target = owned.open_to_append(hash)?;
        // Another response may have taken the name since.
        if target.metadata()?.ino() != file.metadata()?.ino() {
            return Ok(None);
        }
        target.write_all(&tail)?;
        let was_checked = self.index.peek(hash).is_some_and(|entry| entry.is_checked);
        let version = self.add(hash, length + tail.len() as u64);
        if was_checked {
            self.index.note_checked(hash, version);
        }
        Ok(Some(version))
    }

    /// The origin has another representation than the one whose slices are fetched.
    pub(super) fn count_changed(&self) {
        self.counts.slices_changed.fetch_add(1, Ordering::Relaxed);
    }
}

/// The times of a response, in milliseconds since 1970-01-01.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// When it was made, for purges.
    pub(super) made: u64,
    /// When it was requested: of two objects, the one that was requested later stays.
    pub(super) asked: u64,
}

/// A call that must not block would have blocked.
#[derive(Debug)]
pub(super) struct Waits;

/// Whether the index has an object.
pub(super) enum Lookup {
    Found(Entry),
    None,
    /// The index is not loaded yet: the directory may have it.
    Unknown,
}

pub(super) const TURN: Duration = Duration::from_millis(500);
/// How long the process before may own the directory without a word.
const TAKEOVER: Duration = Duration::from_secs(5);
const REMOVALS_AT_ONCE: usize = 64;
pub(super) const LOCKS: usize = 64;
/// Recent request times, kept per lock: enough for the objects that are written at the same time.
const MOST_LATEST: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");
/// Objects that a process does not send while another owns the directory. Beyond, all are looked at again: clients can invalidate very many.
const MOST_NOT_SENT: usize = 100_000;
/// Bytes that validations may append to an object before its file is rewritten.
const MOST_TAILS: u64 = 64 << 10;

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
