//! The counters of HTTP/2 of a worker.

use sealion_h2::{By, ErrorCode, Flood, Resets};

use super::counter::Counter;
use crate::values::labels;

/// What happened on the connections of HTTP/2 of a worker.
#[derive(Debug, Default)]
pub(crate) struct Http2Metrics {
    streams: [Counter; StreamResult::ALL.len()],
    resets: [ByCode; SIDES.len()],
    /// Waits of responses for the client to open a window.
    pub(crate) stalls: Counter,
    floods: [Counter; Flood::ALL.len()],
}

/// A counter for each registered code, and one for all others.
type ByCode = [Counter; ErrorCode::REGISTERED.len() + 1];

labels! {
    /// What became of a stream that a client opened.
    pub(crate) StreamResult {
        /// Its request is answered.
        Accepted = "accepted",
        /// It was refused: too many are open, or the connection drains.
        Refused = "refused",
        /// Its request was malformed, and it was reset before it took a slot.
        Malformed = "malformed",
    }
}

/// Who sends RST_STREAM.
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

    /// All counters of resets: the side that sends them, the code, and the place for [`Self::resets`].
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
