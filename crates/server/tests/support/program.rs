//! Programs of other languages that tests run: servers behind the proxy, and clients in front of it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use sealion_testkit::PATIENCE;

use super::cached;

/// The directory of the programs.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/proxy/programs");

/// Packages of other languages. `cargo xtask test` downloads the same: a test of sealion-guest compares them.
const WS: &str = "npm/ws@8.18.3/node_modules";
const GRPCIO: &str = "python/grpcio==1.76.0";

/// A program that runs until it is dropped.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Program {
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (send, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Program { child, lines }
    }

    /// The next line of its output.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the program writes a line")
    }

    /// The URL of a server that has written its port.
    #[track_caller]
    pub(crate) fn url(&self) -> String {
        let line = self.line();
        format!("http://127.0.0.1:{}", line.strip_prefix("port ").unwrap_or_else(|| panic!("{line}")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program for Node.
pub(crate) fn node(name: &str) -> Command {
    let mut node = Command::new("node");
    node.arg(format!("{PROGRAMS}/{name}"));
    node
}

/// The same with the package `ws` in the first argument.
#[track_caller]
pub(crate) fn node_with_ws(name: &str) -> Command {
    let mut node = node(name);
    node.arg(package(WS));
    node
}

/// A program for Python.
pub(crate) fn python(name: &str) -> Command {
    let mut python = Command::new("python3");
    python.arg(format!("{PROGRAMS}/{name}"));
    python
}

/// The same with the package `grpcio`.
#[track_caller]
pub(crate) fn python_with_grpcio(name: &str) -> Command {
    let mut python = python(name);
    python.env("PYTHONPATH", package(GRPCIO));
    python
}

#[track_caller]
fn package(name: &str) -> PathBuf {
    let directory = cached(name);
    assert!(directory.exists(), "{} is not there: `cargo xtask packages` gets it", directory.display());
    directory
}

/// A program of Go, built into `directory`.
#[track_caller]
pub(crate) fn go(name: &str, directory: &std::path::Path) -> Command {
    let built = directory.join("program");
    let mut go = Command::new("go");
    // Without a module: it has no dependencies.
    go.env("GO111MODULE", "off").args(["build", "-o"]).arg(&built).arg(format!("{PROGRAMS}/{name}"));
    let output = go.output().expect("go is needed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Command::new(built)
}
