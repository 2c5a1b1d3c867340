//! vegeta(1) as the client of an arm, with the options of the container study.
//!
//! ```text
//! targets ─► vegeta attack ─► results.gob ─► vegeta encode ─► results.csv ─► Outcome
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::process::spawn_on;
use super::{find_program, xtask_cache};
use crate::histogram;
use crate::load::{Extent, LoadPlan, Outcome};
use crate::measure::{TICK, ticks};

/// The vegeta program and its version.
#[derive(Debug, Clone)]
pub(crate) struct Vegeta {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
}

impl Vegeta {
    /// Uses `program`, or vegeta in PATH, or the vegeta in the cache of `cargo xtask test`.
    ///
    /// # Errors
    /// It is missing; the error says how to get it.
    pub(crate) fn find(program: Option<&Path>) -> Result<Self> {
        let in_cache = || Some(xtask_cache()?.join("vegeta/vegeta"));
        let found = program.map(Path::to_owned).or_else(|| find_program("vegeta")).or_else(in_cache);
        let program = found.filter(|program| program.is_file()).with_context(|| {
            let named = program.map(|program| format!(" at {}", program.display())).unwrap_or_default();
            format!(
                "there is no vegeta{named}: go install github.com/tsenart/vegeta/v12@latest, or name it by --vegeta"
            )
        })?;
        let output = Command::new(&program).arg("-version").output();
        let output = output.with_context(|| format!("cannot run {}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        ensure!(output.status.success() && field("Version:").is_some(), "{} is not vegeta", program.display());
        // A build by `go install` knows its compiler alone; run.json has its SHA-256.
        let version = field("Version:").filter(|version| !version.is_empty()).unwrap_or("of unknown version");
        let runtime = field("Runtime:").unwrap_or_default();
        Ok(Self { version: format!("{version}, {runtime}"), program })
    }

    /// Attacks the plan's server as often as responses come: a closed loop of one request on each connection. vegeta reads
    /// whole bodies and keeps 10,240 bytes of each. `size`: the body's bytes. `scratch`: a directory for its results.
    ///
    /// # Errors
    /// It fails, or writes no results that can be read.
    pub(crate) fn run(&self, plan: &LoadPlan, size: u64, scratch: &Path) -> Result<Outcome> {
        let file = |name: &str| scratch.join(format!("vegeta-{name}"));
        let (targets, results, table) = (file("targets"), file("results.gob"), file("results.csv"));
        let host = format!("{}:{}", plan.server_name, plan.address.port());
        std::fs::write(&targets, format!("GET https://{host}{}\n", plan.target))
            .with_context(|| format!("cannot write {}", targets.display()))?;
        let attack = attack(plan, &host, &targets, &results);
        let client_cpu = run_pinned(Command::new(&self.program).args(attack), &plan.cores)?;
        let mut encode = Command::new(&self.program);
        encode.args(["encode", "-to", "csv", "-output"]).arg(&table).arg(&results);
        run_pinned(&mut encode, &[])?;
        let outcome = read(&table, size, plan.connections as u64, client_cpu);
        for file in [results, table] {
            std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
        }
        outcome
    }
}

/// The arguments of an attack.
fn attack(plan: &LoadPlan, host: &str, targets: &Path, results: &Path) -> Vec<String> {
    let workers = plan.connections.to_string();
    let duration = match plan.extent {
        Extent::Time(time) => time,
        Extent::Requests(_) => SMOKE,
    };
    let mut arguments: Vec<String> = Vec::new();
    if !plan.cores.is_empty() {
        arguments.extend(["-cpus".into(), plan.cores.len().to_string()]);
    }
    let fixed = ["attack", "-rate", "0", "-http2=false", "-max-body", KEPT_TEXT];
    arguments.extend(fixed.map(str::to_owned));
    for (name, value) in [
        ("-workers", workers.clone()),
        ("-max-workers", workers.clone()),
        ("-connections", workers),
        ("-duration", format!("{}ms", duration.as_millis().max(1))),
        ("-timeout", format!("{}s", plan.timeout.as_secs().max(1))),
        ("-connect-to", format!("{host}:{}", plan.address)),
        ("-targets", targets.display().to_string()),
        ("-output", results.display().to_string()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    match &plan.roots {
        Some(roots) => arguments.extend(["-root-certs".to_owned(), roots.display().to_string()]),
        None => arguments.push("-insecure".into()),
    }
    arguments
}

/// Runs `command` on `cores` to its end, and returns its CPU time in ns.
fn run_pinned(command: &mut Command, cores: &[usize]) -> Result<u64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = spawn_on(command, cores)?;
    let pid = Pid::from_child(&child);
    // Standard error is shorter than a pipe. /proc has the times of a process until it is waited for.
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).context("cannot wait for vegeta")?;
    let spent = ticks(child.id()).unwrap_or(0);
    let output = child.wait_with_output().context("cannot wait for vegeta")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "vegeta ended with {}: {}", output.status, said.trim());
    Ok(spent * TICK.as_nanos() as u64)
}

/// Reads the results of an attack.
fn read(table: &Path, size: u64, connections: u64, client_cpu: u64) -> Result<Outcome> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_path(table)?;
    let mut outcome = Outcome { client_cpu, ..Outcome::of_nothing() };
    let (mut first, mut last, mut end) = (u64::MAX, 0, 0);
    let mut record = csv::ByteRecord::new();
    while reader.read_byte_record(&mut record).context("vegeta's results cannot be read")? {
        let text =
            |field: usize| record.get(field).and_then(|field| std::str::from_utf8(field).ok()).unwrap_or_default();
        let number = |field: usize| text(field).parse::<u64>().context("vegeta's results have no number");
        let (start, code, latency, kept) = (number(0)?, number(1)?, number(2)?, number(4)?);
        let error = text(5);
        (first, last, end) = (first.min(start), last.max(start), end.max(start + latency));
        let is_whole = code == 200 && error.is_empty() && kept == size.min(KEPT);
        if is_whole {
            outcome.requests += 1;
            histogram::record(&mut outcome.latency, Duration::from_nanos(latency));
            continue;
        }
        let failures = &mut outcome.failures;
        let kind = match code {
            200 => &mut failures.body,
            0 if error.contains("deadline") || error.contains("imeout") => &mut failures.timeout,
            0 => &mut failures.io,
            _ => &mut failures.status,
        };
        *kind += 1;
        let said = match error {
            "" => format!("status {code}, {kept} bytes of {}", size.min(KEPT)),
            error => error.to_owned(),
        };
        failures.first.get_or_insert(said);
    }
    outcome.body_bytes = outcome.requests * size;
    // vegeta does not tell its connections. Each worker has one, as soon as it has sent a request.
    outcome.handshakes = outcome.requests.min(connections);
    outcome.elapsed = Duration::from_nanos(end.saturating_sub(first));
    outcome.attack = Duration::from_nanos(last.saturating_sub(first));
    Ok(outcome)
}

