//! Session ticket keys in a directory that a fleet shares.
//!
//! A key is a file `*.key` of 32 random bytes. The last key by name seals tickets, and all keys open tickets. `sealion
//! ticket-key` names keys by time, so the newest key is the last on every machine. A key named for a future time only
//! opens tickets until then, so that it can reach every server before it seals the first ticket.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use sealion_tls::{TicketKeys, TicketSecret};

use super::pair::{Stamp, stamp};
use super::private_file;
use crate::values::Mutex;

const EXTENSION: &str = "key";

/// A watched directory and its keys in use.
#[derive(Debug)]
pub(super) struct TicketDirectory {
    path: PathBuf,
    pub(super) keys: Arc<TicketKeys>,
    seen: Mutex<Seen>,
}

#[derive(Debug, PartialEq)]
struct Seen {
    files: Vec<(PathBuf, Option<Stamp>)>,
    sealing: Option<PathBuf>,
}

/// The keys in a directory at one time.
#[derive(Debug)]
struct Keys {
    /// The keys in name order.
    all: Vec<(PathBuf, TicketSecret)>,
    /// Index of the key that seals.
    sealing: usize,
}

impl Keys {
    fn read(directory: &Path, now: SystemTime) -> Result<Self, String> {
        let mut all = Vec::new();
        for path in names(directory).map_err(|e| format!("{}: cannot be read: {e}", directory.display()))? {
            let bytes = fs::read(&path).map(zeroize::Zeroizing::new).map_err(|e| format!("{}: {e}", path.display()))?;
            let secret = TicketSecret::from_bytes(&bytes).ok_or_else(|| {
                format!(
                    "{}: has {} bytes, but a key has {}: make it with `sealion ticket-key {}`",
                    path.display(),
                    bytes.len(),
                    TicketSecret::LEN,
                    directory.display()
                )
            })?;
            all.push((path, secret));
        }
        match sealing(&all, now) {
            Some(sealing) => Ok(Self { all, sealing }),
            None => {
                Err(format!("{}: no key that seals now: make one with `sealion ticket-key {0}`", directory.display()))
            }
        }
    }

    fn sealing(&self) -> &TicketSecret {
        &self.all[self.sealing].1
    }

    fn others(&self) -> Vec<TicketSecret> {
        let others = self.all.iter().enumerate().filter(|(n, _)| *n != self.sealing);
        others.map(|(_, (_, secret))| secret.clone()).collect()
    }
}

/// The last key by name that is not named for a future time.
fn sealing(all: &[(PathBuf, TicketSecret)], now: SystemTime) -> Option<usize> {
    all.iter().rposition(|(path, _)| time_in(path).is_none_or(|time| time <= now))
}

/// Key files, in name order.
fn names(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The time in a file name such as `2026-11-21T14:30:00Z.key`.
fn time_in(path: &Path) -> Option<SystemTime> {
    humantime::parse_rfc3339(path.file_stem()?.to_str()?).ok()
}

impl TicketDirectory {
    /// # Errors
    /// The directory or a key file cannot be used; the message names it and the remedy.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let now = SystemTime::now();
        let seen = Seen::read(path, now);
        let keys = Keys::read(path, now)?;
        let built = TicketKeys::shared(keys.sealing(), &keys.others());
        Ok(Self { path: path.to_owned(), keys: Arc::new(built), seen: Mutex::new(seen) })
    }

    /// Warnings for the operator.
    pub(super) fn notes(&self) -> Vec<String> {
        let files = names(&self.path).unwrap_or_default();
        let open = files.iter().filter(|path| fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 != 0));
        open.map(|path| {
            format!(
                "{}: key, and thereby sessions, readable by every user of this machine: `chmod o= {0}`",
                path.display()
            )
        })
        .collect()
    }

    /// Reloads changed keys, and switches to a key whose time has come.
    pub(super) fn poll(&self) {
        let now = SystemTime::now();
        let found = Seen::read(&self.path, now);
        let mut seen = self.seen.lock();
        if *seen == found {
            return;
        }
        match Keys::read(&self.path, now) {
            Ok(keys) => {
                self.keys.replace(keys.sealing(), &keys.others());
                let (sealing, all) = (&keys.all[keys.sealing].0, keys.all.len());
                tracing::info!(
                    "session tickets: sealed with {} from now on, opened with {all} keys",
                    sealing.display()
                );
            }
            Err(error) => tracing::error!("session tickets: {error}. The previous keys stay in use"),
        }
        *seen = found;
    }
}

impl Seen {
    fn read(directory: &Path, now: SystemTime) -> Self {
        let files: Vec<_> =
            names(directory).unwrap_or_default().into_iter().map(|path| (stamp(&path).ok(), path)).collect();
        let sealing = files.iter().rfind(|(_, path)| time_in(path).is_none_or(|time| time <= now));
        Self {
            sealing: sealing.map(|(_, path)| path.clone()),
            files: files.into_iter().map(|(stamp, path)| (path, stamp)).collect(),
        }
    }
}

/// Writes a key file atomically with mode 0600. The key begins to seal tickets `after` this time. With `keep`, removes
/// all keys except the newest `keep`.
///
/// # Errors
/// The directory or the key cannot be written.
pub(crate) fn make_ticket_key(directory: &Path, after: Duration, keep: Option<u16>) -> Result<PathBuf, String> {
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    private_file::directory(directory).map_err(|e| failed(directory, e))?;
    let secret = TicketSecret::generate().map_err(|e| e.to_string())?;
    let begins = humantime::format_rfc3339_seconds(SystemTime::now() + after).to_string();
    let path = directory.join(format!("{begins}.{EXTENSION}"));
    private_file::write_new(&path, secret.bytes()).map_err(|e| failed(&path, e))?;
    if let Some(keep) = keep {
        let all = names(directory).map_err(|e| failed(directory, e))?;
        for old in &all[..all.len().saturating_sub(keep.into())] {
            fs::remove_file(old).map_err(|e| failed(old, e))?;
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn make(directory: &Path, after: Duration, keep: Option<u16>) {
        make_ticket_key(directory, after, keep).unwrap();
    }

    #[test]
    fn the_last_key_whose_time_has_come_seals() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("keys");
        let now = SystemTime::now();
        assert!(TicketDirectory::open(&directory).unwrap_err().contains("cannot be read"));
        make(&directory, Duration::from_secs(3600), None);
        assert!(TicketDirectory::open(&directory).unwrap_err().contains("sealion ticket-key"));
        make(&directory, Duration::ZERO, None);
        let keys = Keys::read(&directory, now + Duration::from_secs(2)).unwrap();
        assert_eq!((keys.sealing, keys.others().len()), (0, 1));
        assert_eq!(Keys::read(&directory, now + Duration::from_secs(3700)).unwrap().sealing, 1);
        for path in names(&directory).unwrap() {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        make(&directory, Duration::from_secs(7200), Some(2));
        let left = names(&directory).unwrap();
        assert_eq!(left.len(), 2);
        assert!(left.iter().all(|path| time_in(path).unwrap() > now + Duration::from_secs(3000)));
    }

    #[test]
    fn a_file_that_is_no_key_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.key"), [0; 48]).unwrap();
        let error = TicketDirectory::open(directory.path()).unwrap_err();
        assert!(error.contains("a.key: has 48 bytes"), "{error}");
    }
}
