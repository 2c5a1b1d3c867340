//! What the kernel says of a server: run time and kernel senders.

use std::fs;

use anyhow::{Context, Result};
use sealion_ktls::stat::TlsStat;

/// What a server has cost and done until now.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerCost {
    /// Run time of all threads, ns; where guest time counts instructions, instructions.
    pub(super) run_time: u64,
    /// Sockets that ever got a kernel sender, of any process.
    pub(super) kernel_senders: u64,
}

impl ServerCost {
    /// Reads the cost of `pid` and its children.
    pub(super) fn read(pid: u32) -> Result<Self> {
        let stat = TlsStat::read().context("cannot read /proc/net/tls_stat")?;
        Ok(Self { run_time: run_time(pid)?, kernel_senders: stat.get("TlsTxSw").unwrap_or(0) })
    }

    /// What came after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            run_time: self.run_time - earlier.run_time,
            kernel_senders: self.kernel_senders - earlier.kernel_senders,
        }
    }
}

fn run_time(pid: u32) -> Result<u64> {
    let mut sum = 0;
    let tasks = format!("/proc/{pid}/task");
    for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}: has the server ended?"))? {
        let task = task?.path();
        let schedstat = fs::read_to_string(task.join("schedstat"))?;
        let time = schedstat.split_whitespace().next().context("schedstat is empty")?;
        sum += time.parse::<u64>().context("schedstat holds no number")?;
        for child in fs::read_to_string(task.join("children"))?.split_whitespace() {
            sum += run_time(child.parse()?)?;
        }
    }
    Ok(sum)
}
