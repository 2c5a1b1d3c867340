//! The counters of a worker. Only the worker adds to them, so that counting costs a load and a store.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sealion_http::Protocol;
use sealion_tls::{Counts, Error, HandshakeError, HandshakeInfo, NoCertificate, Progress, Version};

use super::counter::{Counter, Histogram, Level};
use super::http3::Http3Metrics;
use super::served::{PerRoute, PerSite};
use super::streams::Http2Streams;
use super::top_paths::TopPaths;
use super::{RouteNumber, SiteNumber};
use crate::observe::access_log::CacheOutcome;
use crate::path::policy::PathReason;
use crate::values::{Mutex, labels};

/// All counters of one worker, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerMetrics {
    /// Responses by [`PathReason`]; the last counter is for responses that were lost before their path was chosen.
    pub responses: [Counter; PathReason::ALL.len() + 1],
    /// Bytes of these responses, including heads.
    pub response_bytes: [Counter; PathReason::ALL.len() + 1],
    /// Bytes of responses so far, including unfinished responses.
    pub progress: Progress,
    /// Responses by status minus 100.
    pub statuses: Statuses,
    /// Connections that are reading a request or sending a response.
    pub active: Level,
    /// Files found in the cache.
    pub cache_hits: Counter,
    /// Files not found in the cache.
    pub cache_misses: Counter,
    /// Requests looked up in the response cache, by [`CacheOutcome`].
    pub reused: [Counter; CacheOutcome::ALL.len()],
    /// Bytes of bodies sent for them.
    pub reused_bytes: [Counter; CacheOutcome::ALL.len()],
    /// Requests that shared another request's fetch.
    pub collapsed: Counter,
    /// Open connections in any state.
    pub open: Level,
    /// Connections in their handshake.
    pub handshaking: Level,
    /// Connections that are waiting for the client to close.
    pub lingering: Level,
    /// Accepted connections.
    pub accepted: Counter,
    /// Connections of the process before that went on here.
    pub taken_over: Counter,
    /// Idle connections closed to make room for new ones.
    pub evicted: Counter,
    /// Failures to accept a connection.
    pub accept_errors: Counter,
    /// Handshakes by suite: full, resumed.
    pub handshakes: [[Counter; 2]; SUITES.len() + 1],
    pub handshake_failures: [Counter; HandshakeFailure::ALL.len()],
    /// From accept to the end of the handshake.
    pub handshake_time: Histogram,
    /// Time to move a connection to kernel TLS.
    pub set_up_time: Histogram,
    /// Errors that ended established connections.
    pub errors: [Counter; ErrorKind::ALL.len()],
    /// Expired deadlines, by [`Deadline`].
    pub timeouts: [Counter; Deadline::ALL.len()],
    /// KeyUpdates: sent, received.
    pub key_updates: [Counter; 2],
    /// Alerts sent, by number.
    pub alerts_sent: Alerts,
    /// Alerts received, by number.
    pub alerts_received: Alerts,
    /// Files in the cache. Another thread also changes it when it drops a configuration.
    pub cache_entries: AtomicU64,
    /// Bytes of files in the cache; as above.
    pub cache_bytes: AtomicU64,
    pub http2: Http2Streams,
    /// Responses over HTTP/2 that had to wait for the client to open a window.
    pub http2_stalls: Counter,
    pub http3: Http3Metrics,
    pub top: Mutex<TopPaths>,
    /// From the end of a request's head to the last byte of the response, and bytes.
    pub sites: PerSite,
    pub routes: PerRoute,
}

/// A counter for each status.
#[derive(Debug)]
pub(crate) struct Statuses([Counter; 500]);

/// A counter for each alert.
#[derive(Debug)]
pub(crate) struct Alerts([Counter; 256]);

impl Default for Statuses {
    fn default() -> Self {
        Statuses(std::array::from_fn(|_| Counter::default()))
    }
}

