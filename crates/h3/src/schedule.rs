//! The order of responses (RFC 9218 §10), as levels for the transport. It sends the highest level first, and lets equal ones
//! share.
//!
//! - A lower urgency goes first.
//! - Within an urgency, responses that are not incremental go one after another in the order of their requests. The
//!   first of them and all incremental responses share.
//! - Responses whose rest is short go before: they delay others only briefly, but would wait long themselves.

use std::collections::VecDeque;

use crate::event::Command;
use crate::stream::{RequestStream, Sending};

/// The rest of a response up to this size is short. INHERITED: a record of `sealion-h2`.
pub(crate) const SHORT: u64 = 16 * 1024;

/// Computes the levels of all responses that have not ended, and orders the transport to change those that differ.
/// `streams` are sorted by number.
pub(crate) fn prioritize(streams: &mut [RequestStream], commands: &mut VecDeque<Command>) {
    let is_alone = streams.len() == 1;
    // Urgencies that already had a response that is not incremental.
    let mut sequential = 0u8;
    for stream in streams {
        let open = matches!(stream.sending(), Some(Sending::Head | Sending::Content { .. }));
        if !open || !stream.has_request() {
            continue;
        }
        let priority = stream.priority.unwrap_or_default();
        let urgency = priority.urgency & 7;
        let waits = !priority.incremental && sequential & 1 << urgency != 0 && !stream.is_short;
        if !priority.incremental && !stream.is_short {
            sequential |= 1 << urgency;
        }
        let rank = if waits { -1 } else { i32::from(stream.is_short && !is_alone) };
        let level = (DEFAULT_URGENCY - i32::from(urgency)) * LEVELS + rank;
        if stream.level != level {
            stream.level = level;
            commands.push_back(Command::Prioritize { stream: stream.id, level });
        }
    }
}

/// The urgency of responses at level 0 (RFC 9218 §4.1).
const DEFAULT_URGENCY: i32 = 3;

/// The number of levels for each urgency: waiting, sharing, short; and one to spare.
const LEVELS: i32 = 4;

#[cfg(test)]
mod tests {
    use sealion_http::multiplexed::Priority;

    use super::*;
    use crate::stream::{Receiving, State, StreamId};

    fn stream(number: u64, priority: &[u8]) -> RequestStream {
        let mut stream = RequestStream::new(StreamId(number));
        stream.state = State::Live { receiving: Receiving::Ended, sending: Sending::Head };
        stream.priority = Some(Priority::parse(priority));
        stream
    }

    fn levels(streams: &mut [RequestStream]) -> Vec<(u64, i32)> {
        let mut commands = VecDeque::new();
        prioritize(streams, &mut commands);
        let changed = |command: &Command| match command {
            Command::Prioritize { stream, level } => (stream.get(), *level),
            other => panic!("{other:?}"),
        };
        commands.iter().map(changed).collect()
    }

    #[test]
    fn responses_that_are_not_incremental_go_one_after_another() {
        let mut streams = [stream(0, b""), stream(4, b""), stream(8, b"i"), stream(12, b"u=1"), stream(16, b"u=1")];
        assert_eq!(levels(&mut streams), [(4, -1), (12, 8), (16, 7)]);
        assert_eq!(levels(&mut streams), [], "nothing changed");
        streams[0].set_sending(Sending::Ended);
        assert_eq!(levels(&mut streams), [(4, 0)]);
        streams[3].state = State::Reset(crate::By::Client);
        assert_eq!(levels(&mut streams), [(16, 8)]);
    }

    #[test]
    fn a_short_rest_goes_first_and_delays_no_turn() {
        let mut streams = [stream(0, b""), stream(4, b""), stream(8, b"u=7, i")];
        levels(&mut streams);
        (streams[1].is_short, streams[2].is_short) = (true, true);
        assert_eq!(levels(&mut streams), [(4, 1), (8, -15)]);
        let mut alone = [stream(0, b"")];
        alone[0].is_short = true;
        assert_eq!(levels(&mut alone), [], "no other stream waits");
    }

    #[test]
    fn a_stream_without_a_request_has_no_turn() {
        let mut streams = [RequestStream::new(StreamId(0)), stream(4, b"u=0")];
        streams[0].priority = Some(Priority { urgency: 0, incremental: false });
        assert_eq!(levels(&mut streams), [(4, 12)]);
    }
}
