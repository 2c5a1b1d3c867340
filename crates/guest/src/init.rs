//! Process 1 of the guest: mounts, loads modules, runs the plan's jobs one after another, powers off.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_remount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};

use crate::cpio::{Archive, Node};
use crate::protocol::{ARCHIVE_PORT, Job, MODULES_PATH, Mark, OUTPUT_PORT, PLAN_PATH, Plan, TOOLS_PATH};

/// Sets the guest up, runs the plan and powers off. An error is printed to the console; the host sees no `Finished`
/// mark and reports a crash.
pub(crate) fn run() -> ! {
    if let Err(error) = set_up().and_then(|()| run_plan()) {
        eprintln!("init: {error:#}");
    }
    rustix::fs::sync();
    let error = reboot(RebootCommand::PowerOff);
    panic!("cannot power off: {error:?}");
}

fn set_up() -> Result<()> {
    let none = MountFlags::empty();
    let mounts = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("devpts", "/dev/pts"),
        ("tmpfs", "/dev/shm"),
        ("tmpfs", "/run"),
    ];
    for (kind, target) in mounts {
        std::fs::create_dir_all(target).with_context(|| format!("cannot make {target}"))?;
        mount(kind, target, kind, none, None).with_context(|| format!("cannot mount {kind} on {target}"))?;
    }
    // The root is also a tmpfs, which is limited to half of the memory by default.
    mount_remount("/", none, c"size=90%").context("cannot enlarge the root file system")?;
    std::fs::create_dir_all("/tmp")?;
    for (path, mode) in [("/", 0o755), ("/tmp", 0o1777)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the permissions of {path}"))?;
    }
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ] {
        symlink(target, link).with_context(|| format!("cannot make {link}"))?;
    }
    let busybox = Path::new(TOOLS_PATH).join("busybox");
    // The kernel adds 127.0.0.1 and ::1 when lo comes up.
    for arguments in [&["--install", "-s", TOOLS_PATH][..], &["ip", "link", "set", "lo", "up"], &["hostname", "guest"]]
    {
        let status = Command::new(&busybox).args(arguments).status().context("cannot run busybox")?;
        anyhow::ensure!(status.success(), "busybox {arguments:?}: {status}");
    }
    load_modules()
}

fn load_modules() -> Result<()> {
    let directory = Path::new(MODULES_PATH);
    let order = std::fs::read_to_string(directory.join("order")).context("cannot read the module order")?;
    for name in order.lines() {
        let file =
            File::open(directory.join(format!("{name}.ko"))).with_context(|| format!("cannot open module {name}"))?;
        match finit_module(&file, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            // A driver for instructions that this processor lacks.
            Err(Errno::NODEV) => println!("init: module {name} has no hardware here"),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot load module {name}"));
            }
        }
    }
    Ok(())
}

fn run_plan() -> Result<()> {
    let plan = std::fs::read(PLAN_PATH).context("cannot read the plan")?;
    let plan: Plan = serde_json::from_slice(&plan).context("the plan is damaged")?;
    let mut port = open_port(OUTPUT_PORT)?;
    for (index, job) in plan.jobs.iter().enumerate() {
        writeln!(port, "{}", Mark::Started(index).line())?;
        let code = match run_job(job, &plan.environment, &port) {
            Ok(code) => code,
            Err(error) => {
                writeln!(port, "init: {error:#}")?;
                127
            }
        };
        writeln!(port, "{}", Mark::Ended(index, code).line())?;
    }
    if let Some(directory) = &plan.bring_back {
        bring_back(directory)
            .with_context(|| format!("cannot send the files of {} to the host", directory.display()))?;
    }
    writeln!(port, "{}", Mark::Finished.line())?;
    tcdrain(&port).context("cannot drain the output port")?;
    Ok(())
}

/// Opens a serial port in raw mode: no carriage returns, no echo.
fn open_port(path: &str) -> Result<File> {
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(path)
        .with_context(|| format!("cannot open {path}"))?;
    let mut settings = tcgetattr(&port).with_context(|| format!("{path} is not a terminal"))?;
    settings.make_raw();
    tcsetattr(&port, OptionalActions::Now, &settings).with_context(|| format!("cannot set {path} raw"))?;
    Ok(port)
}

/// Sends every regular file below `directory` to the host.
fn bring_back(directory: &Path) -> Result<()> {
    let port = open_port(ARCHIVE_PORT)?;
    let mut archive = Archive::new(BufWriter::new(&port));
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else if entry.file_type()?.is_file() {
                let path = entry.path();
                let name = path.strip_prefix(directory).expect("an entry lies below its directory");
                archive.add(name.as_os_str().as_bytes(), 0o644, &Node::File(&std::fs::read(&path)?))?;
            }
        }
    }
    archive.finish()?;
    tcdrain(&port).context("cannot drain the archive port")?;
    Ok(())
}

/// Runs one job and returns its exit code. Kills processes that it left running in its group.
fn run_job(job: &Job, environment: &[(String, String)], port: &File) -> Result<i32> {
    let child = Command::new(&job.program)
        .args(&job.arguments)
        .current_dir(&job.directory)
        .env_clear()
        .envs(environment.iter().cloned())
        .envs(job.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(port.try_clone()?)
        .stderr(port.try_clone()?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {}", job.program.display()))?;
    let child = Pid::from_child(&child);
    // Process 1 also reaps all orphans.
    let code = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                break status.exit_status().or(signal).unwrap_or(255);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("lost a job"),
        }
    };
    match kill_process_group(child, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(code),
        Err(error) => Err(error).context("cannot kill what a job left running"),
    }
}
