//! Settings of both sides (RFC 9114 §7.2.4), and the limits that a server sets for its clients.

use sealion_http::multiplexed::SectionLimits;

use crate::error::{ConnectionError, ErrorCode, Flood};
use crate::frame::{FrameHead, kind};
use crate::varint;

/// The server's limits for one client. The windows and the number of streams at a time are the transport's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The number of concurrent requests, including those that were cancelled and whose work has not ended. The
    /// transport lets a client open a new stream once both directions of an old one ended, so that this is the
    /// number of streams that it permits.
    ///
    /// RFC 9114 §6.1 recommends at least 100.
    pub streams: u32,
    /// Bytes of a decoded field section: names, values, and 4 for each line. A larger request is [`Event::TooLarge`].
    /// Beyond four times the limit, the connection ends while the section is being decoded
    /// (SETTINGS_MAX_FIELD_SECTION_SIZE). It also bounds the encoded section.
    ///
    /// [`Event::TooLarge`]: crate::Event::TooLarge
    pub head: usize,
    /// The number of fields of a request; the lines of `cookie` count as one. A request with more is
    /// [`Event::TooLarge`]. Beyond eight times as many lines of any kind, the connection ends.
    ///
    /// [`Event::TooLarge`]: crate::Event::TooLarge
    pub fields: usize,
    /// Whether CONNECT may name a protocol (RFC 9220).
    pub connect_protocol: bool,
    /// The number of cancellations that a client may cause before it has completed a request. Each completed request
    /// allows one more, up to this number.
    ///
    /// A browser that leaves a page cancels all its open requests; twice the number of streams leaves room for that.
    pub resets: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { streams: 128, head: 32 * 1024, fields: 100, connect_protocol: false, resets: 256 }
    }
}

impl Limits {
    /// The limits of a field section.
    pub(crate) fn section(&self) -> SectionLimits {
        SectionLimits { head: self.head, fields: self.fields, connect_protocol: self.connect_protocol }
    }

    /// Appends the SETTINGS frame: all settings that differ from the protocol's defaults.
    pub(crate) fn write_settings(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::new();
        varint::write(&mut payload, id::MAX_FIELD_SECTION_SIZE);
        varint::write(&mut payload, (self.head as u64).min(varint::MAX));
        if self.connect_protocol {
            varint::write(&mut payload, id::ENABLE_CONNECT_PROTOCOL);
            varint::write(&mut payload, 1);
        }
        FrameHead { kind: kind::SETTINGS, length: payload.len() as u64 }.write(out);
        out.extend_from_slice(&payload);
    }
}

/// Setting identifiers (RFC 9114 §11.2.2, RFC 9220 §5, RFC 9297 §5.1).
mod id {
    pub(super) const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
    pub(super) const H3_DATAGRAM: u64 = 0x33;
}

/// The client's settings. The other ones concern only a server that pushes or that fills the client's dynamic table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSettings {
    /// The largest field section that the client wants to receive: names, values, and 32 for each line (RFC 9114
    /// §4.2.2).
    pub max_field_section: u64,
}

impl Default for PeerSettings {
    fn default() -> Self {
        PeerSettings { max_field_section: u64::MAX }
    }
}

impl PeerSettings {
    /// Parses the payload of the SETTINGS frame.
    pub(crate) fn parse(mut payload: &[u8]) -> Result<Self, ConnectionError> {
        let mut settings = PeerSettings::default();
        let mut seen = [0; MAX_SETTINGS];
        let mut count = 0;
        while !payload.is_empty() {
            let pair = varint::read(payload).and_then(|(id, rest)| Some((id, varint::read(rest)?)));
            let (id, (value, rest)) = pair.ok_or(ConnectionError::frame("SETTINGS ends within a setting"))?;
            payload = rest;
            if seen[..count].contains(&id) {
                return Err(error("a setting twice"));
            }
            *seen.get_mut(count).ok_or(ConnectionError::flood(Flood::Settings))? = id;
            count += 1;
            settings.set(id, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, id: u64, value: u64) -> Result<(), ConnectionError> {
        match id {
            id::MAX_FIELD_SECTION_SIZE => self.max_field_section = value,
            id::ENABLE_CONNECT_PROTOCOL | id::H3_DATAGRAM if value > 1 => {
                return Err(error("a setting that is neither 0 nor 1"));
            }
            0x0 | 0x2..=0x5 => return Err(error("a setting that HTTP/3 does not have")),
            _ => {}
        }
        Ok(())
    }
}

const fn error(why: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::H3_SETTINGS_ERROR, why)
}

/// Six settings are registered, and clients also send some reserved ones (RFC 9114 §7.2.4.1).
const MAX_SETTINGS: usize = 32;

/// The longest SETTINGS frame: all pairs in their longest form.
pub(crate) const MAX_SETTINGS_LEN: u64 = 16 * MAX_SETTINGS as u64;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: &[(u64, u64)]) -> Result<PeerSettings, ConnectionError> {
        let mut payload = Vec::new();
        for (id, value) in settings {
            varint::write(&mut payload, *id);
            varint::write(&mut payload, *value);
        }
        PeerSettings::parse(&payload)
    }

    #[test]
    fn settings_are_read_and_unknown_ones_ignored() {
        assert_eq!(parse(&[]).unwrap(), PeerSettings::default());
        let settings = parse(&[(1, 65_536), (7, 100), (6, 262_144), (8, 1), (0x33, 0), (0x21, 3), (0x2a, 1)]);
        assert_eq!(settings.unwrap(), PeerSettings { max_field_section: 262_144 });
    }

    #[test]
    fn invalid_settings_end_the_connection() {
        for settings in [&[(0, 0)][..], &[(2, 0)], &[(3, 1)], &[(4, 1)], &[(5, 1)], &[(8, 2)], &[(0x33, 2)]] {
            assert_eq!(parse(settings).unwrap_err().code, ErrorCode::H3_SETTINGS_ERROR, "{settings:?}");
        }
        assert_eq!(parse(&[(0x21, 1), (6, 1), (0x21, 1)]).unwrap_err().code, ErrorCode::H3_SETTINGS_ERROR);
        for payload in [&[6][..], &[6, 0x40], &[0x40]] {
            assert_eq!(PeerSettings::parse(payload).unwrap_err().code, ErrorCode::H3_FRAME_ERROR);
        }
        let many: Vec<_> = (100..133).map(|id| (id, 0)).collect();
        parse(&many[..32]).unwrap();
        assert_eq!(parse(&many).unwrap_err().flood, Some(Flood::Settings));
    }

    #[test]
    fn settings_that_differ_from_the_defaults_are_announced() {
        for (connect_protocol, expected) in
            [(false, &[4, 5, 6, 0x80, 0, 0x80, 0][..]), (true, &[4, 7, 6, 0x80, 0, 0x80, 0, 8, 1])]
        {
            let mut out = Vec::new();
            Limits { connect_protocol, ..Limits::default() }.write_settings(&mut out);
            assert_eq!(out, expected);
        }
    }
}
