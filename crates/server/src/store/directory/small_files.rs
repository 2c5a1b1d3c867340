//! The small files of a directory, which are replaced as a whole.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::{Directory, FILE, NEXT};

impl Directory {
    /// Reads a small file of the directory whole.
    pub(in crate::store) fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        read_file(&self.place.load().root, name)
    }

    /// Inode and size of a small file of the directory; 0 and 0 if it does not exist.
    pub(in crate::store) fn state_of(&self, name: &str) -> io::Result<(u64, u64)> {
        match statat(&self.place.load().root, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok((stat.st_ino, stat.st_size as u64)),
            Err(Errno::NOENT) => Ok((0, 0)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Replaces a small file of the directory.
    pub(in crate::store) fn write_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        write_file(&self.place.load().root, name, content)
    }

    /// Removes a small file of the directory, on the disk too.
    pub(in crate::store) fn remove_file(&self, name: &str) -> io::Result<()> {
        let place = self.place.load();
        unlinkat(&place.root, name, AtFlags::empty())?;
        Ok(fsync(&place.root)?)
    }

    /// Opens a small file of the directory.
    pub(in crate::store) fn open_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(&self.place.load().root, name, flags, Mode::empty())?.into())
    }

    /// Opens a file of the directory for appending lines.
    pub(in crate::store) fn append(&self, name: &str) -> io::Result<File> {
        let place = self.place.load();
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(&place.root, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                let file = openat(&place.root, name, flags | OFlags::CREATE, FILE)?;
                fsync(&place.root)?;
                Ok(file.into())
            }
            opened => Ok(opened?.into()),
        }
    }
}

pub(super) fn read_file(root: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    let file = openat(root, name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
    let mut content = Vec::new();
    File::from(file).read_to_end(&mut content)?;
    Ok(content)
}

pub(super) fn write_file(root: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    let next = format!("{name}{NEXT}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(openat(root, &next, flags, FILE)?);
    let written = file.write_all(content).and_then(|()| file.sync_all());
    let renamed = written.and_then(|()| Ok(renameat(root, &next, root, name)?));
    if renamed.is_err() {
        // A full disk has no room for a part of it.
        let _ = unlinkat(root, &next, AtFlags::empty());
    }
    renamed?;
    Ok(fsync(root)?)
}
