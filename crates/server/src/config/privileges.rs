//! `[privileges]`

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::values::overridable;

/// Privileges that the process drops once its sockets are bound. docs/hardening.md describes the effects on reloads and
/// upgrades.
#[derive(Debug, Clone, PartialEq, SmartDefault, Args, Serialize, Deserialize, JsonSchema)]
#[command(next_help_heading = "Privileges")]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PrivilegesConfig {
    /// User to switch to, by name or number; needs a start as root. Certificates and keys must be readable by this user,
    /// or a reload fails.
    #[arg(long, value_name = "USER", env = "SEALION_USER")]
    pub user: Option<String>,

    /// Group to switch to, by name or number. Without it, the user's primary and supplementary groups apply.
    #[arg(long, value_name = "GROUP", env = "SEALION_GROUP")]
    pub group: Option<String>,

    /// Whether programs started by this process are kept from gaining privileges (PR_SET_NO_NEW_PRIVS).
    #[arg(long, value_name = "BOOL", env = "SEALION_NO_NEW_PRIVILEGES", action = clap::ArgAction::Set,
          default_value_t = Self::default().no_new_privileges)]
    // By default, only the restrictions are on that cannot break a reload or an upgrade.
    #[default(true)]
    pub no_new_privileges: bool,

    /// Whether Landlock confines the process to the files named in the configuration, the program and libraries that an
    /// upgrade needs, and public system files. A root, certificate or log elsewhere then needs a restart, not a reload.
    #[arg(long, value_name = "BOOL", env = "SEALION_LANDLOCK", action = clap::ArgAction::Set,
          default_value_t = Self::default().landlock)]
    pub landlock: bool,

    /// Action on system calls that a file server does not need: `refuse` makes them fail with ENOSYS, `kill` ends the
    /// process at once and the kernel log names the call, `off` allows them.
    #[arg(long, value_enum, env = "SEALION_SECCOMP", default_value_t = Self::default().seccomp)]
    #[default(Seccomp::Off)]
    pub seccomp: Seccomp,

    /// Further directories or files that Landlock permits to read.
    #[arg(long, value_name = "PATH", env = "SEALION_LANDLOCK_READ", value_delimiter = ',')]
    pub landlock_read: Vec<PathBuf>,

    /// Further directories that Landlock permits to write.
    #[arg(long, value_name = "PATH", env = "SEALION_LANDLOCK_WRITE", value_delimiter = ',')]
    pub landlock_write: Vec<PathBuf>,
}

/// Action on system calls that are not on the list.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Seccomp {
    #[default]
    Off,
    /// They fail with ENOSYS.
    Refuse,
    /// They end the process.
    Kill,
}

overridable!(PrivilegesConfig { user, group, no_new_privileges, landlock, seccomp, landlock_read, landlock_write });
