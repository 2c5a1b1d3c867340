//! What is counted of a server, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use sealion_http::Status;

use super::forward::Failure;
use crate::values::labels;

labels! {
    /// Why a request to a server has no answer.
    pub(crate) FailureKind {
        /// No connection, TLS included.
        Unreachable = "unreachable",
        /// No answer in time.
        Timeout = "timeout",
        /// The answer is incomplete, or no HTTP.
        Broken = "broken",
        /// The server has as many requests as it may have, and as many wait.
        Busy = "busy",
        /// The client left, or did not send all of its request.
        Client = "client",
    }
}

impl FailureKind {
    fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Unreachable(_) => FailureKind::Unreachable,
            Failure::Timeout(_) => FailureKind::Timeout,
            Failure::Broken(_) => FailureKind::Broken,
            Failure::Busy(_) => FailureKind::Busy,
            Failure::Client(_) => FailureKind::Client,
        }
    }
}

/// Classes of status: 1xx to 5xx.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Counters of a server, of all workers.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By [`CLASSES`].
    answers: [AtomicU64; CLASSES.len()],
    /// By [`FailureKind`].
    failures: [AtomicU64; FailureKind::ALL.len()],
    connections: AtomicU64,
}

impl Counts {
    pub(super) fn answered(&self, status: Status) {
        let class = usize::from(status.code() / 100).saturating_sub(1);
        self.answers[class.min(CLASSES.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, failure: &Failure) {
        self.failures[FailureKind::of(failure) as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests so far that have an answer, or failed.
    pub(super) fn requests(&self) -> u64 {
        self.answers.iter().chain(&self.failures).map(get).sum()
    }

    pub(super) fn read(&self) -> ([u64; CLASSES.len()], [u64; FailureKind::ALL.len()], u64) {
        (self.answers.each_ref().map(get), self.failures.each_ref().map(get), get(&self.connections))
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
