//! A trial of each version and AEAD: the kernel seals, user space opens and compares.

use sealion_ktls::Kind;
use sealion_ktls::probe::Probe;
use sealion_tls::canary;

use super::{Finding, State};
use crate::path::costs::{Costs, Origin, display_bytes};
use crate::path::offer::combinations;

/// A finding per version and AEAD that the server negotiates, and whether any is usable.
pub(super) fn each_suite(probe: &Probe) -> (Vec<Finding>, bool) {
    if probe.ulp().is_err() {
        return (Vec::new(), false);
    }
    let mut usable = false;
    let findings = combinations()
        .map(|(version, aead)| {
            let name = format!("{version} {}", aead.cipher());
            match probe.tx(version, aead.cipher()).map_err(Into::into).and_then(|()| canary(version, aead)) {
                Ok(()) => {
                    usable = true;
                    Finding::new(
                        "seals",
                        State::Good,
                        format!("{name}: memory, sendfile and control records came back equal"),
                        "",
                    )
                }
                Err(error) if error.is_corruption() => Finding::new(
                    "seals",
                    State::Bad,
                    format!("{name}: {error}"),
                    "this kernel corrupts data; the server keeps connections with this suite in user space",
                )
                .remedy("install the distribution's current kernel and reboot"),
                Err(error) => Finding::new(
                    "seals",
                    State::Warning,
                    format!("{name}: {error}"),
                    "such connections stay in user space",
                ),
            }
        })
        .collect();
    (findings, usable)
}

/// For each version and AEAD that the kernel supports, the length from which the kernel wins; and whether it wins for
/// any.
pub(super) fn costs(probe: &Probe, costs: &Costs) -> (Vec<Finding>, bool) {
    let sealed: Vec<_> = combinations().filter(|(v, aead)| probe.tx(*v, aead.cipher()).is_ok()).collect();
    if sealed.is_empty() {
        return (Vec::new(), false);
    }
    let origin = Finding::new("costs", State::Good, format!("of both paths: {}", costs.origin), "");
    let mut findings = vec![match &costs.origin {
        Origin::Calibrated { .. } => origin,
        Origin::Shipped { .. } => Finding {
            state: State::Note,
            means: "connections may move later or earlier than is best on this machine".to_owned(),
            remedy: Some("sealion calibrate".to_owned()),
            ..origin
        },
    }];
    let mut ever = false;
    for (version, aead) in sealed {
        let (cost, name) = (costs.of(version, aead), format!("{version} {}", aead.cipher()));
        let finding =
            |state, found| Finding::new("costs", state, format!("{name}: {found}"), "such connections stay there");
        if !cost.curve.ever_saves() {
            findings.push(finding(State::Note, "user space is cheaper at any length".to_owned()));
            continue;
        }
        ever = true;
        let first = match cost.crossover() {
            Some(bytes) => format!("{} or more at once", display_bytes(bytes)),
            None => "responses that add up to it".to_owned(),
        };
        let set_up = cost.set_up.nanoseconds() as f64 / 1000.0;
        findings.push(finding(State::Good, format!("a move takes {set_up:.1} µs and pays with {first}")));
    }
    (findings, ever)
}

/// Support for key updates while the kernel seals.
pub(super) fn rekey(probe: &Probe) -> Option<Finding> {
    if probe.ulp().is_err() {
        return None;
    }
    Some(match probe.rekey_tx() {
        Ok(()) => {
            Finding::new("key update", State::Good, "the kernel changes the keys of a live TLS 1.3 connection", "")
        }
        Err(error) if error.kind() == Kind::Unsupported => Finding::new(
            "key update",
            State::Note,
            "this kernel cannot change the keys of a live connection (Linux 6.14 can)",
            "a connection is closed after the response if its client requests new keys or its key reaches the record limit",
        ),
        Err(error) => Finding::new("key update", State::Warning, error.to_string(), "treated as unsupported"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_kernel_path_there_is_nothing_to_compare() {
        let probe = sealion_ktls::probe::probe();
        let (findings, ever) = costs(&probe, &Costs::shipped("nobody measured".to_owned()));
        assert_eq!((findings.is_empty(), ever), (!probe.any_tx(), probe.any_tx()));
    }
}
