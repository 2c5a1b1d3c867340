//! Less than the process was started with: another user, nothing gained by a program it starts, files beneath some directories
//! alone, and a list of system calls.
//!
//! All of it is given up once, when the listening sockets are bound and before there is a second thread. Nothing gives it back, and a
//! successor (`upgrade.rs`) is born with as little.

mod landlock;
mod seccomp;
mod user;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::{Config, PrivilegesConfig, Seccomp};
use crate::site::SiteConfig;
use crate::values::Problems;

pub(crate) use landlock::Support as LandlockSupport;
use user::Identity;

/// Finds what is wrong with the table on this machine.
pub(crate) fn check(config: &PrivilegesConfig, problems: &mut Problems) {
    if let Err(error) = identity(config) {
        problems.add(&(0..0), "privileges", error);
    }
}

/// The user and groups that the process becomes.
fn identity(config: &PrivilegesConfig) -> Result<Option<Identity>, String> {
    match (&config.user, &config.group) {
        (Some(user), group) => Identity::find(user, group.as_deref()).map(Some),
        (None, Some(_)) => Err("privileges.group: it goes with a user: name privileges.user too".to_owned()),
        (None, None) => Ok(None),
    }
}

/// What this process is confined by, for whoever looks and for a successor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// Landlock, and how much of it this kernel has.
    pub landlock: LandlockSupport,
    /// The list of system calls.
    pub seccomp: Seccomp,
}

/// What was given up, in words, and what could not be.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// For the successor.
    pub confinement: Confinement,
    user: Option<String>,
    no_new_privileges: bool,
    /// What this kernel cannot do, with what that means.
    pub lacking: Vec<String>,
}

/// Gives up what the configuration says, but not what the predecessor gave up before: Landlock has at most 16 layers, and each filter
/// is run for each call.
///
/// `file`: the configuration file. `made`: files that this process has made for itself, which become the user's.
///
/// # Errors
/// A line with the remedy. The process may have given up some of it already, and is to end.
pub(crate) fn give_up(
    config: &Config,
    file: Option<&Path>,
    made: &[PathBuf],
    inherited: Confinement,
) -> Result<Given, String> {
    let wanted = &config.privileges;
    let mut given = Given { confinement: inherited, ..Given::default() };
    if let Some(identity) = identity(wanted)? {
        identity.assume(made)?;
        given.user = Some(identity.to_string());
    }
    if wanted.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(|e| format!("privileges.no_new_privileges: {e}"))?;
        given.no_new_privileges = true;
    }
    if wanted.landlock && inherited.landlock == LandlockSupport::None {
        given.confinement.landlock = landlock::restrict(config, file)?;
        match given.confinement.landlock {
            LandlockSupport::None => given.lacking.push(
                "privileges.landlock: this kernel has no Landlock (Linux 5.13 has, with `landlock` in lsm=): files are guarded by their permissions alone"
                    .to_owned(),
            ),
            LandlockSupport::Partial => given.lacking.push(
                "privileges.landlock: this kernel has an early Landlock: truncating files (Linux 6.2) or binding TCP ports (6.7) is not restricted"
                    .to_owned(),
            ),
            LandlockSupport::Full => {}
        }
    }
    if wanted.seccomp > inherited.seccomp {
        match seccomp::restrict(wanted.seccomp) {
            Ok(()) => given.confinement.seccomp = wanted.seccomp,
            Err(why) => given.lacking.push(format!("privileges.seccomp: {why}: all system calls are allowed")),
        }
    }
    Ok(given)
}

/// Finds roots that Landlock keeps from this process: opening them only as a place is no reading, so that nothing else would tell before
/// the first request.
///
/// # Errors
/// A line for each, with the remedy.
pub(crate) fn check_roots(config: &Config, file: Option<&Path>, confinement: Confinement) -> Result<(), String> {
    if confinement.landlock == LandlockSupport::None {
        return Ok(());
    }
    let base = file.and_then(Path::parent).unwrap_or(Path::new(""));
    let refused = |root: &PathBuf| {
        let denied = std::fs::read_dir(root).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied);
        // access(2) looks at permissions alone.
        denied && rustix::fs::access(root, rustix::fs::Access::READ_OK).is_ok()
    };
    let of_site = |site: &SiteConfig| {
        let mounts = site.mounts.iter().map(|mount| &mount.root);
        site.root.iter().chain(mounts).map(|root| base.join(&root.value)).collect::<Vec<_>>()
    };
    let roots = config.site.iter().flat_map(of_site);
    let lines: Vec<String> = roots
        .filter(refused)
        .map(|root| {
            format!(
                "site.root: Landlock keeps this process from {}, because it was no root when the process began: restart the service, or name a directory above it in privileges.landlock_read before",
                root.display()
            )
        })
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.user.as_ref().map(|user| format!("user {user}")));
        if self.no_new_privileges {
            parts.push("no new privileges".to_owned());
        }
        if self.confinement.landlock != LandlockSupport::None {
            parts.push("Landlock".to_owned());
        }
        match self.confinement.seccomp {
            Seccomp::Off => {}
            Seccomp::Refuse => parts.push("other system calls are refused".to_owned()),
            Seccomp::Kill => parts.push("other system calls end the process".to_owned()),
        }
        f.write_str(&parts.join(", "))
    }
}

impl Given {
    /// Whether there is anything to say beyond what always holds.
    pub(crate) fn is_worth_a_line(&self) -> bool {
        self.user.is_some() || self.confinement != Confinement::default()
    }
}
