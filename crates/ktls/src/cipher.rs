//! Protocol versions, AEADs and their keys, as far as the kernel knows them.

use std::fmt;

use zeroize::Zeroize;

use crate::sys::uapi;

/// A TLS version whose records the kernel can seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// TLS 1.2, RFC 5246.
    Tls12,
    /// TLS 1.3, RFC 8446.
    Tls13,
}

impl Version {
    /// Both versions, oldest first.
    pub const ALL: [Self; 2] = [Self::Tls12, Self::Tls13];

    /// The number in `struct tls_crypto_info`: 0x0303 or 0x0304.
    pub(crate) const fn uapi(self) -> u16 {
        match self {
            Self::Tls12 => uapi::TLS_1_2_VERSION,
            Self::Tls13 => uapi::TLS_1_3_VERSION,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        })
    }
}

/// An AEAD of `linux/tls.h`, without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cipher {
    /// AES-128-GCM, RFC 5288 and RFC 8446.
    Aes128Gcm,
    /// AES-256-GCM, RFC 5288 and RFC 8446.
    Aes256Gcm,
    /// ChaCha20-Poly1305, RFC 7905 and RFC 8446.
    Chacha20Poly1305,
}

impl Cipher {
    /// Every cipher this crate can hand over.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::Chacha20Poly1305];

    /// Bytes that sealing adds to each record: header, explicit nonce (TLS 1.2 AES only), content type (TLS 1.3 only)
    /// and tag. RFC 5246 §6.2.3.3, RFC 7905 §2, RFC 8446 §5.2.
    pub const fn overhead(self, version: Version) -> u64 {
        match (version, self) {
            (Version::Tls13, _) => 5 + 1 + 16,
            (Version::Tls12, Self::Chacha20Poly1305) => 5 + 16,
            (Version::Tls12, _) => 5 + 8 + 16,
        }
    }

    /// Length of the key in bytes.
    pub const fn key_len(self) -> usize {
        self.layout().key
    }

    /// The number and the field sizes in `struct tls12_crypto_info_*`.
    pub(crate) const fn layout(self) -> uapi::Layout {
        match self {
            Self::Aes128Gcm => uapi::AES_GCM_128,
            Self::Aes256Gcm => uapi::AES_GCM_256,
            Self::Chacha20Poly1305 => uapi::CHACHA20_POLY1305,
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::Chacha20Poly1305 => "CHACHA20-POLY1305",
        })
    }
}

/// A traffic key. Its bytes are wiped on drop and never printed.
pub enum AeadKey {
    /// For [`Cipher::Aes128Gcm`].
    Aes128Gcm([u8; 16]),
    /// For [`Cipher::Aes256Gcm`].
    Aes256Gcm([u8; 32]),
    /// For [`Cipher::Chacha20Poly1305`].
    Chacha20Poly1305([u8; 32]),
}

impl AeadKey {
    /// The cipher that this key is for.
    pub const fn cipher(&self) -> Cipher {
        match self {
            Self::Aes128Gcm(_) => Cipher::Aes128Gcm,
            Self::Aes256Gcm(_) => Cipher::Aes256Gcm,
            Self::Chacha20Poly1305(_) => Cipher::Chacha20Poly1305,
        }
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Aes128Gcm(key) => key,
            Self::Aes256Gcm(key) | Self::Chacha20Poly1305(key) => key,
        }
    }
}

impl Drop for AeadKey {
    fn drop(&mut self) {
        match self {
            Self::Aes128Gcm(key) => key.zeroize(),
            Self::Aes256Gcm(key) | Self::Chacha20Poly1305(key) => key.zeroize(),
        }
    }
}

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AeadKey({})", self.cipher())
    }
}
