//! Results of one thread's clients.

use std::time::Instant;

use hdrhistogram::Histogram;

use super::Failures;
use super::connection::{Answer, Opening};
use crate::histogram::{of_times, record};

pub(super) struct Tally {
    pub(super) first_start: Option<Instant>,
    pub(super) last_start: Option<Instant>,
    pub(super) last_end: Option<Instant>,
    pub(super) requests: u64,
    pub(super) body_bytes: u64,
    pub(super) handshakes: u64,
    pub(super) resumed: u64,
    /// Connections without a response so far, or that failed before one.
    pub(super) unanswered: u64,
    pub(super) failures: Failures,
    pub(super) latency: Histogram<u64>,
    pub(super) lag: Histogram<u64>,
    pub(super) connect: Histogram<u64>,
    pub(super) handshake: Histogram<u64>,
    pub(super) first_byte: Histogram<u64>,
    pub(super) response: Histogram<u64>,
    pub(super) body_began: Histogram<u64>,
    pub(super) started: u64,
    pub(super) cpu: u64,
    pub(super) suite: Option<String>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            first_start: None,
            last_start: None,
            last_end: None,
            requests: 0,
            body_bytes: 0,
            handshakes: 0,
            resumed: 0,
            unanswered: 0,
            failures: Failures::default(),
            latency: of_times(),
            lag: of_times(),
            connect: of_times(),
            handshake: of_times(),
            first_byte: of_times(),
            response: of_times(),
            body_began: of_times(),
            started: 0,
            cpu: 0,
            suite: None,
        }
    }

    pub(super) fn opened(&mut self, opening: Opening) {
        self.handshakes += 1;
        self.unanswered += 1;
        self.resumed += u64::from(opening.resumed);
        if let Some(connected) = opening.connected {
            record(&mut self.connect, connected - opening.begun);
        }
        record(&mut self.handshake, opening.established - opening.connected.unwrap_or(opening.begun));
        self.suite.get_or_insert(opening.suite);
    }

    /// Counts the first response on a connection.
    pub(super) fn first_answer(&mut self) {
        self.unanswered -= 1;
    }

    /// Counts a response, whose request had the intended start `due`.
    pub(super) fn answered(&mut self, due: Instant, answer: &Answer) {
        self.requests += 1;
        self.body_bytes += answer.done.body;
        record(&mut self.latency, answer.ended - due);
        record(&mut self.first_byte, answer.begun - answer.sent);
        record(&mut self.response, answer.ended - answer.sent);
        if let Some(began) = answer.body_began {
            record(&mut self.body_began, began - due);
        }
    }

    /// Records the time of a request, successful or not.
    pub(super) fn lasted(&mut self, started: Instant, ended: Instant) {
        self.first_start = Some(self.first_start.map_or(started, |first| first.min(started)));
        self.last_start = Some(self.last_start.map_or(started, |last| last.max(started)));
        self.last_end = Some(self.last_end.map_or(ended, |last| last.max(ended)));
    }

    pub(super) fn add(&mut self, other: Self) {
        for start in [other.first_start, other.last_start].into_iter().flatten() {
            self.lasted(start, other.last_end.unwrap_or(start));
        }
        self.requests += other.requests;
        self.body_bytes += other.body_bytes;
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
        self.unanswered += other.unanswered;
        self.failures.add(other.failures);
        for (sum, part) in [
            (&mut self.latency, &other.latency),
            (&mut self.lag, &other.lag),
            (&mut self.connect, &other.connect),
            (&mut self.handshake, &other.handshake),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.response, &other.response),
            (&mut self.body_began, &other.body_began),
        ] {
            sum.add(part).expect("histograms of one range");
        }
        self.started += other.started;
        self.cpu += other.cpu;
        if self.suite.is_none() {
            self.suite = other.suite;
        }
    }
}
