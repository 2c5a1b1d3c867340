//! Values from /proc about this process and kernel TLS. The files are opened once, so that a confined process can still
//! read them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use sealion_ktls::stat::TlsStat;

/// Open files of /proc.
#[derive(Debug)]
pub(crate) struct Process {
    status: Option<File>,
    descriptors: Option<OwnedFd>,
    tls_stat: Option<File>,
}

const TLS_STAT: &str = "/proc/net/tls_stat";

impl Process {
    pub(crate) fn open() -> Self {
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Process {
            status: File::open("/proc/self/status").ok(),
            descriptors: rustix::fs::open("/proc/self/fd", directory, Mode::empty()).ok(),
            tls_stat: File::open(TLS_STAT).ok(),
        }
    }

    /// CPU time in user space and in the kernel.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }

    /// Bytes of memory in use (proc_pid_status(5): VmRSS, in kB of 1024 bytes).
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let text = read(self.status.as_ref()?).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
        Some(kilobytes << 10)
    }

    /// File descriptors in use.
    pub(crate) fn open_descriptors(&self) -> Option<u64> {
        let mut directory = Dir::read_from(self.descriptors.as_ref()?).ok()?;
        directory.rewind();
        let entries = directory.filter_map(Result::ok);
        let all = entries.filter(|entry| !entry.file_name().to_bytes().starts_with(b".")).count();
        // Excludes the descriptor of the directory itself.
        Some(all.saturating_sub(1) as u64)
    }

    /// Limit on file descriptors.
    pub(crate) fn most_descriptors(&self) -> Option<u64> {
        getrlimit(Resource::Nofile).current
    }

    /// Counters of kernel TLS in this network namespace. `None`: the module is not loaded.
    pub(crate) fn tls_stat(&self) -> Option<TlsStat> {
        match &self.tls_stat {
            Some(file) => Some(TlsStat::parse(&read(file).ok()?)),
            None => TlsStat::read().ok(),
        }
    }
}

/// Reads a file of /proc from its beginning.
fn read(file: &File) -> io::Result<String> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match file.read_at(&mut buffer, text.len() as u64)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            came => text.extend_from_slice(&buffer[..came]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_this_process_are_plausible_and_fresh() {
        let process = Process::open();
        assert!(process.cpu_seconds() > 0.0);
        assert!(process.resident_bytes().is_some_and(|bytes| bytes > 100_000));
        // More than all other tests of this process have open; they open and close some in the meantime.
        let held: Vec<File> = (0..400).map(|_| File::open("/dev/null").unwrap()).collect();
        let open = process.open_descriptors().expect("they are counted");
        assert!(open >= held.len() as u64 && process.most_descriptors() >= Some(open), "{open}");
    }
}
