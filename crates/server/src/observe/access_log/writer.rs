//! The writer's thread, and its messages about lost lines.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{park, park_timeout};
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::sink::Sink;
use super::{Lines, State};

/// How long the end of the server waits for the last lines. A file or a log collector takes them in milliseconds; a
/// pipe without a reader never does, and must not keep the server from ending.
pub(super) const LAST_LINES: Duration = Duration::from_secs(2);

/// Time between two messages about lost lines.
const SILENCE: Duration = Duration::from_secs(60);

/// The receiving end. It outlives the workers.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Disconnected after the last line is written; `None` if the log is off.
    running: Option<(Receiver<()>, Arc<Lines>)>,
    state: Arc<State>,
}

impl Writer {
    pub(super) fn new(ended: Receiver<()>, lines: Arc<Lines>, state: Arc<State>) -> Self {
        Self { running: Some((ended, lines)), state }
    }

    pub(super) fn of_nothing(state: Arc<State>) -> Self {
        Self { running: None, state }
    }

    /// Makes the thread write all waiting lines, then end.
    pub(super) fn close(&self) {
        if let Some((_, lines)) = &self.running {
            lines.closing.store(true, Ordering::Release);
            lines.wake();
        }
    }

    /// Waits until every line is written, at most until `until`.
    pub(super) fn finish(self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        if let Some((ended, _)) = self.running
            && ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
        {
            tracing::warn!("the access log lost its last lines: its destination does not take them");
        }
        let dropped = self.state.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!("the access log lost {dropped} lines in all: its destination was too slow, or failed");
        }
    }
}

/// Writes until the log is closed.
pub(super) fn write_lines(lines: &Lines, mut sink: Sink, flush_after: Duration, state: &State) {
    let mut losses = Losses::default();
    let mut batch = Batch::default();
    loop {
        let closing = lines.closing.load(Ordering::Acquire);
        let reopen = lines.reopen.swap(false, Ordering::Acquire);
        let mut has_written = false;
        for worker in &lines.workers {
            std::mem::swap(&mut worker.lock().batch, &mut batch);
            if batch.len() > 0 {
                has_written = true;
                let lost = sink.write(&batch);
                let count = lost.as_ref().map_or(0, |(lines, _)| *lines);
                state.dropped.fetch_add(count as u64, Ordering::Relaxed);
                state.written.fetch_add((batch.len() - count) as u64, Ordering::Relaxed);
                losses.note(state.dropped.load(Ordering::Relaxed), lost.map(|(_, error)| error), Instant::now());
            }
            batch.clear();
        }
        if reopen {
            match sink.reopen() {
                Ok(()) => tracing::info!("the access log was reopened"),
                Err(error) => tracing::error!(
                    "the access log cannot be reopened: {error}. Lines go to the old file; correct its path or permissions and send SIGUSR1 again"
                ),
            }
        }
        if closing {
            return;
        }
        if has_written && !flush_after.is_zero() {
            lines.awake.store(true, Ordering::Relaxed);
            park_timeout(flush_after);
        } else if !lines.awake.swap(false, Ordering::Relaxed) {
            park();
        }
        // Otherwise the next worker that adds a line wakes this thread, and one more round takes the lines added
        // before.
    }
}

/// Lost lines, and the messages about them.
#[derive(Default)]
struct Losses {
    /// Lines lost until the last message.
    reported: u64,
    last: Option<Instant>,
    /// The last message reported that the log cannot be written.
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
