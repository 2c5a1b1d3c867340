//! `sealion-lab run`: measures a study and writes its report.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use crate::arm::{Arm, Limits, end_all, find_program};
use crate::load::Suite;
use crate::report;
use crate::run::{self, Agent, CalibrationSource, Options};
use crate::study::{Scale, StudyName};
use anyhow::{Context, Result, bail, ensure};
use clap::{ArgGroup, Args, ValueEnum};
use sealion_guest::Series;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Arguments of `sealion-lab run`.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("scale"))]
pub(crate) struct RunArgs {
    /// The study, or all of them in one directory
    #[arg(value_enum)]
    study: StudyOrAll,
    /// A minute or so: fewer cells, short measurements
    #[arg(long, group = "scale")]
    quick: bool,
    /// As published, which takes hours for some studies
    #[arg(long, group = "scale")]
    full: bool,
    /// Seconds, to see that everything works; the figures mean nothing
    #[arg(long, group = "scale", hide = true)]
    smoke: bool,
    /// Server to compare with: nginx, or the URL of a running server that serves the lab's files (see --files)
    #[arg(long, value_name = "nginx|URL", default_value = "nginx")]
    peer: Peer,
    /// The process of the server at --peer URL, to measure its cost
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Only these arms: user, kernel, auto, nginx, nginx-ktls, nic, URLs of running servers, or NAME=URL for a running
    /// server that replaces an arm [default: the study's, if this machine supports them]
    #[arg(long, value_name = "ARM,…", value_delimiter = ',')]
    arms: Vec<Arm>,
    /// Measurements of each cell on each arm [default: the study's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Measure a cell until half the 95 % interval of every arm is at most this part of its mean, e.g. 2%; --rounds is then the
    /// maximum [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent, conflicts_with = "guest")]
    until: Option<f64>,
    /// Only this cipher suite: aes128-gcm, aes256-gcm, chacha20-poly1305, tls12-aes128-gcm, tls12-aes256-gcm
    /// [default: the study's]
    #[arg(long, value_parser = parse_suite)]
    suite: Option<Suite>,
    /// Output directory; an unfinished run of the same plan is continued [default: lab-STUDY-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Directory of the served files, created if missing [default: ~/.cache/sealion/lab]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// Our server [default: the sealion beside this program]
    #[arg(long, value_name = "PATH")]
    sealion: Option<PathBuf>,
    /// Path of nginx [default: in PATH, or the one in the cache of `cargo xtask`]
    #[arg(long, value_name = "PATH")]
    nginx: Option<PathBuf>,
    /// Path of vegeta, the client of the arms of that name [default: in PATH, or the one in the cache of
    /// `cargo xtask`; none in a guest]
    #[arg(long, value_name = "PATH")]
    vegeta: Option<PathBuf>,
    /// The address that servers listen on
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    address: IpAddr,
    /// Let `sealion-lab agent` on another machine send the requests: HOST:PORT. --address is then an address that it reaches
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    agent: Option<String>,
    /// File with the secret that the agent has too
    #[arg(long, value_name = "FILE", requires = "agent")]
    token_file: Option<PathBuf>,
    /// Cores for the servers, one worker each [default: the first, if there are two]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    server_cores: Option<Vec<usize>>,
    /// Cores for the clients [default: the second, if there are two]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    client_cores: Option<Vec<usize>>,
    /// Processors that the servers may use, in fractions, by cgroup v2
    #[arg(long, value_name = "N", value_parser = parse_cpus)]
    limit_cpus: Option<f64>,
    /// Memory that the servers may use, page cache included, in MiB, by cgroup v2
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    limit_memory: Option<u64>,
    /// Bandwidth between client and servers in Mbit/s, by a token bucket (tc-tbf(8)) in a network namespace of the run's own
    #[arg(
        long,
        value_name = "MBIT",
        value_parser = clap::value_parser!(u32).range(1..=100_000),
        conflicts_with_all = ["agent", "peer", "pid", "address"],
    )]
    limit_bandwidth: Option<u32>,
    /// Run in an emulated guest kernel, 6.1 unless named: one core, files in memory, instructions instead of times
    #[arg(long, value_name = "KERNEL", num_args = 0..=1, require_equals = true, default_missing_value = "6.1")]
    guest: Option<Series>,
    /// Processor features that the guest lacks, by QEMU's names: aes for a processor without AES instructions
    #[arg(long, value_name = "FEATURE,…", value_delimiter = ',', requires = "guest")]
    without: Vec<String>,
    /// Costs by which auto chooses: measure (`sealion calibrate`, before the run), shipped (built in), or a file of
    /// `sealion calibrate` [default: measure; shipped in a guest]
    #[arg(long, value_name = "measure|shipped|FILE")]
    calibration: Option<CalibrationSource>,
    /// Pack the results into OUT.tar.gz, to be sent: docs/studies.md
    #[arg(long)]
    bundle: bool,
    /// Measure without writing a report
    #[arg(long, hide = true)]
    no_report: bool,
    /// Measure debug builds too; the report mentions it
    #[arg(long)]
    allow_debug: bool,
    /// Measure in spite of preflight's findings, such as a busy machine
    #[arg(long, short)]
    yes: bool,
}

