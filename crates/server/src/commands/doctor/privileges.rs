//! Confinement: the features of this kernel, and the features that a running process uses.

use std::{fmt, fs};

use serde::Serialize;

use super::{Finding, State};
use crate::process::privileges::LandlockSupport;

/// A finding per kernel feature that `[privileges]` needs.
pub(super) fn of_this_kernel() -> Vec<Finding> {
    let landlock = match LandlockSupport::of_this_kernel() {
        LandlockSupport::Full => {
            Finding::new("privileges", State::Good, "Landlock restricts files and TCP ports (privileges.landlock)", "")
        }
        LandlockSupport::Partial => Finding::new(
            "privileges",
            State::Note,
            "Landlock restricts files, but lacks features of Linux 6.7",
            "privileges.landlock leaves TCP ports or the truncation of files unrestricted",
        ),
        LandlockSupport::None => Finding::new(
            "privileges",
            State::Note,
            "this kernel has no Landlock",
            "privileges.landlock cannot restrict files; only file permissions apply",
        )
        .remedy("use a kernel 5.13 or later with CONFIG_SECURITY_LANDLOCK and `landlock` in its lsm= list"),
    };
    let seccomp = match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(_) => Finding::new("privileges", State::Good, "system calls can be filtered (privileges.seccomp)", ""),
        Err(_) => Finding::new(
            "privileges",
            State::Note,
            "this kernel does not report support for system call filters",
            "privileges.seccomp may not work",
        )
        .remedy("use a kernel with CONFIG_SECCOMP_FILTER, and mount /proc"),
    };
    vec![landlock, seccomp]
}

/// Confinement of a process, as far as the kernel reports it: Landlock is not visible from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Process {
    /// Effective user ID.
    uid: u32,
    no_new_privileges: bool,
    /// Number of seccomp filters; `None`: no filter, or a kernel before Linux 5.9, which does not count them.
    seccomp_filters: Option<u32>,
    seccomp: bool,
}

impl Process {
    pub(super) fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| {
            status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
        };
        Some(Self {
            uid: field("Uid")?.split_ascii_whitespace().nth(1)?.parse().ok()?,
            no_new_privileges: field("NoNewPrivs")? == "1",
            seccomp: field("Seccomp")? == "2",
            seccomp_filters: field("Seccomp_filters").and_then(|count| count.parse().ok()),
        })
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.uid == 0 { "runs as root".to_owned() } else { format!("runs as user {}", self.uid) };
        let gain = if self.no_new_privileges { "cannot gain privileges" } else { "may gain privileges" };
        let calls = if self.seccomp { "its system calls are filtered" } else { "may make any system call" };
        write!(f, "{user}, {gain}, {calls}; Landlock restrictions are not visible to other processes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_of_a_process_is_read() {
        let status = "Name:\tsealion\nUid:\t0\t997\t997\t997\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let process = Process::parse(status).unwrap();
        assert_eq!(process, Process { uid: 997, no_new_privileges: true, seccomp: true, seccomp_filters: Some(1) });
        assert!(process.to_string().starts_with("runs as user 997, cannot gain privileges, its system calls"));
        assert_eq!(Process::parse("Name:\tx\n"), None);
        assert!(Process::read(std::process::id()).is_some());
    }
}
