//! Files whose pages are not in memory. A thread per disk waits for them, so that other connections of this thread
//! continue.
//!
//! A read with RWF_NOWAIT (preadv2(2)) shows whether a page is in memory. Some file systems do not support it, such as
//! FUSE, NFS and tmpfs before Linux 6.6. Their files are read as if every page were in memory.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::error::Error;

/// Whether a read may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The read may wait.
    Yes,
    /// The read must not wait, but return [`Read::Cold`].
    No,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The number of bytes read, at least one.
    Bytes(usize),
    /// The first page is not in memory.
    Cold,
}

/// Reads from the start of `range`, which exists unless the file shrank.
pub(crate) fn read(
    file: &File,
    into: &mut [IoSliceMut<'_>],
    range: &Range<u64>,
    mut wait: Wait,
) -> Result<Read, Error> {
    loop {
        let read = match wait {
            Wait::Yes => preadv(file, into, range.start),
            Wait::No => preadv2(file, into, range.start, ReadWriteFlags::NOWAIT),
        };
        match read {
            Ok(0) => return Err(Error::FileShrank { at: range.start, end: range.end }),
            Ok(bytes) => return Ok(Read::Bytes(bytes)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if wait == Wait::No => return Ok(Read::Cold),
            Err(Errno::OPNOTSUPP) if wait == Wait::No => wait = Wait::Yes,
            Err(errno) => return Err(Error::File(io::Error::from(errno))),
        }
    }
}

/// The state of a range's pages before sendfile(2), judged by samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// They are in memory.
    Warm,
    /// The file system does not report it.
    Unknown,
    /// sendfile would wait for a disk.
    Cold,
    /// The file ends before the range does.
    Gone,
}

/// Samples one byte per [`SAMPLED`] bytes of `range`, and the last byte. Single missing pages only make sendfile
/// slower.
pub(crate) fn look(file: &File, range: &Range<u64>) -> Pages {
    let mut byte = [0];
    let steps = (range.start..range.end).step_by(SAMPLED as usize);
    for at in steps.chain([range.end - 1]) {
        match preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Err(Errno::AGAIN) => return Pages::Cold,
            Err(Errno::OPNOTSUPP) => return Pages::Unknown,
            Ok(0) => return Pages::Gone,
            // sendfile reports other errors.
            _ => {}
        }
    }
    Pages::Warm
}

/// SPEC: Linux reads ahead 128 KiB at a time by default (VM_READAHEAD_PAGES in include/linux/mm.h), so pages come in
/// runs of that length.
const SAMPLED: u64 = 128 << 10;

/// Pages that another thread brings into memory.
pub(crate) struct Fetch {
    ended: oneshot::Receiver<()>,
    deadline: Pin<Box<Sleep>>,
}

/// Makes another thread read `range`, so that its pages are in memory. A failed read occurs again when the bytes are
/// needed.
pub(crate) fn fetch(file: &File, range: Range<u64>) -> Result<Fetch, Error> {
    let file = file.try_clone().map_err(Error::File)?;
    let device = fstat(&file).map_err(|errno| Error::File(errno.into()))?.st_dev;
    let (end, ended) = oneshot::channel();
    Threads::of(device).give(Job { file, range, end }).map_err(Error::File)?;
    Ok(Fetch { ended, deadline: Box::pin(sleep(DEADLINE)) })
}

impl Fetch {
    /// Waits for the pages.
    ///
    /// # Errors
    /// The disk did not respond within [`DEADLINE`].
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // A panic of the thread drops the sender.
        if Pin::new(&mut self.ended).poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.deadline.as_mut().poll(cx));
        let what = format!("the disk has not responded for {} s", DEADLINE.as_secs());
        Poll::Ready(Err(Error::File(io::Error::new(io::ErrorKind::TimedOut, what))))
    }
}

fn read_into_memory(file: &File, range: Range<u64>) {
    let mut scratch = vec![0; SCRATCH];
    let mut at = range.start;
    while at < range.end {
        let wanted = scratch.len().min((range.end - at) as usize);
        match preadv(file, &mut [IoSliceMut::new(&mut scratch[..wanted])], at) {
            Ok(0) => return,
            Ok(read) => at += read as u64,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The threads that wait for one device. A device that hangs delays neither other devices nor other blocking work of
/// this process.
#[derive(Default)]
struct Threads {
    queue: Mutex<Queue>,
    has_work: Condvar,
}

/// Pages to bring into memory.
struct Job {
    file: File,
    range: Range<u64>,
    /// Closed when the response has ended.
    end: oneshot::Sender<()>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Job {
    fn run(self) {
        if !self.end.is_closed() {
            read_into_memory(&self.file, self.range);
            let _ = self.end.send(());
        }
    }
}

impl Threads {
    fn of(device: u64) -> Arc<Self> {
        static ALL: LazyLock<Mutex<HashMap<u64, Arc<Threads>>>> = LazyLock::new(Mutex::default);
        Arc::clone(ALL.lock().unwrap_or_else(PoisonError::into_inner).entry(device).or_default())
    }

    /// Queues a job for a thread.
    fn give(self: Arc<Self>, job: Job) -> io::Result<()> {
        let mut queue = self.lock();
        // While the device hangs, jobs of ended responses would keep their files open.
        queue.jobs.retain(|job| !job.end.is_closed());
        queue.jobs.push_back(job);
        // Threads that were woken may not have taken their jobs yet.
        if queue.idle >= queue.jobs.len() {
            self.has_work.notify_one();
        } else if queue.threads < MAX_THREADS {
            let own = Arc::clone(&self);
            let started = thread::Builder::new().name("disk".to_owned()).spawn(move || own.work());
            match started {
                Ok(_) => queue.threads += 1,
                // Another thread takes the job.
                Err(_) if queue.threads > 0 => {}
                Err(error) => {
                    queue.jobs.pop_back();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            while let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job.run();
                queue = self.lock();
            }
            queue.idle += 1;
            let is_idle = |queue: &mut Queue| queue.jobs.is_empty();
            queue = self.has_work.wait_timeout_while(queue, LINGER, is_idle).unwrap_or_else(PoisonError::into_inner).0;
            queue.idle -= 1;
            if queue.jobs.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// GUESS: the maximum number of concurrent reads of a device.
const MAX_THREADS: usize = 64;

/// The time without work after which a thread ends.
const LINGER: Duration = Duration::from_secs(10);

/// GUESS: how long a response waits for a disk. A disk that spins up takes ten seconds, and Linux waits 30 seconds
/// before it repeats a command.
const DEADLINE: Duration = Duration::from_secs(60);

/// The number of bytes read and discarded at a time: small enough for a core's own cache.
const SCRATCH: usize = 128 << 10;
