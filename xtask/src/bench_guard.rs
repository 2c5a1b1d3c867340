//! Instruction counts against their baselines, in guest kernels.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use sealion_guest::Series;

use crate::binaries;
use crate::workspace;

/// Compare instruction counts per request with the baselines of bench/guard; +3 % does not pass
///
/// Counts in emulated guests repeat where times do not: no other load on this machine voids them. `--record` writes the
/// baselines anew; say in the commit why they moved.
#[derive(Args)]
pub(crate) struct BenchGuard {
    /// Kernel series; they run at once
    #[arg(long, value_delimiter = ',', default_values = ["6.1", "7.2"])]
    pub(crate) kernel: Vec<Series>,
    /// Count nginx too and show the ratios
    #[arg(long)]
    pub(crate) with_nginx: bool,
    /// Write the baselines, nginx's too, instead of comparing with them
    #[arg(long)]
    pub(crate) record: bool,
}

impl BenchGuard {
    /// Builds, counts and compares; true if all passed.
    pub(crate) fn run(&self) -> Result<bool> {
        // What is counted is the server; the lab is as the tests have built it.
        let mut lab = workspace::cargo();
        lab.args(["build", "--locked", "--package=sealion-lab"]);
        for mut build in [release_build(), lab] {
            ensure!(build.status().context("cannot run cargo")?.success(), "{build:?} failed");
        }
        let target = binaries::metadata()?.target_directory;
        let mut command = Command::new(target.join("debug/sealion-lab"));
        command.arg("guard").arg("--sealion").arg(target.join("release/sealion"));
        command.arg("--baselines").arg(workspace::root().join("bench/guard"));
        command.args(self.kernel.iter().flat_map(|series| ["--kernel", series.name()]));
        command.args(self.with_nginx.then_some("--with-nginx"));
        command.args(self.record.then_some("--record"));
        Ok(command.status().context("cannot run sealion-lab")?.success())
    }
}

/// Builds what is counted.
pub(crate) fn release_build() -> Command {
    let mut command = workspace::cargo();
    command.args(["build", "--locked", "--quiet", "--release", "--package=sealion"]);
    command
}
