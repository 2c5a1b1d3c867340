//! The threads of a disk. All work that may block on the disk runs here, so that a disk that hangs holds up only its own work: neither the threads that
//! serve, nor the pool that checks passwords and reads the files of sites.
//!
//! ```text
//! answering ─► hanging        an operation makes no progress for DEADLINE
//!     ▲───────────┘ recover: all operations have ended, and what the disk's own thread writes reaches the disk
//! ```
//!
//! An operation that the kernel holds cannot be ended. Its thread waits with it, and nothing else is given to the disk.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::resolve::{Content, SiteFile};
use crate::values::Mutex;

/// The threads of a disk, and the operations that wait for them.
#[derive(Debug)]
pub(crate) struct DiskThreads(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    has_work: Condvar,
    /// For each thread, when its operation began or last made progress: milliseconds after `begun`, or [`IDLE`].
    moved: [AtomicU64; MOST_THREADS],
    begun: Instant,
    hangs: AtomicBool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

struct Job {
    work: Box<dyn FnOnce() + Send>,
    /// Counts the steps of the operation.
    steps: Arc<AtomicU64>,
}

/// Why an operation gave no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// The disk was known to hang: nothing was given to it.
    Hangs,
    /// An operation made no progress for [`DEADLINE`]: the disk counts as hanging from now on.
    BeganToHang,
    /// Too many operations wait already, or this one waited for [`DEADLINE`].
    Busy,
    /// The operation panicked, which its hook has reported.
    Panicked,
}

impl Default for DiskThreads {
    fn default() -> Self {
        DiskThreads(Arc::new(Shared {
            queue: Mutex::default(),
            has_work: Condvar::new(),
            moved: std::array::from_fn(|_| AtomicU64::new(IDLE)),
            begun: Instant::now(),
            hangs: AtomicBool::new(false),
        }))
    }
}

impl DiskThreads {
    /// Has a thread do `work`, which may block. If its caller has left, the work is not begun. The caller drops refused work: the drop must not touch
    /// the disk then.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoReply> {
        let (result, mut waiting) = oneshot::channel();
        let steps = self.give(move || {
            if !result.is_closed() {
                let _ = result.send(work());
            }
        })?;
        loop {
            let before = steps.load(Ordering::Relaxed);
            match timeout(DEADLINE, &mut waiting).await {
                Ok(result) => return result.map_err(|_| NoReply::Panicked),
                Err(_) if steps.load(Ordering::Relaxed) != before => {}
                Err(_) => return Err(self.late()),
            }
        }
    }

    /// As [`Self::run`], for a caller that may block.
    pub(crate) fn run_and_block<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoReply> {
        let (result, waiting) = mpsc::sync_channel(1);
        let steps = self.give(move || {
            let _ = result.send(work());
        })?;
        loop {
            let before = steps.load(Ordering::Relaxed);
            match waiting.recv_timeout(DEADLINE) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Disconnected) => return Err(NoReply::Panicked),
                Err(RecvTimeoutError::Timeout) if steps.load(Ordering::Relaxed) != before => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.late()),
            }
        }
    }

    /// Has a thread do work that is necessary in any case, such as closing a file, when the disk lets it.
    pub(crate) fn run_later(&self, work: impl FnOnce() + Send + 'static) {
        let job = Job { work: Box::new(work), steps: Arc::default() };
        let mut queue = self.0.queue.lock();
        queue.jobs.push_back(job);
        self.0.wake(queue);
    }

    /// A file of the disk, to be sent. One of its threads closes it.
    pub(crate) fn site_file(self: &Arc<Self>, file: Arc<File>, len: u64) -> Arc<SiteFile> {
        let DiskFile { file, closed } = self.file(file);
        SiteFile::of_content_until_closed(Content::File(file), len, Arc::new(closed))
    }

    /// A file of the disk. One of its threads closes it.
    pub(crate) fn file(self: &Arc<Self>, file: Arc<File>) -> DiskFile {
        let closed = ClosedLater { file: Some(Arc::clone(&file)), threads: Arc::clone(self) };
        DiskFile { file, closed }
    }

    /// Whether the disk hangs, so that nothing is to be asked of it.
    pub(crate) fn hangs(&self) -> bool {
        self.0.hangs.load(Ordering::Acquire)
    }

    /// The disk hangs, as another thread of it found. Returns whether that is new.
    pub(crate) fn begin_to_hang(&self) -> bool {
        !self.0.hangs.swap(true, Ordering::AcqRel)
    }

    /// Whether an operation has made no progress for [`DEADLINE`].
    pub(crate) fn is_stuck(&self) -> bool {
        let now = self.0.now();
        let is_stuck = |moved: &AtomicU64| {
            let moved = moved.load(Ordering::Relaxed);
            moved != IDLE && now.saturating_sub(moved) >= DEADLINE.as_millis() as u64
        };
        self.0.moved.iter().any(is_stuck)
    }

    /// The disk answers again. Returns whether that is new.
    pub(crate) fn recover(&self) -> bool {
        self.0.hangs.swap(false, Ordering::AcqRel)
    }

    fn give(&self, work: impl FnOnce() + Send + 'static) -> Result<Arc<AtomicU64>, NoReply> {
        if self.hangs() {
            return Err(NoReply::Hangs);
        }
        // The callers that waited for that operation may all have left.
        if self.is_stuck() {
            return Err(self.late());
        }
        let steps = Arc::<AtomicU64>::default();
        let mut queue = self.0.queue.lock();
        if queue.jobs.len() >= MOST_WAITING {
            return Err(NoReply::Busy);
        }
        queue.jobs.push_back(Job { work: Box::new(work), steps: Arc::clone(&steps) });
        self.0.wake(queue);
        Ok(steps)
    }

    fn late(&self) -> NoReply {
        match self.is_stuck() {
            true if self.begin_to_hang() => NoReply::BeganToHang,
            true => NoReply::Hangs,
            false => NoReply::Busy,
        }
    }
}

