//! Sealing records in place.

use std::os::fd::AsFd;

use aws_lc_rs::aead::{Aad, Nonce};
use sealion_ktls::{Tx, Version, handover, nonce};

use super::{
    ContentType, HEADER_LEN, LazyCipher, MAX_PLAINTEXT, Nonces, TAG_LEN, TrafficKeys, aad_tls12, implicit_nonce,
};

/// Seals the records of one direction under one key, each under the next sequence number.
///
/// The sealer owns the keys, and the sequence number only increases, so no number seals two records. Moving the keys to
/// the kernel consumes the sealer.
pub struct Sealer {
    /// With the keys for the kernel; wiped on drop.
    cipher: LazyCipher,
    sequence: u64,
    limit: u64,
}

/// The kernel did not accept the keys. The sealer continues under the same number.
pub struct KernelRefused<S> {
    /// The sealer, unchanged.
    pub sealer: Sealer,
    /// The socket, unchanged.
    pub socket: S,
    /// The kernel's error.
    pub error: sealion_ktls::Error,
}

/// The reason why a record was not sealed. Nothing was sent, and no sequence number was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// The key has sealed as many records as allowed (RFC 8446 §5.5): update it or close.
    KeyExhausted,
}

/// Records beyond the limit that remain for a KeyUpdate and alerts, so that an exhausted key can
/// still be replaced or the connection closed in order.
const RESERVE: u64 = 8;

impl Sealer {
    /// A sealer whose next record has the number `sequence`. It rejects application data after `limit` records under
    /// this key.
    ///
    /// The caller ensures that these keys have sealed no record from `sequence` on.
    pub fn new(keys: TrafficKeys, sequence: u64, limit: u64) -> Self {
        Self { cipher: LazyCipher::new(keys), sequence, limit }
    }

    /// Hands keys and sequence number to the kernel, which then seals every record of `socket`. All records of this
    /// sealer must already be written to the socket.
    ///
    /// # Errors
    /// [`KernelRefused`], with the sealer, which can continue.
    pub fn into_kernel<S: AsFd>(self, socket: S) -> Result<Tx<S>, KernelRefused<S>> {
        handover::tx(socket, &self.cipher.keys.crypto_info(self.sequence)).map_err(|refused| KernelRefused {
            sealer: self,
            socket: refused.socket,
            error: refused.error,
        })
    }

    /// The number of the next record, and the keys.
    pub(crate) fn into_parts(self) -> (u64, TrafficKeys) {
        (self.sequence, self.cipher.keys)
    }

    /// Continues under the next keys of the direction, from record 0. The old keys are wiped.
    pub fn replace_keys(&mut self, keys: TrafficKeys) {
        *self = Self::new(keys, 0, self.limit);
    }

    /// Frees what the next record can make again: 600 bytes.
    pub fn rest(&mut self) {
        self.cipher.rest();
    }

    /// The number of bytes before a record's payload.
    pub fn prefix_len(&self) -> usize {
        self.cipher.layout().prefix()
    }

    /// The length of a whole record with `payload` bytes.
    pub fn sealed_len(&self, payload: usize) -> usize {
        let layout = self.cipher.layout();
        layout.prefix() + payload + layout.suffix()
    }

    /// The number of the next record.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The number of records of application data that this key may still seal.
    pub fn records_left(&self) -> u64 {
        self.limit.saturating_sub(self.sequence)
    }

    /// Seals `record` in place. It consists of [`Self::prefix_len`] free bytes, the payload, and free bytes up to
    /// [`Self::sealed_len`].
    ///
    /// # Errors
    /// [`SealError::KeyExhausted`] at the key's limit.
    ///
    /// # Panics
    /// `record` is shorter than an empty record or its payload is longer than [`MAX_PLAINTEXT`].
    pub fn seal(&mut self, content_type: ContentType, record: &mut [u8]) -> Result<(), SealError> {
        let spare = if content_type == ContentType::ApplicationData { 0 } else { RESERVE };
        if self.sequence >= self.limit.saturating_add(spare) {
            return Err(SealError::KeyExhausted);
        }
        let layout = self.cipher.layout();
        let prefix = layout.prefix();
        let payload = record.len() - prefix - layout.suffix();
        assert!(payload <= MAX_PLAINTEXT, "a record takes at most {MAX_PLAINTEXT} bytes");
        let wire_len = ((record.len() - HEADER_LEN) as u16).to_be_bytes();
        let tag_at = record.len() - TAG_LEN;

        let outer_type = match layout.version {
            Version::Tls12 => content_type as u8,
            Version::Tls13 => {
                record[prefix + payload] = content_type as u8;
                ContentType::ApplicationData as u8
            }
        };
        let header = [outer_type, 3, 3, wire_len[0], wire_len[1]];
        record[..HEADER_LEN].copy_from_slice(&header);
        let (key, iv) = self.cipher.expanded();
        let nonce = match layout.nonces {
            Nonces::Implicit => implicit_nonce(iv, self.sequence),
            Nonces::Explicit => {
                let explicit = nonce::explicit(iv, self.sequence);
                record[HEADER_LEN..prefix].copy_from_slice(&explicit);
                let mut nonce = *iv;
                nonce[4..].copy_from_slice(&explicit);
                nonce
            }
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        let text = &mut record[prefix..tag_at];
        let tag = match layout.version {
            Version::Tls13 => key.seal_in_place_separate_tag(nonce, Aad::from(header), text),
            Version::Tls12 => {
                let aad = aad_tls12(self.sequence, [outer_type, 3, 3], payload);
                key.seal_in_place_separate_tag(nonce, Aad::from(aad), text)
            }
        }
        .expect("an AEAD seals any record of at most 16 KiB");
        record[tag_at..].copy_from_slice(tag.as_ref());
        self.sequence += 1;
        Ok(())
    }
}
