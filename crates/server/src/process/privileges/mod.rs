//! Privileges that the process gives up: user, no_new_privs, access to files (Landlock), system calls (seccomp).
//!
//! They are given up once, after the listening sockets are bound and before a second thread starts, and for good. A successor
//! (`upgrade.rs`) inherits the confinement.

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

/// Checks the table against the users and groups of this machine.
pub(crate) fn check(config: &PrivilegesConfig, problems: &mut Problems) {
    if let Err(error) = identity(config) {
        problems.add(&(0..0), "privileges", error);
    }
}

/// The user and groups that the process assumes.
fn identity(config: &PrivilegesConfig) -> Result<Option<Identity>, String> {
    match (&config.user, &config.group) {
        (Some(user), group) => Identity::find(user, group.as_deref()).map(Some),
        (None, Some(_)) => Err("privileges.group: a group needs a user: name privileges.user too".to_owned()),
        (None, None) => Ok(None),
    }
}

/// The confinement of this process, for its log and its successor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// As much as this kernel supports.
    pub landlock: LandlockSupport,
    pub seccomp: Seccomp,
}

/// Privileges that were given up, and privileges that remain.
#[derive(Debug, Default)]
pub(crate) struct GivenUp {
    pub confinement: Confinement,
    user: Option<String>,
    no_new_privileges: bool,
    /// A line for each privilege that this kernel cannot take away, with the consequence.
    pub lacking: Vec<String>,
}

/// Gives up the privileges that the configuration names, unless the predecessor has given them up already: Landlock has at most 16
/// layers, and every seccomp filter runs for every system call.
///
/// `file`: the configuration file. `made`: files that this process has made, which become the user's.
///
/// # Errors
/// A line with the remedy. Some privileges may be gone already; the process must end.
pub(crate) fn give_up(
    config: &Config,
    file: Option<&Path>,
    made: &[PathBuf],
    inherited: Confinement,
) -> Result<GivenUp, String> {
    let wanted = &config.privileges;
    let mut given = GivenUp { confinement: inherited, ..GivenUp::default() };
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
                "privileges.landlock: this kernel has no Landlock (it needs Linux 5.13, with `landlock` in lsm=): only file permissions restrict access"
                    .to_owned(),
            ),
            LandlockSupport::Partial => given.lacking.push(
                "privileges.landlock: this kernel has an early Landlock: truncating files (needs Linux 6.2), binding TCP ports (6.7), ioctl on devices (6.10), signals or abstract sockets (6.12) are not restricted"
                    .to_owned(),
            ),
            LandlockSupport::Full => {}
        }
    }
    if wanted.seccomp > inherited.seccomp {
        match seccomp::restrict(wanted.seccomp) {
            Ok(()) => given.confinement.seccomp = wanted.seccomp,
            Err(error) => given.lacking.push(format!("privileges.seccomp: {error}: all system calls are allowed")),
        }
    }
    Ok(given)
}

/// Finds roots that Landlock keeps from this process. O_PATH opens succeed even where Landlock denies reading, so that the first request
/// would be the first to fail.
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
        // access(2) checks permissions only: if they allow reading, Landlock denies it.
        denied && rustix::fs::access(root, rustix::fs::Access::READ_OK).is_ok()
    };
    let of_site = |site: &SiteConfig| site.roots().map(|root| base.join(root)).collect::<Vec<_>>();
    let roots = config.site.iter().flat_map(of_site);
    let lines: Vec<String> = roots
        .filter(refused)
        .map(|root| {
            format!(
                "site.root: Landlock keeps this process from {}, which was no root when the process started: restart the service, or name a directory above it in privileges.landlock_read before the next start",
                root.display()
            )
        })
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

impl fmt::Display for GivenUp {
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

impl GivenUp {
    /// Whether it differs from the default.
    pub(crate) fn is_worth_a_line(&self) -> bool {
        self.user.is_some() || self.confinement != Confinement::default()
    }
}
