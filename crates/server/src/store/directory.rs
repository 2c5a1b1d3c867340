//! The directory of a disk: names, temporary files, ownership.
//!
//! ```text
//! DIR/sealion-cache      16 bytes that identify the directory, and determine its share of the objects
//! DIR/salt               16 bytes of salt for the hashes of keys, the same in all directories of a cache
//! DIR/lock               flock(2): one process writes
//! DIR/clean              the boot at which everything was written back, after an orderly stop
//! DIR/doubted            responses that were requested up to this time must be validated; in milliseconds since 1970-01-01
//! DIR/temporary/N        files that are being written
//! DIR/abc/def…           an object, by the hash of its key
//! ```
//!
//! An object appears by rename(2), whole. MEASURED: written under its name at once, a small one takes as much CPU (ext4, misses of 1 kB: 106 us against 104 us,
//! medians of six runs each, 2026-11-24). Nothing is synchronised to the disk meanwhile: after a loss of power, an object that was written before
//! the boot is checked as a whole before it is sent ([`Directory::is_suspect`]).

mod ownership;
mod small_files;

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, renameat, stat, statat, unlinkat,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::claim::require_own;
use super::emptied::OuterDirectories;
use super::format::{FOOTER, Footer, Metadata};
use super::now_ms;
use crate::files::disk_threads::DiskThreads;
use crate::files::resolve::Wait;
use crate::values::Mutex;
use small_files::{read_file, write_file};

/// A directory of stored responses.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) place: ArcSwap<Place>,
    /// Unique to this directory.
    pub(super) number: [u8; 16],
    /// The salt that its file had when it was opened.
    read_salt: Option<[u8; 16]>,
    /// The salt for the hashes of keys, once it is shared ([`choose_salt`]).
    salt: OnceLock<[u8; 16]>,
    /// Whether this process may write.
    is_owner: AtomicBool,
    /// Whether it was the owner once.
    has_owned: AtomicBool,
    /// Held while the directory must stay this process's ([`Self::keep`]).
    kept: Mutex<()>,
    /// Whether this process has become the owner, until [`Self::take_owned`] reads it.
    is_newly_owned: AtomicBool,
    /// Boots whose objects need no check: this one, and the one before if it ended in order.
    boots: [u32; 2],
    next_temporary: AtomicU64,
    pub(super) threads: Arc<DiskThreads>,
    /// Whether there are purges that are to be written before the disk is used again ([`Self::awaits_purges`]).
    awaits_purges: AtomicBool,
    /// The content of the file [`DOUBTED`].
    doubted_until: AtomicU64,
}

/// The directory that the path led to when it was opened.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) root: OwnedFd,
    lock: File,
    /// Its directories of objects.
    outer: OuterDirectories,
}

/// A file that is being written. Removed unless it is published.
#[derive(Debug)]
pub(super) struct Temporary {
    pub(super) file: File,
    name: String,
    directory: Arc<Directory>,
    place: Arc<Place>,
    is_published: bool,
}

/// A file of an object, opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) footer: Footer,
    pub(super) metadata: Metadata,
    /// Bytes of the file.
    pub(super) length: u64,
}

/// How far a directory was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scan {
    Complete,
    Stopped,
}

