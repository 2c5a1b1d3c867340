//! Several roots in one directory, each of whose sites has its own certificate or none.

use std::fs;
use std::path::PathBuf;

use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;

use super::config::Config;

/// A directory with `root/`, other roots and a configuration file.
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

    /// A configuration file without sites.
    pub(crate) fn config(&self) -> Config {
        Config::within(self.directory.path())
    }

    /// Writes a file of a default listener and these tables.
    pub(crate) fn write(&self, tables: &str) -> PathBuf {
        self.config().table(tables).write()
    }

    /// Serves by such a file, sealing in user space.
    #[track_caller]
    pub(crate) fn serve(&self, tables: &str) -> Server {
        self.config().table(tables).serve_from_user_space()
    }
}

/// `certificates = [...]` with these pairs; nothing for none.
pub(crate) fn certificates(pkis: &[&Pki]) -> String {
    if pkis.is_empty() {
        return String::new();
    }
    let pair = |pki: &&Pki| format!("{{ cert = {:?}, key = {:?} }}", pki.certificate_file(), pki.key_file());
    format!("certificates = [{}]\n", pkis.iter().map(pair).collect::<Vec<_>>().join(", "))
}
