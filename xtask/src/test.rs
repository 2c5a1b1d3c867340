//! Everything that must hold before a change is merged, in one command.

use std::process::{Command, ExitCode};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use sealion_guest::follow::{Followed, Next};
use sealion_guest::{Machine, Series};

use crate::bench_guard::{self, BenchGuard};
use crate::binaries::{self, Built, Selection, TestBinary};
use crate::cache_tests::CacheTests;
use crate::cycles::Cycles;
use crate::fuzz_smoke::{self, FuzzSmoke};
use crate::guest;
use crate::libraries;
use crate::libtest::{Tally, Verdict, Watch};
use crate::licences::Licences;
use crate::workspace;
use crate::{book, cache_tests, package, pages};

/// Run every check: format, lints, documentation, tests here, tests in guest kernels, instruction counts, fuzz targets,
/// licences
///
/// The first run installs missing programs (as root) and downloads kernels from this machine's Debian mirror. The last
/// line is the total: every test case, every other check and every fuzz target counts as one.
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
    /// Import cycles between modules
    Cycles,
    Lint,
    Docs,
    /// Tests on this machine
    Native,
    /// Tests in guest kernels
    Guest,
    /// Instruction counts in guest kernels
    Bench,
    Fuzz,
    /// The cache of responses with http-cache-tests
    Cache,
    /// The interface and the packages of the published crates
    Libraries,
    Licences,
    /// Packages, made from the programs that the native tests were built with
    Packages,
}

/// No test binary takes minutes, even while a build runs. One that does hangs.
const NATIVE_LIMIT: Duration = Duration::from_secs(300);

