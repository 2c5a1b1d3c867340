//! Another user and group, for all threads and for good.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, geteuid, initgroups, setgid, setgroups, setuid};

/// Becomes the user, and says who that is. The C library does it for all threads at once (nptl(7)).
///
/// # Errors
/// A line with the remedy.
pub(super) fn become_user(name: &str, group: Option<&str>) -> Result<String, String> {
    let user = find_user(name)?;
    let gid = match group {
        Some(group) => find_group(group)?,
        None => user.gid,
    };
    let words = format!("{} ({}:{gid})", user.name, user.uid);
    if geteuid() == user.uid {
        // A successor, or a service manager did it.
        return Ok(words);
    }
    if !geteuid().is_root() {
        return Err(format!(
            "privileges.user: only root can become {name}: start as root, or take the key out and let the service manager set the user"
        ));
    }
    let cannot = |what: &str, error: nix::Error| {
        format!("privileges.user: cannot {what} of {name}: {error}: CAP_SETUID and CAP_SETGID are needed")
    };
    match CString::new(user.name) {
        Ok(name) if group.is_none() => initgroups(&name, gid).map_err(|e| cannot("take the groups", e))?,
        _ => setgroups(&[gid]).map_err(|e| cannot("take the groups", e))?,
    }
    setgid(gid).map_err(|e| cannot("take the group", e))?;
    setuid(user.uid).map_err(|e| cannot("take the number", e))?;
    if !user.uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
        return Err(
            "privileges.user: root could be had back: this kernel or container does not keep users apart".to_owned()
        );
    }
    Ok(words)
}

struct Found {
    name: String,
    uid: Uid,
    gid: Gid,
}

fn find_user(name: &str) -> Result<Found, String> {
    let unknown =
        || format!("privileges.user: there is no user {name}: make it (`useradd --system {name}`), or name another");
    let found = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    match (found, name.parse()) {
        (Ok(Some(user)), _) => Ok(Found { name: user.name, uid: user.uid, gid: user.gid }),
        // A number need not have a name.
        (Ok(None), Ok(number)) => {
            Ok(Found { name: name.to_owned(), uid: Uid::from_raw(number), gid: Gid::from_raw(number) })
        }
        (Ok(None), Err(_)) => Err(unknown()),
        (Err(error), _) => Err(format!("privileges.user: cannot look up {name}: {error}")),
    }
}

fn find_group(name: &str) -> Result<Gid, String> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(format!(
            "privileges.group: there is no group {name}: make it (`groupadd --system {name}`), or name another"
        )),
        Err(error) => Err(format!("privileges.group: cannot look up {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_there_is_named() {
        let refused = become_user("no-such-user", None).unwrap_err();
        assert!(refused.contains("useradd --system no-such-user"), "{refused}");
        assert!(find_group("no-such-group").unwrap_err().contains("groupadd"));
        assert_eq!(find_user("root").unwrap().uid, Uid::from_raw(0));
        assert_eq!(find_user("4000000000").unwrap().gid, Gid::from_raw(4_000_000_000));
    }
}
