//! Run time of the kernel's own threads: work for a server outside the server's threads, such as records of kernel TLS
//! that a kworker finishes.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::process::fields;

/// Run times of all kernel threads at one moment, by their ids.
#[derive(Debug)]
pub(crate) struct KernelThreads(HashMap<u32, u64>);

impl KernelThreads {
    /// The current run times. Empty inside a container with its own process ids.
    pub(crate) fn now() -> Self {
        Self::below(Path::new("/proc"))
    }

    /// Run time since `earlier`, ns; `None` if no kernel thread is visible. The run time of a thread that ended in
    /// between is lost.
    pub(crate) fn since(&self, earlier: &Self) -> Option<u64> {
        let grown = |(id, now): (&u32, &u64)| now.saturating_sub(earlier.0.get(id).copied().unwrap_or(0));
        (!self.0.is_empty()).then(|| self.0.iter().map(grown).sum())
    }

    fn below(proc: &Path) -> Self {
        let processes = fs::read_dir(proc).into_iter().flatten().flatten();
        let threads = processes.filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let flags: u32 = fields(&stat)?.nth(6)?.parse().ok()?;
            if flags & PF_KTHREAD == 0 {
                return None;
            }
            let schedstat = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            Some((id, schedstat.split_whitespace().next()?.parse().ok()?))
        });
        Self(threads.collect())
    }
}

/// linux/sched.h: the process is a kernel thread.
const PF_KTHREAD: u32 = 0x0020_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kernels_threads_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let process = |id: u32, flags: u32, ran: u64| {
            let path = directory.path().join(id.to_string());
            fs::create_dir_all(&path).expect("a directory");
            fs::write(path.join("stat"), format!("{id} (kworker/0:1) S 2 0 0 0 -1 {flags} 0")).expect("a file");
            fs::write(path.join("schedstat"), format!("{ran} 5 6")).expect("a file");
        };
        assert_eq!(KernelThreads::below(directory.path()).since(&KernelThreads(HashMap::new())), None);
        process(7, PF_KTHREAD | 0x40, 100);
        process(8, 0x40, 1000);
        let before = KernelThreads::below(directory.path());
        process(7, PF_KTHREAD | 0x40, 150);
        process(8, 0x40, 2000);
        process(9, PF_KTHREAD, 11);
        assert_eq!(KernelThreads::below(directory.path()).since(&before), Some(61));
    }
}
