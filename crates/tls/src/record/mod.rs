//! The record layer in user space (RFC 8446 §5, RFC 5246 §6.2): keys, nonces, sealing, opening.
//!
//! One rule for the TLS 1.2 GCM explicit nonce serves both sealers: the record with sequence number `n` carries `base +
//! n`. The user-space sealer and the kernel therefore continue one series, and [`TrafficKeys`] starts that series away
//! from rustls' nonces of the handshake.

pub mod open;
pub mod seal;

pub use open::{OpenError, Opened, Opener};
pub use seal::{KernelRefused, SealError, Sealer};

use aws_lc_rs::aead::{self, LessSafeKey, UnboundKey};
use sealion_ktls::{AeadKey, Cipher, CryptoInfo, Iv, RecordType, Version, nonce};

/// Bytes of a record's header: type, version, length (RFC 8446 §5.1).
pub const HEADER_LEN: usize = 5;

/// The maximum plaintext length of a record (RFC 8446 §5.1).
pub const MAX_PLAINTEXT: usize = 1 << 14;

/// The maximum ciphertext length of a TLS 1.3 record (RFC 8446 §5.2).
pub const MAX_CIPHERTEXT_TLS13: usize = MAX_PLAINTEXT + 256;

/// The maximum ciphertext length of a TLS 1.2 record (RFC 5246 §6.2.3).
pub const MAX_CIPHERTEXT_TLS12: usize = MAX_PLAINTEXT + 2048;

/// The length of the authentication tag, the same for every AEAD here (RFC 5116 §5, RFC 8439 §2.8).
pub const TAG_LEN: usize = 16;

/// The type of a record (RFC 8446 §5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ContentType {
    /// Only before or during a handshake.
    ChangeCipherSpec = 20,
    /// Alerts, including `close_notify`.
    Alert = 21,
    /// Handshake messages; after the handshake KeyUpdate and session tickets.
    Handshake = 22,
    /// Application data.
    ApplicationData = 23,
}

impl ContentType {
    /// The content type of a byte on the wire.
    pub fn from_wire(byte: u8) -> Option<Self> {
        Some(match byte {
            20 => Self::ChangeCipherSpec,
            21 => Self::Alert,
            22 => Self::Handshake,
            23 => Self::ApplicationData,
            _ => return None,
        })
    }
}

impl From<ContentType> for RecordType {
    fn from(content_type: ContentType) -> Self {
        Self(content_type as u8)
    }
}

/// The AEADs that both sealers support, for either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aead {
    /// AES-128-GCM (RFC 5288, RFC 8446)
    Aes128Gcm,
    /// AES-256-GCM (RFC 5288, RFC 8446)
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 7905, RFC 8446)
    Chacha20Poly1305,
}

impl Aead {
    /// Every AEAD of the enum.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::Chacha20Poly1305];

    /// The kernel's cipher for this AEAD.
    pub fn cipher(self) -> Cipher {
        match self {
            Self::Aes128Gcm => Cipher::Aes128Gcm,
            Self::Aes256Gcm => Cipher::Aes256Gcm,
            Self::Chacha20Poly1305 => Cipher::Chacha20Poly1305,
        }
    }

    /// Bytes of a key.
    pub fn key_len(self) -> usize {
        self.algorithm().key_len()
    }

    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

/// The AEAD key and IV of one direction, in one heap allocation, so that a move leaves no copy; wiped on drop. A
/// [`Sealer`] takes ownership, but any number of [`Opener`]s may borrow them.
pub struct TrafficKeys {
    version: Version,
    aead: Aead,
    key: AeadKey,
    iv: Iv,
}

impl TrafficKeys {
    /// Keys as RFC 8446 §7.3 or RFC 5246 §6.3 derive them. For TLS 1.2 GCM the last eight bytes of `iv` are the base of
    /// the explicit nonce: record `n` carries `base + n`, so the caller chooses a base whose nonces no earlier record
    /// of this key has used.
    ///
    /// # Panics
    /// `key` does not have the length that `aead` needs.
    pub fn new(version: Version, aead: Aead, key: &[u8], iv: &[u8; 12]) -> Self {
        let key = AeadKey::from_bytes(aead.cipher(), key).expect("a key of its AEAD's length");
        let mut own = Iv::default();
        own.copy_from_slice(iv);
        Self { version, aead, key, iv: own }
    }

