//! The access log: a line for each response. Workers never wait for it: a thread of its own writes the lines, and lines beyond its queue
//! are dropped and counted.
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

/// Lines that may wait for the writer: under 2 MB, and a tenth of a second at 80,000 responses a second, so that a short pause of the
/// disk loses no line.
const QUEUE: usize = 8192;

/// The sending end, for workers.
#[derive(Debug, Clone)]
pub(crate) struct AccessLog {
    queue: Option<SyncSender<String>>,
    layout: Arc<Layout>,
    state: Arc<State>,
}

/// Shared by both ends.
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
    /// The file cannot be opened for appending, or the thread not be started. A missing syslog or journal is no error: it may start
    /// later.
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

    /// Queues a line, or counts it as dropped.
    pub(crate) fn write(&self, entry: &Entry<'_>) {
        if let Some(queue) = &self.queue
            && queue.try_send(self.layout.line(entry, SystemTime::now())).is_err()
        {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether lines are written at all.
    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Reopens the file, for rotation. Does nothing for other destinations.
    pub(crate) fn reopen(&self) {
        self.state.reopen.store(true, Ordering::Release);
        if let Some(queue) = &self.queue {
            // Wakes the writer. If the queue is full, the writer is awake.
            let _ = queue.try_send(String::new());
        }
    }

    /// Lines written and lines dropped since the start.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.state.written.load(Ordering::Relaxed), self.state.dropped.load(Ordering::Relaxed))
    }
}
