//! Preflight: describes the machine, and finds conditions that would distort the figures.

mod busy;
mod machine;

use anyhow::{Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use busy::busy;
pub(crate) use machine::{aead_drivers, cores_in, kernel, limits, machine, settings, siblings};

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
    findings.extend(shared_units(server_cores, client_cores, &siblings()));
    findings
}

/// Server and client on cores of one execution unit: each slows the other down, by a part that depends on the server.
fn shared_units(server_cores: &[usize], client_cores: &[usize], siblings: &[String]) -> Option<Finding> {
    let shared = siblings.iter().find(|group| {
        let group = cores_in(group);
        let holds = |cores: &[usize]| cores.iter().find(|core| group.contains(core)).copied();
        holds(server_cores).zip(holds(client_cores)).is_some_and(|(server, client)| server != client)
    })?;
    Some(Finding::grave(format!(
        "server and client run on SMT siblings (cores {shared}), which share an execution unit: name others by --server-cores \
         and --client-cores"
    )))
}

/// Remembered TCP metrics with bodies over loopback that they slow down.
///
/// `largest`: bytes of the largest body; `None`: no body goes over loopback.
pub(crate) fn remembered_metrics(largest: Option<u64>) -> Option<Finding> {
    remembered(largest, settings().get("net.ipv4.tcp_no_metrics_save").map(String::as_str))
}

fn remembered(largest: Option<u64>, no_metrics_save: Option<&str>) -> Option<Finding> {
    let hurts = largest? >= METRICS_HURT_FROM && no_metrics_save.is_some_and(|value| value != "1");
    hurts.then(|| {
        Finding::grave(
            "the kernel remembers TCP metrics of 127.0.0.1, and after one connection with reordering, bodies of 1 MB and more \
             take longer on every later one: sysctl -w net.ipv4.tcp_no_metrics_save=1"
                .to_owned(),
        )
    })
}

/// Bytes from which a connection meets the metrics of an earlier one (BENCHMARKING.md).
const METRICS_HURT_FROM: u64 = 1 << 20;

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
    fn siblings_of_one_core_are_no_two_cores() {
        let groups = ["0,4", "1,5", "2"].map(str::to_owned);
        let found = |server: &[usize], client: &[usize]| shared_units(server, client, &groups);
        let finding = found(&[0, 1], &[5]).expect("cores 1 and 5 are one");
        assert!(finding.grave && finding.text.contains("cores 1,5"), "{finding:?}");
        assert_eq!((found(&[0], &[1]), found(&[0], &[2]), found(&[], &[])), (None, None, None));
        // One core for both sides is another finding.
        assert_eq!(found(&[0], &[0]), None);
    }

    #[test]
    fn remembered_metrics_hold_up_large_bodies_over_loopback() {
        assert!(remembered(Some(1 << 20), Some("0")).is_some_and(|finding| finding.grave));
        for (largest, value) in
            [(Some(1 << 20), Some("1")), (Some(1 << 19), Some("0")), (None, Some("0")), (Some(1 << 30), None)]
        {
            assert_eq!(remembered(largest, value), None, "{largest:?} {value:?}");
        }
    }

    #[test]
    fn descriptors_are_raised_or_refused_with_the_remedy() {
        descriptors(10).expect("ten connections fit everywhere");
        let Some(most) = getrlimit(Resource::Nofile).maximum else { return };
        let error = descriptors(most as usize).unwrap_err().to_string();
        assert!(error.contains("ulimit -Hn"), "{error}");
    }
}