    /// The AEAD of the key.
    pub fn aead(&self) -> Aead {
        self.aead
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Key and IV.
    pub(crate) fn as_bytes(&self) -> (&[u8], &[u8; 12]) {
        (self.key.as_bytes(), &self.iv)
    }

    /// The kernel structure to seal from record 0 under these keys. Nothing else may then seal under them
    /// (linux/tls.h).
    pub(crate) fn into_crypto_info(self) -> CryptoInfo {
        self.crypto_info(0)
    }

    /// The kernel structure to seal record `sequence` next. If the kernel accepts it, the caller must stop sealing with
    /// these keys.
    fn crypto_info(&self, sequence: u64) -> CryptoInfo {
        match self.version {
            Version::Tls13 => CryptoInfo::tls13(&self.key, &self.iv, sequence),
            Version::Tls12 if Nonces::of(self) == Nonces::Implicit => CryptoInfo::tls12(&self.key, &self.iv, sequence),
            Version::Tls12 => {
                let mut iv = self.iv.clone();
                iv[4..].copy_from_slice(&nonce::explicit(&self.iv, sequence));
                CryptoInfo::tls12(&self.key, &iv, sequence)
            }
        }
    }

    /// For an [`Opener`] alone: a second [`Sealer`] would repeat nonces.
    fn to_open(&self) -> Self {
        let (key, iv) = self.as_bytes();
        Self::new(self.version, self.aead, key, iv)
    }
}

impl std::fmt::Debug for TrafficKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TrafficKeys({:?}, {:?})", self.version, self.aead)
    }
}

/// The keys of one direction, with the expanded key while records are sealed or opened: it takes 600 bytes, ten times
/// as much as the keys.
struct LazyCipher {
    keys: TrafficKeys,
    /// `None`: before the first record, and at rest.
    expanded: Option<LessSafeKey>,
}

impl LazyCipher {
    fn new(keys: TrafficKeys) -> Self {
        Self { keys, expanded: None }
    }

    /// The expanded key, and the IV.
    fn expanded(&mut self) -> (&LessSafeKey, &[u8; 12]) {
        let Self { keys, expanded } = self;
        let key = expanded.get_or_insert_with(|| {
            let key = UnboundKey::new(keys.aead.algorithm(), keys.key.as_bytes());
            LessSafeKey::new(key.expect("the length was checked when the keys were made"))
        });
        (key, &keys.iv)
    }

    /// Frees the expanded key. The next record expands it again, in less than a microsecond.
    fn rest(&mut self) {
        self.expanded = None;
    }

    fn layout(&self) -> Layout {
        Layout::of(&self.keys)
    }
}

/// How the nonce of a record is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nonces {
    /// IV xor sequence number (RFC 8446 §5.3, RFC 7905 §2).
    Implicit,
    /// Four fixed bytes, then eight bytes sent in the record (RFC 5288 §3).
    Explicit,
}

impl Nonces {
    fn of(keys: &TrafficKeys) -> Self {
        match (keys.version, keys.aead) {
            (Version::Tls12, Aead::Aes128Gcm | Aead::Aes256Gcm) => Self::Explicit,
            _ => Self::Implicit,
        }
    }
}

/// The parts of a record: header, explicit nonce, payload, inner type, tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    version: Version,
    nonces: Nonces,
}

impl Layout {
    fn of(keys: &TrafficKeys) -> Self {
        Self { version: keys.version, nonces: Nonces::of(keys) }
    }

    /// Bytes before the payload.
    fn prefix(self) -> usize {
        match self.nonces {
            Nonces::Implicit => HEADER_LEN,
            Nonces::Explicit => HEADER_LEN + 8,
        }
    }

    /// Bytes after the payload.
    fn suffix(self) -> usize {
        match self.version {
            Version::Tls12 => TAG_LEN,
            Version::Tls13 => 1 + TAG_LEN,
        }
    }

    fn max_ciphertext(self) -> usize {
        match self.version {
            Version::Tls12 => MAX_CIPHERTEXT_TLS12,
            Version::Tls13 => MAX_CIPHERTEXT_TLS13,
        }
    }
}

fn implicit_nonce(iv: &[u8; 12], sequence: u64) -> [u8; 12] {
    let mut nonce = *iv;
    for (byte, seq) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= seq;
    }
    nonce
}