impl Directory {
    /// Opens `path`, and makes the missing files in it.
    ///
    /// # Errors
    /// `InvalidInput`: it holds files of others.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        require_own(path)?;
        std::fs::create_dir_all(path)?;
        let place = Place::open(path)?;
        let number = match read_file(&place.root, NUMBER) {
            Ok(number) => number.try_into().map_err(|_| {
                let what = format!("{NUMBER} is damaged: remove the directory's content to begin an empty cache");
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_number(&place.root)?,
            Err(error) => return Err(error),
        };
        let boot = boot();
        let clean =
            read_file(&place.root, CLEAN).ok().and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
        let doubted_until = AtomicU64::new(read_doubt(&place.root));
        let read_salt = read_file(&place.root, SALT).ok().and_then(|salt| salt.try_into().ok());
        Ok(Directory {
            path: path.to_owned(),
            place: ArcSwap::from_pointee(place),
            number,
            read_salt,
            salt: OnceLock::new(),
            is_owner: AtomicBool::new(false),
            has_owned: AtomicBool::new(false),
            kept: Mutex::default(),
            is_newly_owned: AtomicBool::new(false),
            boots: [boot, clean.unwrap_or(boot)],
            next_temporary: AtomicU64::new(0),
            threads: Arc::default(),
            awaits_purges: AtomicBool::new(false),
            doubted_until,
        })
    }

    /// Has it use the salt of all directories, and writes that down, so that none of the others is needed to find its objects. May block.
    pub(super) fn share_salt(&self, salt: [u8; 16]) -> io::Result<()> {
        self.write_salt(salt)?;
        let _ = self.salt.set(salt);
        Ok(())
    }

    /// Writes a salt down that all directories may come to use. May block.
    pub(super) fn write_salt(&self, salt: [u8; 16]) -> io::Result<()> {
        if self.read_salt != Some(salt) { self.write_file(SALT, &salt) } else { Ok(()) }
    }

    /// Its salt, unless another directory has told one.
    pub(super) fn own_salt(&self) -> [u8; 16] {
        choose_salt([self].into_iter()).unwrap_or(self.number)
    }

    /// The content of the file that identifies the directory at `path`, if there is one.
    pub(super) fn number_at(path: &Path) -> Option<Vec<u8>> {
        std::fs::read(path.join(NUMBER)).ok()
    }

    /// The paths that the serving user must own.
    pub(super) fn own_paths(&self) -> Vec<PathBuf> {
        let within = [LOCK, NUMBER, SALT, TEMPORARY].map(|name| self.path.join(name));
        [self.path.clone()].into_iter().chain(within).collect()
    }

    /// Whether purges could not be written on it yet. If it hangs, it is not used again before they are.
    pub(super) fn awaits_purges(&self) -> bool {
        self.awaits_purges.load(Ordering::Acquire)
    }

    pub(super) fn set_awaits_purges(&self, awaits: bool) {
        self.awaits_purges.store(awaits, Ordering::Release);
    }

    /// Up to when responses were asked for that must be validated, as was written or read last.
    pub(super) fn doubted_until(&self) -> u64 {
        self.doubted_until.load(Ordering::Acquire)
    }

    /// The same, as the file says now.
    pub(super) fn read_doubt(&self) -> u64 {
        let until = read_doubt(&self.place.load().root);
        self.doubted_until.store(until, Ordering::Release);
        until.min(now_ms())
    }

    /// Writes up to when responses must be validated, if the file says otherwise and this process may write.
    pub(super) fn write_doubt(&self, until: u64) -> io::Result<()> {
        if !self.is_owner() || until == self.doubted_until() {
            return Ok(());
        }
        self.write_file(DOUBTED, until.to_string().as_bytes())?;
        self.doubted_until.store(until, Ordering::Release);
        Ok(())
    }

    /// Writes something that reaches the disk, if this process may write.
    pub(super) fn probe(&self) -> io::Result<()> {
        if !self.is_owner() {
            return Ok(());
        }
        self.write_file(PROBE, b"the disk answers\n")?;
        self.remove_file(PROBE)
    }

    /// Whether the path still leads to this directory, with its identifying file and all of its directories of objects.
    pub(super) fn is_in_place(&self) -> bool {
        let place = self.place.load();
        let number = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let is_there = match (stat(&self.path), fstat(&place.root)) {
            (Ok(there), Ok(own)) => number(there) == number(own) && !place.outer.lost_some(&place.root, &own),
            (Err(Errno::NOENT | Errno::NOTDIR), _) => false,
            // A directory above may be closed to the user that serves, or the disk fails.
            _ => true,
        };
        is_there && !matches!(statat(&place.root, NUMBER, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
    }

    /// Opens the directory that the path leads to now, and makes it if it was removed. Another process may own it.
    ///
    /// # Errors
    /// It is on another file system and has never been this cache, as after a disk was unmounted: the cache would fill the wrong disk.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let there = self.path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
        let is_same_disk = there.metadata()?.dev() == fstat(&self.place.load().root)?.st_dev;
        let number = match std::fs::read(self.path.join(NUMBER)) {
            Ok(number) => Some(number),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match number {
            Some(number) if number == self.number => {}
            None if is_same_disk => std::fs::create_dir_all(&self.path)?,
            _ => return Err(io::Error::other("something else is there: restart the server if it is to be the cache")),
        }
        let place = Place::open(&self.path)?;
        // First: without it, a start would take the next files for foreign ones.
        self.restore_number(&place.root)?;
        if let Some(salt) = self.salt.get() {
            write_file(&place.root, SALT, salt)?;
        }
        self.is_owner.store(false, Ordering::Release);
        self.place.store(Arc::new(self.place.load().keep_lock(place)?));
        Ok(())
    }

    /// Writes the identifying file again after everything in the directory was removed.
    fn restore_number(&self, root: &OwnedFd) -> io::Result<()> {
        match statat(root, NUMBER, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => write_file(root, NUMBER, &self.number),
            _ => Ok(()),
        }
    }

    /// A number of this boot of the machine.
    pub(super) fn boot(&self) -> u32 {
        self.boots[0]
    }

    /// Whether the body of an object must be checked before it is sent: it was written before a boot that no orderly stop preceded.
    pub(super) fn is_suspect(&self, footer: &Footer) -> bool {
        !self.boots.contains(&footer.boot)
    }

    /// A new file for an object.
    pub(super) fn create(self: &Arc<Self>) -> io::Result<Temporary> {
        if !self.is_owner() {
            return Err(io::Error::other("another process owns the directory"));
        }
        let name =
            format!("{TEMPORARY}/{}-{}", std::process::id(), self.next_temporary.fetch_add(1, Ordering::Relaxed));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let place = self.place.load_full();
        let file = match openat(&place.root, &name, flags, FILE) {
            // The directory was emptied.
            Err(Errno::NOENT) => {
                make_directory(&place.root, TEMPORARY)?;
                openat(&place.root, &name, flags, FILE)?
            }
            opened => opened?,
        };
        Ok(Temporary { file: file.into(), name, directory: Arc::clone(self), place, is_published: false })
    }

    /// The object with this hash. `Ok(None)`: there is no valid one.
    ///
    /// # Errors
    /// The file cannot be read; `WouldBlock`: not without blocking.
    pub(super) fn find(&self, hash: u128, wait: Wait) -> io::Result<Option<Opened>> {
        let file = match self.open_object(hash, wait) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let length = file.metadata()?.len();
        // Footer and metadata, usually.
        let mut end = [0; 4096];
        let end = &mut end[..length.min(4096) as usize];
        read_exact_at(&file, end, length - end.len() as u64, wait)?;
        let Some((before, footer)) = end.split_last_chunk::<FOOTER>() else { return Ok(None) };
        let footer = Footer::from_bytes(footer).filter(|footer| footer.hash == hash && footer.fits(length));
        let Some(footer) = footer else { return Ok(None) };
        let octets = footer.metadata as usize;
        let metadata = match before.len().checked_sub(octets) {
            Some(from) => Cow::Borrowed(&before[from..]),
            None => {
                let mut metadata = vec![0; octets];
                read_exact_at(&file, &mut metadata, length - (FOOTER + octets) as u64, wait)?;
                Cow::Owned(metadata)
            }
        };
        if crc32c::crc32c(&metadata) != footer.metadata_checksum {
            return Ok(None);
        }
        Ok(Metadata::from_bytes(&metadata).map(|metadata| Opened { file, footer, metadata, length }))
    }

    fn open_object(&self, hash: u128, wait: Wait) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let (place, name) = (self.place.load(), name(hash));
        match wait {
            Wait::Yes => openat(&place.root, name, flags, Mode::empty()),
            // EINVAL: before Linux 5.12.
            Wait::No => match openat2(&place.root, name, flags, Mode::empty(), ResolveFlags::CACHED) {
                Err(Errno::INVAL) => Err(Errno::AGAIN),
                opened => opened,
            },
        }
    }

    /// Whether a file is the object with this hash still.
    pub(super) fn has_name(&self, hash: u128, file: &File) -> bool {
        let named = statat(&self.place.load().root, name(hash), AtFlags::SYMLINK_NOFOLLOW);
        named.is_ok_and(|named| fstat(file).is_ok_and(|own| own.st_ino == named.st_ino))
    }

    /// Calls `visit` with hash and bytes of every object. Ends early if that returns `false`.
    pub(super) fn scan(&self, mut visit: impl FnMut(u128, u64) -> bool) -> io::Result<Scan> {
        let place = self.place.load();
        for entry in Dir::read_from(&place.root)? {
            let entry = entry?;
            let Some(first) = hex(entry.file_name().to_bytes(), OUTER) else { continue };
            let outer = openat(&place.root, entry.file_name(), DIRECTORY, Mode::empty());
            let Some(outer) = optional(outer.map_err(io::Error::from))? else { continue };
            for entry in Dir::read_from(&outer)? {
                let entry = entry?;
                let digits = 32 - OUTER;
                let Some(rest) = hex(entry.file_name().to_bytes(), digits) else { continue };
                let Ok(stat) = statat(&outer, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if !visit(first << (4 * digits) | rest, stat.st_size as u64) {
                    return Ok(Scan::Stopped);
                }
            }
        }
        Ok(Scan::Complete)
    }

    /// Bytes that are free on the file system for this process, and its inodes.
    pub(super) fn free(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstatvfs(&self.place.load().root)?;
        // Some file systems, btrfs for one, have no table of inodes: they report 0 of 0.
        let inodes = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
        Ok((stat.f_bavail * stat.f_frsize, inodes))
    }

    fn directory(&self, name: &str) -> io::Result<OwnedFd> {
        Ok(openat(&self.place.load().root, name, DIRECTORY, Mode::empty())?)
    }
}

impl Place {
    fn open(path: &Path) -> io::Result<Self> {
        let root = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = File::from(openat(&root, LOCK, flags, FILE)?);
        make_directory(&root, TEMPORARY)?;
        Ok(Place { root, lock, outer: OuterDirectories::default() })
    }

    /// Has `next` use the lock of this place if both have the same file: files that are still written hold this place, and its lock would keep this process
    /// itself out.
    fn keep_lock(&self, mut next: Place) -> io::Result<Self> {
        let [own, other] = [&self.lock, &next.lock].map(|lock| fstat(lock).map(|stat| (stat.st_dev, stat.st_ino)));
        if own? == other? {
            next.lock = self.lock.try_clone()?;
        }
        Ok(next)
    }
}

impl Temporary {
    /// Gives the file its name, in place of an older object.
    pub(super) fn publish(mut self, hash: u128) -> io::Result<()> {
        if !self.directory.is_owner() {
            return Err(io::Error::other("another process owns the directory"));
        }
        let root = &self.place.root;
        let name = name(hash);
        match renameat(root, &self.name, root, &name) {
            Err(Errno::NOENT) => {
                self.place.outer.make(|| mkdirat(root, &name[..OUTER], Mode::RWXU))?;
                renameat(root, &self.name, root, &name)?;
            }
            renamed => renamed?,
        }
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Temporary {
    /// Its name is removed by a thread of the disk: the thread that drops it may serve.
    fn drop(&mut self) {
        if !self.is_published {
            let (place, name) = (Arc::clone(&self.place), std::mem::take(&mut self.name));
            self.directory.threads.run_later(move || {
                let _ = unlinkat(&place.root, &name, AtFlags::empty());
            });
        }
    }
}

/// Reads bytes of a file.
///
/// # Errors
/// `WouldBlock`: they are not in the kernel's cache, or it cannot tell.
pub(super) fn read_exact_at(file: &File, octets: &mut [u8], at: u64, wait: Wait) -> io::Result<()> {
    if wait == Wait::Yes || octets.is_empty() {
        return file.read_exact_at(octets, at);
    }
    let wanted = octets.len();
    loop {
        return match preadv2(file, &mut [io::IoSliceMut::new(octets)], at, ReadWriteFlags::NOWAIT) {
            Ok(read) if read == wanted => Ok(()),
            Err(Errno::INTR) => continue,
            // Some file systems do not support RWF_NOWAIT. A part of it: the rest is not in the cache, or the file is shorter by now.
            Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP) => Err(io::ErrorKind::WouldBlock.into()),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// The path of an object in its directory.
pub(super) fn name(hash: u128) -> String {
    let mut name = format!("{hash:032x}");
    name.insert(OUTER, '/');
    name
}

/// Hexadecimal digits of a hash that objects of one directory share. MEASURED: with 4,096 directories, a file is made and named by 27 us of CPU, with 65,536
/// by 50 to 76 (ext4, 40,000 files, 2026-11-22).
pub(super) const OUTER: usize = 3;

pub(super) fn hex(name: &[u8], digits: usize) -> Option<u128> {
    let is_lower_hex = |octet: &u8| matches!(octet, b'0'..=b'9' | b'a'..=b'f');
    if name.len() != digits || !name.iter().all(is_lower_hex) {
        return None;
    }
    u128::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok()
}

/// A number of this boot of the machine; a random one where the kernel does not say, so that all objects are checked.
fn boot() -> u32 {
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(id) => crc32c::crc32c(&id),
        Err(_) => {
            let mut number = [0; 4];
            let _ = aws_lc_rs::rand::fill(&mut number);
            u32::from_le_bytes(number)
        }
    }
}

fn make_number(root: &OwnedFd) -> io::Result<[u8; 16]> {
    let mut number = [0; 16];
    aws_lc_rs::rand::fill(&mut number).map_err(|_| io::Error::other("no random numbers"))?;
    write_file(root, NUMBER, &number)?;
    Ok(number)
}

/// The salt for the hashes of keys: the salt of most directories. `None`: no directory has one.
pub(super) fn choose_salt<'a>(directories: impl Iterator<Item = &'a Directory> + Clone) -> Option<[u8; 16]> {
    let found: Vec<[u8; 16]> = directories.clone().filter_map(|directory| directory.read_salt).collect();
    let votes = |salt: &&[u8; 16]| found.iter().filter(|other| other == salt).count();
    // Of two salts with equal votes, `max_by_key` returns the later one.
    found.iter().rev().max_by_key(votes).copied().or_else(|| directories.clone().next().map(|first| first.number))
}

fn make_directory(root: &OwnedFd, name: &str) -> io::Result<()> {
    match mkdirat(root, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads the file [`DOUBTED`]. If it cannot be read, all objects are doubted.
fn read_doubt(root: &OwnedFd) -> u64 {
    match read_file(root, DOUBTED) {
        Ok(text) => String::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(_) => u64::MAX,
    }
}

fn optional<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// Responses may be private to a site: only this user reads them.
const FILE: Mode = Mode::RUSR.union(Mode::WUSR);
pub(super) const LOCK: &str = "lock";
pub(super) const TEMPORARY: &str = "temporary";
pub(super) const NUMBER: &str = "sealion-cache";
/// The end of the name of a file that is being written.
pub(super) const NEXT: &str = ".next";
pub(super) const SALT: &str = "salt";
pub(super) const CLEAN: &str = "clean";
pub(super) const DOUBTED: &str = "doubted";
const PROBE: &str = "probe";

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
