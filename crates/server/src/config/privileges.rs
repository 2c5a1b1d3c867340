//! `[privileges]`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::overridable;

/// What the process gives up when its sockets are bound. docs/hardening.md says what that means for reloads and upgrades.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize, JsonSchema)]
#[command(next_help_heading = "Privileges")]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrivilegesConfig {
    /// The user to become, by name or number. Only a process of root can. Certificates and keys have to be readable for this
    /// user, or a reload fails.
    #[arg(long, value_name = "USER", env = "SEALION_USER")]
    pub user: Option<String>,

    /// The group to become, by name or number; without it the user's own, with the groups that the user is a member of.
    #[arg(long, value_name = "GROUP", env = "SEALION_GROUP")]
    pub group: Option<String>,

    /// Whether no program that is started can have more privileges than this process (PR_SET_NO_NEW_PRIVS).
    #[arg(long, value_name = "BOOL", env = "SEALION_NO_NEW_PRIVILEGES", action = clap::ArgAction::Set,
          default_value_t = Self::default().no_new_privileges)]
    pub no_new_privileges: bool,

    /// Whether the kernel refuses all files but those that the configuration names, the programs and libraries that an upgrade
    /// needs, and what the machine tells everybody. A root, a certificate or a log elsewhere then needs a restart, not a reload.
    #[arg(long, value_name = "BOOL", env = "SEALION_LANDLOCK", action = clap::ArgAction::Set,
          default_value_t = Self::default().landlock)]
    pub landlock: bool,

    /// What becomes of a system call that a file server has no use for: with `refuse` it fails as if the kernel did not know
    /// it, with `kill` the process ends at once and the kernel's log names the call. `off`: all are allowed.
    #[arg(long, value_enum, env = "SEALION_SECCOMP", default_value_t = Self::default().seccomp)]
    pub seccomp: Seccomp,

    /// More directories or files that Landlock lets be read.
    #[arg(long, value_name = "PATH", env = "SEALION_LANDLOCK_READ", value_delimiter = ',')]
    pub landlock_read: Vec<PathBuf>,

    /// More directories that Landlock lets be written to.
    #[arg(long, value_name = "PATH", env = "SEALION_LANDLOCK_WRITE", value_delimiter = ',')]
    pub landlock_write: Vec<PathBuf>,
}

/// What becomes of system calls that are not on the list.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Seccomp {
    /// There is no list.
    #[default]
    Off,
    /// They fail with ENOSYS.
    Refuse,
    /// They end the process.
    Kill,
}

impl Default for PrivilegesConfig {
    // On is only what cannot take anything from a reload or an upgrade.
    fn default() -> Self {
        Self {
            user: None,
            group: None,
            no_new_privileges: true,
            landlock: false,
            seccomp: Seccomp::Off,
            landlock_read: Vec::new(),
            landlock_write: Vec::new(),
        }
    }
}

overridable!(PrivilegesConfig { user, group, no_new_privileges, landlock, seccomp, landlock_read, landlock_write });
