//! A line for each response. Writing it never waits: lines go to a thread of their own, and what that thread cannot
//! keep up with is dropped and counted.
//!
//! ```text
//! Entry ─Layout─► String ─queue─► writer's thread ─► Sink: file, standard output, syslog, journald
//!                           └ full: dropped and counted
//! ```

mod config;
mod destination;
mod entry;
mod escape;
mod field;
mod layout;
mod sink;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::time::SystemTime;

pub(crate) use config::AccessLogConfig;
pub(crate) use destination::Destination;
pub(crate) use entry::{Entry, Requested};
pub(crate) use layout::Layout;
pub(crate) use writer::Writer;

/// Lines that may wait for the writer. GUESS: a tenth of a second of a busy machine, under 2 MB.
const QUEUE: usize = 8192;

/// The workers' end of the log.
#[derive(Debug, Clone)]
pub(crate) struct AccessLog {
    queue: Option<SyncSender<String>>,
    layout: Arc<Layout>,
    state: Arc<State>,
}

/// What both ends of the log see.
#[derive(Debug, Default)]
pub(crate) struct State {
    written: AtomicU64,
    dropped: AtomicU64,
    reopen: AtomicBool,
}

impl AccessLog {
    /// Opens the destination and starts its writer.
    ///
    /// # Errors
    /// When the file cannot be opened for appending, or no thread started. A syslog or journal that is not there is no error: it
    /// may come.
    pub(crate) fn open(destination: &Destination, layout: Layout) -> io::Result<(Self, Writer)> {
        let state = Arc::<State>::default();
        let layout = Arc::new(layout.for_destination(destination));
        let Some(sink) = destination.open()? else {
            let log = Self { queue: None, layout, state: Arc::clone(&state) };
            return Ok((log, Writer::of_nothing(state)));
        };
        let (queue, lines) = sync_channel(QUEUE);
        let (end, ended) = channel::<()>();
        let counts = Arc::clone(&state);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            writer::write_lines(&lines, sink, &counts);
            drop(end);
        })?;
        Ok((Self { queue: Some(queue), layout, state: Arc::clone(&state) }, Writer::new(ended, state)))
    }

    /// Writes a line, or counts it as dropped.
    pub(crate) fn write(&self, entry: &Entry<'_>) {
        if let Some(queue) = &self.queue
            && queue.try_send(self.layout.line(entry, SystemTime::now())).is_err()
        {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether lines go anywhere.
    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Opens the file anew before the next line, which is how it is rotated. Other destinations have no file.
    pub(crate) fn reopen(&self) {
        self.state.reopen.store(true, Ordering::Release);
        if let Some(queue) = &self.queue {
            // Wakes the writer. If the queue is full, the writer is awake.
            let _ = queue.try_send(String::new());
        }
    }

    /// Lines written and lines lost since the start.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.state.written.load(Ordering::Relaxed), self.state.dropped.load(Ordering::Relaxed))
    }
}
