//! The system's store, which curl, wget and most programs use.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Outcome, Root, execute, find};

/// A distribution's directory for additional roots, and the program that updates the store from it.
struct Anchors {
    directory: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// The arguments for removing roots that no longer exist.
    fresh: &'static [&'static str],
}

/// The first whose directory and program exist is used.
const ANCHORS: [Anchors; 4] = [
    // Fedora, RHEL and relatives: update-ca-trust(8).
    Anchors {
        directory: "/etc/pki/ca-trust/source/anchors",
        program: "update-ca-trust",
        arguments: &["extract"],
        fresh: &["extract"],
    },
    // Arch: update-ca-trust(8).
    Anchors {
        directory: "/etc/ca-certificates/trust-source/anchors",
        program: "update-ca-trust",
        arguments: &["extract"],
        fresh: &["extract"],
    },
    // openSUSE: update-ca-certificates(8).
    Anchors {
        directory: "/etc/pki/trust/anchors",
        program: "update-ca-certificates",
        arguments: &[],
        fresh: &["--fresh"],
    },
    // Debian, Ubuntu, Alpine: update-ca-certificates(8). It only takes files that end with .crt.
    Anchors {
        directory: "/usr/local/share/ca-certificates",
        program: "update-ca-certificates",
        arguments: &[],
        fresh: &["--fresh"],
    },
];

/// This system's store.
struct Store {
    file: PathBuf,
    program: PathBuf,
    anchors: &'static Anchors,
    /// The program that runs commands as root, if this process may not change the store.
    sudo: Option<PathBuf>,
}

impl Store {
    fn find(root: &Root) -> Result<Self, String> {
        let mut present = ANCHORS.iter().filter(|anchors| Path::new(anchors.directory).is_dir());
        let with_program = present.find_map(|anchors| Some((anchors, find(anchors.program)?)));
        let (anchors, program) = with_program.ok_or_else(|| {
            "the system's store: neither update-ca-certificates nor update-ca-trust is here: install ca-certificates".to_owned()
        })?;
        let file = Path::new(anchors.directory).join(format!("{}.crt", root.name));
        let sudo = match rustix::process::geteuid().is_root() {
            true => None,
            false => Some(find("sudo").ok_or_else(|| {
                let (root, file, program) = (root.file.display(), file.display(), program.display());
                format!("the system's store: only root can change it, and sudo is not here: as root, `install -m 644 {root} {file} && {program}`")
            })?),
        };
        Ok(Self { file, program, anchors, sudo })
    }

    /// Runs a program as root.
    fn execute(&self, program: &Path, arguments: &[&OsStr]) -> Result<(), String> {
        let Some(sudo) = &self.sudo else { return execute(program, arguments) };
        let all: Vec<&OsStr> = [program.as_os_str()].into_iter().chain(arguments.iter().copied()).collect();
        execute(sudo, &all)
    }

    fn update(&self, arguments: &[&str]) -> Result<(), String> {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        self.execute(&self.program, &arguments)
    }
}

pub(super) fn add(root: &Root) -> Outcome {
    let mut outcome = Outcome::default();
    match Store::find(root) {
        Err(error) => outcome.failed.push(error),
        Ok(store) => {
            let (from, to) = (root.file.as_os_str(), store.file.as_os_str());
            let mode = ["-m", "644"].map(OsStr::new);
            let added = store
                .execute(Path::new("install"), &[mode[0], mode[1], from, to])
                .and_then(|()| store.update(store.anchors.arguments));
            let added = added.map_err(|error| format!("the system's store: {error}"));
            outcome.add(format!("trusted by the system: {}", store.file.display()), added);
        }
    }
    outcome
}

pub(super) fn remove(root: &Root) -> Outcome {
    let mut outcome = Outcome::default();
    let is_anchor = |anchors: &Anchors| {
        fs::symlink_metadata(Path::new(anchors.directory).join(format!("{}.crt", root.name))).is_ok()
    };
    if !ANCHORS.iter().any(is_anchor) {
        return outcome;
    }
    match Store::find(root) {
        Err(error) => outcome.failed.push(error),
        Ok(store) => {
            let file = [OsStr::new("-f"), store.file.as_os_str()];
            let removed = store.execute(Path::new("rm"), &file).and_then(|()| store.update(store.anchors.fresh));
            let removed = removed.map_err(|error| format!("the system's store: {error}"));
            outcome.add(format!("no longer trusted by the system: {}", store.file.display()), removed);
        }
    }
    outcome
}
