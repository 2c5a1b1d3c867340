//! Sockets of a running server that use kernel TLS. It queries the kernel for each socket, so it works for any program.

use std::collections::HashSet;
use std::{fmt, fs, io};

use rustix::io::Errno;
use sealion_ktls::diag::{self, By, Socket};
use serde::Serialize;

use super::privileges::Process;

/// The sockets of a process or port.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    of: String,
    sockets: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<Process>,
}

#[derive(Debug, Serialize)]
struct Row {
    local: String,
    remote: String,
    version: Option<String>,
    cipher: Option<String>,
    sending: &'static str,
    receiving: &'static str,
}

impl Table {
    pub(super) fn read(pid: Option<u32>, port: Option<u16>) -> Result<Self, String> {
        if !diag::permitted() {
            return Err("reading the TLS state of sockets requires CAP_NET_ADMIN: run it as root".to_owned());
        }
        let sockets = diag::sockets().map_err(|e| e.to_string())?;
        let (of, chosen): (String, Vec<Socket>) = match (pid, port) {
            (Some(pid), _) => {
                let inodes = inodes_of_tree(pid)?;
                (format!("process {pid}"), sockets.into_iter().filter(|s| inodes.contains(&s.inode)).collect())
            }
            (None, Some(port)) => {
                (format!("port {port}"), sockets.into_iter().filter(|s| s.local.port() == port).collect())
            }
            (None, None) => ("this machine".to_owned(), sockets),
        };
        let process = pid.and_then(Process::read);
        Ok(Self { of, sockets: chosen.iter().filter_map(Row::of).collect(), process })
    }

    pub(super) fn uses_ktls(&self) -> bool {
        self.sockets.iter().any(|row| row.sending != USER_SPACE || row.receiving != USER_SPACE)
    }
}

const USER_SPACE: &str = "user space";

impl Row {
    fn of(socket: &Socket) -> Option<Self> {
        let tls = socket.tls?;
        Some(Self {
            local: socket.local.to_string(),
            remote: socket.remote.to_string(),
            version: tls.version.map(|v| v.to_string()),
            cipher: tls.cipher.map(|c| c.to_string()),
            sending: by(tls.sending),
            receiving: by(tls.receiving),
        })
    }
}

fn by(by: By) -> &'static str {
    match by {
        By::UserSpace => USER_SPACE,
        By::Kernel => "kernel",
        By::Device | By::Offload => "network card",
        _ => "unknown",
    }
}

/// Socket inodes of a process and its descendants: with worker processes, a server's pid file names the master, which
/// has no connections.
fn inodes_of_tree(pid: u32) -> Result<HashSet<u32>, String> {
    let mut inodes = inodes_of(pid)
        .map_err(|e| if is_gone(&e) { format!("there is no process {pid}") } else { format!("/proc/{pid}/fd: {e}") })?;
    let parents = parents();
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(&parent) = family.get(at) {
        family.extend(parents.iter().filter(|&&(_, of)| of == parent).map(|&(child, _)| child));
        at += 1;
    }
    // A child that has ended has no sockets.
    inodes.extend(family[1..].iter().filter_map(|&child| inodes_of(child).ok()).flatten());
    Ok(inodes)
}

/// ENOENT, or ESRCH if the process ends during the call.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// proc(5): `/proc/PID/fd/N` points to `socket:[INODE]`.
fn inodes_of(pid: u32) -> io::Result<HashSet<u32>> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?
        .filter_map(|entry| {
            let target = fs::read_link(entry.ok()?.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect())
}

/// All processes with their parents.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((pid, parent_of(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
        })
        .collect()
}

/// The fourth field of proc_pid_stat(5). The second is a name in parentheses, which may itself contain spaces and
/// parentheses.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(process) = &self.process {
            writeln!(f, "It {process}.")?;
        }
        if self.sockets.is_empty() {
            return writeln!(
                f,
                "No open connection of {} uses the kernel's TLS layer: the server seals in user space or is idle.",
                self.of
            );
        }
        let dash = || "-".to_owned();
        writeln!(f, "{:<24} {:<24} {:<8} {:<18} {:<12} RECEIVES", "LOCAL", "REMOTE", "VERSION", "CIPHER", "SENDS")?;
        for row in &self.sockets {
            writeln!(
                f,
                "{:<24} {:<24} {:<8} {:<18} {:<12} {}",
                row.local,
                row.remote,
                row.version.clone().unwrap_or_else(dash),
                row.cipher.clone().unwrap_or_else(dash),
                row.sending,
                row.receiving
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_hide_the_parent() {
        assert_eq!(parent_of("17 (nginx) S 16 16 16 0 -1"), Some(16));
        assert_eq!(parent_of("17 (a) S 3 b) S 16 16 16 0 -1"), Some(16));
        assert_eq!(parent_of("17 (nginx"), None);
    }
}
