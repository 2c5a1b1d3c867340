//! Rotation of a log file by the server: `access.log` becomes `access.log-20261122T112000Z`, and
//! `access.log-20261122T112000Z.gz` at the next rotation.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::values::{Bounded, Mutex, Size, Timeout};

/// Rotation of the file by the server. Rotated files are named after the time of their rotation. The next rotation
/// compresses them with gzip, so that a process that still drains loses no line. Without this table, use logrotate and
/// SIGUSR1.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RotateConfig {
    /// Maximum size of the file, unless the lines of one `flush_after` alone exceed it.
    pub size: Option<Size>,
    /// Age at which the file is rotated, before the next line.
    pub age: Option<Timeout>,
    /// Number of rotated files to keep; older files are removed.
    #[default(Bounded::new(14).expect("it is within the bounds"))]
    pub keep: Bounded<1, 10_000>,
}

/// Decides when a file is rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rotation {
    pub(super) size: u64,
    pub(super) age: Duration,
    pub(super) keep: usize,
}

impl From<&RotateConfig> for Rotation {
    fn from(config: &RotateConfig) -> Self {
        Rotation {
            size: config.size.map_or(u64::MAX, |size| size.0),
            age: config.age.map_or(Duration::MAX, Timeout::duration),
            keep: config.keep.usize(),
        }
    }
}

impl Rotation {
    /// Whether a file of this length, created at `begun`, must be rotated before `more` bytes are written.
    pub(super) fn is_due(self, len: u64, more: u64, begun: SystemTime, now: SystemTime) -> bool {
        let age = now.duration_since(begun).unwrap_or_default();
        len > 0 && (len.saturating_add(more) > self.size || age >= self.age)
    }

    /// Renames the file at `path`, if it is `open`: another process may have rotated it. Then a separate thread
    /// compresses and removes older files.
    pub(super) fn rotate(self, path: &Path, open: &File, now: SystemTime) -> io::Result<()> {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        if fs::metadata(path).ok().map(identity) != Some(identity(open.metadata()?)) {
            return Ok(());
        }
        let rotated = free_name(path, now);
        fs::rename(path, &rotated)?;
        let path = path.to_owned();
        let tidy = move || {
            if let Err(error) = self.tidy(&path) {
                tracing::warn!("rotated files of {} cannot be compressed or removed: {error}", path.display());
            }
        };
        std::thread::Builder::new().name("log-rotation".to_owned()).spawn(tidy).map(drop)
    }

    /// Compresses all rotated files except the newest, and removes files beyond the number to keep.
    fn tidy(self, path: &Path) -> io::Result<()> {
        // A second rotation may occur while a long file is being compressed.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock();
        let mut rotated = rotated(path)?;
        let surplus = rotated.len().saturating_sub(self.keep);
        for old in rotated.drain(..surplus) {
            fs::remove_file(old)?;
        }
        rotated.pop();
        for file in rotated.iter().filter(|file| !is_compressed(file)) {
            compress(file)?;
        }
        Ok(())
    }
}

/// The rotated files of a log, the oldest first.
fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (directory, name) = split(path);
    let prefix = [name.as_encoded_bytes(), b"-"].concat();
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let is_rotated = name.as_encoded_bytes().strip_prefix(&*prefix).is_some_and(|rest| {
            // 20261122T112000Z, perhaps with a number, and `.gz`; not `access.log-old`.
            rest.len() >= 16 && rest[..8].iter().all(u8::is_ascii_digit) && rest[8] == b'T' && !rest.ends_with(b".new")
        });
        if is_rotated {
            files.push(directory.join(name));
        }
    }
    files.sort_by_key(|file| if is_compressed(file) { file.with_extension("") } else { file.clone() });
    Ok(files)
}

fn is_compressed(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == GZ)
}

fn split(path: &Path) -> (&Path, OsString) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (directory, path.file_name().unwrap_or_default().to_owned())
}

fn free_name(path: &Path, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
    let named = |end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("-{time}{end}"));
        PathBuf::from(name)
    };
    let is_free = |name: &PathBuf| !name.exists() && !name.with_added_extension(GZ).exists();
    let numbered = (1..10_000).map(|number| named(&format!(".{number:04}")));
    std::iter::once(named("")).chain(numbered).find(is_free).unwrap_or_else(|| named(""))
}

/// Replaces a file by its compressed form, with the same permissions. After a crash the file exists, or both.
fn compress(file: &Path) -> io::Result<()> {
    let target = file.with_added_extension(GZ);
    let new = target.with_added_extension("new");
    let mut source = File::open(file)?;
    let mode = source.metadata()?.permissions().mode() & 0o777;
    let out = File::options().write(true).create(true).truncate(true).mode(mode).open(&new)?;
    let mut encoder = GzEncoder::new(out, Compression::default());
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(new, target)?;
    fs::remove_file(file)
}

const GZ: &str = "gz";

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_is_rotated_by_size_or_age_and_never_empty() {
        let rotation = Rotation { size: 100, age: Duration::from_secs(60), keep: 1 };
        let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        for (len, more, after, due) in
            [(0, 500, 90, false), (50, 50, 0, false), (50, 51, 0, true), (1, 1, 59, false), (1, 1, 60, true)]
        {
            assert_eq!(rotation.is_due(len, more, begun, begun + Duration::from_secs(after)), due, "{len} {more}");
        }
        assert!(!rotation.is_due(1, 1, begun, begun - Duration::from_secs(5)), "the clock was set back");
    }

    #[test]
    fn older_files_are_compressed_and_the_oldest_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let write = |name: &str| fs::write(directory.path().join(name), name).unwrap();
        for name in [
            "access.log",
            "access.log-20260101T000000Z.gz",
            "access.log-20260102T000000Z",
            "access.log-20260103T000000Z",
            "access.log-20260103T000000Z.0001",
            "access.log-old",
            "other.log-20260101T000000Z",
        ] {
            write(name);
        }
        Rotation { size: 1, age: Duration::MAX, keep: 3 }.tidy(&path).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let kept = [
            "access.log",
            "access.log-20260102T000000Z.gz",
            "access.log-20260103T000000Z.0001",
            "access.log-20260103T000000Z.gz",
            "access.log-old",
            "other.log-20260101T000000Z",
        ];
        assert_eq!(names, kept);
        let mut text = String::new();
        let packed = File::open(directory.path().join("access.log-20260102T000000Z.gz")).unwrap();
        flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "access.log-20260102T000000Z");
    }

    #[test]
    fn names_of_one_second_differ_and_a_file_of_another_process_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(free_name(&path, now), directory.path().join("log-20231114T221320Z"));
        fs::write(directory.path().join("log-20231114T221320Z.gz"), "").unwrap();
        assert_eq!(free_name(&path, now), directory.path().join("log-20231114T221320Z.0001"));
        fs::write(&path, "old").unwrap();
        let open = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "new").unwrap();
        Rotation { size: 1, age: Duration::MAX, keep: 3 }.rotate(&path, &open, now).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
