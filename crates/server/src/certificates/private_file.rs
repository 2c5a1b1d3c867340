//! Files readable by their owner alone, written atomically.

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
    // Make the directory entry durable too.
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
