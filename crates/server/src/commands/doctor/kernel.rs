//! The kernel's version and its TLS layer.

use sealion_ktls::faults::{Direction, Fault, Kernel, Reach, Standing, faults};
use sealion_ktls::probe::Probe;

use super::{Finding, State};

/// The version of the running kernel, and its known faults.
pub(super) fn release() -> Finding {
    let uname = rustix::system::uname();
    judge(&uname.release().to_string_lossy(), Kernel::running())
}

fn judge(release: &str, kernel: Option<Kernel>) -> Finding {
    let Some(kernel) = kernel else {
        return Finding::new(
            "kernel",
            State::Note,
            format!("Linux {release}"),
            "its version string has an unknown form",
        );
    };
    let shown = format!("Linux {kernel} ({release})");
    let judged = Judged::new(kernel);
    if judged.is_unknown {
        let means = match kernel.patch {
            Some(_) => "the kernel TLS fixes of this series are not known",
            None => {
                "its kernel TLS fixes are not known, as the version does not name the release it is made from: the distribution's security notices name them"
            }
        };
        return Finding::new(
            "kernel",
            State::Note,
            shown,
            format!("{means}; the canary below tests whether it seals correctly"),
        );
    }
    let means = judged.means(kernel);
    if !judged.fixable.is_empty() {
        return Finding::new("kernel", State::Warning, shown, means)
            .remedy("install the distribution's current kernel and reboot");
    }
    let state = if judged.is_spotless() { State::Good } else { State::Note };
    Finding::new("kernel", state, shown, means)
}

/// The faults of a kernel, by their effect on this server.
#[derive(Default)]
struct Judged {
    /// Faults that can reach this server, with the release of the series that has the fix.
    fixable: Vec<(&'static Fault, u32)>,
    /// Faults that can reach this server, without a known fix for the series.
    unfixed: Vec<&'static str>,
    /// Faults that can reach this server if the series has them, which is not known.
    not_known: Vec<&'static str>,
    /// Faults that cannot reach this server.
    spared: Vec<&'static str>,
    /// Nothing is known about the series or the release.
    is_unknown: bool,
}

impl Judged {
    fn new(kernel: Kernel) -> Self {
        let mut judged = Judged { is_unknown: true, ..Judged::default() };
        for (fault, standing) in faults(kernel, Direction::Send) {
            judged.is_unknown &= standing == Standing::NotKnown;
            // The server never blocks in a send.
            let is_reached = fault.reach != Reach::Blocking;
            match standing {
                Standing::Present { .. } | Standing::Unfixed if !is_reached => judged.spared.push(fault.name),
                Standing::Present { fixed_in } => judged.fixable.push((fault, fixed_in)),
                Standing::Unfixed => judged.unfixed.push(fault.name),
                Standing::NotKnown if is_reached => judged.not_known.push(fault.name),
                _ => {}
            }
        }
        // The server opens records itself, and so never sets receiving options.
        let receiving = faults(kernel, Direction::Receive)
            .filter(|(fault, _)| !fault.directions.contains(&Direction::Send) && fault.reach != Reach::ExpectNoPad);
        let has = |standing| matches!(standing, Standing::Present { .. } | Standing::Unfixed);
        judged.spared.extend(receiving.filter(|(_, standing)| has(*standing)).map(|(fault, _)| fault.name));
        judged
    }

    fn is_spotless(&self) -> bool {
        self.unfixed.is_empty() && self.not_known.is_empty() && self.spared.is_empty()
    }