impl Drop for DiskThreads {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.has_work.notify_all();
    }
}

impl Shared {
    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// Has one more thread work, where a job was added.
    fn wake(self: &Arc<Self>, mut queue: MutexGuard<'_, Queue>) {
        // Threads that were woken have not all taken their jobs yet.
        if queue.idle >= queue.jobs.len() {
            self.has_work.notify_one();
        } else if queue.threads < MOST_THREADS {
            let (shared, slot) = (Arc::clone(self), queue.threads);
            let started = thread::Builder::new().name("sealion-disk".to_owned()).spawn(move || shared.work(slot));
            match started {
                Ok(_) => queue.threads += 1,
                // The others take the job. The first of all is tried again with the next job.
                Err(error) => tracing::debug!("disk: cannot start a thread: {error}"),
            }
        }
    }

    fn work(self: &Arc<Self>, slot: usize) {
        loop {
            let mut queue = self.queue.lock();
            queue.idle += 1;
            let is_idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.is_closed;
            queue = self.has_work.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
            // Jobs that wait are done even if the disk is being closed.
            let Some(Job { work, steps }) = queue.jobs.pop_front() else { return };
            drop(queue);
            let operation = Operation { shared: Arc::clone(self), slot, steps };
            operation.moves();
            CURRENT.set(Some(operation));
            // A panic is reported by its hook, and costs one operation.
            let _ = catch_unwind(AssertUnwindSafe(work));
            CURRENT.set(None);
            self.moved[slot].store(IDLE, Ordering::Relaxed);
        }
    }
}

/// Has a file closed by a thread of its disk: the last close of a removed file frees its blocks, which may need the disk.
#[derive(Debug)]
struct ClosedLater {
    file: Option<Arc<File>>,
    threads: Arc<DiskThreads>,
}

impl Drop for ClosedLater {
    fn drop(&mut self) {
        if let Some(file) = self.file.take().and_then(Arc::into_inner) {
            self.threads.run_later(move || drop(file));
        }
    }
}

/// A file of a disk, which a thread of the disk closes unless a clone of it outlives this value.
#[derive(Debug)]
pub(crate) struct DiskFile {
    pub(crate) file: Arc<File>,
    /// Behind `file`, whose own share ends before.
    closed: ClosedLater,
}

/// The operation of a thread.
struct Operation {
    shared: Arc<Shared>,
    slot: usize,
    steps: Arc<AtomicU64>,
}

impl Operation {
    fn moves(&self) {
        self.shared.moved[self.slot].store(self.shared.now(), Ordering::Relaxed);
    }

