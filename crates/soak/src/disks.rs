//! Disks that are full, and disks that hang.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::undo::Undo;

/// A file system, mounted until dropped.
pub(super) struct Disk {
    mounted_on: PathBuf,
    _mount: Undo,
}

/// Until it is dropped, writes to the disk wait.
pub(super) struct Frozen {
    _thaw: Undo,
}

impl Disk {
    /// A file system in memory with room for `size` (mount(8)).
    pub(super) fn in_memory(mounted_on: &Path, size: &str) -> io::Result<Self> {
        Self::mount("mkdir \"$1\"; mount -t tmpfs -o \"size=$2\" tmpfs \"$1\"", mounted_on, size.as_ref())
    }

    /// ext4 in a file `image` of 64 MiB.
    pub(super) fn in_file(mounted_on: &Path, image: &Path) -> io::Result<Self> {
        let make =
            "mkdir \"$1\"; truncate -s 64M \"$2\"; mkfs.ext4 -q -F \"$2\"; mount -t ext4 -o loop,noatime \"$2\" \"$1\"";
        Self::mount(make, mounted_on, image.as_os_str())
    }

    fn mount(make: &str, mounted_on: &Path, from: &OsStr) -> io::Result<Self> {
        // Lazily: a server that hangs has files open there.
        let mount = Undo::new(make, "umount -l \"$1\"", &[mounted_on.as_os_str(), from])?;
        Ok(Self { mounted_on: mounted_on.to_owned(), _mount: mount })
    }

    /// Has every write wait (FIFREEZE, fsfreeze(8)).
    pub(super) fn freeze(&self) -> io::Result<Frozen> {
        let thaw = Undo::new("fsfreeze --freeze \"$1\"", "fsfreeze --unfreeze \"$1\"", &[self.mounted_on.as_os_str()])?;
        Ok(Frozen { _thaw: thaw })
    }

    /// Bytes that are in use.
    pub(super) fn used(&self) -> io::Result<u64> {
        let room = rustix::fs::statvfs(&self.mounted_on)?;
        Ok((room.f_blocks - room.f_bfree) * room.f_frsize)
    }
}
