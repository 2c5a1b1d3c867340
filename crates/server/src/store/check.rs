//! Checks the bodies in files against their checksums: each once for a process, shared by all that ask for it, on threads of the disk.
//!
//! ```text
//! loaded, or stored ─► asked for ─┬─ short, a slice, or suspect after a loss of power ─► checked, then sent
//!                                 └─ long ─► sent while it is checked: the end of the response waits for the outcome
//! ```
//!
//! A damaged body is removed and fetched again. A response that was sending it breaks off before its end, so that no client takes a damaged body, or a damaged
//! range, for whole. After its check, a body is sent like a file.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::Store;
use super::disk::Disk;
use super::object::{Object, checksum};
use crate::files::disk_threads::{DEADLINE, progress};
use crate::files::resolve::{Content, SiteFile};
use crate::response::{Piece, Source};
use crate::values::Mutex;

/// The check of a body.
#[derive(Debug)]
pub(super) struct Check {
    state: AtomicU8,
    ended: Arc<Notify>,
    /// Bytes that all checks of the disk have read.
    read: Arc<AtomicU64>,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Outcome {
    /// It is as it was written.
    Sound = 1,
    Damaged = 2,
}

/// Checks that have not ended, by the hashes and versions of the objects.
type UnderWay = HashMap<(u128, Option<u32>), Arc<Check>>;

/// The checks of a disk.
#[derive(Debug, Default)]
pub(super) struct Checks {
    under_way: Mutex<UnderWay>,
    /// One for bodies up to [`CHECKED_FIRST`], one for longer ones: a short body does not wait for a long one.
    lanes: [Lane; 2],
    /// Bytes that were read so far.
    read: Arc<AtomicU64>,
}

/// Checks that wait for a thread.
#[derive(Debug, Default)]
struct Lane(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    threads: usize,
}

#[derive(Debug)]
struct Job {
    check: Arc<Check>,
    file: Arc<File>,
    hash: u128,
    version: Option<u32>,
    length: u64,
    checksum: u32,
}

impl Check {
    fn new(state: u8, checks: &Checks) -> Arc<Self> {
        Arc::new(Check { state: AtomicU8::new(state), ended: Arc::default(), read: Arc::clone(&checks.read) })
    }

    fn outcome(&self) -> Option<Outcome> {
        match self.state.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Outcome::Sound),
            _ => Some(Outcome::Damaged),
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.outcome() == Some(Outcome::Sound)
    }

    fn end(&self, outcome: Outcome) {
        self.state.store(outcome as u8, Ordering::Release);
        self.ended.notify_waiters();
    }

    /// `None`: the disk hangs.
    async fn wait(&self) -> Option<Outcome> {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(outcome) = self.outcome() {
                return Some(outcome);
            }
            let before = self.read.load(Ordering::Relaxed);
            if timeout(DEADLINE, ended).await.is_err() && self.read.load(Ordering::Relaxed) == before {
                return self.outcome();
            }
        }
    }
}

impl Store {
    /// Whether the body of an object may be sent: it is as it was written, or is being checked and the end of the response waits for that.
    pub(super) async fn is_sound(&self, object: &Object) -> bool {
        let Content::File(file) = &object.body.content else { return true };
        let disk = self.disk(object.hash);
        let check = object.check.get_or_init(|| disk.check(object, file));
        let outcome = match check.outcome() {
            None if object.is_checked_first() => check.wait().await,
            None => return true,
            outcome => outcome,
        };
        if outcome == Some(Outcome::Damaged) {
            // Other workers may have it open.
            self.changed(object.hash);
        }
        outcome == Some(Outcome::Sound)
    }
}

impl Object {
    /// Whether its body may be sent without a further look.
    pub(super) fn is_checked(&self) -> bool {
        matches!(self.body.content, Content::Memory(_)) || self.check.get().is_some_and(|check| check.is_sound())
    }

    /// Whether nothing of it is sent before it is checked.
    fn is_checked_first(&self) -> bool {
        self.is_suspect || self.body.len <= CHECKED_FIRST || self.head.sliced.is_some()
    }

    /// The body, while it is being checked.
    pub(super) fn being_checked(&self) -> Option<Arc<Check>> {
        self.check.get().filter(|check| !check.is_sound()).cloned()
    }
}

impl Disk {
    /// The check of an object, which may be under way for another request, or be over.
    fn check(self: &Arc<Self>, object: &Object, file: &Arc<File>) -> Arc<Check> {
        let (hash, version) = (object.hash, object.version());
        let is_known =
            |version| self.index.peek(hash).is_some_and(|entry| entry.version == version && entry.is_checked);
        if version.is_some_and(is_known) {
            return Check::new(Outcome::Sound as u8, &self.checks);
        }
        let mut under_way = self.checks.under_way.lock();
        // An object without a version may be a later one of its key.
        if let Some(check) = version.and_then(|_| under_way.get(&(hash, version))) {
            return Arc::clone(check);
        }
        let check = Check::new(0, &self.checks);
        if version.is_some() {
            under_way.insert((hash, version), Arc::clone(&check));
        }
        drop(under_way);
        let Object { checksum, ref body, .. } = *object;
        let (check_of_job, file) = (Arc::clone(&check), Arc::clone(file));
        let job = Job { check: check_of_job, file, hash, version, length: body.len, checksum };
        self.begin(job);
        check
    }

