//! Cost of a process, its threads and its children, from /proc.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Cost of processes since their start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Run time of the threads in ns, including kernel work: the first field of schedstat.
    pub(crate) cpu: u64,
    /// User part, in ticks.
    pub(crate) user: u64,
    /// System part, in ticks.
    pub(crate) system: u64,
    /// Context switches in which a thread waited.
    pub(crate) switches: u64,
    /// Context switches in which a thread lost its core.
    pub(crate) preemptions: u64,
}

impl Cost {
    /// The sum over `pids`.
    ///
    /// # Errors
    /// One of them has ended.
    pub(crate) fn of(pids: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for pid in pids {
            let directory = format!("/proc/{pid}");
            let one = Self::of_process(Path::new(&directory));
            let one = one.with_context(|| format!("process {pid} has ended"))?;
            sum.cpu += one.cpu;
            sum.user += one.user;
            sum.system += one.system;
            sum.switches += one.switches;
            sum.preemptions += one.preemptions;
        }
        Ok(sum)
    }

    /// The increase since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            switches: self.switches.saturating_sub(earlier.switches),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
        }
    }

    fn of_process(directory: &Path) -> Option<Self> {
        let (user, system) = times(&fs::read_to_string(directory.join("stat")).ok()?)?;
        let mut cost = Self { user, system, ..Self::default() };
        for task in fs::read_dir(directory.join("task")).ok()?.flatten() {
            // A thread may exit in the meantime.
            let text = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            cost.cpu += text("schedstat").split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            let status = text("status");
            let field = |name| number_after(&status, name).unwrap_or(0);
            cost.switches += field("voluntary_ctxt_switches:");
            cost.preemptions += field("nonvoluntary_ctxt_switches:");
        }
        Some(cost)
    }
}

/// `root` and all its descendants.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn with_children(root: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = fields(&stat).and_then(|mut fields| fields.nth(1)?.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        let more = children.remove(pid).unwrap_or_default();
        found.extend(more);
        next += 1;
    }
    Ok(found)
}

/// User and system time of a process that ended and was not waited for, in ticks.
pub(crate) fn ticks(pid: u32) -> Option<u64> {
    let (user, system) = times(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(user + system)
}

/// Proportional set size of `pids` in bytes; `None` without permission to read it.
pub(crate) fn memory(pids: &[u32]) -> Option<u64> {
    pids.iter()
        .map(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            Some(number_after(&text, "Pss:")? * 1024)
        })
        .sum()
}

/// User and system time in ticks.
fn times(stat: &str) -> Option<(u64, u64)> {
    let mut fields = fields(stat)?.skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// The fields of /proc/PID/stat from the third on. The second is a name that may contain blanks and brackets.
pub(super) fn fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194304 1 2 3 4 55 66 0 0 20 0 1 0 1";
        assert_eq!(times(stat), Some((55, 66)));
        assert_eq!(fields(stat).and_then(|mut fields| fields.nth(1)), Some("3"));
        assert_eq!(times("7 (a"), None);
    }

    #[test]
    fn the_two_kinds_of_switches_are_told_apart() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(number_after(status, "voluntary_ctxt_switches:"), Some(150));
        assert_eq!(number_after(status, "nonvoluntary_ctxt_switches:"), Some(545));
    }

    #[test]
    fn work_of_children_counts() {
        // The shell, and a child of it that works and waits.
        let mut shell = std::process::Command::new("/bin/sh")
            .args(["-c", "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo done; sleep 60) & wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = [0; 5];
        std::io::Read::read_exact(shell.stdout.as_mut().expect("piped"), &mut line).expect("it works");
        let pids = with_children(shell.id()).expect("proc");
        let (alone, all) = (Cost::of(&[shell.id()]).expect("it runs"), Cost::of(&pids).expect("they run"));
        for pid in pids.iter().rev() {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        shell.wait().expect("it ends");
        assert!(pids.len() >= 2, "{pids:?}");
        assert!(all.cpu > alone.cpu && all.switches >= alone.switches, "{alone:?} {all:?}");
        assert!(Cost::of(&pids).unwrap_err().to_string().contains("has ended"));
    }
}
