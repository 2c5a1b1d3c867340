//! Everything that must hold before a change is merged, in one command.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use sealion_guest::follow::{Followed, Next};
use sealion_guest::{Machine, Series};

use crate::bench_guard::{self, BenchGuard};
use crate::binaries::{self, Built, Selection, TestBinary};
use crate::fuzz_smoke::{self, FuzzSmoke};
use crate::guest;
use crate::libtest::{Tally, Verdict, Watch};
use crate::licences::Licences;
use crate::package;
use crate::workspace;

/// Run every check: format, lints, documentation, tests here, tests in guest kernels, instruction counts, fuzz targets,
/// licences
///
/// The first run installs missing programs (as root) and downloads kernels from this machine's Debian mirror. The last
/// line is the sum: every test case counts as one, and so does every other check and every fuzz target.
#[derive(Args)]
pub(crate) struct Test {
    /// Only these steps
    #[arg(long, value_delimiter = ',')]
    only: Vec<Step>,
    /// Kernel series to test on
    #[arg(long, value_delimiter = ',', default_values = ["6.1", "7.2"])]
    kernel: Vec<Series>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    Format,
    Lint,
    Docs,
    /// Tests on this machine
    Native,
    /// Tests in guest kernels
    Guest,
    /// Instruction counts in guest kernels
    Bench,
    Fuzz,
    Licences,
    /// Packages of what the native tests have built
    Packages,
}

/// GUESS: no test binary takes minutes here; one that does hangs.
const NATIVE_LIMIT: Duration = Duration::from_secs(300);

impl Test {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let wanted = |step| self.only.is_empty() || self.only.contains(&step);
        let mut report = Report::default();
        if wanted(Step::Guest) {
            report.check("tools", guest::ensure_tools);
        }
        if wanted(Step::Format) {
            report.check("format", format);
        }
        if wanted(Step::Lint) {
            report.check("lint", lint);
        }
        if wanted(Step::Docs) {
            report.check("docs", docs);
        }
        if wanted(Step::Native) {
            report.check("nginx", sealion_guest::tools::ensure_nginx);
            report.check("pebble", || sealion_guest::tools::pebble().map(drop));
            let mut built = Built::default();
            report.check("build", || {
                built = Selection::default().build()?;
                Ok(())
            });
            // Tests wait most of their time, so that the program that is measured later is built meanwhile.
            let release = wanted(Step::Bench).then(|| bench_guard::release_build().spawn());
            for test in built.tests.iter().filter(|test| !test.runs_in_guest()) {
                let name = format!("{} {}", test.package, test.target);
                report.tests(&name, || native(&mut native_command(test)));
            }
            report.tests("examples in documentation", || {
                native(workspace::cargo().args(["test", "--workspace", "--doc", "--quiet"]))
            });
            if let Some(release) = release {
                report.check("release build", || {
                    let status = release.and_then(|mut build| build.wait()).context("cannot run cargo")?;
                    ensure!(status.success(), "cargo build --release failed");
                    Ok(())
                });
            }
        }
        if wanted(Step::Guest) {
            let mut built = Built::default();
            report.check("build for guests", || {
                // Of the whole workspace like the build above, so that nothing is compiled twice.
                built = Selection::default().guest_tests(&binaries::metadata()?)?.build()?;
                Ok(())
            });
            report.guests(&self.kernel, &built);
        }
        if wanted(Step::Bench) {
            report.check("bench guard", || {
                let guard = BenchGuard { kernel: self.kernel.clone(), with_nginx: false, record: false };
                ensure!(guard.run()?, "instruction counts, see above");
                Ok(())
            });
        }
        if wanted(Step::Fuzz) {
            report.fuzz();
        }
        if wanted(Step::Packages) {
            report.check("packages", package::check);
        }
        if wanted(Step::Licences) {
            report.check("licences", || {
                ensure!(Licences {}.run()?, "a licence is not allowed");
                Ok(())
            });
        }
        Ok(report.close())
    }
}

/// The sum so far, and what to name at the end.
#[derive(Default)]
struct Report {
    tally: Tally,
    failures: Vec<String>,
}

