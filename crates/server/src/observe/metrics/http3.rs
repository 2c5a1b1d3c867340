//! A worker's counters of HTTP/3 and of QUIC below it.

use sealion_h3::{By, ErrorCode, Flood, Resets};

use super::counter::{Counter, Level};
use super::http2::StreamResult;

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
    streams: [Counter; StreamResult::ALL.len()],
    resets: [[Counter; ErrorCode::REGISTERED.len() + 1]; SIDES.len()],
    floods: [Counter; Flood::ALL.len()],
}

/// The directions of datagrams, in the order of their counters.
pub(crate) const DIRECTIONS: [&str; 2] = ["received", "sent"];

/// The sides that cancel requests.
const SIDES: [(By, &str); 2] = [(By::Client, "client"), (By::Server, "server")];

impl Http3Metrics {
    pub(crate) fn received(&self, datagrams: u64, bytes: u64) {
        self.datagrams[0].add(datagrams);
        self.bytes[0].add(bytes);
    }

    pub(crate) fn sent(&self, datagrams: u64, bytes: u64) {
        self.datagrams[1].add(datagrams);
        self.bytes[1].add(bytes);
    }

    pub(crate) fn opened(&self, result: StreamResult) {
        self.streams[result as usize].add(1);
    }

    pub(crate) fn reset(&self, resets: &Resets) {
        for ((by, _), counters) in SIDES.into_iter().zip(&self.resets) {
            for (counter, count) in counters.iter().zip(resets.by(by)).filter(|(_, count)| **count > 0) {
                counter.add((*count).into());
            }
        }
    }

    pub(crate) fn flooded(&self, flood: Flood) {
        self.floods[flood as usize].add(1);
    }

    pub(crate) fn streams(&self, result: StreamResult) -> &Counter {
        &self.streams[result as usize]
    }

    /// The labels of all reset counters: side, code, and the indexes for [`Self::resets`].
    pub(crate) fn reset_labels() -> impl Iterator<Item = (&'static str, &'static str, (usize, usize))> {
        SIDES.into_iter().enumerate().flat_map(|(side, (_, label))| {
            let names = ErrorCode::REGISTERED.iter().map(|code| code.name().unwrap_or("other")).chain(["other"]);
            names.enumerate().map(move |(code, name)| (label, name, (side, code)))
        })
    }

    pub(crate) fn resets(&self, (side, code): (usize, usize)) -> &Counter {
        &self.resets[side][code]
    }

    pub(crate) fn floods(&self, flood: Flood) -> &Counter {
        &self.floods[flood as usize]
    }
}
