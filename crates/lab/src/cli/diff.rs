//! `sealion-lab diff`: compares two runs, and fails on a regression.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;

use crate::report;

/// Arguments of `sealion-lab diff`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DiffArgs {
    /// Directory of the run before
    before: PathBuf,

    /// Directory of the run after
    after: PathBuf,

    /// Exit code 1 if a cell costs more than this many percent more, beyond doubt
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0)]
    gate: f64,
}

pub(crate) fn main(args: &DiffArgs) -> Result<ExitCode> {
    ensure!(args.gate >= 0.0, "--gate {}: write a percentage, 0 or more", args.gate);
    let diff = report::diff(&args.before, &args.after)?;
    super::print(&diff.text(args.gate))?;
    Ok(if diff.regressions(args.gate).is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
