//! Everything that must hold before a change is merged, in one command, and the part of it that runs while one works.

mod fast;
mod report;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use sealion_guest::{Machine, Series};

use self::report::{Beside, Report};
use self::steps::Downloads;
use crate::bench_guard::BenchGuard;
use crate::binaries::{self, Built, Selection};
use crate::cache_tests::CacheTests;
use crate::cycles::Cycles;
use crate::fuzz_smoke::{self, FuzzSmoke};
use crate::guest;
use crate::libraries;
use crate::libtest::Tally;
use crate::licences::Licences;
use crate::prose::Prose;
use crate::{book, package, pages, patched};

/// Run every check: format, prose, lints, documentation, tests here, tests in guest kernels, instruction counts, fuzz
/// targets, licences
///
/// The first run installs missing programs (as root) and downloads kernels from this machine's Debian mirror. A table
/// of the steps' times and the failures come last. The last line is the total: every test case, every other check and
/// every fuzz target counts as one.
#[derive(Args)]
pub(crate) struct Test {
    /// Only what needs neither root nor a program beyond a plain Debian with a compiler: format, prose, lints, tests
    /// here. It downloads nothing
    #[arg(long, conflicts_with_all = ["only", "kernel"])]
    fast: bool,
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
    /// Sentence forms in comments and pages
    Prose,
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

impl Test {
    /// ```text
    /// foreground   texts, lints, docs, libraries, builds │ native tests │ guests │ cache, packages │ bench guard │ fuzz
    /// background   downloads ──────────────────────────┤ │              │        │                 │             │
    ///              release build ────────────────────────┼──────────────┼────────┼─────────────────┤             │
    ///                                                    │ fuzz build ──┼────────┼─────────────────┼─────────────┤
    /// ```
    ///
    /// Downloads wait for the network, and tests and guests often wait for timers. Builds at a low priority use the
    /// processors meanwhile. The release build starts first, because its last crate and the linking keep one processor
    /// busy for minutes.
    pub(crate) fn run(self) -> Result<ExitCode> {
        if self.fast {
            return fast::run();
        }
        let wanted = |step| self.only.is_empty() || self.only.contains(&step);
        let mut report = Report::default();
        let (native, guests) = (wanted(Step::Native), wanted(Step::Guest));
        let kernels = if guests || wanted(Step::Bench) { self.kernel.clone() } else { Vec::new() };
        let downloads = Downloads { native, guests, cache: wanted(Step::Cache), kernels };
        let downloads = Beside::start("downloads", move || steps::download(&downloads));
        let release = (native && wanted(Step::Bench)).then(|| Beside::start("release build", steps::build_release));
        self.check_sources(&mut report);
        let built = build(&mut report, native, guests);
        let fuzz = (wanted(Step::Fuzz) && (native || guests))
            .then(|| Beside::start("build of fuzz targets", steps::build_fuzz_targets));
        for (name, result) in downloads.join(&mut report) {
            report.add_result(name, result);
        }
        if native {
            for test in built.native.tests.iter().filter(|test| !test.runs_in_guest()) {
                let name = format!("{} {}", test.package, test.target);
                report.tests(&name, || steps::run_here(&mut steps::native_command(test)));
            }
            report.tests("examples in documentation", steps::doc_tests);
            report.check("tests of patched dependencies", patched::test);
        }
        if guests {
            report.guests(&self.kernel, &built.guests);
        }
        if wanted(Step::Cache) {
            report.check("http-cache-tests", || {
                let tests = CacheTests::all(built.program("sealion"));
                ensure!(tests.run()?, "the page of http-cache-tests is wrong, see above");
                Ok(())
            });
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
        if let Some(release) = release {
            let result = release.join(&mut report);
            report.add_result("release build", result);
        }
        if wanted(Step::Bench) {
            report.check("bench guard", || {
                let guard = BenchGuard::compare(self.kernel.clone(), built.program("sealion-lab"));
                ensure!(guard.run()?, "instruction counts, see above");
                Ok(())
            });
        }
        if let Some(fuzz) = fuzz {
            // The fuzz step builds again and reports any error.
            let _ = fuzz.join(&mut report);
        }
        if wanted(Step::Fuzz) {
            report.fuzz();
        }
        Ok(report.close(None))
    }

    /// The steps that look at the sources, and compile them at most as far as types.
    fn check_sources(&self, report: &mut Report) {
        let wanted = |step| self.only.is_empty() || self.only.contains(&step);
        if wanted(Step::Format) {
            report.check("format", steps::format);
        }
        if wanted(Step::Cycles) {
            report.check("cycles", cycles);
        }
        if wanted(Step::Prose) {
            report.check("prose", prose);
        }
        if wanted(Step::Lint) {
            report.check("lint", steps::lint);
            report.check("lint without features", steps::lint_bare);
        }
        if wanted(Step::Docs) {
            report.check("docs", steps::docs);
            report.check("pages", pages::check);
            report.check("index and links", book::check);
        }
        if wanted(Step::Libraries) {
            report.check("interface of libraries", libraries::interface);
            report.check("packages of libraries", libraries::package);
        }
    }
}

/// The builds of the tests. Later steps use their programs, so that cargo does not build these again with the features of one package.
#[derive(Default)]
struct Binaries {
    native: Built,
    guests: Built,
}

impl Binaries {
    fn program(&self, name: &str) -> Option<PathBuf> {
        let mut programs = self.native.programs.iter().chain(&self.guests.programs);
        programs.find(|path| path.file_name().is_some_and(|file| file == name)).cloned()
    }
}

fn build(report: &mut Report, native: bool, guests: bool) -> Binaries {
    let mut binaries = Binaries::default();
    if native {
        report.check("build", || {
            binaries.native = Selection::default().build()?;
            Ok(())
        });
    }
    if guests {
        report.check("build for guests", || {
            // With the whole workspace selected, as above, features unify the same way and nothing is compiled twice.
            binaries.guests = Selection::default().guest_tests(&binaries::metadata()?)?.build()?;
            Ok(())
        });
    }
    binaries
}

fn cycles() -> Result<()> {
    ensure!(Cycles::default().run()?, "too many modules import each other in a circle, see above");
    Ok(())
}

fn prose() -> Result<()> {
    ensure!(Prose::default().run()?, "sentences that are read twice, see above");
    Ok(())
}

impl Report {
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
}
