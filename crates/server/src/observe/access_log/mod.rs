//! The access log: a line for each response.
//!
//! ```text
//! Entry ─Layout─► the worker's Batch ─writer's thread─► Sink: file, standard output, syslog, journald
//!                           └ too long: dropped and counted
//! ```
//!
//! A worker never waits for the destination, and wakes the writer only for the first line after a pause and when its
//! batch is full: waking a thread for each line costs more than everything else. The writer then takes the batches of
//! all workers every [`AccessLogConfig::flush_after`], until there is a pause.

mod batch;
mod config;
mod destination;
mod entry;
mod escape;
mod field;
mod layout;
mod of_sites;
mod rotation;
mod sink;
mod stamp;
mod text;
mod value;
mod writer;

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use thread_local::ThreadLocal;

use batch::Batch;
use rotation::Rotation;
use stamp::Clock;

pub(crate) use config::AccessLogConfig;
pub(crate) use destination::Destination;
pub(crate) use entry::{CacheOutcome, CacheTrace, Entry, Outcome, Requested, UpstreamTrace};
use layout::{LastSealing, Layout};
pub(crate) use of_sites::Writers;
pub(crate) use of_sites::{AccessLogPlans, AccessLogs, SiteLog, SiteLogConfig, SiteLogs};
use writer::Writer;

use crate::values::Mutex;

/// The length of a batch in bytes at which the writer is woken early: about 300 lines, so that the wake-up costs little
/// per line.
const FULL: usize = 64 << 10;

/// The length of a batch in bytes above which lines are dropped: a tenth of a second of 150-byte lines at 140,000
/// responses per second, so that a short pause of the disk loses no line.
const MAX_WAITING: usize = 2 << 20;

/// The content and the destination of an access log.
#[derive(Debug, Clone)]
struct AccessLogPlan {
    destination: Destination,
    layout: Layout,
    /// How long a line may wait for the writer.
    flush_after: Duration,
    /// One response in this many is logged; errors always are.
    one_in: NonZeroU32,
    rotation: Option<Rotation>,
}

/// The sending end, for workers.
#[derive(Debug, Clone)]
pub(crate) struct AccessLog {
    /// `None`: the log is off.
    lines: Option<Arc<Lines>>,
    state: Arc<State>,
}

/// The lines that wait for the writer.
#[derive(Debug)]
struct Lines {
    layout: Layout,
    one_in: NonZeroU32,
    /// Every line wakes the writer.
    at_once: bool,
    workers: ThreadLocal<Mutex<Worker>>,
    writer: OnceLock<Thread>,
    /// The writer will check all batches again without being woken.
    awake: AtomicBool,
    closing: AtomicBool,
    reopen: AtomicBool,
}

/// A worker's part of the log.
#[derive(Debug, Default)]
struct Worker {
    batch: Batch,
    clock: Clock,
    sealing: LastSealing,
    /// Responses not logged since the last line.
    left_out: u32,
}

/// Counts of the log.
#[derive(Debug, Default)]
struct State {
    written: AtomicU64,
    dropped: AtomicU64,
}

impl AccessLog {
    /// Opens the destination and starts its writer.
    ///
    /// # Errors
    /// The file cannot be opened for appending, or the thread cannot be started. A missing syslog or journal is not an
    /// error: it may start later.
    fn open(plan: &AccessLogPlan) -> io::Result<(Self, Writer)> {
        let state = Arc::<State>::default();
        let Some(sink) = plan.destination.open(plan.rotation)? else {
            return Ok((Self { lines: None, state: Arc::clone(&state) }, Writer::of_nothing(state)));
        };
        let lines = Arc::new(Lines {
            layout: plan.layout.clone().for_destination(&plan.destination),
            one_in: plan.one_in,
            at_once: plan.flush_after.is_zero(),
            workers: ThreadLocal::new(),
            writer: OnceLock::new(),
            awake: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
        });
        let (end, ended) = channel::<()>();
        let (source, counts, flush_after) = (Arc::clone(&lines), Arc::clone(&state), plan.flush_after);
        let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer::write_lines(&source, sink, flush_after, &counts);
            drop(end);
        })?;
        // Set once, here.
        let _ = lines.writer.set(thread.thread().clone());
        let writer = Writer::new(ended, Arc::clone(&lines), Arc::clone(&state));
        Ok((Self { lines: Some(lines), state }, writer))
    }

    /// Adds a line, or counts it as dropped.
    pub(crate) fn write(&self, entry: &Entry<'_>) {
        if let Some(lines) = &self.lines
            && !lines.add(entry)
        {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether lines are written at all.
    fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    /// Reopens the file for rotation, after all lines so far are written. Does nothing for other destinations.
    fn reopen(&self) {
        if let Some(lines) = &self.lines {
            lines.reopen.store(true, Ordering::Release);
            lines.wake();
        }
    }

    /// Lines written and lines dropped since the start.
    fn counts(&self) -> (u64, u64) {
        (self.state.written.load(Ordering::Relaxed), self.state.dropped.load(Ordering::Relaxed))
    }
}

impl Lines {
    /// `false`: the batch is too long, and the line is lost.
    fn add(&self, entry: &Entry<'_>) -> bool {
        let (worker, is_first) = match self.workers.get() {
            Some(worker) => (worker, false),
            None => (self.workers.get_or_default(), true),
        };
        let mut worker = worker.lock();
        let Worker { batch, clock, sealing, left_out } = &mut *worker;
        if !entry.is_error() {
            *left_out += 1;
            if *left_out < self.one_in.get() {
                return true;
            }
            *left_out = 0;
        }
        let before = batch.bytes().len();
        if before > MAX_WAITING {
            return false;
        }
        let stamp = clock.at(entry.ended);
        batch.push(|line| self.layout.write_line(line, entry, stamp, sealing));
        let has_become_full = before < FULL && batch.bytes().len() >= FULL;
        drop(worker);
        // The writer announces that it sleeps before it checks the batches for the last time, so that the lock orders
        // this load: either the writer sees the line, or the load sees that the writer sleeps. A new worker's batch is
        // not among the batches that it checks.
        if has_become_full || self.at_once || is_first || !self.awake.load(Ordering::Relaxed) {
            self.wake();
        }
        true
    }

    fn wake(&self) {
        self.awake.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the destination takes nothing, the bytes that wait are bounded, for lines of any length.
    #[test]
    fn lines_beyond_the_bound_are_refused() {
        let agent = ["User-Agent: ", &"a".repeat(30_000), "\r\n"].concat();
        let lines = Lines {
            layout: Layout::new(layout::Format::Combined, &[], field::Naming::Nothing),
            one_in: NonZeroU32::MIN,
            at_once: false,
            workers: ThreadLocal::new(),
            writer: OnceLock::new(),
            awake: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
        };
        let request = layout::tests::get("/", agent.as_bytes());
        let entry = layout::tests::entry(&request);
        let added = (0..1_000_000).take_while(|_| lines.add(&entry)).count();
        let waiting = lines.workers.get().unwrap().lock().batch.bytes().len();
        assert!(added < 2000 && waiting <= MAX_WAITING + 8192, "{added} lines, {waiting} bytes");
    }
}
