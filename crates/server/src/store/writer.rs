//! Writes short responses behind the requests that fetched them.
//!
//! A thread works off a queue. While there is much to write, it looks at the queue each millisecond: to wake it for each response would cost as much
//! as the write.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io, mem, thread};

use crate::files::disk_threads::DEADLINE;
use crate::values::Mutex;

/// The writer of a disk.
#[derive(Debug, Default)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    has_work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<(usize, Job)>,
    /// Jobs that have not ended: both in `jobs` and with the thread.
    number: usize,
    /// Bytes of memory that they take.
    octets: usize,
    /// When the thread took jobs or ended one last. `None`: it has not yet.
    moved: Option<Instant>,
    /// Whether the thread waits to be woken.
    is_idle: bool,
    is_stopping: bool,
}

type Job = Box<dyn FnOnce() + Send>;

/// The disk is slower than the origins: the job is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full {
    /// Nothing was written for [`DEADLINE`].
    pub(super) hangs: bool,
}

impl Writer {
    pub(super) fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("sealion-write".to_owned()).spawn(move || shared.work())?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Has something written that takes so many bytes of memory until then. After the writer has stopped, the job is dropped.
    pub(super) fn push(&self, octets: usize, job: impl FnOnce() + Send + 'static) -> Result<(), Full> {
        let mut queue = self.shared.queue.lock();
        if queue.is_stopping {
            return Ok(());
        }
        // A job that takes no memory is no response: it is accepted in any case.
        let hangs = queue.hangs();
        if octets > 0 && (hangs || queue.octets > MOST_OCTETS || queue.number >= MOST_JOBS) {
            return Err(Full { hangs });
        }
        if queue.number == 0 && queue.moved.is_some() {
            // It rested.
            queue.moved = Some(Instant::now());
        }
        queue.octets += octets;
        queue.number += 1;
        queue.jobs.push((octets, Box::new(job)));
        if mem::take(&mut queue.is_idle) {
            self.shared.has_work.notify_one();
        }
        Ok(())
    }

    /// Whether nothing was written for [`DEADLINE`] although there is something to write.
    pub(super) fn hangs(&self) -> bool {
        self.shared.queue.lock().hangs()
    }

    /// Ends when all waiting jobs are written.
    pub(super) fn stop(&self) {
        self.shared.queue.lock().is_stopping = true;
        self.shared.has_work.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.lock().is_stopping = true;
        self.shared.has_work.notify_one();
    }
}

impl Shared {
    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            if queue.jobs.is_empty() {
                queue.is_idle = true;
                let is_idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.is_stopping;
                queue = self.has_work.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
                queue.is_idle = false;
            }
            let jobs = mem::take(&mut queue.jobs);
            queue.moved = Some(Instant::now());
            let is_stopping = queue.is_stopping;
            drop(queue);
            if jobs.is_empty() && is_stopping {
                return;
            }
            for (octets, job) in jobs {
                // A panic is reported by its hook, and costs one response.
                let _ = catch_unwind(AssertUnwindSafe(job));
                // Each job that ends makes room for the next: an overload loses only the jobs that the disk cannot take.
                let mut queue = self.queue.lock();
                queue.octets -= octets;
                queue.number -= 1;
                queue.moved = Some(Instant::now());
            }
            if !is_stopping {
                thread::sleep(PACE);
            }
        }
    }
}

impl Queue {
    fn hangs(&self) -> bool {
        self.number > 0 && self.moved.is_some_and(|moved| moved.elapsed() >= DEADLINE)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("jobs", &self.number).field("octets", &self.octets).finish_non_exhaustive()
    }
}

/// Bytes above which nothing more is taken: the memory of a disk that does not keep up.
const MOST_OCTETS: usize = 64 << 20;

/// Jobs at which nothing more is taken: each holds the fill of its response, too.
const MOST_JOBS: usize = 16 << 10;

const PACE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn all_that_waits_is_written_in_its_order_before_the_end() {
        let writer = Writer::default();
        writer.start().unwrap();
        let (sender, receiver) = mpsc::channel();
        let push = |n| {
            let sender = sender.clone();
            writer.push(1, move || sender.send(n).unwrap())
        };
        // The thread sleeps at the first, and is at work at the others.
        (0..1000).for_each(|n| push(n).unwrap());
        writer.stop();
        push(1000).unwrap();
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn what_waits_is_bounded() {
        let writer = Writer::default();
        let mut taken = 0;
        while writer.push(1 << 20, || ()).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 65);
        let writer = Writer::default();
        let taken = (0..2 * MOST_JOBS).filter(|_| writer.push(1, || ()).is_ok()).count();
        assert_eq!(taken, MOST_JOBS);
        assert_eq!(writer.push(0, || ()), Ok(()), "it takes no memory");
    }

    /// A slow disk: each job ends when the test says so.
    #[test]
    fn each_that_is_written_makes_room_for_one_more() {
        let writer = Writer::default();
        let (may_end, turns) = mpsc::channel::<()>();
        let turns = Arc::new(Mutex::new(turns));
        let (ended, written) = mpsc::channel();
        let push = |n: usize| {
            let (turns, ended) = (Arc::clone(&turns), ended.clone());
            writer.push(1, move || {
                turns.lock().recv().unwrap();
                ended.send(n).unwrap();
            })
        };
        (0..MOST_JOBS).for_each(|n| push(n).unwrap());
        writer.start().unwrap();
        let mut next = MOST_JOBS;
        for turn in 0..100 {
            // A job that the thread took still counts until it ends.
            assert_eq!(push(usize::MAX), Err(Full { hangs: false }));
            may_end.send(()).unwrap();
            assert_eq!(written.recv().unwrap(), turn);
            while push(next) == Err(Full { hangs: false }) {
                thread::yield_now();
            }
            next += 1;
        }
        for _ in 100..next {
            may_end.send(()).unwrap();
        }
        writer.stop();
        assert_eq!(written.try_iter().collect::<Vec<_>>(), (100..next).collect::<Vec<_>>());
    }

    #[test]
    fn a_thread_that_ends_nothing_for_long_hangs() {
        let writer = Writer::default();
        let (may_end, turn) = mpsc::channel::<()>();
        let (begun, is_under_way) = mpsc::channel();
        let hanging = move || {
            begun.send(()).unwrap();
            turn.recv().unwrap();
        };
        writer.push(MOST_OCTETS + 1, hanging).unwrap();
        assert_eq!(writer.push(1, || ()), Err(Full { hangs: false }), "it has not begun");
        writer.start().unwrap();
        is_under_way.recv().unwrap();
        assert_eq!(writer.push(1, || ()), Err(Full { hangs: false }));
        let earlier = Instant::now().checked_sub(DEADLINE + PACE).expect("the machine has run for longer");
        writer.shared.queue.lock().moved = Some(earlier);
        assert_eq!(writer.push(1, || ()), Err(Full { hangs: true }));
        may_end.send(()).unwrap();
        writer.stop();
    }

    #[test]
    fn a_job_that_panics_makes_room_as_any() {
        let writer = Writer::default();
        writer.push(MOST_OCTETS + 1, || panic!("of the test")).unwrap();
        assert_eq!(writer.push(1, || ()), Err(Full { hangs: false }));
        writer.start().unwrap();
        let (ended, written) = mpsc::channel();
        let push = |ended: mpsc::Sender<()>| writer.push(1, move || ended.send(()).unwrap());
        while push(ended.clone()) == Err(Full { hangs: false }) {
            thread::yield_now();
        }
        written.recv().unwrap();
        writer.stop();
    }
}
