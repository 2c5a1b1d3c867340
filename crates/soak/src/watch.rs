//! Descriptors and memory of the servers, as /proc has them (proc(5)).

use std::fs;

use super::figures::Figures;

/// Notes the servers of a process group.
pub(super) fn sample(group: i32, figures: &Figures) {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in numbers.filter(|pid| group_of(*pid) == Some(group) && *pid != group as u32) {
        // It may end meanwhile.
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        figures.server_holds(descriptors as u64, field(pid, "VmHWM:").unwrap_or(0));
    }
}

/// Memory that a process holds, in bytes.
pub(super) fn memory(pid: u32) -> u64 {
    field(pid, "VmRSS:").unwrap_or(0)
}

fn field(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn group_of(pid: u32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may have blanks: state, parent and group follow it.
    stat.rsplit_once(") ")?.1.split(' ').nth(2)?.parse().ok()
}
