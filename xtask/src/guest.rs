//! Boots a Debian kernel in QEMU and runs tests or a command there as root.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::binaries::{self, Built, Selection, TestBinary};
use crate::initramfs::Initramfs;
use crate::kernels::{Kernel, Series};
use crate::machine::{Machine, Outcome, Trouble};
use crate::protocol::{Job, MODULES_PATH, PLAN_PATH, Plan, TOOLS_PATH};
use crate::tools;
use crate::workspace::{self, Cache};

/// Run tests, or a command, inside a Debian kernel under QEMU
///
/// Without --test and --exec every guest test runs: the files tests/kernel….rs of the packages. Kernels and nginx are
/// downloaded once from this machine's Debian mirror, verified with its keyring, and kept in ~/.cache/sealion/guest or
/// $SEALION_GUEST_CACHE; delete that directory to fetch newer ones.
#[derive(Args)]
pub(crate) struct Guest {
    /// Kernel series; several may be given and run at once
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
    /// Add a file, program or directory of this machine at its own path
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
        tools::ensure(tools::FOR_GUESTS)?;
        let are_tests = self.exec.is_none();
        let mut load = match &self.exec {
            Some(command) => Load::command(command),
            None => {
                let mut selection = Selection { packages: self.package, tests: self.test, release: self.release };
                if selection.tests.is_empty() {
                    selection = selection.guest_tests(&binaries::metadata()?)?;
                }
                let built = selection.build()?;
                Load::tests(&built, &self.arguments)
            }
        };
        load.include.extend(self.include);
        let mut code = 0;
        for (series, outcome) in run_on(&self.kernel, &load, &self.machine)? {
            let failed = outcome.jobs.iter().map(|job| job.code).find(|&code| code != 0);
            match (failed, outcome.trouble) {
                (_, Some(trouble)) => {
                    eprintln!("xtask: guest {}: {trouble}", series.name());
                    code = 1;
                }
                (Some(failed), None) => code = failed,
                (None, None) if are_tests => {
                    // A test binary can exit with 0 and no verdict.
                    let silent = outcome.jobs.iter().any(|job| job.tally.failed > 0);
                    code = code.max(silent.into());
                }
                (None, None) => {}
            }
        }
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    }
}

/// What to run in a guest, whichever its kernel.
pub(crate) struct Load {
    jobs: Vec<Job>,
    /// Programs and files to bring, besides the jobs' own.
    include: Vec<PathBuf>,
    /// Directories that must exist.
    directories: Vec<PathBuf>,
}

impl Load {
    /// One shell command.
    fn command(command: &str) -> Self {
        Self {
            jobs: vec![Job {
                program: "/bin/sh".into(),
                arguments: vec!["-c".into(), command.into()],
                directory: "/root".into(),
                environment: Vec::new(),
            }],
            include: Vec::new(),
            directories: Vec::new(),
        }
    }

    /// The given test binaries, one after another, each test alone.
    pub(crate) fn tests(built: &Built, arguments: &[String]) -> Self {
        let jobs = built.tests.iter().map(|test| test_job(test, arguments));
        let mut include = built.programs.clone();
        include.extend(built.tests.iter().map(|test| test.executable.clone()));
        Self {
            jobs: jobs.collect(),
            // What tests read besides: the site, and data beside their sources.
            include,
            directories: built.tests.iter().map(|test| test.directory.clone()).collect(),
        }
    }
}

/// Runs `load` on each kernel, all at once, each in a guest of its own with its output lines prefixed. A guest that
/// crashes is tried once more.
pub(crate) fn run_on(kernels: &[Series], load: &Load, machine: &Machine) -> Result<Vec<(Series, Outcome)>> {
    let cache = Cache::open()?;
    let nginx = tools::nginx(&cache)?;
    let kernels: Result<Vec<Kernel>> = kernels.iter().map(|&series| Kernel::ensure(&cache, series)).collect();
    let kernels = kernels?;
    let scratch = cache.scratch()?;
    // Others may use the cache while the guests run.
    drop(cache);
    std::thread::scope(|scope| {
        let guests: Vec<_> = kernels
            .iter()
            .map(|kernel| {
                let directory = scratch.path().join(kernel.series.name());
                let nginx = &nginx;
                scope.spawn(move || {
                    std::fs::create_dir(&directory)?;
                    let outcome = run_once_or_twice(kernel, nginx, load, machine, &directory)?;
                    Ok((kernel.series, outcome))
                })
            })
            .collect();
        guests.into_iter().map(|guest| guest.join().expect("a guest's thread does not panic")).collect()
    })
}