/// The additional data of a TLS 1.2 record (RFC 5246 §6.2.3.3).
fn aad_tls12(sequence: u64, header: [u8; 3], plaintext_len: usize) -> [u8; 13] {
    let mut aad = [0; 13];
    aad[..8].copy_from_slice(&sequence.to_be_bytes());
    aad[8..11].copy_from_slice(&header);
    aad[11..].copy_from_slice(&(plaintext_len as u16).to_be_bytes());
    aad
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_keys() -> Vec<TrafficKeys> {
        let mut all = Vec::new();
        for version in [Version::Tls12, Version::Tls13] {
            for aead in Aead::ALL {
                let key = &[7; 32][..aead.key_len()];
                all.push(TrafficKeys::new(version, aead, key, b"0123\xff\xff\xff\xff\xff\xff\xff\xfe"));
            }
        }
        all
    }

    fn sealed(sealer: &mut Sealer, content_type: ContentType, payload: &[u8]) -> Vec<u8> {
        let mut record = vec![0; sealer.sealed_len(payload.len())];
        record[sealer.prefix_len()..][..payload.len()].copy_from_slice(payload);
        sealer.seal(content_type, &mut record).unwrap();
        record
    }

    fn both(keys: TrafficKeys, sequence: u64) -> (Sealer, Opener) {
        let opener = Opener::new(&keys, sequence);
        (Sealer::new(keys, sequence, 1 << 24), opener)
    }

    #[test]
    fn what_is_sealed_opens_again_at_every_length_that_matters() {
        for keys in all_keys() {
            let name = format!("{keys:?}");
            let (mut sealer, mut opener) = both(keys, 7);
            for len in [0, 1, 2, 15, 16, 17, 1023, 16383, 16384] {
                let payload: Vec<u8> = (0..len).map(|i| (i * 31) as u8).collect();
                let mut record = sealed(&mut sealer, ContentType::ApplicationData, &payload);
                let opened = opener.open(&mut record).unwrap();
                assert_eq!(opened.content_type, ContentType::ApplicationData);
                assert_eq!(record[opened.payload], payload, "{name} length {len}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_region_is_noticed() {
        for at in [0usize, 3, 4, 5, 13, 20, 100, 115, 116] {
            for keys in all_keys() {
                let name = format!("{keys:?}");
                let (mut sealer, mut opener) = both(keys, 0);
                let mut record = sealed(&mut sealer, ContentType::ApplicationData, &[9; 100]);
                if at >= record.len() {
                    continue;
                }
                record[at] ^= 1;
                assert!(opener.open(&mut record).is_err(), "{name} byte {at}");
            }
        }
    }

    #[test]
    fn a_record_out_of_order_is_refused() {
        for keys in all_keys() {
            let (mut sealer, mut opener) = both(keys, 0);
            let _first = sealed(&mut sealer, ContentType::ApplicationData, b"first");
            let mut second = sealed(&mut sealer, ContentType::ApplicationData, b"second");
            assert_eq!(opener.open(&mut second), Err(OpenError::BadRecordMac));
        }
    }

    #[test]
    fn a_record_opens_behind_one_that_was_passed_over() {
        for keys in all_keys() {
            let (mut sealer, mut opener) = both(keys, 0);
            let first = sealed(&mut sealer, ContentType::ApplicationData, b"first");
            let mut second = sealed(&mut sealer, ContentType::ApplicationData, b"second");
            assert_eq!(first.len() - opener.added_len(), b"first".len());
            opener.pass_over();
            let opened = opener.open(&mut second).unwrap();
            assert_eq!(&second[opened.payload], b"second");
        }
    }

    #[test]
    fn explicit_nonces_continue_one_series_across_wrap() {
        let keys = all_keys().swap_remove(0);
        let mut sealer = Sealer::new(keys, 0, 1 << 24);
        let nonces: Vec<[u8; 8]> = (0..4)
            .map(|_| sealed(&mut sealer, ContentType::ApplicationData, b"x")[5..13].try_into().unwrap())
            .collect();
        let base = u64::MAX - 1;
        let expected: Vec<[u8; 8]> = (0..4u64).map(|n| base.wrapping_add(n).to_be_bytes()).collect();
        assert_eq!(nonces, expected);
    }

    #[test]
    fn the_sealer_stops_at_the_limit_of_its_key() {
        for keys in all_keys() {
            let mut sealer = Sealer::new(keys, 0, 2);
            assert_eq!(sealer.records_left(), 2);
            sealed(&mut sealer, ContentType::ApplicationData, b"1");
            sealed(&mut sealer, ContentType::ApplicationData, b"2");
            let mut record = vec![0; sealer.sealed_len(1)];
            assert_eq!(sealer.seal(ContentType::ApplicationData, &mut record), Err(SealError::KeyExhausted));
            // An alert must still be sealed.
            let mut alert = vec![0; sealer.sealed_len(2)];
            assert_eq!(sealer.seal(ContentType::Alert, &mut alert), Ok(()));
        }
    }

    /// RFC 8448 §3 ("Simple 1-RTT Handshake"): the client's first application record.
    #[test]
    fn rfc_8448_application_record() {
        let hex = |s: &str| -> Vec<u8> {
            (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
        };
        let keys = TrafficKeys::new(
            Version::Tls13,
            Aead::Aes128Gcm,
            &hex("17422dda596ed5d9acd890e3c63f5051"),
            &hex("5b78923dee08579033e523d9").try_into().unwrap(),
        );
        let payload: Vec<u8> = (0..0x32).collect();
        let record = sealed(&mut Sealer::new(keys, 0, 10), ContentType::ApplicationData, &payload);
        assert_eq!(
            record,
            hex(concat!(
                "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f",
                "2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae6",
                "3aeebb21694915e4"
            ))
        );
    }
}
