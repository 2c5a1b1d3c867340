//! Streams and their states (RFC 9114 §4.1 and §6).
//!
//! ```text
//!           open                HEADERS            both sides ended
//!   (none) ──────► Live, Head ──────────► Live ───────────────────────► (released)
//!                    │                      │ cancelled by either side        ▲
//!                    ▼                      ▼                                 │ release: the driver's work has ended
//!                 (removed)               Reset ──────────────────────────────┘
//! ```
//!
//! A request keeps its slot until the driver releases it, so that cancellations do not make room for more work
//! (CVE-2023-44487, CVE-2025-8671).

use sealion_http::multiplexed::{By, Priority};

use crate::frame::HeadReader;

/// The identifier of a stream of QUIC (RFC 9000 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u64);

impl StreamId {
    /// The stream of this number, which the transport gives.
    pub const fn new(number: u64) -> Self {
        StreamId(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether the client opened the stream for a request: it is bidirectional.
    pub const fn is_request(self) -> bool {
        self.0 & 3 == 0
    }

    /// Whether the server opened the stream.
    pub const fn is_own(self) -> bool {
        self.0 & 1 == 1
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A request stream that has a slot.
#[derive(Debug)]
pub(crate) struct RequestStream {
    pub(crate) id: StreamId,
    pub(crate) state: State,
    pub(crate) reader: RequestReader,
    /// `None`: the client has not told it, by PRIORITY_UPDATE or by the request.
    pub(crate) priority: Option<Priority>,
    /// The level that the transport knows.
    pub(crate) level: i32,
    /// The rest of the response is short.
    pub(crate) is_short: bool,
}

/// The state of a stream that has a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Neither side cancelled.
    Live {
        /// The frames that the client may still send.
        receiving: Receiving,
        /// The frames that the server may still send.
        sending: Sending,
    },
    /// One side cancelled.
    Reset(By),
}

/// The client's side of a request stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// HEADERS.
    Head,
    /// DATA, or trailers. `left` bytes of content are missing, if content-length was sent. `tunnel`: CONNECT, which has
    /// no trailers.
    Content { left: Option<u64>, tunnel: bool },
    /// Trailers were read: only unknown frames may follow.
    Trailers,
    /// The stream ended.
    Ended,
}

/// The server's side of a request stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// No final response yet.
    Head,
    /// The head is written. `left` bytes of the current DATA frame are missing; if `last`, no frame follows.
    Content { left: u64, last: bool },
    /// All of the response was given to the transport.
    Ended,
}

/// The part of the current frame of a request stream that was read.
#[derive(Debug, Default)]
pub(crate) struct RequestReader {
    pub(crate) state: Reading,
    pub(crate) head: HeadReader,
    /// The beginning of a field section that arrived in pieces.
    pub(crate) block: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Between frames, or within the beginning of one.
    #[default]
    Head,
    /// Within HEADERS; `left` bytes are missing.
    Headers { left: usize },
    /// Within DATA; `left` bytes are missing.
    Data { left: u64 },
    /// A frame that is ignored.
    Skip { left: u64 },
}

impl RequestStream {
    pub(crate) fn new(id: StreamId) -> Self {
        RequestStream {
            id,
            state: State::Live { receiving: Receiving::Head, sending: Sending::Head },
            reader: RequestReader::default(),
            priority: None,
            level: 0,
            is_short: false,
        }
    }

    pub(crate) fn receiving(&self) -> Option<Receiving> {
        match self.state {
            State::Live { receiving, .. } => Some(receiving),
            State::Reset(_) => None,
        }
    }

    pub(crate) fn set_receiving(&mut self, new: Receiving) {
        if let State::Live { receiving, .. } = &mut self.state {
            *receiving = new;
        }
    }

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

    /// Whether the driver knows the stream.
    pub(crate) fn has_request(&self) -> bool {
        self.receiving() != Some(Receiving::Head)
    }

    /// The end of the stream within a frame is an error (RFC 9114 §7.1).
    pub(crate) fn is_within_frame(&self) -> bool {
        self.reader.state != Reading::Head || self.reader.head.is_within()
    }
}
