//! A disk: its directory, its index, and a thread that removes what must go.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::directory::{Directory, Opened, Temporary, boot};
use super::format::{FOOTER, Footer, Kind, Metadata};
use super::index::{Blocks, Entry, Index};
use super::object::Object;

/// A disk with stored responses.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) directory: Arc<Directory>,
    index: Index,
    /// Octets to leave free on the file system.
    reserve: u64,
    /// Whether the index has every object of the directory.
    is_loaded: AtomicBool,
    /// Whether the file system has more room than the reserve.
    has_room: AtomicBool,
    /// Whether the thread is removing files.
    is_removing: AtomicBool,
    /// Until when nothing is written, in milliseconds after `begun`: the disk failed.
    paused_until: AtomicU64,
    begun: Instant,
    removals: Mutex<Removals>,
    has_work: Condvar,
    /// Objects that were stored, removed to make room, failures, and variants that were removed because their URL had too many.
    counts: [AtomicU64; 4],
}

/// A disk as metrics show it.
#[derive(Debug)]
pub(crate) struct DiskState {
    pub(crate) directory: String,
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) is_up: bool,
    pub(crate) stored: u64,
    pub(crate) evicted: u64,
    pub(crate) failures: u64,
    pub(crate) variants_removed: u64,
}

#[derive(Debug, Default)]
struct Removals {
    hashes: Vec<u128>,
    is_stopping: bool,
}

impl Disk {
    /// Opens the directory, and starts to load its index.
    pub(super) fn open(path: &Path, size: u64, objects: u64, reserve: u64) -> io::Result<Arc<Self>> {
        let disk = Arc::new(Disk {
            directory: Arc::new(Directory::open(path)?),
            index: Index::new(size, objects),
            reserve,
            is_loaded: AtomicBool::new(false),
            has_room: AtomicBool::new(true),
            is_removing: AtomicBool::new(false),
            paused_until: AtomicU64::new(0),
            begun: Instant::now(),
            removals: Mutex::default(),
            has_work: Condvar::new(),
            counts: Default::default(),
        });
        Ok(disk)
    }

