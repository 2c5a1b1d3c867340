//! One direction's keys, in the kernel's layout.

use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::nonce::Explicit;
use crate::sys::sockopt;
use crate::sys::uapi::{HEADER_LEN, MAX_LEN, SEQUENCE_LEN};
use crate::{AeadKey, Cipher, Error, Operation, Version};

/// Version, key, IV and sequence number of one direction, as the kernel's `struct tls12_crypto_info_*`.
///
/// The bytes stay in one heap allocation, so that a move leaves no copy. They are wiped on drop and never printed. It
/// is not `Clone`: the same key and sequence number given to two sealers would repeat a nonce.
pub struct CryptoInfo {
    version: Version,
    cipher: Cipher,
    sequence: u64,
    bytes: Box<Zeroizing<[u8; MAX_LEN]>>,
}

impl CryptoInfo {
    /// TLS 1.3 (RFC 8446 §5.3): `iv` is the traffic IV, `sequence` the number of the next record under `key`.
    ///
    /// `sequence` counts every record already sealed under `key`, including session tickets and earlier application
    /// data. The nonce is `iv` XOR sequence, so a sequence number that is too low repeats a nonce, which gives the key
    /// away.
    pub fn tls13(key: &AeadKey, iv: &[u8; 12], sequence: u64) -> Self {
        Self::new(Version::Tls13, key, iv, sequence)
    }

    /// TLS 1.2: `sequence` is the number of the next record under `key`.
    ///
    /// CHACHA20-POLY1305 (RFC 7905 §2): `iv` is the write IV of the key block.
    ///
    /// All others (RFC 5288 §3, RFC 6655 §3, RFC 6209 §2): `iv[..4]` is the salt of the key block, and `iv[4..]` **is the explicit nonce of
    /// the very next record**, a big-endian number that the kernel increments with each record.
    ///
    /// # The nonce trap
    ///
    /// Two records under one key with one explicit nonce give away the XOR of their plaintexts and the authentication
    /// key. So `iv[4..]` and all numbers that follow it must differ from every explicit nonce that the handshake's
    /// library already used under this key. Libraries choose theirs in different ways: a plain counter that equals the
    /// sequence number (OpenSSL starts it at a random value), or a random value E XOR the sequence number (rustls). In
    /// the second case extraction returns E, which was the nonce of record 0, the Finished message: passing it on
    /// unchanged repeats it. A series that begins 2^63 away from E does not meet the nonces of the handshake before
    /// some 2^63 records: see [`nonce::apart_from_rustls`](crate::nonce::apart_from_rustls).
    /// [`tls12_after`](Self::tls12_after) handles these ways, and with the feature `rustls`, `CryptoInfo::from_rustls`
    /// does too.
    pub fn tls12(key: &AeadKey, iv: &[u8; 12], sequence: u64) -> Self {
        Self::new(Version::Tls12, key, iv, sequence)
    }

    /// TLS 1.2 with GCM or CCM, for a library whose choice of explicit nonces is known. This avoids the nonce trap of
    /// [`tls12`](Self::tls12). It matters for the sending direction only: a receiver reads each nonce from its record,
    /// so it accepts any `used`.
    ///
    /// `salt` is the first 4 bytes of the write IV, `sequence` the number of the next record under `key`.
    ///
    /// `None`: CHACHA20-POLY1305, which has no explicit nonce. Use [`tls12`](Self::tls12).
    pub fn tls12_after(key: &AeadKey, salt: [u8; 4], used: Explicit, sequence: u64) -> Option<Self> {
        if key.cipher() == Cipher::Chacha20Poly1305 {
            return None;
        }
        let mut iv = [0; 12];
        iv[..4].copy_from_slice(&salt);
        iv[4..].copy_from_slice(&used.first_unused(sequence).to_be_bytes());
        Some(Self::tls12(key, &iv, sequence))
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

    fn new(version: Version, key: &AeadKey, iv: &[u8; 12], sequence: u64) -> Self {
        let cipher = key.cipher();
        let layout = cipher.layout();
        // The kernel puts salt before iv to make the 12-byte nonce, but holds them apart in the structure.
        let (salt, explicit) = iv.split_at(layout.salt);
        let mut bytes = Box::new(Zeroizing::new([0; MAX_LEN]));
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

    /// The structure for `setsockopt(SOL_TLS, TLS_TX)` or `TLS_RX`, exactly as long as the kernel demands: for programs
    /// that make the call themselves, for instance by io_uring. The numbers are in [`uapi`](crate::uapi);
    /// [`Tx::adopt`](crate::Tx::adopt) and [`Rx::adopt`](crate::Rx::adopt) then take over the socket.
    ///
    /// **Secret**: it contains the key. Do not copy it to memory that is not wiped, print it, or let it outlive the
    /// call. It must stay in place until the call is complete. Installing it twice repeats nonces.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.cipher.layout().size()]
    }
}

impl fmt::Debug for CryptoInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CryptoInfo({}, {}, record {})", self.version, self.cipher, self.sequence)
    }
}

