//! Unix stream sockets. A stale socket file is replaced; one that a process listens on is not.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::{fs, io};

use rustix::io::Errno;

use super::Mode;

/// Binds and listens.
///
/// # Errors
/// A line with the remedy.
pub(super) fn bind(path: &Path, mode: Mode, backlog: i32) -> Result<UnixListener, String> {
    remove_stale(path)?;
    let cannot =
        |what: &str, error: &io::Error| format!("cannot {what} unix:{}: {error}{}", path.display(), remedy(error));
    // The mode is set before listen(2), so that no client connects with the wrong permissions.
    let socket =
        socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).map_err(|e| cannot("create", &e))?;
    let address = socket2::SockAddr::unix(path).map_err(|e| cannot("listen on", &e))?;
    socket.bind(&address).map_err(|e| cannot("listen on", &e))?;
    set_mode(path, mode)?;
    socket.set_nonblocking(true).and_then(|()| socket.listen(backlog)).map_err(|e| cannot("listen on", &e))?;
    Ok(std::os::fd::OwnedFd::from(socket).into())
}

/// Sets the mode of an inherited socket if it differs. Ignores a missing file: no client can connect to it.
///
/// # Errors
/// A line with the remedy.
pub(super) fn update_mode(path: &Path, wanted: Mode) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.permissions().mode() & 0o777 != wanted.0 => set_mode(path, wanted),
        _ => Ok(()),
    }
}

fn set_mode(path: &Path, Mode(mode): Mode) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|e| format!("cannot set the mode of unix:{}: {e}{}", path.display(), remedy(&e)))
}

fn remedy(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => ": create its directory first (RuntimeDirectory= in the unit does)",
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ": let the server's user write to its directory",
        _ => "",
    }
}

/// Removes the file of a socket whose process has ended. If connecting is refused, no process listens on it.
fn remove_stale(path: &Path) -> Result<(), String> {
    let name = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("cannot check unix:{name}: {error}")),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(format!(
                "cannot listen on unix:{name}: the path exists and is not a socket: remove the file, or choose another path"
            ));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|e| format!("cannot remove unix:{name}, left by an earlier process: {e}: remove it")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!(
            "cannot listen on unix:{name}: it exists, and connecting to it fails ({error}): remove it if no process listens on it"
        )),
        Ok(_) => Err(format!(
            "cannot listen on unix:{name}: another process does (`ss -xlp` names it): stop it, or choose another path"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_listens_on_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let first = bind(&path, Mode(0o660), 16).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(bind(&path, Mode(0o660), 16).unwrap_err().contains("another process does"));
        drop(first);
        let _second = bind(&path, Mode(0o600), 16).expect("the stale file is replaced");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let plain = directory.path().join("plain");
        fs::write(&plain, "").unwrap();
        assert!(bind(&plain, Mode(0o660), 16).unwrap_err().contains("not a socket"));
        assert!(plain.exists());
        assert!(bind(&directory.path().join("missing/s"), Mode(0o660), 16).unwrap_err().contains("directory first"));
    }
}
