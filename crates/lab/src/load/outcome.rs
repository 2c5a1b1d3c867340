//! The outcome of a load: counts, latencies, failures.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The results of all clients of a load, including failures.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From the first request's start to the last one's end.
    pub elapsed: Duration,
    /// From the first request's start to the last one's start. vegeta divides by this for its rate.
    pub attack: Duration,
    /// Complete and correct responses.
    pub requests: u64,
    /// Body bytes of these responses.
    pub body_bytes: u64,
    /// Handshakes that succeeded, including resumed ones.
    pub handshakes: u64,
    /// Resumed handshakes among them.
    pub resumed: u64,
    /// Connections that failed after the handshake and before their first response.
    pub unanswered: u64,
    /// Failed requests and connections, by kind.
    pub failures: Failures,
    /// From a request's start (intended start in an open loop) to its last byte, ns. The first request of a connection
    /// starts with the connect. Failed requests are left out.
    pub latency: Histogram<u64>,
    /// In an open loop: from a request's intended start until its thread noticed it, ns, whether a connection was free or
    /// not. This is the client's own delay.
    pub lag: Histogram<u64>,
    /// Durations of TCP connects, ns.
    pub connect: Histogram<u64>,
    /// Durations of TLS handshakes, ns.
    pub handshake: Histogram<u64>,
    /// From a request's last byte sent to the first data of the response, ns.
    pub first_byte: Histogram<u64>,
    /// From a request's last byte sent to the response's last byte, ns: as `latency`, without connect and handshake.
    pub response: Histogram<u64>,
    /// From a request's start, as in `latency`, to the first body byte that is opened, ns.
    pub body_began: Histogram<u64>,
    /// CPU that the client's threads spent, ns.
    pub client_cpu: u64,
    /// The SHA-256 of the body in hexadecimal, if a whole body was decrypted.
    pub body_sha256: Option<String>,
    /// Version and suite agreed on, e.g. `TLSv1.3 TLS_AES_128_GCM_SHA256`.
    pub suite: String,
}

/// Failed requests and connections by kind. [`Outcome::requests`] leaves them out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// Connections refused or reset before the handshake.
    pub connect: u64,
    /// Handshakes that ended in an alert, a wrong certificate or a lost connection.
    pub handshake: u64,
    /// Requests over the time limit.
    pub timeout: u64,
    /// Responses with a status other than 200.
    pub status: u64,
    /// Responses that were cut short, had a wrong length or content, or a malformed record.
    pub body: u64,
    /// Connections lost during a request for another reason.
    pub io: u64,
    /// Requests of an open loop that were due, but found no free connection before the end.
    pub unsent: u64,
    /// A description of the first failure.
    pub first: Option<String>,
}

impl Failures {
    /// The sum over all kinds.
    pub fn total(&self) -> u64 {
        self.connect + self.handshake + self.timeout + self.status + self.body + self.io + self.unsent
    }
}
