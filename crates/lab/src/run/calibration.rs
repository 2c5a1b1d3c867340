//! The costs by which `auto` chooses: one file for all servers of a run, kept beside its results.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::arm::{Sealion, sha256};
use crate::run_info::CalibrationInfo;

/// Where the costs come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// `sealion calibrate` measures them before the run.
    Measured,
    /// The program's built-in costs.
    Shipped,
    /// A file that `sealion calibrate` made on this machine.
    File(PathBuf),
}

impl Source {
    /// As on the command line.
    pub(crate) fn as_argument(&self) -> String {
        match self {
            Self::Measured => "measure".to_owned(),
            Self::Shipped => "shipped".to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

impl std::str::FromStr for Source {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "measure" => Self::Measured,
            "shipped" => Self::Shipped,
            path => Self::File(path.into()),
        })
    }
}

/// Whether the kernel has a path to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelPath {
    Present,
    Absent,
}

/// Puts the costs into `out` and returns the file with its description. A file that an earlier part of the run left there
/// is used again, so that `auto` chooses alike in all rounds.
///
/// # Errors
/// The file is missing, or the measurement fails.
pub(crate) fn pinned(
    source: &Source,
    kernel: KernelPath,
    sealion: &Sealion,
    out: &Path,
) -> Result<(PathBuf, CalibrationInfo)> {
    let file = out.join(CalibrationInfo::FILE);
    let origin = match (source, kernel) {
        (Source::File(given), _) => {
            ensure!(given.is_file(), "--calibration {}: there is no such file", given.display());
            if !file.exists() {
                std::fs::copy(given, &file).with_context(|| format!("cannot write {}", file.display()))?;
            }
            "a given file"
        }
        (Source::Measured, KernelPath::Present) => {
            if !file.exists() {
                sealion.calibrate(SECONDS, &file)?;
            }
            "sealion calibrate, before the run"
        }
        (Source::Shipped, _) | (Source::Measured, KernelPath::Absent) => {
            std::fs::write(&file, OF_NO_MACHINE).with_context(|| format!("cannot write {}", file.display()))?;
            "the program's built-in costs"
        }
    };
    let sha256 = sha256(&file)?;
    Ok((std::path::absolute(file)?, CalibrationInfo { origin: origin.to_owned(), sha256 }))
}

/// Duration of a calibration, as in its own default.
const SECONDS: u32 = 20;

/// A calibration for no machine: a server that is given one uses its built-in costs, and reads no other file.
const OF_NO_MACHINE: &str = r#"{
  "format": 1,
  "machine": { "kernel": "none", "cpu": "none", "sealion": "none" },
  "made": "1970-01-01T00:00:00Z",
  "suites": []
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_as_on_the_command_line() {
        for (text, source) in [
            ("measure", Source::Measured),
            ("shipped", Source::Shipped),
            ("/a/calibration.json", Source::File("/a/calibration.json".into())),
        ] {
            let parsed: Source = text.parse().expect("any text is a source");
            assert_eq!((parsed.as_argument(), parsed), (text.to_owned(), source));
        }
    }

    #[test]
    fn a_run_keeps_the_costs_that_it_began_with() {
        let directory = tempfile::tempdir().expect("a directory");
        let given = directory.path().join("mine.json");
        let sealion = Sealion { program: "/nonexistent".into(), version: String::new(), debug: false };
        std::fs::write(&given, "{}").expect("a file");
        let out = directory.path().join("out");
        std::fs::create_dir(&out).expect("a directory");
        let source = Source::File(given.clone());
        let (file, first) = pinned(&source, KernelPath::Present, &sealion, &out).expect("a copy");
        std::fs::write(&given, "{ }").expect("a file");
        let (_, again) = pinned(&source, KernelPath::Present, &sealion, &out).expect("the same");
        assert_eq!((first, std::fs::read_to_string(file).expect("a copy").as_str()), (again, "{}"));
        let missing = pinned(&Source::File("/nonexistent".into()), KernelPath::Absent, &sealion, &out);
        assert!(missing.unwrap_err().to_string().contains("no such file"));
    }
}