    fn means(&self, kernel: Kernel) -> String {
        if self.fixable.is_empty() && self.is_spotless() {
            return "it has the known fixes to kernel TLS".to_owned();
        }
        let mut parts = Vec::new();
        if let Some(release) = self.fixable.iter().map(|(_, fixed_in)| *fixed_in).max() {
            let names: Vec<_> =
                self.fixable.iter().map(|(fault, _)| format!("{} ({})", fault.name, fault.what)).collect();
            parts.push(format!(
                "it has {}; {}.{}.{release} has the fixes",
                names.join(", "),
                kernel.major,
                kernel.minor
            ));
        }
        if !self.unfixed.is_empty() {
            let names = self.unfixed.join(", ");
            parts
                .push(format!("it has {names}; no release of {}.{} with the fix is known", kernel.major, kernel.minor));
        }
        if !self.not_known.is_empty() {
            parts.push(format!("not known whether it has: {}", self.not_known.join(", ")));
        }
        if !self.spared.is_empty() {
            let names = self.spared.join(", ");
            parts.push(format!(
                "this server is not affected by {names}, as it neither receives through the kernel nor blocks"
            ));
        }
        parts.join("; ")
    }
}

/// Availability of the kernel's TLS layer.
pub(super) fn layer(probe: &Probe) -> Option<Finding> {
    Some(match (probe.ulp(), probe.explain()) {
        (Ok(()), _) => {
            Finding::new("tls layer", State::Good, "TCP_ULP \"tls\" can be attached", "the kernel has kernel TLS")
        }
        (Err(_), Some(why)) => {
            let (why, remedy) = why.split_once('\n').unwrap_or((&why, "install a kernel with CONFIG_TLS"));
            Finding::new("tls layer", State::Bad, "absent", why).remedy(remedy.replace('\n', " "))
        }
        (Err(error), None) => Finding::new("tls layer", State::Bad, "refused", error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(release: &str) -> Finding {
        super::judge(release, Kernel::parse(release, ""))
    }

    #[test]
    fn missing_fixes_are_named() {
        assert_eq!(judge("6.12.107").state, State::Good);
        assert_eq!(judge("7.2.13").state, State::Good);
        // The sources of some rows do not cover the series.
        assert_eq!(judge("6.6.152").state, State::Note);
        let old = judge("6.1.157");
        assert_eq!(old.state, State::Warning);
        for name in ["control record as data", "CVE-2026-64046", "CVE-2026-31533", "6.1.175 has the fixes"] {
            assert!(old.means.contains(name), "{}", old.means);
        }
        for spared in [judge("7.2.12"), judge("6.1.176")] {
            assert_eq!(spared.state, State::Note);
            assert!(spared.means.contains("not affected by signals abort a send"), "{}", spared.means);
            assert!(!spared.means.contains("CVE-2026-64046"), "{}", spared.means);
        }
    }

    #[test]
    fn a_release_before_the_fix_of_its_series_is_warned_of() {
        for (release, warns) in [
            ("6.1.170", true),
            ("6.1.174", true),
            ("6.1.175", false),
            ("6.6.141", true),
            ("6.6.151", true),
            ("6.6.152", false),
            ("6.12.91", true),
            ("6.12.103", true),
            ("6.12.104", false),
            ("6.18.33", true),
            ("6.18.44", true),
            ("6.18.45", false),
            ("7.0.10", true),
            ("7.0.11", false),
            ("7.1.8", true),
            ("7.1.9", false),
            ("5.15.208", true),
            ("5.15.209", false),
            ("5.10.257", true),
            ("5.10.258", false),
        ] {
            let found = judge(release);
            assert_eq!(found.state == State::Warning, warns, "{release}: {}", found.means);
            assert_ne!(found.state, State::Bad);
        }
    }

    #[test]
    fn a_version_that_tells_nothing_is_not_known() {
        for release in ["6.9.1", "6.8.0-45-generic", "5.14.0-427.el9", "4.19.300", "8.1.0"] {
            let found = judge(release);
            assert_eq!(found.state, State::Note, "{release}");
            assert!(found.means.contains("not known"), "{release}: {}", found.means);
        }
        let ended = judge("6.8.12");
        assert!(ended.means.contains("no release of 6.8 with the fix is known"), "{}", ended.means);
        assert_eq!(super::judge("unknown", None).state, State::Note);
    }
}
