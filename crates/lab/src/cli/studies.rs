//! `sealion-lab studies`: makes the page of the published studies from committed runs, and records such runs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use crate::report;
use crate::run_info::{CalibrationInfo, RunInfo};
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

    /// Only these runs: native, guest-6.1, guest-7.2, guest-6.1-without-aes (netdev alone), guest-6.1-half-a-processor and
    /// guest-6.1-100-mbit (container alone)
    #[arg(long, value_name = "RUN,…", value_delimiter = ',', requires = "record")]
    only: Vec<String>,

    /// Directory of the served files, created if missing [default: ~/.cache/sealion/lab]
    #[arg(long, value_name = "DIR", requires = "record")]
    files: Option<PathBuf>,
}

/// How extensive a recording is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Recorded {
    /// Some minutes natively
    Quick,
    /// Less than an hour natively
    Default,
    /// As published
    Full,
    /// Seconds, by debug builds and on any machine, to see that everything works; the figures mean nothing
    #[value(hide = true)]
    Smoke,
}

pub(crate) fn main(args: &StudiesArgs) -> Result<ExitCode> {
    if let Some(scale) = args.record {
        record(args, scale)?;
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
fn record(args: &StudiesArgs, scale: Recorded) -> Result<()> {
    let StudiesArgs { directory, only, files, .. } = args;
    if let Some(unknown) = only.iter().find(|name| !RECORDINGS.iter().any(|recording| recording.name == *name)) {
        let known = RECORDINGS.map(|recording| recording.name).join(", ");
        bail!("there is no run {unknown}: write one of {known}");
    }
    let scratch = tempfile::Builder::new().prefix("sealion-lab-").tempdir().context("cannot make a directory")?;
    let chosen = |recording: &Recording| only.is_empty() || only.iter().any(|name| name == recording.name);
    for Recording { name, guest, without, options, studies } in RECORDINGS.into_iter().filter(chosen) {
        // All studies of a guest at once would need memory for the files of all studies.
        let mut rows = String::new();
        let mut info: Option<RunInfo> = None;
        let mut calibration: Option<String> = None;
        for study in studies {
            let out = scratch.path().join(format!("{name}-{}", study.name()));
            let mut run = Command::new(std::env::current_exe().context("cannot find this program")?);
            run.args(["run", study.name(), "--no-report", "--out"]).arg(&out);
            if scale == Recorded::Smoke {
                run.args(["--smoke", "--allow-debug", "--yes"]);
            } else if guest.is_some() || scale == Recorded::Quick {
                // The article's file and the talk's largest file do not fit into a guest.
                run.arg("--quick");
            } else if scale == Recorded::Full {
                run.arg("--full");
            }
            if let Some(files) = files {
                run.arg("--files").arg(files);
            }
            run.args(guest.map(|kernel| format!("--guest={kernel}")));
            run.args(without.map(|feature| format!("--without={feature}")));
            run.args(options);
            if let Some(calibration) = calibration.as_ref().filter(|_| guest.is_none()) {
                let file = scratch.path().join(CalibrationInfo::FILE);
                std::fs::write(&file, calibration).with_context(|| format!("cannot write {}", file.display()))?;
                run.arg("--calibration").arg(file);
            }
            // Counts repeat: two rounds show their spread.
            run.args(guest.filter(|_| scale != Recorded::Smoke).map(|_| "--rounds=2"));
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
            // The directory of a run is only known to this recording. A guest's command has it below SCRATCH.
            let name_of_scratch = scratch.path().file_name().unwrap_or_default().display();
            let directories = [format!("{}/", scratch.path().display()), format!("SCRATCH/{name_of_scratch}/")];
            all.commands.push(directories.iter().fold(one.command, |command, path| command.replace(path, "")));
            // Each study has other arms, and other programs for them.
            all.arms.extend(new_of(one.arms, &all.arms, |arm| &arm.name));
            all.versions.extend(new_of(one.versions, &all.versions, |version| &version.name));
            all.programs.extend(new_of(one.programs, &all.programs, |program| &program.name));
            if let Some(text) =
                std::fs::read_to_string(out.join(CalibrationInfo::FILE)).ok().filter(|_| calibration.is_none())
            {
                calibration = Some(text);
            }
            all.warnings
                .extend(one.warnings.into_iter().filter(|warning| !all.warnings.contains(warning)).collect::<Vec<_>>());
        }
        let kept = directory.join(name);
        std::fs::create_dir_all(&kept).with_context(|| format!("cannot make {}", kept.display()))?;
        std::fs::write(kept.join("raw.csv"), rows).with_context(|| format!("cannot write to {}", kept.display()))?;
        let info = info.context("no study is published")?;
        if let Some(calibration) = &calibration {
            std::fs::write(kept.join(CalibrationInfo::FILE), calibration)?;
        }
        RunInfo { study: "published".to_owned(), command: recording_command(), ..info }.write(&kept)?;
    }
    Ok(())
}

/// The values whose names none of `known` has.
fn new_of<T>(values: Vec<T>, known: &[T], name: impl Fn(&T) -> &String) -> Vec<T> {
    values.into_iter().filter(|value| !known.iter().any(|other| name(other) == name(value))).collect()
}

/// This command without the directory of the program.
fn recording_command() -> String {
    let all = super::command_line();
    let rest = all.split_once(' ').map_or("", |(_, rest)| rest);
    format!("sealion-lab {rest}")
}

/// A committed run.
struct Recording {
    name: &'static str,
    /// Series of the guest's kernel.
    guest: Option<&'static str>,
    /// A feature that the guest's processor lacks.
    without: Option<&'static str>,
    /// Further options of `sealion-lab run`.
    options: &'static [&'static str],
    studies: &'static [StudyName],
}

/// All studies in a guest, with the studies' arms.
const fn in_guest(name: &'static str, series: &'static str) -> Recording {
    Recording { name, guest: Some(series), without: None, options: &[], studies: &StudyName::PUBLISHED }
}

/// The netdev talk also compares with a processor without AES instructions, and the container test under limits.
const RECORDINGS: [Recording; 6] = [
    Recording { name: "native", guest: None, without: None, options: &[], studies: &StudyName::PUBLISHED },
    in_guest("guest-6.1", "6.1"),
    in_guest("guest-7.2", "7.2"),
    Recording { without: Some("aes"), studies: &[StudyName::Netdev], ..in_guest("guest-6.1-without-aes", "6.1") },
    Recording {
        options: &["--arms=user-limited,kernel-limited,nginx-limited,nginx-ktls-limited"],
        studies: &[StudyName::Container],
        ..in_guest("guest-6.1-half-a-processor", "6.1")
    },
    Recording {
        options: &["--arms=user,kernel,nginx,nginx-ktls", "--limit-bandwidth=100"],
        studies: &[StudyName::Container],
        ..in_guest("guest-6.1-100-mbit", "6.1")
    },
];
