//! Writes short responses behind the requests that fetched them.
//!
//! A thread works off a queue. While there is much to write, it looks at the queue each millisecond: to wake it for each response would cost as much
//! as the write.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io, mem, thread};

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
    jobs: Vec<Job>,
    /// Octets of memory that they take.
    octets: usize,
    /// Whether the thread waits to be woken.
    is_idle: bool,
    is_stopping: bool,
}

type Job = Box<dyn FnOnce() + Send>;

/// The disk is slower than the origins.
#[derive(Debug)]
pub(super) struct Full;

impl Writer {
    pub(super) fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("sealion-write".to_owned()).spawn(move || shared.work())?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Has something written that takes so many octets of memory until then. When the writer stops, it is dropped.
    pub(super) fn push(&self, octets: usize, job: impl FnOnce() + Send + 'static) -> Result<(), Full> {
        let mut queue = self.shared.lock();
        if queue.is_stopping {
            return Ok(());
        }
        if queue.octets > MOST_WAITING {
            return Err(Full);
        }
        queue.octets += octets;
        queue.jobs.push(Box::new(job));
        if mem::take(&mut queue.is_idle) {
            self.shared.has_work.notify_one();
        }
        Ok(())
    }

    /// Ends when all that waits is written.
    pub(super) fn stop(&self) {
        self.shared.lock().is_stopping = true;
        self.shared.has_work.notify_one();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.has_work.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut queue = self.lock();
            if queue.jobs.is_empty() {
                queue.is_idle = true;
                let is_idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.is_stopping;
                queue = self.has_work.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
                queue.is_idle = false;
            }
            let jobs = mem::take(&mut queue.jobs);
            queue.octets = 0;
            let is_stopping = queue.is_stopping;
            drop(queue);
            if jobs.is_empty() && is_stopping {
                return;
            }
            for job in jobs {
                // A panic is reported by its hook, and costs one response.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
            if !is_stopping {
                thread::sleep(PACE);
            }
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("jobs", &self.jobs.len()).field("octets", &self.octets).finish_non_exhaustive()
    }
}

/// Octets above which nothing more is taken: the memory of a disk that does not keep up. As much may be with the thread.
const MOST_WAITING: usize = 32 << 20;

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
        assert_eq!(taken, 33);
    }
}
