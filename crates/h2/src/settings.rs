//! Settings of both sides (RFC 9113 §6.5), and the limits that a server sets for its clients.

use sealion_http::multiplexed::SectionLimits;
use serde::{Deserialize, Serialize};

use crate::error::{ConnectionError, Flood};
use crate::frame::{DEFAULT_MAX_FRAME_SIZE, MAX_WINDOW, u32_at};

/// The server's limits for one client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The number of concurrent streams, including reset streams whose work has not ended
    /// (SETTINGS_MAX_CONCURRENT_STREAMS).
    ///
    /// INHERITED: nginx and h2o allow 128 and 100. RFC 9113 §6.5.2 recommends at least 100.
    pub streams: u32,
    /// Bytes of a decoded field section: names, values, and 4 for each line. A larger request is [`Event::TooLarge`].
    /// Beyond four times the limit, the connection ends while the block is being decoded
    /// (SETTINGS_MAX_HEADER_LIST_SIZE).
    ///
    /// The limit of HTTP/1.1 (`HeadLimits`) is the same.
    ///
    /// [`Event::TooLarge`]: crate::Event::TooLarge
    pub head: usize,
    /// The number of fields of a request; the lines of `cookie` count as one. A request with more is
    /// [`Event::TooLarge`]. Beyond eight times as many lines of any kind, the connection ends.
    ///
    /// [`Event::TooLarge`]: crate::Event::TooLarge
    pub fields: usize,
    /// The size of the dynamic table that the client may use (SETTINGS_HEADER_TABLE_SIZE).
    ///
    /// A client may use 4096 before it has read any setting. With it a browser's later requests take about 50 bytes
    /// instead of 500. Memory is only allocated for the entries in the table.
    pub header_table: u32,
    /// Bytes of request content that a client may send on a stream at first (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window: u32,
    /// Bytes of request content that a client may send on all streams at first, at least 65,535.
    ///
    /// It is twice the window of a stream, so that one stream whose content waits does not stop the others.
    pub connection_window: u32,
    /// The maximum window of a stream; the connection's maximum is twice as large.
    pub largest_window: u32,
    /// Whether CONNECT may name a protocol (RFC 8441).
    pub connect_protocol: bool,
    /// The number of resets that a client may cause before it has completed a request. Each completed request allows
    /// one more, up to this number.
    ///
    /// A browser that leaves a page resets all its open streams; twice the number of streams leaves room for that.
    pub resets: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            streams: 128,
            head: 32 * 1024,
            fields: 100,
            header_table: 4096,
            stream_window: 65_535,
            connection_window: 131_070,
            largest_window: 8 << 20,
            connect_protocol: false,
            resets: 256,
        }
    }
}

impl Limits {
    /// The limits of a field section.
    pub(crate) fn section(&self) -> SectionLimits {
        SectionLimits { head: self.head, fields: self.fields, connect_protocol: self.connect_protocol }
    }

    /// The settings to announce: all that differ from the protocol's defaults.
    pub(crate) fn announced(&self) -> impl Iterator<Item = (u16, u32)> {
        let head = u32::try_from(self.head).unwrap_or(u32::MAX);
        let when = |wanted: bool, id: u16, value: u32| wanted.then_some((id, value));
        [
            when(self.header_table != 4096, id::HEADER_TABLE_SIZE, self.header_table),
            Some((id::MAX_CONCURRENT_STREAMS, self.streams)),
            when(self.stream_window != DEFAULT_WINDOW, id::INITIAL_WINDOW_SIZE, self.stream_window),
            Some((id::MAX_HEADER_LIST_SIZE, head)),
            when(self.connect_protocol, id::ENABLE_CONNECT_PROTOCOL, 1),
            Some((id::NO_RFC7540_PRIORITIES, 1)),
        ]
        .into_iter()
        .flatten()
    }
}

/// The initial window of a peer that has not changed it (RFC 9113 §6.9.2).
pub(crate) const DEFAULT_WINDOW: u32 = 65_535;