fn run_once_or_twice(
    kernel: &Kernel,
    nginx: &Path,
    load: &Load,
    machine: &Machine,
    directory: &Path,
) -> Result<Outcome> {
    let archive = directory.join("initramfs.cpio");
    root_file_system(kernel, nginx, load)?.pack(&archive)?;
    let console = directory.join("console.log");
    let mut outcome = machine.boot(kernel, &archive, &console, load.jobs.len())?;
    show_console(kernel.series, &console, outcome.trouble)?;
    if outcome.trouble == Some(Trouble::Crashed) {
        eprintln!("[{}] booting it once more", kernel.series.name());
        outcome = machine.boot(kernel, &archive, &console, load.jobs.len())?;
        show_console(kernel.series, &console, outcome.trouble)?;
    }
    Ok(outcome)
}

/// Shows the end of the kernel's messages if there was trouble, or if the kernel itself complained.
fn show_console(series: Series, console: &Path, trouble: Option<Trouble>) -> Result<()> {
    let log = std::fs::read(console).context("cannot read the guest's kernel log")?;
    let log = String::from_utf8_lossy(&log);
    let why = match trouble {
        Some(trouble) => trouble.to_string(),
        None if log.contains("WARNING: ") || log.contains("BUG: ") => "the kernel complains".to_owned(),
        None => return Ok(()),
    };
    let name = series.name();
    let lines: Vec<&str> = log.lines().collect();
    eprintln!("[{name}] {why}; the end of its kernel log:");
    for line in &lines[lines.len().saturating_sub(LOG_TAIL)..] {
        eprintln!("[{name}] | {}", line.trim_end());
    }
    Ok(())
}

/// GUESS: lines; an oops with its registers and trace.
const LOG_TAIL: usize = 60;

fn root_file_system(kernel: &Kernel, nginx: &Path, load: &Load) -> Result<Initramfs> {
    let mut root = Initramfs::new();
    let init = std::env::current_exe().context("cannot find this program")?;
    root.program(&init)?;
    root.file_at("/init", &init);
    for entry in std::fs::read_dir(kernel.modules())? {
        let entry = entry?;
        root.file_at(Path::new(MODULES_PATH).join(entry.file_name()), entry.path());
    }
    tools::add(&mut root, nginx)?;
    let workspace = workspace::root();
    for data in test_data(workspace)? {
        root.tree(&data)?;
    }
    for path in &load.include {
        let path = std::path::absolute(path)?;
        if path.is_file() && is_elf(&path)? {
            root.program(&path)?;
        } else {
            root.tree(&path)?;
        }
    }
    for directory in &load.directories {
        root.directory(directory);
    }
    let plan = Plan { environment: environment(kernel.series), jobs: load.jobs.clone() };
    root.bytes(PLAN_PATH, serde_json::to_vec(&plan)?, 0o644);
    Ok(root)
}

/// What tests read besides their binaries: the example site and the files beside their sources.
fn test_data(workspace: &Path) -> Result<Vec<PathBuf>> {
    let mut data = vec![workspace.join("examples/site")];
    for entry in std::fs::read_dir(workspace.join("crates"))? {
        data.push(entry?.path().join("tests"));
    }
    data.retain(|path| path.exists());
    Ok(data)
}

fn environment(series: Series) -> Vec<(String, String)> {
    let path = format!("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{TOOLS_PATH}");
    [
        ("PATH", path.as_str()),
        ("HOME", "/root"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("RUST_BACKTRACE", "1"),
        ("SEALION_KERNEL", series.name()),
        // Here kernel TLS is promised: a test that cannot use it has failed.
        ("SEALION_KTLS", "required"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
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

fn is_elf(path: &Path) -> Result<bool> {
    let mut magic = [0; 4];
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    match std::io::Read::read_exact(&mut &file, &mut magic) {
        Ok(()) => Ok(&magic == b"\x7fELF"),
        Err(_) => Ok(false),
    }
}
