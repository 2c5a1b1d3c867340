//! Actions of the client, and what the transport has to do.

use sealion_http::multiplexed::{By, Priority};

use crate::error::ErrorCode;
use crate::stream::StreamId;

/// An action of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A request; its head is in the [`HeadBuffer`]. [`Connection::respond`] sends the response. The request occupies a
    /// slot until [`Connection::release`].
    ///
    /// [`HeadBuffer`]: crate::HeadBuffer
    /// [`Connection::respond`]: crate::Connection::respond
    /// [`Connection::release`]: crate::Connection::release
    Request {
        /// The stream.
        stream: StreamId,
        /// Whether the request is known to have no content. Otherwise the end may still come without any.
        end: bool,
    },
    /// A request whose head exceeds the limits: respond with 431. Its head in the [`HeadBuffer`] is incomplete or empty.
    /// It occupies a slot like any request.
    ///
    /// [`HeadBuffer`]: crate::HeadBuffer
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// Whether the request is known to have no content.
        end: bool,
    },
    /// Content of a request, or a part of it.
    Data {
        /// The stream.
        stream: StreamId,
        /// The bytes; empty only at the end.
        data: &'a [u8],
        /// Whether this is the end of the content.
        end: bool,
    },
    /// The end of the content, by trailers, which are in the [`HeadBuffer`].
    ///
    /// [`HeadBuffer`]: crate::HeadBuffer
    Trailers {
        /// The stream.
        stream: StreamId,
    },
    /// The request was cancelled: end its work, then call [`Connection::release`].
    ///
    /// [`Connection::release`]: crate::Connection::release
    Reset {
        /// The stream.
        stream: StreamId,
        /// The code.
        code: ErrorCode,
        /// The side that cancelled. The server does so because of the client's frames.
        by: By,
    },
    /// A malformed or incomplete request that was rejected before the driver knew it (RFC 9114 §4.1.2). For the log
    /// only.
    Malformed {
        /// The stream.
        stream: StreamId,
        /// The reason.
        why: &'static str,
    },
    /// The client changed the priority of a response (RFC 9218 §7). The connection already respects it.
    PriorityChanged {
        /// The stream.
        stream: StreamId,
        /// The new priority.
        priority: Priority,
    },
    /// The client will accept no more pushes, and probably leaves (GOAWAY).
    GoAway,
    /// The client's settings arrived: [`Connection::peer_settings`](crate::Connection::peer_settings).
    Settings,
}

/// An order for the transport. Carry them out in turn, before more input is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// RESET_STREAM: end our direction of the stream without the rest.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The code.
        code: ErrorCode,
    },
    /// STOP_SENDING: read no more of the stream.
    Stop {
        /// The stream.
        stream: StreamId,
        /// The code.
        code: ErrorCode,
    },
    /// Send what is written to the stream at this level from now on. Higher levels go first; equal ones share. New
    /// streams have level 0.
    Prioritize {
        /// The stream.
        stream: StreamId,
        /// The level, between -20 and 20.
        level: i32,
    },
}
