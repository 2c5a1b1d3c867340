//! Seals records by hand, with any type, padding and length, valid or not. Shares only the conversion of rustls'
//! secrets with the record layer under test.

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use sealion_ktls::{AeadKey, Cipher, Version};

pub(super) struct HandSealer {
    version: Version,
    cipher: Cipher,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl HandSealer {
    pub(super) fn new(version: Version, secrets: &ConnectionTrafficSecrets, sequence: u64) -> Self {
        let (key, iv) = AeadKey::from_rustls(version, secrets).expect("the client offered three AEADs");
        let cipher = key.cipher();
        let algorithm = match cipher {
            Cipher::Aes128Gcm => &aws_lc_rs::aead::AES_128_GCM,
            Cipher::Aes256Gcm => &aws_lc_rs::aead::AES_256_GCM,
            Cipher::Chacha20Poly1305 => &aws_lc_rs::aead::CHACHA20_POLY1305,
            other => panic!("the client did not offer {other}"),
        };
        let key = UnboundKey::new(algorithm, key.as_bytes()).expect("rustls' key fits its AEAD");
        Self { version, cipher, key: LessSafeKey::new(key), iv: **iv, sequence }
    }

    /// One record. In TLS 1.3 `inner` is the whole TLSInnerPlaintext, with its type and padding, and `outer_type` stays
    /// in plain text; in TLS 1.2 `outer_type` is the type and `inner` the content.
    pub(super) fn seal(&mut self, outer_type: u8, inner: &[u8]) -> Vec<u8> {
        let sequence = self.sequence.to_be_bytes();
        self.sequence += 1;
        let mut nonce = self.iv;
        let mut explicit: &[u8] = &[];
        if self.version == Version::Tls12 && self.cipher != Cipher::Chacha20Poly1305 {
            // The IV is far from the numbers that rustls used for the handshake's records.
            for (byte, seq) in nonce[4..].iter_mut().zip(sequence) {
                *byte ^= seq;
            }
            explicit = &nonce[4..];
        } else {
            for (byte, seq) in nonce[4..].iter_mut().zip(sequence) {
                *byte ^= seq;
            }
        }
        let len = u16::try_from(explicit.len() + inner.len() + 16).expect("a length of two bytes");
        let mut record = vec![outer_type, 3, 3];
        record.extend(len.to_be_bytes());
        let aad = match self.version {
            Version::Tls13 => record.clone(),
            Version::Tls12 => {
                let content_len = (inner.len() as u16).to_be_bytes();
                [&sequence[..], &[outer_type, 3, 3], &content_len].concat()
            }
        };
        record.extend(explicit);
        let mut sealed = inner.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut sealed).expect("an AEAD seals 64 KiB");
        record.extend(sealed);
        record
    }
}
