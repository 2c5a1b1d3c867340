//! Instruction counts against their baselines, in guest kernels.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use sealion_guest::Series;

use crate::binaries;
use crate::workspace;

/// Compare instruction counts per request with the baselines in bench/guard; fails at 3 % above one, twice
///
/// Counts in emulated guests repeat, and other load on this machine does not change them. `--record` rewrites the
/// baselines; the commit should say why they moved.
#[derive(Args)]
pub(crate) struct BenchGuard {
    /// Kernel series, all run at the same time
    #[arg(long, value_delimiter = ',', default_values = ["6.1", "7.2"])]
    kernel: Vec<Series>,
    /// Count nginx too and show the ratios
    #[arg(long)]
    with_nginx: bool,
    /// Rewrite the baselines, including nginx's, instead of comparing with them
    #[arg(long)]
    record: bool,
    /// The program that counts [default: a build of it].
    #[arg(skip)]
    lab: Option<PathBuf>,
}

impl BenchGuard {
    /// The comparison, for `cargo xtask test`. `lab`: sealion-lab, if it is built.
    pub(crate) fn compare(kernel: Vec<Series>, lab: Option<PathBuf>) -> Self {
        Self { kernel, with_nginx: false, record: false, lab }
    }

    /// Builds, counts and compares. True if every count passed.
    pub(crate) fn run(&self) -> Result<bool> {
        // Only the server is counted, so only the server is built with optimisation. The slower the client is, the more often the server
        // sleeps: counts with a lab of a release build are up to 3 % below these (2026-11-23), so baselines are recorded here too.
        let mut build = release_build();
        ensure!(build.status().context("cannot run cargo")?.success(), "{build:?} failed");
        let lab = match &self.lab {
            Some(lab) => lab.clone(),
            None => binaries::build_debug("sealion-lab")?,
        };
        let target = binaries::metadata()?.target_directory;
        let mut command = Command::new(lab);
        command.arg("guard").arg("--sealion").arg(target.join("release/sealion"));
        command.arg("--baselines").arg(workspace::root().join("bench/guard"));
        command.args(self.kernel.iter().flat_map(|series| ["--kernel", series.name()]));
        command.args(self.with_nginx.then_some("--with-nginx"));
        command.args(self.record.then_some("--record"));
        Ok(command.status().context("cannot run sealion-lab")?.success())
    }
}

/// The build of the counted server.
pub(crate) fn release_build() -> Command {
    let mut command = workspace::cargo();
    command.args(["build", "--locked", "--quiet", "--release", "--package=sealion"]);
    command
}
