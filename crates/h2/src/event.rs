//! Actions of the client.

use sealion_http::multiplexed::{By, Priority};

use crate::error::ErrorCode;
use crate::stream::StreamId;

/// An action of the client. The connection handles everything else itself, such as PING and SETTINGS.
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
        /// Whether the request has no content.
        end: bool,
    },
    /// A request whose head exceeds the limits: respond with 431. Its head in the [`HeadBuffer`] is incomplete. It
    /// occupies a slot like any request.
    ///
    /// [`HeadBuffer`]: crate::HeadBuffer
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// Whether the request has no content.
        end: bool,
    },
    /// Content of a request, or a part of it. [`Connection::consume`] lets the client send more.
    ///
    /// [`Connection::consume`]: crate::Connection::consume
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
    /// The stream was reset: end its work, then call [`Connection::release`].
    ///
    /// [`Connection::release`]: crate::Connection::release
    Reset {
        /// The stream.
        stream: StreamId,
        /// The code in RST_STREAM.
        code: ErrorCode,
        /// The side that sent it. The server sends it because of the client's frames.
        by: By,
    },
    /// A malformed request that was reset before it occupied a slot (RFC 9113 §8.1.1). For the log only.
    Malformed {
        /// The number of the stream.
        stream: StreamId,
        /// The reason.
        why: &'static str,
    },
    /// A request that was refused, because too many are open or the connection drains. For the log only.
    Refused {
        /// The number of the stream.
        stream: StreamId,
    },
    /// Content that the windows held back can be sent, on one stream or on any stream.
    WindowOpened {
        /// The stream; `None`: the connection's window.
        stream: Option<StreamId>,
    },
    /// The client changed the priority of a response (RFC 9218 §7). The connection already respects it.
    PriorityChanged {
        /// The stream.
        stream: StreamId,
        /// The new priority.
        priority: Priority,
    },
    /// The client will open no more streams (GOAWAY). Close the connection when it [is
    /// idle](crate::Connection::is_idle).
    GoAway {
        /// The code.
        code: ErrorCode,
    },
    /// The client acknowledged our settings.
    SettingsAcknowledged,
}
