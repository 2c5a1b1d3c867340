//! The directory that container images are built from: static programs beside their Containerfiles.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sealion_guest::output;

use super::programs::{Architecture, Build};
use super::{programs, source};

/// As [`context_for`] this machine's architecture.
pub(super) fn context(build: Build, out: &Path) -> Result<PathBuf> {
    context_for(Architecture::X86_64, build, out)
}

/// Makes `out`/container from packaging/container: copied, with the programs where the Containerfiles look for them.
pub(super) fn context_for(architecture: Architecture, build: Build, out: &Path) -> Result<PathBuf> {
    let context = out.join("container");
    if context.exists() {
        std::fs::remove_dir_all(&context).with_context(|| format!("cannot replace {}", context.display()))?;
    }
    output(Command::new("cp").arg("-R").args([&source("container"), &context]))?;
    programs::build_static_for(architecture, build, &context)?;
    // ACME clients verify their servers with the public authorities.
    let authorities = Path::new("/etc/ssl/certs/ca-certificates.crt");
    let to = context.join("rootfs/etc/ssl/certs/ca-certificates.crt");
    std::fs::create_dir_all(to.parent().expect("a file lies in a directory"))?;
    std::fs::copy(authorities, &to)
        .with_context(|| format!("cannot copy {}: install ca-certificates", authorities.display()))?;
    Ok(context)
}
