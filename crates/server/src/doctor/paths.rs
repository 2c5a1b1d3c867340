//! Each version and AEAD, really tried: the kernel seals, user space opens and compares.

use sealion_ktls::Kind;
use sealion_ktls::probe::Probe;
use sealion_tls::canary;

use super::{Finding, State};
use crate::kernel_offer::combinations;

/// A finding for each version and AEAD that the server can agree on, and whether one of them can be used.
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
                    "this kernel corrupts data; the server keeps such connections in user space",
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

/// Whether keys can be changed while the kernel seals.
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
            "a connection whose client asks for new keys, or whose key is worn out, is closed after the response",
        ),
        Err(error) => {
            Finding::new("key update", State::Warning, error.to_string(), "treated as if it were not possible")
        }
    })
}
