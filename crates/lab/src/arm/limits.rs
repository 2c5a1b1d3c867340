//! Limits of servers: processors and memory by a cgroup (version 2), bandwidth by a shaped loopback interface.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::find_program;

/// How much the servers of a run may use together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Limits {
    /// Processors, in fractions.
    pub(crate) cpus: Option<f64>,
    /// Bytes of memory, page cache included.
    pub(crate) memory: Option<u64>,
    /// Mbit/s of all packets on the loopback interface.
    pub(crate) bandwidth: Option<u32>,
}

/// A cgroup, removed on drop once its processes have ended.
#[derive(Debug)]
pub(crate) struct Group {
    directory: PathBuf,
}

impl Limits {
    /// The limits of the arms that have them in the container study, whose source names none: half a processor and
    /// 512 MiB.
    pub(crate) const CONTAINER: Self = Self { cpus: Some(0.5), memory: Some(512 << 20), bandwidth: None };

    /// The group `name` for servers; `None` without limits of processors and memory.
    ///
    /// # Errors
    /// This system has no cgroup v2 with the controllers, or this process may not make a group.
    pub(crate) fn group(&self, name: &str) -> Result<Option<Group>> {
        if !self.files().is_empty() {
            mount_in_guest()?;
        }
        self.group_in(Path::new(ROOT), name)
    }

    /// The reason why this machine has no such group; `None` if it has.
    pub(crate) fn absent(&self) -> Option<String> {
        // A group of a run that only asks has no process, and is removed at once.
        self.group(PROBE).err().map(|why| format!("{why:#}"))
    }