impl Default for Alerts {
    fn default() -> Self {
        Alerts(std::array::from_fn(|_| Counter::default()))
    }
}

impl Statuses {
    #[inline]
    pub(crate) fn of(&self, code: u16) -> &Counter {
        &self.0[usize::from(code).saturating_sub(100).min(499)]
    }
}

impl Alerts {
    pub(crate) fn of(&self, alert: u8) -> &Counter {
        &self.0[usize::from(alert)]
    }
}

/// A response that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub status: u16,
    /// The reason for its path.
    pub why: Option<PathReason>,
    /// Bytes of head and body.
    pub bytes: u64,
    /// From the end of the request's head to the last byte.
    pub took: Duration,
    /// Time to move the connection to kernel TLS, if this response did.
    pub set_up: Option<Duration>,
    /// The site that served it.
    pub site: SiteNumber,
    /// The route that did, if the site has some.
    pub route: Option<RouteNumber>,
    pub protocol: Protocol,
}

impl WorkerMetrics {
    #[inline]
    pub(crate) fn sent(&self, sent: Sent) {
        let why = sent.why.map_or(PathReason::ALL.len(), |why| why as usize);
        self.responses[why].add(1);
        self.response_bytes[why].add(sent.bytes);
        self.statuses.of(sent.status).add(1);
        self.sites.sent(sent.site, sent.protocol, sent.status, sent.bytes, sent.took);
        if let Some(route) = sent.route {
            self.routes.sent(route, sent.status, sent.bytes, sent.took);
        }
        if let Some(took) = sent.set_up {
            self.set_up_time.observe(took);
        }
    }

    /// Counts a request for a path of a site, unless a scrape holds the list: a worker does not wait.
    #[inline]
    pub(crate) fn asked_for(&self, site: &str, path: &str, bytes: u64) {
        if let Some(mut top) = self.top.try_lock() {
            top.note(site, path, bytes);
        }
    }

    /// Counts a successful handshake.
    pub(crate) fn shook_hands(&self, info: &HandshakeInfo, took: Duration) {
        let suite = SUITES.iter().position(|(_, name)| *name == info.suite).unwrap_or(SUITES.len());
        self.handshakes[suite][usize::from(info.resumed)].add(1);
        self.handshake_time.observe(took);
    }

    pub(crate) fn handshake_failed(&self, failure: HandshakeFailure) {
        self.handshake_failures[failure as usize].add(1);
    }

    /// Counts the error that ended a connection.
    pub(crate) fn ended_by(&self, kind: ErrorKind) {
        self.errors[kind as usize].add(1);
        if kind == ErrorKind::Stalled {
            self.timed_out(Deadline::Stall);
        }
    }

    /// Counts the KeyUpdates and alerts of a closed connection.
    pub(crate) fn ended(&self, counts: &Counts) {
        self.key_updates[0].add(counts.key_updates_sent.into());
        self.key_updates[1].add(counts.key_updates_received.into());
        if let Some(alert) = counts.alert_sent {
            self.alerts_sent.of(alert.0).add(1);
        }
        if let Some(alert) = counts.alert_received {
            self.alerts_received.of(alert.0).add(1);
        }
    }

    /// Counts an expired deadline.
    pub(crate) fn timed_out(&self, deadline: Deadline) {
        self.timeouts[deadline as usize].add(1);
    }
}

