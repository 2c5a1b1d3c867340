//! `plan.json`: what a run measures. A run is only taken up again with an equal one.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::study::{Scale, Study};

/// What a run measures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The studies in their order.
    pub studies: Vec<Study>,
    /// How much of them.
    pub scale: Scale,
    /// Arms that are measured, in the order of interleaving.
    pub arms: Vec<String>,
    /// Cores that servers are pinned to; empty: none.
    pub server_cores: Vec<usize>,
    /// Cores that the client's threads are pinned to; empty: none.
    pub client_cores: Vec<usize>,
}

impl Plan {
    /// Name of the file in a run's directory.
    pub const FILE: &str = "plan.json";

    /// Reads it; `None` if the directory holds none.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version.
    pub fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(Self::FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let plan = serde_json::from_str(&text)
            .with_context(|| format!("{} is of another version of the lab: name another --out", path.display()))?;
        Ok(Some(plan))
    }

    /// Writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(Self::FILE);
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }
}
