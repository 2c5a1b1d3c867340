//! Revocation lists of client certificates: reloaded when their files change, and watched for their expiry.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::SystemTime;

use sealion_tls::{ClientAuth, RevocationListFacts};

use super::config::ExpiredListsKind;
use super::pair::{Stamp, date, stamp};
use crate::values::Mutex;

/// The lists of a site.
#[derive(Debug)]
pub(super) struct WatchedLists {
    site: String,
    auth: ClientAuth,
    expired: ExpiredListsKind,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// The stamps of the files whose lists are in use.
    stamps: Vec<Option<Stamp>>,
    /// The stamps of files that could not be read last time, which was reported.
    failed: Option<Vec<Option<Stamp>>>,
    /// The lists whose expiry was reported.
    ended: HashSet<(PathBuf, Option<SystemTime>)>,
}

impl WatchedLists {
    /// `None`: the site has no lists.
    pub(super) fn new(site: &str, auth: &ClientAuth, expired: ExpiredListsKind) -> Option<Self> {
        // Starts without stamps, so that the first poll reads the files again: they may have changed since.
        let seen = Mutex::new(Seen { stamps: Vec::new(), failed: None, ended: HashSet::new() });
        (!auth.revocation_files().is_empty()).then(|| Self { site: site.to_owned(), auth: auth.clone(), expired, seen })
    }

    /// Warnings about the lists. Each expiry is reported once.
    pub(super) fn notes(&self, now: SystemTime) -> Vec<String> {
        let mut seen = self.seen.lock();
        let mut ended = |list: &RevocationListFacts| {
            let at = list.next_update.filter(|at| *at <= now)?;
            let is_new = seen.ended.insert((list.file.clone(), list.next_update));
            is_new.then(|| self.end_of(list, at))
        };
        self.auth.revocation_lists().iter().filter_map(&mut ended).collect()
    }

    fn end_of(&self, list: &RevocationListFacts, at: SystemTime) -> String {
        let (site, file, issuer) = (&self.site, list.file.display(), &list.issuer);
        let (effect, remedy) = match self.expired {
            ExpiredListsKind::Refuse => ("clients", "are refused until the file has a newer one"),
            ExpiredListsKind::Accept => ("clients that were revoked since", "are accepted: put a newer one there"),
        };
        format!(
            "{site}: {file}: the revocation list of \"{issuer}\" expired at {}: {effect} of that issuer {remedy}",
            date(at)
        )
    }

    /// Warnings about roots without a list.
    pub(super) fn gaps(&self) -> Vec<String> {
        let lists = self.auth.revocation_lists();
        let has_none = |root: &String| lists.iter().all(|list| list.issuer != *root);
        let warn = |root| {
            format!(
                "{}: client_auth.crls have no list of \"{root}\", one of client_auth.roots: all clients of that root are refused: add its list, or remove the root",
                self.site
            )
        };
        self.auth.root_subjects().filter(has_none).map(warn).collect()
    }

    /// Reads changed files. If lists cannot be read, the previous lists stay in use, and each poll tries again: the
    /// cause may not be the files, but for instance too many open files.
    pub(super) fn poll(&self) {
        let now = stamps(&self.auth);
        let is_same = self.seen.lock().stamps == now;
        if !is_same {
            match self.auth.reload_revocation_lists() {
                Ok(()) => {
                    let mut seen = self.seen.lock();
                    (seen.stamps, seen.failed) = (now, None);
                    drop(seen);
                    for list in self.auth.revocation_lists() {
                        let (file, revoked) = (list.file.display(), list.revoked);
                        let until =
                            list.next_update.map_or_else(|| "for ever".to_owned(), |at| format!("until {}", date(at)));
                        tracing::info!(
                            "{}: {file}: revocation list read: {revoked} certificates, valid {until}",
                            self.site
                        );
                    }
                    self.gaps().iter().for_each(|gap| tracing::warn!("{gap}"));
                }
                Err(error) => {
                    if self.seen.lock().failed.replace(now.clone()).is_none_or(|before| before != now) {
                        tracing::error!("{error}. The revocation lists before stay in use until the files can be read");
                    }
                }
            }
        }
        self.notes(SystemTime::now()).iter().for_each(|note| tracing::warn!("{note}"));
    }
}

fn stamps(auth: &ClientAuth) -> Vec<Option<Stamp>> {
    auth.revocation_files().iter().map(|file| stamp(file).ok()).collect()
}
