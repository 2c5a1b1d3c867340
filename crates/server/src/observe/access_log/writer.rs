//! The writer thread, and its messages about lost lines.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::State;
use super::sink::Sink;

/// Time for the last lines when the server ends. A file or a log collector takes them in milliseconds; a pipe without a reader never
/// does, and must not keep the server from ending.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Lines in one write: some ten kilobytes, so that the system call costs little for each line.
const BATCH: usize = 256;

/// Time between two messages about lost lines.
const SILENCE: Duration = Duration::from_secs(60);

/// The receiving end. It outlives the workers.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Disconnected after the last line is written; `None` if the log is off.
    ended: Option<Receiver<()>>,
    state: Arc<State>,
}

impl Writer {
    pub(super) fn new(ended: Receiver<()>, state: Arc<State>) -> Self {
        Self { ended: Some(ended), state }
    }

    pub(super) fn of_nothing(state: Arc<State>) -> Self {
        Self { ended: None, state }
    }

    /// Waits until every line is written, at most [`LAST_LINES`]. Call it after all [`AccessLog`](super::AccessLog)s are dropped.
    pub(crate) fn finish(self) {
        if let Some(ended) = self.ended
            && ended.recv_timeout(LAST_LINES) == Err(RecvTimeoutError::Timeout)
        {
            tracing::warn!("the access log lost its last lines: its destination does not take them");
        }
        let dropped = self.state.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!("the access log lost {dropped} lines in all: its destination was too slow, or failed");
        }
    }
}

/// Writes until all senders are gone.
pub(super) fn write_lines(lines: &Receiver<String>, mut sink: Sink, state: &State) {
    let mut losses = Losses::default();
    let mut batch = Vec::with_capacity(BATCH);
    while let Ok(first) = lines.recv() {
        if state.reopen.swap(false, Ordering::Acquire) {
            match sink.reopen() {
                Ok(()) => tracing::info!("the access log was reopened"),
                Err(error) => tracing::error!(
                    "the access log cannot be reopened: {error}. Lines go to the old file; correct its path or permissions and send SIGUSR1 again"
                ),
            }
        }
        batch.push(first);
        batch.extend(lines.try_iter().take(BATCH - 1));
        // An empty line only wakes this thread.
        batch.retain(|line| !line.is_empty());
        if !batch.is_empty() {
            let lost = sink.write(&batch);
            let count = lost.as_ref().map_or(0, |(lines, _)| *lines);
            state.dropped.fetch_add(count as u64, Ordering::Relaxed);
            state.written.fetch_add((batch.len() - count) as u64, Ordering::Relaxed);
            losses.note(state.dropped.load(Ordering::Relaxed), lost.map(|(_, error)| error), Instant::now());
        }
        batch.clear();
    }
}

/// Lost lines, and the messages about them.
#[derive(Default)]
struct Losses {
    /// Lines lost at the last message.
    reported: u64,
    last: Option<Instant>,
    /// The last message said that the log cannot be written.
    failing: bool,
}

impl Losses {
    fn note(&mut self, dropped: u64, error: Option<io::Error>, now: Instant) {
        let lost = dropped - self.reported;
        let silent = self.last.is_some_and(|last| now.duration_since(last) < SILENCE);
        match error {
            None if self.failing => tracing::warn!("the access log is written again; {dropped} lines were lost so far"),
            None if lost > 0 && !silent => {
                tracing::warn!("the access log lost {lost} lines: its destination is too slow, or failed for a moment")
            }
            Some(ref error) if !silent => tracing::error!(
                "the access log cannot be written: {error}. Requests are served, {dropped} lines were lost so far; writing is tried again with every line"
            ),
            _ => return,
        }
        (self.reported, self.last, self.failing) = (dropped, Some(now), error.is_some());
    }
}
