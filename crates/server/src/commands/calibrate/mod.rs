//! `sealion calibrate`: measures the costs of both paths on this machine, and the length from which the kernel wins.

mod cpus;
mod measure;
mod pair;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use cpus::Cpus;
use measure::{Content, Measured};
use pair::Host;
use sealion_ktls::probe;
use sealion_tls::Version;
use sealion_tls::record::Aead;
use serde::Serialize;

use crate::path::costs::calibration::{Calibration, default_path};
use crate::path::costs::display_bytes;
use crate::path::costs::machine::Machine;
use crate::path::offer::combinations;

/// Arguments of `sealion calibrate`.
#[derive(Debug, Clone, Args)]
pub(super) struct CalibrateArgs {
    /// Approximate duration in seconds; keep the machine otherwise idle
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub seconds: u32,

    /// File to write the result to [default: /var/lib/sealion/calibration.json for root, else
    /// $XDG_STATE_HOME/sealion/calibration.json, where `serve` finds it]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The exit code is 0 only if both paths were measured and the result was stored.
///
/// # Errors
/// A measurement fails, or the result cannot be written.
pub(super) fn run(args: &CalibrateArgs) -> Result<ExitCode, String> {
    let output = args
        .output
        .clone()
        .or_else(default_path)
        .ok_or("no file to write the result to: set HOME or XDG_STATE_HOME, or give --output")?;
    let probe = probe::probe();
    let suites: Vec<_> =
        combinations().map(|(version, aead)| ((version, aead), probe.tx(version, aead.cipher()).is_ok())).collect();
    let absent = || probe.explain().unwrap_or_else(|| probe.to_string()).replace('\n', " ");
    if suites.iter().all(|(_, kernel)| !kernel) {
        eprintln!("sealion: this kernel has no kernel path to measure; nothing will be stored. {}", absent());
    }
    // A separate thread, because later threads would inherit the main thread's pinning.
    let seconds = args.seconds;
    let measured = std::thread::spawn(move || measure_all(&suites, seconds))
        .join()
        .map_err(|_| "the measurement panicked; see the message above")??;

    let suites: Vec<_> = measured.iter().filter_map(Measured::costs).collect();
    let made = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let absent = suites.is_empty().then(absent);
    let mut report = Report { machine: Machine::this(), made, suites: measured, no_kernel_path: absent, stored: None };
    // Store nothing without a kernel path: loading a module may provide one later on the same kernel.
    if report.no_kernel_path.is_none() {
        Calibration::of_this_machine(report.made.clone(), suites).store(&output).map_err(|error| {
            format!("cannot write {}: {error}: choose another file with --output", output.display())
        })?;
        report.stored = Some(output);
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&report).map_err(|e| e.to_string())? + "\n",
        false => report.to_string(),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("cannot print the result: {e}"))?;
    Ok(if report.stored.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure_all(suites: &[((Version, Aead), bool)], seconds: u32) -> Result<Vec<Measured>, String> {
    let cpus = Cpus::pin_sender();
    let directory = tempfile::tempdir().map_err(|e| format!("cannot make a temporary directory: {e}"))?;
    let content = Content::new(&directory.path().join("responses"))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("cannot start: {e}"))?;
    let _entered = runtime.enter();
    let host = Host::new(directory.path(), cpus)?;
    let time = Duration::from_secs(seconds.into()) / suites.len() as u32;
    let mut measured = Vec::with_capacity(suites.len());
    for (n, &((version, aead), kernel)) in suites.iter().enumerate() {
        let paths = if kernel { "both paths" } else { "the user-space path" };
        eprintln!("sealion: {} of {}: {paths} with {version} {}", n + 1, suites.len(), aead.cipher());
        let one = runtime.block_on(measure::suite(&host, &content, (version, aead), kernel, time));
        measured.push(one.map_err(|error| format!("{version} {}: {error}", aead.cipher()))?);
    }
    Ok(measured)
}

/// The result of a calibration.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    made: String,
    suites: Vec<Measured>,
    /// The reason why there is no kernel path.
    no_kernel_path: Option<String>,
    stored: Option<PathBuf>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "CPU time of the sending thread for a response, Linux {}, {}",
            self.machine.kernel, self.machine.cpu
        )?;
        for suite in &self.suites {
            write_suite(f, suite)?;
        }
        match (&self.stored, &self.no_kernel_path) {
            (Some(path), _) => writeln!(f, "\nStored in {}; servers use it from their next start.", path.display()),
            (None, why) => writeln!(
                f,
                "\nThere is no kernel path to compare with; nothing was stored. {}",
                why.as_deref().unwrap_or_default()
            ),
        }
    }
}

