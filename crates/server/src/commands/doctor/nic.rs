//! Network cards that seal records themselves.

use sealion_ktls::nic::{self, Feature, Nic};

use super::{Finding, State};

/// A finding for each card that could, or one for none.
pub(super) fn all() -> Vec<Finding> {
    match nic::nics() {
        Ok(nics) => judge(&nics),
        Err(error) => {
            vec![Finding::new("nic", State::Note, "not found out", error.to_string()).remedy("ethtool -k INTERFACE")]
        }
    }
}

fn judge(nics: &[Nic]) -> Vec<Finding> {
    let found: Vec<Finding> = nics.iter().filter_map(card).collect();
    if !found.is_empty() {
        return found;
    }
    let means = "the processor seals, as on nearly every machine; kernel TLS does not need such a card";
    vec![Finding::new("nic", State::Note, "no network card here offloads TLS", means)]
}

fn card(nic: &Nic) -> Option<Finding> {
    let features = [("tls-hw-tx-offload", nic.tx), ("tls-hw-rx-offload", nic.rx), ("tls-hw-record", nic.record)];
    let told: Vec<String> = features
        .into_iter()
        .filter_map(|(name, state)| match state {
            Feature::Absent => None,
            Feature::Off => Some(format!("{name} off")),
            Feature::On => Some(format!("{name} on")),
        })
        .collect();
    if told.is_empty() {
        return None;
    }
    let found = format!("{}: {}", nic.name, told.join(", "));
    // The server hands over the sending half only.
    Some(match (nic.tx, nic.record) {
        (Feature::On, _) | (_, Feature::On) => Finding::new(
            "nic",
            State::Note,
            found,
            "connections over this card are sealed by it where it knows the cipher: see TlsCurrTxDevice in /proc/net/tls_stat",
        ),
        (Feature::Off, _) => Finding::new(
            "nic",
            State::Note,
            found,
            "this card could seal in the processor's place; measure before you keep it on",
        )
        .remedy(format!("ethtool -K {} tls-hw-tx-offload on", nic.name)),
        (Feature::Absent, _) => Finding::new("nic", State::Note, found, "this card does not seal what is sent"),
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
