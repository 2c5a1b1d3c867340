//! A file system that hangs while it is frozen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealion_testkit::server::Server;

use super::process::threads;
use super::tool;

/// A file system of its own, on a loop device, that can be frozen.
pub(crate) struct Ext4(PathBuf);

/// As long as it lives, whatever would write to the file system hangs, and no signal ends it.
pub(crate) struct Frozen<'a>(&'a Path);

impl Ext4 {
    #[track_caller]
    pub(crate) fn mount(on: &Path) -> Self {
        let image = on.with_extension("image");
        fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("the image is made");
        fs::create_dir(on).expect("a directory");
        let [image, path] = [&image, on].map(|path| path.to_str().expect("a path in UTF-8"));
        tool("mkfs.ext4", ["-q", "-F", image]);
        tool("mount", ["-o", "loop,noatime", image, path]);
        Self(on.to_owned())
    }

    #[track_caller]
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        tool("fsfreeze", ["-f", self.0.to_str().expect("a path in UTF-8")]);
        Frozen(&self.0)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(self.0).status();
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        // Lazily: the server may still have a file open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Threads of the server that wait for a disk, but for those that it has for its disks.
pub(crate) fn waits_for_disk(server: &Server) -> Vec<String> {
    // Number, name in parentheses, state: proc_pid_stat(5).
    let stats = threads(server).into_iter().filter_map(|thread| fs::read_to_string(thread.join("stat")).ok());
    stats.filter(|stat| stat.contains(") D ") && !stat.contains("(sealion-")).collect()
}
