//! `sealion-lab guard`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use crate::instructions::{self, Arm, Client, Counted, Plan, guard};
use crate::load::Suite;
use crate::run_info::{Guest, RunInfo};
use anyhow::{Context, Result};
use clap::Args;
use sealion_guest::Series;

/// What `sealion-lab guard` can be told.
#[derive(Debug, Clone, Args)]
pub(crate) struct GuardArgs {
    /// Kernels; they run at once, a core each
    #[arg(long, value_delimiter = ',', default_values = ["6.1", "7.2"])]
    kernel: Vec<Series>,
    /// Directory of the baselines, a file for each kernel
    #[arg(long, default_value = "bench/guard")]
    baselines: PathBuf,
    /// Count nginx too and show the ratios
    #[arg(long)]
    with_nginx: bool,
    /// Write the baselines instead of comparing with them; counts nginx too
    #[arg(long)]
    record: bool,
    /// Our server's program [default: sealion beside this program]
    #[arg(long)]
    sealion: Option<PathBuf>,
}

pub(crate) fn main(args: &GuardArgs) -> Result<ExitCode> {
    let mut arms = vec![Arm::User, Arm::Kernel, Arm::Auto];
    if args.with_nginx || args.record {
        arms.extend([Arm::Nginx, Arm::NginxKtls]);
    }
    let plan = Plan {
        arms,
        cells: guard::cells(),
        suite: Suite::Aes128Gcm,
        open_file_cache: true,
        client: Client::Lab,
        sealion: super::instructions::sealion(args.sealion.as_deref())?,
    };
    // Read before anything runs, so that what is missing is told at once.
    let mut baselines = Vec::new();
    if !args.record {
        for series in &args.kernel {
            let path = baseline(&args.baselines, *series);
            let text = std::fs::read(&path).with_context(|| {
                format!("cannot read {}: record it with cargo xtask bench-guard --record", path.display())
            })?;
            baselines.push(guard::read(&text).with_context(|| path.display().to_string())?);
        }
    }
    let counted = instructions::run(&plan, &args.kernel)?;
    for kernel in &counted {
        println!("\nkernel {}, instructions per request", kernel.series.name());
        print!("{}", instructions::table(&kernel.rows));
    }
    if args.record {
        return record(&args.baselines, &counted);
    }
    let mut passed = true;
    for (kernel, recorded) in counted.iter().zip(&baselines) {
        for finding in guard::findings(recorded, &kernel.rows) {
            println!("kernel {}: {finding}", kernel.series.name());
            passed = false;
        }
    }
    println!("{}", if passed { "nothing above its baseline" } else { "the guard does not let this pass" });
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn record(directory: &Path, counted: &[Counted]) -> Result<ExitCode> {
    let raw = directory.join("raw");
    std::fs::create_dir_all(&raw).with_context(|| format!("cannot make {}", raw.display()))?;
    for kernel in counted {
        let path = baseline(directory, kernel.series);
        let cannot = || format!("cannot write {}", path.display());
        std::fs::write(&path, guard::write(&kernel.rows)?).with_context(cannot)?;
        std::fs::write(raw.join(format!("{}.csv", kernel.series.name())), &kernel.raw).with_context(cannot)?;
        println!("recorded {}", path.display());
    }
    let info = RunInfo {
        study: "instructions".to_owned(),
        command: "cargo xtask bench-guard --record".to_owned(),
        started: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64(),
        kernel: counted.iter().map(|kernel| kernel.series.name()).collect::<Vec<_>>().join(", "),
        guest: Some(Guest { emulator: "QEMU TCG, one core, -icount shift=0".to_owned(), counts_instructions: true }),
        ..RunInfo::default()
    };
    info.write(directory)?;
    println!("for the README: sealion-lab report {} --readme --update README.md", directory.display());
    Ok(ExitCode::SUCCESS)
}

fn baseline(directory: &Path, series: Series) -> PathBuf {
    directory.join(format!("{}.csv", series.name()))
}
