//! uwsgi from the server's side: the program itself, and packets for a server that a test scripts.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::fastcgi::Asked;
use super::upstream::Accepted;
use super::wait_until;

/// Reads the variables of a request: its two modifiers, and no content. `None`: the client has left before.
pub(crate) fn read_head(accepted: &mut Accepted) -> Option<([u8; 2], Asked)> {
    let head = accepted.read(4)?;
    let packet = accepted.read(usize::from(u16::from_le_bytes([head[1], head[2]])))?;
    let mut asked = Asked::default();
    let mut rest = packet.as_slice();
    let mut text = || {
        let (length, behind) = rest.split_first_chunk().expect("a length");
        let (text, behind) = behind.split_at(usize::from(u16::from_le_bytes(*length)));
        rest = behind;
        (String::from_utf8_lossy(text).into_owned(), behind.is_empty())
    };
    loop {
        let (name, _) = text();
        let (value, is_last) = text();
        assert!(asked.params.insert(name, value).is_none(), "a variable comes twice");
        if is_last {
            return Some(([head[0], head[3]], asked));
        }
    }
}

/// Reads a request up to the end of its content.
pub(crate) fn read_request(accepted: &mut Accepted) -> Option<Asked> {
    let (_, mut asked) = read_head(accepted)?;
    let length = asked.param("CONTENT_LENGTH");
    asked.content = accepted.read(if length.is_empty() { 0 } else { length.parse().expect("a length") })?;
    Some(asked)
}

/// The program uwsgi with two processes for an application of Python.
pub(crate) struct Uwsgi {
    socket: PathBuf,
    process: Child,
}

impl Uwsgi {
    /// `application`: the text of a module with `application`. Its files lie in `directory`.
    #[track_caller]
    pub(crate) fn start(directory: &Path, application: &str) -> Self {
        super::demand_full_run("uwsgi");
        let file = directory.join("app.py");
        std::fs::write(&file, application).expect("it is written");
        let socket = directory.join("uwsgi.sock");
        let mut command = Command::new("uwsgi-core");
        command.args(["--plugins-dir", "/usr/lib/uwsgi/plugins", "--plugin", "python3", "--master", "--die-on-term"]);
        command.args(["--processes", "2", "--buffer-size", "65535"]).arg("--socket").arg(&socket);
        command.arg("--wsgi-file").arg(&file).arg("--logto").arg(directory.join("uwsgi.log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("uwsgi is needed: apt-get install uwsgi-core uwsgi-plugin-python3");
        let uwsgi = Uwsgi { socket, process };
        wait_until("uwsgi listens", || std::os::unix::net::UnixStream::connect(&uwsgi.socket).is_ok());
        uwsgi
    }

    pub(crate) fn url(&self) -> String {
        format!("unix:{}", self.socket.display())
    }
}

impl Drop for Uwsgi {
    fn drop(&mut self) {
        // Its own signal: its processes would outlive a kill.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}
