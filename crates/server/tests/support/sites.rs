//! Servers with a configuration file of their own.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;

use super::PROGRAM;

/// A directory with `root/` and a configuration file.
pub(crate) struct Sites {
    directory: tempfile::TempDir,
}

impl Sites {
    /// With a file `name` in the root that says which root it is.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("root")).expect("a directory");
        fs::write(directory.path().join("root/name"), "root").expect("a file");
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Another root.
    pub(crate) fn add_root(&self, name: &str) {
        fs::create_dir(self.path(name)).expect("a directory");
        fs::write(self.path(name).join("name"), name).expect("a file");
    }

    /// Writes the file; it listens on a free port unless `rest` begins with where to listen.
    pub(crate) fn write(&self, rest: &str) -> PathBuf {
        let file = self.path("sealion.toml");
        let listen = if rest.starts_with("[[listen]]") { "" } else { "[[listen]]\naddress = '127.0.0.1:0'\n" };
        let text = format!("{listen}{rest}");
        fs::write(&file, text).expect("the file is written");
        file
    }

    #[track_caller]
    pub(crate) fn serve(&self, rest: &str) -> Server {
        let file = self.write(rest);
        Server::start(
            Path::new(PROGRAM),
            ["serve".as_ref(), "--ktls=never".as_ref(), "--config".as_ref(), file.as_os_str()],
        )
    }

    pub(crate) fn check(&self, rest: &str) -> Output {
        let file = self.write(rest);
        Command::new(PROGRAM).args(["check", "--config"]).arg(&file).output().expect("the program starts")
    }
}

/// `certificates = [...]`
pub(crate) fn certificates(pkis: &[&Pki]) -> String {
    let pair = |pki: &&Pki| format!("{{ cert = {:?}, key = {:?} }}", pki.certificate_file(), pki.key_file());
    format!("certificates = [{}]\n", pkis.iter().map(pair).collect::<Vec<_>>().join(", "))
}

/// A port of 127.0.0.1 that nobody has just now.
pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("an address").port()
}
