//! Removes the files of purged objects, behind the purge and at a bounded rate.
//!
//! A purge costs the same for one object and for a million, because it removes nothing: older objects do not count any more. A sweep reads the end of
//! each file of a disk, and removes purged files. It runs after an order to purge, and after a start if the last one did not end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::Store;
use super::disk::Disk;
use super::format::Kind;
use super::purge::Verdict;
use crate::files::resolve::Wait;
use crate::values::Mutex;

/// The sweeps of a disk.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    progress: Mutex<Progress>,
    is_running: AtomicBool,
}

#[derive(Debug, Default)]
struct Progress {
    /// The purges up to this time are swept. `None`: the directory was not asked yet.
    swept: Option<u64>,
    /// Sweeps take a tenth of the time at most, unless everything was purged.
    rests_until: Option<Instant>,
    has_failed: bool,
}

/// The verdict of the purges on a file.
enum Covered {
    No,
    Yes,
    /// It is a list of variants, and some of them are there still.
    Behind,
}

/// How a sweep ended.
enum Swept {
    /// All files were looked at.
    Whole,
    /// The disk is being closed, or another process has it by now.
    Stopped,
}

impl Sweeps {
    /// Whether purged files are being removed.
    pub(super) fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }
}

impl Store {
    /// Begins to remove the files of purged objects, if there may be any.
    pub(super) fn sweep_purged(self: &Arc<Self>, disk: &Arc<Disk>) {
        if !disk.is_loaded() || !disk.directory.is_owner() {
            return;
        }
        let (latest, of_all) = self.purges().latest_ordered();
        let mut progress = disk.sweeps.progress.lock();
        let swept = *progress.swept.get_or_insert_with(|| disk.swept());
        let rests = progress.rests_until.is_some_and(|until| Instant::now() < until);
        let may_rest = progress.has_failed || of_all <= swept;
        if latest <= swept || (rests && may_rest) || disk.sweeps.is_running.swap(true, Ordering::Relaxed) {
            return;
        }
        drop(progress);
        let (store, own) = (Arc::downgrade(self), Arc::clone(disk));
        let sweep = move || {
            let disk = own;
            let began = Instant::now();
            let swept = sweep(&store, &disk);
            let mut progress = disk.sweeps.progress.lock();
            progress.rests_until = Some(Instant::now() + (began.elapsed() * 9).max(LEAST_REST));
            progress.has_failed = swept.is_err();
            match swept {
                Ok(Swept::Whole) => {
                    progress.swept = Some(latest);
                    // Otherwise the next start sweeps once more.
                    if let Some(_kept) = disk.directory.keep() {
                        let _ = disk.directory.write_file(SWEPT, latest.to_string().as_bytes());
                    }
                }
                Ok(Swept::Stopped) => {}
                Err(error) => disk.failed("remove purged objects", &error),
            }
            drop(progress);
            disk.sweeps.is_running.store(false, Ordering::Relaxed);
        };
        if let Err(error) = thread::Builder::new().name("sealion-sweep".to_owned()).spawn(sweep) {
            tracing::warn!("cache: cannot start a thread: {error}");
            disk.sweeps.is_running.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a purge covers the file of an object.
    fn covered(&self, disk: &Disk, hash: u128) -> io::Result<Covered> {
        let Some(opened) = disk.directory.find(hash, Wait::Yes)? else { return Ok(Covered::No) };
        let Kind::Variants { hashes, .. } = &opened.metadata.kind else {
            let is_gone = self.verdict_of(&opened.footer, &opened.metadata) == Verdict::Gone;
            return Ok(if is_gone { Covered::Yes } else { Covered::No });
        };
        // Without its list, a variant is not found.
        let is_needed = hashes.iter().any(|variant| self.disk(*variant).may_have(*variant));
        Ok(match self.purges().verdict(&opened.metadata.key, &[], &[], opened.footer.stored) {
            Verdict::Gone if is_needed => Covered::Behind,
            Verdict::Gone => Covered::Yes,
            Verdict::Stale | Verdict::Doubtful | Verdict::Valid => Covered::No,
        })
    }
}

impl Disk {
    /// Removes the object of this version, unless another took its place. `false`: the disk is being closed.
    fn remove_swept(&self, hash: u128, version: u32) -> bool {
        // The lock is held, so that an object leaves the index and the directory together.
        let mut removals = self.removals.lock();
        if !removals.is_stopping && self.version(hash) == Some(version) {
            self.index.remove(hash);
            removals.hashes.push(hash);
            self.wake();
        }
        !removals.is_stopping
    }

    /// Up to when the purges of the directory are swept.
    fn swept(&self) -> u64 {
        let text = self.directory.read_file(SWEPT).ok().and_then(|text| String::from_utf8(text).ok());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

/// Looks at each object of a disk, and removes the purged ones.
fn sweep(store: &Weak<Store>, disk: &Disk) -> io::Result<Swept> {
    let mut lists = Vec::new();
    let mut looked = 0_usize;
    let mut look = |hash: u128, lists: &mut Vec<u128>| -> io::Result<bool> {
        looked += 1;
        if looked.is_multiple_of(LOOKS_AT_ONCE) {
            thread::sleep(PACE);
        }
        let Some(store) = store.upgrade().filter(|_| disk.directory.is_owner()) else { return Ok(false) };
        // Only the object that is looked at goes: it may be stored again meanwhile.
        let Some(version) = disk.version(hash) else { return Ok(true) };
        match store.covered(disk, hash)? {
            Covered::Yes => return Ok(disk.remove_swept(hash, version)),
            Covered::Behind => lists.push(hash),
            Covered::No => {}
        }
        Ok(true)
    };
    for (hash, _) in disk.index.iter() {
        if !look(hash, &mut lists)? {
            return Ok(Swept::Stopped);
        }
    }
    for list in lists {
        if !look(list, &mut Vec::new())? {
            return Ok(Swept::Stopped);
        }
    }
    Ok(Swept::Whole)
}

/// The file with the time of the latest purge that was swept in a directory.
pub(super) const SWEPT: &str = "swept";

/// Files that are looked at between two pauses: 3,200 in a second at most.
const LOOKS_AT_ONCE: usize = 64;
const PACE: Duration = Duration::from_millis(20);

/// Least time between two sweeps, unless everything was purged.
const LEAST_REST: Duration = Duration::from_secs(60);
