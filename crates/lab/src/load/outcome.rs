//! What clients saw.

use std::time::Duration;

use hdrhistogram::Histogram;

/// What a load's clients saw, failures included.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From the first request's start to the last one's end.
    pub elapsed: Duration,
    /// Responses that arrived whole and were right.
    pub requests: u64,
    /// Body bytes of those.
    pub body_bytes: u64,
    /// Handshakes that succeeded.
    pub handshakes: u64,
    /// Those of them that resumed a session.
    pub resumed: u64,
    /// What went wrong.
    pub failures: Failures,
    /// From a request's start (intended start in an open loop) to its last byte, ns. The first request of a connection starts
    /// with the connect. Requests that failed are not in it.
    pub latency: Histogram<u64>,
    /// TCP connect, ns.
    pub connect: Histogram<u64>,
    /// TLS handshake, ns.
    pub handshake: Histogram<u64>,
    /// From a request's last byte sent to the first data of the response, ns.
    pub first_byte: Histogram<u64>,
    /// CPU that the client's threads spent, ns.
    pub client_cpu: u64,
    /// SHA-256 of the body, in hexadecimal, as far as one was decrypted whole.
    pub body_sha256: Option<String>,
    /// Version and suite agreed on, e.g. `TLSv1.3 TLS_AES_128_GCM_SHA256`.
    pub suite: String,
}

/// Counts of what went wrong; each is a request or connection that [`Outcome::requests`] leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// Connections refused or reset before the handshake.
    pub connect: u64,
    /// Handshakes that failed.
    pub handshake: u64,
    /// Requests over the time limit.
    pub timeout: u64,
    /// Responses with a status other than 200.
    pub status: u64,
    /// Responses cut short, of a wrong length or content, or with a broken record.
    pub body: u64,
    /// Connections lost under a request for another reason.
    pub io: u64,
    /// Requests of an open loop that were due before the end, and for which no connection was free until then.
    pub unsent: u64,
    /// The first of them in words.
    pub first: Option<String>,
}

impl Failures {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.connect + self.handshake + self.timeout + self.status + self.body + self.io + self.unsent
    }
}
