//! The order of DATA frames (RFC 9218 §10).
//!
//! - A lower urgency goes first.
//! - Within an urgency, responses that are not incremental go one after another in the order of their requests. The
//!   first of them and all incremental responses take turns of [`TURN`] bytes.
//! - Responses that end within one frame go before any turn: they delay others only briefly, but would wait long
//!   themselves.

use serde::{Deserialize, Serialize};

use crate::frame::{HEADER_LEN, RECORD_PAYLOAD};
use crate::stream::Stream;
use crate::windows::{SendWindow, Window};

/// The number of bytes that a stream sends before the next stream of its urgency: four records, so that one read of a
/// file fills several.
///
/// A smaller turn costs more reads, and a larger one adds delay: this one takes 52 ms at 10 Mbit/s.
const TURN: u32 = 4 * RECORD_PAYLOAD as u32;

/// A window that was used up counts as open from this size on: small frames cost both sides more than they carry. Half
/// of the initial window also suffices (as in RFC 1122 §4.2.3.4), since a client may have a small window and open it by
/// halves.
const WORTHWHILE: u32 = 1024;

/// The state of the round-robin.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Turns {
    /// The stream that had the last turn.
    stream: u32,
    /// The bytes that it sent in that turn.
    used: u32,
}

/// The next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    /// Index of the stream.
    pub(crate) index: usize,
    /// Bytes of payload.
    pub(crate) length: u32,
    /// Whether the stream ends with the frame.
    pub(crate) end: bool,
    by_turn: bool,
}

/// The limits of the next frame, besides the stream's own window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The connection's window.
    pub(crate) window: SendWindow,
    /// The peer's largest frame.
    pub(crate) max_frame_size: usize,
    /// The peer's initial window.
    pub(crate) initial_window: u32,
}

impl Bounds {
    /// The part of `ready` bytes that the windows allow a stream to send now.
    fn allowed(self, stream: &Stream, ready: u64) -> u32 {
        self.window.available(self.allowed_by_stream(stream, ready), WORTHWHILE)
    }

    /// Bytes that the stream's own window allows, of the `ready` ones.
    fn allowed_by_stream(self, stream: &Stream, ready: u64) -> u32 {
        let ready = u32::try_from(ready).unwrap_or(u32::MAX);
        stream.send_window.available(ready, WORTHWHILE.min(self.initial_window / 2))
    }

    /// Whether the windows allow a frame of a stream.
    pub(crate) fn permit_frame(self, stream: &Stream) -> bool {
        stream.ready().is_some_and(|(ready, _)| ready == 0 || self.allowed(stream, ready) > 0)
    }

    /// Whether `length` bytes of content of a stream can be sent in one frame.
    pub(crate) fn permit_whole(self, stream: &Stream, length: usize) -> bool {
        let fits = length <= RECORD_PAYLOAD.min(self.max_frame_size);
        fits && self.allowed(stream, length as u64) as usize == length
    }

    /// The window that lets no more of a stream be sent than is ready.
    pub(crate) fn without_room(self, stream: &Stream) -> Option<Window> {
        let ready = stream.ready().map_or(0, |(ready, _)| i64::try_from(ready).unwrap_or(i64::MAX));
        if stream.send_window.bytes() <= ready {
            return Some(Window::Stream);
        }
        (self.window.bytes() <= ready).then_some(Window::Connection)
    }

    /// Bytes that the windows allow beyond those that are ready, where so many streams share the connection's window evenly.
    pub(crate) fn room(self, stream: &Stream, sharing: u64) -> u64 {
        let ready = stream.ready().map_or(0, |(ready, _)| i64::try_from(ready).unwrap_or(i64::MAX));
        let beyond = |window: i64| u64::try_from(window.saturating_sub(ready)).unwrap_or(0);
        let share = beyond(self.window.bytes()).div_ceil(sharing.max(1));
        beyond(stream.send_window.bytes()).min(share)
    }

    /// The window that holds back content of a stream that is ready.
    pub(crate) fn hold_back(self, stream: &Stream) -> Option<Window> {
        let (ready, _) = stream.ready().filter(|(ready, _)| *ready > 0)?;
        let of_stream = self.allowed_by_stream(stream, ready);
        if of_stream == 0 {
            return Some(Window::Stream);
        }
        (self.window.available(of_stream, WORTHWHILE) == 0).then_some(Window::Connection)
    }
}

/// The order among streams with something to send: the smallest rank goes first.
type Rank = (u8, bool, u32);

impl Turns {
    /// Chooses the next frame of at most `room` bytes, header included. `streams` are sorted by number.
    pub(crate) fn pick(&self, streams: &[Stream], bounds: Bounds, room: usize) -> Option<Pick> {
        let most = room.checked_sub(HEADER_LEN)?.min(RECORD_PAYLOAD).min(bounds.max_frame_size) as u32;
        let mut best: Option<(Rank, Pick)> = None;
        // Urgencies that already had a response that is not incremental.
        let mut sequential = 0u8;
        for (index, stream) in streams.iter().enumerate() {
            let Some((ready, last)) = stream.ready() else { continue };
            let urgency = stream.priority.urgency & 7;
            let bit = 1 << urgency;
            if !stream.priority.incremental && sequential & bit != 0 {
                continue;
            }
            let allowed = bounds.allowed(stream, ready);
            if allowed == 0 && ready > 0 {
                continue;
            }
            if !stream.priority.incremental {
                sequential |= bit;
            }
            let ends = last && ready <= u64::from(allowed.min(RECORD_PAYLOAD as u32));
            let rank = (urgency, !ends, if ends { index as u32 } else { self.place(stream.id) });
            if best.is_none_or(|(other, _)| rank < other) {
                let length = allowed.min(most);
                let end = last && u64::from(length) == ready;
                best = Some((rank, Pick { index, length, end, by_turn: !ends }));
            }
        }
        best.map(|(_, pick)| pick).filter(|pick| pick.length > 0 || pick.end)
    }

    /// Records the frame that was chosen.
    pub(crate) fn took(&mut self, pick: Pick, stream: u32) {
        if !pick.by_turn {
            return;
        }
        if self.stream != stream || self.used >= TURN {
            (self.stream, self.used) = (stream, 0);
        }
        self.used += pick.length;
    }

    /// Round-robin, starting after the last stream served, unless its turn has not ended.
    fn place(&self, stream: u32) -> u32 {
        if stream == self.stream && self.used < TURN { 0 } else { stream.wrapping_sub(self.stream).wrapping_sub(1) }
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
