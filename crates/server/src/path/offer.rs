//! What the kernel offers: probed and tested at the start, suspended for a while when it refuses later, and left alone
//! where it was seen to seal wrongly.

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use sealion_ktls::{Kind, Operation};
use sealion_ktls::probe::Probe;
use sealion_tls::{Version, canary};
use sealion_tls::record::Aead;

use crate::path::policy::{KtlsMode, Offer};

/// How long the kernel is not asked again after its TLS layer was found missing. GUESS: each question may make the
/// kernel start a module loader, and nobody loads a module every minute.
const SUSPENSION: Duration = Duration::from_secs(60);

/// What this kernel offers.
#[derive(Debug)]
pub struct KernelOffer {
    probe: Probe,
    started: Instant,
    /// Milliseconds after `started` until which the kernel is left alone. Read before every response, hence no lock.
    suspended_until: AtomicU64,
    /// A bit for each version and AEAD that was sealed wrongly.
    quarantined: AtomicU8,
}

impl KernelOffer {
    /// From what probing found. Nothing is in quarantine yet.
    pub fn new(probe: Probe) -> Self {
        Self { probe, started: Instant::now(), suspended_until: AtomicU64::new(0), quarantined: AtomicU8::new(0) }
    }

    /// What probing found.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Whether what the operator chose can be had.
    ///
    /// # Errors
    /// A line with the reason.
    pub fn check(&self, mode: KtlsMode) -> Result<(), String> {
        if mode != KtlsMode::Always || self.probe.any_tx() {
            return Ok(());
        }
        let why = explain(&self.probe).unwrap_or_else(|| self.probe.to_string());
        Err(format!("--ktls always: this kernel has no kernel TLS. {why}"))
    }

    /// Whether the kernel could take a connection of this version and AEAD.
    pub fn for_connection(&self, version: Version, aead: Aead) -> Offer {
        if !self.probe.any_tx() {
            return Offer::Absent;
        }
        if self.probe.tx(version, aead.cipher()).is_err() {
            return Offer::NoCipher;
        }
        if self.quarantined.load(Ordering::Relaxed) & bit(version, aead) != 0 {
            return Offer::Quarantined;
        }
        match self.suspended_until.load(Ordering::Relaxed) {
            0 => Offer::Ready,
            until if self.now() < until => Offer::Suspended,
            _ => Offer::Ready,
        }
    }

    /// Milliseconds since the start.
    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Sends a canary through the kernel for each version and AEAD it offers, and quarantines what comes out wrong, or
    /// takes out of quarantine what comes out right again. Blocks for some milliseconds.
    pub fn self_check(&self) {
        for (version, aead) in combinations() {
            if self.probe.tx(version, aead.cipher()).is_err() {
                continue;
            }
            let bit = bit(version, aead);
            match canary(version, aead) {
                Ok(()) => {
                    if self.quarantined.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                        tracing::warn!("self-check: the kernel seals {version} {} rightly again", aead.cipher());
                    }
                }
                Err(error) if error.is_corruption() => {
                    self.quarantined.fetch_or(bit, Ordering::Relaxed);
                    tracing::error!(
                        "self-check: {version} {}: {error}. The kernel path is in quarantine for it and user space seals; update the kernel, then look at `sealion doctor`",
                        aead.cipher()
                    );
                }
                Err(error) => tracing::warn!("self-check: {version} {}: {error}", aead.cipher()),
            }
        }
    }

    /// Takes note of a refusal. A missing TLS layer concerns every connection: it is said once, and the kernel left
    /// alone for a while.
    pub fn refused(&self, error: &sealion_ktls::Error) {
        if error.operation() != Operation::SetUlp || error.kind() != Kind::Unsupported {
            return;
        }
        let now = self.now();
        let before = self.suspended_until.swap(now + SUSPENSION.as_millis() as u64, Ordering::Relaxed);
        if before <= now {
            tracing::warn!(
                "{error}. It was there at the start. All responses are sealed in user space; the kernel is asked again in {} s",
                SUSPENSION.as_secs()
            );
        }
    }
}

/// What keeps the kernel from sealing, and the remedy, in one line.
pub(crate) fn explain(probe: &Probe) -> Option<String> {
    probe.explain().map(|lines| lines.replace('\n', " "))
}

/// Every version with every AEAD.
pub fn combinations() -> impl Iterator<Item = (Version, Aead)> {
    Version::ALL.into_iter().flat_map(|version| Aead::ALL.into_iter().map(move |aead| (version, aead)))
}

fn bit(version: Version, aead: Aead) -> u8 {
    let at = combinations().position(|other| other == (version, aead)).expect("all are listed");
    1 << at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused_with_the_reason() {
        let kernel = KernelOffer::new(sealion_ktls::probe::probe());
        assert_eq!((kernel.check(KtlsMode::Auto), kernel.check(KtlsMode::Never)), (Ok(()), Ok(())));
        match kernel.check(KtlsMode::Always) {
            Ok(()) => assert!(kernel.probe().any_tx()),
            Err(why) => assert!(!kernel.probe().any_tx() && why.contains("this kernel has no kernel TLS"), "{why}"),
        }
    }

    #[test]
    fn each_combination_has_a_bit_of_its_own() {
        let all = combinations().fold(0, |bits, (version, aead)| {
            let bit = bit(version, aead);
            assert_eq!(bits & bit, 0);
            bits | bit
        });
        assert_eq!(all.count_ones(), 6);
    }
}
