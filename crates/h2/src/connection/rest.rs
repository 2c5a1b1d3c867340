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

/// A connection between two frames of its client: [`Connection::to_rest`] makes it, [`Connection::resume`] continues with it. It has
/// no secrets beside fields of requests, which the client may repeat by their number in the table of HPACK.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rest {
    kept: Kept,
    decoder: DecoderRest,
    /// Sorted by number.
    streams: Vec<StreamRest>,
    turns: Turns,
}

/// A stream that was not reset.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StreamRest {
    id: u32,
    priority: Priority,
    receiving: Receiving,
    sending: Sending,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    sent: u64,
}

impl StreamRest {
    /// `None`: it was reset.
    fn of(stream: &Stream) -> Option<Self> {
        let Stream { id, priority, state, send_window, receive_window, sent } = *stream;
        let State::Live { receiving, sending } = state else { return None };
        Some(StreamRest { id, priority, receiving, sending, send_window, receive_window, sent })
    }

    fn resume(self) -> Stream {
        let StreamRest { id, priority, receiving, sending, send_window, receive_window, sent } = self;
        Stream { id, priority, state: State::Live { receiving, sending }, send_window, receive_window, sent }
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

    /// The connection as a value. `None`: a frame or a header block is under way, a stream was reset, output waits, the connection ends, or its settings
    /// are not acknowledged.
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
