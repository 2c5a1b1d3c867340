//! A worker's counters of HTTP/3 and of QUIC below it.

use super::counter::{Counter, Level};
use super::streams::Http3Streams;

/// Events on a worker's HTTP/3 connections.
#[derive(Debug, Default)]
pub(crate) struct Http3Metrics {
    /// Open connections, which the worker's connections include.
    pub(crate) open: Level,
    /// Handshakes that succeeded, which the worker's handshakes include.
    pub(crate) handshakes: Counter,
    /// Responses that were sent, whole or in part.
    pub(crate) responses: Counter,
    /// Datagrams: received, sent.
    pub(crate) datagrams: [Counter; DIRECTIONS.len()],
    /// Bytes of their payloads.
    pub(crate) bytes: [Counter; DIRECTIONS.len()],
    /// Bytes of packets deemed lost, which are sent again.
    pub(crate) lost_bytes: Counter,
    /// Retry packets sent.
    pub(crate) retries: Counter,
    pub(crate) streams: Http3Streams,
}

/// The directions of datagrams, in the order of their counters.
pub(crate) const DIRECTIONS: [&str; 2] = ["received", "sent"];

impl Http3Metrics {
    pub(crate) fn received(&self, datagrams: u64, bytes: u64) {
        self.datagrams[0].add(datagrams);
        self.bytes[0].add(bytes);
    }

    pub(crate) fn sent(&self, datagrams: u64, bytes: u64) {
        self.datagrams[1].add(datagrams);
        self.bytes[1].add(bytes);
    }
}
