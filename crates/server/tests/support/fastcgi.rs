//! FastCGI from the server's side: php-fpm, and records for a server that a test scripts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::upstream::Accepted;
use super::wait_until;

/// A request as it arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) params: BTreeMap<String, String>,
    pub(crate) content: Vec<u8>,
}

impl Asked {
    #[track_caller]
    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.get(name).map(String::as_str).unwrap_or_else(|| panic!("no {name} in {:?}", self.params))
    }
}

/// The next record: its type and content.
fn record(accepted: &mut Accepted) -> Option<(u8, Vec<u8>)> {
    let head = accepted.read(8)?;
    let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let content = accepted.read(length)?;
    accepted.read(usize::from(head[6]))?;
    assert_eq!((head[0], head[2], head[3]), (1, 0, 1), "version and request");
    Some((head[1], content))
}

/// Reads a request up to the end of its content. `None`: the client has left before.
pub(crate) fn read_request(accepted: &mut Accepted) -> Option<Asked> {
    let mut asked = Asked::default();
    let mut pairs = Vec::new();
    loop {
        match record(accepted)? {
            (1, content) => assert_eq!(content[..3], [0, 1, 0], "a responder, whose connection is not kept"),
            (4, content) => pairs.extend_from_slice(&content),
            (5, content) if content.is_empty() => break,
            (5, content) => asked.content.extend_from_slice(&content),
            (kind, _) => panic!("a record of type {kind}"),
        }
    }
    let mut rest = pairs.as_slice();
    while !rest.is_empty() {
        let mut length = || {
            let (length, size) = match rest[0] < 128 {
                true => (usize::from(rest[0]), 1),
                false => (u32::from_be_bytes([rest[0] & 127, rest[1], rest[2], rest[3]]) as usize, 4),
            };
            rest = &rest[size..];
            length
        };
        let (name, value) = (length(), length());
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let new = asked.params.insert(text(&rest[..name]), text(&rest[name..][..value]));
        assert!(new.is_none(), "a variable comes twice");
        rest = &rest[name + value..];
    }
    Some(asked)
}

pub(crate) fn of_type(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    // With padding, as php-fpm has it.
    let padding = (8 - content.len() % 8) % 8;
    [&[1, kind, 0, 1, high, low, padding as u8, 0], content, &[b'!'; 8][..padding]].concat()
}

pub(crate) fn stdout(content: impl AsRef<[u8]>) -> Vec<u8> {
    content.as_ref().chunks(60_000).flat_map(|part| of_type(6, part)).collect()
}

pub(crate) fn stderr(content: &str) -> Vec<u8> {
    of_type(7, content.as_bytes())
}

pub(crate) fn end() -> Vec<u8> {
    [of_type(6, b""), of_type(3, &[0; 8])].concat()
}

/// A php-fpm of four processes.
pub(crate) struct PhpFpm {
    socket: PathBuf,
    process: Child,
}

impl PhpFpm {
    /// Its files lie in `directory`.
    #[track_caller]
    pub(crate) fn start(directory: &Path) -> Self {
        super::demand_full_run("php-fpm");
        let socket = directory.join("php.sock");
        let config = directory.join("php-fpm.conf");
        let user = if rustix::process::geteuid().is_root() { "user = root\n" } else { "" };
        let text = format!(
            "[global]\nerror_log = {0}/fpm.log\ndaemonize = no\n[www]\n{user}listen = {1}\npm = static\npm.max_children = 4\n\
             catch_workers_output = yes\nphp_admin_value[post_max_size] = 64M\n",
            directory.display(),
            socket.display()
        );
        std::fs::write(&config, text).expect("it is written");
        let directories = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"];
        let programs = directories.into_iter().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten();
        let mut programs = programs.flatten().map(|entry| entry.path());
        let program =
            programs.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm")));
        let program = program.expect("php-fpm is needed: apt-get install php-fpm");
        let mut command = Command::new(program);
        command.args(["--nodaemonize", "--allow-to-run-as-root", "--fpm-config"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("it starts");
        let php = PhpFpm { socket, process };
        wait_until("php-fpm listens", || std::os::unix::net::UnixStream::connect(&php.socket).is_ok());
        php
    }

    pub(crate) fn url(&self) -> String {
        format!("unix:{}", self.socket.display())
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // Its own signal: its processes would outlive a kill.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}
