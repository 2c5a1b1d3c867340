//! System settings that degrade the server.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::{Finding, State};

/// Bytes of a full TLS record on the wire; a lower TCP_NOTSENT_LOWAT stalls sendfile (docs/kernel.md).
const RECORD_ON_THE_WIRE: u64 = 16_406;

/// A finding per setting.
pub(super) fn all() -> Vec<Finding> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).ok();
    let mut findings = Vec::new();
    findings.extend(read("net/ipv4/tcp_notsent_lowat").and_then(|text| notsent_lowat(&text)));
    findings.extend(read("net/ipv4/tcp_wmem").and_then(|text| wmem(&text)));
    findings.extend(open_files());
    findings
}

fn notsent_lowat(text: &str) -> Option<Finding> {
    let bytes: u64 = text.trim().parse().ok()?;
    if bytes >= 4 * RECORD_ON_THE_WIRE {
        return Some(Finding::new("settings", State::Good, "tcp_notsent_lowat leaves room for records", ""));
    }
    let found = format!("net.ipv4.tcp_notsent_lowat is {bytes} bytes");
    let means = "less than a few TLS records: with kernel TLS, sendfile waits after each record, on Linux 6.1 forever. Sealion raises it on its own sockets; other servers are affected";
    Some(Finding::new("settings", State::Warning, found, means).remedy("sysctl -w net.ipv4.tcp_notsent_lowat=131072"))
}

fn wmem(text: &str) -> Option<Finding> {
    let most: u64 = text.split_ascii_whitespace().nth(2)?.parse().ok()?;
    // The default since Linux 2.6 is 4 MiB.
    if most >= 1 << 20 {
        return Some(Finding::new("settings", State::Good, "tcp_wmem is large enough for long fat networks", ""));
    }
    let found = format!("net.ipv4.tcp_wmem limits a connection to {most} bytes in flight");
    let means = "a distant client receives at most that much per round trip";
    Some(
        Finding::new("settings", State::Warning, found, means)
            .remedy("sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'"),
    )
}

fn open_files() -> Option<Finding> {
    let allowed = getrlimit(Resource::Nofile).maximum?;
    (allowed < 20_128).then(|| {
        let found = format!("at most {allowed} open files");
        let means = "too few for the default limit of 10,000 connections";
        Finding::new("settings", State::Warning, found, means)
            .remedy("LimitNOFILE=65536 in the unit, or ulimit -n 65536")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_hurt_are_told_from_defaults() {
        assert_eq!(notsent_lowat("4294967295\n").unwrap().state, State::Good);
        assert_eq!(notsent_lowat("16384\n").unwrap().state, State::Warning);
        assert_eq!(notsent_lowat("nonsense"), None);
        assert_eq!(wmem("4096\t16384\t4194304\n").unwrap().state, State::Good);
        assert_eq!(wmem("4096 16384 65536").unwrap().state, State::Warning);
        assert_eq!(wmem(""), None);
    }
}
