//! Boots kernels with a payload, all at the same time.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::initramfs::Initramfs;
use crate::kernels::{Kernel, Series};
use crate::machine::{Machine, Outcome, Trouble};
use crate::payload::Payload;
use crate::protocol::{MODULES_PATH, PLAN_PATH, Plan, TOOLS_PATH};
use crate::tools;

/// Runs `payload` on all kernels concurrently, each in its own guest with its output lines prefixed. A guest that
/// crashes is started once more.
///
/// # Errors
/// A kernel cannot be downloaded, a file is missing, or QEMU cannot be run. A guest that crashes or is late is not an
/// error but [`Outcome::trouble`], and a job's failure is its exit code.
pub fn run_on(kernels: &[Series], payload: &Payload, machine: &Machine) -> Result<Vec<(Series, Outcome)>> {
    let (cache, nginx, kernels) = ensure_inputs(kernels)?;
    let scratch = cache.scratch()?;
    // Other processes may use the cache while the guests run.
    drop(cache);
    std::thread::scope(|scope| {
        let guests: Vec<_> = kernels
            .iter()
            .map(|kernel| {
                let directory = scratch.path().join(kernel.series.name());
                let nginx = &nginx;
                scope.spawn(move || {
                    std::fs::create_dir(&directory)?;
                    let outcome = run_once_or_twice(kernel, nginx, payload, machine, &directory)?;
                    Ok((kernel.series, outcome))
                })
            })
            .collect();
        guests.into_iter().map(|guest| guest.join().expect("a guest's thread does not panic")).collect()
    })
}

/// Downloads everything that guests with these kernels need and the cache lacks. [`run_on`] does this too.
///
/// # Errors
/// A download fails.
pub fn download(kernels: &[Series]) -> Result<()> {
    ensure_inputs(kernels).map(drop)
}

fn ensure_inputs(kernels: &[Series]) -> Result<(Cache, PathBuf, Vec<Kernel>)> {
    tools::ensure(tools::FOR_GUESTS)?;
    let cache = Cache::open()?;
    let nginx = tools::nginx(&cache)?;
    let kernels: Result<Vec<Kernel>> = kernels.iter().map(|&series| Kernel::ensure(&cache, series)).collect();
    Ok((cache, nginx, kernels?))
}

fn run_once_or_twice(
    kernel: &Kernel,
    nginx: &Path,
    payload: &Payload,
    machine: &Machine,
    directory: &Path,
) -> Result<Outcome> {
    root_file_system(kernel, nginx, payload)?.pack(&directory.join("initramfs.cpio"))?;
    let mut outcome = machine.boot(kernel, directory, payload)?;
    show_console(kernel.series, directory, outcome.trouble)?;
    if outcome.trouble == Some(Trouble::Crashed) {
        eprintln!("[{}] booting it again", kernel.series.name());
        outcome = machine.boot(kernel, directory, payload)?;
        show_console(kernel.series, directory, outcome.trouble)?;
    }
    Ok(outcome)
}

/// Shows the end of the kernel's messages if the guest had trouble, or if the kernel reported a problem.
fn show_console(series: Series, directory: &Path, trouble: Option<Trouble>) -> Result<()> {
    let log = std::fs::read(directory.join("console.log")).context("cannot read the guest's kernel log")?;
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

/// Lines; room for an oops with registers and trace.
const LOG_TAIL: usize = 60;

fn root_file_system(kernel: &Kernel, nginx: &Path, payload: &Payload) -> Result<Initramfs> {
    let mut root = Initramfs::new();
    let init = std::env::current_exe().context("cannot find this program")?;
    root.program(&init)?;
    root.file_at("/init", &init);
    for entry in std::fs::read_dir(kernel.modules())? {
        let entry = entry?;
        root.file_at(Path::new(MODULES_PATH).join(entry.file_name()), entry.path());
    }
    tools::add(&mut root, nginx)?;
    for name in &payload.programs {
        root.program(&tools::found(name)?)?;
    }
    for path in &payload.include {
        let path = std::path::absolute(path)?;
        if path.is_file() && is_elf(&path)? {
            root.program(&path)?;
        } else {
            root.tree(&path)?;
        }
    }
    for (path, content) in &payload.files {
        root.bytes(path, content.as_slice(), 0o644);
    }
    for directory in &payload.directories {
        root.directory(directory);
    }
    let mut environment = environment(kernel.series);
    environment.extend(payload.environment.iter().cloned());
    let plan = Plan { environment, jobs: payload.jobs.clone(), bring_back: payload.bring_back.clone() };
    root.bytes(PLAN_PATH, serde_json::to_vec(&plan)?, 0o644);
    Ok(root)
}

fn environment(series: Series) -> Vec<(String, String)> {
    let path = format!("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{TOOLS_PATH}");
    [
        ("PATH", path.as_str()),
        ("HOME", "/root"),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("SEALION_KERNEL", series.name()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

fn is_elf(path: &Path) -> Result<bool> {
    let mut magic = [0; 4];
    let mut file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    match file.read_exact(&mut magic) {
        Ok(()) => Ok(&magic == b"\x7fELF"),
        Err(_) => Ok(false),
    }
}
