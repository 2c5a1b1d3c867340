//! The cache of kernels and programs for guests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// The environment variable that names another directory for the cache.
const CACHE_VARIABLE: &str = "SEALION_GUEST_CACHE";

/// The cache of kernels and guest programs, locked until dropped.
pub(crate) struct Cache {
    pub(crate) root: PathBuf,
    _lock: File,
}

impl Cache {
    /// Opens the cache. Waits while another process holds it.
    pub(crate) fn open() -> Result<Self> {
        let root = cache_directory()?;
        std::fs::create_dir_all(&root).with_context(|| format!("cannot make the cache {}", root.display()))?;
        let path = root.join("lock");
        let lock = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self { root, _lock: lock })
    }

    /// A temporary directory inside the cache, deleted when dropped.
    pub(crate) fn scratch(&self) -> Result<TempDir> {
        tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(&self.root)
            .with_context(|| format!("cannot write to the cache {}", self.root.display()))
    }

    /// The directory `name` of the cache. Runs `fill` if it does not exist yet; an interrupted `fill` leaves nothing
    /// behind.
    pub(crate) fn directory(&self, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let path = self.root.join(name);
        if path.is_dir() {
            return Ok(path);
        }
        let unfinished = self.scratch()?;
        fill(unfinished.path())?;
        std::fs::create_dir_all(path.parent().expect("a name inside the cache"))?;
        std::fs::rename(unfinished.path(), &path)
            .with_context(|| format!("cannot move a finished download to {}", path.display()))?;
        Ok(path)
    }
}

/// Runs `command` and returns its standard output. An exit code other than 0 is an error with the end of its output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().collect();
        let tail = &lines[lines.len().saturating_sub(12)..];
        bail!("{command:?} failed with {}:\n{}", output.status, tail.join("\n"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn cache_directory() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(CACHE_VARIABLE) {
        return Ok(path.into());
    }
    if let Some(path) = std::env::var_os("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(path).join("sealion/guest"));
    }
    match std::env::home_dir() {
        Some(home) => Ok(home.join(".cache/sealion/guest")),
        None => {
            bail!("no home directory to cache kernels in: set {CACHE_VARIABLE} to a directory with 1 GB free")
        }
    }
}
