//! `sealion-lab studies`: makes the page of the published studies from committed runs, and records such runs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::report;
use crate::run_info::RunInfo;
use crate::study::StudyName;

/// Arguments of `sealion-lab studies`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StudiesArgs {
    /// Directory with a directory for each run, which has raw.csv and run.json
    directory: PathBuf,

    /// The page to write, with its charts in the directory `studies` beside it [default: print it, without charts]
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,

    /// First record the published studies: on this machine, and in each guest kernel; existing recordings are replaced
    #[arg(long, value_enum, value_name = "SCALE")]
    record: Option<Recorded>,

    /// Only these runs: native, guest-6.1, guest-7.2
    #[arg(long, value_name = "RUN,…", value_delimiter = ',', requires = "record")]
    only: Vec<String>,
}

/// How extensive a recording is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Recorded {
    /// Some minutes natively
    Quick,
    /// An hour and a half natively
    Default,
    /// As published
    Full,
}

impl Recorded {
    fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }
}

pub(crate) fn main(args: &StudiesArgs) -> Result<ExitCode> {
    if let Some(scale) = args.record {
        record(&args.directory, scale, &args.only)?;
    }
    let page = report::studies_page(&args.directory)?;
    let Some(file) = &args.page else {
        super::print(&page.text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write(file, &page.text)?;
    let charts = std::path::absolute(file)?.with_file_name("studies");
    if charts.exists() {
        std::fs::remove_dir_all(&charts).with_context(|| format!("cannot empty {}", charts.display()))?;
    }
    if !page.charts.is_empty() {
        std::fs::create_dir_all(&charts).with_context(|| format!("cannot make {}", charts.display()))?;
    }
    for (name, svg) in &page.charts {
        write(&charts.join(name), svg)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs this program once for each recording, and keeps raw data and conditions.
fn record(directory: &Path, scale: Recorded, only: &[String]) -> Result<()> {
    let unknown = only.iter().find(|name| !RUNS.iter().any(|(run, _)| run == name));
    ensure!(
        unknown.is_none(),
        "there is no run {}: write native, guest-6.1 or guest-7.2",
        unknown.map_or("", String::as_str)
    );
    let scratch = tempfile::Builder::new().prefix("sealion-lab-").tempdir().context("cannot make a directory")?;
    for (name, guest) in RUNS.into_iter().filter(|(name, _)| only.is_empty() || only.iter().any(|run| run == name)) {
        // All studies of a guest at once would need room in memory for the files of all.
        let mut rows = String::new();
        let mut info: Option<RunInfo> = None;
        for study in StudyName::PUBLISHED {
            let out = scratch.path().join(format!("{name}-{}", study.name()));
            let mut run = Command::new(std::env::current_exe().context("cannot find this program")?);
            run.args(["run", study.name(), "--no-report", "--out"]).arg(&out);
            match guest {
                // The article's file and the talk's largest do not fit into a guest.
                Some(kernel) => run.args([&format!("--guest={kernel}"), "--quick"]),
                None => match scale {
                    Recorded::Quick => run.arg("--quick"),
                    Recorded::Default => &mut run,
                    Recorded::Full => run.arg("--full"),
                },
            };
            let status = run.status().context("cannot run this program again")?;
            ensure!(status.success(), "{name}: {} failed, see above", study.name());
            let text = std::fs::read_to_string(out.join("raw.csv")).context("cannot read raw.csv")?;
            let (head, body) = text.split_once('\n').context("raw.csv is empty")?;
            if rows.is_empty() {
                rows = format!("{head}\n");
            }
            rows += body;
            let one = RunInfo::read(&out)?;
            let all = info.get_or_insert_with(|| one.clone());
            all.warnings
                .extend(one.warnings.into_iter().filter(|warning| !all.warnings.contains(warning)).collect::<Vec<_>>());
        }
        let kept = directory.join(name);
        std::fs::create_dir_all(&kept).with_context(|| format!("cannot make {}", kept.display()))?;
        std::fs::write(kept.join("raw.csv"), rows).with_context(|| format!("cannot write to {}", kept.display()))?;
        let info = info.context("no study is published")?;
        let command = format!("sealion-lab studies {} --record {}", directory.display(), scale.name());
        RunInfo { study: "published".to_owned(), command, ..info }.write(&kept)?;
    }
    Ok(())
}

/// The recordings, and the guest's kernel.
const RUNS: [(&str, Option<&str>); 3] = [("native", None), ("guest-6.1", Some("6.1")), ("guest-7.2", Some("7.2"))];
