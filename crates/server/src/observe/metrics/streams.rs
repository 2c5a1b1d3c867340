//! A worker's counters of streams, over HTTP/2 or HTTP/3.

use std::array::from_fn;

use sealion_http::multiplexed::{By, Resets};

use super::counter::Counter;
use crate::values::labels;

/// Events on the streams of a protocol. `CODES`: its registered error codes, and one counter for all other codes. `FLOODS`: its limits against abuse.
#[derive(Debug)]
pub(crate) struct StreamMetrics<const CODES: usize, const FLOODS: usize> {
    pub(crate) streams: [Counter; StreamResult::ALL.len()],
    /// By side and code.
    pub(crate) resets: [[Counter; CODES]; SIDES.len()],
    pub(crate) floods: [Counter; FLOODS],
}

/// Streams of HTTP/2.
pub(crate) type Http2Streams =
    StreamMetrics<{ sealion_h2::ErrorCode::REGISTERED.len() + 1 }, { sealion_h2::Flood::ALL.len() }>;

/// Streams of HTTP/3.
pub(crate) type Http3Streams =
    StreamMetrics<{ sealion_h3::ErrorCode::REGISTERED.len() + 1 }, { sealion_h3::Flood::ALL.len() }>;

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

/// The sides that reset streams.
pub(crate) const SIDES: [(By, &str); 2] = [(By::Client, "client"), (By::Server, "server")];

impl<const CODES: usize, const FLOODS: usize> Default for StreamMetrics<CODES, FLOODS> {
    fn default() -> Self {
        let resets = from_fn(|_| from_fn(|_| Counter::default()));
        StreamMetrics { streams: Default::default(), resets, floods: from_fn(|_| Counter::default()) }
    }
}

impl<const CODES: usize, const FLOODS: usize> StreamMetrics<CODES, FLOODS> {
    pub(crate) fn opened(&self, result: StreamResult) {
        self.streams[result as usize].add(1);
    }

    pub(crate) fn reset(&self, resets: &Resets<CODES>) {
        for ((by, _), counters) in SIDES.into_iter().zip(&self.resets) {
            for (counter, count) in counters.iter().zip(resets.by(by)).filter(|(_, count)| **count > 0) {
                counter.add((*count).into());
            }
        }
    }

    /// `flood`: the place of the limit among all of the protocol.
    pub(crate) fn flooded(&self, flood: usize) {
        self.floods[flood].add(1);
    }
}
