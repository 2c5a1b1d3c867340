//! A connection without streams as a value, with which another process continues.

use sealion_http::multiplexed::Priority;
use serde::{Deserialize, Serialize};

use super::receive::Reader;
use super::{Connection, Drain};
use crate::abuse::Abuse;
use crate::hpack::{Decoder, DecoderRest};
use crate::request::Repeated;
use crate::schedule::Turns;
use crate::settings::{Limits, PeerSettings};
use crate::stream::RecentlyClosed;
use crate::windows::{BandwidthDelay, ReceiveWindow, SendWindow};

/// A connection between two requests: [`Connection::to_rest`] makes it, [`Connection::resume`] continues with it. It has no secrets beside fields of requests, which
/// the client may repeat by their number in the table of HPACK.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rest {
    /// As announced to the client.
    limits: Limits,
    decoder: DecoderRest,
    peer: PeerSettings,
    closed: RecentlyClosed,
    highest: u32,
    early_priorities: Vec<(u32, Priority)>,
    send_window: SendWindow,
    sent: u64,
    receive_window: ReceiveWindow,
    window_target: u32,
    permitted_window: u32,
    bandwidth_delay: BandwidthDelay,
    abuse: Abuse,
    first_block: bool,
}

impl Connection {
    /// The connection as a value. `None`: it has a stream, a frame or a header block under way, has output that waits, ends, or its settings are not acknowledged.
    pub fn to_rest(&self) -> Option<Rest> {
        // Every field is named, so that none is forgotten.
        let Self {
            limits,
            reader,
            decoder,
            // It only saves work.
            repeated: _,
            peer,
            streams,
            closed,
            highest,
            early_priorities,
            control,
            send_window,
            sent,
            receive_window,
            window_target,
            permitted_window,
            bandwidth_delay,
            // Only a stream that is open has a turn.
            turns: _,
            abuse,
            drain,
            first_block,
            settings_acknowledged,
            failed,
            resets,
        } = self;
        let is_at_rest = streams.is_empty()
            && control.is_empty()
            && !reader.is_within_frame()
            && *drain == Drain::No
            && *settings_acknowledged
            && failed.is_none()
            && resets.is_none();
        is_at_rest.then(|| Rest {
            limits: limits.clone(),
            decoder: decoder.to_rest(),
            peer: *peer,
            closed: closed.clone(),
            highest: *highest,
            early_priorities: early_priorities.clone(),
            send_window: *send_window,
            sent: *sent,
            receive_window: *receive_window,
            window_target: *window_target,
            permitted_window: *permitted_window,
            bandwidth_delay: bandwidth_delay.clone(),
            abuse: abuse.clone(),
            first_block: *first_block,
        })
    }

    /// Continues with a connection.
    pub fn resume(rest: Rest) -> Self {
        let Rest {
            limits,
            decoder,
            peer,
            closed,
            highest,
            early_priorities,
            send_window,
            sent,
            receive_window,
            window_target,
            permitted_window,
            bandwidth_delay,
            abuse,
            first_block,
        } = rest;
        Connection {
            limits,
            reader: Reader::between_frames(),
            decoder: Decoder::resume(decoder),
            repeated: Repeated::default(),
            peer,
            streams: Vec::new(),
            closed,
            highest,
            early_priorities,
            control: Vec::new(),
            send_window,
            sent,
            receive_window,
            window_target,
            permitted_window,
            bandwidth_delay,
            turns: Turns::default(),
            abuse,
            drain: Drain::No,
            first_block,
            settings_acknowledged: true,
            failed: None,
            resets: None,
        }
    }
}
