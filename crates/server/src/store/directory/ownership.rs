//! Ownership of a directory: one process writes, by flock(2); the others read.

use std::fs::File;
use std::io;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, flock, openat, syncfs, unlinkat};
use rustix::io::Errno;

use super::{CLEAN, Directory, TEMPORARY, make_directory, name};

/// The directory, while it belongs to this process: others only read.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Owned<'a>(pub(in crate::store) &'a Directory);

impl Directory {
    /// Becomes the owner, unless another process is. Then removes the half-written files of the owner before.
    pub(in crate::store) fn try_own(&self) -> io::Result<bool> {
        if self.is_owner() {
            return Ok(true);
        }
        match flock(&self.place.load().lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        // The directory may still be being emptied.
        make_directory(&self.place.load().root, TEMPORARY)?;
        let temporary = self.directory(TEMPORARY)?;
        // A directory that begins again has files that this process is writing. A process before may have had the same number.
        let own = self.has_owned.swap(true, Ordering::AcqRel).then(|| format!("{}-", std::process::id()));
        let is_own = |name: &[u8]| own.as_ref().is_some_and(|own| name.starts_with(own.as_bytes()));
        for entry in Dir::read_from(&temporary)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && !is_own(name) {
                let _ = unlinkat(&temporary, entry.file_name(), AtFlags::empty());
            }
        }
        // After a loss of power it would vouch for objects that are stored from now on.
        match self.remove_file(CLEAN) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.is_owner.store(true, Ordering::Release);
        self.is_newly_owned.store(true, Ordering::Release);
        Ok(true)
    }

    pub(in crate::store) fn is_owner(&self) -> bool {
        self.is_owner.load(Ordering::Acquire)
    }

    /// The operations that only the owner may do. `None`: another process is the owner.
    pub(in crate::store) fn owned(&self) -> Option<Owned<'_>> {
        self.is_owner().then_some(Owned(self))
    }

    /// Keeps the directory from being left to another process, for as long as the guard lives. `None`: this process is not the owner.
    pub(in crate::store) fn keep(&self) -> Option<MutexGuard<'_, ()>> {
        let kept = self.kept.lock();
        self.is_owner().then_some(kept)
    }

    /// Whether this process has become the owner since the last call, at the place where the path leads now.
    pub(in crate::store) fn take_owned(&self) -> bool {
        self.is_newly_owned.swap(false, Ordering::AcqRel)
    }

    /// Leaves the directory to another process. `is_clean`: everything that was written is to reach the disk first.
    pub(in crate::store) fn disown(&self, is_clean: bool) -> io::Result<()> {
        let _nobody_writes = self.kept.lock();
        if !self.is_owner.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        // Without its identifying file, a directory that was emptied a moment ago would look foreign to the next start.
        self.restore_number(&self.place.load().root)?;
        if is_clean {
            syncfs(&self.place.load().root)?;
            self.write_file(CLEAN, self.boot().to_string().as_bytes())?;
        }
        Ok(flock(&self.place.load().lock, FlockOperation::Unlock)?)
    }
}

impl Owned<'_> {
    /// Opens the file of an object for writing behind its end.
    pub(in crate::store) fn open_to_append(&self, hash: u128) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(&self.0.place.load().root, name(hash), flags, Mode::empty())?.into())
    }

    /// Removes the object with this hash, if there is one.
    pub(in crate::store) fn remove(&self, hash: u128) -> io::Result<()> {
        match unlinkat(&self.0.place.load().root, name(hash), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}
