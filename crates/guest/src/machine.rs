//! The emulated machine: QEMU without KVM, one processor, a kernel and an archive.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::follow::{Followed, Next};
use crate::kernels::Kernel;
use crate::payload::Payload;
use crate::protocol::Mark;
use crate::{cpio, tools};

/// The emulated machine: its clock, its memory, its timeout.
#[derive(Debug, Clone, Args)]
pub struct Machine {
    /// Count instructions: guest time advances 1 ns per instruction, so that CPU times repeat
    #[arg(long)]
    pub icount: bool,
    /// Give up after this many seconds
    #[arg(long, default_value_t = TIMEOUT, value_name = "SECONDS")]
    pub timeout: u64,
    /// Memory in MiB, including the guest's files
    #[arg(long, default_value_t = MEMORY, value_name = "MIB")]
    pub memory: u32,
    /// Processor features to leave out, by QEMU's names: `aes` for a processor without AES instructions
    #[arg(long, value_name = "FEATURE,…", value_delimiter = ',')]
    pub without: Vec<String>,
}

/// The result of one boot.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The jobs that ended, in order.
    pub jobs: Vec<JobEnd>,
    /// The files in [`Payload::bring_back`], by relative path.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The reason why the guest did not reach its end, if it did not.
    pub trouble: Option<Trouble>,
}

/// The result of one job.
#[derive(Debug)]
pub struct JobEnd {
    /// The exit code, 128 + n for signal n.
    pub code: i32,
    /// Standard output and standard error, in the order of arrival.
    pub output: String,
}

/// The reason why a guest did not reach its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It stopped before it reported its end.
    Crashed,
    /// It was killed at the time limit.
    Late,
}

impl fmt::Display for Trouble {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Crashed => "the guest crashed",
            Self::Late => "the guest did not end in time and was killed (--timeout sets the limit)",
        })
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self { icount: false, timeout: TIMEOUT, memory: MEMORY, without: Vec::new() }
    }
}

impl Machine {
    /// Boots `kernel` with the root file system `initramfs.cpio` in `directory`. Prints the jobs' output, each line
    /// prefixed with the kernel's name. Leaves the kernel's messages in `console.log`.
    pub(crate) fn boot(&self, kernel: &Kernel, directory: &Path, payload: &Payload) -> Result<Outcome> {
        let name = kernel.series.name();
        let limit = Duration::from_secs(self.timeout);
        let guest = Followed::start(&mut self.qemu(kernel, directory), limit)?;
        let mut outcome = Outcome::default();
        let mut output = String::new();
        loop {
            let line = match guest.next() {
                Next::Line(line) => line,
                Next::End => {
                    outcome.trouble = Some(Trouble::Crashed);
                    return Ok(outcome);
                }
                Next::Late => {
                    outcome.trouble = Some(Trouble::Late);
                    return Ok(outcome);
                }
            };
            let (line, mark) = Mark::split(&line);
            if let Some(line) = line {
                println!("[{name}] {line}");
                output.push_str(line);
                output.push('\n');
            }
            match mark {
                Some(Mark::Started(_)) => output.clear(),
                Some(Mark::Ended(_, code)) => outcome.jobs.push(JobEnd { code, output: std::mem::take(&mut output) }),
                Some(Mark::Finished) => {
                    let jobs = payload.jobs.len();
                    ensure!(outcome.jobs.len() == jobs, "the guest ran {} of {jobs} jobs", outcome.jobs.len());
                    let archive =
                        std::fs::read(directory.join(ARCHIVE)).context("cannot read the archive from the guest")?;
                    if payload.bring_back.is_some() {
                        outcome.files = cpio::files(&archive).context("the archive from the guest is incomplete")?;
                    }
                    return Ok(outcome);
                }
                None => {}
            }
        }
    }

    /// QEMU's `-cpu`.
    fn cpu(&self) -> String {
        self.without.iter().fold(CPU.to_owned(), |cpu, feature| format!("{cpu},-{feature}"))
    }

    fn qemu(&self, kernel: &Kernel, directory: &Path) -> Command {
        // setpriv(1): the guest is killed when this process dies.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", tools::QEMU]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-accel", "tcg,thread=single", "-cpu", &self.cpu(), "-smp", "1"]);
        command.args(["-m", &self.memory.to_string()]);
        if self.icount {
            command.args(["-icount", "shift=0,sleep=off"]);
        }
        command.arg("-kernel").arg(kernel.image());
        command.arg("-initrd").arg(directory.join("initramfs.cpio"));
        command.args(["-append", COMMAND_LINE]);
        // Serial ports: kernel messages, output and marks, files.
        let file = |name: &str| {
            let mut serial = OsString::from("file:");
            serial.push(directory.join(name));
            serial
        };
        command.arg("-serial").arg(file("console.log"));
        command.args(["-serial", "stdio"]);
        command.arg("-serial").arg(file(ARCHIVE));
        command
    }
}

/// The archive from the guest's third serial port.
const ARCHIVE: &str = "brought-back.cpio";

/// Everything that QEMU can emulate except cmpxchg16b. MEASURED: does Linux 6.12 survive 20 s of fork and exec under
/// QEMU 7.2? With it 6 of 8 runs, without it 8 of 8. After the instruction EFLAGS can hold garbage, and an interrupt at
/// that moment is a double fault, often in kmalloc, whose fast path uses it. Without the feature the kernel uses other
/// code. Void with another QEMU.
const CPU: &str = "max,-cx16";

/// An oops panics, a panic reboots, and with -no-reboot QEMU exits. Warnings and worse go to the console.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic rdinit=/init";

/// Seconds. MEASURED: all guest tests take 750 s with two guests on two cores, and 824 beside builds (2026-11-24).
const TIMEOUT: u64 = 1500;

/// MiB; room for the binaries and several bodies of 64 MB.
const MEMORY: u32 = 3072;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_left_out_of_the_processor() {
        assert_eq!(Machine::default().cpu(), CPU);
        let without = Machine { without: vec!["aes".to_owned(), "vaes".to_owned()], ..Machine::default() };
        assert_eq!(without.cpu(), format!("{CPU},-aes,-vaes"));
    }
}
