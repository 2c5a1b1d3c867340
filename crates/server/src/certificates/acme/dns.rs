//! Answers to DNS-01 validations (RFC 8555 §8.4), by a program that changes the zone.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The program, and how long its records take to be everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DnsHook {
    pub(super) program: PathBuf,
    pub(super) wait: Duration,
}

/// A TXT record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Absolute: with a point at its end.
    name: String,
    text: String,
}

impl Record {
    /// That of a host name; a wildcard has that of the name below it.
    pub(super) fn of(host: &str, text: String) -> Self {
        Self { name: format!("_acme-challenge.{host}."), text }
    }
}

/// The longest that the program may take. Providers' interfaces answer within seconds.
const MOST: Duration = Duration::from_secs(60);

impl DnsHook {
    /// Sets a record.
    pub(super) fn present(&self, record: &Record) -> Result<(), String> {
        self.run("present", record)
    }

    /// Removes a record.
    pub(super) fn clean_up(&self, record: &Record) -> Result<(), String> {
        self.run("cleanup", record)
    }

    /// Its output goes to standard error, as the server's messages do.
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
                Ok(None) if begun.elapsed() < MOST => sleep(Duration::from_millis(20)),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(failed(format!("took longer than {} s and was ended", MOST.as_secs())));
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        }
    }
}
