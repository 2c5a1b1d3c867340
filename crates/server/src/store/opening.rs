//! Opens the directories of a store. A directory in trouble keeps no server from starting: the server starts without it, and tries it again and again.
//!
//! ```text
//! missing ─► used        opened at the start, or by a later try; for good
//!    └──┘ it is read-only, full, damaged, or does not answer
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::changes::Changes;
use super::config::CacheConfig;
use super::counts::DiskState;
use super::directory::{Directory, choose_salt};
use super::disk::Disk;
use super::file_system;
use super::key::KeyHasher;
use super::purge::Purges;
use super::purge_file::PurgeFile;
use super::purge_orders::PurgeFiles;
use super::{Opened, Store, now_ms};
use crate::files::disk_threads::DEADLINE;
use crate::values::Mutex;

/// A directory of the configuration.
#[derive(Debug)]
pub(super) struct Slot {
    path: PathBuf,
    disk: OnceLock<Arc<Disk>>,
    /// Why it is not used.
    trouble: Mutex<String>,
}

impl Slot {
    pub(super) fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.get()
    }

    /// As metrics show it.
    pub(super) fn state(&self) -> DiskState {
        match self.disk.get() {
            Some(disk) => disk.state(),
            None => DiskState { directory: self.path.display().to_string(), ..DiskState::default() },
        }
    }

    /// A line: the directory is not used. `None`: it is.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        self.disk.get().is_none().then(|| format!("{}: {trouble}", self.path.display()))
    }

    /// Notes why it is not used. Returns whether that is another reason than before.
    fn note(&self, error: &io::Error) -> bool {
        let mut trouble = self.trouble.lock();
        let is_new = *trouble != error.to_string();
        *trouble = error.to_string();
        is_new
    }
}

impl Opened {
    /// Opens the directories at these paths.
    ///
    /// # Errors
    /// A line: a directory holds files of others.
    pub(super) fn new(paths: &[PathBuf], config: &CacheConfig, changes: &Arc<Changes>) -> Result<Self, String> {
        let slot = |path: &PathBuf| Slot { path: path.clone(), disk: OnceLock::new(), trouble: Mutex::default() };
        let opened = Opened {
            slots: paths.iter().map(slot).collect(),
            salt: OnceLock::new(),
            hasher: OnceLock::new(),
            purges: Purges::default(),
            purge_files: PurgeFiles::default(),
        };
        let open = |path: &PathBuf| {
            let (path, config, changes) = (path.clone(), config.clone(), Arc::clone(changes));
            move || open(&path, &config, &changes)
        };
        let disks = side_by_side(paths.iter().map(open));
        let salt = choose_salt(disks.iter().filter_map(|disk| disk.as_ref().ok()).map(|disk| &*disk.directory));
        let prepare = |disk: io::Result<Arc<Disk>>| {
            move || {
                let disk = disk?;
                Ok((read_purges(&disk), share_salt(&disk, salt)?, disk))
            }
        };
        for (slot, prepared) in opened.slots.iter().zip(side_by_side(disks.into_iter().map(prepare))) {
            let used = prepared.map(|(purges, salt, disk)| {
                opened.knows(purges, salt);
                let _ = slot.disk.set(disk);
            });
            match used {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    return Err(format!("cache.directories: {}: {error}", slot.path.display()));
                }
                Err(error) => _ = slot.note(&error),
            }
        }
        let written = opened.disks().map(|disk| disk.directory.doubted_until());
        changes.doubt_until(written.max().unwrap_or_default().min(now_ms()));
        for _ in opened.slots.iter().filter(|slot| slot.disk.get().is_none()) {
            // The others have its share meanwhile. They may have had it before, and still hold responses of that time.
            changes.doubt_until(now_ms());
            changes.begin_without();
        }
        Ok(opened)
    }

    /// Has a directory use the salt of the others. The first that has a salt written down tells it to all. Returns the salt. May block, and holds nothing
    /// that others wait for.
    fn agree(&self, directory: &Directory) -> io::Result<[u8; 16]> {
        let salt = match self.salt.get() {
            Some(salt) => *salt,
            None => {
                let own = directory.own_salt();
                directory.write_salt(own)?;
                *self.salt.get_or_init(|| own)
            }
        };
        directory.share_salt(salt)?;
        Ok(salt)
    }

    /// Notes the purges of a disk, whose slot may get it then: purges are known before an object can be found.
    fn knows(&self, (file, purges): (PurgeFile, Purges), salt: [u8; 16]) {
        self.purges.add_all(&purges);
        self.purge_files.add(file);
        let _ = self.salt.set(salt);
        let _ = self.hasher.set(KeyHasher::new(&salt));
    }
}