    fn step(&self) {
        self.moves();
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Operation>> = const { RefCell::new(None) };
}

/// The operation of this thread makes progress: a long operation says so after each part.
pub(crate) fn progress() {
    CURRENT.with_borrow(|operation| {
        if let Some(operation) = operation {
            operation.step();
        }
    });
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("jobs", &self.jobs.len()).field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// No operation.
const IDLE: u64 = u64::MAX;

/// GUESS: operations of a disk that run side by side. A flash disk is busy with fewer, and a rotating disk is slower with more.
pub(crate) const MOST_THREADS: usize = 16;

/// Operations that wait, at which nothing more is taken.
const MOST_WAITING: usize = 1024;

/// GUESS: time without progress after which a disk counts as hanging. A disk that turns, with much to write back, takes a second or two for an operation.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation that ends when the test drops the sender.
    fn hanging(threads: &DiskThreads) -> mpsc::Sender<()> {
        let (release, hangs) = mpsc::channel::<()>();
        let (begun, is_under_way) = mpsc::channel();
        threads.run_later(move || {
            begun.send(()).unwrap();
            let _ = hangs.recv();
        });
        is_under_way.recv().unwrap();
        release
    }

    /// As if so much time had passed since an operation made progress.
    fn age(threads: &DiskThreads, by: Duration) {
        let shared = &threads.0;
        for moved in &shared.moved {
            let _ = moved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |moved| {
                (moved != IDLE).then(|| moved.saturating_sub(by.as_millis() as u64))
            });
        }
    }

    fn threads() -> DiskThreads {
        // Operations can have begun long ago.
        let begun = Instant::now().checked_sub(2 * DEADLINE).expect("the machine has run for longer");
        let shared = Shared {
            queue: Mutex::default(),
            has_work: Condvar::new(),
            moved: std::array::from_fn(|_| AtomicU64::new(IDLE)),
            begun,
            hangs: AtomicBool::new(false),
        };
        DiskThreads(Arc::new(shared))
    }

    #[test]
    fn one_operation_that_hangs_holds_up_no_other_until_the_disk_counts_as_hanging() {
        let threads = threads();
        let release = hanging(&threads);
        assert_eq!(threads.run_and_block(|| 1), Ok(1));
        age(&threads, DEADLINE);
        assert_eq!(threads.run_and_block(|| 2), Err(NoReply::BeganToHang));
        assert_eq!(threads.run_and_block(|| 3), Err(NoReply::Hangs));
        assert!(threads.is_stuck() && threads.hangs());
        drop(release);
        while threads.is_stuck() {
            thread::yield_now();
        }
        threads.recover();
        assert_eq!(threads.run_and_block(|| 4), Ok(4));
    }

    #[test]
    fn an_operation_that_makes_progress_does_not_hang() {
        let threads = threads();
        let (turn, turns) = mpsc::channel::<()>();
        let (done, steps) = mpsc::channel();
        threads.run_later(move || {
            while turns.recv().is_ok() {
                progress();
                done.send(()).unwrap();
            }
        });
        for _ in 0..3 {
            turn.send(()).unwrap();
            steps.recv().unwrap();
            assert!(!threads.is_stuck());
            age(&threads, DEADLINE);
        }
        assert!(threads.is_stuck());
    }

    #[test]
    fn what_runs_and_what_waits_is_bounded() {
        let threads = threads();
        let releases: Vec<_> = (0..MOST_THREADS).map(|_| hanging(&threads)).collect();
        let (ended, end) = mpsc::channel();
        for _ in 0..MOST_WAITING {
            let ended = ended.clone();
            threads.give(move || ended.send(()).unwrap()).unwrap();
        }
        assert_eq!(threads.give(|| ()).unwrap_err(), NoReply::Busy);
        assert_eq!(threads.0.queue.lock().threads, MOST_THREADS);
        drop((releases, ended));
        assert_eq!(end.iter().count(), MOST_WAITING);
    }

    #[test]
    fn a_panic_costs_one_operation() {
        let threads = threads();
        assert_eq!(threads.run_and_block(|| panic!("of the test")), Err::<(), _>(NoReply::Panicked));
        assert_eq!(threads.run_and_block(|| 1), Ok(1));
    }
}