/// The name of a study, or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StudyOrAll {
    One(StudyName),
    All,
}

/// The server to compare with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Peer {
    Nginx,
    Running(Arm),
}

pub(crate) fn main(args: &RunArgs) -> Result<ExitCode> {
    let options = options(args)?;
    if args.guest.is_none() {
        options.limits.enter_namespace()?;
    }
    ensure!(!args.bundle || find_program("tar").is_some(), "--bundle needs the program tar: install it");
    if let Some(series) = args.guest {
        run::run_in_guest(&options, series, &args.without)?;
        write_report(&options, args.bundle)?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = stop_at_signals()?;
    let ended = run::run(&options, &stop)?;
    let out = options.out.display();
    if ended.left > 0 {
        eprintln!("stopped with {} measurements left; to go on, give the same command with --out {out}", ended.left);
        return Ok(ExitCode::from(130));
    }
    if ended.void > 0 {
        eprintln!("{} of {} measurements are VOID; the report says why", ended.void, ended.measured);
    }
    let success = if ended.void == ended.measured { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if args.no_report {
        return Ok(success);
    }
    write_report(&options, args.bundle)?;
    Ok(success)
}

fn write_report(options: &Options, bundle: bool) -> Result<()> {
    super::print_report(&report::write(&options.out)?)?;
    if bundle { pack(&options.out) } else { Ok(()) }
}

/// Packs the results in `out` into an archive beside it.
fn pack(out: &Path) -> Result<()> {
    let out = std::path::absolute(out)?;
    let (parent, name) = out.parent().zip(out.file_name()).context("--out / cannot be packed: name a directory")?;
    let archive = parent.join(format!("{}.tar.gz", name.display()));
    let mut tar = Command::new("tar");
    tar.arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(parent)
        .args(BUNDLED.map(|file| Path::new(name).join(file)).iter().filter(|file| parent.join(file).exists()));
    let output = tar.output().context("cannot run tar: install it, or pack the directory by other means")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tar cannot write {}: {}", archive.display(), said.trim());
    super::print(&format!("{}\n", archive.display()))
}

/// The report and the files that it is made from.
const BUNDLED: [&str; 6] = ["raw.csv", "run.json", "plan.json", "calibration.json", "summary.md", "report.html"];

fn options(args: &RunArgs) -> Result<Options> {
    let studies = match args.study {
        StudyOrAll::One(study) => vec![study],
        StudyOrAll::All => StudyName::ALL.to_vec(),
    };
    let scale = match (args.smoke, args.quick, args.full) {
        (true, ..) => Scale::Smoke,
        (_, true, _) => Scale::Quick,
        (.., true) => Scale::Full,
        _ => Scale::Default,
    };
    let peer = match &args.peer {
        Peer::Nginx => None,
        Peer::Running(arm) => Some(arm.clone()),
    };
    if let Some(pid) = args.pid {
        ensure!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "--pid {pid}: there is no such process");
        let running = args.arms.iter().chain(&peer).filter(|arm| matches!(arm, Arm::Peer(_))).count();
        ensure!(running == 1, "--pid is of the one server that runs already: name it by --peer URL");
    }
    let out = match &args.out {
        Some(out) => out.clone(),
        None => directory_for(args.study.name()),
    };
    Ok(Options {
        studies,
        cells: None,
        scale,
        arms: args.arms.clone(),
        peer,
        peer_pid: args.pid,
        rounds: args.rounds.or(args.until.map(|_| MAX_ROUNDS)),
        until: args.until,
        suite: args.suite,
        out,
        files: args.files.clone(),
        sealion: args.sealion.clone(),
        nginx: args.nginx.clone(),
        vegeta: args.vegeta.clone(),
        address: args.address,
        agent: agent(args)?,
        server_cores: args.server_cores.clone(),
        client_cores: args.client_cores.clone(),
        limits: limits(args)?,
        allow_debug: args.allow_debug,
        yes: args.yes,
        calibration: args.calibration.clone(),
        command: super::command_line(),
    })
}

fn limits(args: &RunArgs) -> Result<Limits> {
    let running = args.arms.iter().find(|arm| matches!(arm, Arm::Peer(_)));
    if let Some((running, _)) = running.zip(args.limit_bandwidth) {
        bail!("--limit-bandwidth: {running} runs already, outside the namespace whose bandwidth is limited");
    }
    Ok(Limits {
        cpus: args.limit_cpus,
        memory: args.limit_memory.map(|mib| mib << 20),
        bandwidth: args.limit_bandwidth,
    })
}

fn agent(args: &RunArgs) -> Result<Option<Agent>> {
    let Some((address, file)) = args.agent.as_ref().zip(args.token_file.as_ref()) else { return Ok(None) };
    ensure!(args.guest.is_none(), "--agent: a guest has no network; measure without --guest");
    Ok(Some(Agent { address: address.clone(), token: super::agent::token(file)? }))
}

/// The directory of a run that names none.
pub(super) fn directory_for(study: &str) -> PathBuf {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let now: String = now.chars().filter(|c| c.is_ascii_digit()).collect();
    PathBuf::from(format!("lab-{study}-{now}"))
}

/// The first Ctrl-C finishes the current measurement; the second exits at once and kills the servers.
pub(super) fn stop_at_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot handle signals")?;
    let flag = stop.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if flag.swap(true, Ordering::Relaxed) {
                end_all();
                std::process::exit(128 + signal);
            }
            eprintln!("stopping after this measurement; press Ctrl-C again to stop at once");
        }
    });
    Ok(stop)
}

