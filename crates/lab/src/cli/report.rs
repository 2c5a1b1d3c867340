//! `sealion-lab report`: makes the report of a run again, or a table for a README.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::report;

/// Arguments of `sealion-lab report`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ReportArgs {
    /// Directory of a run, with raw.csv and run.json; report.html and summary.md are written there
    directory: PathBuf,

    /// Print the table for a README instead, and write nothing
    #[arg(long)]
    readme: bool,

    /// Print the aggregates of every cell and arm instead, and write nothing
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "readme")]
    export: Option<report::Format>,

    /// Write each drawing of the report into this directory as an SVG file instead
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["readme", "export"])]
    drawings: Option<PathBuf>,

    /// Put that table into FILE, between <!-- peers: DIRECTORY --> (or instructions:) and <!-- end -->
    #[arg(long, value_name = "FILE", requires = "readme")]
    update: Option<PathBuf>,

    /// Arm that ratios are relative to
    #[arg(long, value_name = "ARM", default_value = "nginx", requires = "readme")]
    to: String,
}

pub(crate) fn main(args: &ReportArgs) -> Result<ExitCode> {
    if let Some(format) = args.export {
        super::print(&report::export(&args.directory, format)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(directory) = &args.drawings {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        for (name, svg) in report::drawings(&args.directory)? {
            let file = directory.join(name);
            std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(readme) = &args.update {
        let text = std::fs::read_to_string(readme).with_context(|| format!("cannot read {}", readme.display()))?;
        let base = std::path::absolute(readme)?;
        let base = base.parent().unwrap_or(std::path::Path::new("/"));
        report::enough_rounds(&args.directory)?;
        let updated = report::updated(&text, base, Some(&args.directory), &args.to)?;
        std::fs::write(readme, updated).with_context(|| format!("cannot write {}", readme.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.readme {
        super::print(&report::readme_table(&args.directory, &args.to)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    super::print_report(&report::write(&args.directory)?)?;
    Ok(ExitCode::SUCCESS)
}
