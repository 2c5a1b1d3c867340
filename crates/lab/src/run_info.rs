//! Conditions of a run: `run.json`, beside `raw.csv`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Conditions of a run. An empty field was not recorded, which the report mentions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The requested study, or `all`.
    pub study: String,
    /// The lab's command line, as typed.
    pub command: String,
    /// Start of the run, in seconds since 1970.
    pub started: f64,
    /// The machine that it ran on.
    pub machine: Machine,
    /// Release and version of the kernel, as `uname -rv` prints them.
    pub kernel: String,
    /// Set if it ran in a guest: kernel, emulator, and whether time there counts instructions.
    #[serde(default)]
    pub guest: Option<Guest>,
    /// The kernel's driver of each AEAD, from `/proc/crypto`.
    #[serde(default)]
    pub aead_drivers: Vec<AeadDriver>,
    /// Programs and libraries with their versions: sealion, nginx, OpenSSL, aws-lc, the lab.
    #[serde(default)]
    pub versions: Vec<Version>,
    /// Arms of the run, including absent ones.
    #[serde(default)]
    pub arms: Vec<ArmInfo>,
    /// Cores the servers were pinned to; empty: not pinned.
    #[serde(default)]
    pub server_cores: Vec<usize>,
    /// Cores the clients were pinned to; empty: not pinned.
    #[serde(default)]
    pub client_cores: Vec<usize>,
    /// Preflight's warnings, a sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The exact commands that made the rows, if there are several: one for each study of a recording.
    #[serde(default)]
    pub commands: Vec<String>,
    /// The commit of the source tree that the lab was built in, with `-dirty` if it was changed; empty: not in a tree.
    #[serde(default)]
    pub commit: String,
    /// The SHA-256 of every program that took part.
    #[serde(default)]
    pub programs: Vec<Program>,
    /// Settings of the network stack, by their names for sysctl(8).
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// The costs by which `auto` chose.
    #[serde(default)]
    pub calibration: CalibrationInfo,
    /// The machine that the client ran on, if it was another one.
    #[serde(default)]
    pub client: String,
    /// Limits of the servers in words: processors, memory, bandwidth; empty: none.
    #[serde(default)]
    pub server_limits: String,
    /// Limits of the figures, a sentence each: loopback, virtual machine, shared cores.
    #[serde(default)]
    pub limits: Vec<String>,
}

/// The processor and the memory that figures depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, from `/proc/cpuinfo`.
    pub processor: String,
    /// The number of cores that are online.
    pub cores: usize,
    /// Bytes of memory; 0 in runs that did not record it.
    #[serde(default)]
    pub memory: u64,
    /// The hypervisor, e.g. `kvm`; empty: none detected.
    #[serde(default)]
    pub hypervisor: String,
    /// The CPU frequency governor; empty: none detected.
    #[serde(default)]
    pub governor: String,
    /// Whether the processor may exceed its nominal clock: `on`, `off`; empty: not known here.
    #[serde(default)]
    pub turbo: String,
    /// Cores that share an execution unit (SMT), each group as the kernel lists it; empty: none do.
    #[serde(default)]
    pub smt: Vec<String>,
}

/// A program, identified by its content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its file name.
    pub name: String,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// The costs by which `auto` chose. All servers of a run read the same file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibrationInfo {
    /// Their source, in words; empty: not recorded.
    pub origin: String,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
}

impl CalibrationInfo {
    /// Name of the file's copy in a run's directory.
    pub const FILE: &str = "calibration.json";
}

/// A guest kernel that the run was made in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// The emulator and its version, e.g. `QEMU 7.2 TCG`.
    pub emulator: String,
    /// Whether guest time advances 1 ns per instruction: then CPU times are instruction counts, and clocks mean
    /// nothing.
    pub counts_instructions: bool,
}

/// The driver that the kernel picks for an AEAD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AeadDriver {
    /// The kernel's name, e.g. `gcm(aes)`.
    pub name: String,
    /// The driver, e.g. `generic-gcm-vaes-avx10_512`.
    pub driver: String,
}

/// A program or library.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The name of its package or library.
    pub name: String,
    /// Its version, with an identification of the build.
    pub version: String,
}

/// An arm of the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmInfo {
    /// The name in [`crate::row::Row::arm`].
    pub name: String,
    /// The server's command line; empty for a server that was already running.
    #[serde(default)]
    pub command: String,
    /// Its configuration file; empty if it has none.
    #[serde(default)]
    pub configuration: String,
    /// The URL of a server that ran elsewhere under this name. Empty: the arm's path could be proven.
    #[serde(default)]
    pub outside: String,
    /// The reason why it did not take part; empty if it did.
    #[serde(default)]
    pub absent: String,
}

impl RunInfo {
    /// Name of the file in a run's directory.
    pub const FILE: &str = "run.json";

    /// Reads `run.json` in `directory`.
    ///
    /// # Errors
    ///
    /// The file is missing, is not JSON, or lacks a required field; the error names file and field.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let path = directory.join(Self::FILE);
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read {}: is {} a directory that `sealion-lab run` made?",
                path.display(),
                directory.display()
            )
        })?;
        serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is not what this version of the lab writes; make the run again, or mend the file",
                path.display()
            )
        })
    }

    /// Writes `run.json` into `directory`.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(Self::FILE);
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    /// Whether CPU times of this run are instruction counts.
    pub(crate) fn counts_instructions(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.counts_instructions)
    }
}
