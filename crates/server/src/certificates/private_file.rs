//! Files that only their owner may read, written as a whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Makes a directory, with those above it, if it is not there. What was made, the outermost first.
pub(crate) fn directory(path: &Path) -> io::Result<Vec<PathBuf>> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let mut made: Vec<PathBuf> = path.ancestors().take_while(missing).map(Path::to_owned).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    made.reverse();
    Ok(made)
}

/// Writes a file that may be there already.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, |beside| fs::rename(beside, path))
}

/// Writes a file that must not be there.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, |beside| fs::hard_link(beside, path).and_then(|()| fs::remove_file(beside)))
}

/// Writes beside the file and moves it there, so that a crash leaves no half of it.
fn put(path: &Path, bytes: &[u8], place: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let beside = path.with_extension(format!("new.{}", std::process::id()));
    let written =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
    let placed = written.and_then(|()| place(&beside));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    placed?;
    // The name too must outlive a crash.
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
