//! The kernel's TLS support. It is probed and tested at start, suspended for a while after a refusal, and quarantined
//! for suites that the kernel has sealed wrongly.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sealion_ktls::probe::Probe;
use sealion_ktls::{Kind, Operation};
use sealion_tls::record::Aead;
use sealion_tls::{Version, canary};

use crate::path::policy::{KtlsMode, Offer};

/// The pause before the next attempt after the kernel's TLS layer was missing. Each attempt may start a module loader,
/// and modules are rarely loaded later.
const SUSPENSION: Duration = Duration::from_secs(60);

/// The TLS support of the running kernel.
#[derive(Debug)]
pub struct KernelOffer {
    probe: Probe,
    started: Instant,
    /// Milliseconds after `started` until which no connection moves. Read before every response, hence no lock.
    suspended_until: AtomicU64,
    /// One bit per version and AEAD that the kernel sealed wrongly.
    quarantined: AtomicU8,
}

impl KernelOffer {
    /// Wraps a probe's result, with nothing in quarantine.
    pub fn new(probe: Probe) -> Self {
        Self { probe, started: Instant::now(), suspended_until: AtomicU64::new(0), quarantined: AtomicU8::new(0) }
    }

    /// The result of the probe at the start.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Checks that the kernel supports the operator's choice. `setting`: the choice as it was given.
    ///
    /// # Errors
    /// `ktls = "always"` on a kernel without kernel TLS; the message gives the reason.
    pub fn check(&self, mode: KtlsMode, setting: &str) -> Result<(), String> {
        if mode != KtlsMode::Always || self.probe.any_tx() {
            return Ok(());
        }
        let why = explain(&self.probe).unwrap_or_else(|| self.probe.to_string());
        Err(format!("{setting}: this kernel has no kernel TLS. {why}"))
    }

    /// The kernel's offer for a connection of this version and AEAD.
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

    /// Sends a canary through the kernel for each supported version and AEAD. A corrupted canary puts the suite into
    /// quarantine, and a correct one ends the quarantine. Blocks for some milliseconds.
    pub fn self_check(&self) {
        for (version, aead) in combinations() {
            if self.probe.tx(version, aead.cipher()).is_err() {
                continue;
            }
            let bit = bit(version, aead);
            match canary(version, aead) {
                Ok(()) => {
                    if self.quarantined.fetch_and(!bit, Ordering::Relaxed) & bit != 0 {
                        tracing::warn!(
                            "self-check: the kernel seals {version} {} correctly again; quarantine lifted",
                            aead.cipher()
                        );
                    }
                }
                Err(error) if error.is_corruption() => {
                    self.quarantined.fetch_or(bit, Ordering::Relaxed);
                    tracing::error!(
                        "self-check: {version} {}: {error}. The suite is quarantined and sealed in user space; update the kernel, then run `sealion doctor`",
                        aead.cipher()
                    );
                }
                Err(error) => tracing::warn!("self-check: {version} {}: {error}", aead.cipher()),
            }
        }
    }

    /// Records a refusal. A missing TLS layer affects every connection: it is logged once, and no connection moves for
    /// a while.
    pub fn refused(&self, error: &sealion_ktls::Error) {
        if error.operation() != Operation::SetUlp || error.kind() != Kind::Unsupported {
            return;
        }
        let now = self.now();
        let before = self.suspended_until.swap(now + SUSPENSION.as_millis() as u64, Ordering::Relaxed);
        if before <= now {
            tracing::warn!(
                "{error}. It was there at the start. All responses are sealed in user space; next attempt in {} s",
                SUSPENSION.as_secs()
            );
        }
    }
}

/// The reason why the kernel cannot seal, and the remedy, in one line.
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
        let check = |mode| kernel.check(mode, "server.ktls");
        assert_eq!((check(KtlsMode::Auto), check(KtlsMode::Never)), (Ok(()), Ok(())));
        match check(KtlsMode::Always) {
            Ok(()) => assert!(kernel.probe().any_tx()),
            Err(why) => assert!(
                !kernel.probe().any_tx() && why.starts_with("server.ktls: this kernel has no kernel TLS"),
                "{why}"
            ),
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