/// Setting identifiers (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).
mod id {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(super) const MAX_FRAME_SIZE: u16 = 5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    pub(super) const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The client's settings that matter to a server that pushes nothing and uses no dynamic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerSettings {
    pub(crate) initial_window: u32,
    pub(crate) max_frame_size: usize,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings { initial_window: DEFAULT_WINDOW, max_frame_size: DEFAULT_MAX_FRAME_SIZE }
    }
}

impl PeerSettings {
    /// Takes over the payload of a SETTINGS frame.
    pub(crate) fn apply(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        if !payload.len().is_multiple_of(SETTING_LEN) {
            return Err(ConnectionError::frame_size("a SETTINGS length that is not a multiple of 6"));
        }
        if payload.len() > MAX_SETTINGS * SETTING_LEN {
            return Err(ConnectionError::flood(Flood::Settings));
        }
        for setting in payload.chunks_exact(SETTING_LEN) {
            self.set(u16::from_be_bytes([setting[0], setting[1]]), u32_at(setting, 2))?;
        }
        Ok(())
    }

    fn set(&mut self, id: u16, value: u32) -> Result<(), ConnectionError> {
        match id {
            id::INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                return Err(ConnectionError::flow_control("an initial window above 2^31 - 1"));
            }
            id::INITIAL_WINDOW_SIZE => self.initial_window = value,
            id::MAX_FRAME_SIZE if !(DEFAULT_MAX_FRAME_SIZE..1 << 24).contains(&(value as usize)) => {
                return Err(ConnectionError::protocol("a largest frame size outside 2^14 to 2^24 - 1"));
            }
            id::MAX_FRAME_SIZE => self.max_frame_size = value as usize,
            id::ENABLE_PUSH | id::ENABLE_CONNECT_PROTOCOL | id::NO_RFC7540_PRIORITIES if value > 1 => {
                return Err(ConnectionError::protocol("a setting that is neither 0 nor 1"));
            }
            _ => {}
        }
        Ok(())
    }
}

const SETTING_LEN: usize = 6;

/// Eleven settings are registered, and clients also send some reserved ones (an idea of RFC 8701).
const MAX_SETTINGS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(settings: &[(u16, u32)]) -> Result<PeerSettings, ConnectionError> {
        let mut payload = Vec::new();
        for (id, value) in settings {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        let mut peer = PeerSettings::default();
        peer.apply(&payload).map(|()| peer)
    }

    #[test]
    fn the_last_value_of_a_setting_counts() {
        let expected = PeerSettings { initial_window: 7, max_frame_size: 1 << 20 };
        assert_eq!(apply(&[(4, 9), (5, 1 << 20), (0x0a0a, 3), (4, 7), (1, 0), (2, 0), (6, 1)]).unwrap(), expected);
        assert_eq!(apply(&[]).unwrap(), PeerSettings::default());
    }

    #[test]
    fn values_out_of_range_end_the_connection() {
        use crate::ErrorCode;
        for (id, value, code) in [
            (4, 1 << 31, ErrorCode::FLOW_CONTROL_ERROR),
            (5, 16_383, ErrorCode::PROTOCOL_ERROR),
            (5, 1 << 24, ErrorCode::PROTOCOL_ERROR),
            (2, 2, ErrorCode::PROTOCOL_ERROR),
            (8, 2, ErrorCode::PROTOCOL_ERROR),
            (9, u32::MAX, ErrorCode::PROTOCOL_ERROR),
        ] {
            assert_eq!(apply(&[(id, value)]).unwrap_err().code, code, "{id}");
        }
        assert_eq!(PeerSettings::default().apply(&[0; 7]).unwrap_err().code, ErrorCode::FRAME_SIZE_ERROR);
        apply(&[(99, 0); 32]).unwrap();
        assert_eq!(apply(&[(99, 0); 33]).unwrap_err().code, ErrorCode::ENHANCE_YOUR_CALM);
    }
}