fn write_suite(f: &mut std::fmt::Formatter<'_>, suite: &Measured) -> std::fmt::Result {
    writeln!(f, "\n{} {:<20} {:>12} {:>12} {:>8}", suite.version, suite.aead, "user space", "kernel", "saved")?;
    for point in &suite.points {
        let mut line = format!("  {:>10} {:>29}", display_bytes(point.bytes), micros(point.user_ns));
        if let Some(kernel_ns) = point.kernel_ns {
            let saved = 100.0 * (1.0 - kernel_ns as f64 / point.user_ns as f64);
            write!(line, " {:>12} {saved:>6.1} %", micros(kernel_ns))?;
        }
        writeln!(f, "{line}")?;
    }
    let (Some(curve), Some(set_up)) = (suite.curve(), suite.set_up) else {
        return writeln!(f, "  the kernel does not seal it");
    };
    let spread = format!(
        "{} (80 % between {} and {}, {} moves)",
        micros(set_up.median_ns),
        micros(set_up.low_ns),
        micros(set_up.high_ns),
        set_up.moves
    );
    writeln!(f, "  a move takes {spread}")?;
    if !curve.ever_saves() {
        return writeln!(f, "  user space is cheaper at any length: nothing moves");
    }
    match curve.shortest_saving(set_up.median_ns) {
        Some(bytes) => {
            writeln!(f, "  a fresh connection moves with {} or more, or when smaller ones add up", display_bytes(bytes))
        }
        None => writeln!(f, "  a connection moves when its responses add up"),
    }
}

fn micros(nanoseconds: u64) -> String {
    format!("{:.1} µs", nanoseconds as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use measure::MeasuredPoint;

    use super::*;
    use crate::path::costs::calibration::SetUpSpread;

    fn report(kernel: impl Fn(u64) -> Option<u64>) -> Report {
        let point = |bytes: u64| MeasuredPoint { bytes, user_ns: bytes, kernel_ns: kernel(bytes) };
        let set_up = kernel(1).map(|_| SetUpSpread { low_ns: 5_000, median_ns: 6_500, high_ns: 9_000, moves: 48 });
        let points = [1_024, 65_536, 1 << 20].map(point).into();
        let suite = Measured { version: "TLS 1.3".to_owned(), aead: "AES-128-GCM".to_owned(), points, set_up };
        let made = "2026-11-21T10:00:00Z".to_owned();
        Report { machine: Machine::this(), made, suites: vec![suite], no_kernel_path: None, stored: None }
    }

    #[test]
    fn a_report_says_from_where_on_the_kernel_wins() {
        let text = Report { stored: Some("/c.json".into()), ..report(|bytes| Some(500 + bytes / 2)) }.to_string();
        assert!(text.contains("a move takes 6.5 µs (80 % between 5.0 µs and 9.0 µs, 48 moves)"), "{text}");
        assert!(text.contains("a fresh connection moves with 14 KiB or more"), "{text}");
        assert!(text.contains("49.2 %"), "{text}");
        assert!(text.contains("Stored in /c.json"), "{text}");
        let text = report(|bytes| Some(bytes + 1_000)).to_string();
        assert!(text.contains("user space is cheaper at any length"), "{text}");
    }

    #[test]
    fn a_report_without_kernel_path_says_why() {
        let report = Report { no_kernel_path: Some("Load the module.".to_owned()), ..report(|_| None) };
        let text = report.to_string();
        assert!(
            text.contains("the kernel does not seal it") && text.ends_with("nothing was stored. Load the module.\n")
        );
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(json["suites"][0]["points"][0]["kernel_ns"], serde_json::Value::Null);
    }
}
