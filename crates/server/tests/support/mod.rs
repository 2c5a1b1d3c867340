//! The shipped binary with a certificate and a root of its own, and what it logs.
#![allow(dead_code, reason = "the native and the guest tests use a part each")]

pub(crate) mod by_length;
pub(crate) mod changing_file;
pub(crate) mod config;
pub(crate) mod configured;
pub(crate) mod curl;
pub(crate) mod disk;
pub(crate) mod doctor;
pub(crate) mod fastcgi;
pub(crate) mod frozen;
pub(crate) mod http2_upstream;
pub(crate) mod library;
pub(crate) mod module;
pub(crate) mod multipart;
pub(crate) mod namespace;
pub(crate) mod nginx;
pub(crate) mod often;
pub(crate) mod port;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod redis;
pub(crate) mod sites;
pub(crate) mod uwsgi;
pub(crate) mod watch;

pub(crate) use sealion_testkit::{content, http2, upstream};

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, kill_process};
use sealion_testkit::http::Response;
use sealion_testkit::pki::Pki;
use sealion_testkit::server::{Line, Server, Signal};
use sealion_testkit::{Client, Connector, Ending, Suite, http, pattern};

use self::config::Config;
use self::library::{Calibration, Point, SetUpSpread, SuiteCosts};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_sealion");

/// More than the buffers of both ends of a loopback connection hold when the reader's is small, so that an unread response
/// of this length stays under way.
pub(crate) const LARGE: u64 = (12 << 20) + 5;

/// The receive buffer that a slow reader asks for, in bytes.
pub(crate) const SMALL_WINDOW: usize = 4096;

/// A root directory, inside a directory that must not be reachable, and a certificate.
pub(crate) struct Site {
    pub(crate) pki: Pki,
    outside: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(Pki::ecdsa())
    }

    pub(crate) fn with(pki: Pki) -> Self {
        Self::inside(&std::env::temp_dir(), pki)
    }

    /// A site below the given directory, and not where temporary files go.
    pub(crate) fn beneath(directory: &Path) -> Self {
        Self::inside(directory, Pki::ecdsa())
    }

    fn inside(directory: &Path, pki: Pki) -> Self {
        let outside = tempfile::tempdir_in(directory).expect("a directory");
        fs::create_dir(outside.path().join("root")).expect("a directory");
        costs().store(&outside.path().join(CALIBRATION)).expect("the calibration is written");
        Self { pki, outside }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.outside.path().join("root")
    }

    /// The directory above the root.
    pub(crate) fn outside(&self) -> &Path {
        self.outside.path()
    }

    /// Makes a file, and the directories that it needs. It is an hour old: its date then counts as a validator.
    pub(crate) fn add(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().expect("a file has a directory")).expect("the directory is made");
        fs::write(&path, content).expect("the file is written");
        make_old(&path);
        path
    }

    /// Makes a file with the pattern of [`pattern`].
    pub(crate) fn add_pattern(&self, name: &str, len: u64) -> PathBuf {
        let path = self.root().join(name);
        pattern::file(&path, len);
        make_old(&path);
        path
    }

    /// Makes a file with the content of [`content`].
    pub(crate) fn add_large(&self, name: &str, len: u64) -> PathBuf {
        let path = self.root().join(name);
        content::write(&path, len);
        make_old(&path);
        path
    }

    pub(crate) fn link(&self, name: &str, to: &str) {
        symlink(to, self.root().join(name)).expect("the link is made");
    }

    /// A configuration file with this root, its certificate, and these keys and subtables of its site.
    pub(crate) fn config(&self, keys: &str) -> Config {
        Config::within(self.outside()).site("root", &[&self.pki], keys)
    }

    /// A command line that serves this root on a free port of 127.0.0.1, and `more`.
    pub(crate) fn arguments(&self, more: &[&str]) -> Vec<OsString> {
        self.arguments_at("127.0.0.1:0", more)
    }

    /// A command line that serves this root at this address, and `more`.
    pub(crate) fn arguments_at(&self, address: &str, more: &[&str]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["serve".into(), self.root().into()];
        arguments.extend(["--listen", address, "--cert"].map(OsString::from));
        arguments.push(self.pki.certificate_file().into());
        arguments.push("--key".into());
        arguments.push(self.pki.key_file().into());
        if !more.contains(&"--calibration") {
            arguments.push("--calibration".into());
            arguments.push(self.outside().join(CALIBRATION).into());
        }
        arguments.extend(more.iter().map(OsString::from));
        arguments
    }

    /// Starts the server, sealing in user space whatever the kernel offers.
    #[track_caller]
    pub(crate) fn serve_from_user_space(&self, more: &[&str]) -> Server {
        self.serve(&[more, &["--ktls", "never"]].concat())
    }

    #[track_caller]
    pub(crate) fn serve(&self, more: &[&str]) -> Server {
        Server::start(Path::new(PROGRAM), self.arguments(more))
    }

    pub(crate) fn connector(&self, suite: Suite) -> Connector {
        Connector::new(&self.pki, suite)
    }

    /// A connection with TLS 1.3.
    #[track_caller]
    pub(crate) fn connect(&self, server: &Server) -> Client {
        self.connector(Suite::TLS13).connect(server.address())
    }

    /// A connection whose client takes little before it reads.
    #[track_caller]
    pub(crate) fn connect_slow_reader(&self, server: &Server) -> Client {
        self.connector(Suite::TLS13).receive_buffer(SMALL_WINDOW).connect(server.address())
    }
}

