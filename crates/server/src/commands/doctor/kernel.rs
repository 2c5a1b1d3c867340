//! The kernel's version and its TLS layer.

use sealion_ktls::probe::Probe;

use super::{Finding, State};

/// A fixed fault in kernel TLS, and the releases that carry the fix.
struct Fix {
    what: &'static str,
    /// `(series, patch)`: the first fixed patch release of a series.
    since: &'static [((u32, u32), u32)],
    /// Whether this server never reaches the faulty code.
    spares_us: bool,
}

/// No release of the series carries the fix.
const NEVER: u32 = u32::MAX;

/// Read from the changelogs of Debian's kernels 6.1.176, 6.12.107 and 7.2.13; the signal on 6.1 was observed (docs/kernel.md).
const FIXES: [Fix; 4] = [
    Fix {
        what: "the security fixes to kernel TLS up to autumn 2026",
        since: &[((6, 1), 170), ((6, 12), 105), ((7, 2), 0)],
        spares_us: false,
    },
    Fix {
        what: "the fix of a control record sent as data after a full send buffer",
        since: &[((6, 1), 158), ((6, 12), 57), ((7, 2), 0)],
        spares_us: false,
    },
    Fix {
        what: "the fix of CVE-2025-38616, which is in receiving",
        since: &[((6, 1), NEVER), ((6, 12), 105), ((7, 2), 0)],
        spares_us: true,
    },
    Fix {
        what: "the fix of signals that abort a blocking send",
        since: &[((6, 1), NEVER), ((6, 12), 105), ((7, 2), 13)],
        spares_us: true,
    },
];

/// Series covered by the lists above.
const KNOWN_SERIES: [(u32, u32); 3] = [(6, 1), (6, 12), (7, 2)];

/// The version of the running kernel, and the known fixes it lacks.
pub(super) fn release() -> Finding {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    // Debian's release string names the ABI (6.1.0-51); its version string holds the actual version.
    let version = uname.version().to_string_lossy();
    judge(&release, version_of(&release, &version))
}

fn judge(release: &str, version: Option<(u32, u32, u32)>) -> Finding {
    let Some((major, minor, patch)) = version else {
        return Finding::new(
            "kernel",
            State::Note,
            format!("Linux {release}"),
            "its version string has an unknown form",
        );
    };
    let shown = format!("Linux {major}.{minor}.{patch} ({release})");
    if !KNOWN_SERIES.contains(&(major, minor)) {
        return Finding::new(
            "kernel",
            State::Note,
            shown,
            "the kernel TLS fixes of this series are unknown; the canary below tests whether it seals correctly",
        );
    }
    let missing: Vec<&Fix> = FIXES
        .iter()
        .filter(|fix| fix.since.iter().any(|&(series, since)| series == (major, minor) && patch < since))
        .collect();
    let names = missing.iter().map(|fix| fix.what).collect::<Vec<_>>().join("; ");
    if missing.is_empty() {
        Finding::new("kernel", State::Good, shown, "it has the known fixes to kernel TLS")
    } else if missing.iter().all(|fix| fix.spares_us) {
        let means = format!(
            "it lacks {names}; this server is not affected, as it neither receives through the kernel nor blocks"
        );
        Finding::new("kernel", State::Note, shown, means)
    } else {
        Finding::new("kernel", State::Warning, shown, format!("it lacks {names}"))
            .remedy("install the distribution's current kernel and reboot")
    }
}

/// From `6.12.107+deb13-cloud-amd64`, or for `6.1.0-51-cloud-amd64` from `Debian 6.1.176-1` in the version string.
fn version_of(release: &str, version: &str) -> Option<(u32, u32, u32)> {
    let debian = version.split_once("Debian ").map(|(_, rest)| rest);
    numbers(debian.unwrap_or(release))
}

fn numbers(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.splitn(3, '.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let minor = minor[..minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len())].parse().ok()?;
    let patch = parts.next().unwrap_or("0");
    let patch = &patch[..patch.find(|c: char| !c.is_ascii_digit()).unwrap_or(patch.len())];
    Some((major, minor, patch.parse().unwrap_or(0)))
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

    #[test]
    fn versions_are_read_from_where_distributions_put_them() {
        for (release, version, expected) in [
            ("6.1.0-51-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-10-02)", Some((6, 1, 176))),
            ("6.12.107+deb13-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.107-1 (2026-10-20)", Some((6, 12, 107))),
            ("7.2.13-cloud-amd64", "#1 SMP", Some((7, 2, 13))),
            ("6.8.0-45-generic", "#45-Ubuntu SMP", Some((6, 8, 0))),
            ("7.2-rc1", "#1 SMP", Some((7, 2, 0))),
            ("", "", None),
            ("unknown", "", None),
        ] {
            assert_eq!(version_of(release, version), expected, "{release} {version}");
        }
    }

    #[test]
    fn missing_fixes_are_named() {
        let judge = |major, minor, patch| judge("x", Some((major, minor, patch)));
        assert_eq!(judge(6, 12, 107).state, State::Good);
        assert_eq!(judge(7, 2, 13).state, State::Good);
        assert_eq!(judge(6, 6, 1).state, State::Note);
        let old = judge(6, 1, 157);
        assert_eq!(old.state, State::Warning);
        assert!(old.means.contains("control record") && old.means.contains("security"), "{}", old.means);
        for spared in [judge(7, 2, 12), judge(6, 1, 176)] {
            assert_eq!(spared.state, State::Note);
            assert!(spared.means.contains("signals") && !spared.means.contains("security"), "{}", spared.means);
        }
    }
}
