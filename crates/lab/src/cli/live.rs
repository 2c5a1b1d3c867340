//! The live view of a load: its rate and its failures, once a second.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::load::{self, LoadPlan, Outcome, Progress};

/// Runs the load as [`load::run`], and writes its state to standard error meanwhile: over one line of a terminal, or a line
/// each second.
pub(super) fn run(plan: &LoadPlan) -> Result<Outcome> {
    let progress = Arc::new(Progress::default());
    let (over, wait) = channel::<()>();
    // A thread of a scope may borrow it, and only this one waits.
    let wait = Mutex::new(wait);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wait = wait.lock().expect("no holder panics");
            let (mut last, mut at) = (0, Instant::now());
            while wait.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let (requests, now) = (progress.requests(), Instant::now());
                show(&line(requests, requests - last, now - at, progress.failures()), IN_PROGRESS);
                (last, at) = (requests, now);
            }
        });
        let outcome = load::run_watched(plan, &progress);
        drop(over);
        outcome
    })
    .inspect(|outcome| {
        let failures = outcome.failures.total();
        show(&line(outcome.requests, outcome.requests, outcome.elapsed, failures), AT_ITS_END);
    })
}

/// Whether a load shows itself without being asked to.
pub(super) fn is_wanted() -> bool {
    std::io::stderr().is_terminal()
}

/// `new` requests came in `time`.
fn line(requests: u64, new: u64, time: Duration, failures: u64) -> String {
    let rate = new as f64 / time.as_secs_f64().max(1e-9);
    format!("{requests} requests, {rate:.0} requests/s, {failures} failures")
}

/// A terminal keeps one line. A reader that has gone away is no error.
fn show(line: &str, end: &str) {
    let mut stream = std::io::stderr().lock();
    let _ = match stream.is_terminal() {
        true => write!(stream, "\r{line}\u{1b}[K{end}").and_then(|()| stream.flush()),
        false => writeln!(stream, "{line}"),
    };
}

const INTERVAL: Duration = Duration::from_secs(1);
const IN_PROGRESS: &str = "";
const AT_ITS_END: &str = "\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_new_requests() {
        assert_eq!(line(500, 100, Duration::from_millis(500), 2), "500 requests, 200 requests/s, 2 failures");
        assert_eq!(line(0, 0, Duration::ZERO, 0), "0 requests, 0 requests/s, 0 failures");
    }
}
