//! `plan.json`: the plan of a run. A run is only continued with an equal plan.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::arm::Arm;
use crate::study::{Scale, Study};

/// The measurements of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The studies in their order, with the arms that are measured.
    pub(crate) studies: Vec<Study>,
    /// The scale of the studies.
    pub(crate) scale: Scale,
    /// Cores to pin servers to; empty: none.
    pub(crate) server_cores: Vec<usize>,
    /// Cores to pin the client's threads to; empty: none.
    pub(crate) client_cores: Vec<usize>,
}

impl Plan {
    /// Name of the file in a run's directory.
    pub(crate) const FILE: &str = "plan.json";

    /// Reads the plan in `directory`; `None` if there is no plan.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(Self::FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let plan = serde_json::from_str(&text)
            .with_context(|| format!("{} is of another version of the lab: name another --out", path.display()))?;
        Ok(Some(plan))
    }

    /// Writes the plan into `directory`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(Self::FILE);
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    /// The arms of a study.
    pub(super) fn arms_of<'a>(&self, study: &'a Study) -> impl Iterator<Item = Arm> + use<'a> {
        study.arms.iter().map(|arm| arm.parse().expect("a plan is made of arms"))
    }

    /// All arms of the plan, each once.
    pub(super) fn arms(&self) -> Vec<Arm> {
        let mut arms = Vec::new();
        for arm in self.studies.iter().flat_map(|study| self.arms_of(study)) {
            if !arms.contains(&arm) {
                arms.push(arm);
            }
        }
        arms
    }
}
