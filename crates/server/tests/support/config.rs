//! Configuration files. Every test that needs one has it from here.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;

use super::PROGRAM;
use super::sites::certificates;

/// A configuration file: its listeners, its sites, then further tables. Without [`listen`](Self::listen) it listens on a
/// free port of 127.0.0.1. Relative paths start at its directory.
#[derive(Clone)]
#[must_use]
pub(crate) struct Config {
    file: PathBuf,
    listeners: String,
    sites: String,
    tables: String,
}

impl Config {
    /// `sealion.toml` in this directory, not written yet.
    pub(crate) fn within(directory: &Path) -> Self {
        let file = directory.join("sealion.toml");
        Self { file, listeners: String::new(), sites: String::new(), tables: String::new() }
    }

    /// Adds a listener with these keys, `address` among them.
    pub(crate) fn listen(mut self, keys: &str) -> Self {
        let _ = writeln!(self.listeners, "[[listen]]\n{keys}");
        self
    }

    /// Adds a site with this root and these certificates. `keys`: the site's other keys and subtables.
    pub(crate) fn site(mut self, root: impl AsRef<Path>, pkis: &[&Pki], keys: &str) -> Self {
        let _ = writeln!(self.sites, "[[site]]\nroot = {:?}\n{}{keys}", root.as_ref(), certificates(pkis));
        self
    }

    /// Adds text, usually a table.
    pub(crate) fn table(mut self, text: &str) -> Self {
        let _ = writeln!(self.tables, "{text}");
        self
    }

    /// Writes the file, over an earlier one of the same directory.
    pub(crate) fn write(&self) -> PathBuf {
        let Self { file, listeners, sites, tables } = self;
        let listeners = if listeners.is_empty() { "[[listen]]\naddress = '127.0.0.1:0'\n" } else { listeners };
        fs::write(file, [listeners, sites, tables].concat()).expect("the file is written");
        file.clone()
    }

    /// Writes the file and runs `sealion check`.
    pub(crate) fn check(&self) -> Output {
        Command::new(PROGRAM).args(["check", "--config"]).arg(self.write()).output().expect("the program starts")
    }

    /// The messages of `sealion check`.
    pub(crate) fn problems(&self) -> String {
        String::from_utf8(self.check().stderr).expect("text")
    }

    /// Writes the file and serves by it.
    #[track_caller]
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// The same, sealing in user space whatever the kernel offers.
    #[track_caller]
    pub(crate) fn serve_from_user_space(&self) -> Server {
        self.serve_with(&["--ktls=never"])
    }

    /// Writes the file and serves by it, with `options` of the command line.
    #[track_caller]
    pub(crate) fn serve_with(&self, options: &[&str]) -> Server {
        let file = self.write();
        let arguments = ["serve", "--config"].map(AsRef::as_ref).into_iter().chain([file.as_os_str()]);
        Server::start(PROGRAM.as_ref(), arguments.chain(options.iter().map(AsRef::as_ref)))
    }
}
