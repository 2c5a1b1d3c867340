//! The explicit nonces of TLS 1.2 (RFC 5288 §3): each key has one series, shared by user space and kernel.

/// Changes rustls' IV so that its nonce series avoids the nonces that rustls has used under the same key.
///
/// `iv` is the salt and the explicit part as rustls extracts them. rustls gave record `n` of the handshake the explicit
/// nonce `E xor n`, where `E` is the explicit part, so `E` itself was the nonce of record 0, the Finished message. The
/// new series begins 2^63 away from `E`, and record `n` gets the n-th number after its begin ([`explicit`]).
///
/// `E xor n` is at most n away from `E`. After `m` handshake records the series therefore repeats a nonce only past
/// record 2^63 − m, which no connection reaches.
///
/// RFC 5288 §3 lets the sealer choose, and the peer reads each nonce from the record.
pub const fn apart_from_rustls(iv: &mut [u8; 12]) {
    iv[4] ^= 0x80;
}

/// How a TLS library chose the explicit nonces of records sealed under a TLS 1.2 key with GCM or CCM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Explicit {
    /// A number that increases by one with each record, from any start, as in OpenSSL.
    Counting {
        /// The nonce of the library's next record. In OpenSSL it is the last 8 bytes of the cipher context's IV after
        /// the last record.
        next: u64,
    },
    /// The sequence number itself, as in Go's crypto/tls.
    Sequence,
    /// `base` XOR the sequence number, as in rustls.
    Xor {
        /// The explicit part of the extracted IV: `iv[4..12]` of rustls' secrets, as a big-endian number.
        base: u64,
    },
}

impl Explicit {
    /// A nonce for the record `sequence`, such that neither it nor its successors were used before.
    pub const fn first_unused(self, sequence: u64) -> u64 {
        match self {
            Self::Counting { next } => next,
            Self::Sequence => sequence,
            Self::Xor { base } => (base ^ (1 << 63)).wrapping_add(sequence),
        }
    }
}

/// The explicit nonce of the record `sequence` in the series of `iv`: `iv[4..]` as a big-endian number, plus `sequence`, modulo 2^64.
///
/// The kernel increments in the same way (`net/tls/tls.h`, `tls_advance_record_sn`), so that user space and the kernel
/// can continue each other's series.
pub const fn explicit(iv: &[u8; 12], sequence: u64) -> [u8; 8] {
    let [_, _, _, _, base @ ..] = *iv;
    u64::from_be_bytes(base).wrapping_add(sequence).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the three ways, each with a handshake of 5 records.
    #[test]
    fn no_library_s_nonces_come_again() {
        let start = u64::MAX - 2;
        let (base, sequence) = (0x7FFF_FFFF_FFFF_FFFE, 5);
        let counting: Vec<u64> = (0..5).map(|n| start.wrapping_add(n)).collect();
        for (way, used) in [
            (Explicit::Counting { next: start.wrapping_add(5) }, counting),
            (Explicit::Sequence, (0..5).collect()),
            (Explicit::Xor { base }, (0..5).map(|n| base ^ n).collect()),
        ] {
            let first = way.first_unused(sequence);
            for n in (0..1000).chain([1 << 40, 1 << 62]) {
                assert!(!used.contains(&first.wrapping_add(n)), "{way:?} {n}");
            }
        }
        assert_eq!(Explicit::Counting { next: 2 }.first_unused(sequence), 2);
        assert_eq!(Explicit::Sequence.first_unused(sequence), 5);
        let mut iv = [7; 12];
        iv[4..].copy_from_slice(&base.to_be_bytes());
        apart_from_rustls(&mut iv);
        assert_eq!(Explicit::Xor { base }.first_unused(sequence).to_be_bytes(), explicit(&iv, sequence));
    }

    /// For any `E`, the first nonces of the two series have no number in common.
    #[test]
    fn series_do_not_meet() {
        for e in [0, 1, 2, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 0x5555_5555_5555_5555, 0x7FFF_FFFF_FFFF_FFF0]
        {
            let mut extracted = [7; 12];
            extracted[4..].copy_from_slice(&e.to_be_bytes());
            let mut iv = extracted;
            apart_from_rustls(&mut iv);
            assert_eq!(iv[..4], extracted[..4], "the salt stays");
            let handshake: Vec<u64> = (0..300).map(|n| e ^ n).collect();
            for n in (0..300).chain([1 << 40, (1 << 62) - 1, 1 << 62, (1 << 63) - 600]) {
                let number = u64::from_be_bytes(explicit(&iv, n));
                assert!(!handshake.contains(&number), "{e:x} {n}");
                assert_eq!(u64::from_be_bytes(explicit(&iv, n + 1)), number.wrapping_add(1));
            }
        }
    }
}