/// The name of a site's calibration, beside the root.
pub(crate) const CALIBRATION: &str = "calibration.json";

/// Costs by which a response moves its connection at once when it has 64 KiB, head included, and never when it has less,
/// whatever this machine takes for a move.
pub(crate) fn costs() -> Calibration {
    let set_up = SetUpSpread { low_ns: 1, median_ns: 1, high_ns: 1, moves: 1 };
    let equal = Point { bytes: (64 << 10) - 1, user_ns: 1, kernel_ns: 1 };
    let saved = Point { bytes: 64 << 10, user_ns: 10_000_000_000, kernel_ns: 1 };
    let suites = Suite::all().into_iter().map(|Suite { version, aead }| SuiteCosts {
        version: version.to_string(),
        aead: aead.cipher().to_string(),
        points: vec![equal, saved],
        set_up,
    });
    Calibration::of_this_machine("2026-01-01T00:00:00Z".to_owned(), suites.collect())
}

fn make_old(path: &Path) {
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(path).and_then(|file| file.set_modified(hour_ago)).expect("the file is dated");
}

/// Sends `bytes` in one go and receives until the server closes.
#[track_caller]
pub(crate) fn exchange(client: &mut Client, bytes: &[u8]) -> Ending {
    client.send(bytes).expect("the server takes it");
    client.read_to_end().expect("the server closes")
}

/// A GET of `target` without anything that is not needed.
pub(crate) fn get(target: &str) -> String {
    http::head("GET", target, &[])
}

/// Sends a request whose response stays under way, and reads up to the end of its head.
#[track_caller]
pub(crate) fn begin(client: &mut Client, target: &str) -> String {
    client.send(get(target).as_bytes()).expect("the request leaves");
    let head = client.read_until(b"\r\n\r\n").expect("the head comes");
    String::from_utf8(head).expect("a head is ASCII")
}

/// Receives until the connection ends, however it does; `Err` is an end inside a record.
pub(crate) fn read_until_cut(client: &mut Client) -> Result<Ending, io::Error> {
    client.read_to_end()
}

/// The responses in `bytes`, each with Content-Length; what is left over is no response.
#[track_caller]
pub(crate) fn parse_responses(mut bytes: &[u8]) -> Vec<Response> {
    let mut responses = Vec::new();
    while !bytes.is_empty() {
        let (response, rest) = curl::parse_response(bytes);
        let len = response.field("content-length").map_or(0, |len| len.parse().expect("a length"));
        assert!(rest.len() >= len, "{} announces {len} bytes and has {}", response.status, rest.len());
        responses.push(Response { body: rest[..len].to_vec(), ..response });
        bytes = &rest[len..];
    }
    responses
}

/// A line of the access log.
#[derive(Clone, Debug)]
pub(crate) struct LogLine {
    pub(crate) text: String,
    fields: Vec<(String, String)>,
}

impl LogLine {
    /// Splits `name=value` and `name="value"`, which is how the log writes them.
    pub(crate) fn parse(text: &str) -> Self {
        let mut fields = Vec::new();
        let mut rest = text;
        while let Some((name, value)) = rest.split_once('=') {
            let (value, after) = match value.strip_prefix('"') {
                Some(quoted) => unquote(quoted),
                None => value.split_once(' ').map_or((value.to_owned(), ""), |(v, after)| (v.to_owned(), after)),
            };
            fields.push((name.trim().to_owned(), value));
            rest = after;
        }
        Self { text: text.to_owned(), fields }
    }

