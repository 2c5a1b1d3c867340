//! The kernel's TLS module, unloaded for a while.

use std::process::Command;
use std::time::{Duration, Instant};

use sealion_testkit::PATIENCE;

use super::tool;

/// The machine without the module, for as long as this lives.
pub(crate) struct Unloaded;

impl Unloaded {
    /// Unloads it as soon as no connection uses it any more.
    pub(crate) fn now() -> Self {
        let started = Instant::now();
        loop {
            let output = Command::new("rmmod").arg("tls").output().expect("rmmod is needed");
            if output.status.success() {
                return Self;
            }
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(started.elapsed() < PATIENCE, "the module stays: {why}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Unloaded {
    fn drop(&mut self) {
        tool("insmod", ["/lib/modules-sealion/tls.ko"]);
    }
}
