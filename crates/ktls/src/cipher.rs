//! The protocol versions and AEADs of the kernel, and keys for them.

use std::fmt;

use zeroize::Zeroizing;

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

    /// The version with the number `id` in `linux/tls.h`.
    pub(crate) fn from_uapi(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.uapi() == id)
    }

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
///
/// The numbers are fixed. Which ciphers a kernel supports depends on the modules it was built with: ask
/// [`probe`](crate::probe).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cipher {
    /// AES-128-GCM, RFC 5288 and RFC 8446.
    Aes128Gcm,
    /// AES-256-GCM, RFC 5288 and RFC 8446.
    Aes256Gcm,
    /// ChaCha20-Poly1305, RFC 7905 and RFC 8446.
    Chacha20Poly1305,
    /// AES-128-CCM with a 16-byte tag, RFC 6655 and RFC 8446.
    Aes128Ccm,
    /// SM4-GCM, RFC 8998, with a key of 16 bytes.
    Sm4Gcm,
    /// SM4-CCM, RFC 8998, with a key of 16 bytes.
    Sm4Ccm,
    /// ARIA-128-GCM, RFC 6209. TLS 1.2 only: the kernel refuses it for TLS 1.3.
    Aria128Gcm,
    /// ARIA-256-GCM, RFC 6209. TLS 1.2 only: the kernel refuses it for TLS 1.3.
    Aria256Gcm,
}

impl Cipher {
    /// Every cipher of `linux/tls.h`, the common ones first.
    pub const ALL: [Self; 8] = [
        Self::Aes128Gcm,
        Self::Aes256Gcm,
        Self::Chacha20Poly1305,
        Self::Aes128Ccm,
        Self::Sm4Gcm,
        Self::Sm4Ccm,
        Self::Aria128Gcm,
        Self::Aria256Gcm,
    ];

    /// Bytes that sealing adds to each record: header, explicit nonce (TLS 1.2, all but ChaCha), content type (TLS 1.3)
    /// and tag. RFC 5246 §6.2.3.3, RFC 7905 §2, RFC 8446 §5.2.
    pub const fn overhead(self, version: Version) -> u64 {
        match (version, self) {
            (Version::Tls13, _) => 5 + 1 + 16,
            (Version::Tls12, Self::Chacha20Poly1305) => 5 + 16,
            (Version::Tls12, _) => 5 + 8 + 16,
        }
    }

    /// The maximum number of records to seal under one key. The kernel does not enforce it.
    ///
    /// SPEC. AES-GCM: 2^24.5 full records (RFC 8446 §5.5). CCM: 2^23 (RFC 9147 §4.5.3). ChaCha20-Poly1305: bounded by
    /// the sequence number only (RFC 8446 §5.5). SM4 and ARIA get the limits of AES, because these bounds follow from
    /// the block size.
    pub const fn record_limit(self) -> u64 {
        match self {
            Self::Chacha20Poly1305 => u64::MAX,
            Self::Aes128Ccm | Self::Sm4Ccm => 1 << 23,
            Self::Aes128Gcm | Self::Aes256Gcm | Self::Sm4Gcm | Self::Aria128Gcm | Self::Aria256Gcm => 23_726_566,
        }
    }

    /// Length of the key in bytes, 16 or 32.
    pub const fn key_len(self) -> usize {
        self.layout().key
    }

    /// The cipher with the number `id` in `linux/tls.h`.
    pub(crate) fn from_uapi(id: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|cipher| cipher.layout().id == id)
    }

    /// The number and the field sizes in `struct tls12_crypto_info_*`.
    pub(crate) const fn layout(self) -> uapi::Layout {
        match self {
            Self::Aes128Gcm => uapi::AES_GCM_128,
            Self::Aes256Gcm => uapi::AES_GCM_256,
            Self::Chacha20Poly1305 => uapi::CHACHA20_POLY1305,
            Self::Aes128Ccm => uapi::AES_CCM_128,
            Self::Sm4Gcm => uapi::SM4_GCM,
            Self::Sm4Ccm => uapi::SM4_CCM,
            Self::Aria128Gcm => uapi::ARIA_GCM_128,
            Self::Aria256Gcm => uapi::ARIA_GCM_256,
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::Chacha20Poly1305 => "CHACHA20-POLY1305",
            Self::Aes128Ccm => "AES-128-CCM",
            Self::Sm4Gcm => "SM4-GCM",
            Self::Sm4Ccm => "SM4-CCM",
            Self::Aria128Gcm => "ARIA-128-GCM",
            Self::Aria256Gcm => "ARIA-256-GCM",
        })
    }
}

/// A traffic key. Its bytes lie in one place on the heap, so that moving it leaves no copy; they are wiped on drop and never printed.
pub struct AeadKey {
    cipher: Cipher,
    bytes: Zeroizing<Box<[u8]>>,
}

impl AeadKey {
    /// A key for `cipher`. `None` if `bytes` does not have the length [`Cipher::key_len`].
    pub fn from_bytes(cipher: Cipher, bytes: &[u8]) -> Option<Self> {
        (bytes.len() == cipher.key_len()).then(|| Self { cipher, bytes: Zeroizing::new(bytes.into()) })
    }

    /// The cipher of the key.
    pub const fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The key bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The IV of one direction, in one heap allocation; wiped on drop.
pub type Iv = Box<Zeroizing<[u8; 12]>>;

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AeadKey({})", self.cipher)
    }
}
