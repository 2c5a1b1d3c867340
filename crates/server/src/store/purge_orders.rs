//! Has purges written down on all disks, each by a thread of its own, so that a disk that hangs holds up no other.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout_at;

use super::Store;
use super::directory::Directory;
use super::purge::Purge;
use super::purge_file::{Durable, NOT_LASTING, PurgeFile};
use crate::files::disk_threads::DEADLINE;
use crate::values::Mutex;

/// The files of all directories. They have the same lines.
#[derive(Debug, Default)]
pub(super) struct PurgeFiles {
    /// As they were read, until their threads take them.
    read: Mutex<Vec<PurgeFile>>,
    threads: ArcSwap<Vec<Arc<Thread>>>,
}

#[derive(Debug)]
struct Thread {
    directory: Arc<Directory>,
    works: SyncSender<Work>,
    /// Whether the disk did not answer in time. Until it does, nothing waits for it.
    hangs: Arc<AtomicBool>,
}

/// Work of a thread.
pub(super) enum Work {
    Append {
        line: Arc<[u8]>,
        durable: Durable,
        done: Done,
    },
    /// Write the purges that have no line. Ordered before the directory is left to another process.
    Complete {
        done: Done,
    },
}

/// Gets the outcome of a disk.
type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Work that was given to the threads.
struct Given {
    threads: Arc<Vec<Arc<Thread>>>,
    awaited: Vec<usize>,
    failure: Option<io::Error>,
}

/// A purge that is being written down on all disks.
pub(super) struct Ordered {
    given: Result<Given, io::Error>,
    outcomes: UnboundedReceiver<(usize, io::Result<()>)>,
}

impl Ordered {
    /// Waits until it is written, at most for [`DEADLINE`].
    ///
    /// # Errors
    /// The first disk that fails, or does not end in time. The others have it: a start reads the files of all.
    pub(super) async fn wait(mut self) -> io::Result<()> {
        let mut given = self.given?;
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while !given.awaited.is_empty()
            && let Ok(Some((n, outcome))) = timeout_at(deadline, self.outcomes.recv()).await
        {
            given.note(n, outcome);
        }
        given.end()
    }
}

impl PurgeFiles {
    /// Adds a file that was read. It is written after [`Self::start`].
    pub(super) fn add(&self, file: PurgeFile) {
        self.read.lock().push(file);
    }

    /// Starts a thread for each file that was read and has none.
    pub(super) fn start(&self, store: &Weak<Store>) -> io::Result<()> {
        for mut file in std::mem::take(&mut *self.read.lock()) {
            let (works, queue) = sync_channel(MOST_WAITING);
            let hangs = Arc::new(AtomicBool::new(false));
            let thread = Thread { directory: Arc::clone(&file.directory), works, hangs: Arc::clone(&hangs) };
            let store = Weak::clone(store);
            let work = move || file.work(&store, &queue, &hangs);
            std::thread::Builder::new().name("sealion-purges".to_owned()).spawn(work)?;
            let thread = Arc::new(thread);
            self.threads.rcu(|threads| [&threads[..], &[Arc::clone(&thread)]].concat());
        }
        Ok(())
    }

    /// Writes a purge down that was applied, on all disks. A process that does not own the directories writes too: the owner reads it.
    ///
    /// # Errors
    /// The first disk that fails, or does not end within [`DEADLINE`]. The others have it: a start reads the files of all.
    pub(super) fn order(&self, purge: &Purge, durable: Durable) -> io::Result<()> {
        let line = line(purge)?;
        self.have_done(Instant::now() + DEADLINE, |done| Work::Append { line: Arc::clone(&line), durable, done })
    }

    /// As [`Self::order`], without blocking: the lines are on their way to the disks when this returns.
    pub(super) fn begin_order(&self, purge: &Purge, durable: Durable) -> Ordered {
        let (sender, outcomes) = unbounded_channel();
        let given = line(purge).map(|line| {
            self.give(|n| {
                let sender = sender.clone();
                // It may not be waited for any more.
                let done = Box::new(move |outcome| drop(sender.send((n, outcome))));
                Work::Append { line: Arc::clone(&line), durable, done }
            })
        });
        Ordered { given, outcomes }
    }

    /// Writes the purges that have no line, on all disks.
    ///
    /// # Errors
    /// The first disk that fails, or does not end by the deadline.
    pub(super) fn complete(&self, deadline: Instant) -> io::Result<()> {
        self.have_done(deadline, |done| Work::Complete { done })
    }

    fn have_done(&self, deadline: Instant, work: impl Fn(Done) -> Work) -> io::Result<()> {
        let (sender, outcomes) = channel();
        let mut given = self.give(|n| {
            let sender = sender.clone();
            // It may not be waited for any more.
            work(Box::new(move |outcome| drop(sender.send((n, outcome)))))
        });
        while !given.awaited.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((n, outcome)) = outcomes.recv_timeout(left) else { break };
            given.note(n, outcome);
        }
        given.end()
    }

    /// Gives each thread its work.
    fn give(&self, work: impl Fn(usize) -> Work) -> Given {
        let threads = self.threads.load_full();
        let mut given = Given { threads: Arc::clone(&threads), awaited: Vec::new(), failure: None };
        for (n, thread) in threads.iter().enumerate() {
            let is_given = thread.works.try_send(work(n)).is_ok();
            let hangs = thread.hangs.load(Ordering::Relaxed) || thread.directory.threads.hangs();
            if !is_given || hangs {
                thread.directory.set_awaits_purges(true);
            }
            match is_given && !hangs {
                true => given.awaited.push(n),
                false => given.fails(n, hangs_error()),
            }
        }
        given
    }
}

impl Given {
    fn fails(&mut self, n: usize, error: io::Error) {
        let path = self.threads[n].directory.path.display();
        self.failure.get_or_insert_with(|| io::Error::new(error.kind(), format!("{path}: {error}")));
    }

    fn note(&mut self, n: usize, outcome: io::Result<()>) {
        self.awaited.retain(|other| *other != n);
        outcome.unwrap_or_else(|error| self.fails(n, error));
    }

    /// The outcome, when nothing is waited for any more: disks that have not ended hang.
    fn end(mut self) -> io::Result<()> {
        for n in std::mem::take(&mut self.awaited) {
            let thread = &self.threads[n];
            thread.directory.set_awaits_purges(true);
            if !thread.hangs.swap(true, Ordering::Relaxed) {
                let path = thread.directory.path.display();
                tracing::warn!(
                    "cache {path}: the disk does not write purges: {NOT_LASTING}; no order waits for it until it answers: look for errors of the disk in the kernel's log"
                );
            }
            self.fails(n, hangs_error());
        }
        self.failure.map_or(Ok(()), Err)
    }
}

fn line(purge: &Purge) -> io::Result<Arc<[u8]>> {
    // The line before may have been cut.
    let mut line = vec![b'\n'];
    serde_json::to_writer(&mut line, purge).map_err(io::Error::other)?;
    line.push(b'\n');
    Ok(line.into())
}

fn hangs_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the disk does not answer")
}

/// Purges that wait for a disk. It hangs if there are more.
const MOST_WAITING: usize = 1024;
