//! The thread that writes, and what it says of lines that were lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::State;
use super::sink::Sink;

/// How long the last lines may take. GUESS: a file or a log collector takes them in milliseconds; a pipe that nobody
/// reads takes them never, and must not keep the server from ending.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Lines written in one go. GUESS: some ten kilobytes.
const BATCH: usize = 256;

/// Between two messages about lines that were lost. GUESS: often enough to see that it lasts, seldom enough not to fill the
/// other log.
const SILENCE: Duration = Duration::from_secs(60);

/// The end that outlives the workers.
#[derive(Debug)]
pub(crate) struct Writer {
    /// Disconnected when the last line is written; `None` without a destination.
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

    /// Waits until every line is written, once all [`AccessLog`](super::AccessLog)s are gone; not for ever.
    pub(crate) fn finish(self) {
        if let Some(ended) = self.ended
            && ended.recv_timeout(LAST_LINES) == Err(RecvTimeoutError::Timeout)
        {
            tracing::warn!("the access log lost its last lines: its destination takes nothing");
        }
        let dropped = self.state.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(
                "the access log lost {dropped} lines in all: its destination is slower than the responses, or failed"
            );
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
                Ok(()) => tracing::info!("the access log's file was opened anew"),
                Err(error) => tracing::error!(
                    "the access log's file cannot be opened anew: {error}. Lines go to the old one; mend its directory and send SIGUSR1 again"
                ),
            }
        }
        batch.push(first);
        batch.extend(lines.try_iter().take(BATCH - 1));
        // An empty one only wakes this thread.
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

/// What was said of lines that were lost.
#[derive(Default)]
struct Losses {
    /// Lines lost when something was last said.
    told: u64,
    last: Option<Instant>,
    /// It was said that lines cannot be written.
    failing: bool,
}

impl Losses {
    fn note(&mut self, dropped: u64, error: Option<io::Error>, now: Instant) {
        let lost = dropped - self.told;
        let silent = self.last.is_some_and(|last| now.duration_since(last) < SILENCE);
        match error {
            None if self.failing => tracing::warn!("the access log is written again; {dropped} lines are lost so far"),
            None if lost > 0 && !silent => tracing::warn!(
                "the access log lost {lost} lines: its destination is slower than the responses, or could not be written for a moment"
            ),
            Some(ref error) if !silent => tracing::error!(
                "the access log cannot be written: {error}. Requests are served on, {dropped} lines are lost so far; it goes on when it can be written again"
            ),
            _ => return,
        }
        (self.told, self.last, self.failing) = (dropped, Some(now), error.is_some());
    }
}
