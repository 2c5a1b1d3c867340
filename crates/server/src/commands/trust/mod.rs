//! `sealion trust`: creates a local authority and adds its root to the stores of this machine and of the user's
//! browsers, or removes it again.

mod browsers;
mod system;

use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use aws_lc_rs::digest::{SHA256, digest};
use clap::Args;

use super::print;
use crate::certificates::authority::{Authority, DevelopmentName};
use crate::certificates::development;

/// Arguments of `sealion trust`.
#[derive(Debug, Clone, Args)]
pub(super) struct TrustArgs {
    /// Further names of the certificate beside localhost, and addresses, on the local network: `app.test`,
    /// `*.app.test`, `192.168.1.7`. They are added to earlier ones, by a new authority in place of the old one
    #[arg(value_name = "NAME", conflicts_with = "remove")]
    pub names: Vec<DevelopmentName>,

    /// Remove the root from all stores, and the authority
    #[arg(long)]
    pub remove: bool,
}

/// Adds the root to all stores, or removes it from them.
///
/// # Errors
/// A store could not be changed. The other stores were changed.
pub(super) fn run(args: &TrustArgs) -> Result<ExitCode, String> {
    let directory = development::directory()
        .ok_or("no directory for the local authority: set HOME or XDG_DATA_HOME to the user's")?;
    if args.remove { remove(&directory) } else { add(&directory, &args.names) }
}

fn add(directory: &Path, names: &[DevelopmentName]) -> Result<ExitCode, String> {
    if rustix::process::geteuid().is_root() && std::env::var_os("SUDO_USER").is_some_and(|user| user != "root") {
        return Err("started by sudo, this would make an authority of root's: run `sealion trust` as the user who runs `sealion serve`; it calls sudo itself".to_owned());
    }
    let mut removed = ExitCode::SUCCESS;
    let authority = match Authority::find(directory) {
        Some(found) if names.iter().all(|name| found.names().contains(name)) => found,
        found => {
            let mut all = Vec::new();
            if let Some(found) = found {
                (all, removed) = replace(&found)?;
            }
            for name in names {
                if !all.contains(name) {
                    all.push(name.clone());
                }
            }
            Authority::make(directory, &all)
                .map_err(|error| format!("cannot write a local authority to {}: {error}", directory.display()))?
        }
    };
    let root = Root::of(&authority)?;
    let outcomes = [system::add(&root), browsers::add(&root)];
    let failed = report(&outcomes)?;
    let root = root.file.display();
    print(&format!(
        "`sealion serve` and `sealion proxy` without a certificate use one of this authority from their next start; elsewhere: curl --cacert {root}\n"
    ))?;
    Ok(if removed == ExitCode::SUCCESS { failed } else { removed })
}

/// Takes an authority that lacks names out of all stores, and removes its key, so that a root left in a store vouches for nothing more. Returns the
/// names that it has.
fn replace(authority: &Authority) -> Result<(Vec<DevelopmentName>, ExitCode), String> {
    let root = Root::of(authority)?;
    let names = authority.names();
    let removed = report(&[system::remove(&root), browsers::remove(&root)])?;
    authority.remove().map_err(|error| format!("cannot remove {}: {error}", root.file.display()))?;
    Ok((names, removed))
}

fn remove(directory: &Path) -> Result<ExitCode, String> {
    let Some(authority) = Authority::find(directory) else {
        return Err(format!("there is no local authority in {}: nothing to remove", directory.display()));
    };
    let root = Root::of(&authority)?;
    let failed = report(&[system::remove(&root), browsers::remove(&root)])?;
    if failed == ExitCode::SUCCESS {
        authority.remove().map_err(|error| format!("cannot remove {}: {error}", root.file.display()))?;
        print(&format!("removed: {}\n", root.file.display()))?;
    }
    Ok(failed)
}

/// Prints the changes and the failures.
fn report(outcomes: &[Outcome]) -> Result<ExitCode, String> {
    let mut text = String::new();
    for outcome in outcomes {
        for line in &outcome.done {
            let _ = writeln!(text, "{line}");
        }
        for line in &outcome.failed {
            let _ = writeln!(text, "NOT DONE: {line}");
        }
    }
    print(&text)?;
    let failed = outcomes.iter().any(|outcome| !outcome.failed.is_empty());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The root certificate and its name in stores.
struct Root {
    file: PathBuf,
    /// Different for each authority, so that several users' roots can coexist.
    name: String,
}

impl Root {
    fn of(authority: &Authority) -> Result<Self, String> {
        let file = authority.root.clone();
        let bytes = fs::read(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let hash = digest(&SHA256, &bytes);
        let id = hash.as_ref().iter().take(4).fold(String::new(), |id, byte| format!("{id}{byte:02x}"));
        Ok(Self { file, name: format!("sealion-{id}") })
    }
}

/// The outcome for the stores of one kind.
#[derive(Debug, Default)]
struct Outcome {
    done: Vec<String>,
    /// Failures, with the remedy.
    failed: Vec<String>,
}

impl Outcome {
    fn add(&mut self, done: String, result: Result<(), String>) {
        match result {
            Ok(()) => self.done.push(done),
            Err(error) => self.failed.push(error),
        }
    }
}

/// Finds a program in PATH.
fn find(program: &str) -> Option<PathBuf> {
    // Users often lack the directories of system programs.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Runs a program to its end. Its output is shown only if it fails.
fn execute(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Result<(), String> {
    let program = program.as_ref();
    let shown = || {
        let words = arguments.iter().map(|argument| argument.to_string_lossy());
        [program.to_string_lossy()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    };
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("`{}`: {error}", shown()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` failed ({}): {}", shown(), output.status, said.trim()))
}
