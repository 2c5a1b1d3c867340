//! The counters of a server, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealion_http::Status;

use super::forward::Failure;
use crate::observe::metrics::{Durations, SharedHistogram};
use crate::values::labels;

labels! {
    /// Why a request to a server has no response.
    pub(crate) FailureKind {
        /// No connection, TLS included.
        Unreachable = "unreachable",
        /// No response in time.
        Timeout = "timeout",
        /// The response is incomplete, or not HTTP.
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
    /// From sending a request to the head of its response.
    times: SharedHistogram,
    /// Bytes of the contents of responses.
    received: AtomicU64,
    /// Bytes of these that passed by a pipe.
    piped: AtomicU64,
}

/// The values of a server's counters.
pub(crate) struct Counted {
    /// Responses by [`CLASSES`].
    pub(crate) answers: [u64; CLASSES.len()],
    /// Failures by [`FailureKind`].
    pub(crate) failures: [u64; FailureKind::ALL.len()],
    /// Connections that were opened, or tried to be.
    pub(crate) connections: u64,
    /// From sending a request to the head of its response.
    pub(crate) times: Durations,
    /// Bytes of the contents of responses.
    pub(crate) received: u64,
    /// Bytes of these that passed by a pipe.
    pub(crate) piped: u64,
}

impl Counts {
    /// `took`: the time from sending the request to the head of the response.
    pub(super) fn answered(&self, status: Status, took: Duration) {
        self.times.observe(took);
        let class = usize::from(status.code() / 100).saturating_sub(1);
        self.answers[class.min(CLASSES.len() - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, failure: &Failure) {
        self.failures[FailureKind::of(failure) as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of the content of a response came.
    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes of it came, and were moved into a pipe.
    pub(super) fn piped(&self, bytes: usize) {
        self.received(bytes);
        self.piped.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests so far that have a response, or failed.
    pub(super) fn requests(&self) -> u64 {
        self.answers.iter().chain(&self.failures).map(get).sum()
    }

    pub(super) fn read(&self) -> Counted {
        Counted {
            answers: self.answers.each_ref().map(get),
            failures: self.failures.each_ref().map(get),
            connections: get(&self.connections),
            times: self.times.get(),
            received: get(&self.received),
            piped: get(&self.piped),
        }
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
