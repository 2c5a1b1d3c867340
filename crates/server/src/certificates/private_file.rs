//! Files readable only by their owner, written atomically.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Creates a directory and its missing parents with mode 0700. Returns the directories created, outermost first.
pub(crate) fn directory(path: &Path) -> io::Result<Vec<PathBuf>> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let mut made: Vec<PathBuf> = path.ancestors().take_while(missing).map(Path::to_owned).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    made.reverse();
    Ok(made)
}

/// Writes a file, replacing an existing one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, |beside| fs::rename(beside, path))
}

/// Writes a file that must not exist yet.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, |beside| fs::hard_link(beside, path).and_then(|()| fs::remove_file(beside)))
}

/// Writes a temporary file beside the target and puts it in place, so that a crash leaves no partial file.
fn put(path: &Path, bytes: &[u8], place: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let beside = path.with_extension(format!("new.{}", std::process::id()));
    // Left by a process that was killed; in a container a process has the same id each time.
    let _ = fs::remove_file(&beside);
    // O_EXCL rejects a link, and a file with a wider mode that another user keeps open.
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| place(&beside));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    placed?;
    // Makes the directory entry durable too.
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_lies_at_the_temporary_name_is_neither_followed_nor_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (path, victim) = (directory.path().join("key.pem"), directory.path().join("victim"));
        let beside = path.with_extension(format!("new.{}", std::process::id()));
        fs::write(&victim, "theirs").unwrap();
        symlink(&victim, &beside).unwrap();
        write(&path, b"secret").unwrap();
        assert_eq!((fs::read(&victim).unwrap(), fs::read(&path).unwrap()), (b"theirs".to_vec(), b"secret".to_vec()));
        // A file that anyone may read.
        fs::write(&beside, "left").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o666)).unwrap();
        let mut kept = File::open(&beside).unwrap();
        write(&path, b"another").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut read = Vec::new();
        io::Read::read_to_end(&mut kept, &mut read).unwrap();
        assert_eq!(read, b"left");
        assert!(fs::symlink_metadata(&beside).is_err());
        assert_eq!(write_new(&path, b"x").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
