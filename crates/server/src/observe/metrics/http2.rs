//! A worker's counters of HTTP/2.

use sealion_h2::{By, ErrorCode, Flood, Resets};

use super::counter::Counter;
use crate::values::labels;

/// Events on a worker's HTTP/2 connections.
#[derive(Debug, Default)]
pub(crate) struct Http2Metrics {
    streams: [Counter; StreamResult::ALL.len()],
    resets: [ByCode; SIDES.len()],
    /// Responses that had to wait for the client to open a window.
    pub(crate) stalls: Counter,
    floods: [Counter; Flood::ALL.len()],
}

/// A counter for each registered code, and one for all other codes.
type ByCode = [Counter; ErrorCode::REGISTERED.len() + 1];

labels! {
    /// The fate of a stream that a client opened.
    pub(crate) StreamResult {
        /// Its request was accepted.
        Accepted = "accepted",
        /// It was refused, because too many are open or the connection drains.
        Refused = "refused",
        /// Its request was malformed, and it was reset before it occupied a slot.
        Malformed = "malformed",
    }
}

/// The sides that send RST_STREAM.
const SIDES: [(By, &str); 2] = [(By::Client, "client"), (By::Server, "server")];

impl Http2Metrics {
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
