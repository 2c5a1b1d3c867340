//! Looks up the server's sockets while a load runs.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use sealion_ktls::diag::{self, By};

use crate::arm::Server;
use crate::load::Outcome;

/// Runs the load of so many `connections`. Meanwhile looks up the server's sockets a few times, if that is permitted and they are few.
pub(super) fn watched(
    run: impl FnOnce() -> Result<Outcome>,
    server: &Server,
    pids: Option<&[u32]>,
    connections: usize,
) -> Result<(Outcome, Option<u64>)> {
    let Some(pids) = pids.filter(|_| diag::permitted() && connections <= FEW) else {
        return Ok((run()?, None));
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            for _ in 0..LOOKS {
                std::thread::sleep(BETWEEN_LOOKS);
                if over.load(Ordering::Relaxed) {
                    break;
                }
                most = most.max(kernel_senders(server, pids));
            }
            most
        });
        let outcome = run();
        over.store(true, Ordering::Relaxed);
        let most = watcher.join().expect("looking does not panic");
        Ok((outcome?, Some(most)))
    })
}

/// Number of the server's sockets whose records the kernel or a network card seals.
fn kernel_senders(server: &Server, pids: &[u32]) -> u64 {
    let sockets = diag::sockets().unwrap_or_default();
    let sealing = sockets.iter().filter(|socket| {
        socket.local.port() == server.address.port() && socket.tls.is_some_and(|tls| tls.sending != By::UserSpace)
    });
    let sealing: Vec<u32> = sealing.map(|socket| socket.inode).collect();
    if sealing.is_empty() {
        return 0;
    }
    let held: HashSet<u32> = pids.iter().flat_map(|pid| inodes(&Path::new("/proc").join(pid.to_string()))).collect();
    sealing.iter().filter(|inode| held.contains(inode)).count() as u64
}

fn inodes(process: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let target = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(target).collect()
}

/// The maximum number of connections for which listing all sockets does not slow the client down.
const FEW: usize = 64;

/// The number of times that sockets are looked up during a measurement, and the time between.
const LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(30);