/// Reads the purges that are written on a disk. May block.
fn read_purges(disk: &Disk) -> (PurgeFile, Purges) {
    let purges = Purges::default();
    (PurgeFile::load(Arc::clone(&disk.directory), &purges), purges)
}

/// Has a disk use the salt of the others, if there is one. Returns the salt. May block.
fn share_salt(disk: &Disk, salt: Option<[u8; 16]>) -> io::Result<[u8; 16]> {
    let salt = salt.unwrap_or_else(|| disk.directory.own_salt());
    disk.directory.share_salt(salt)?;
    Ok(salt)
}

impl Store {
    /// Tries the directories again that are not used yet, each by a thread of its own.
    pub(super) fn try_missing(self: &Arc<Self>) -> io::Result<()> {
        for (n, slot) in self.opened().slots.iter().enumerate() {
            let Some(trouble) = slot.trouble() else { continue };
            tracing::warn!(
                "cache {trouble}: the server runs without this directory and tries it again every {} s{}",
                AGAIN.as_secs(),
                if self.has_disk() { "" } else { "; nothing is stored meanwhile" }
            );
            let store = Arc::downgrade(self);
            thread::Builder::new().name("sealion-missing".to_owned()).spawn(move || try_until_used(&store, n))?;
        }
        Ok(())
    }
}

fn try_until_used(store: &Weak<Store>, n: usize) {
    loop {
        thread::sleep(AGAIN);
        let Some(store) = store.upgrade() else { return };
        let opened = store.opened();
        let slot = &opened.slots[n];
        let used = open(&slot.path, &store.config, &store.changes).and_then(|disk| {
            let purges = read_purges(&disk);
            let salt = opened.agree(&disk.directory)?;
            opened.knows(purges, salt);
            opened.purge_files.start(&Arc::downgrade(&store))?;
            disk.start()?;
            // Its thread writes it down.
            store.changes.end_without(now_ms());
            // Last: a disk in the slot is used, and not opened again.
            let _ = slot.disk.set(disk);
            Ok(())
        });
        let path = slot.path.display();
        match used {
            Ok(()) => return tracing::info!("cache {path}: the directory is used from now on"),
            Err(error) if slot.note(&error) => {
                tracing::warn!("cache {path}: the directory cannot be used yet: {error}")
            }
            Err(_) => {}
        }
    }
}

/// Does work of several disks side by side. Work that does not end within [`DEADLINE`] is left to its thread.
fn side_by_side<T, W>(works: impl Iterator<Item = W>) -> Vec<io::Result<T>>
where
    T: Send + 'static,
    W: FnOnce() -> io::Result<T> + Send + 'static,
{
    let (sender, ended) = channel();
    let mut count = 0;
    for (n, work) in works.enumerate() {
        count += 1;
        let sender = sender.clone();
        let work = move || drop(sender.send((n, work())));
        if let Err(error) = thread::Builder::new().name("sealion-open".to_owned()).spawn(work) {
            tracing::warn!("cache: cannot start a thread: {error}");
        }
    }
    drop(sender);
    let late = || {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the disk does not answer: look for its errors in the kernel's log",
        ))
    };
    let mut results: Vec<_> = (0..count).map(|_| late()).collect();
    let deadline = Instant::now() + DEADLINE;
    while let Ok((n, result)) = ended.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        results[n] = result;
    }
    results
}

fn open(path: &Path, config: &CacheConfig, changes: &Arc<Changes>) -> io::Result<Arc<Disk>> {
    let disk = Disk::open(path, config.size.0, config.objects.get(), config.free.0, changes)
        .map_err(|error| with_remedy(&error))?;
    if let Some(warning) = file_system::warning(path) {
        tracing::warn!("{warning}");
    }
    Ok(disk)
}

/// Adds the remedy.
fn with_remedy(error: &io::Error) -> io::Error {
    let remedy = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ROFS) => "mount the file system so that it can be written",
        Some(Errno::NOSPC | Errno::DQUOT) => "make room",
        Some(Errno::ACCESS | Errno::PERM) => "let the user that serves write to it",
        Some(Errno::IO) => "look for errors of the disk in the kernel's log",
        // It says so itself.
        None => return io::Error::new(error.kind(), error.to_string()),
        Some(_) => "name a directory that the server may write to",
    };
    io::Error::new(error.kind(), format!("{error}: {remedy}"))
}

/// Whether the file that identifies a directory is damaged.
pub(super) fn is_damaged(path: &Path) -> bool {
    Directory::number_at(path).is_some_and(|number| number.len() != 16)
}

/// Time after which a directory that is not used is tried again.
const AGAIN: Duration = Duration::from_secs(5);
