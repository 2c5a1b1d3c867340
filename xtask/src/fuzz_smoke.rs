//! Runs every fuzz target for a few seconds: it builds, runs, and does not fail at once.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::MetadataCommand;
use clap::Args;
use sealion_guest::follow::{Followed, Next};
use sealion_guest::tools;

use crate::workspace;

/// Run every fuzz target for a few seconds
///
/// Builds the targets of fuzz/ with the stable compiler, libFuzzer's coverage and AddressSanitizer, whose runtime comes with the
/// standard library. For a long hunt use cargo-fuzz: `cargo +nightly fuzz run TARGET`; corpus and artifacts are in the same places.
#[derive(Args)]
pub(crate) struct FuzzSmoke {
    /// Seconds for each target
    #[arg(long, default_value_t = SECONDS)]
    pub(crate) seconds: u64,
    /// Without AddressSanitizer: more inputs in the same time
    #[arg(long)]
    pub(crate) no_sanitizer: bool,
    /// Only these targets
    pub(crate) targets: Vec<String>,
}

/// Long enough for some 10^5 inputs of a parser, short enough to run on every change.
pub(crate) const SECONDS: u64 = 2;

/// libFuzzer is C++.
const FOR_FUZZING: &[tools::Tool] = &[("c++", "g++")];

/// The flags that cargo-fuzz passes for libFuzzer's coverage.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks --cfg fuzzing";

/// AddressSanitizer. It sees what `unsafe` blocks of dependencies and of `crates/ktls/src/sys` do; code in C is not instrumented.
const SANITIZER: &str = "-Zsanitizer=address";

impl FuzzSmoke {
    /// Runs the targets. Returns each name with whether it passed.
    pub(crate) fn run(self) -> Result<Vec<(String, bool)>> {
        let mut build = build(&self.targets, !self.no_sanitizer)?;
        let status = build.command.status().context("cannot run cargo")?;
        ensure!(status.success(), "the fuzz targets do not build: cargo ended with {status}");
        let queue = Mutex::new(build.targets.into_iter());
        let results = Mutex::new(Vec::new());
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        std::thread::scope(|scope| {
            for _ in 0..processors {
                scope.spawn(|| {
                    loop {
                        let Some((name, program)) = queue.lock().expect(HELD).next() else { break };
                        let smoked = smoke(&name, &program, self.seconds);
                        let mut results = results.lock().expect(HELD);
                        match &smoked {
                            Ok(runs) => println!("fuzz {name}: {runs} inputs, ok"),
                            Err(error) => println!("fuzz {name}: {error:#}"),
                        }
                        results.push((name, smoked.is_ok()));
                    }
                });
            }
        });
        Ok(results.into_inner().expect(HELD))
    }
}

const HELD: &str = "no holder of the lock panics";

/// The cargo command, and the programs that it makes.
pub(crate) struct Build {
    pub(crate) command: Command,
    targets: Vec<(String, PathBuf)>,
}

/// The build of the wanted targets; all if none is named. `sanitizer`: with AddressSanitizer, if the compiler has its runtime.
pub(crate) fn build(wanted: &[String], sanitizer: bool) -> Result<Build> {
    tools::ensure(FOR_FUZZING)?;
    let manifest = workspace::root().join("fuzz/Cargo.toml");
    let metadata = MetadataCommand::new()
        .manifest_path(&manifest)
        .other_options(["--locked".to_owned()])
        .exec()
        .context(workspace::OLD_LOCK)
        .context("cannot read fuzz/Cargo.toml")?;
    let targets: Vec<&str> = metadata
        .workspace_packages()
        .iter()
        .flat_map(|package| &package.targets)
        .filter(|target| target.is_bin())
        .map(|target| target.name.as_str())
        .filter(|name| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name))
        .collect();
    ensure!(!targets.is_empty(), "no such fuzz target");
    let triple = host_triple()?;
    // With a target triple, RUSTFLAGS do not apply to build scripts and macros, which cannot link with the fuzzer.
    let mut command = workspace::cargo();
    command
        .args(["build", "--locked", "--release", "--target", &triple])
        .arg("--manifest-path")
        .arg(&manifest)
        .env("RUSTFLAGS", COVERAGE);
    if sanitizer && has_sanitizer()? {
        // The stable compiler has the flag, and refuses it otherwise.
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", format!("{COVERAGE} {SANITIZER}"));
    }
    for target in &targets {
        command.args(["--bin", target]);
    }
    let directory = metadata.target_directory.as_std_path().join(&triple).join("release");
    let targets = targets.into_iter().map(|name| (name.to_owned(), directory.join(name))).collect();
    Ok(Build { command, targets })
}