    /// Has a thread check a body.
    fn begin(self: &Arc<Self>, job: Job) {
        let lane = usize::from(job.length > CHECKED_FIRST);
        let mut queue = self.checks.lanes[lane].lock();
        queue.waiting.push_back(job);
        if queue.threads >= THREADS {
            return;
        }
        let disk = Arc::clone(self);
        let work = move || {
            while let Some(job) = disk.checks.lanes[lane].next() {
                // The hook reports a panic. A body whose check did not finish is not sent.
                if catch_unwind(AssertUnwindSafe(|| disk.run_check(&job))).is_err() {
                    disk.end(&job, Outcome::Damaged);
                }
            }
        };
        queue.threads += 1;
        drop(queue);
        self.directory.threads.run_later(work);
    }

    fn end(&self, Job { check, hash, version, .. }: &Job, outcome: Outcome) {
        self.checks.under_way.lock().remove(&(*hash, *version));
        check.end(outcome);
    }

    /// Removes an object whose body is damaged, or cannot be read, unless a later object has taken its place.
    fn remove_damaged(&self, hash: u128, file: &File, error: Option<io::Error>) {
        // Where it has become shorter, the disk has not failed.
        let error = error.filter(|error| error.kind() != io::ErrorKind::UnexpectedEof);
        if let Some(error) = &error {
            self.failed("read an object", error);
        }
        if self.directory.has_name(hash, file) {
            if error.is_none() {
                let name = self.directory.path.join(super::directory::name(hash));
                tracing::warn!("cache {}: a damaged object was removed", name.display());
            }
            self.remove(hash);
        }
    }

    fn run_check(&self, job: &Job) {
        let Job { file, hash, version, length, checksum: expected, .. } = job;
        let note = |bytes| {
            self.checks.read.fetch_add(bytes, Ordering::Relaxed);
            progress();
        };
        let found = checksum(file, *length, note);
        let outcome = match found {
            Ok(found) if found == *expected => Outcome::Sound,
            _ => Outcome::Damaged,
        };
        match (outcome, version) {
            (Outcome::Sound, Some(version)) => self.index.note_checked(*hash, *version),
            (Outcome::Sound, None) => {}
            (Outcome::Damaged, _) => self.remove_damaged(*hash, file, found.err()),
        }
        self.end(job, outcome);
    }
}

impl Lane {
    /// The next check of a thread, which ends without one.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        let job = queue.waiting.pop_front();
        if job.is_none() {
            queue.threads -= 1;
        }
        job
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock()
    }
}

/// A body that is sent while it is checked: its end waits for the outcome.
pub(super) struct Withheld {
    file: Arc<SiteFile>,
    at: u64,
    end: u64,
    check: Arc<Check>,
    ended: Option<Pin<Box<OwnedNotified>>>,
    /// Set by the first wait: goes off when the disk has not answered, unless it has read more than these bytes.
    deadline: Option<(Pin<Box<Sleep>>, u64)>,
}

impl Withheld {
    pub(super) fn new(file: Arc<SiteFile>, range: std::ops::Range<u64>, check: Arc<Check>) -> Self {
        Withheld { file, at: range.start, end: range.end, check, ended: None, deadline: None }
    }

    fn piece(&mut self, until: u64) -> Poll<Option<io::Result<Piece>>> {
        let range = self.at..until;
        self.at = until;
        Poll::Ready(Some(Ok(Piece::File { file: Arc::clone(&self.file), range })))
    }
}

impl Source for Withheld {
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        let this = self.get_mut();
        let withheld = this.end.saturating_sub(WITHHELD);
        match this.at {
            at if at >= this.end => return Poll::Ready(None),
            at if at < withheld => return this.piece(withheld),
            _ => {}
        }
        loop {
            let ended = this.ended.get_or_insert_with(|| Box::pin(Arc::clone(&this.check.ended).notified_owned()));
            ended.as_mut().enable();
            match this.check.outcome() {
                Some(Outcome::Sound) => return this.piece(this.end),
                Some(Outcome::Damaged) => {
                    return Poll::Ready(Some(Err(io::Error::other("the stored body is damaged"))));
                }
                None => {}
            }
            if ended.as_mut().poll(cx).is_pending() {
                let read = this.check.read.load(Ordering::Relaxed);
                let (deadline, before) = this.deadline.get_or_insert_with(|| (Box::pin(sleep(LONGEST_SILENCE)), read));
                ready!(deadline.as_mut().poll(cx));
                if std::mem::replace(before, read) == read {
                    let what = "the disk did not bring the stored body into memory to be checked";
                    return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, what))));
                }
                deadline.as_mut().reset(Instant::now() + LONGEST_SILENCE);
                continue;
            }
            this.ended = None;
        }
    }
}

/// Bodies up to so many bytes are checked before the first is sent: a disk reads them in a moment. GUESS
const CHECKED_FIRST: u64 = 8 << 20;

/// Longest delay at the end of a response for a disk that reads nothing, as for reading content.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// Bytes at the end of a response that are withheld until its check ends.
const WITHHELD: u64 = 16 << 10;

/// Threads of a lane. GUESS
const THREADS: usize = 2;
