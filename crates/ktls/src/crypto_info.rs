//! One direction's keys, in the kernel's layout.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::sys::uapi::{HEADER_LEN, MAX_LEN, SEQUENCE_LEN};
use crate::{AeadKey, Cipher, Version};

/// Version, key, IV and sequence number of one direction, as the kernel's `struct tls12_crypto_info_*`.
///
/// The bytes are wiped on drop and never printed. It is not `Clone`: the same key and sequence number given to two
/// sealers would repeat a nonce.
pub struct CryptoInfo {
    version: Version,
    cipher: Cipher,
    sequence: u64,
    bytes: [u8; MAX_LEN],
}

impl CryptoInfo {
    /// TLS 1.3 (RFC 8446 §5.3): `iv` is the traffic IV, `sequence` the number of the next record under `key`.
    ///
    /// Every record already sealed under `key` counts, session tickets and earlier application data too. The nonce is
    /// `iv` XOR sequence, so a sequence number that is too low repeats a nonce, which gives the key away.
    pub fn tls13(key: AeadKey, iv: [u8; 12], sequence: u64) -> Self {
        Self::new(Version::Tls13, key, iv, sequence)
    }

    /// TLS 1.2: `sequence` is the number of the next record under `key`.
    ///
    /// CHACHA20-POLY1305 (RFC 7905 §2): `iv` is the write IV of the key block.
    ///
    /// AES (RFC 5288 §3, RFC 6655): `iv[..4]` is the salt of the key block, and `iv[4..]` **is the explicit nonce of
    /// the very next record**, a big-endian number that the kernel increments with each record.
    ///
    /// # The nonce trap
    ///
    /// Two records under one key with one explicit nonce give away the XOR of their plaintexts and the authentication
    /// key. So `iv[4..]` and all numbers that follow it must differ from every explicit nonce already used under this
    /// key by the library that did the handshake. Libraries choose theirs in different ways: a plain counter that equals the
    /// sequence number (OpenSSL starts it at a random value), or a random value XOR the sequence number (rustls). For
    /// the latter, the value that extraction returns is the nonce of record 0, the Finished message: passing it on
    /// unchanged repeats it. There `iv[4] = (iv[4] ^ 0x80) & !0x40` is safe: the nonces `E ^ seq` already used keep the
    /// top bit of `E`, the kernel's have the other, and the cleared bit below it keeps 2^62 increments from
    /// carrying into it.
    pub fn tls12(key: AeadKey, iv: [u8; 12], sequence: u64) -> Self {
        Self::new(Version::Tls12, key, iv, sequence)
    }

    /// The protocol version.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The cipher of the key.
    pub const fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The number of the first record to be sealed or opened.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    fn new(version: Version, key: AeadKey, iv: [u8; 12], sequence: u64) -> Self {
        let cipher = key.cipher();
        let layout = cipher.layout();
        let iv = Zeroizing::new(iv);
        // The kernel puts salt before iv to make the 12-byte nonce, but holds them apart in the structure.
        let (salt, explicit) = iv.split_at(layout.salt);
        let mut bytes = [0; MAX_LEN];
        let mut rest = bytes.as_mut_slice();
        for field in [
            &version.uapi().to_ne_bytes(),
            &layout.id.to_ne_bytes(),
            explicit,
            key.as_bytes(),
            salt,
            &sequence.to_be_bytes(),
        ] {
            let (to, after) = rest.split_at_mut(field.len());
            to.copy_from_slice(field);
            rest = after;
        }
        Self { version, cipher, sequence, bytes }
    }

    /// The structure for `setsockopt`, exactly as long as the kernel demands.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.cipher.layout().size()]
    }
}

impl Drop for CryptoInfo {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for CryptoInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CryptoInfo({}, {}, record {})", self.version, self.cipher, self.sequence)
    }
}

/// The sequence number inside a structure that `getsockopt` filled.
pub(crate) fn sequence_in(cipher: Cipher, bytes: &[u8]) -> Option<u64> {
    let at = cipher.layout().sequence();
    let field = bytes.get(HEADER_LEN..)?.get(at - HEADER_LEN..)?;
    let field: [u8; SEQUENCE_LEN] = field.get(..SEQUENCE_LEN)?.try_into().ok()?;
    Some(u64::from_be_bytes(field))
}
