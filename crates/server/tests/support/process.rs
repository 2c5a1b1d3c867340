//! The state of a server in /proc.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use sealion_testkit::server::Server;

use super::wait_until;

/// Looks in a row, 5 ms apart, that have to see the same.
const EQUAL_LOOKS: usize = 20;

/// The directories of a server's threads.
pub(crate) fn threads(server: &Server) -> Vec<PathBuf> {
    threads_of(server.pid())
}

fn threads_of(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the server runs");
    tasks.map(|entry| entry.expect("an entry").path()).collect()
}

/// Bytes of memory that the server holds, once they no longer change. Pages of the program's file do not count: the kernel takes them away when it needs
/// memory, and reads them again. VmRSS has them, and is a sum of counts that lag behind on each processor (proc_pid_status(5)).
pub(crate) fn memory(server: &Server) -> u64 {
    let look = || {
        let maps = fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid())).expect("the server runs");
        let line = maps.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("Linux tells it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    until_equal("the memory in use settles", look)
}

/// Anonymous memory by the length of its mappings, and the number of threads: where memory went.
pub(crate) fn mappings(server: &Server) -> String {
    let maps = fs::read_to_string(format!("/proc/{}/smaps", server.pid())).expect("the server runs");
    let mut by_size: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut size = 0;
    let value = |rest: &str| rest.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    for line in maps.lines() {
        if let Some(rest) = line.strip_prefix("Size:") {
            size = value(rest);
        } else if let Some(rest) = line.strip_prefix("Anonymous:") {
            let (count, held) = by_size.entry(size).or_default();
            *count += 1;
            *held += value(rest);
        }
    }
    let lines = by_size.iter().filter(|(_, (_, held))| *held > 0);
    let lines = lines.map(|(size, (count, held))| format!("{count} mappings of {size} kB hold {held} kB\n"));
    format!("{}{} threads", lines.collect::<String>(), threads(server).len())
}

/// Waits until all threads of the server wait for others, and none for a disk or a processor.
pub(crate) fn wait_until_it_rests(server: &Server) {
    wait_until_process_rests(server.pid());
}

/// The same of a process that has taken over.
pub(crate) fn wait_until_process_rests(pid: u32) {
    // A thread may end meanwhile.
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let look = || {
        let threads = threads_of(pid);
        // Number, name in parentheses, state: proc_pid_stat(5).
        if !threads.iter().all(|thread| read(thread.join("stat")).contains(") S ")) {
            return None;
        }
        // How often each has been switched to: proc_pid_status(5).
        let switches = |status: String| status.lines().filter(|line| line.contains("_switches")).collect::<String>();
        Some(threads.iter().map(|thread| switches(read(thread.join("status")))).collect::<Vec<_>>())
    };
    while until_equal("the server rests", look).is_none() {}
}

fn until_equal<T: PartialEq>(what: &str, mut look: impl FnMut() -> T) -> T {
    let (mut last, mut equal) = (look(), 0);
    wait_until(what, || {
        let now = look();
        equal = if now == last { equal + 1 } else { 0 };
        last = now;
        equal == EQUAL_LOOKS
    });
    last
}
