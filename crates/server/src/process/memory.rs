//! The memory that caches may take: by the configuration, and by the limit of the control group (cgroups(7)).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::values::Size;

/// The part of a control group's memory that caches take by default. GUESS: connections, bodies and the page cache of the files need the rest.
const SHARE: u64 = 4;

/// The memory of each worker's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheMemory {
    /// For files.
    pub(super) files: u64,
    /// For responses of upstreams.
    pub(super) responses: u64,
    /// The bound that made them smaller than configured.
    pub(super) bound: Option<Bound>,
}

/// A bound on all caches together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Configured(u64),
    /// The limit of the control group. The caches take a [`SHARE`] of it.
    ControlGroup(u64),
}

impl Bound {
    fn total(self) -> u64 {
        match self {
            Self::Configured(total) => total,
            Self::ControlGroup(limit) => limit / SHARE,
        }
    }
}

impl fmt::Display for CacheMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, responses) = (Size(self.files), Size(self.responses));
        write!(f, "caches of each worker: {files} for files, {responses} for responses")?;
        match self.bound {
            None => Ok(()),
            Some(Bound::Configured(total)) => write!(f, ", because server.cache_memory is {}", Size(total)),
            Some(Bound::ControlGroup(limit)) => write!(
                f,
                ", because all caches together take a quarter of the control group's {}: server.cache_memory sets another bound",
                Size(limit)
            ),
        }
    }
}

impl CacheMemory {
    /// As configured, or in the same proportion within the bound.
    pub(super) fn of(config: &Config) -> Self {
        let limit = || fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| limit(&groups, read));
        let bound = config.server.cache_memory.map(|total| Bound::Configured(total.0));
        let responses = if config.cache.directories.is_empty() { 0 } else { config.cache.memory.0 };
        let workers = config.server.worker_count() as u64;
        Self::within(
            config.server.file_cache_memory.0,
            responses,
            workers,
            bound.or_else(|| limit().map(Bound::ControlGroup)),
        )
    }

    fn within(files: u64, responses: u64, workers: u64, bound: Option<Bound>) -> Self {
        let wanted = u128::from(files.saturating_add(responses)) * u128::from(workers);
        match bound {
            Some(bound) if u128::from(bound.total()) < wanted => {
                let part = |size: u64| {
                    // Less than `size`, since the total is less than the wanted memory.
                    u64::try_from(u128::from(size) * u128::from(bound.total()) / wanted).unwrap_or(size)
                };
                Self { files: part(files), responses: part(responses), bound: Some(bound) }
            }
            _ => Self { files, responses, bound: None },
        }
    }
}

/// The least limit of the groups of a process and the groups above them. `groups`: its /proc/PID/cgroup. `read`: the content of a file.
fn limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (hierarchy, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let hierarchy = Path::new(hierarchy);
        let group: PathBuf = hierarchy.join(group);
        // In a container the path may be the host's, and its group the root of the mount.
        let above = group.ancestors().take_while(|path| path.starts_with(hierarchy));
        // "max", and a number that no machine has, are no limit.
        above.filter_map(|path| read(&path.join(file))?.trim().parse().ok()).filter(|limit| *limit < 1 << 60).min()
    };
    groups.lines().filter_map(of_line).min()
}

fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn caches_keep_their_proportion_within_a_bound() {
        let within = |bound| {
            let memory = CacheMemory::within(64 * MIB, 32 * MIB, 4, bound);
            (memory.files / MIB, memory.responses / MIB, memory.bound)
        };
        assert_eq!(within(None), (64, 32, None));
        assert_eq!(within(Some(Bound::Configured(384 * MIB))), (64, 32, None));
        let small = Bound::Configured(192 * MIB);
        assert_eq!(within(Some(small)), (32, 16, Some(small)));
        let group = Bound::ControlGroup(768 * MIB);
        assert_eq!(within(Some(group)), (32, 16, Some(group)));
        assert_eq!(CacheMemory::within(u64::MAX, u64::MAX, 1024, Some(small)).bound, Some(small));
        assert_eq!(within(Some(Bound::Configured(0))), (0, 0, Some(Bound::Configured(0))));
    }

    #[test]
    fn the_least_limit_from_the_group_to_the_root_counts() {
        let files = [
            ("/sys/fs/cgroup/memory.max", "max\n"),
            ("/sys/fs/cgroup/pod/memory.max", "1000\n"),
            ("/sys/fs/cgroup/pod/one/memory.max", "2000\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "3000\n"),
        ];
        let read =
            |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned());
        for (groups, expected) in [
            ("0::/\n", None),
            ("0::/pod\n", Some(1000)),
            ("0::/pod/one/deeper\n", Some(1000)),
            ("9:cpu,cpuacct:/docker\n4:memory:/docker\n0::/\n", Some(3000)),
            ("4:memory:/\n", None),
            ("4:memory:/../outside\n", None),
            ("", None),
            ("nonsense\n", None),
        ] {
            assert_eq!(limit(groups, read), expected, "{groups}");
        }
    }
}
