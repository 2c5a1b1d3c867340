//! Costs of the two paths: calibrated on this machine, or the built-in defaults.

pub mod calibration;
pub mod curve;
pub mod machine;
pub(crate) mod sealing;
pub mod set_up;
mod shipped;

use std::path::{Path, PathBuf};

use calibration::{Calibration, LoadError};
use curve::Curve;
use sealing::Sealing;
use sealion_tls::Version;
use sealion_tls::record::Aead;
use set_up::SetUpCost;

use crate::path::offer::combinations;

/// Costs of every version and AEAD.
#[derive(Debug)]
pub struct Costs {
    /// In the order of [`combinations`].
    suites: Vec<Cost>,
    /// The source of the costs.
    pub origin: Origin,
}

/// Costs of one version and AEAD.
#[derive(Debug)]
pub struct Cost {
    /// Savings of the kernel path by response length.
    pub curve: Curve,
    /// The expected cost of a move.
    pub set_up: SetUpCost,
}

/// Source of the costs.
#[derive(Debug)]
pub enum Origin {
    /// Measured on this machine.
    Calibrated {
        /// The calibration file.
        path: PathBuf,
        /// Time of the measurement.
        made: String,
    },
    /// The program's built-in defaults.
    Shipped {
        /// The reason why no calibration is used.
        why: String,
    },
}

impl Costs {
    /// Loads the named file, or otherwise the first usable file of the default places. Falls back to the built-in
    /// defaults.
    ///
    /// # Errors
    /// A named file cannot be read. A file for another kernel, processor or version is not an error, so that the server
    /// starts after an update.
    pub fn load(named: Option<&Path>) -> Result<Self, LoadError> {
        let loaded = match named {
            Some(path) => Calibration::load(path).map(|calibration| (path.to_owned(), calibration)),
            None => load_kept(),
        };
        match loaded {
            Ok((path, calibration)) => Ok(Self::calibrated(path, &calibration)),
            Err(error @ LoadError::Elsewhere(..)) => Ok(Self::shipped(error.to_string())),
            Err(error) if named.is_some() => Err(error),
            Err(error) => Ok(Self::shipped(error.to_string())),
        }
    }

    /// The built-in defaults, with the reason for using them.
    pub fn shipped(why: String) -> Self {
        Self::shipped_for(Sealing::of_this_machine(), why)
    }

    fn shipped_for(sealing: Sealing, why: String) -> Self {
        let suites = combinations().map(|(_, aead)| Cost::shipped(aead, sealing)).collect();
        Self { suites, origin: Origin::Shipped { why } }
    }

    /// Calibrated costs, with built-in defaults for suites without a measurement.
    fn calibrated(path: PathBuf, calibration: &Calibration) -> Self {
        let sealing = Sealing::of_this_machine();
        let suites = combinations()
            .map(|(version, aead)| match calibration.suite(version, aead) {
                Some(suite) => Cost {
                    curve: Curve::new(suite.points.clone()).expect("checked when the file was read"),
                    set_up: SetUpCost::new(suite.set_up.median_ns),
                },
                None => Cost::shipped(aead, sealing),
            })
            .collect();
        Self { suites, origin: Origin::Calibrated { path, made: calibration.made.clone() } }
    }

    /// Costs of a version and AEAD.
    pub fn of(&self, version: Version, aead: Aead) -> &Cost {
        // Both enumerations are in the order of their ALL.
        &self.suites[version as usize * Aead::ALL.len() + aead as usize]
    }
}

fn load_kept() -> Result<(PathBuf, Calibration), LoadError> {
    let mut first_error = None;
    for path in calibration::paths() {
        match Calibration::load(&path) {
            Ok(calibration) => return Ok((path, calibration)),
            // An unusable file is a better explanation than a missing file.
            Err(error) => match &first_error {
                None | Some(LoadError::Missing(_)) if !matches!(error, LoadError::Missing(_)) => {
                    first_error = Some(error);
                }
                None => first_error = Some(error),
                Some(_) => {}
            },
        }
    }
    Err(first_error.expect("there is at least one place to look"))
}

impl Cost {
    fn shipped(aead: Aead, sealing: Sealing) -> Self {
        Self {
            curve: Curve::new(shipped::points(aead, sealing)).expect("the table ascends"),
            set_up: SetUpCost::new(shipped::SET_UP_NANOSECONDS),
        }
    }

    /// The shortest response that moves a new connection; `None` if none does.
    pub fn crossover(&self) -> Option<u64> {
        self.curve.shortest_saving(self.set_up.nanoseconds())
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Calibrated { path, made } => write!(f, "measured here on {made} ({})", path.display()),
            Self::Shipped { why } => {
                write!(f, "the shipped defaults, because {why}. `sealion calibrate` measures this machine")
            }
        }
    }
}

/// A length for messages and reports, rounded up.
pub fn display_bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_and_aead_has_its_own_costs() {
        let costs = Costs::shipped("nobody measured".to_owned());
        let all: Vec<_> = combinations().collect();
        assert_eq!(costs.suites.len(), all.len());
        for (n, (version, aead)) in all.into_iter().enumerate() {
            assert!(std::ptr::eq(costs.of(version, aead), &costs.suites[n]), "{version} {aead:?}");
        }
    }

    /// The built-in costs move no small response, and every large one.
    #[test]
    fn the_shipped_costs_are_cautious() {
        let costs = Costs::shipped_for(Sealing::Alike, "nobody measured".to_owned());
        for (version, aead) in combinations() {
            let crossover = costs.of(version, aead).crossover().expect("large responses move");
            assert!((64 << 10..1 << 20).contains(&crossover), "{version} {aead:?}: {crossover}");
            assert!(costs.of(version, aead).curve.saving(1_000) < 0, "small ones on their own never do");
        }
    }

    #[test]
    fn aes_stays_in_user_space_where_the_kernel_lacks_the_instructions() {
        for sealing in [Sealing::WithoutInstructions, Sealing::WiderInUserSpace] {
            let costs = Costs::shipped_for(sealing, "nobody measured".to_owned());
            for (version, aead) in combinations() {
                let moves = costs.of(version, aead).crossover().is_some();
                assert_eq!(moves, aead == Aead::Chacha20Poly1305, "{sealing:?} {version} {aead:?}");
            }
        }
    }

    #[test]
    fn a_named_file_must_be_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.json");
        assert!(matches!(Costs::load(Some(&path)), Err(LoadError::Missing(_))));
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(Costs::load(Some(&path)), Err(LoadError::Unusable(..))));
        let mut calibration = Calibration::of_this_machine("now".to_owned(), Vec::new());
        calibration.store(&path).unwrap();
        assert!(matches!(Costs::load(Some(&path)).unwrap().origin, Origin::Calibrated { .. }));
        calibration.machine.kernel.push('x');
        calibration.store(&path).unwrap();
        assert!(matches!(Costs::load(Some(&path)).unwrap().origin, Origin::Shipped { .. }));
    }

    #[test]
    fn lengths_are_rounded_up() {
        let shown = [0, 1_023, 1_024, 1_025, 65_536, 1 << 20, (1 << 20) + 1].map(display_bytes);
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1 KiB", "2 KiB", "64 KiB", "1 MiB", "2 MiB"]);
    }
}
