//! A Valkey or Redis server.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::port::free_port;
use super::{tool, wait_until};

/// A server on a port of its own, which keeps nothing on the disk.
pub(crate) struct Redis {
    port: u16,
    process: Option<Child>,
}

impl Redis {
    #[track_caller]
    pub(crate) fn start() -> Self {
        let mut redis = Redis { port: free_port(), process: None };
        redis.start_again();
        redis
    }

    /// Starts it on the same port, empty.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        let port = self.port.to_string();
        let options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no", "--port", &port];
        let started = ["valkey-server", "redis-server"].into_iter().find_map(|name| {
            let mut command = Command::new(name);
            command.args(options).stdin(Stdio::null()).stdout(Stdio::null()).spawn().ok()
        });
        self.process = Some(started.expect("valkey-server or redis-server is needed: apt-get install redis-server"));
        wait_until("the server of the stream listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/purges", self.port)
    }

    /// A command, and what the server answers.
    #[track_caller]
    pub(crate) fn call(&self, command: &[&str]) -> String {
        tool("redis-cli", [&["-p", &self.port.to_string()], command].concat())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}
