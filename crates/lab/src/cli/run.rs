//! `sealion-lab run`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use sealion_lab::study::{Scale, StudyName};

/// What `sealion-lab run` can be told.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// The study
    #[arg(value_enum)]
    study: StudyName,
}

pub(crate) fn main(args: &RunArgs) -> Result<ExitCode> {
    println!("{}", serde_json::to_string_pretty(&args.study.study(Scale::Quick))?);
    Ok(ExitCode::SUCCESS)
}
