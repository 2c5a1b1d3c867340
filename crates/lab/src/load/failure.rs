//! A failure, and the counts of failures.

use std::io;

use super::Failures;

/// A failed request or connection: its kind in [`Failures`], and a description, which is kept for the first failure of
/// a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    pub(super) words: String,
}

/// The counts of [`Failures`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Connect,
    Handshake,
    Timeout,
    Status,
    Body,
    Io,
}

impl Failure {
    pub(super) fn new(kind: Kind, words: impl ToString) -> Self {
        Self { kind, words: words.to_string() }
    }

    /// An I/O error during a request or handshake.
    pub(super) fn io(kind: Kind, doing: &str, error: &io::Error) -> Self {
        Self { kind, words: format!("{doing}: {error}") }
    }
}

impl Failures {
    pub(super) fn count(&mut self, failure: Failure) {
        *match failure.kind {
            Kind::Connect => &mut self.connect,
            Kind::Handshake => &mut self.handshake,
            Kind::Timeout => &mut self.timeout,
            Kind::Status => &mut self.status,
            Kind::Body => &mut self.body,
            Kind::Io => &mut self.io,
        } += 1;
        self.first.get_or_insert(failure.words);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.connect += other.connect;
        self.handshake += other.handshake;
        self.timeout += other.timeout;
        self.status += other.status;
        self.body += other.body;
        self.io += other.io;
        self.unsent += other.unsent;
        if self.first.is_none() {
            self.first = other.first;
        }
    }
}
