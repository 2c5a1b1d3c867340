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
    /// Options of mount(8).
    options: &'static str,
}

/// As long as it lives, all uses of the disk wait.
pub(crate) struct StandStill;

/// As long as it lives, all uses of the disk fail.
pub(crate) struct Broken<'a> {
    disk: &'a Disk,
}

impl Disk {
    /// An empty one, at `mounted_on`, which must not exist; `image` is where its bytes are.
    #[track_caller]
    pub(crate) fn mount(mounted_on: &Path, image: &Path) -> Self {
        Self::with(mounted_on, image, "has_journal", "noatime")
    }

    /// The same with a feature of mke2fs(8), and options of mount(8).
    #[track_caller]
    pub(crate) fn with(mounted_on: &Path, image: &Path, feature: &str, options: &'static str) -> Self {
        fs::File::create(image).and_then(|file| file.set_len(SIZE)).expect("the image is made");
        let image_name = image.to_str().expect("a path in UTF-8");
        let loop_device = tool("losetup", ["--find", "--show", image_name]).trim().to_owned();
        tool("mkfs.ext4", ["-q", "-F", "-O", feature, &loop_device]);
        tool("dmsetup", ["create", "--noudevsync", NAME, "--table", &table(&loop_device)]);
        tool("dmsetup", ["mknodes", NAME]);
        let disk = Self { mounted_on: mounted_on.to_owned(), image: image.to_owned(), loop_device, options };
        disk.attach();
        disk
    }

    #[track_caller]
    fn attach(&self) {
        fs::create_dir_all(&self.mounted_on).expect("a directory");
        let target = self.mounted_on.to_str().expect("a path in UTF-8");
        tool("busybox", ["mount", "-t", "ext4", "-o", self.options, &format!("/dev/mapper/{NAME}"), target]);
    }

    #[track_caller]
    fn detach(&self) {
        tool("busybox", ["umount".as_ref(), self.mounted_on.as_os_str()]);
    }

    /// Unmounts and mounts again: no file may be open.
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
        // Unwritten data would be waited for.
        rustix::fs::sync();
        tool("dmsetup", ["suspend", "--noudevsync", "--nolockfs", "--noflush", NAME]);
        StandStill
    }

    /// Has it lose all that is written from now on, as if it were written.
    #[track_caller]
    pub(crate) fn lose_writes(&self) {
        // Up for no second, down for 60 of 60.
        exchange_table(&format!("0 {} flakey {} 0 0 60 1 drop_writes", SIZE / 512, self.loop_device));
    }

    /// The disk as a machine finds it that starts again after [`Self::lose_writes`]. No file may be open.
    #[track_caller]
    pub(crate) fn start_again(&self) {
        self.detach();
        drop_caches();
        exchange_table(&table(&self.loop_device));
        // ext4 replays its journal.
        self.attach();
    }

    /// Makes it read-only, although files are open for writing, as ext4 does after an error.
    #[track_caller]
    pub(crate) fn make_read_only(&self) {
        fs::write("/proc/sysrq-trigger", "u").expect("a guest's root may");
        super::wait_until("the file system is read-only", || {
            let mounts = fs::read_to_string("/proc/mounts").expect("a table of mounts");
            let is_own = |line: &&str| line.contains(&format!("/dev/mapper/{NAME} "));
            mounts.lines().find(is_own).is_some_and(|line| line.contains(" ro,"))
        });
    }

    #[track_caller]
    pub(crate) fn make_writable(&self) {
        tool("busybox", ["mount".as_ref(), "-o".as_ref(), "remount,rw".as_ref(), self.mounted_on.as_os_str()]);
    }

    /// Has it fail every read and write from now on.
    #[track_caller]
    pub(crate) fn break_it(&self) -> Broken<'_> {
        rustix::fs::sync();
        exchange_table(&format!("0 {} error", SIZE / 512));
        Broken { disk: self }
    }
}

/// Has the next read of any file be one of its disk.
#[track_caller]
pub(crate) fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "3").expect("a guest's root may");
}

/// The table of the mounted device: what lies behind it.
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
