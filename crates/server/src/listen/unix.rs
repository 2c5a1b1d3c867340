//! Unix stream sockets. A stale socket file is replaced; a socket on which a process listens is not.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use rustix::io::Errno;

use super::Mode;

/// The reason why a Unix socket cannot be used.
#[derive(Debug)]
pub(super) struct SocketError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    /// Another process listens on it.
    InUse,
    /// The path is a file of another kind.
    NotASocket,
    /// It may be in use: connecting to it failed.
    Unclear(io::Error),
    /// The file that an earlier process left cannot be removed.
    Stale(io::Error),
    /// A call failed; the text says which.
    Call(&'static str, io::Error),
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path.display();
        match &self.why {
            Why::InUse => write!(
                f,
                "cannot listen on unix:{name}: another process does (`ss -xlp` names it): stop it, or choose another path"
            ),
            Why::NotASocket => write!(
                f,
                "cannot listen on unix:{name}: the path exists and is not a socket: remove the file, or choose another path"
            ),
            Why::Unclear(error) => write!(
                f,
                "cannot listen on unix:{name}: it exists, and connecting to it fails ({error}): remove it if no process listens on it"
            ),
            Why::Stale(error) => {
                write!(f, "cannot remove unix:{name}, left by an earlier process: {error}: remove it")
            }
            Why::Call(what, error) => {
                let remedy = match Errno::from_io_error(error) {
                    Some(Errno::NOENT) => ": create its directory first (RuntimeDirectory= in the unit does)",
                    Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ": let the server's user write to its directory",
                    _ => "",
                };
                write!(f, "cannot {what} unix:{name}: {error}{remedy}")
            }
        }
    }
}

impl SocketError {
    fn at(path: &Path) -> impl Fn(Why) -> Self {
        move |why| SocketError { path: path.to_owned(), why }
    }
}

/// Binds and listens.
///
/// # Errors
/// The path is taken, or a call fails.
pub(super) fn bind(path: &Path, mode: Mode, backlog: i32) -> Result<UnixListener, SocketError> {
    let failed = SocketError::at(path);
    remove_stale(path).map_err(&failed)?;
    let cannot = |what: &'static str| move |error: io::Error| Why::Call(what, error);
    let bound = || -> Result<UnixListener, Why> {
        // The mode is set before listen(2), so that no client connects with the wrong permissions.
        let socket =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).map_err(cannot("create"))?;
        let address = socket2::SockAddr::unix(path).map_err(cannot("listen on"))?;
        socket.bind(&address).map_err(cannot("listen on"))?;
        set_mode(path, mode)?;
        socket.set_nonblocking(true).and_then(|()| socket.listen(backlog)).map_err(cannot("listen on"))?;
        Ok(std::os::fd::OwnedFd::from(socket).into())
    };
    bound().map_err(failed)
}

/// Sets the mode of an inherited socket if it differs. Ignores a missing file, because no client can connect to it.
///
/// # Errors
/// The mode cannot be set.
pub(super) fn update_mode(path: &Path, wanted: Mode) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.permissions().mode() & 0o777 != wanted.0 => {
            set_mode(path, wanted).map_err(SocketError::at(path))
        }
        _ => Ok(()),
    }
}

fn set_mode(path: &Path, Mode(mode): Mode) -> Result<(), Why> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| Why::Call("set the mode of", error))
}

/// Removes the file of a socket whose process has ended. If connecting is refused, no process listens on it.
fn remove_stale(path: &Path) -> Result<(), Why> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Why::Call("check", error)),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(Why::NotASocket),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(Why::Stale),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Why::Unclear(error)),
        Ok(_) => Err(Why::InUse),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_listens_on_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let refused = |path: &Path| bind(path, Mode(0o660), 16).unwrap_err().why;
        let first = bind(&path, Mode(0o660), 16).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(matches!(refused(&path), Why::InUse));
        drop(first);
        let _second = bind(&path, Mode(0o600), 16).expect("the stale file is replaced");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let plain = directory.path().join("plain");
        fs::write(&plain, "").unwrap();
        assert!(matches!(refused(&plain), Why::NotASocket));
        assert!(plain.exists());
        let missing = bind(&directory.path().join("missing/s"), Mode(0o660), 16).unwrap_err();
        assert!(missing.to_string().contains("create its directory first"), "{missing}");
    }
}
