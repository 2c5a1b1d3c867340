//! Follows a child process line by line, until its end or a deadline.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// A running child whose standard output is read. Dropping it kills the child.
pub struct Followed {
    child: Child,
    lines: Receiver<String>,
    deadline: Instant,
}

/// The next event of a child.
pub enum Next {
    /// A line, without its line end.
    Line(String),
    /// The output is closed.
    End,
    /// The deadline has passed.
    Late,
}

impl Followed {
    /// Starts `command`, which must end within `limit`. Its standard error is inherited.
    pub fn start(command: &mut Command, limit: Duration) -> Result<Self> {
        let mut child = spawn(command.stdout(Stdio::piped()))?;
        let output = child.stdout.take().expect("stdout is piped");
        Ok(Self { child, lines: read_lines(output), deadline: Instant::now() + limit })
    }

    /// As [`Followed::start`], but also follows standard error.
    pub fn start_with_errors(command: &mut Command, limit: Duration) -> Result<Self> {
        let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        let child = spawn(command.stdout(writer.try_clone()?).stderr(writer))?;
        // The command object holds the pipe's writing end, which would keep the pipe open after the child exits.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child, lines: read_lines(reader), deadline: Instant::now() + limit })
    }

    /// Waits for the next line, the end or the deadline.
    pub fn next(&self) -> Next {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => Next::Line(line),
            Err(RecvTimeoutError::Disconnected) => Next::End,
            Err(RecvTimeoutError::Timeout) => Next::Late,
        }
    }

    /// Waits for the exit code; call it after [`Next::End`].
    pub fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().context("lost a child process")
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        // An error means that it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot run {}", command.get_program().display()))
}

fn read_lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_then_end_then_exit_code() {
        let mut child = Followed::start(&mut shell("echo one; printf two; exit 3"), LIMIT).unwrap();
        for expected in ["one", "two"] {
            assert!(matches!(child.next(), Next::Line(line) if line == expected));
        }
        assert!(matches!(child.next(), Next::End));
        assert_eq!(child.wait().unwrap().code(), Some(3));
    }

    #[test]
    fn errors_are_followed_when_asked_for() {
        let mut child = Followed::start_with_errors(&mut shell("echo one; echo two >&2"), LIMIT).unwrap();
        for expected in ["one", "two"] {
            assert!(matches!(child.next(), Next::Line(line) if line == expected));
        }
        assert!(matches!(child.next(), Next::End));
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_silent_child_is_late() {
        let child = Followed::start(&mut shell("exec sleep 1000"), Duration::ZERO).unwrap();
        assert!(matches!(child.next(), Next::Late));
    }
}