/// Reads the version and cipher of a direction's keys from the kernel.
pub(crate) fn suite_of(fd: BorrowedFd<'_>, option: i32) -> Result<(Version, Cipher), Error> {
    let suite = sockopt::suite(fd, option).map_err(|errno| Error::from_errno(Operation::Sequence, errno))?;
    let Some((version, cipher)) = suite else {
        return Err(Error::misuse(Operation::Sequence, "the socket has no keys in this direction: hand over first"));
    };
    Version::from_uapi(version).zip(Cipher::from_uapi(cipher)).ok_or(Error::unsupported(
        Operation::Sequence,
        "the keys are for a version or cipher that sealion-ktls does not know",
    ))
}

/// Reads a direction's current sequence number from the kernel.
pub(crate) fn live_sequence(fd: BorrowedFd<'_>, option: i32, cipher: Cipher) -> Result<u64, Errno> {
    let info = sockopt::keys(fd, option, cipher.layout().size())?;
    sequence_in(cipher, info.as_slice()).ok_or(Errno::INVAL)
}

/// The sequence number in a structure filled by `getsockopt`.
fn sequence_in(cipher: Cipher, bytes: &[u8]) -> Option<u64> {
    let at = cipher.layout().sequence();
    let field = bytes.get(HEADER_LEN..)?.get(at - HEADER_LEN..)?;
    let field: [u8; SEQUENCE_LEN] = field.get(..SEQUENCE_LEN)?.try_into().ok()?;
    Some(u64::from_be_bytes(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IV: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

    /// Compares each field byte for byte, for each version and cipher.
    #[test]
    fn layout_is_the_kernels() {
        for version in Version::ALL {
            for cipher in Cipher::ALL {
                let key = vec![0xEE; cipher.key_len()];
                let info = CryptoInfo::new(
                    version,
                    &AeadKey::from_bytes(cipher, &key).expect("a key of its length"),
                    &IV,
                    0x0102_0304_0506_0708,
                );
                let number: u16 = match cipher {
                    Cipher::Aes128Gcm => 51,
                    Cipher::Aes256Gcm => 52,
                    Cipher::Aes128Ccm => 53,
                    Cipher::Chacha20Poly1305 => 54,
                    Cipher::Sm4Gcm => 55,
                    Cipher::Sm4Ccm => 56,
                    Cipher::Aria128Gcm => 57,
                    Cipher::Aria256Gcm => 58,
                };
                let wire: u16 = if version == Version::Tls12 { 0x0303 } else { 0x0304 };
                let (salt, iv) = IV.split_at(if cipher == Cipher::Chacha20Poly1305 { 0 } else { 4 });
                let sequence = [1, 2, 3, 4, 5, 6, 7, 8];
                let expected = [&wire.to_ne_bytes()[..], &number.to_ne_bytes(), iv, &key, salt, &sequence].concat();
                assert_eq!(info.as_bytes(), expected, "{version} {cipher}");
                assert_eq!(sequence_in(cipher, info.as_bytes()), Some(0x0102_0304_0506_0708));
                assert_eq!((info.version(), info.cipher()), (version, cipher));
                assert_eq!(Cipher::from_uapi(number), Some(cipher));
                assert_eq!(Version::from_uapi(wire), Some(version));
            }
        }
    }

    #[test]
    fn keys_of_a_wrong_length_do_not_exist() {
        for cipher in Cipher::ALL {
            for len in (0..40).filter(|&len| len != cipher.key_len()) {
                assert!(AeadKey::from_bytes(cipher, &vec![0; len]).is_none(), "{cipher} {len}");
            }
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let key = AeadKey::from_bytes(Cipher::Aes128Gcm, &[0xAB; 16]).expect("a key of its length");
        let info = CryptoInfo::tls13(&key, &IV, 7);
        assert_eq!(format!("{info:?}"), "CryptoInfo(TLS 1.3, AES-128-GCM, record 7)");
        assert_eq!(format!("{key:?}"), "AeadKey(AES-128-GCM)");
    }

    #[test]
    fn sequence_in_a_short_answer_is_none() {
        for len in 0..40 {
            assert_eq!(sequence_in(Cipher::Aes128Gcm, &vec![0; len]), None);
        }
    }
}
