//! Changes of the machine that are undone however this process ends.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell that has made a change and waits for the end of its standard input to undo it. The input ends when this is dropped, and when this
/// process is killed. The shell leads a process group of its own, so that Ctrl-C does not reach it.
pub(super) struct Undo(Child);

impl Undo {
    /// Runs the script `make` now, and `undo` at the end, both with these arguments.
    pub(super) fn new(make: &str, undo: &str, arguments: &[&OsStr]) -> io::Result<Self> {
        let script = format!("set -e; {make}; echo made; set +e; read -r _; {undo}");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script, "undo"]).args(arguments).process_group(0);
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = shell.stdout.take().expect("a pipe");
        let undo = Self(shell);
        BufReader::new(output).read_line(&mut line)?;
        if line == "made\n" { Ok(undo) } else { Err(io::Error::other(format!("failed: {make}"))) }
    }

    /// A process group that is killed as a whole.
    pub(super) fn group() -> io::Result<Self> {
        Self::new(":", "kill -KILL 0", &[])
    }

    /// The number of the process group.
    pub(super) fn number(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // A shell that was killed is waited for too.
        let _ = self.0.wait();
    }
}
