//! The file that `sealion calibrate` writes and the server reads.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

use sealion_tls::Version;
use sealion_tls::record::Aead;
use serde::{Deserialize, Serialize};

use super::curve::{Curve, Point};
use super::machine::Machine;
use crate::path::offer::combinations;

/// The version of the file's layout; other versions are rejected.
const FORMAT: u32 = 1;

/// The costs measured on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    format: u32,
    /// The machine it is valid for.
    pub machine: Machine,
    /// Time of the measurement (RFC 3339).
    pub made: String,
    /// Costs of each version and AEAD that the kernel supports.
    pub suites: Vec<SuiteCosts>,
}

/// Costs of a version and AEAD.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteCosts {
    /// The version, such as `TLS 1.3`.
    pub version: String,
    /// The AEAD, such as `AES-128-GCM`.
    pub aead: String,
    /// Costs of responses by length, on both paths.
    pub points: Vec<Point>,
    /// Durations of moves into the kernel.
    pub set_up: SetUpSpread,
}

/// Durations of moves into the kernel, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetUpSpread {
    /// The 10th percentile.
    pub low_ns: u64,
    /// The median, which the server starts from.
    pub median_ns: u64,
    /// The 90th percentile.
    pub high_ns: u64,
    /// The number of moves measured.
    pub moves: usize,
}

/// The reason why a file was not used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file does not exist.
    #[error("there is no {}", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read or parsed, or its costs are implausible.
    #[error("{path} cannot be used: {1}", path = .0.display())]
    Unusable(PathBuf, String),
    /// The file was made with another kernel, processor or program version.
    #[error("{path} does not fit this machine: {1}", path = .0.display())]
    Elsewhere(PathBuf, String),
}

impl Calibration {
    /// A calibration of this machine.
    pub fn of_this_machine(made: String, suites: Vec<SuiteCosts>) -> Self {
        Self { format: FORMAT, machine: Machine::this(), made, suites }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let unusable = |why: String| LoadError::Unusable(path.to_owned(), why);
        let text = fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => LoadError::Missing(path.to_owned()),
            _ => unusable(error.to_string()),
        })?;
        let calibration = Self::parse(&text).map_err(unusable)?;
        match Machine::this().differs_from(&calibration.machine) {
            Some(why) => Err(LoadError::Elsewhere(path.to_owned(), why)),
            None => Ok(calibration),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        // Checks the format first: a file with another layout is not malformed.
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        match value.get("format").and_then(serde_json::Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => return Err(format!("it has format {format}, but this version reads {FORMAT}")),
            None => return Err("it has no `format`".to_owned()),
        }
        let calibration: Self = serde_json::from_value(value).map_err(|e| e.to_string())?;
        for suite in &calibration.suites {
            let name = format!("{} {}", suite.version, suite.aead);
            if !combinations().any(|(version, aead)| suite.is_of(version, aead)) {
                return Err(format!("{name:?} is not a version and an AEAD"));
            }
            Curve::new(suite.points.clone()).map_err(|e| format!("{name} has {e}"))?;
        }
        Ok(calibration)
    }

    /// Writes a temporary file beside the target and renames it, so that a server never reads a partial file.
    ///
    /// # Errors
    /// The directory cannot be created or written.
    pub fn store(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory)?;
        }
        let beside = path.with_extension(format!("new.{}", std::process::id()));
        // Left by a process that was killed. O_EXCL: a file that another user puts there is neither followed nor
        // written.
        let _ = fs::remove_file(&beside);
        let written = fs::File::create_new(&beside).and_then(|mut file| {
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&beside, path)
        });
        if written.is_err() {
            // Best effort: the first error is the one to report.
            let _ = fs::remove_file(&beside);
        }
        written
    }

    /// Costs of a version and AEAD, if measured.
    pub fn suite(&self, version: Version, aead: Aead) -> Option<&SuiteCosts> {
        self.suites.iter().find(|suite| suite.is_of(version, aead))
    }
}

impl SuiteCosts {
    fn is_of(&self, version: Version, aead: Aead) -> bool {
        self.version == version.to_string() && self.aead == aead.cipher().to_string()
    }
}

/// The default file of `sealion calibrate`: machine-wide for root, otherwise the user's own.
pub fn default_path() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(OF_THE_MACHINE));
    }
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("sealion/calibration.json"))
}

/// The files that a server tries, in order: the user's own, then the machine-wide one.
pub(crate) fn paths() -> Vec<PathBuf> {
    let machine = PathBuf::from(OF_THE_MACHINE);
    default_path().filter(|path| *path != machine).into_iter().chain([machine.clone()]).collect()
}

const OF_THE_MACHINE: &str = "/var/lib/sealion/calibration.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Calibration {
        let point = |bytes| Point { bytes, user_ns: bytes + 900, kernel_ns: bytes / 2 + 2_000 };
        let suites = combinations()
            .map(|(version, aead)| SuiteCosts {
                version: version.to_string(),
                aead: aead.cipher().to_string(),
                points: vec![point(1_000), point(1_000_000)],
                set_up: SetUpSpread { low_ns: 5_000, median_ns: 6_000, high_ns: 9_000, moves: 64 },
            })
            .collect();
        Calibration::of_this_machine("2026-11-21T10:00:00Z".to_owned(), suites)
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("made/as/needed.json");
        let stored = example();
        stored.store(&path).unwrap();
        assert_eq!(Calibration::load(&path).unwrap(), stored);
        stored.store(&path).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
        for (version, aead) in combinations() {
            assert!(stored.suite(version, aead).is_some());
        }
    }

    #[test]
    fn another_machine_and_nonsense_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.json");
        let load = |text: &str| {
            fs::write(&path, text).unwrap();
            Calibration::load(&path).unwrap_err()
        };
        let good = serde_json::to_string(&example()).unwrap();
        assert!(matches!(Calibration::load(&directory.path().join("none")), Err(LoadError::Missing(_))));

        let mut other = example();
        other.machine.kernel = "6.1.0-50-amd64".to_owned();
        let error = load(&serde_json::to_string(&other).unwrap());
        assert!(matches!(error, LoadError::Elsewhere(..)) && error.to_string().contains("6.1.0-50-amd64"), "{error}");

        for (text, why) in [
            ("", "EOF"),
            (&good[..good.len() / 2], "EOF"),
            ("[]", "no `format`"),
            (&good.replace("\"format\":1", "\"format\":2"), "format 2"),
            (&good.replace("AES-128-GCM", "ROT13"), "ROT13"),
            (&good.replace("\"bytes\":1000,", "\"bytes\":1000000,"), "do not ascend"),
            (&good.replace("\"user_ns\":1900", "\"user_ns\":0"), "a cost that cannot be"),
            (&good.replace("median_ns", "medium_ns"), "medium_ns"),
        ] {
            let error = load(text);
            assert!(matches!(error, LoadError::Unusable(..)) && error.to_string().contains(why), "{why}: {error}");
        }
    }
}