/// Whether the runtime of AddressSanitizer lies beside the standard library, as rustup installs it; distributions leave it out.
fn has_sanitizer() -> Result<bool> {
    let directory = sealion_guest::output(rustc().args(["--print", "target-libdir"]))?;
    let directory = Path::new(directory.trim());
    let files = directory.read_dir().with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(files.flatten().any(|file| file.file_name().to_string_lossy().ends_with("_rt.asan.a")))
}

/// Runs one target. Returns the number of inputs tried.
fn smoke(name: &str, program: &Path, seconds: u64) -> Result<u64> {
    let fuzz = workspace::root().join("fuzz");
    let corpus = fuzz.join("corpus").join(name);
    let artifacts = fuzz.join("artifacts").join(name);
    let seeds = fuzz.join("seeds").join(name);
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(program);
    command
        .current_dir(&fuzz)
        // The panic's location is enough; a backtrace would push it out of the tail that is shown.
        .env("RUST_BACKTRACE", "0")
        .arg(format!("-max_total_time={seconds}"))
        // A fixed seed, so that a failure comes from the change under test.
        .arg("-seed=1")
        .args(["-timeout=10", "-rss_limit_mb=2048", "-close_fd_mask=1"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus)
        .args(seeds.is_dir().then_some(&seeds));
    follow(&mut command, Duration::from_secs(seconds + 60))
}

fn follow(command: &mut Command, limit: Duration) -> Result<u64> {
    // libFuzzer reports on standard error.
    let mut child = Followed::start_with_errors(command, limit)?;
    let mut lines = Vec::new();
    loop {
        match child.next() {
            Next::Line(line) => lines.push(line),
            Next::End => break,
            Next::Late => bail!("did not end in {} s", limit.as_secs()),
        }
    }
    let status = child.wait()?;
    match lines.iter().rev().find_map(|line| runs(line)) {
        Some(runs) if status.success() && runs > 0 => Ok(runs),
        _ => {
            let tail = &lines[lines.len().saturating_sub(40)..];
            bail!("failed with {status}:\n{}", tail.join("\n"))
        }
    }
}

/// Reads libFuzzer's last line, `Done 123 runs in 4 second(s)`.
fn runs(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("Done ")?;
    rest.split(' ').next()?.parse().ok()
}

fn host_triple() -> Result<String> {
    let version = sealion_guest::output(rustc().arg("-vV"))?;
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).context("rustc -vV names no host")
}

fn rustc() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_inputs_is_read() {
        assert_eq!(runs("Done 52341 runs in 4 second(s)"), Some(52341));
        assert_eq!(runs("#2 INITED cov: 3"), None);
    }

    #[test]
    fn a_target_that_dies_or_tries_nothing_failed() {
        let sh = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            follow(&mut command, Duration::from_secs(60))
        };
        assert_eq!(sh("echo 'Done 7 runs in 1 second(s)' >&2").unwrap(), 7);
        assert!(sh("echo 'Done 0 runs in 1 second(s)'").is_err());
        assert!(sh("echo 'Done 7 runs in 1 second(s)'; exit 77").is_err());
        let error = sh("echo 'panicked at x'; exit 1").unwrap_err();
        assert!(error.to_string().contains("panicked at x"), "{error}");
    }
}
