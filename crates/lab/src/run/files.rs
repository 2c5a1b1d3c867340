//! The served files: pseudo-random bytes, the same on every machine, so that peers elsewhere can serve them too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::digest;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tempfile::NamedTempFile;

use crate::load::file_number;
use crate::splitmix::SplitMix64;

/// A directory of files of given sizes. Each file was read once, so that it is in the page cache.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    /// The directory that all servers share.
    pub(crate) directory: PathBuf,
    /// SHA-256 in hexadecimal, by size.
    pub(crate) hashes: BTreeMap<u64, String>,
}

impl Files {
    /// Makes the missing files of `sizes`, and reads all of them.
    ///
    /// # Errors
    /// Disk or memory is too small; the error says how much is needed.
    pub(crate) fn make(directory: &Path, sizes: &BTreeSet<u64>) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let missing: Vec<u64> = sizes.iter().copied().filter(|&size| !is_whole(directory, size)).collect();
        let needed: u64 = missing.iter().sum();
        let room = rustix::fs::statvfs(directory).with_context(|| format!("cannot ask {}", directory.display()))?;
        let free = room.f_bavail * room.f_frsize;
        ensure!(
            needed + SPARE <= free,
            "no room for the files: {} are needed in {}, {} are free: make room, or name another directory by --files",
            megabytes(needed + SPARE),
            directory.display(),
            megabytes(free)
        );
        let all: u64 = sizes.iter().sum();
        if let Some(available) = memory_available() {
            ensure!(
                all + SPARE <= available,
                "no room in memory: the files must stay in the page cache, which takes {}, and {} are available",
                megabytes(all + SPARE),
                megabytes(available)
            );
        }
        for size in missing {
            write(directory, size)?;
        }
        let mut hashes = BTreeMap::new();
        for &size in sizes {
            let path = directory.join(name(size));
            let hash = hash(&path).with_context(|| format!("cannot read {}", path.display()))?;
            hashes.insert(size, hash);
        }
        for &size in sizes {
            ensure!(
                is_resident(&directory.join(name(size)), size)?,
                "{} does not stay in the page cache: free memory (limits of a container count too)",
                directory.join(name(size)).display()
            );
        }
        Ok(Self { directory: directory.to_owned(), hashes })
    }
}

/// Makes the missing files among `many` files of `size` in a separate directory, and reads all of them. All have the
/// same bytes as the single file of that size.
///
/// # Errors
/// Disk or memory is too small.
pub(crate) fn make_many(directory: &Path, size: u64, many: u32) -> Result<()> {
    let directory = directory.join(name_of_many(size, many));
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut random = SplitMix64::new(size);
    let words = std::iter::repeat_with(|| random.next().to_le_bytes());
    let content: Vec<u8> = words.flatten().take(size as usize).collect();
    let mut written = false;
    for number in 0..many as usize {
        let path = directory.join(file_number(number));
        let found = fs::read(&path);
        if found.is_ok_and(|found| found == content) {
            continue;
        }
        let made = fs::write(&path, &content).and_then(|()| fs::read(&path));
        let made = made.with_context(|| format!("cannot write {}", path.display()))?;
        ensure!(made == content, "{} is not what was written to it", path.display());
        written = true;
    }
    if written {
        // Otherwise the kernel would write them back during a measurement.
        rustix::fs::sync();
    }
    Ok(())
}

/// The directory of many files of a size.
pub(crate) fn name_of_many(size: u64, many: u32) -> String {
    format!("{many}-of-{}", name(size))
}

/// A file's name: its size with the unit that divides it, e.g. `64k`.
pub(crate) fn name(size: u64) -> String {
    match size {
        0 => "0".to_owned(),
        _ if size.is_multiple_of(1 << 30) => format!("{}g", size >> 30),
        _ if size.is_multiple_of(1 << 20) => format!("{}m", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{}k", size >> 10),
        _ => size.to_string(),
    }
}

/// Formats bytes for messages.
fn megabytes(bytes: u64) -> String {
    if bytes >= 10 << 30 { format!("{} GiB", bytes >> 30) } else { format!("{} MiB", bytes.div_ceil(1 << 20)) }
}

/// Whether the file has its size and no holes: holes use no disk and, on some file systems, no memory.
fn is_whole(directory: &Path, size: u64) -> bool {
    fs::metadata(directory.join(name(size))).is_ok_and(|m| m.len() == size && m.blocks() * 512 >= size)
}

fn write(directory: &Path, size: u64) -> Result<()> {
    let path = directory.join(name(size));
    let result: std::io::Result<()> = (|| {
        // The file is temporary until it is complete: another lab may be writing the same file.
        let mut file = BufWriter::with_capacity(1 << 20, NamedTempFile::new_in(directory)?);
        let mut content = SplitMix64::new(size);
        let mut left = size;
        while left > 0 {
            let bytes = content.next().to_le_bytes();
            let take = left.min(8);
            file.write_all(&bytes[..take as usize])?;
            left -= take;
        }
        let file = file.into_inner()?;
        // Synced now, so that the kernel does not write it back during a measurement.
        file.as_file().sync_all()?;
        // Servers may run as another user.
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        file.persist(&path).map(drop).map_err(|error| error.error)
    })();
    result.with_context(|| format!("cannot write {}", path.display()))?;
    if !is_whole(directory, size) {
        bail!("{} is sparse or compressed on its file system: name another directory by --files", path.display());
    }
    Ok(())
}

fn hash(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => context.update(&buffer[..read]),
        }
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether samples of the file are in the page cache, tested by reads that do not wait (RWF_NOWAIT).
fn is_resident(path: &Path, size: u64) -> Result<bool> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut byte = [0];
    let mut offset = 0;
    while offset < size {
        let mut buffers = [std::io::IoSliceMut::new(&mut byte)];
        match preadv2(&file, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(false),
            // The file system does not support RWF_NOWAIT, such as tmpfs, which is always in memory.
            Err(_) => return Ok(file.read_at(&mut byte, offset).is_ok()),
        }
        offset += SAMPLE;
    }
    Ok(true)
}

fn memory_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Bytes of disk and memory to leave free.
const SPARE: u64 = 16 << 20;

/// Bytes between samples of the page cache.
const SAMPLE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        let names = [0, 1, 1000, 1 << 10, 64 << 10, 1536, 10 << 20, 1 << 30].map(name);
        assert_eq!(names, ["0", "1", "1000", "1k", "64k", "1536", "10m", "1g"]);
    }

    #[test]
    fn files_are_the_same_everywhere_and_mended() {
        let directory = tempfile::tempdir().expect("a directory");
        let sizes = BTreeSet::from([1000, 64 << 10]);
        let files = Files::make(directory.path(), &sizes).expect("room");
        // By another implementation of SplitMix64.
        assert_eq!(files.hashes[&1000], "418eeb259efaefd71b9c0323b587368f11abd1cc03e1a255089ea3934cc0ba5a");
        let path = directory.path().join("64k");
        let kept = fs::metadata(&path).expect("a file").ino();
        // A hole of the same size.
        let sparse = File::create(directory.path().join("1000")).expect("a file");
        sparse.set_len(1000).expect("a length");
        assert_eq!(Files::make(directory.path(), &sizes).expect("room").hashes, files.hashes);
        assert_eq!(fs::metadata(&path).expect("a file").ino(), kept, "a good file is left alone");
    }

    #[test]
    fn a_disk_that_is_too_small_is_told_before_anything_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = Files::make(directory.path(), &BTreeSet::from([1 << 50])).unwrap_err().to_string();
        assert!(error.contains("no room for the files") && error.contains("--files"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}
