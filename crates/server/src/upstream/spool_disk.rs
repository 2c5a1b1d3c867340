//! The directory of waiting contents. Its files have no names, and threads of its own write, read and close them, so that a disk that hangs holds up only its
//! own contents.
//!
//! ```text
//! answering ─► hanging        an operation makes no progress for DEADLINE: the disk is not asked, and requests that need it are refused at once
//!     ▲───────────┘           all operations that were under way have ended
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, LazyLock, Weak};
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::files::disk_threads::{DEADLINE, DiskFile, DiskThreads, NoReply};
use crate::observe::Warnings;
use crate::values::Mutex;

/// A directory, and the threads that wait for its disk.
#[derive(Debug, Default)]
pub(super) struct SpoolDisk {
    directory: PathBuf,
    threads: Arc<DiskThreads>,
    /// Whether the failure to write a file was logged.
    has_warned: AtomicBool,
    /// Whether the failure to read a file was logged.
    has_warned_of_reads: AtomicBool,
    /// About operations that the disk had no time for.
    overloads: Warnings,
}

/// Why the disk did not do an operation.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error(transparent)]
    Failed(#[from] io::Error),
    /// It hangs, or has too much to do, which was logged.
    #[error("the disk did not answer in time")]
    NoReply,
}

impl SpoolDisk {
    /// The disk of a directory. All rules and configurations share its threads.
    pub(super) fn of(directory: &Path) -> Arc<Self> {
        static ALL: LazyLock<Mutex<HashMap<PathBuf, Weak<SpoolDisk>>>> = LazyLock::new(Mutex::default);
        let mut all = ALL.lock();
        if let Some(disk) = all.get(directory).and_then(Weak::upgrade) {
            return disk;
        }
        all.retain(|_, disk| disk.strong_count() > 0);
        let disk = Arc::new(SpoolDisk { directory: directory.to_owned(), ..SpoolDisk::default() });
        all.insert(directory.to_owned(), Arc::downgrade(&disk));
        disk
    }

    /// Makes a file, to see whether the directory can be used. A disk that is known to hang is not asked. Blocks for [`DEADLINE`] at most.
    pub(super) fn probe(&self) -> io::Result<()> {
        if self.threads.hangs() {
            return Ok(());
        }
        let (result, made) = sync_channel(1);
        let directory = self.directory.clone();
        // The disk's own threads begin later, with the privileges of the process that serves.
        thread::Builder::new().name("sealion-open".to_owned()).spawn(move || {
            let _ = result.send(create(&directory).map(drop));
        })?;
        made.recv_timeout(DEADLINE).unwrap_or_else(|_| {
            let what = "the disk does not answer: look for its errors in the kernel's log";
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        })
    }

    /// Has a thread of the disk do `work`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, DiskError> {
        if self.threads.hangs() && !self.threads.is_stuck() && self.threads.recover() {
            tracing::info!("{}: the disk answers again", self.directory.display());
        }
        match self.threads.run(work).await {
            Ok(done) => done.map_err(DiskError::Failed),
            Err(why) => Err(self.no_reply(why)),
        }
    }

    /// A new file. To be called on a thread of the disk.
    pub(super) fn create(&self) -> io::Result<DiskFile> {
        Ok(self.threads.file(Arc::new(create(&self.directory)?)))
    }

    /// The error of an operation that gave no result. Logs why.
    fn no_reply(&self, why: NoReply) -> DiskError {
        let (directory, seconds) = (self.directory.display(), DEADLINE.as_secs());
        match why {
            NoReply::Panicked => return DiskError::Failed(io::Error::other("the operation panicked")),
            NoReply::Hangs => {}
            NoReply::BeganToHang => tracing::warn!(
                "{directory}: the disk has not answered for {seconds} s: no contents wait there until it does, and requests that need it get 503; \
                 look for errors of the disk in the kernel's log"
            ),
            NoReply::Busy => {
                let what = format_args!(
                    "{directory}: too much waits for the disk: its contents are passed on as they are taken, or refused"
                );
                if let Some(line) = self.overloads.line(what, "more operations before it had no time") {
                    tracing::warn!("{line}");
                }
            }
        }
        DiskError::NoReply
    }

    /// A file cannot be written.
    pub(super) fn warn(&self, error: &io::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: cannot keep contents that wait for a slow side: {error}: they are passed on as they are taken",
                self.directory.display()
            );
        }
    }

    /// A file cannot be read that this process wrote.
    pub(super) fn warn_of_read(&self, error: &io::Error) {
        if !self.has_warned_of_reads.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{}: cannot read contents that waited for a server: {error}: their requests fail",
                self.directory.display()
            );
        }
    }
}

/// A file that no other process can open by a name.
fn create(directory: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR)?.into())
}
