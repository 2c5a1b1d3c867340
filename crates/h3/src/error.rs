//! Error codes (RFC 9114 §8.1, RFC 9204 §6) and the errors of this crate.

use sealion_http::multiplexed::CodingError;
use sealion_http::{error_codes, floods};
use thiserror::Error;

error_codes! {
    /// An application error code of QUIC: of CONNECTION_CLOSE, RESET_STREAM and STOP_SENDING. Codes that are not registered
    /// keep their number.
    ErrorCode(u64);

    /// Not an error: a graceful end, or a request body that is not needed.
    H3_NO_ERROR = 0x100,
    /// A violation of the protocol that no other code describes.
    H3_GENERAL_PROTOCOL_ERROR = 0x101,
    /// The sender cannot continue.
    H3_INTERNAL_ERROR = 0x102,
    /// The peer opened a stream that this side does not accept.
    H3_STREAM_CREATION_ERROR = 0x103,
    /// The control stream or a stream of QPACK ended.
    H3_CLOSED_CRITICAL_STREAM = 0x104,
    /// A frame that its stream or the state of its stream does not permit.
    H3_FRAME_UNEXPECTED = 0x105,
    /// A frame of an invalid length or layout.
    H3_FRAME_ERROR = 0x106,
    /// The peer behaves in a way that may generate excessive load.
    H3_EXCESSIVE_LOAD = 0x107,
    /// A stream ID or push ID that is not valid here.
    H3_ID_ERROR = 0x108,
    /// An invalid SETTINGS frame.
    H3_SETTINGS_ERROR = 0x109,
    /// The control stream does not begin with SETTINGS.
    H3_MISSING_SETTINGS = 0x10a,
    /// The request was not processed and may be repeated.
    H3_REQUEST_REJECTED = 0x10b,
    /// The request or its response is no longer needed.
    H3_REQUEST_CANCELLED = 0x10c,
    /// The client's stream ended before its request.
    H3_REQUEST_INCOMPLETE = 0x10d,
    /// A malformed message.
    H3_MESSAGE_ERROR = 0x10e,
    /// The connection made by CONNECT was reset.
    H3_CONNECT_ERROR = 0x10f,
    /// The request needs HTTP/1.1.
    H3_VERSION_FALLBACK = 0x110,
    /// A field section that cannot be decoded.
    QPACK_DECOMPRESSION_FAILED = 0x200,
    /// An invalid instruction on the client's encoder stream.
    QPACK_ENCODER_STREAM_ERROR = 0x201,
    /// An invalid instruction on the client's decoder stream.
    QPACK_DECODER_STREAM_ERROR = 0x202,
}

/// The connection cannot continue (RFC 9114 §8): close it with `code` (CONNECTION_CLOSE of type 0x1d).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{code}: {why}")]
pub struct ConnectionError {
    /// The code in CONNECTION_CLOSE.
    pub code: ErrorCode,
    /// The reason, for the log.
    pub why: &'static str,
    /// The limit against abuse that was exceeded, if any.
    pub flood: Option<Flood>,
}

floods! {
    /// A limit against clients that cause more work than they do (RFC 9114 §10.5).
    Flood;

    /// Requests that were cancelled, malformed or refused.
    Resets = "resets", "too many streams were reset",
    /// DATA without content.
    EmptyData = "empty-data", "too many DATA frames without content",
    /// Frames of unknown types, and frames that ask a server for nothing.
    IdleFrames = "idle-frames", "too many frames without effect",
    /// Unidirectional streams of unknown types.
    UnknownStreams = "unknown-streams", "too many unidirectional streams of unknown types",
    /// PRIORITY_UPDATE.
    PriorityUpdates = "priority-updates", "too many priority updates",
    /// Settings in one frame.
    Settings = "settings", "too many settings",
    /// Bytes of frames compared with useful bytes.
    Overhead = "overhead", "too many bytes in frames without use",
    /// Incomplete field sections of all streams.
    PartialHeads = "partial-heads", "too many bytes of incomplete field sections",
    /// Decoded bytes of a field section.
    HeaderBomb = "header-bomb", "a field section decodes to far more than the limits",
}

impl ConnectionError {
    pub(crate) const fn new(code: ErrorCode, why: &'static str) -> Self {
        ConnectionError { code, why, flood: None }
    }

    pub(crate) const fn unexpected(why: &'static str) -> Self {
        Self::new(ErrorCode::H3_FRAME_UNEXPECTED, why)
    }

    pub(crate) const fn frame(why: &'static str) -> Self {
        Self::new(ErrorCode::H3_FRAME_ERROR, why)
    }

    pub(crate) const fn id(why: &'static str) -> Self {
        Self::new(ErrorCode::H3_ID_ERROR, why)
    }

    pub(crate) const fn flood(flood: Flood) -> Self {
        ConnectionError { code: ErrorCode::H3_EXCESSIVE_LOAD, why: flood.why(), flood: Some(flood) }
    }
}

/// A field section that cannot be decoded ends the connection (RFC 9204 §2.2).
impl From<CodingError> for ConnectionError {
    fn from(error: CodingError) -> Self {
        ConnectionError::new(ErrorCode::QPACK_DECOMPRESSION_FAILED, error.why())
    }
}

/// The call does not fit the state of the stream: the stream was reset or released, or an earlier call excludes this
/// one. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the stream was reset or has ended")]
pub struct StreamClosed;
