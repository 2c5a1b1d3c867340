//! Streams and their states (RFC 9113 §5.1).
//!
//! ```text
//!            HEADERS                       both sides ended
//!   idle ─────────────► Live { receiving, sending } ──────────► (released) closed
//!                         │ RST_STREAM of either side                ▲
//!                         ▼                                          │ release: the driver's work has ended
//!                       Reset ───────────────────────────────────────┘
//! ```
//!
//! A stream keeps its slot until the driver releases it, so that resets do not make room for more work (CVE-2023-44487,
//! CVE-2025-8671). Streams without a slot are idle or closed; the stream's number shows which.

use sealion_http::multiplexed::{By, Priority};
use serde::{Deserialize, Serialize};

use crate::windows::{ReceiveWindow, SendWindow};

/// The identifier of a stream that the client opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// The number: odd, at least 1.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A stream that has not been released.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) priority: Priority,
    pub(crate) state: State,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// Bytes of content in the frames made so far.
    pub(crate) sent: u64,
}

/// The state of a stream that has a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Open, half closed, or closed by END_STREAM on both sides.
    Live {
        /// The frames that the client may still send.
        receiving: Receiving,
        /// The frames that the server may still send.
        sending: Sending,
    },
    /// Closed by RST_STREAM.
    Reset(By),
}

/// The client's side of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Receiving {
    /// DATA, or trailers. `left` bytes of content are missing, if content-length was sent.
    Content { left: Option<u64> },
    /// The client sent END_STREAM.
    Ended,
}

/// The server's side of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sending {
    /// No final response yet.
    Head,
    /// The head is written. `offered` bytes are ready to be sent; if `last`, none follow.
    Content { offered: u64, last: bool },
    /// The server sent END_STREAM.
    Ended,
}

impl Stream {
    pub(crate) fn sending(&self) -> Option<Sending> {
        match self.state {
            State::Live { sending, .. } => Some(sending),
            State::Reset(_) => None,
        }
    }

    pub(crate) fn set_sending(&mut self, new: Sending) {
        if let State::Live { sending, .. } = &mut self.state {
            *sending = new;
        }
    }

    /// The bytes of content that are ready, and whether they are the last. `None`: nothing to send.
    pub(crate) fn ready(&self) -> Option<(u64, bool)> {
        match self.state {
            State::Live { sending: Sending::Content { offered, last }, .. } if offered > 0 || last => {
                Some((offered, last))
            }
            _ => None,
        }
    }

    /// Whether content may still arrive.
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.state, State::Live { receiving: Receiving::Content { .. }, .. })
    }
}

/// How a stream without a slot was closed, while it is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// By END_STREAM on both sides: any further frame is a connection error.
    Ended,
    /// By RST_STREAM of the client or of the server. Frames may still be in flight after the server's.
    Reset(By),
}

/// The most recently closed streams. Older streams are forgotten and treated as reset by the server: a client that
/// sends on them may not have read the reset yet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RecentlyClosed {
    streams: [u32; REMEMBERED],
    how: [u8; REMEMBERED],
    next: u8,
    /// The highest stream that was forgotten.
    forgotten: u32,
}

/// The number of streams to remember, as frames may be in flight on a stream that was just reset.
const REMEMBERED: usize = 16;

impl RecentlyClosed {
    pub(crate) fn remember(&mut self, stream: u32, how: Closed) {
        let at = usize::from(self.next) % REMEMBERED;
        self.forgotten = self.forgotten.max(self.streams[at]);
        self.streams[at] = stream;
        self.how[at] = match how {
            Closed::Ended => 0,
            Closed::Reset(By::Client) => 1,
            Closed::Reset(By::Server) => 2,
        };
        self.next = self.next.wrapping_add(1);
    }

    /// How a stream was closed that has no slot and is below the highest. `None`: the client skipped this number and
    /// opened a higher one.
    pub(crate) fn get(&self, stream: u32) -> Option<Closed> {
        match self.streams.iter().position(|closed| *closed == stream).map(|at| self.how[at]) {
            Some(0) => Some(Closed::Ended),
            Some(1) => Some(Closed::Reset(By::Client)),
            Some(_) => Some(Closed::Reset(By::Server)),
            None => (stream <= self.forgotten).then_some(Closed::Reset(By::Server)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_streams_are_remembered_and_others_taken_for_reset() {
        let mut closed = RecentlyClosed::default();
        assert_eq!(closed.get(1), None);
        for stream in 1..300 {
            let how = if stream % 2 == 0 { Closed::Ended } else { Closed::Reset(By::Server) };
            closed.remember(stream, how);
            assert_eq!(closed.get(stream), Some(how));
            assert!(stream <= 16 || closed.get(stream - 16) == Some(Closed::Reset(By::Server)));
        }
        closed.remember(301, Closed::Reset(By::Client));
        assert_eq!(closed.get(301), Some(Closed::Reset(By::Client)));
        assert_eq!(closed.get(300), None, "it was skipped");
    }
}
