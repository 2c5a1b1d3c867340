//! A run inside an emulated guest kernel that counts instructions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sealion_guest::{Job, Machine, Payload, Series, tools};

use super::paths::Paths;
use super::{CalibrationSource, Options, Raw, identity};
use crate::arm::{Arm, Limits, Nginx, Vegeta};
use crate::row::Row;
use crate::run_info::{Guest, RunInfo};
use crate::study::{Scale, StudyName, suite_name};

/// Runs the studies of `options` in a guest with the kernel `series`, and puts the results into `options.out`. The
/// guest has one core, files are in memory, and run times of the server are instruction counts:
/// [`Row::server_instructions`]. The options' cores and directories belong to this machine and are not passed on.
/// `without`: features that the guest's processor lacks. This program must be `sealion-lab`.
///
/// # Errors
/// A guest cannot do what the options request, the guest crashed twice, or the run in it failed; its output has been
/// shown.
pub(crate) fn run_in_guest(options: &Options, series: Series, without: &[String]) -> Result<()> {
    let out = options.out.display();
    let holds = std::fs::read_dir(&options.out).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!holds, "{out} is not empty: name another --out (a run in a guest cannot be continued)");
    let outside = options.arms.iter().chain(&options.peer).find(|arm| matches!(arm, Arm::Peer(_)));
    if let Some(arm) = outside {
        bail!("{arm} is outside: a guest has no network, measure it without --guest");
    }
    ensure!(
        !matches!(options.calibration, Some(CalibrationSource::File(_))),
        "--calibration FILE is of this machine, and a guest is another: write --calibration measure or shipped"
    );
    let sealion = match &options.sealion {
        Some(program) => std::path::absolute(program)?,
        None => std::env::current_exe()?.with_file_name("sealion"),
    };
    ensure!(
        sealion.is_file(),
        "{} does not exist: build it with cargo build --release, or name it by --sealion",
        sealion.display()
    );
    // Only where it is named: a guest takes minutes for an attack.
    let vegeta = options.vegeta.as_deref().map(|program| Vegeta::find(Some(program))).transpose()?;
    if options.limits.bandwidth.is_some() {
        tools::ensure(&[("ip", "iproute2"), ("tc", "iproute2")])?;
    }
    let payload = Payload {
        programs: programs(options),
        jobs: vec![Job::program("/init", arguments(options, &sealion, vegeta.as_ref()))],
        include: std::iter::once(sealion.clone()).chain(vegeta.iter().map(|vegeta| vegeta.program.clone())).collect(),
        directories: vec![INSIDE.into(), "/tmp".into()],
        bring_back: Some(INSIDE.into()),
        ..Payload::default()
    };
    let machine = Machine { icount: true, timeout: LIMIT, memory: memory(options)?, without: without.to_vec() };
    let outcomes = sealion_guest::run_on(&[series], &payload, &machine)?;
    let (_, outcome) = outcomes.into_iter().next().context("no guest ran")?;
    if let Some(trouble) = outcome.trouble {
        bail!("kernel {}: {trouble}", series.name());
    }
    let failed = outcome.jobs.iter().any(|job| job.code != 0);
    ensure!(!failed || !outcome.files.is_empty(), "kernel {}: the run failed, see above", series.name());
    for (path, content) in outcome.files {
        write(&options.out.join(path), &content)?;
    }
    mark(options, &sealion, vegeta.as_ref(), without)
}

/// Programs that the run needs beside the servers.
fn programs(options: &Options) -> Vec<String> {
    let Limits { cpus, memory, bandwidth } = options.limits;
    let container = options.arms.is_empty() && options.studies.contains(&StudyName::Container);
    let limited = container || options.arms.iter().any(Arm::is_limited);
    let of_group = (limited || cpus.is_some() || memory.is_some()).then_some("mount");
    let of_bandwidth = bandwidth.map(|_| ["ip", "tc"]).into_iter().flatten();
    of_group.into_iter().chain(of_bandwidth).map(str::to_owned).collect()
}

