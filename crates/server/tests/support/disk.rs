//! A disk that can be made to stand still, and to fail: a file, a loop device over it, the device mapper over that, ext4. For guests
//! alone.

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use super::tool;

/// Mounted until dropped.
pub(crate) struct Disk {
    mounted_on: PathBuf,
    image: PathBuf,
    loop_device: String,
}

/// As long as it lives, whoever needs the disk waits.
pub(crate) struct StandStill;

/// As long as it lives, whoever needs the disk fails.
pub(crate) struct Broken<'a> {
    disk: &'a Disk,
}

impl Disk {
    /// An empty one, at `mounted_on`, which must not exist; `image` is where its bytes are.
    #[track_caller]
    pub(crate) fn mount(mounted_on: &Path, image: &Path) -> Self {
        fs::File::create(image).and_then(|file| file.set_len(SIZE)).expect("the image is made");
        let image_name = image.to_str().expect("a path in UTF-8");
        let loop_device = tool("losetup", ["--find", "--show", image_name]).trim().to_owned();
        tool("mkfs.ext4", ["-q", "-F", &loop_device]);
        tool("dmsetup", ["create", "--noudevsync", NAME, "--table", &table(&loop_device)]);
        tool("dmsetup", ["mknodes", NAME]);
        let disk = Self { mounted_on: mounted_on.to_owned(), image: image.to_owned(), loop_device };
        disk.attach();
        disk
    }

    #[track_caller]
    fn attach(&self) {
        fs::create_dir_all(&self.mounted_on).expect("a directory");
        let target = self.mounted_on.to_str().expect("a path in UTF-8");
        tool("busybox", ["mount", "-t", "ext4", "-o", "noatime", &format!("/dev/mapper/{NAME}"), target]);
    }

    #[track_caller]
    fn detach(&self) {
        tool("busybox", ["umount".as_ref(), self.mounted_on.as_os_str()]);
    }

    /// Unmounts and mounts again: nobody may have a file open.
    #[track_caller]
    pub(crate) fn remount(&self) {
        self.detach();
        self.attach();
    }

    #[track_caller]
    fn remove(&self) {
        self.detach();
        tool("dmsetup", ["remove", "--noudevsync", "--retry", NAME]);
        tool("losetup", ["--detach", &self.loop_device]);
        fs::remove_file(&self.image).expect("the image is there");
    }

    /// Stops the disk.
    #[track_caller]
    pub(crate) fn stand_still(&self) -> StandStill {
        // Whatever has not been written would be waited for.
        rustix::fs::sync();
        tool("dmsetup", ["suspend", "--noudevsync", "--nolockfs", "--noflush", NAME]);
        StandStill
    }

    /// Has it fail every read and write from now on.
    #[track_caller]
    pub(crate) fn break_it(&self) -> Broken<'_> {
        rustix::fs::sync();
        exchange_table(&format!("0 {} error", SIZE / 512));
        Broken { disk: self }
    }
}

/// What lies behind the device that is mounted.
fn table(loop_device: &str) -> String {
    format!("0 {} linear {loop_device} 0", SIZE / 512)
}

#[track_caller]
fn exchange_table(table: &str) {
    tool("dmsetup", ["load", NAME, "--table", table]);
    tool("dmsetup", ["resume", "--noudevsync", "--nolockfs", "--noflush", NAME]);
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        exchange_table(&table(&self.disk.loop_device));
    }
}

impl Drop for StandStill {
    fn drop(&mut self) {
        tool("dmsetup", ["resume", "--noudevsync", NAME]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic would hide the first.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| self.remove()));
        } else {
            self.remove();
        }
    }
}

const NAME: &str = "slow";

/// In bytes; ext4 keeps a part for itself.
const SIZE: u64 = 64 << 20;
