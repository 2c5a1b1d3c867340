//! The server as a process: started, watched, signalled, and killed on drop.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, WaitOptions};

use crate::PATIENCE;

/// A server process that runs until it is dropped.
pub struct Server {
    child: Child,
    output: Arc<Output>,
    address: SocketAddr,
}

/// A line that the server wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Whether it came from standard error.
    pub stderr: bool,
    /// The line without its line end.
    pub text: String,
}

#[derive(Default)]
struct Output {
    state: Mutex<OutputState>,
    changed: Condvar,
}

#[derive(Default)]
struct OutputState {
    lines: Vec<Line>,
    /// The number of output streams that have ended, out of two.
    ended: u8,
}

impl Server {
    /// Starts `program` and waits until it prints an address of the form `https://host:port`. Use port 0, so that tests
    /// can run concurrently.
    ///
    /// # Panics
    /// It does not start or prints no address; the message has its output.
    #[track_caller]
    pub fn start(program: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut command = Command::new(program);
        command.args(arguments);
        Self::spawn(command)
    }

    /// Like [`Self::start`], for a command with its own environment or directory.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[track_caller]
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        Self::spawn_with_input(command)
    }

    /// Like [`Self::spawn`], with a standard input.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[track_caller]
    pub fn spawn_with_input(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("cannot start {command:?}: {error}"),
        };
        let output = Arc::new(Output::default());
        output.clone().follow(false, child.stdout.take().expect("stdout is piped"));
        output.clone().follow(true, child.stderr.take().expect("stderr is piped"));
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = Self { child, output, address: unspecified };
        let line = server.wait_for("the address of a listener", |line| address_in(&line.text).is_some());
        server.address = address_in(&line.text).expect("the line was chosen for it");
        server
    }

    /// Its listening address; loopback if it listens on all addresses.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has written so far, in the order of arrival.
    pub fn lines(&self) -> Vec<Line> {
        self.output.state.lock().expect("no reader panics").lines.clone()
    }

    /// Waits for a line; lines already written count too.
    ///
    /// # Panics
    /// The line does not appear; the message has all lines that did.
    #[track_caller]
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&Line) -> bool) -> Line {
        match self.output.wait_for(1, |line| wanted(line)) {
            Ok(mut lines) => lines.remove(0),
            Err(lines) => panic!("the server did not write {what}, but:\n{}", text(&lines)),
        }
    }

    /// Waits for `count` matching lines, and returns all matching lines.
    ///
    /// # Panics
    /// The lines do not appear; the message has all lines that did.
    #[track_caller]
    pub fn wait_for_lines(&self, count: usize, what: &str, wanted: impl Fn(&Line) -> bool) -> Vec<Line> {
        match self.output.wait_for(count, |line| wanted(line)) {
            Ok(lines) => lines,
            Err(lines) => panic!("the server did not write {count} × {what}, but:\n{}", text(&lines)),
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// The process has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("the server still runs");
    }

    /// Stops the process, and returns once all its threads have stopped. Data sent meanwhile is seen at once after
    /// [`Self::resume`].
    ///
    /// # Panics
    /// The process has ended.
    #[track_caller]
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        // SIGSTOP reaches each thread separately (signal(7)); waitpid(2) returns when the last thread has stopped.
        let status = rustix::process::waitpid(Some(Pid::from_child(&self.child)), WaitOptions::UNTRACED);
        assert!(
            matches!(status, Ok(Some((_, status))) if status.stopped()),
            "the server did not stop, but: {status:?}"
        );
    }

    /// Continues the process after [`Self::pause`].
    #[track_caller]
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until the process ends.
    ///
    /// # Panics
    /// It does not end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            if Instant::now() >= deadline {
                panic!("the server does not end; it wrote:\n{}", text(&self.lines()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server wrote:\n{}", text(&self.lines()));
        }
    }
}

impl Output {
    fn follow(self: Arc<Self>, stderr: bool, stream: impl Read + Send + 'static) {
        std::thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&line).into_owned();
                self.state.lock().expect("no reader panics").lines.push(Line { stderr, text });
                self.changed.notify_all();
            }
            self.state.lock().expect("no reader panics").ended += 1;
            self.changed.notify_all();
        });
    }

    /// The matching lines once there are `count`, or all lines if they do not appear.
    fn wait_for(&self, count: usize, wanted: impl Fn(&Line) -> bool) -> Result<Vec<Line>, Vec<Line>> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.state.lock().expect("no reader panics");
        loop {
            let found: Vec<Line> = state.lines.iter().filter(|line| wanted(line)).cloned().collect();
            if found.len() >= count {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.ended == 2 {
                return Err(state.lines.clone());
            }
            state = self.changed.wait_timeout(state, left).expect("no reader panics").0;
        }
    }
}

/// The first `https://host:port` in a line, or the `http://host:port` that serves sites.
fn address_in(line: &str) -> Option<SocketAddr> {
    let served = || line.split_once("serving ").and_then(|(_, rest)| rest.split_once("http://"));
    let (_, rest) = line.split_once("https://").or_else(served)?;
    let end = rest.find(|c: char| c.is_whitespace() || c == '/' || c == '"').unwrap_or(rest.len());
    let authority = &rest[..end];
    if let Some(port) = authority.strip_prefix("localhost:") {
        return Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into());
    }
    let mut address: SocketAddr = authority.parse().ok()?;
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    Some(address)
}

fn text(lines: &[Line]) -> String {
    let prefixed = lines.iter().map(|line| {
        let stream = if line.stderr { "err" } else { "out" };
        format!("  {stream}| {}\n", line.text)
    });
    prefixed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_lines() {
        let found = |line| address_in(line).map(|a| a.to_string());
        assert_eq!(found("listening on https://127.0.0.1:8443/ (2)").unwrap(), "127.0.0.1:8443");
        assert_eq!(found("https://[::]:1").unwrap(), "[::1]:1");
        assert_eq!(found("x https://0.0.0.0:99").unwrap(), "127.0.0.1:99");
        assert_eq!(found("https://localhost:7 ready").unwrap(), "127.0.0.1:7");
        assert_eq!(found("https://example.org/"), None);
        assert_eq!(found("nothing"), None);
    }

    fn shell(script: &str) -> Server {
        Server::start(Path::new("/bin/sh"), ["-c", script])
    }

    #[test]
    fn a_process_is_followed_signalled_and_waited_for() {
        let mut server =
            shell("trap 'echo got it >&2; exit 3' USR1; echo https://[::1]:5; while :; do sleep 0.01; done");
        assert_eq!(server.address().to_string(), "[::1]:5");
        assert!(server.is_running());
        // Not SIGHUP: a shell cannot trap a signal that was ignored when it started, e.g. under nohup.
        server.signal(Signal::USR1);
        let line = server.wait_for("an answer", |line| line.text == "got it");
        assert!(line.stderr);
        assert_eq!(server.wait().code(), Some(3));
    }

    #[test]
    #[should_panic(expected = "out| no such thing")]
    fn a_server_without_an_address_shows_what_it_wrote() {
        shell("echo no such thing");
    }
}
