//! Boots a Debian kernel in QEMU and runs tests or a command there as root.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::binaries::{self, Built, Selection, TestBinary};
use crate::follow::{Followed, Next};
use crate::initramfs::Initramfs;
use crate::kernels::{Kernel, Series};
use crate::libtest::{Tally, Watch};
use crate::protocol::{Job, MODULES_PATH, Mark, PLAN_PATH, Plan, TOOLS_PATH};
use crate::tools;
use crate::workspace::{self, Cache};

/// Run tests, or a command, inside a Debian kernel under QEMU
///
/// Without --test and --exec every guest test runs: the files tests/kernel….rs of the packages. Kernels and nginx are downloaded once
/// from this machine's Debian mirror, verified with its keyring, and kept in ~/.cache/sealion/guest or $SEALION_GUEST_CACHE; delete
/// that directory to fetch newer ones.
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

/// The emulated machine.
#[derive(Args, Clone)]
pub(crate) struct Machine {
    /// Count instructions: guest time advances 1 ns an instruction, so that CPU times are equal from run to run
    #[arg(long)]
    icount: bool,
    /// Give up after this many seconds
    #[arg(long, default_value_t = TIMEOUT, value_name = "SECONDS")]
    timeout: u64,
    /// Memory in MiB; files live in it too
    #[arg(long, default_value_t = MEMORY, value_name = "MIB")]
    memory: u32,
}

impl Default for Machine {
    fn default() -> Self {
        Self { icount: false, timeout: TIMEOUT, memory: MEMORY }
    }
}

/// GUESS: seconds; several times what all guest tests take.
const TIMEOUT: u64 = 600;

/// GUESS: MiB; a 64 MB body several times over, beside the binaries.
const MEMORY: u32 = 3072;

impl Guest {
    pub(crate) fn run(self) -> Result<ExitCode> {
        tools::ensure()?;
        let mut load = match &self.exec {
            Some(command) => Load::command(command),
            None => {
                let selection = Selection { packages: self.package, tests: self.test, release: self.release };
                let built = selection.guest_tests(&binaries::metadata()?)?.build()?;
                Load::tests(&built, &self.arguments)
            }
        };
        load.include.extend(self.include);
        let results = run_on(&self.kernel, &load, &self.machine)?;
        let mut code = 0;
        for (series, result) in results {
            match result {
                Ok(codes) => {
                    code = codes.into_iter().map(|(exit, _)| exit).find(|&exit| exit != 0).unwrap_or(code);
                }
                Err(error) => {
                    eprintln!("xtask: guest {}: {error:#}", series.name());
                    code = 1;
                }
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

/// Exit code and test counts of each job, in order.
type Codes = Vec<(i32, Tally)>;

/// Runs `load` on each kernel, all at once, each with its own guest and its output lines prefixed. A guest that crashes is tried once more; its
/// second crash, and a timeout, are errors.
pub(crate) fn run_on(kernels: &[Series], load: &Load, machine: &Machine) -> Result<Vec<(Series, Result<Codes>)>> {
    let (kernels, nginx) = {
        let cache = Cache::open()?;
        let kernels: Result<Vec<Kernel>> = kernels.iter().map(|&series| Kernel::ensure(&cache, series)).collect();
        (kernels?, tools::nginx(&cache)?)
    };
    let guests = std::thread::scope(|scope| {
        let guests: Vec<_> = kernels
            .iter()
            .map(|kernel| {
                let nginx = &nginx;
                (kernel.series, scope.spawn(move || run_once_or_twice(kernel, nginx, load, machine)))
            })
            .collect();
        guests
            .into_iter()
            .map(|(series, guest)| (series, guest.join().expect("a guest's thread does not panic")))
            .collect()
    });
    Ok(guests)
}

fn run_once_or_twice(kernel: &Kernel, nginx: &Path, load: &Load, machine: &Machine) -> Result<Codes> {
    let name = kernel.series.name();
    let directory =
        tempfile::Builder::new().prefix("sealion-guest-").tempdir().context("cannot make a temporary directory")?;
    let archive = directory.path().join("initramfs.cpio");
    root_file_system(kernel, nginx, load)?.pack(&archive)?;
    let console = directory.path().join("console.log");
    for attempt in 1..=2 {
        match boot(kernel, &archive, &console, load.jobs.len(), machine)? {
            End::Finished(codes) => return Ok(codes),
            End::Crashed => {
                let log = std::fs::read(&console).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("[{name}] crashed (attempt {attempt} of 2); the end of its kernel log:");
                for line in &lines[lines.len().saturating_sub(60)..] {
                    eprintln!("[{name}] | {}", line.trim_end());
                }
            }
        }
    }
    bail!("the guest kernel crashed twice")
}

enum End {
    Finished(Codes),
    Crashed,
}

/// Boots once and follows the guest to its end.
fn boot(kernel: &Kernel, archive: &Path, console: &Path, jobs: usize, machine: &Machine) -> Result<End> {
    let name = kernel.series.name();
    let limit = Duration::from_secs(machine.timeout);
    let guest = Followed::start(&mut qemu(kernel, archive, console, machine), limit)?;
    let mut codes = Codes::new();
    let mut watch = Watch::default();
    loop {
        let line = match guest.next() {
            Next::Line(line) => line,
            Next::End => return Ok(End::Crashed),
            Next::Late => bail!("no end after {} s: killed (--timeout sets it)", machine.timeout),
        };
        let (output, mark) = Mark::split(&line);
        if let Some(output) = output {
            watch.line(output);
            println!("[{name}] {output}");
        }
        match mark {
            Some(Mark::Started(_)) => watch = Watch::default(),
            Some(Mark::Ended(_, code)) => {
                codes.push((code, std::mem::take(&mut watch).verdict(code == 0)));
            }
            Some(Mark::Finished) if codes.len() == jobs => return Ok(End::Finished(codes)),
            Some(Mark::Finished) => bail!("the guest ran {} of {jobs} jobs", codes.len()),
            None => {}
        }
    }
}

fn qemu(kernel: &Kernel, archive: &Path, console: &Path, machine: &Machine) -> Command {
    // setpriv(1): no guest outlives a killed xtask.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", tools::QEMU]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    // Under QEMU 7.2 cmpxchg16b can leave garbage in EFLAGS, and an interrupt right then is a double fault (seen in Linux 6.12's kmalloc):
    // without the feature the kernel takes another way. One processor: it does not survive the early boot of Linux 7.2 with two.
    command.args(["-accel", "tcg,thread=single", "-cpu", "max,-cx16", "-smp", "1"]);
    command.args(["-m", &machine.memory.to_string()]);
    if machine.icount {
        command.args(["-icount", "shift=0,sleep=off"]);
    }
    command.arg("-no-reboot");
    command.arg("-kernel").arg(kernel.image());
    command.arg("-initrd").arg(archive);
    // An oops becomes a panic and a panic a reboot, which -no-reboot turns into the end of QEMU.
    command.args(["-append", "console=ttyS0 loglevel=5 panic=-1 oops=panic rdinit=/init"]);
    let mut serial = std::ffi::OsString::from("file:");
    serial.push(console);
    command.arg("-serial").arg(serial);
    command.args(["-serial", "stdio"]);
    command
}

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
