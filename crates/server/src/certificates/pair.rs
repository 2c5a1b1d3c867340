//! A certificate loaded from files: checked, watched, replaced when the files change.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, fs, io};

use sealion_tls::{Certificate, CertificateFacts, ConfigError, SiteCertificates};

use crate::values::Mutex;

/// Warn this long before a certificate expires. INHERITED: Let's Encrypt's advice for certificates of 90 days.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// Files of a certificate; chain and key may share one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PairFiles {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl fmt::Display for PairFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cert.display().fmt(f)
    }
}

/// Fields of stat(2) that change when a file is written, replaced, or reached through another link.
pub(super) type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// The stamp of the file that `path` resolves to.
pub(super) fn stamp(path: &Path) -> io::Result<Stamp> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()))
}

impl PairFiles {
    fn stamps(&self) -> [Option<Stamp>; 2] {
        [stamp(&self.cert).ok(), stamp(&self.key).ok()]
    }

    pub(super) fn load(&self) -> Result<Certificate, ConfigError> {
        Certificate::from_pem_files(&self.cert, &self.key)
    }

    /// Warnings about a usable pair.
    pub(super) fn notes(&self, facts: &CertificateFacts, names: &[String], now: SystemTime) -> Vec<String> {
        let mut notes = Vec::new();
        let file = &self.cert.display();
        if facts.not_after <= now {
            notes.push(expired(&self.cert, facts));
        } else if facts.not_after < now + SOON {
            notes.push(format!("{file}: expires at {}: renew it", date(facts.not_after)));
        }
        if facts.not_before > now {
            notes.push(format!("{file}: is not valid before {}: is the clock right?", date(facts.not_before)));
        }
        for name in names.iter().filter(|name| !facts.covers(name)) {
            let covered = if facts.names.is_empty() { "no name".to_owned() } else { facts.names.join(", ") };
            notes.push(format!("{file}: covers {covered}, but not {name}: clients will refuse it"));
        }
        if fs::metadata(&self.key).is_ok_and(|key| key.mode() & 0o004 != 0) {
            let key = self.key.display();
            notes.push(format!("{key}: private key is readable by every user of this machine: `chmod o= {key}`"));
        }
        notes
    }
}

/// The note about an expired certificate.
pub(super) fn expired(file: &Path, facts: &CertificateFacts) -> String {
    format!("{}: expired at {}, so that clients refuse it: renew it", file.display(), date(facts.not_after))
}

/// A time in log format, UTC.
pub(super) fn date(time: SystemTime) -> impl fmt::Display {
    humantime::format_rfc3339_seconds(time)
}

/// A pair in use, whose files are polled for changes.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) site: String,
    pub(super) names: Vec<String>,
    pub(super) files: PairFiles,
    pub(super) set: Arc<SiteCertificates>,
    pub(super) place: usize,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// Stamps of the files that the current pair was loaded from.
    loaded: [Option<Stamp>; 2],
    /// Stamps of files found unusable, and whether that was logged.
    bad: Option<([Option<Stamp>; 2], bool)>,
}

/// A pair just read, with the stamps taken before reading.
pub(super) struct Loaded {
    pub(super) certificate: Certificate,
    stamps: [Option<Stamp>; 2],
}

impl Loaded {
    pub(super) fn from(files: &PairFiles) -> Result<Self, ConfigError> {
        // Takes the stamps before the contents, so that the next poll finds a change during the read.
        let stamps = files.stamps();
        Ok(Self { certificate: files.load()?, stamps })
    }

    /// A placeholder until the files exist.
    #[cfg(feature = "acme")]
    pub(super) fn placeholder(certificate: Certificate) -> Self {
        Self { certificate, stamps: [None, None] }
    }
}

impl Watched {
    pub(super) fn new(
        site: String,
        names: Vec<String>,
        files: PairFiles,
        set: Arc<SiteCertificates>,
        place: usize,
        loaded: &Loaded,
    ) -> Self {
        let seen = Mutex::new(Seen { loaded: loaded.stamps, bad: None });
        Self { site, names, files, set, place, seen }
    }

    /// Reloads changed files if they form a valid pair. An invalid pair is only logged if the next poll finds it
    /// unchanged, because certificate and key are rarely replaced at the same instant.
    pub(super) fn poll(&self) {
        let mut seen = self.seen.lock();
        let stamps = self.files.stamps();
        if stamps == seen.loaded || matches!(&seen.bad, Some((bad, true)) if *bad == stamps) {
            return;
        }
        // ACME has not obtained this certificate yet, so its absence is not an error.
        if seen.loaded == [None, None] && stamps.contains(&None) {
            return;
        }
        match self.files.load() {
            Ok(certificate) => {
                let facts = certificate.facts().clone();
                self.set.replace(self.place, certificate);
                *seen = Seen { loaded: stamps, bad: None };
                let until = date(facts.not_after);
                tracing::info!(
                    "{}: certificate replaced, valid until {until}, SHA-256 {}",
                    self.files,
                    facts.fingerprint
                );
                for note in self.files.notes(&facts, &self.names, SystemTime::now()) {
                    tracing::warn!("{note}");
                }
            }
            Err(error) if matches!(&seen.bad, Some((bad, false)) if *bad == stamps) => {
                seen.bad = Some((stamps, true));
                tracing::error!("{error}. The previous certificate stays in use until the files are valid");
            }
            Err(_) => seen.bad = Some((stamps, false)),
        }
    }

    pub(super) fn certificate(&self) -> Certificate {
        self.set.get()[self.place].clone()
    }
}
