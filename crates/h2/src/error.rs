//! Error codes (RFC 9113 §7) and the errors of this crate.

use sealion_http::{error_codes, floods};
use thiserror::Error;

error_codes! {
    /// An error code of RST_STREAM and GOAWAY (RFC 9113 §7). Codes that are not registered keep their number.
    ErrorCode(u32);

    /// Not an error: a graceful end, or a request body that is not needed.
    NO_ERROR = 0x0,
    /// A violation of the protocol that no other code describes.
    PROTOCOL_ERROR = 0x1,
    /// The sender cannot continue.
    INTERNAL_ERROR = 0x2,
    /// The peer sent more than its window.
    FLOW_CONTROL_ERROR = 0x3,
    /// SETTINGS were not acknowledged in time.
    SETTINGS_TIMEOUT = 0x4,
    /// A frame arrived on a stream that is half closed or closed.
    STREAM_CLOSED = 0x5,
    /// A frame of an invalid length.
    FRAME_SIZE_ERROR = 0x6,
    /// The request was not processed and may be repeated.
    REFUSED_STREAM = 0x7,
    /// The stream is no longer needed.
    CANCEL = 0x8,
    /// The field section compression context is lost.
    COMPRESSION_ERROR = 0x9,
    /// The connection made by CONNECT was reset.
    CONNECT_ERROR = 0xa,
    /// The peer behaves in a way that may generate excessive load.
    ENHANCE_YOUR_CALM = 0xb,
    /// The transport is not secure enough.
    INADEQUATE_SECURITY = 0xc,
    /// The request needs HTTP/1.1.
    HTTP_1_1_REQUIRED = 0xd,
}

/// The connection cannot continue (RFC 9113 §5.4.1). GOAWAY with `code` is queued: write it, then close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{code}: {why}")]
pub struct ConnectionError {
    /// The code in GOAWAY.
    pub code: ErrorCode,
    /// The reason, for the log.
    pub why: &'static str,
    /// The limit against abuse that was exceeded, if any.
    pub flood: Option<Flood>,
}

floods! {
    /// A limit against clients that cause more work than they do (RFC 9113 §10.5).
    Flood;

    /// Requests that were reset or refused.
    Resets = "resets", "too many streams were reset",
    /// PING and SETTINGS. Each requires a reply.
    Replies = "replies", "too many frames that ask for a reply",
    /// DATA without content.
    EmptyData = "empty-data", "too many DATA frames without content",
    /// WINDOW_UPDATE with a small increment.
    WindowUpdates = "window-updates", "too many WINDOW_UPDATE frames by few bytes",
    /// PRIORITY_UPDATE and PRIORITY.
    PriorityUpdates = "priority-updates", "too many priority updates",
    /// Settings in one frame.
    Settings = "settings", "too many settings in a frame",
    /// Bytes of frames compared with useful bytes.
    Overhead = "overhead", "too many bytes in frames without use",
    /// CONTINUATION frames and bytes of a header block.
    HeaderBlock = "header-block", "a header block in too many frames or bytes",
    /// Decoded bytes of a header block.
    HeaderBomb = "header-bomb", "a header block decodes to far more than the limits",
}

impl ConnectionError {
    pub(crate) const fn new(code: ErrorCode, why: &'static str) -> Self {
        ConnectionError { code, why, flood: None }
    }

    pub(crate) const fn protocol(why: &'static str) -> Self {
        Self::new(ErrorCode::PROTOCOL_ERROR, why)
    }

    pub(crate) const fn frame_size(why: &'static str) -> Self {
        Self::new(ErrorCode::FRAME_SIZE_ERROR, why)
    }

    pub(crate) const fn flow_control(why: &'static str) -> Self {
        Self::new(ErrorCode::FLOW_CONTROL_ERROR, why)
    }

    pub(crate) const fn flood(flood: Flood) -> Self {
        ConnectionError { code: ErrorCode::ENHANCE_YOUR_CALM, why: flood.why(), flood: Some(flood) }
    }
}

/// The call does not fit the state of the stream: the stream was reset or released, or an earlier call excludes this
/// one. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the stream was reset or has ended")]
pub struct StreamClosed;
