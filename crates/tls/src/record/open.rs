//! Opening records in place.

use std::ops::Range;

use aws_lc_rs::aead::{Aad, Nonce};
use sealion_ktls::Version;

use super::{
    ContentType, HEADER_LEN, LazyCipher, MAX_PLAINTEXT, Nonces, TAG_LEN, TrafficKeys, aad_tls12, implicit_nonce,
};
use crate::AlertDescription;

/// Opens the records of one direction in order.
pub struct Opener {
    cipher: LazyCipher,
    sequence: u64,
}

/// An opened record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The content type; in TLS 1.3 the inner content type.
    pub content_type: ContentType,
    /// The range of the plaintext in the record.
    pub payload: Range<usize>,
}

/// A record that cannot be opened. The connection cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// A content type that is unknown, or not allowed after the handshake; in TLS 1.3 the inner or the outer type.
    UnexpectedType(u8),
    /// The header of a TLS 1.2 record does not have TLS' major version, 3.
    BadVersion,
    /// The ciphertext or the plaintext is longer than allowed (RFC 8446 §5.2 and §5.4).
    RecordOverflow,
    /// The record is shorter than nonce and tag together.
    TooShort,
    /// Authentication failed: the record was changed, reordered or sealed under another key.
    BadRecordMac,
    /// A TLS 1.3 record of padding only (RFC 8446 §5.4).
    NoContentType,
}

impl OpenError {
    /// The alert to send (RFC 8446 §6.2).
    pub fn alert(self) -> AlertDescription {
        match self {
            Self::UnexpectedType(_) | Self::NoContentType => AlertDescription::UNEXPECTED_MESSAGE,
            Self::BadVersion => AlertDescription::DECODE_ERROR,
            Self::RecordOverflow => AlertDescription::RECORD_OVERFLOW,
            // RFC 8446 §5.2 and RFC 5246 §6.2.3.3: indistinguishable from a failed deprotection.
            Self::TooShort | Self::BadRecordMac => AlertDescription::BAD_RECORD_MAC,
        }
    }
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnexpectedType(t) => write!(f, "a record of type {t}, which is not allowed after the handshake"),
            Self::BadVersion => f.write_str("a record header without the version of TLS"),
            Self::RecordOverflow => f.write_str("a record longer than TLS allows"),
            Self::TooShort => f.write_str("a record shorter than its authentication tag"),
            Self::BadRecordMac => {
                f.write_str("a record that does not authenticate: changed on the way, or sealed with another key")
            }
            Self::NoContentType => f.write_str("a record of padding alone"),
        }
    }
}

impl std::error::Error for OpenError {}

impl Opener {
    /// Starts at sequence number `sequence`.
    pub fn new(keys: &TrafficKeys, sequence: u64) -> Self {
        Self { cipher: LazyCipher::new(keys.to_open()), sequence }
    }

    /// The number of the next record, and the keys.
    pub(crate) fn into_parts(self) -> (u64, TrafficKeys) {
        (self.sequence, self.cipher.keys)
    }

    /// Frees what the next record can make again: 600 bytes.
    pub fn rest(&mut self) {
        self.cipher.rest();
    }

    /// Skips the next record, so that the record after it opens. The skipped content is not authenticated.
    pub fn pass_over(&mut self) {
        self.sequence += 1;
    }

    /// Bytes that sealing adds to a payload, without TLS 1.3 padding.
    pub fn added_len(&self) -> usize {
        let layout = self.cipher.layout();
        layout.prefix() + layout.suffix()
    }

    /// The length of the first record in `bytes`, header included; `None` until the header is complete. Rejects an
    /// invalid header before the rest of the record has arrived.
    ///
    /// # Errors
    /// [`OpenError::UnexpectedType`], [`OpenError::BadVersion`], [`OpenError::RecordOverflow`].
    pub fn record_len(&self, bytes: &[u8]) -> Result<Option<usize>, OpenError> {
        let Some(&[outer_type, major, _, hi, lo]) = bytes.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let layout = self.cipher.layout();
        let may_come = match layout.version {
            // RFC 8446 §5: after the handshake everything is protected, hence application data.
            Version::Tls13 => outer_type == ContentType::ApplicationData as u8,
            Version::Tls12 => ContentType::from_wire(outer_type).is_some(),
        };
        if !may_come {
            return Err(OpenError::UnexpectedType(outer_type));
        }
        // RFC 8446 §5.1: legacy_record_version must be ignored.
        if layout.version == Version::Tls12 && major != 3 {
            return Err(OpenError::BadVersion);
        }
        let len = usize::from(u16::from_be_bytes([hi, lo]));
        if len > layout.max_ciphertext() {
            return Err(OpenError::RecordOverflow);
        }
        Ok(Some(HEADER_LEN + len))
    }

    /// Decrypts one complete record in place. `record` starts with the header.
    ///
    /// # Errors
    /// [`OpenError`]; the bytes of the record are then undefined.
    pub fn open(&mut self, record: &mut [u8]) -> Result<Opened, OpenError> {
        match self.record_len(record)? {
            Some(len) if len == record.len() => {}
            _ => return Err(OpenError::TooShort),
        }
        let layout = self.cipher.layout();
        let prefix = layout.prefix();
        let Some(payload_len) = record.len().checked_sub(prefix + TAG_LEN) else {
            return Err(OpenError::TooShort);
        };
        let (head, sealed) = record.split_at_mut(prefix);
        let header: [u8; HEADER_LEN] = *head.first_chunk().ok_or(OpenError::TooShort)?;
        let (key, iv) = self.cipher.expanded();
        let nonce = match layout.nonces {
            Nonces::Implicit => implicit_nonce(iv, self.sequence),
            Nonces::Explicit => {
                let mut nonce = *iv;
                nonce[4..].copy_from_slice(&head[HEADER_LEN..]);
                nonce
            }
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        match layout.version {
            Version::Tls13 => key.open_in_place(nonce, Aad::from(header), sealed),
            Version::Tls12 => {
                let aad = aad_tls12(self.sequence, [header[0], header[1], header[2]], payload_len);
                key.open_in_place(nonce, Aad::from(aad), sealed)
            }
        }
        .map_err(|_| OpenError::BadRecordMac)?;
        self.sequence += 1;

        let mut end = prefix + payload_len;
        let content_type = match layout.version {
            Version::Tls12 => header[0],
            Version::Tls13 => {
                // RFC 8446 §5.4: the whole TLSInnerPlaintext, with type and padding, is bounded.
                if payload_len > MAX_PLAINTEXT + 1 {
                    return Err(OpenError::RecordOverflow);
                }
                // RFC 8446 §5.4: the last nonzero byte is the type, and the bytes after it are padding.
                let last = record[prefix..end].iter().rposition(|&b| b != 0);
                end = prefix + last.ok_or(OpenError::NoContentType)?;
                record[end]
            }
        };
        if end - prefix > MAX_PLAINTEXT {
            return Err(OpenError::RecordOverflow);
        }
        match ContentType::from_wire(content_type) {
            None | Some(ContentType::ChangeCipherSpec) => Err(OpenError::UnexpectedType(content_type)),
            Some(content_type) => Ok(Opened { content_type, payload: prefix..end }),
        }
    }
}