impl Test {
    /// ```text
    /// foreground   format, cycles, lint, docs │ build, native tests │ guests │ bench guard │ fuzz, cache │ packages, licences
    /// background   downloads ─────────────────┤ release build ──────┼────────┤
    ///                                         │ fuzz build ─────────┼────────┼─────────────┤
    /// ```
    ///
    /// Downloads wait for the network, and tests and guests often wait for timers. Builds at the lowest priority use
    /// the processors meanwhile.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let wanted = |step| self.only.is_empty() || self.only.contains(&step);
        let mut report = Report::default();
        let (native, guests, cache) = (wanted(Step::Native), wanted(Step::Guest), wanted(Step::Cache));
        let kernels = if guests || wanted(Step::Bench) { self.kernel.clone() } else { Vec::new() };
        let downloads = Beside::start("downloads", move || download(native, guests, cache, &kernels));
        if wanted(Step::Format) {
            report.check("format", format);
        }
        if wanted(Step::Cycles) {
            report.check("cycles", || {
                ensure!(Cycles::default().run()?, "too many modules import each other in a circle, see above");
                Ok(())
            });
        }
        if wanted(Step::Lint) {
            report.check("lint", lint);
        }
        if wanted(Step::Docs) {
            report.check("docs", docs);
            report.check("pages", pages::check);
            report.check("index and links", book::check);
        }
        for (name, result) in downloads.join() {
            report.check(name, || result);
        }
        let mut built = Built::default();
        if native {
            report.check("build", || {
                built = Selection::default().build()?;
                Ok(())
            });
        }
        let release = (native && wanted(Step::Bench))
            .then(|| Beside::start("release build", || build_meanwhile(bench_guard::release_build())));
        let fuzz = (wanted(Step::Fuzz) && (native || guests))
            .then(|| Beside::start("build of fuzz targets", build_fuzz_targets));
        if native {
            for test in built.tests.iter().filter(|test| !test.runs_in_guest()) {
                let name = format!("{} {}", test.package, test.target);
                report.tests(&name, || run_here(&mut native_command(test)));
            }
            report.tests("examples in documentation", || {
                run_here(workspace::cargo().args(["test", "--workspace", "--doc", "--quiet"]))
            });
        }
        if guests {
            let mut built = Built::default();
            report.check("build for guests", || {
                // With the whole workspace selected, as above, features unify the same way and nothing is compiled
                // twice.
                built = Selection::default().guest_tests(&binaries::metadata()?)?.build()?;
                Ok(())
            });
            report.guests(&self.kernel, &built);
        }
        if let Some(release) = release {
            report.check("release build", || release.join());
        }
        if wanted(Step::Bench) {
            report.check("bench guard", || {
                let guard = BenchGuard { kernel: self.kernel.clone(), with_nginx: false, record: false };
                ensure!(guard.run()?, "instruction counts, see above");
                Ok(())
            });
        }
        if let Some(fuzz) = fuzz {
            // The fuzz step builds again and reports any error.
            let _ = fuzz.join();
        }
        if wanted(Step::Fuzz) {
            report.fuzz();
        }
        if cache {
            report.check("http-cache-tests", || {
                ensure!(CacheTests::all().run()?, "the page of http-cache-tests is wrong, see above");
                Ok(())
            });
        }
        if wanted(Step::Packages) {
            report.check("packages", package::check);
        }
        if wanted(Step::Libraries) {
            report.check("interface of libraries", libraries::interface);
            report.check("packages of libraries", libraries::package);
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

/// Work on a thread of its own while other steps run.
struct Beside<T> {
    name: &'static str,
    thread: JoinHandle<(T, Duration)>,
}

impl<T: Send + 'static> Beside<T> {
    fn start(name: &'static str, work: impl FnOnce() -> T + Send + 'static) -> Self {
        let timed = || {
            let start = Instant::now();
            (work(), start.elapsed())
        };
        Self { name, thread: std::thread::spawn(timed) }
    }

    /// Waits for the end and prints the times.
    fn join(self) -> T {
        let waited = Instant::now();
        let (result, took) = self.thread.join().expect("a step reports its failures");
        let (took, waited) = (took.as_secs_f64(), waited.elapsed().as_secs_f64());
        println!("\n== {}: {took:.1} s beside other steps, which waited {waited:.1} s for it", self.name);
        result
    }
}

/// Downloads missing programs and kernels. Each is a check of its own.
fn download(native: bool, guests: bool, cache: bool, kernels: &[Series]) -> Vec<(&'static str, Result<()>)> {
    let mut results = Vec::new();
    if guests {
        results.push(("tools", guest::ensure_tools()));
    }
    if cache {
        results.push(("http-cache-tests", cache_tests::download()));
    }
    if native {
        results.push(("nginx", sealion_guest::tools::ensure_nginx()));
        // For the tests of fleets.
        let tools = [("redis-server", "redis-server"), ("redis-cli", "redis-tools"), ("haproxy", "haproxy")];
        results.push(("redis and haproxy", sealion_guest::tools::ensure(&tools)));
        results.push(("php-fpm", sealion_guest::tools::ensure_php_fpm()));
        // For the tests of ACME by dynamic updates.
        results.push(("bind", sealion_guest::tools::ensure(&[("named", "bind9"), ("dig", "bind9-dnsutils")])));
        results.push(("go", sealion_guest::tools::ensure(&[("go", "golang-go")])));
        results.push(("pebble", sealion_guest::tools::pebble().map(drop)));
        results.push(("h2spec", sealion_guest::tools::h2spec().map(drop)));
        results.push(("packages of Node and Python", sealion_guest::tools::packages()));
    }
    if !kernels.is_empty() {
        results.push(("kernels", sealion_guest::download(kernels)));
    }
    results
}

/// Runs a build at the lowest priority, so that it does not slow tests down, and without cargo's progress in their
/// output.
fn build_meanwhile(build: Command) -> Result<()> {
    let mut patient = Command::new("nice");
    patient.args(["-n", "19"]).arg(build.get_program()).args(build.get_args());
    for (name, value) in build.get_envs() {
        match value {
            Some(value) => patient.env(name, value),
            None => patient.env_remove(name),
        };
    }
    patient.current_dir(workspace::root());
    sealion_guest::output(&mut patient).map(drop)
}

fn build_fuzz_targets() -> Result<()> {
    build_meanwhile(fuzz_smoke::build(&[], true)?.command)
}

/// The total so far, and the names of failures.
#[derive(Default)]
struct Report {
    tally: Tally,
    failures: Vec<String>,
}

impl Report {
    /// Runs a single check.
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        self.timed(name, |report| {
            let result = check();
            report.add(name, Tally::of(result.is_ok()));
            result
        });
    }

    /// Runs tests and adds their counts.
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
            let smoke = FuzzSmoke { seconds: fuzz_smoke::SECONDS, no_sanitizer: false, targets: Vec::new() };
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

    /// Prints a heading, runs the step, prints its error and its time.
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

    /// Prints the failures, and the total as the last line.
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
    // `--all-targets` skips targets with `test = false`, and cargo ignores names given with it.
    for targets in ["--all-targets", "--test=kernel*"] {
        succeed(workspace::cargo().args(["clippy", "--workspace", targets, "--locked", "--", "--deny=warnings"]))?;
    }
    // A program without its optional parts. Alone, because other crates of the workspace would switch features on.
    let bare =
        ["clippy", "--package=sealion", "--no-default-features", "--all-targets", "--locked", "--", "--deny=warnings"];
    succeed(workspace::cargo().args(bare))
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

/// Runs a test binary, or a command that runs some, on this machine and prints its output.
fn run_here(command: &mut Command) -> Result<Verdict> {
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