/// The suites that can be negotiated, with their versions. All other suites count as `other`.
pub(crate) const SUITES: [(Version, &str); 9] = [
    (Version::Tls13, "TLS_AES_128_GCM_SHA256"),
    (Version::Tls13, "TLS_AES_256_GCM_SHA384"),
    (Version::Tls13, "TLS_CHACHA20_POLY1305_SHA256"),
    (Version::Tls12, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (Version::Tls12, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (Version::Tls12, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    (Version::Tls12, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (Version::Tls12, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (Version::Tls12, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];

labels! {
    /// The reason for a failed handshake.
    pub(crate) HandshakeFailure {
        /// The deadline passed.
        Timeout = "timeout",
        /// The client is at its connection limit.
        Refused = "refused",
        /// The client closed before it sent anything.
        Closed = "closed",
        /// The client closed during the handshake.
        Truncated = "truncated",
        /// The connection was lost.
        Io = "io",
        /// The client spoke plain HTTP.
        PlainHttp = "plain-http",
        /// The client spoke TLS to a listener without TLS.
        TlsToPlain = "tls-to-plain",
        /// The client sent an alert.
        PeerAlert = "peer-alert",
        /// The client's certificate was rejected or missing.
        ClientCertificate = "client-certificate",
        /// No certificate exists for the client's name.
        NoCertificate = "no-certificate",
        /// No certificate can currently be obtained for the client's name.
        CertificateUnavailable = "certificate-unavailable",
        /// No common parameters, or the client violated the protocol.
        Tls = "tls",
    }
}

labels! {
    /// The error that ended an established connection.
    pub(crate) ErrorKind {
        /// The peer reset it.
        Reset = "reset",
        /// Another transport failure.
        Io = "io",
        /// The kernel rejected an operation.
        Kernel = "kernel",
        /// The peer sent an alert.
        PeerAlert = "peer-alert",
        /// The peer sent a record that could not be decrypted.
        Record = "record",
        /// The peer violated the protocol.
        Protocol = "protocol",
        /// The peer closed without close_notify.
        Truncated = "truncated",
        /// A file shrank while it was being sent.
        FileShrank = "file-shrank",
        /// A file could not be read.
        File = "file",
        /// The source of a response body failed, or its length differed from the announced one.
        Source = "source",
        /// The key reached its limit of records.
        KeyExhausted = "key-exhausted",
        /// The peer read nothing within the stall timeout, or less than the minimum rate.
        Stalled = "stalled",
        /// A response was not finished.
        Unfinished = "unfinished",
    }
}

labels! {
    /// A deadline of a connection.
    pub(crate) Deadline {
        Handshake = "handshake",
        /// Receiving a request.
        Request = "request",
        /// Waiting for the next request.
        Idle = "idle",
        /// Waiting for a client that reads nothing, or too slowly.
        Stall = "stall",
    }
}

impl HandshakeFailure {
    /// The failure for an error.
    pub(crate) fn of(error: &HandshakeError) -> Self {
        match error {
            HandshakeError::Io(_) => Self::Io,
            HandshakeError::ClosedByPeer => Self::Closed,
            HandshakeError::Truncated => Self::Truncated,
            HandshakeError::PlainHttp => Self::PlainHttp,
            HandshakeError::PeerAlert(_) => Self::PeerAlert,
            HandshakeError::ClientCertificate(_) => Self::ClientCertificate,
            HandshakeError::NoCertificate { why: NoCertificate::NotAllowed, .. } => Self::NoCertificate,
            HandshakeError::NoCertificate { why: NoCertificate::Unavailable, .. } => Self::CertificateUnavailable,
            _ => Self::Tls,
        }
    }
}

impl ErrorKind {
    /// The kind of an error of a TLS connection.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Io(e) if e.kind() == std::io::ErrorKind::ConnectionReset => Self::Reset,
            Error::Io(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Self::Reset,
            Error::Io(_) => Self::Io,
            Error::Kernel(_) => Self::Kernel,
            Error::PeerAlert(_) => Self::PeerAlert,
            Error::Record(_) => Self::Record,
            Error::Protocol { .. } => Self::Protocol,
            Error::Truncated => Self::Truncated,
            Error::FileShrank { .. } => Self::FileShrank,
            Error::File(_) => Self::File,
            Error::KeyExhausted => Self::KeyExhausted,
            Error::Stalled(_) | Error::TooSlow { .. } => Self::Stalled,
            Error::Unfinished => Self::Unfinished,
        }
    }
}