impl Report {
    /// A check that holds or fails as a whole.
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        self.timed(name, |report| {
            let result = check();
            report.add(name, Tally::of(result.is_ok()));
            result
        });
    }

    /// A run of tests that counts itself.
    fn tests(&mut self, name: &str, run: impl FnOnce() -> Result<Verdict>) {
        self.timed(name, |report| match run() {
            Ok(verdict) => {
                report.add_tests(name, &verdict);
                Ok(())
            }
            Err(error) => {
                report.add(name, Tally::of(false));
                Err(error)
            }
        });
    }

    fn guests(&mut self, kernels: &[Series], built: &Built) {
        self.timed("tests in guest kernels", |report| {
            if let Err(error) = report.run_guests(kernels, built) {
                report.add("guests", Tally::of(false));
                return Err(error);
            }
            Ok(())
        });
    }

    fn run_guests(&mut self, kernels: &[Series], built: &Built) -> Result<()> {
        ensure!(!built.tests.is_empty(), "there is no guest test to run");
        let guests = sealion_guest::run_on(kernels, &guest::tests(built, &[])?, &Machine::default())?;
        for (series, outcome) in guests {
            for (test, job) in built.tests.iter().zip(outcome.jobs) {
                let name = format!("{} {} on {}", test.package, test.target, series.name());
                self.add_tests(&name, &guest::verdict(&job));
            }
            if let Some(trouble) = outcome.trouble {
                println!("guest {}: {trouble}", series.name());
                self.add(&format!("guest {}", series.name()), Tally::of(false));
            }
        }
        Ok(())
    }

    fn fuzz(&mut self) {
        self.timed("fuzz targets", |report| {
            let smoke = FuzzSmoke { seconds: fuzz_smoke::SECONDS, targets: Vec::new() };
            match smoke.run() {
                Ok(targets) => {
                    for (name, held) in targets {
                        report.add(&format!("fuzz {name}"), Tally::of(held));
                    }
                    Ok(())
                }
                Err(error) => {
                    report.add("fuzz targets", Tally::of(false));
                    Err(error)
                }
            }
        });
    }

    /// Heads the step's output, times it, and shows what went wrong.
    fn timed(&mut self, name: &str, step: impl FnOnce(&mut Self) -> Result<()>) {
        println!("\n== {name}");
        let start = Instant::now();
        if let Err(error) = step(self) {
            println!("{name}: {error:#}");
        }
        println!("== {name}: {:.1} s", start.elapsed().as_secs_f64());
    }

    fn add(&mut self, name: &str, tally: Tally) {
        if tally.failed > 0 {
            self.failures.push(name.to_owned());
        }
        self.tally += tally;
    }

    /// Adds a test binary, whose failure is named after its tests where they are known.
    fn add_tests(&mut self, name: &str, verdict: &Verdict) {
        if verdict.failed.is_empty() {
            self.add(name, verdict.tally);
        } else {
            self.failures.extend(verdict.failed.iter().map(|test| format!("{name}: {test}")));
            self.tally += verdict.tally;
        }
    }

    /// Names the failures and prints the sum, the last line.
    fn close(self) -> ExitCode {
        println!();
        for name in &self.failures {
            println!("FAILED: {name}");
        }
        println!("{} passed, {} failed", self.tally.passed, self.tally.failed);
        if self.tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn format() -> Result<()> {
    succeed(workspace::cargo().args(["fmt", "--all", "--check"]))?;
    succeed(workspace::cargo().args(["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"]))
}

fn lint() -> Result<()> {
    // The tests for guests are left out of "all" targets, and cargo ignores a name beside "all".
    for targets in ["--all-targets", "--test=kernel*"] {
        succeed(workspace::cargo().args(["clippy", "--workspace", targets, "--locked", "--", "--deny=warnings"]))?;
    }
    Ok(())
}

fn docs() -> Result<()> {
    succeed(
        workspace::cargo().args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "--deny=warnings"),
    )
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{command:?} failed with {status}");
    Ok(())
}

fn native_command(test: &TestBinary) -> Command {
    let mut command = Command::new(&test.executable);
    command.current_dir(&test.directory).env("CARGO_MANIFEST_DIR", &test.directory);
    command
}

/// Runs a test binary here, or a command that runs some, showing its output.
fn native(command: &mut Command) -> Result<Verdict> {
    let mut child = Followed::start(command, NATIVE_LIMIT)?;
    let mut watch = Watch::default();
    loop {
        match child.next() {
            Next::Line(line) => {
                println!("{line}");
                watch.line(&line);
            }
            Next::End => break,
            Next::Late => {
                println!("no end after {} s: killed", NATIVE_LIMIT.as_secs());
                return Ok(watch.verdict(false));
            }
        }
    }
    Ok(watch.verdict(child.wait()?.success()))
}