    /// Starts the thread of the disk, which calls `each_turn` now and then: it becomes the owner of the directory, loads the index, and removes files.
    pub(super) fn start(self: &Arc<Self>, each_turn: impl Fn() + Send + 'static) -> io::Result<()> {
        let disk = Arc::downgrade(self);
        std::thread::Builder::new().name("sealion-cache".to_owned()).spawn(move || {
            loop {
                let Some(disk) = disk.upgrade() else { return };
                each_turn();
                if !disk.work() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// One turn of the thread. `false`: the disk is being closed.
    fn work(&self) -> bool {
        if !self.directory.is_owner() {
            match self.directory.try_own() {
                Ok(true) => self.load(),
                Ok(false) => {}
                Err(error) => self.failed("take over", &error),
            }
        }
        let has_room = self.directory.free().is_ok_and(|(octets, inodes)| octets > self.reserve && inodes > 0);
        if self.has_room.swap(has_room, Ordering::Relaxed) && !has_room {
            let path = self.directory.path.display();
            tracing::warn!(
                "cache {path}: its file system has less free than cache.free; responses pass without being stored until there is more"
            );
        }
        let mut removals = self.removals.lock().unwrap_or_else(PoisonError::into_inner);
        if removals.hashes.is_empty() && !removals.is_stopping {
            removals = self.has_work.wait_timeout(removals, TURN).unwrap_or_else(PoisonError::into_inner).0;
        }
        if removals.is_stopping {
            return false;
        }
        let hashes = std::mem::take(&mut removals.hashes);
        self.is_removing.store(!hashes.is_empty(), Ordering::Relaxed);
        drop(removals);
        for (n, hash) in hashes.iter().enumerate() {
            // An object that was stored again meanwhile stays.
            if self.index.peek(*hash).is_none()
                && let Err(error) = self.directory.remove(*hash)
            {
                self.failed("remove an object", &error);
            }
            // Removing many files at once holds up everything else that the file system does.
            if n % REMOVALS_AT_ONCE == REMOVALS_AT_ONCE - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.is_removing.store(false, Ordering::Relaxed);
        true
    }

    /// Fills the index: from the snapshot of an orderly stop, and from the directory itself.
    fn load(&self) {
        let mut known = 0_u64;
        if let Ok(snapshot) = self.directory.read_file(SNAPSHOT) {
            let (rows, checksum) = snapshot.split_at(snapshot.len().saturating_sub(4));
            if checksum == crc32c::crc32c(rows).to_le_bytes() {
                for row in rows.chunks_exact(ROW) {
                    let (Ok(hash), Ok(blocks)) = (row[..16].try_into(), row[16..].try_into()) else { continue };
                    let size = u64::from(u32::from_le_bytes(blocks)) * 4096;
                    self.add(u128::from_le_bytes(hash), size);
                    known += 1;
                }
                self.is_loaded.store(true, Ordering::Release);
            }
            let _ = self.directory.remove_file(SNAPSHOT);
        }
        if known == 0 {
            let scanned = self.directory.scan(|hash, length| {
                if self.index.peek(hash).is_none() {
                    self.add(hash, length);
                }
                !self.removals.lock().unwrap_or_else(PoisonError::into_inner).is_stopping
            });
            if let Err(error) = scanned {
                self.failed("read the directory", &error);
            }
            self.is_loaded.store(true, Ordering::Release);
        }
        let (objects, octets) = (self.index.len(), self.index.octets());
        tracing::info!("cache {}: {objects} objects, {} MB", self.directory.path.display(), octets / 1_000_000);
    }

    /// Adds an object to the index, and has removed what must go for it. Returns its version.
    fn add(&self, hash: u128, length: u64) -> u32 {
        let (version, gone) = self.index.insert(hash, Blocks::of(length));
        self.counts[1].fetch_add(gone.len() as u64, Ordering::Relaxed);
        self.remove_later(gone);
        version
    }

    /// Writes the snapshot and leaves the directory to the next process.
    pub(super) fn close(&self, is_clean: bool) {
        let mut removals = self.removals.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut removals.is_stopping, true) {
            return;
        }
        let left = std::mem::take(&mut removals.hashes);
        drop(removals);
        self.has_work.notify_all();
        if !self.directory.is_owner() {
            return;
        }
        for hash in left {
            if self.index.peek(hash).is_none() {
                let _ = self.directory.remove(hash);
            }
        }
        // Files that the thread has not come to would never be found: without a snapshot, the next process reads the directory.
        let is_whole = self.is_loaded.load(Ordering::Acquire) && !self.is_removing.load(Ordering::Relaxed);
        if is_whole {
            let mut rows = Vec::with_capacity(self.index.len() as usize * ROW + 4);
            for (hash, blocks) in self.index.iter() {
                rows.extend_from_slice(&hash.to_le_bytes());
                rows.extend_from_slice(&blocks.number().to_le_bytes());
            }
            let checksum = crc32c::crc32c(&rows);
            rows.extend_from_slice(&checksum.to_le_bytes());
            if let Err(error) = self.directory.write_file(SNAPSHOT, &rows) {
                self.failed("write the snapshot", &error);
            }
        }
        if let Err(error) = self.directory.disown(is_clean) {
            self.failed("close", &error);
        }
    }

    /// Whether an object may be stored now. `length`: of its body, if it is known.
    pub(super) fn may_store(&self, length: Option<u64>) -> bool {
        if !self.directory.is_owner() || self.now() < self.paused_until.load(Ordering::Relaxed) {
            return false;
        }
        if !self.has_room.load(Ordering::Relaxed) {
            return false;
        }
        // For small ones, the answer of the last turn counts.
        let Some(length) = length.filter(|length| *length >= LARGE) else { return true };
        self.directory.free().is_ok_and(|(octets, inodes)| octets >= length + self.reserve && inodes > 0)
    }

    /// Says that the disk failed, and stores nothing for a while.
    pub(super) fn failed(&self, what: &str, error: &io::Error) {
        if !self.directory.is_owner() {
            return;
        }
        self.counts[2].fetch_add(1, Ordering::Relaxed);
        let until = self.now() + PAUSE.as_millis() as u64;
        if self.paused_until.swap(until, Ordering::Relaxed) < self.now() {
            let path = self.directory.path.display();
            let seconds = PAUSE.as_secs();
            tracing::warn!("cache {path}: cannot {what}: {error}; responses pass without being stored for {seconds} s");
        }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// The entry of an object that is asked for. `Ok(None)`: there is none. `Err`: the index is not loaded yet, and the directory may have it.
    pub(super) fn lookup(&self, hash: u128) -> Lookup {
        match self.index.get(hash) {
            Some(entry) => Lookup::Found(entry),
            None if self.is_loaded.load(Ordering::Acquire) => Lookup::None,
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

    /// Opens an object. May block. Removes a damaged one.
    pub(super) fn open_object(&self, hash: u128, key: &[u8]) -> Option<Opened> {
        match self.directory.find(hash) {
            Ok(Some(opened)) if opened.metadata.key == key => {
                if self.index.peek(hash).is_none() {
                    self.add(hash, opened.length);
                }
                Some(opened)
            }
            Ok(Some(_)) => {
                // Another key has the same hash.
                None
            }
            Ok(None) => {
                self.remove(hash);
                None
            }
            Err(error) => {
                self.failed("read an object", &error);
                None
            }
        }
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

    /// Ends the file of an object whose body is written, and adds it to the index. May block. Returns its version.
    pub(super) fn finish(
        &self,
        temporary: Temporary,
        metadata: &Metadata,
        hash: u128,
        stored: u64,
        body: (u64, u32),
    ) -> io::Result<u32> {
        let (tail, length) = tail(metadata, hash, stored, body, boot())?;
        temporary.file.write_all_at(&tail, body.0)?;
        temporary.publish(hash)?;
        self.counts[0].fetch_add(1, Ordering::Relaxed);
        Ok(self.add(hash, length))
    }

    /// Writes a small object at once. May block. Returns its version.
    pub(super) fn write(&self, body: &[u8], metadata: &Metadata, hash: u128, stored: u64) -> io::Result<u32> {
        let mut temporary = self.create(None)?;
        let (tail, length) = tail(metadata, hash, stored, (body.len() as u64, crc32c::crc32c(body)), boot())?;
        let parts = [io::IoSlice::new(body), io::IoSlice::new(&tail)];
        let written = temporary.file.write_vectored(&parts)?;
        if written < body.len() + tail.len() {
            let rest = [body, &tail].concat().split_off(written);
            temporary.file.write_all(&rest)?;
        }
        temporary.publish(hash)?;
        if matches!(metadata.kind, Kind::Response { .. }) {
            self.counts[0].fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.add(hash, length))
    }

    /// Appends metadata to an object, after its validation at `stored`. May block. Returns its version; `Ok(None)`: the file is another one by now.
    pub(super) fn append(&self, object: &Object, metadata: &Metadata, stored: u64) -> io::Result<Option<u32>> {
        let hash = object.hash;
        let Some(Opened { file, footer, metadata: old, length }) = self.directory.find(hash)? else { return Ok(None) };
        let is_same = old.key == metadata.key
            && (footer.stored, footer.body, footer.body_checksum) == (object.stored, object.body.len, object.checksum);
        if !is_same || !self.directory.is_owner() {
            return Ok(None);
        }
        let (tail, whole) = tail(metadata, hash, stored, (footer.body, footer.body_checksum), footer.boot)?;
        // Clients can have a response validated as often as they like.
        if length - footer.body > MOST_TAILS.max(footer.body / 8) {
            let temporary = self.create(None)?;
            let mut target = &temporary.file;
            if io::copy(&mut file.take(footer.body), &mut target)? != footer.body {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            temporary.file.write_all_at(&tail, footer.body)?;
            temporary.publish(hash)?;
            return Ok(Some(self.add(hash, whole)));
        }
        let mut target = self.directory.open_to_append(hash)?;
        // Another response may have taken the name since.
        if target.metadata()?.ino() != file.metadata()?.ino() {
            return Ok(None);
        }
        target.write_all(&tail)?;
        Ok(Some(self.add(hash, length + tail.len() as u64)))
    }

    /// Whether the directory may have an object.
    pub(super) fn may_have(&self, hash: u128) -> bool {
        self.index.peek(hash).is_some() || !self.is_loaded.load(Ordering::Acquire)
    }

    /// Removes a variant of a URL that has too many.
    pub(super) fn remove_variant(&self, hash: u128) {
        self.counts[3].fetch_add(1, Ordering::Relaxed);
        self.remove(hash);
    }

    /// Removes an object.
    pub(super) fn remove(&self, hash: u128) {
        self.index.remove(hash);
        self.remove_later(vec![hash]);
    }

    fn remove_later(&self, hashes: Vec<u128>) {
        if !hashes.is_empty() {
            self.removals.lock().unwrap_or_else(PoisonError::into_inner).hashes.extend(hashes);
            self.has_work.notify_one();
        }
    }

    pub(super) fn state(&self) -> DiskState {
        let [stored, evicted, failures, variants_removed] =
            [0, 1, 2, 3].map(|n: usize| self.counts[n].load(Ordering::Relaxed));
        DiskState {
            directory: self.directory.path.display().to_string(),
            objects: self.index.len(),
            bytes: self.index.octets(),
            index_bytes: self.index.memory(),
            is_up: self.directory.is_owner()
                && self.has_room.load(Ordering::Relaxed)
                && self.now() >= self.paused_until.load(Ordering::Relaxed),
            stored,
            evicted,
            failures,
            variants_removed,
        }
    }
}

/// Whether the index has an object.
pub(super) enum Lookup {
    Found(Entry),
    None,
    /// The index is not loaded yet: the directory may have it.
    Unknown,
}

/// Writes pieces at an offset.
pub(super) fn write_pieces(file: &File, pieces: &[Bytes], mut at: u64) -> io::Result<()> {
    for piece in pieces {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Metadata and footer, and the octets of the whole file with them.
fn tail(
    metadata: &Metadata,
    hash: u128,
    stored: u64,
    (body, body_checksum): (u64, u32),
    boot: u32,
) -> io::Result<(Vec<u8>, u64)> {
    let too_long = || io::Error::other("the fields of the response are too long to be stored");
    let mut tail = metadata.to_bytes().ok_or_else(too_long)?;
    let footer = Footer {
        metadata: tail.len() as u32,
        body,
        stored,
        hash,
        boot,
        body_checksum,
        metadata_checksum: crc32c::crc32c(&tail),
    };
    tail.extend_from_slice(&footer.to_bytes());
    debug_assert!(tail.len() > FOOTER);
    let length = body + tail.len() as u64;
    Ok((tail, length))
}

/// Octets of an object in a snapshot.
const ROW: usize = 20;
const SNAPSHOT: &str = "index";
const TURN: Duration = Duration::from_millis(500);
const REMOVALS_AT_ONCE: usize = 64;
/// After a failure of the disk.
const PAUSE: Duration = Duration::from_secs(10);
/// Octets that validations may append to an object before its file is rewritten.
const MOST_TAILS: u64 = 64 << 10;
/// Body for which room is made before it is written.
const LARGE: u64 = 1 << 20;
