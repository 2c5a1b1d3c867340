//! A connection without streams as a value, with which another process continues.

use serde::{Deserialize, Serialize};

use super::receive::Reader;
use super::{Connection, Drain, Kept};
use crate::hpack::{Decoder, DecoderRest};
use crate::schedule::Turns;

/// A connection between two requests: [`Connection::to_rest`] makes it, [`Connection::resume`] continues with it. It has no secrets beside fields of requests, which
/// the client may repeat by their number in the table of HPACK.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rest {
    kept: Kept,
    decoder: DecoderRest,
}

impl Connection {
    /// The connection as a value. `None`: it has a stream, a frame or a header block under way, has output that waits, ends, or its settings are not acknowledged.
    pub fn to_rest(&self) -> Option<Rest> {
        // Every field is named, so that none is forgotten. Only a stream that is open has a turn.
        let Self { kept, reader, decoder, streams, control, turns: _, drain, settings_acknowledged, failed, resets } =
            self;
        let is_at_rest = streams.is_empty()
            && control.is_empty()
            && !reader.is_within_frame()
            && *drain == Drain::No
            && *settings_acknowledged
            && failed.is_none()
            && resets.is_none();
        is_at_rest.then(|| Rest { kept: kept.clone(), decoder: decoder.to_rest() })
    }

    /// Continues with a connection.
    pub fn resume(rest: Rest) -> Self {
        Connection {
            kept: rest.kept,
            reader: Reader::between_frames(),
            decoder: Decoder::resume(rest.decoder),
            streams: Vec::new(),
            control: Vec::new(),
            turns: Turns::default(),
            drain: Drain::No,
            settings_acknowledged: true,
            failed: None,
            resets: None,
        }
    }
}
