//! Responses to DNS-01 validations (RFC 8555 §8.4): records in a zone, changed by a program or by dynamic updates.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::dns_update::{Change, DnsUpdate};

/// How to change the zone, and how long its records take to reach all servers.
#[derive(Debug, Clone)]
pub(super) struct Dns {
    pub(super) zone: Zone,
    pub(super) wait: Duration,
}

/// How to change the zone.
#[derive(Debug, Clone)]
pub(super) enum Zone {
    Hook(DnsHook),
    Update(DnsUpdate),
}

impl Zone {
    /// Sets a record.
    pub(super) fn present(&self, record: &Record) -> Result<(), String> {
        match self {
            Zone::Hook(hook) => hook.run("present", record),
            Zone::Update(update) => update.change(record, Change::Add),
        }
    }

    /// Removes a record.
    pub(super) fn clean_up(&self, record: &Record) -> Result<(), String> {
        match self {
            Zone::Hook(hook) => hook.run("cleanup", record),
            Zone::Update(update) => update.change(record, Change::Remove),
        }
    }
}

/// A program that changes the zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DnsHook {
    pub(super) program: PathBuf,
}

/// A TXT record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The absolute name, with a trailing dot.
    pub(super) name: String,
    pub(super) text: String,
}

impl Record {
    /// The record for a host name; a wildcard uses the record of the name below it.
    pub(super) fn of(host: &str, text: String) -> Self {
        Self { name: format!("_acme-challenge.{host}."), text }
    }
}

/// The timeout of the program. Providers' interfaces respond within seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

impl DnsHook {
    /// Its output goes to standard error, like the server's messages.
    fn run(&self, what: &str, record: &Record) -> Result<(), String> {
        let failed = |why: String| format!("`{} {what} {} …` {why}", self.program.display(), record.name);
        let mut command = Command::new(&self.program);
        command.args([what, &record.name, &record.text]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
        let begun = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(failed(format!("failed: {status}"))),
                Ok(None) if begun.elapsed() < TIMEOUT => sleep(Duration::from_millis(20)),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(failed(format!("took longer than {} s and was ended", TIMEOUT.as_secs())));
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        }
    }
}
