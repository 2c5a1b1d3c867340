//! Network cards with TLS offload.

use sealion_ktls::nic::{self, Feature, Nic};

use super::{Finding, State};

/// A finding per card with offload features, or one finding if no card has any.
pub(super) fn all() -> Vec<Finding> {
    match nic::nics() {
        Ok(nics) => judge(&nics),
        Err(error) => {
            vec![
                Finding::new("nic", State::Note, "cannot query network cards", error.to_string())
                    .remedy("ethtool -k INTERFACE"),
            ]
        }
    }
}

fn judge(nics: &[Nic]) -> Vec<Finding> {
    let found: Vec<Finding> = nics.iter().filter_map(card).collect();
    if !found.is_empty() {
        return found;
    }
    let means = "the CPU seals, as on nearly every machine; kernel TLS needs no such card";
    vec![Finding::new("nic", State::Note, "no network card here offloads TLS", means)]
}

fn card(nic: &Nic) -> Option<Finding> {
    let features = [("tls-hw-tx-offload", nic.tx), ("tls-hw-rx-offload", nic.rx), ("tls-hw-record", nic.record)];
    let shown: Vec<String> = features
        .into_iter()
        .filter_map(|(name, state)| match state {
            Feature::Absent => None,
            Feature::Off => Some(format!("{name} off")),
            Feature::On => Some(format!("{name} on")),
        })
        .collect();
    if shown.is_empty() {
        return None;
    }
    let found = format!("{}: {}", nic.name, shown.join(", "));
    // The server only gives the kernel the keys of the sending half.
    Some(match (nic.tx, nic.record) {
        (Feature::On, _) | (_, Feature::On) => Finding::new(
            "nic",
            State::Note,
            found,
            "the card seals connections with ciphers it supports: see TlsCurrTxDevice in /proc/net/tls_stat",
        ),
        (Feature::Off, _) => Finding::new(
            "nic",
            State::Note,
            found,
            "the card can seal instead of the CPU; measure before you keep this on",
        )
        .remedy(format!("ethtool -K {} tls-hw-tx-offload on", nic.name)),
        (Feature::Absent, _) => Finding::new("nic", State::Note, found, "the card has no offload for sending"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(name: &str, tx: Feature, rx: Feature) -> Nic {
        let mut nic = Nic::default();
        nic.name = name.to_owned();
        (nic.tx, nic.rx) = (tx, rx);
        nic
    }

    #[test]
    fn no_card_is_one_finding() {
        let findings = judge(&[nic("lo", Feature::Absent, Feature::Absent)]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].found.starts_with("no network card"), "{findings:?}");
        assert_eq!(judge(&[]), findings);
    }

    #[test]
    fn each_card_that_could_is_told_with_its_command() {
        let findings = judge(&[
            nic("lo", Feature::Absent, Feature::Absent),
            nic("eth0", Feature::Off, Feature::Off),
            nic("eth1", Feature::On, Feature::Absent),
            nic("eth2", Feature::Absent, Feature::On),
        ]);
        let found: Vec<&str> = findings.iter().map(|finding| finding.found.as_str()).collect();
        assert_eq!(
            found,
            [
                "eth0: tls-hw-tx-offload off, tls-hw-rx-offload off",
                "eth1: tls-hw-tx-offload on",
                "eth2: tls-hw-rx-offload on"
            ]
        );
        let remedies: Vec<Option<&str>> = findings.iter().map(|finding| finding.remedy.as_deref()).collect();
        assert_eq!(remedies, [Some("ethtool -K eth0 tls-hw-tx-offload on"), None, None]);
    }
}
