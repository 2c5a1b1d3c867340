//! `sealion-lab advise`: whether kernel TLS pays for the traffic of an access log.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use sealion_guest::Series;
use sealion_ktls::probe;

use crate::advise::{estimate, mix, root, verdict};
use crate::arm::{Arm, Limits, no_kernel_tls};
use crate::load::Extent;
use crate::report;
use crate::run::{self, CalibrationSource, Options};
use crate::study::{Scale, StudyName};
use crate::units;

/// Arguments of `sealion-lab advise`.
#[derive(Debug, Clone, Args)]
pub(crate) struct AdviseArgs {
    /// The access log: of Sealion (logfmt or JSON), or in the combined format of nginx and Apache httpd; - for standard
    /// input
    #[arg(long, value_name = "FILE")]
    access_log: PathBuf,

    /// Requests on a connection, if the log does not name connections [default: by the log]
    #[arg(long, value_name = "N")]
    calls: Option<f64>,

    /// A server that runs already and serves the lab's files, as a further arm: https://HOST:PORT/
    #[arg(long, value_name = "URL")]
    server: Option<Arm>,

    /// Root of the site: each class of the log is replayed in the size of its nearest file, by copies in the lab's files
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    root: Option<PathBuf>,

    /// The process of that server, to measure its cost
    #[arg(long, value_name = "PID", requires = "server")]
    pid: Option<u32>,

    /// Where this kernel has no kernel TLS: estimate by the counts of this kernel, 6.1 or 7.2
    #[arg(long, value_name = "KERNEL", default_value = "7.2")]
    like: Series,

    /// Seconds of each measurement
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    seconds: f64,

    /// Measurements of each size on each arm
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Costs by which auto chooses: measure, shipped, or a file of `sealion calibrate` [default: measure]
    #[arg(long, value_name = "measure|shipped|FILE")]
    calibration: Option<CalibrationSource>,

    /// Output directory, with raw data and report [default: lab-advise-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Directory of the served files, created if missing [default: ~/.cache/sealion/lab]
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,

    /// Our server [default: the sealion beside this program]
    #[arg(long, value_name = "PATH")]
    sealion: Option<PathBuf>,

    /// Path of nginx [default: in PATH; without one, nginx is left out]
    #[arg(long, value_name = "PATH")]
    nginx: Option<PathBuf>,

    /// A few requests instead of seconds, to see that everything works; the figures mean nothing
    #[arg(long, hide = true)]
    smoke: bool,

    /// Measure debug builds too
    #[arg(long)]
    allow_debug: bool,

    /// Measure in spite of preflight's findings, such as a busy machine
    #[arg(long, short)]
    yes: bool,
}

pub(crate) fn main(args: &AdviseArgs) -> Result<ExitCode> {
    let mut mix = read(args)?;
    let note = take_root(args, &mut mix)?;
    let probe = probe::probe();
    let has_kernel = probe.any_tx();
    if !has_kernel {
        println!("{}", no_kernel_tls(&probe));
    }
    ensure!(args.seconds > 0.0 && args.seconds.is_finite(), "--seconds {}: write a number above 0", args.seconds);
    let extent = if args.smoke { Extent::Requests(40) } else { Extent::Time(Duration::from_secs_f64(args.seconds)) };
    let cells = mix.cells(extent);
    let options = options(args, &cells, has_kernel)?;
    let stop = super::run::stop_at_signals()?;
    let ended = run::run(&options, &stop)?;
    ensure!(ended.left == 0, "stopped; to go on, give the same command with --out {}", options.out.display());
    let rows = report::raw::read(&options.out)?;
    let advice = if has_kernel {
        verdict::judge(&rows, &mix, &cells)
    } else {
        let counts = estimate::counts(args.like);
        let counts =
            counts.with_context(|| format!("--like {}: write {}", args.like.name(), estimate::known().join(" or ")))?;
        let [better, _] = counts.ratios(&mix);
        verdict::estimate(&rows, &mix, &cells, better, args.like.name())
    };
    let Some(advice) = advice else {
        let why =
            rows.iter().map(|row| row.void.as_str()).find(|void| !void.is_empty()).unwrap_or("no arm was measured");
        bail!("the replay says nothing: {why}; {}", options.out.display());
    };
    let written = report::write(&options.out)?;
    super::print(&format!("{advice}{}{note}{}\n", verdict::described(&mix), written.page.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn read(args: &AdviseArgs) -> Result<mix::Mix> {
    let reader: Box<dyn BufRead> = match args.access_log.to_str() {
        Some("-") => Box::new(std::io::stdin().lock()),
        _ => {
            let file = File::open(&args.access_log);
            Box::new(BufReader::new(file.with_context(|| format!("cannot read {}", args.access_log.display()))?))
        }
    };
    if let Some(calls) = args.calls {
        ensure!(calls >= 1.0, "--calls {calls}: a connection has at least one request");
    }
    let lines = reader.split(b'\n').map_while(Result::ok).map(|line| String::from_utf8_lossy(&line).into_owned());
    mix::read(lines, args.calls).map_err(|why| anyhow!("{}: {why}", args.access_log.display()))
}

/// Takes the sizes of the files beneath `--root`. Returns a line about them; empty without a root.
fn take_root(args: &AdviseArgs, mix: &mut mix::Mix) -> Result<String> {
    let Some(root) = &args.root else { return Ok(String::new()) };
    let sizes = root::sizes(root)?;
    let without = mix.take_sizes(&sizes);
    let mut note = format!("  sizes are those of files beneath {}", root.display());
    if !without.is_empty() {
        let without: Vec<String> = without.iter().map(|size| units::bytes(*size as f64)).collect();
        note += &format!("; no file is near {}, which keep the mean of the log", without.join(", "));
    }
    Ok(note + "\n")
}

fn options(args: &AdviseArgs, cells: &[crate::study::Cell], has_kernel: bool) -> Result<Options> {
    let mut arms = vec![Arm::User];
    if has_kernel {
        arms.extend([Arm::Kernel, Arm::Auto]);
    }
    let nginx = crate::arm::Nginx::find(args.nginx.as_deref());
    if args.nginx.is_some() && nginx.is_err() {
        nginx.as_ref().map_err(|why| anyhow!("{why:#}"))?;
    }
    if nginx.is_ok() {
        arms.push(Arm::Nginx);
        arms.extend(has_kernel.then_some(Arm::NginxKtls));
    }
    arms.extend(args.server.clone());
    let default = if args.smoke { CalibrationSource::Shipped } else { CalibrationSource::Measured };
    Ok(Options {
        studies: vec![StudyName::Mix],
        cells: Some(cells.to_vec()),
        scale: if args.smoke { Scale::Smoke } else { Scale::Default },
        arms,
        peer: None,
        peer_pid: args.pid,
        rounds: Some(args.rounds),
        until: None,
        suite: None,
        out: args.out.clone().unwrap_or_else(|| super::run::directory_for("advise")),
        files: args.files.clone(),
        sealion: args.sealion.clone(),
        nginx: args.nginx.clone(),
        vegeta: None,
        address: std::net::Ipv4Addr::LOCALHOST.into(),
        agent: None,
        server_cores: None,
        client_cores: None,
        limits: Limits::default(),
        allow_debug: args.allow_debug,
        yes: args.yes,
        calibration: Some(args.calibration.clone().unwrap_or(default)),
        command: super::command_line(),
    })
}
