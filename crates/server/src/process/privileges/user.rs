//! Changes the user and group of all threads, for good.

use std::ffi::CString;
use std::fmt;
use std::os::unix::fs::lchown;
use std::path::PathBuf;

use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgroups, initgroups, setgid, setgroups, setuid};

/// A user and a group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    user: String,
    uid: Uid,
    gid: Gid,
    /// Whether to take the user's supplementary groups.
    all_groups: bool,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.user, self.uid, self.gid)
    }
}

impl Identity {
    /// Finds a user and a group by name or number. Without `group`: the user's own group, and its supplementary groups.
    ///
    /// # Errors
    /// A line with the remedy.
    pub(super) fn find(user: &str, group: Option<&str>) -> Result<Self, String> {
        let own = find_user(user)?;
        Ok(match group {
            Some(group) => Self { gid: find_group(group)?, all_groups: false, ..own },
            None => own,
        })
    }

    /// Gives the files in `made` to this user, then changes to it. The C library changes all threads at once (nptl(7)).
    ///
    /// # Errors
    /// A line with the remedy.
    pub(super) fn assume(&self, made: &[PathBuf]) -> Result<(), String> {
        let name = &self.user;
        if geteuid() == self.uid && !geteuid().is_root() {
            return self.has_group();
        }
        if !geteuid().is_root() {
            return Err(format!(
                "privileges.user: only root can change to {name}: start as root, or remove the key and let the service manager set the user"
            ));
        }
        for path in made {
            lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw())).map_err(|e| {
                format!("privileges.user: cannot give {} to {name}: {e}: CAP_CHOWN is needed", path.display())
            })?;
        }
        let cannot = |what: &str, error: nix::Error| {
            format!("privileges.user: cannot {what} of {name}: {error}: CAP_SETUID and CAP_SETGID are needed")
        };
        match CString::new(name.as_str()) {
            Ok(name) if self.all_groups => initgroups(&name, self.gid).map_err(|e| cannot("assume the groups", e))?,
            _ => setgroups(&[self.gid]).map_err(|e| cannot("assume the groups", e))?,
        }
        setgid(self.gid).map_err(|e| cannot("assume the group", e))?;
        setuid(self.uid).map_err(|e| cannot("assume the user id", e))?;
        if !self.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
            let what = "the process could change back to root: this kernel or container does not separate users";
            return Err(format!("privileges.user: {what}"));
        }
        Ok(())
    }
}

impl Identity {
    /// Checks the group of a process that has the user already, from its predecessor or the service manager. Only root could change it.
    fn has_group(&self) -> Result<(), String> {
        let other = |group: &Gid| *group != self.gid;
        // The user's own groups come from the service manager; a named group is the only one.
        if self.all_groups || (getegid() == self.gid && !getgroups().is_ok_and(|groups| groups.iter().any(other))) {
            return Ok(());
        }
        Err(format!(
            "privileges.group: the process runs as {} already, with other groups than {}: start as root, or remove the key and let the service manager set the group (Group=, SupplementaryGroups=)",
            self.user, self.gid
        ))
    }
}

fn find_user(name: &str) -> Result<Identity, String> {
    let found = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    match (found, name.parse()) {
        (Ok(Some(user)), _) => Ok(Identity { user: user.name, uid: user.uid, gid: user.gid, all_groups: true }),
        // A user id need not have a name, and a container need not have /etc/passwd.
        (Ok(None) | Err(_), Ok(number)) => {
            let (uid, gid) = (Uid::from_raw(number), Gid::from_raw(number));
            Ok(Identity { user: name.to_owned(), uid, gid, all_groups: true })
        }
        (Ok(None), Err(_)) => {
            let remedy = format!("add it (`useradd --system {name}`), or name another");
            Err(format!("privileges.user: there is no user {name}: {remedy}"))
        }
        (Err(error), Err(_)) => Err(format!("privileges.user: cannot look up {name}: {error}")),
    }
}

fn find_group(name: &str) -> Result<Gid, String> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(format!(
            "privileges.group: there is no group {name}: add it (`groupadd --system {name}`), or name another"
        )),
        Err(error) => Err(format!("privileges.group: cannot look up {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_there_is_named() {
        let refused = Identity::find("no-such-user", None).unwrap_err();
        assert!(refused.contains("useradd --system no-such-user"), "{refused}");
        assert!(Identity::find("root", Some("no-such-group")).unwrap_err().contains("groupadd"));
        assert_eq!(Identity::find("root", None).unwrap().uid, Uid::from_raw(0));
        assert_eq!(Identity::find("4000000000", None).unwrap().to_string(), "4000000000 (4000000000:4000000000)");
        assert_eq!(Identity::find("4000000000", Some("root")).unwrap().gid, Gid::from_raw(0));
    }
}
