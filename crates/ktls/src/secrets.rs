//! Converts rustls' traffic secrets to the kernel's structure. Feature `rustls`.

use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

use crate::{AeadKey, Cipher, CryptoInfo, Error, Iv, Operation, Version, nonce};

impl CryptoInfo {
    /// One direction's secrets, as rustls extracts them, for [`handover::tx`](crate::handover::tx) or
    /// [`handover::rx`](crate::handover::rx).
    ///
    /// `sequence` is the number extracted with `secrets`, plus the number of records sealed or opened since.
    ///
    /// TLS 1.2 with AES-GCM: the explicit nonces begin 2^63 away from rustls' own, so that none repeats
    /// ([`nonce::apart_from_rustls`]). They depend on `secrets` and `sequence` alone, so a second attempt after a
    /// failed handover continues at the same nonce. Records sealed elsewhere under these secrets after the extraction
    /// must have used the numbers of [`nonce::explicit`].
    ///
    /// `Unsupported` ([`Operation::Secrets`]): this crate does not know the AEAD.
    pub fn from_rustls(version: Version, secrets: &ConnectionTrafficSecrets, sequence: u64) -> Result<Self, Error> {
        let (key, mut iv) = AeadKey::from_rustls(version, secrets)?;
        Ok(match (version, key.cipher()) {
            (Version::Tls13, _) => Self::tls13(&key, &iv, sequence),
            (Version::Tls12, Cipher::Chacha20Poly1305) => Self::tls12(&key, &iv, sequence),
            (Version::Tls12, _) => {
                let next = nonce::explicit(&iv, sequence);
                iv[4..].copy_from_slice(&next);
                Self::tls12(&key, &iv, sequence)
            }
        })
    }
}

impl AeadKey {
    /// The key and IV among one direction's secrets, for record layers in user space.
    ///
    /// TLS 1.2 with AES-GCM: the IV begins a series of explicit nonces that stays clear of rustls' own
    /// ([`nonce::apart_from_rustls`]); record `n` has the nonce [`nonce::explicit`]`(iv, n)`.
    ///
    /// `Unsupported` ([`Operation::Secrets`]): this crate does not know the AEAD.
    pub fn from_rustls(version: Version, secrets: &ConnectionTrafficSecrets) -> Result<(Self, Iv), Error> {
        const UNKNOWN: Error =
            Error::unsupported(Operation::Secrets, "an AEAD that the kernel does not know: stay in user space");
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::Chacha20Poly1305, key, iv),
            _ => return Err(UNKNOWN),
        };
        let key = Self::from_bytes(cipher, key.as_ref()).ok_or(UNKNOWN)?;
        let mut own = Iv::default();
        own.copy_from_slice(iv.as_ref().get(..12).ok_or(UNKNOWN)?);
        if version == Version::Tls12 && cipher != Cipher::Chacha20Poly1305 {
            nonce::apart_from_rustls(&mut own);
        }
        Ok((key, own))
    }
}

/// `Unsupported` ([`Operation::Secrets`]): the version is neither TLS 1.2 nor 1.3.
impl TryFrom<ProtocolVersion> for Version {
    type Error = Error;

    fn try_from(version: ProtocolVersion) -> Result<Self, Error> {
        match version {
            ProtocolVersion::TLSv1_2 => Ok(Self::Tls12),
            ProtocolVersion::TLSv1_3 => Ok(Self::Tls13),
            _ => Err(Error::unsupported(Operation::Secrets, "the kernel knows TLS 1.2 and 1.3: stay in user space")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    const IV: [u8; 12] = [1, 2, 3, 4, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE];

    /// The bytes after the version and the cipher: iv, key, salt, sequence.
    fn fields(info: &CryptoInfo) -> &[u8] {
        &info.as_bytes()[4..]
    }

    #[test]
    fn gcm_in_tls_1_2_begins_far_from_the_handshake_and_counts_on() {
        let secrets = ConnectionTrafficSecrets::Aes256Gcm { key: [0xEE; 32].into(), iv: IV.into() };
        let info = CryptoInfo::from_rustls(Version::Tls12, &secrets, 3).expect("known");
        let explicit = 0xFFFF_FFFF_FFFF_FFFE_u64.wrapping_add(3).to_be_bytes();
        let expected = [&explicit[..], &[0xEE; 32], &IV[..4], &3_u64.to_be_bytes()].concat();
        assert_eq!(fields(&info), expected);
        assert_eq!((info.version(), info.cipher(), info.sequence()), (Version::Tls12, Cipher::Aes256Gcm, 3));
    }

    /// If the nonce is IV xor sequence, the IV is passed on unchanged.
    #[test]
    fn implicit_nonces_keep_the_iv() {
        let gcm = ConnectionTrafficSecrets::Aes256Gcm { key: [0xEE; 32].into(), iv: IV.into() };
        let info = CryptoInfo::from_rustls(Version::Tls13, &gcm, 1).expect("known");
        assert_eq!(fields(&info), [&IV[4..], &[0xEE; 32], &IV[..4], &1_u64.to_be_bytes()].concat());
        let chacha = ConnectionTrafficSecrets::Chacha20Poly1305 { key: [0xEE; 32].into(), iv: IV.into() };
        for version in Version::ALL {
            let info = CryptoInfo::from_rustls(version, &chacha, 1).expect("known");
            assert_eq!(fields(&info), [&IV[..], &[0xEE; 32], &1_u64.to_be_bytes()].concat());
        }
    }

    #[test]
    fn a_key_of_another_length_is_refused() {
        let secrets = ConnectionTrafficSecrets::Aes128Gcm { key: [0xEE; 32].into(), iv: IV.into() };
        let error = CryptoInfo::from_rustls(Version::Tls13, &secrets, 0).expect_err("32 bytes for AES-128");
        assert_eq!((error.kind(), error.operation()), (Kind::Unsupported, Operation::Secrets));
    }

    #[test]
    fn versions_without_kernel_support_are_refused() {
        assert_eq!(Version::try_from(ProtocolVersion::TLSv1_2), Ok(Version::Tls12));
        assert_eq!(Version::try_from(ProtocolVersion::TLSv1_3), Ok(Version::Tls13));
        assert_eq!(Version::try_from(ProtocolVersion::TLSv1_1).map_err(|e| e.kind()), Err(Kind::Unsupported));
    }
}