/// The command line of the run inside the guest.
fn arguments(options: &Options, sealion: &Path, vegeta: Option<&Vegeta>) -> Vec<String> {
    let mut arguments = vec!["run".to_owned()];
    arguments.push(match options.studies.as_slice() {
        [study] => study.name().to_owned(),
        _ => "all".to_owned(),
    });
    match options.scale {
        Scale::Smoke => arguments.push("--smoke".into()),
        Scale::Quick => arguments.push("--quick".into()),
        Scale::Default => {}
        Scale::Full => arguments.push("--full".into()),
    }
    if !options.arms.is_empty() {
        let arms: Vec<String> = options.arms.iter().map(Arm::to_string).collect();
        arguments.extend(["--arms".into(), arms.join(",")]);
    }
    if let Some(rounds) = options.rounds {
        arguments.extend(["--rounds".into(), rounds.to_string()]);
    }
    if let Some(suite) = options.suite {
        arguments.extend(["--suite".into(), suite_name(suite)]);
    }
    let Limits { cpus, memory, bandwidth } = options.limits;
    let limits = [
        ("--limit-cpus", cpus.map(|cpus| cpus.to_string())),
        ("--limit-memory", memory.map(|memory| (memory >> 20).to_string())),
        ("--limit-bandwidth", bandwidth.map(|mbit| mbit.to_string())),
    ];
    for (name, value) in limits {
        arguments.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    }
    let calibration = options.calibration.clone().unwrap_or(CalibrationSource::Shipped);
    arguments.extend(["--calibration".into(), calibration.as_argument()]);
    if options.allow_debug {
        arguments.push("--allow-debug".into());
    }
    arguments.extend(["--sealion".into(), sealion.display().to_string()]);
    arguments.extend(vegeta.into_iter().flat_map(|found| ["--vegeta".into(), found.program.display().to_string()]));
    arguments.extend(["--out", INSIDE, "--files", "/files", "--yes", "--no-report"].map(str::to_owned));
    arguments
}

/// Memory of a guest in MiB, including its files. Fails before booting if this machine has less.
fn memory(options: &Options) -> Result<u32> {
    let cells = options.studies.iter().flat_map(|study| study.study(options.scale).cells);
    let sizes: BTreeSet<u64> = cells.flat_map(|cell| cell.sizes().collect::<Vec<_>>()).collect();
    let files = sizes.iter().sum::<u64>() >> 20;
    let needed = files * 5 / 4 + Machine::default().memory as u64;
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
    let available =
        available.and_then(|kib| kib.parse::<u64>().ok()).context("/proc/meminfo has no MemAvailable")? >> 10;
    ensure!(
        files * 5 / 4 + BASE_MEMORY <= available,
        "no room in memory: a guest has its files ({files} MiB) in memory, which takes {} MiB, and {available} MiB are \
         available: use --quick, or run without --guest",
        files * 5 / 4 + BASE_MEMORY
    );
    u32::try_from(needed).context("too much memory for a guest")
}

/// Records the guest in `run.json`, and turns run times into instructions in `raw.csv`.
fn mark(options: &Options, sealion: &Path, vegeta: Option<&Vegeta>, without: &[String]) -> Result<()> {
    let mut info = RunInfo::read(&options.out)?;
    // The guest has neither the tree nor the programs under their names.
    let vegeta = vegeta.map(|vegeta| vegeta.program.as_path());
    let programs = std::iter::once(sealion).chain(vegeta);
    info.command = Paths::new(programs, &std::env::temp_dir(), &options.out).shorten(&options.command);
    info.commit = identity::commit();
    let nginx =
        Nginx::find(options.nginx.as_deref()).ok().filter(|_| info.versions.iter().any(|one| one.name == "nginx"));
    let servers: Vec<&Path> =
        [Some(sealion), nginx.as_ref().map(|nginx| nginx.program.as_path()), vegeta].into_iter().flatten().collect();
    info.programs = identity::programs(&servers);
    let left_out = if without.is_empty() { String::new() } else { format!(", without {}", without.join(", ")) };
    info.guest = Some(Guest { emulator: emulator()? + &left_out, counts_instructions: true });
    info.write(&options.out)?;
    let path = options.out.join(Raw::FILE);
    let rows: Result<Vec<Row>, csv::Error> = csv::Reader::from_path(&path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .deserialize()
        .collect();
    let mut writer = csv::Writer::from_path(&path).with_context(|| format!("cannot write {}", path.display()))?;
    for row in rows.with_context(|| format!("{} from the guest is damaged", path.display()))? {
        writer.serialize(counted(row))?;
    }
    writer.flush().with_context(|| format!("cannot write {}", path.display()))
}

/// The row with its run time as instructions, and without meaningless times.
fn counted(row: Row) -> Row {
    Row {
        server_instructions: row.server_cpu,
        server_cpu: None,
        server_user: None,
        server_system: None,
        cores_busy: String::new(),
        cores_softirq: String::new(),
        ..row
    }
}

fn emulator() -> Result<String> {
    let version = sealion_guest::output(std::process::Command::new(sealion_guest::tools::QEMU).arg("--version"))?;
    Ok(format!("{}, TCG, one core, -icount shift=0", version.lines().next().unwrap_or_default()))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let directory: PathBuf = path.parent().unwrap_or(Path::new(".")).to_owned();
    std::fs::create_dir_all(&directory)
        .and_then(|()| std::fs::write(path, content))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The run's directory in the guest.
const INSIDE: &str = "/run-of-lab";

/// Seconds; time for a full study under emulation.
const LIMIT: u64 = 12 * 3600;

/// MiB that a guest uses besides its files.
const BASE_MEMORY: u64 = 700;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_times_become_counts() {
        let row = Row { server_cpu: Some(7), server_user: Some(1), cores_busy: "1;2".into(), ..Row::default() };
        assert_eq!(counted(row), Row { server_instructions: Some(7), ..Row::default() });
    }
}