    /// The value of a field that every line has.
    #[track_caller]
    pub(crate) fn get(&self, name: &str) -> &str {
        match self.find(name) {
            Some(value) => value,
            None => panic!("no {name} in: {}", self.text),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.fields.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// `path` and `why`.
    #[track_caller]
    pub(crate) fn way(&self) -> (&str, &str) {
        (self.get("path"), self.get("why"))
    }
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, text[at + 1..].trim_start()),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    panic!("a quote without its end: {text}")
}

fn is_access_line(line: &Line) -> bool {
    !line.stderr && line.text.starts_with("time=")
}

/// Waits until the access log on standard output has `count` lines.
///
/// # Panics
/// When there are more or they do not come.
#[track_caller]
pub(crate) fn access_lines(server: &Server, count: usize) -> Vec<LogLine> {
    let lines = server.wait_for_lines(count, "line of the access log", is_access_line);
    assert_eq!(lines.len(), count, "lines of the access log: {lines:#?}");
    lines.iter().map(|line| LogLine::parse(&line.text)).collect()
}

/// Waits for the last of `count` lines.
#[track_caller]
pub(crate) fn access_line(server: &Server, count: usize) -> LogLine {
    access_lines(server, count).pop().expect("count is not 0")
}

/// Waits for a message on standard error with `words` in it.
#[track_caller]
pub(crate) fn wait_for_message(server: &Server, words: &str) -> String {
    server.wait_for(&format!("a message with {words:?}"), |line| line.stderr && line.text.contains(words)).text
}

/// A process that took over from a server. It ends when it is dropped.
pub(crate) struct Successor(Pid);

/// Of the message of a process that was replaced.
const TAKEN_OVER: &str = " has taken over";

impl Successor {
    /// Starts one by SIGUSR2, and waits until the service is its own.
    #[track_caller]
    pub(crate) fn of(server: &Server) -> Self {
        server.signal(Signal::USR2);
        Self::named_by(&wait_for_message(server, TAKEN_OVER))
    }

    /// The same for a process that took over itself from `server`.
    #[track_caller]
    pub(crate) fn behind(process: &Successor, server: &Server) -> Self {
        let lines = || server.lines().into_iter().filter(|line| line.stderr && line.text.contains(TAKEN_OVER));
        let before = lines().count();
        kill_process(process.0, Signal::USR2).expect("it lives");
        wait_until("another process has taken over", || lines().count() > before);
        Self::named_by(&lines().nth(before).expect("it was counted").text)
    }

    fn named_by(line: &str) -> Self {
        let number = line.rsplit_once("process ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
        Self(number.and_then(Pid::from_raw).expect("the line names the process"))
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// How many messages have `words` in them so far.
pub(crate) fn messages(server: &Server, words: &str) -> usize {
    server.lines().iter().filter(|line| line.stderr && line.text.contains(words)).count()
}

/// Runs a tool to its end and returns what it wrote on standard output.
///
/// # Panics
/// When it fails, with what it wrote.
#[track_caller]
pub(crate) fn tool(name: &str, arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> String {
    let output = Command::new(name).args(arguments).output().unwrap_or_else(|e| panic!("{name} is needed: {e}"));
    assert!(output.status.success(), "{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a tool writes text")
}

/// # Panics
/// The test is run by another user than root.
#[track_caller]
pub(crate) fn demand_root(to: &str) {
    demand_full_run("root");
    assert!(rustix::process::geteuid().is_root(), "run this test as root: only root can {to}");
}

/// # Panics
/// The test is run by `cargo xtask test --fast`, which promises neither root nor programs outside its PATH.
#[track_caller]
pub(crate) fn demand_full_run(what: &str) {
    assert!(std::env::var_os("SEALION_TEST_BARE").is_none(), "`cargo xtask test --fast` is without {what}");
}

/// The file or directory that `cargo xtask test` keeps under this name.
#[track_caller]
pub(crate) fn cached(name: &str) -> PathBuf {
    let named = std::env::var_os("SEALION_GUEST_CACHE").map(PathBuf::from);
    let cache = named
        .or_else(|| Some(PathBuf::from(std::env::var_os("XDG_CACHE_HOME")?).join("sealion/guest")))
        .or_else(|| Some(std::env::home_dir()?.join(".cache/sealion/guest")));
    cache.expect("a home directory").join(name)
}

/// A program that `cargo xtask test` builds: its environment variable, in capitals, names another one.
#[track_caller]
pub(crate) fn built_program(name: &str) -> PathBuf {
    let named = std::env::var_os(name.to_uppercase()).map(PathBuf::from);
    let program = named.unwrap_or_else(|| cached(name).join(name));
    assert!(program.exists(), "{} is not there: `cargo xtask {name}` gets it", program.display());
    program
}

/// Waits until the server stores responses in `directory`: a thread becomes its owner after the start, and loads its index.
#[track_caller]
pub(crate) fn wait_for_cache(server: &Server, directory: &Path) {
    server.wait_for("that the cache is loaded", |line| is_loaded(line, directory));
}

/// Whether the line says how many objects a directory has.
pub(crate) fn is_loaded(line: &Line, directory: &Path) -> bool {
    line.text.contains(&format!("cache {}: ", directory.display())) && line.text.ends_with(" MB")
}

/// Looks again and again until `done`.
///
/// # Panics
/// When that does not come.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + sealion_testkit::PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A small file system in memory; unmounted on drop. Mounting takes root.
pub(crate) struct Tmpfs(pub(crate) PathBuf);

impl Tmpfs {
    #[track_caller]
    pub(crate) fn mount(on: &Path, size: &str) -> Self {
        fs::create_dir(on).expect("a directory");
        tool("mount", ["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", on.to_str().expect("a path in UTF-8")]);
        Self(on.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: the server may still have a file open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