/// The bytes that vegeta keeps of a body, as in the container study.
const KEPT: u64 = 10_240;
const KEPT_TEXT: &str = "10240";

/// The length of an attack at the smoke scale: vegeta cannot count requests.
const SMOKE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Failures;

    fn outcome(lines: &str, size: u64) -> Outcome {
        let directory = tempfile::tempdir().expect("a directory");
        let table = directory.path().join("results.csv");
        std::fs::write(&table, lines).expect("a file");
        read(&table, size, 2, 5).expect("results")
    }

    /// Lines as `vegeta encode -to csv` writes them: start, status, latency, bytes out and in, error, body, name, number.
    #[test]
    fn an_attack_becomes_an_outcome() {
        let lines = "1000,200,300,0,10240,,Ym9keQ==,,0,GET,https://localhost/,\n\
                     1100,200,700,0,10240,,Ym9keQ==,,1,GET,https://localhost/,\n\
                     1500,200,100,0,10240,,Ym9keQ==,,2,GET,https://localhost/,\n";
        let outcome = outcome(lines, 20_000);
        assert_eq!((outcome.requests, outcome.body_bytes, outcome.failures.total()), (3, 60_000, 0));
        // From the first start to the last end, and to the last start.
        assert_eq!((outcome.elapsed.as_nanos(), outcome.attack.as_nanos()), (800, 500));
        assert_eq!((outcome.latency.min(), outcome.latency.max(), outcome.latency.len()), (100, 700, 3));
        assert_eq!((outcome.handshakes, outcome.client_cpu), (2, 5), "a connection for each worker");
    }

    #[test]
    fn failures_of_an_attack_are_no_responses() {
        let lines = "1,200,1,0,99,,,,0,GET,u,\n\
                     2,0,1,0,0,\"Get u: context deadline exceeded (Client.Timeout exceeded)\",,,1,GET,u,\n\
                     3,0,1,0,0,connection refused,,,2,GET,u,\n\
                     4,503,1,0,100,503 Service Unavailable,,,3,GET,u,\n\
                     5,200,1,0,100,unexpected EOF,,,4,GET,u,\n\
                     6,200,1,0,100,,,,5,GET,u,\n";
        let outcome = outcome(lines, 100);
        let Failures { timeout, status, body, io, first, .. } = outcome.failures;
        assert_eq!((outcome.requests, timeout, status, body, io), (1, 1, 1, 2, 1));
        assert_eq!(first.as_deref(), Some("status 200, 99 bytes of 100"));
    }

    #[test]
    fn a_machine_without_vegeta_says_how_to_get_it() {
        let why = Vegeta::find(Some(Path::new("/nowhere/vegeta"))).unwrap_err().to_string();
        assert!(why.contains("there is no vegeta at /nowhere/vegeta: go install") && why.contains("--vegeta"), "{why}");
        let why = Vegeta::find(Some(Path::new("/bin/true"))).unwrap_err().to_string();
        assert!(why.contains("/bin/true is not vegeta"), "{why}");
    }
}