    /// Has this program begin again in a network namespace of its own, if the bandwidth is limited. A guest is one. Call it
    /// before anything else.
    ///
    /// # Errors
    /// This process is not root, or unshare(1) is missing.
    pub(crate) fn enter_namespace(&self) -> Result<()> {
        if self.bandwidth.is_none() || sealion_guest::is_inside() || std::env::var_os(ENTERED).is_some() {
            return Ok(());
        }
        ensure!(rustix::process::geteuid().is_root(), "--limit-bandwidth needs root, for a network namespace");
        let mut again = Command::new("unshare");
        again.arg("--net").arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).env(ENTERED, "1");
        Err(again.exec()).context("cannot run unshare: install util-linux")
    }

    /// Limits the bandwidth between this process and the servers, with a token bucket (tc-tbf(8)) on the loopback interface
    /// of the namespace.
    ///
    /// # Errors
    /// A program is missing, or the kernel has no such queue.
    pub(crate) fn shape(&self) -> Result<()> {
        let Some(bandwidth) = self.bandwidth else { return Ok(()) };
        // Packets as on a wire: the default of the loopback interface is 64 KiB.
        run("ip", "iproute2", &["link", "set", "lo", "mtu", "1500", "up"])?;
        let rate = format!("{bandwidth}mbit");
        // 4 ms of packets, which is what a bucket that a timer of 250 Hz fills must hold, but not less than a large packet.
        let burst = (u64::from(bandwidth) * 500).max(64 << 10).to_string();
        run(
            "tc",
            "iproute2",
            &["qdisc", "add", "dev", "lo", "root", "tbf", "rate", &rate, "burst", &burst, "latency", QUEUE],
        )
        .context("the loopback interface cannot be limited: the kernel needs sch_tbf; or use --guest")
    }

    fn group_in(&self, root: &Path, name: &str) -> Result<Option<Group>> {
        let files = self.files();
        if files.is_empty() {
            return Ok(None);
        }
        let known = fs::read_to_string(root.join("cgroup.controllers"));
        let known = known.with_context(|| {
            format!(
                "no cgroup v2 at {}, which limits of processors and memory need: boot with it, or leave them out",
                root.display()
            )
        })?;
        let controllers = files.iter().filter_map(|(file, _)| file.split_once('.')).map(|(controller, _)| controller);
        for controller in controllers {
            let has = known.split_whitespace().any(|known| known == controller);
            ensure!(
                has,
                "cgroup v2 at {} has no controller {controller}: the kernel or systemd leaves it out",
                root.display()
            );
            let control = root.join("cgroup.subtree_control");
            fs::write(&control, format!("+{controller}"))
                .with_context(|| format!("cannot enable {controller} in {}: limits need root", control.display()))?;
        }
        let directory = root.join(format!("sealion-lab-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}: limits need root", directory.display()))?;
        let group = Group { directory };
        for (file, value) in files {
            let path = group.directory.join(file);
            fs::write(&path, &value).with_context(|| format!("cannot write {value} to {}", path.display()))?;
        }
        Ok(Some(group))
    }

    /// The files of a group and their values.
    fn files(&self) -> Vec<(&'static str, String)> {
        let quota = self.cpus.map(|cpus| ("cpu.max", format!("{:.0} {PERIOD}", cpus * f64::from(PERIOD))));
        quota.into_iter().chain(self.memory.map(|memory| ("memory.max", memory.to_string()))).collect()
    }

    /// The limits in words, for a report.
    pub(crate) fn in_words(&self) -> Option<String> {
        let cpus = self.cpus.map(|cpus| format!("{cpus} processors"));
        let memory = self.memory.map(|memory| format!("{} MiB of memory", memory >> 20));
        let of_group: Vec<String> = cpus.into_iter().chain(memory).collect();
        let group =
            (!of_group.is_empty()).then(|| format!("servers have at most {} (cgroup v2)", of_group.join(" and ")));
        let bandwidth =
            self.bandwidth.map(|mbit| format!("the network between client and servers has {mbit} Mbit/s (tbf)"));
        let all: Vec<String> = group.into_iter().chain(bandwidth).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Mounts cgroup v2 in a guest, where nothing else does.
fn mount_in_guest() -> Result<()> {
    let is_mounted = || Path::new(ROOT).join("cgroup.controllers").exists();
    if !sealion_guest::is_inside() || is_mounted() {
        return Ok(());
    }
    run("mount", "mount", &["-t", "cgroup2", "none", ROOT])
}

fn run(program: &str, package: &str, arguments: &[&str]) -> Result<()> {
    // The shell of a guest prefers its own ip and tc, which lack these options.
    let path = find_program(program).with_context(|| format!("no program {program}: install {package}"))?;
    let output = Command::new(path).args(arguments).output().with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", arguments.join(" "), said.trim());
    Ok(())
}

impl Group {
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The workers of a server that was killed end a little later than the server. A group with processes stays, and
        // so do its limits on them.
        for _ in 0..LEAVING {
            let removed = fs::remove_dir(&self.directory);
            if !removed.is_err_and(|why| why.kind() == ErrorKind::ResourceBusy) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Looks for the end of a group's processes, 10 ms apart.
const LEAVING: u32 = 100;

/// The name of a group that shows whether there may be one.
const PROBE: &str = "probe";

const ROOT: &str = "/sys/fs/cgroup";

/// Set in the environment of a program that is in its namespace.
const ENTERED: &str = "SEALION_LAB_NAMESPACE";

/// The longest that a packet waits in the bucket's queue. Packets beyond are lost, as in a router.
const QUEUE: &str = "50ms";

/// Microseconds: the kernel's default.
const PERIOD: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_files_of_a_group() {
        let root = tempfile::tempdir().expect("a directory");
        let limits = Limits { cpus: Some(0.5), memory: Some(512 << 20), bandwidth: Some(100) };
        let why = limits.group_in(root.path(), "servers").unwrap_err();
        assert!(format!("{why:#}").contains("no cgroup v2 at"), "{why:#}");
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io\n").expect("a file");
        let why = limits.group_in(root.path(), "servers").unwrap_err();
        assert!(format!("{why:#}").contains("has no controller memory"), "{why:#}");
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory\n").expect("a file");
        let group = limits.group_in(root.path(), "servers").expect("a group").expect("limits");
        let text = |file: &str| fs::read_to_string(group.directory().join(file)).expect("a file");
        assert_eq!((text("cpu.max").as_str(), text("memory.max").as_str()), ("50000 100000", "536870912"));
        assert_eq!(
            limits.in_words().expect("limits"),
            "servers have at most 0.5 processors and 512 MiB of memory (cgroup v2); the network between client and servers has \
             100 Mbit/s (tbf)"
        );
    }

    #[test]
    fn without_limits_no_group_is_needed() {
        assert!(Limits::default().group_in(Path::new("/nowhere"), "servers").expect("no limits").is_none());
        assert_eq!(Limits::default().in_words(), None);
    }
}
