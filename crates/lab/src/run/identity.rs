//! Identifies the programs of a run: two builds may have one version.

use std::path::{Path, PathBuf};

use crate::arm::sha256;
use crate::run_info::Program;

/// The commit of the tree that holds this program, with `-dirty` if the tree was changed; empty: it is in no tree.
pub(super) fn commit() -> String {
    found().unwrap_or_default()
}

fn found() -> Option<String> {
    let exe = std::env::current_exe().ok()?;
    let git = |arguments: &[&str]| {
        let mut git = std::process::Command::new("git");
        let output = git.arg("-C").arg(exe.parent()?).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_clean { commit } else { format!("{commit}-dirty") })
}

/// The lab and the servers' programs by their content.
pub(super) fn programs(servers: &[&Path]) -> Vec<Program> {
    let program = |file: PathBuf| {
        let name = file.file_name()?.to_string_lossy().into_owned();
        Some(Program { name, sha256: sha256(&file).ok()? })
    };
    std::env::current_exe()
        .into_iter()
        .chain(servers.iter().map(|file| file.to_path_buf()))
        .filter_map(program)
        .collect()
}
