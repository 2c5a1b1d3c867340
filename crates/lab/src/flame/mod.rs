//! Flame graphs: where a server's time goes during a load, by the stacks that perf(1) samples.
//!
//! ```text
//! perf record ─► perf.data ─► perf script ─► stacks: Frame ─► draw: SVG
//! ```

mod draw;
mod stacks;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::measure::with_children;

/// A running `perf record` of a process with its threads and children.
pub(crate) struct Recording {
    perf: Child,
    pid: u32,
    /// Holds perf.data, which has a copy of 16 KiB of stack for each sample.
    directory: TempDir,
}

impl Recording {
    /// Starts to sample the process `pid` and its children; returns when perf has attached to them.
    ///
    /// # Errors
    /// perf is missing or not permitted here, or there is no such process. The error says what to do.
    pub(crate) fn start(pid: u32) -> Result<Self> {
        let has_perf = Command::new("perf").arg("--version").output().is_ok();
        let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
        let paranoid = paranoid.and_then(|text| text.trim().parse().ok());
        if let Some(why) = refusal(has_perf, paranoid, may_trace(&fs::read_to_string("/proc/self/status")?)) {
            bail!("{why}");
        }
        ensure!(fs::exists(format!("/proc/{pid}"))?, "--pid {pid}: there is no such process");
        let pids: Vec<String> = with_children(pid)?.iter().map(u32::to_string).collect();
        let directory = tempfile::tempdir().context("cannot make a directory for perf.data")?;
        // perf starts the shell when it has attached to the processes, and ends with it. The shell ends with its input.
        let mut perf = Command::new("perf")
            .args(["record", "-q", "-e", "cpu-clock", "-F", FREQUENCY, "--call-graph", "dwarf,16384", "-p"])
            .arg(pids.join(","))
            .arg("-o")
            .arg(directory.path().join("perf.data"))
            .args(["--", "sh", "-c", "echo started; cat >/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start perf")?;
        let mut line = String::new();
        BufReader::new(perf.stdout.as_mut().context("perf has no output")?).read_line(&mut line)?;
        if line.is_empty() {
            let said = perf.wait_with_output()?.stderr;
            bail!("perf record cannot sample process {pid}: {}", String::from_utf8_lossy(&said).trim());
        }
        Ok(Self { perf, pid, directory })
    }

    /// Ends the recording, and draws it.
    ///
    /// # Errors
    /// perf fails, or took no sample.
    pub(crate) fn finish(mut self) -> Result<String> {
        drop(self.perf.stdin.take());
        let said = self.perf.wait_with_output().context("cannot wait for perf")?;
        ensure!(said.status.success(), "perf record failed: {}", String::from_utf8_lossy(&said.stderr).trim());
        let script = Command::new("perf")
            .args(["script", "--no-inline", "-F", "comm,ip,sym,dso", "-i"])
            .arg(self.directory.path().join("perf.data"))
            .output()
            .context("cannot start perf")?;
        ensure!(script.status.success(), "perf script failed: {}", String::from_utf8_lossy(&script.stderr).trim());
        let root = stacks::fold(&String::from_utf8_lossy(&script.stdout));
        ensure!(root.samples > 0, "perf took no sample of process {}: it did no work during the load", self.pid);
        Ok(draw::svg(&root, &format!("CPU time of process {}, {} samples, {FREQUENCY} Hz", self.pid, root.samples)))
    }
}

/// Samples per second of CPU time: no multiple of a kernel's timer.
const FREQUENCY: &str = "499";

/// Whether a process with this /proc/self/status may sample others whatever `perf_event_paranoid` says:
/// `CAP_PERFMON` or `CAP_SYS_ADMIN` of capabilities(7).
fn may_trace(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| mask & (1 << 38 | 1 << 21) != 0)
}

/// The reason why no flame graph can be made here, and the remedy. `paranoid`: `kernel.perf_event_paranoid`; above 1 it
/// forbids the kernel's part of a stack (perf-security.rst).
fn refusal(has_perf: bool, paranoid: Option<i32>, may_trace: bool) -> Option<String> {
    if !has_perf {
        return Some("--flame needs perf, which is not in PATH: install linux-perf or linux-tools".to_owned());
    }
    match paranoid {
        None => {
            Some("--flame needs perf_event_open(2), which this kernel does not have: use another kernel".to_owned())
        }
        Some(level) if level > 1 && !may_trace => Some(format!(
            "--flame may not sample the kernel here (kernel.perf_event_paranoid = {level}): run it as root, or \
             sysctl kernel.perf_event_paranoid=1"
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_is_refused_with_the_remedy() {
        let table = [
            (refusal(false, Some(-1), true), Some("install linux-perf")),
            (refusal(true, None, true), Some("another kernel")),
            (refusal(true, Some(2), false), Some("(kernel.perf_event_paranoid = 2): run it as root, or sysctl")),
            (refusal(true, Some(4), false), Some("perf_event_paranoid=1")),
            (refusal(true, Some(4), true), None),
            (refusal(true, Some(1), false), None),
        ];
        for (found, expected) in table {
            let agree = found.as_deref().zip(expected).is_some_and(|(text, part)| text.contains(part));
            assert!(agree || found.is_none() && expected.is_none(), "{found:?}, not {expected:?}");
        }
    }

    #[test]
    fn the_capabilities_that_lift_the_limit() {
        let of = |mask: &str| may_trace(&format!("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{mask}\n"));
        assert!(of("000001ffffffffff") && of("0000004000000000") && of("0000000000200000"));
        assert!(!of("0000000000000000") && !of("00000000a80425fb") && !may_trace("Name:\tx\n"));
    }
}
