//! The outcome of a load as JSON.

use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::histogram;
use crate::load::{Failures, Outcome};

/// [`Outcome`] with histograms as text.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Counted {
    elapsed: Duration,
    attack: Duration,
    requests: u64,
    body_bytes: u64,
    handshakes: u64,
    resumed: u64,
    unanswered: u64,
    failures: [u64; 7],
    first_failure: Option<String>,
    /// In the order of [`histograms`].
    times: [String; 7],
    client_cpu: u64,
    body_sha256: Option<String>,
    suite: String,
}

fn histograms(outcome: &Outcome) -> [&Histogram<u64>; 7] {
    let Outcome { latency, lag, connect, handshake, first_byte, response, body_began, .. } = outcome;
    [latency, lag, connect, handshake, first_byte, response, body_began]
}

impl Counted {
    pub(super) fn new(outcome: &Outcome) -> Result<Self> {
        let Failures { connect, handshake, timeout, status, body, io, unsent, first } = outcome.failures.clone();
        let mut times: [String; 7] = Default::default();
        for (text, times) in times.iter_mut().zip(histograms(outcome)) {
            *text = histogram::encode(times)?;
        }
        Ok(Self {
            elapsed: outcome.elapsed,
            attack: outcome.attack,
            requests: outcome.requests,
            body_bytes: outcome.body_bytes,
            handshakes: outcome.handshakes,
            resumed: outcome.resumed,
            unanswered: outcome.unanswered,
            failures: [connect, handshake, timeout, status, body, io, unsent],
            first_failure: first,
            times,
            client_cpu: outcome.client_cpu,
            body_sha256: outcome.body_sha256.clone(),
            suite: outcome.suite.clone(),
        })
    }

    pub(super) fn outcome(self) -> Result<Outcome> {
        let [connect, handshake, timeout, status, body, io, unsent] = self.failures;
        let first = self.first_failure;
        let time = |index: usize| -> Result<Histogram<u64>> {
            Ok(histogram::decode(&self.times[index])?.unwrap_or_else(histogram::of_times))
        };
        Ok(Outcome {
            elapsed: self.elapsed,
            attack: self.attack,
            requests: self.requests,
            body_bytes: self.body_bytes,
            handshakes: self.handshakes,
            resumed: self.resumed,
            unanswered: self.unanswered,
            failures: Failures { connect, handshake, timeout, status, body, io, unsent, first },
            latency: time(0)?,
            lag: time(1)?,
            connect: time(2)?,
            handshake: time(3)?,
            first_byte: time(4)?,
            response: time(5)?,
            body_began: time(6)?,
            client_cpu: self.client_cpu,
            body_sha256: self.body_sha256,
            suite: self.suite,
        })
    }
}
