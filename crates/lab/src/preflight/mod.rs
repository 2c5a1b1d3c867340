//! Preflight: describes the machine, and finds conditions that would distort the figures.

mod busy;
mod machine;

use anyhow::{Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use busy::busy;
pub(crate) use machine::{aead_drivers, kernel, limits, machine, settings};

/// A property of the machine or the programs that affects the figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Whether the run needs the operator's consent.
    pub(crate) grave: bool,
    /// The finding and the remedy.
    pub(crate) text: String,
}

impl Finding {
    fn warn(text: String) -> Self {
        Self { grave: false, text }
    }

    fn grave(text: String) -> Self {
        Self { grave: true, text }
    }
}

/// Fails on grave findings unless `consent`.
///
/// # Errors
/// There is a grave finding; the error names all.
pub(crate) fn consent(findings: &[Finding], consent: bool) -> Result<()> {
    let grave: Vec<&str> = findings.iter().filter(|f| f.grave).map(|f| f.text.as_str()).collect();
    if grave.is_empty() || consent {
        return Ok(());
    }
    bail!("the figures would be unreliable:\n  - {}\nRun with --yes to measure all the same.", grave.join("\n  - "))
}

/// Settings of this machine that affect a measurement.
pub(crate) fn findings(server_cores: &[usize], client_cores: &[usize]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let shared: Vec<&usize> = server_cores.iter().filter(|core| client_cores.contains(core)).collect();
    if !shared.is_empty() || server_cores.is_empty() {
        findings.push(Finding::warn(
            "server and client share cores: throughput and latency are of both together, CPU per request is not"
                .to_owned(),
        ));
    }
    let governors = machine::governors();
    if governors.iter().any(|governor| governor != "performance") {
        findings.push(Finding::warn(format!(
            "the clock of the processor changes (governor {}): cpupower frequency-set -g performance",
            governors.join(", ")
        )));
    }
    let settings = settings();
    let number = |name: &str| settings.get(name).and_then(|value| value.parse::<u64>().ok());
    if let Some(low) = number("net.ipv4.tcp_notsent_lowat").filter(|&low| low < LOW_NOTSENT) {
        findings.push(Finding::warn(format!(
            "net.ipv4.tcp_notsent_lowat is {low}: senders wake for small pieces; the default is 4294967295"
        )));
    }
    for (name, least) in [("net.ipv4.tcp_rmem", 1 << 20), ("net.ipv4.tcp_wmem", 1 << 20)] {
        let most = settings.get(name).and_then(|v| v.split_whitespace().last()?.parse::<u64>().ok());
        if let Some(most) = most.filter(|&most| most < least) {
            findings.push(Finding::warn(format!("{name} allows {most} bytes at most: buffers limit large responses")));
        }
    }
    findings
}

/// Raises the limit on open files for `connections`, for this process and the servers that it starts.
///
/// # Errors
/// The hard limit is too low; the error says how to raise it.
pub(crate) fn descriptors(connections: usize) -> Result<()> {
    // The server may have a file open for each connection.
    let needed = 2 * connections as u64 + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "{connections} connections need {needed} open files, and this process may have {} at most: raise it with \
         `ulimit -Hn {needed}` as root, or LimitNOFILE= of the service",
        limit.maximum.unwrap_or_default()
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })?;
    Ok(())
}

/// The finding for a debug build.
pub(crate) fn debug_build(what: &str) -> Finding {
    Finding::warn(format!("{what} is a debug build: its figures compare with nothing"))
}

/// Bytes; eight full records.
const LOW_NOTSENT: u64 = 128 << 10;

/// A process's descriptors besides its connections.
const OTHER_DESCRIPTORS: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grave_findings_need_consent() {
        let findings = [Finding::warn("a".into()), Finding::grave("b is busy".into())];
        assert!(consent(&findings[..1], false).is_ok());
        assert!(consent(&findings, true).is_ok());
        let error = consent(&findings, false).unwrap_err().to_string();
        assert!(error.contains("- b is busy") && error.contains("--yes") && !error.contains("- a"), "{error}");
    }

    #[test]
    fn one_core_for_both_sides_is_told() {
        let shared = |server: &[usize], client: &[usize]| {
            findings(server, client).iter().any(|finding| finding.text.contains("share cores"))
        };
        assert!(shared(&[0], &[0]) && shared(&[], &[]) && shared(&[0, 1], &[1]));
        assert!(!shared(&[0], &[1]));
    }

    #[test]
    fn descriptors_are_raised_or_refused_with_the_remedy() {
        descriptors(10).expect("ten connections fit everywhere");
        let Some(most) = getrlimit(Resource::Nofile).maximum else { return };
        let error = descriptors(most as usize).unwrap_err().to_string();
        assert!(error.contains("ulimit -Hn"), "{error}");
    }
}