impl StudyOrAll {
    fn name(self) -> &'static str {
        match self {
            Self::One(study) => study.name(),
            Self::All => "all",
        }
    }
}

impl ValueEnum for StudyOrAll {
    fn value_variants<'a>() -> &'a [Self] {
        const VARIANTS: [StudyOrAll; StudyName::ALL.len() + 1] = {
            let mut variants = [StudyOrAll::All; StudyName::ALL.len() + 1];
            let mut place = 0;
            while place < StudyName::ALL.len() {
                variants[place] = StudyOrAll::One(StudyName::ALL[place]);
                place += 1;
            }
            variants
        };
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            Self::One(study) => study.to_possible_value(),
            Self::All => Some(clap::builder::PossibleValue::new("all").help("All of them, one after another")),
        }
    }
}

impl std::str::FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "nginx" => Ok(Self::Nginx),
            _ => match text.parse::<crate::arm::Peer>() {
                Ok(peer) => Ok(Self::Running(Arm::Peer(peer))),
                Err(why) => Err(format!("write nginx, or {}", why.trim_start_matches("write "))),
            },
        }
    }
}

fn parse_cpus(text: &str) -> Result<f64, String> {
    let cpus = text.parse::<f64>().ok().filter(|cpus| (0.01..=1024.0).contains(cpus));
    cpus.ok_or_else(|| "write a number of processors from 0.01 to 1024".to_owned())
}

/// A percentage as a ratio.
fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.01..=50.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "write a percentage from 0.01% to 50%, e.g. 2%".to_owned())
}

/// Rounds of a cell whose interval does not become narrow.
const MAX_ROUNDS: u32 = 50;

fn parse_suite(text: &str) -> Result<Suite, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}
