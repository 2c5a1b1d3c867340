//! A connection as a value, with which another process continues.

use sealion_http::multiplexed::Priority;
use serde::{Deserialize, Serialize};

use super::receive::Reader;
use super::{Connection, Drain, Kept};
use crate::hpack::{Decoder, DecoderRest};
use crate::request::Repeated;
use crate::schedule::Turns;
use crate::stream::{Receiving, Sending, State, Stream, StreamId};
use crate::windows::{ReceiveWindow, SendWindow};

/// A connection between two frames of its client, which waits for responses alone: [`Connection::to_rest`] makes it, [`Connection::resume`] continues with it. It has
/// no secrets beside fields of requests, which the client may repeat by their number in the table of HPACK.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rest {
    kept: Kept,
    decoder: DecoderRest,
    /// Sorted by number.
    streams: Vec<StreamRest>,
    turns: Turns,
}

/// A stream whose request is whole, and whose response has begun.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StreamRest {
    id: u32,
    priority: Priority,
    /// Bytes that are ready to be sent, and whether they are the last. `None`: END_STREAM is in a frame that was made.
    offered: Option<(u64, bool)>,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    sent: u64,
}

impl StreamRest {
    /// `None`: its request comes, its response has not begun, or it was reset.
    fn of(stream: &Stream) -> Option<Self> {
        let Stream { id, priority, state, send_window, receive_window, sent } = *stream;
        let offered = match state {
            State::Live { receiving: Receiving::Ended, sending: Sending::Content { offered, last } } => {
                Some((offered, last))
            }
            State::Live { receiving: Receiving::Ended, sending: Sending::Ended } => None,
            State::Live { .. } | State::Reset(_) => return None,
        };
        Some(StreamRest { id, priority, offered, send_window, receive_window, sent })
    }

    fn resume(self) -> Stream {
        let StreamRest { id, priority, offered, send_window, receive_window, sent } = self;
        let sending = match offered {
            Some((offered, last)) => Sending::Content { offered, last },
            None => Sending::Ended,
        };
        let state = State::Live { receiving: Receiving::Ended, sending };
        Stream { id, priority, state, send_window, receive_window, sent }
    }
}

impl Rest {
    /// Whether these are the streams of the connection, in any order.
    pub fn has_streams(&self, mut streams: Vec<StreamId>) -> bool {
        streams.sort_unstable();
        streams.into_iter().map(StreamId::get).eq(self.streams.iter().map(|stream| stream.id))
    }
}

impl Connection {
    /// Whether [`Self::to_rest`] makes a value, once the output that waits is written.
    pub fn can_rest(&self) -> bool {
        !self.reader.is_within_frame()
            && self.drain == Drain::No
            && self.settings_acknowledged
            && self.failed.is_none()
            && self.streams.iter().all(|stream| StreamRest::of(stream).is_some())
    }

    /// The connection as a value. `None`: a request, a frame or a header block is under way, a response has not begun, output waits, the connection ends, or its
    /// settings are not acknowledged.
    pub fn to_rest(&self) -> Option<Rest> {
        // Every field is named, so that none is forgotten. `can_rest` looks at those that are left out.
        let Self {
            kept,
            reader: _,
            decoder,
            // It only saves work.
            repeated: _,
            streams,
            control,
            turns,
            drain: _,
            settings_acknowledged: _,
            failed: _,
            resets,
        } = self;
        let is_at_rest = self.can_rest() && control.is_empty() && resets.is_none();
        is_at_rest.then(|| Rest {
            kept: kept.clone(),
            decoder: decoder.to_rest(),
            streams: streams.iter().filter_map(StreamRest::of).collect(),
            turns: *turns,
        })
    }

    /// Continues with a connection.
    pub fn resume(rest: Rest) -> Self {
        let Rest { kept, decoder, streams, turns } = rest;
        Connection {
            kept,
            reader: Reader::between_frames(),
            decoder: Decoder::resume(decoder),
            repeated: Repeated::default(),
            streams: streams.into_iter().map(StreamRest::resume).collect(),
            control: Vec::new(),
            turns,
            drain: Drain::No,
            settings_acknowledged: true,
            failed: None,
            resets: None,
        }
    }
}
