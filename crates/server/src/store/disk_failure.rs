//! A disk that fails or hangs: how that is noticed, said and ended.
//!
//! A disk that fails is read on, and nothing is written to it for [`PAUSE`]. A disk that hangs is bypassed: its objects count as not stored until it answers
//! again and the purges of the meantime are written on it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::disk::{Disk, LOCKS};
use super::now_ms;
use crate::files::disk_threads::{DEADLINE, NoReply};

impl Disk {
    /// Does something that may block, on a thread of the disk. `None`: the disk failed or did not answer in time, which was said.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        work: impl FnOnce(&Disk) -> io::Result<T> + Send + 'static,
    ) -> Option<T> {
        let disk = Arc::clone(self);
        let done = self.directory.threads.run(move || work(&disk).inspect_err(|error| disk.failed(what, error)).ok());
        done.await.unwrap_or_else(|why| self.note_no_reply(what, why))
    }

    /// As [`Self::run`], for a caller that may block.
    pub(super) fn run_and_block<T: Send + 'static>(
        self: &Arc<Self>,
        what: &'static str,
        work: impl FnOnce(&Disk) -> T + Send + 'static,
    ) -> Option<T> {
        let disk = Arc::clone(self);
        let done = self.directory.threads.run_and_block(move || work(&disk));
        done.map_or_else(|why| self.note_no_reply(what, why), Some)
    }

    fn note_no_reply<T>(&self, what: &str, why: NoReply) -> Option<T> {
        match why {
            NoReply::Hangs | NoReply::Panicked => {}
            NoReply::BeganToHang => self.say_that_it_hangs(),
            NoReply::Busy => {
                let path = self.directory.path.display();
                let what = format_args!(
                    "cache {path}: cannot {what}: too much waits for the disk; the response passes without it: add a directory on another disk"
                );
                if let Some(line) = self.overloads.line(what, "more operations before it had no time") {
                    tracing::warn!("{line}");
                }
            }
        }
        None
    }

    /// Whether the disk hangs, so that it is bypassed.
    pub(super) fn hangs(&self) -> bool {
        self.directory.threads.hangs()
    }

    /// Removes the object of a hash while the disk hangs. A response was fetched that the disk does not get, and the older object must not be found when the
    /// disk answers. `asked`: when the response was asked for.
    pub(super) fn supersede(&self, hash: u128, asked: u64) {
        // A thread that hangs may hold the lock. The object that it stores then is older too, but fresh by its own lifetime.
        if let Some(mut latest) = self.latest[hash as usize % LOCKS].try_lock() {
            let before = latest.peek(&hash).copied().unwrap_or_default();
            latest.put(hash, asked.max(before));
        }
        self.remove(hash);
    }

    /// The disk hangs, as a thread shows that is not one of [`Self::run`].
    pub(super) fn begin_to_hang(&self) {
        if self.directory.threads.begin_to_hang() {
            self.say_that_it_hangs();
        }
    }

    fn say_that_it_hangs(&self) {
        self.changes.begin_without();
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let (path, seconds) = (self.directory.path.display(), DEADLINE.as_secs());
        tracing::warn!(
            "cache {path}: the disk has not answered for {seconds} s: it is bypassed until it does, and its responses are fetched from their servers; look for errors of the disk in the kernel's log"
        );
    }

    /// Uses a disk again that hangs, if it answers and has all purges. Blocks until the disk answers.
    pub(super) fn try_again(&self) {
        let threads = &self.directory.threads;
        if threads.is_stuck() || self.writer.hangs() || self.directory.awaits_purges() {
            return;
        }
        if let Err(error) = self.directory.probe() {
            self.failed("write", &error);
        }
        // The disk did not get this while it hung: if the process is killed from here on, the next start doubts all objects.
        self.write_doubt();
        self.changes.doubt_until(now_ms());
        threads.recover();
        // Withdrawals since the doubt began may not have reached the disk either.
        self.changes.end_without(now_ms());
        self.write_doubt();
        tracing::info!("cache {}: the disk answers again", self.directory.path.display());
    }

    /// Writes down which objects the next start has to doubt, if that has changed. May block.
    pub(super) fn write_doubt(&self) {
        if let Err(error) = self.directory.write_doubt(self.changes.doubt_of_next_start()) {
            self.failed("write", &error);
        }
    }

    /// Says once why this process does not become the owner of the directory.
    pub(super) fn cannot_take_over(&self, error: &io::Error) {
        if !self.is_told_of_owner.swap(true, Ordering::Relaxed) {
            let path = self.directory.path.display();
            tracing::warn!(
                "cache {path}: cannot become its owner: {error}; nothing is stored here until it can: give all of the directory to the user that serves"
            );
        }
    }

    /// Says that the disk failed, and stores nothing for a while. A disk that is full has objects go instead.
    pub(super) fn failed(&self, what: &str, error: &io::Error) {
        if !self.directory.is_owner() {
            return;
        }
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        if self.is_full(error) {
            return;
        }
        let until = self.now() + PAUSE.as_millis() as u64;
        if self.paused_until.swap(until, Ordering::Relaxed) < self.now() {
            let path = self.directory.path.display();
            let seconds = PAUSE.as_secs();
            tracing::warn!("cache {path}: cannot {what}: {error}; responses pass without being stored for {seconds} s");
        }
    }
}

/// After a failure of the disk.
const PAUSE: Duration = Duration::from_secs(10);
