//! Limits of servers on processors and memory, by a cgroup (version 2).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// How much the servers of a run may use together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Limits {
    /// Processors, in fractions.
    pub(crate) cpus: Option<f64>,
    /// Bytes of memory, page cache included.
    pub(crate) memory: Option<u64>,
}

/// A cgroup, removed on drop once its processes have ended.
#[derive(Debug)]
pub(crate) struct Group {
    directory: PathBuf,
}

impl Limits {
    /// The group for servers; `None` without limits.
    ///
    /// # Errors
    /// This system has no cgroup v2 with the controllers, or this process may not make a group.
    pub(crate) fn group(&self) -> Result<Option<Group>> {
        self.group_in(Path::new(ROOT))
    }

    fn group_in(&self, root: &Path) -> Result<Option<Group>> {
        let files = self.files();
        if files.is_empty() {
            return Ok(None);
        }
        let known = fs::read_to_string(root.join("cgroup.controllers"));
        let known = known.with_context(|| {
            format!(
                "no cgroup v2 at {}, which --limit-cpus and --limit-memory need: boot with it, or leave them out",
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
        let directory = root.join(format!("sealion-lab-{}", std::process::id()));
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
        let all: Vec<String> = cpus.into_iter().chain(memory).collect();
        (!all.is_empty()).then(|| format!("servers have at most {} (cgroup v2)", all.join(" and ")))
    }
}

impl Group {
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group with processes stays, and so do its limits on them.
        let _ = fs::remove_dir(&self.directory);
    }
}

const ROOT: &str = "/sys/fs/cgroup";

/// Microseconds: the kernel's default.
const PERIOD: u32 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_become_files_of_a_group() {
        let root = tempfile::tempdir().expect("a directory");
        let limits = Limits { cpus: Some(0.5), memory: Some(512 << 20) };
        let why = limits.group_in(root.path()).unwrap_err();
        assert!(format!("{why:#}").contains("no cgroup v2 at"), "{why:#}");
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io\n").expect("a file");
        let why = limits.group_in(root.path()).unwrap_err();
        assert!(format!("{why:#}").contains("has no controller memory"), "{why:#}");
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory\n").expect("a file");
        let group = limits.group_in(root.path()).expect("a group").expect("limits");
        let text = |file: &str| fs::read_to_string(group.directory().join(file)).expect("a file");
        assert_eq!((text("cpu.max").as_str(), text("memory.max").as_str()), ("50000 100000", "536870912"));
        assert_eq!(
            limits.in_words().expect("limits"),
            "servers have at most 0.5 processors and 512 MiB of memory (cgroup v2)"
        );
    }

    #[test]
    fn without_limits_no_group_is_needed() {
        assert!(Limits::default().group_in(Path::new("/nowhere")).expect("no limits").is_none());
        assert_eq!(Limits::default().in_words(), None);
    }
}
