//! Is a running server using kernel TLS? Asked of the kernel, socket by socket, so it holds for any program.

use std::collections::HashSet;
use std::fmt;
use std::fs;

use sealion_ktls::diag::{self, By, Socket};
use serde::Serialize;

/// The sockets of a process or port.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    of: String,
    sockets: Vec<Row>,
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
            return Err("only a process with CAP_NET_ADMIN may see the TLS state of sockets: run it as root".to_owned());
        }
        let sockets = diag::sockets().map_err(|e| e.to_string())?;
        let (of, chosen): (String, Vec<Socket>) = match (pid, port) {
            (Some(pid), _) => {
                let inodes = inodes_of(pid)?;
                (format!("process {pid}"), sockets.into_iter().filter(|s| inodes.contains(&s.inode)).collect())
            }
            (None, Some(port)) => {
                (format!("port {port}"), sockets.into_iter().filter(|s| s.local.port() == port).collect())
            }
            (None, None) => ("this machine".to_owned(), sockets),
        };
        Ok(Self { of, sockets: chosen.iter().filter_map(Row::of).collect() })
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

/// proc(5): `/proc/PID/fd/N` points to `socket:[INODE]`.
fn inodes_of(pid: u32) -> Result<HashSet<u32>, String> {
    let directory = format!("/proc/{pid}/fd");
    let entries =
        fs::read_dir(&directory).map_err(|e| format!("{directory}: {e}: is there such a process, and is it yours?"))?;
    Ok(entries
        .filter_map(|entry| {
            let target = fs::read_link(entry.ok()?.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect())
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sockets.is_empty() {
            return writeln!(
                f,
                "No open connection of {} has the kernel's TLS layer: it seals in user space, or is idle.",
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
