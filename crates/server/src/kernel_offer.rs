//! What the kernel offers: probed once at the start, and suspended for a while when it refuses later.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use sealion_ktls::probe::Probe;
use sealion_ktls::{Cipher, Operation};
use sealion_tls::HandshakeInfo;

use crate::send_policy::Offer;

/// How long the kernel is not asked again after its TLS layer was found missing. GUESS: each question may make the
/// kernel start a module loader, and nobody loads a module every minute.
const SUSPENSION: Duration = Duration::from_secs(60);

/// What this kernel offers.
#[derive(Debug)]
pub struct KernelOffer {
    probe: Probe,
    suspended_until: Mutex<Option<Instant>>,
}

impl KernelOffer {
    /// From what probing found.
    pub fn new(probe: Probe) -> Self {
        Self { probe, suspended_until: Mutex::new(None) }
    }

    /// Whether the kernel could take a connection like this one.
    pub fn for_connection(&self, info: &HandshakeInfo) -> Offer {
        if !self.probe.any_tx() {
            return Offer::Absent;
        }
        let Some(cipher) = cipher_of(info.suite) else { return Offer::NoCipher };
        if self.probe.tx(info.version, cipher).is_err() {
            return Offer::NoCipher;
        }
        match *self.suspended_until.lock().unwrap_or_else(|e| e.into_inner()) {
            Some(until) if Instant::now() < until => Offer::Suspended,
            _ => Offer::Ready,
        }
    }

    /// Takes note of a refusal. A missing TLS layer concerns every connection: it is said once, and the kernel left
    /// alone for a while.
    pub fn refused(&self, error: &sealion_ktls::Error) {
        if error.operation() != Operation::SetUlp || error.kind() != sealion_ktls::Kind::Unsupported {
            return;
        }
        let mut until = self.suspended_until.lock().unwrap_or_else(|e| e.into_inner());
        let already = until.is_some_and(|until| Instant::now() < until);
        *until = Some(Instant::now() + SUSPENSION);
        if !already {
            tracing::warn!(
                "{error}. It was there at the start. All responses are sealed in user space; the kernel is asked again in {} s",
                SUSPENSION.as_secs()
            );
        }
    }
}

fn cipher_of(suite: &str) -> Option<Cipher> {
    [
        ("AES_128_GCM", Cipher::Aes128Gcm),
        ("AES_256_GCM", Cipher::Aes256Gcm),
        ("CHACHA20_POLY1305", Cipher::Chacha20Poly1305),
    ]
    .into_iter()
    .find_map(|(part, cipher)| suite.contains(part).then_some(cipher))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_its_cipher() {
        for (suite, cipher) in [
            ("TLS_AES_128_GCM_SHA256", Cipher::Aes128Gcm),
            ("TLS_AES_256_GCM_SHA384", Cipher::Aes256Gcm),
            ("TLS_CHACHA20_POLY1305_SHA256", Cipher::Chacha20Poly1305),
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Cipher::Aes128Gcm),
            ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", Cipher::Chacha20Poly1305),
        ] {
            assert_eq!(cipher_of(suite), Some(cipher));
        }
    }
}
