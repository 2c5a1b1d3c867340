//! Boots a Debian kernel in QEMU and runs tests or a command there as root.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use sealion_guest::tools::{self, Tool};
use sealion_guest::{Job, JobEnd, Machine, Payload, Series};

use crate::binaries::{self, Built, Selection, TestBinary};
use crate::libtest::{Verdict, Watch};
use crate::workspace;

/// Run tests, or a command, inside a Debian kernel under QEMU
///
/// Without --test or --exec, every guest test runs: the targets tests/kernel… of the packages. Kernels and nginx are
/// downloaded once from this machine's Debian mirror, verified with its keyring, and kept in ~/.cache/sealion/guest or
/// $SEALION_GUEST_CACHE; delete that directory to fetch newer ones.
#[derive(Args)]
pub(crate) struct Guest {
    /// Kernel series; several run at the same time
    #[arg(long, required = true, value_delimiter = ',')]
    kernel: Vec<Series>,
    /// Packages whose tests to run
    #[arg(long, short)]
    package: Vec<String>,
    /// Names of integration tests
    #[arg(long, conflicts_with = "exec")]
    test: Vec<String>,
    /// Build with optimisation
    #[arg(long)]
    release: bool,
    /// Run this shell command instead of tests
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Copy a file, program or directory of this machine into the guest, at the same path
    #[arg(long, value_name = "PATH")]
    include: Vec<PathBuf>,
    #[command(flatten)]
    machine: Machine,
    /// Arguments for the test binaries
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Guest {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let are_tests = self.exec.is_none();
        let mut payload = match &self.exec {
            Some(command) => Payload { jobs: vec![Job::shell(command)], ..equipped()? },
            None => {
                let mut selection = Selection { packages: self.package, tests: self.test, release: self.release };
                if selection.tests.is_empty() {
                    selection = selection.guest_tests(&binaries::metadata()?)?;
                }
                tests(&selection.build()?, &self.arguments)?
            }
        };
        payload.include.extend(self.include);
        let mut code = 0;
        for (series, outcome) in sealion_guest::run_on(&self.kernel, &payload, &self.machine)? {
            let failed = outcome.jobs.iter().map(|job| job.code).find(|&code| code != 0);
            match (failed, outcome.trouble) {
                (_, Some(trouble)) => {
                    eprintln!("xtask: guest {}: {trouble}", series.name());
                    code = 1;
                }
                (Some(failed), None) => code = failed,
                (None, None) if are_tests => {
                    // A test binary can exit with 0 without having printed a summary.
                    let silent = outcome.jobs.iter().any(|job| verdict(job).tally.failed > 0);
                    code = code.max(silent.into());
                }
                (None, None) => {}
            }
        }
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    }
}

/// A payload that runs the test binaries one after another, each with one thread.
pub(crate) fn tests(built: &Built, arguments: &[String]) -> Result<Payload> {
    let mut payload = equipped()?;
    payload.jobs = built.tests.iter().map(|test| test_job(test, arguments)).collect();
    payload.include.extend(built.programs.iter().cloned());
    payload.include.extend(built.tests.iter().map(|test| test.executable.clone()));
    payload.directories = built.tests.iter().map(|test| test.directory.clone()).collect();
    Ok(payload)
}

/// The verdict on a test binary.
pub(crate) fn verdict(job: &JobEnd) -> Verdict {
    let mut watch = Watch::default();
    job.output.lines().for_each(|line| watch.line(line));
    watch.verdict(job.code == 0)
}

/// Installs missing programs that guests and their tests need.
pub(crate) fn ensure_tools() -> Result<()> {
    tools::ensure(&[tools::FOR_GUESTS, FOR_TESTS].concat())
}

/// A payload without jobs: the environment, programs and data that tests use.
fn equipped() -> Result<Payload> {
    ensure_tools()?;
    let environment = [
        ("RUST_BACKTRACE", "1"),
        // Guest kernels have kernel TLS: a test that cannot use it must fail, not skip.
        ("SEALION_TEST_KTLS", "required"),
    ];
    let own = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    // How long some tests run.
    let asked = std::env::vars().filter(|(name, _)| name.starts_with("SEALION_TIMES_"));
    Ok(Payload {
        environment: own.into_iter().chain(asked).collect(),
        programs: PROGRAMS.iter().map(|&name| name.to_owned()).collect(),
        include: test_data(workspace::root())?,
        ..Payload::default()
    })
}

/// Programs that guest tests call by name.
const PROGRAMS: &[&str] =
    &["curl", "openssl", "gnutls-cli", "gnutls-serv", "strace", "ip", "ss", "dmsetup", "losetup", "mkfs.ext4"];

/// The Debian packages of these programs, and of those that native tests call.
const FOR_TESTS: &[Tool] = &[
    ("curl", "curl"),
    ("chromium", "chromium"),
    ("openssl", "openssl"),
    ("gnutls-cli", "gnutls-bin"),
    ("strace", "strace"),
    ("ip", "iproute2"),
    ("dmsetup", "dmsetup"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
];

/// Data that tests read: the example site and the files beside their sources.
fn test_data(workspace: &Path) -> Result<Vec<PathBuf>> {
    let mut data = vec![workspace.join("examples/site")];
    for entry in std::fs::read_dir(workspace.join("crates"))? {
        data.push(entry?.path().join("tests"));
    }
    data.retain(|path| path.exists());
    Ok(data)
}

fn test_job(test: &TestBinary, arguments: &[String]) -> Job {
    let mut all = vec!["--test-threads=1".to_owned(), "--color=never".to_owned()];
    all.extend_from_slice(arguments);
    let directory = test.directory.clone();
    Job {
        program: test.executable.clone(),
        arguments: all,
        environment: vec![("CARGO_MANIFEST_DIR".into(), directory.display().to_string())],
        directory,
    }
}
