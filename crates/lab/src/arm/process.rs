//! A server's process: pinned, in its own process group, killed on drop.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_setaffinity};

/// A server that the lab started; killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    said: Arc<Said>,
}

/// The same command from a shell that first enters the cgroup, so that no thread and no child is ever outside.
fn in_group(command: &Command, group: &Path) -> Command {
    let mut within = Command::new("/bin/sh");
    within.args(["-c", r#"echo $$ > "$0" && exec "$@""#]).arg(group.join("cgroup.procs"));
    within.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => within.env(name, value),
            None => within.env_remove(name),
        };
    }
    within
}

/// The last lines of standard error, and whether it has been closed.
#[derive(Debug, Default)]
struct Said {
    state: Mutex<(VecDeque<String>, bool)>,
    changed: Condvar,
}

/// Starts a program on these cores; none: on any.
///
/// # Errors
/// The program cannot be run, or the cores do not exist.
pub(super) fn spawn_on(command: &mut Command, cores: &[usize]) -> Result<Child> {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    // A child inherits the affinity of the thread that starts it, so a separate thread starts it.
    std::thread::scope(|scope| {
        let spawn = scope.spawn(|| {
            if !cores.is_empty() {
                sched_setaffinity(None, &set)
                    .with_context(|| format!("cannot pin to cores {cores:?}: does this machine have them?"))?;
            }
            command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))
        });
        spawn.join().expect("starting a program does not panic")
    })
}

impl Process {
    /// Starts `command`, with all its threads and children pinned to `cores` and in the cgroup `group`.
    ///
    /// # Errors
    /// The program cannot be run, or the cores do not exist.
    pub(super) fn start(command: &mut Command, cores: &[usize], group: Option<&Path>) -> Result<Self> {
        let mut within;
        let command = match group {
            Some(group) => {
                within = in_group(command, group);
                &mut within
            }
            None => command,
        };
        // In its own process group, Ctrl-C at the terminal reaches only the lab, which ends its servers itself.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = spawn_on(command, cores)?;
        LIVE.lock().expect("no holder panics").push(Pid::from_child(&child));
        let said = Arc::new(Said::default());
        said.clone().follow(child.stderr.take().expect("standard error is piped"));
        Ok(Self { child, said })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of standard error for which `find` returns a value. The error has the server's last lines.
    pub(super) fn wait_for<T>(&self, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut state = self.said.state.lock().expect("no holder panics");
        loop {
            if let Some(found) = state.0.iter().find_map(|line| find(line)) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.1 {
                bail!("it did not start: {}", last_words(&state.0));
            }
            state = self.said.changed.wait_timeout(state, left).expect("no holder panics").0;
        }
    }

    /// Waits until `ready`. The error has the server's last lines.
    pub(super) fn wait_until(&mut self, ready: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(why) = self.ended() {
                bail!("it did not start: {why}");
            }
            if ready() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("it does not respond after {} s", START_TIMEOUT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Exit status and last lines; `None` while it runs.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let mut state = self.said.state.lock().expect("no holder panics");
        // A child of the server may keep standard error open.
        let deadline = Instant::now() + Duration::from_millis(200);
        while !state.1 && Instant::now() < deadline {
            state = self.said.changed.wait_timeout(state, Duration::from_millis(20)).expect("no holder panics").0;
        }
        Some(format!("{status}: {}", last_words(&state.0)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        // The process id is not reused before `wait`.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
        LIVE.lock().expect("no holder panics").retain(|&live| live != pid);
    }
}

/// Kills every server, for an exit without destructors.
pub(crate) fn end_all() {
    for &pid in LIVE.lock().expect("no holder panics").iter() {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

impl Said {
    fn follow(self: Arc<Self>, stream: impl Read + Send + 'static) {
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let mut state = self.state.lock().expect("no holder panics");
                if state.0.len() == LINES {
                    state.0.pop_front();
                }
                state.0.push_back(String::from_utf8_lossy(&line).into_owned());
                self.changed.notify_all();
            }
            self.state.lock().expect("no holder panics").1 = true;
            self.changed.notify_all();
        });
    }
}

fn last_words(lines: &VecDeque<String>) -> String {
    let last: Vec<&str> = lines.iter().rev().take(3).rev().map(String::as_str).collect();
    if last.is_empty() { "it said nothing".to_owned() } else { last.join(" / ") }
}

/// Process groups that [`end_all`] ends.
static LIVE: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// The timeout for a server's start, also in an emulated guest.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Lines of standard error that are kept.
const LINES: usize = 50;
