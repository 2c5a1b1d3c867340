//! What a request needs that takes too long for a worker: other threads do it, and the request is answered anew with what they found.

use std::io;

use tokio::task::spawn_blocking;

use crate::file_cache::{self, Files, Missing};
use crate::request::Request;
use crate::resolve::{Found, Unresolved};
use crate::response::{Response, Status};
use crate::site::basic_auth::{Verification, Verified};
use crate::site::listing_page::ShowDirectory;
use crate::target::SitePath;

/// Something for another thread.
#[derive(Debug)]
pub struct Errand {
    key: Key,
    task: Task,
}

#[derive(Debug)]
enum Task {
    File(file_cache::Errand),
    List(ShowDirectory),
    Verify(Verification),
}

/// What an [`Errand`] brought.
#[derive(Debug)]
pub struct Fetched {
    key: Key,
    brought: Brought,
}

#[derive(Debug)]
enum Brought {
    File(file_cache::Fetched),
    Listed(Result<Box<Response>, Unresolved>),
    Verified(Verified),
}

/// What was asked, and of which path.
type Key = (Question, [u8; 4], Box<[u8]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    File,
    Index,
    Listing,
    Password,
}

impl Errand {
    /// Has it done, for as long as it takes.
    ///
    /// # Errors
    /// The thread that did it panicked.
    pub async fn run(self) -> io::Result<Fetched> {
        let Errand { key, task } = self;
        let brought = match task {
            Task::File(errand) => Brought::File(errand.run().await?),
            Task::List(directory) => Brought::Listed(spawn_blocking(|| directory.run()).await?),
            Task::Verify(verification) => Brought::Verified(spawn_blocking(|| verification.run()).await?),
        };
        Ok(Fetched { key, brought })
    }

    /// Does it on this thread.
    #[cfg(test)]
    pub(crate) fn run_here(self) -> Fetched {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(self.run()).unwrap()
    }
}

/// What the errands of one request have brought. Most requests need none, and then it holds nothing.
///
/// A request may need several, one after another: a password, a file that is not there, the page that is sent instead. Since it is answered
/// anew after each, the answers of earlier ones are kept.
#[derive(Debug, Default)]
pub struct Findings(Option<Box<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    fetched: Option<Fetched>,
    files: Vec<(Key, Result<Found, Unresolved>)>,
    lists: Vec<(Key, Unresolved)>,
    passwords: Vec<(Key, Verified)>,
    errands: u8,
}

impl Findings {
    /// Takes what an errand brought.
    pub fn take(&mut self, fetched: Fetched) {
        let kept = self.0.get_or_insert_default();
        kept.errands = kept.errands.saturating_add(1);
        kept.fetched = Some(fetched);
    }

    /// The file that `path` names.
    ///
    /// # Errors
    /// An errand to be run first. The inner error: it cannot be served.
    pub fn find(
        &mut self,
        request: &Request<'_>,
        files: &Files,
        path: &SitePath<'_>,
    ) -> Result<Result<Found, Unresolved>, Errand> {
        match &mut self.0 {
            None => match find(request, files, path, None) {
                Ok(found) => Ok(Ok(found)),
                Err(Missing::Unresolved(unresolved)) => Ok(Err(unresolved)),
                Err(Missing::Waits(errand)) => Err(Errand { key: file_key(files, path), task: Task::File(errand) }),
            },
            Some(kept) => kept.find(request, files, path),
        }
    }

    /// The page that shows a directory. It is the answer, so that nobody asks for it twice.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn list(
        &mut self,
        files: &Files,
        path: &SitePath<'_>,
        directory: impl FnOnce() -> ShowDirectory,
    ) -> Result<Result<Box<Response>, Unresolved>, Errand> {
        let key = (Question::Listing, files.number(), path.as_bytes().into());
        self.0.get_or_insert_default().list(key, directory)
    }

    /// What a verification for this path found, if there was one.
    pub fn verified(&mut self, name: &[u8]) -> Option<Verified> {
        self.0.as_mut()?.verified(name)
    }

    /// The errand that verifies a password for this path.
    pub fn verify(name: &[u8], verification: Verification) -> Errand {
        Errand { key: (Question::Password, [0; 4], name.into()), task: Task::Verify(verification) }
    }
}

impl Kept {
    fn find(
        &mut self,
        request: &Request<'_>,
        files: &Files,
        path: &SitePath<'_>,
    ) -> Result<Result<Found, Unresolved>, Errand> {
        let key = file_key(files, path);
        if let Some((_, known)) = self.files.iter().find(|(other, _)| *other == key) {
            return Ok(known.as_ref().cloned().map_err(again));
        }
        let fetched = match self.fetched.take() {
            Some(Fetched { key: of, brought: Brought::File(fetched) }) if of == key => Some(fetched),
            other => {
                self.fetched = other;
                None
            }
        };
        match find(request, files, path, fetched) {
            Ok(found) => {
                self.files.push((key, Ok(found.clone())));
                Ok(Ok(found))
            }
            Err(Missing::Unresolved(unresolved)) => {
                self.files.push((key, Err(again(&unresolved))));
                Ok(Err(unresolved))
            }
            // Disks that never have an answer ready would keep a request for ever.
            Err(Missing::Waits(_)) if self.errands >= MOST_ERRANDS => Ok(Err(Unresolved {
                status: Status::ServiceUnavailable,
                cause: Some(io::Error::other("the file system does not keep what it was asked for")),
            })),
            Err(Missing::Waits(errand)) => Err(Errand { key, task: Task::File(errand) }),
        }
    }

    fn list(
        &mut self,
        key: Key,
        directory: impl FnOnce() -> ShowDirectory,
    ) -> Result<Result<Box<Response>, Unresolved>, Errand> {
        if let Some((_, unresolved)) = self.lists.iter().find(|(other, _)| *other == key) {
            return Ok(Err(again(unresolved)));
        }
        match self.fetched.take() {
            Some(Fetched { key: of, brought: Brought::Listed(listed) }) if of == key => {
                self.lists.extend(listed.as_ref().err().map(|unresolved| (key, again(unresolved))));
                Ok(listed)
            }
            other => {
                self.fetched = other;
                Err(Errand { key, task: Task::List(directory()) })
            }
        }
    }

    fn verified(&mut self, name: &[u8]) -> Option<Verified> {
        if let Some((_, verified)) = self.passwords.iter().find(|((_, _, of), _)| **of == *name) {
            return Some(*verified);
        }
        match self.fetched.take() {
            Some(Fetched { key, brought: Brought::Verified(verified) }) if *key.2 == *name => {
                self.passwords.push((key, verified));
                Some(verified)
            }
            other => {
                self.fetched = other;
                None
            }
        }
    }
}

fn find(
    request: &Request<'_>,
    files: &Files,
    path: &SitePath<'_>,
    fetched: Option<file_cache::Fetched>,
) -> Result<Found, Missing> {
    files.find(path, &request.conditions.accept_encoding, fetched)
}

/// The same once more, for the log too.
fn again(Unresolved { status, cause }: &Unresolved) -> Unresolved {
    let cause = cause.as_ref().map(|cause| io::Error::new(cause.kind(), cause.to_string()));
    Unresolved { status: *status, cause }
}

fn file_key(files: &Files, path: &SitePath<'_>) -> Key {
    let question = if path.names_directory() { Question::Index } else { Question::File };
    (question, files.number(), path.as_bytes().into())
}

/// GUESS: a request needs a password, a file, some indexes, a listing and a page instead: with a file that is compressed for each, a dozen.
const MOST_ERRANDS: u8 = 32;

#[cfg(test)]
mod tests {
    use std::fs;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::config::Problems;
    use crate::file_cache::{CacheLimits, FileCache};
    use crate::handler::{Client, answer};
    use crate::request::{Asks, Conditions, Method, Target};
    use crate::site::SiteConfig;

    /// A password, then a link that leads away, then a page that is compressed first.
    #[test]
    fn what_the_file_system_said_is_told_whatever_errands_follow() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("404.html"), "<p>not here</p>\n".repeat(500)).unwrap();
        std::os::unix::fs::symlink("../secret", root.join("out")).unwrap();
        let hash = bcrypt::hash_with_result("a", 4).unwrap().format_for_version(bcrypt::Version::TwoY);
        fs::write(place.path().join("users"), format!("ada:{hash}\n")).unwrap();
        let text = format!(
            "root = {root:?}\nerror_pages = {{ 404 = '/404.html' }}\nbasic_auth = [{{ users = {:?} }}]\n[compress]",
            place.path().join("users")
        );
        let config: SiteConfig = toml::from_str(&text).unwrap();
        let mut problems = Problems::of_arguments();
        let site = config.build(&FileCache::new(CacheLimits::default()), 1, false, &mut problems);
        let site = site.unwrap_or_else(|| panic!("{problems}"));
        // What changed within this tick of the clock of files is not compressed.
        let settled = |file: &crate::resolve::SiteFile| file.is_settled();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !matches!(site.files.root().resolve(b"404.html", 0, crate::resolve::Wait::Yes), Ok(Found::File(file)) if settled(&file))
        {
            assert!(std::time::Instant::now() < deadline, "the clock of files stands still");
            std::thread::yield_now();
        }
        let credentials = format!("Basic {}", STANDARD.encode("ada:a"));
        let (mut asks, mut conditions) = (Asks::default(), Conditions::default());
        asks.add("authorization", credentials.as_bytes());
        conditions.add("accept-encoding", b"gzip");
        let target = Target::from_origin_form("/out").unwrap();
        let request = Request { method: Method::Get, target, raw_target: "/out", authority: None, conditions, asks };
        let mut findings = Findings::default();
        let mut errands = 0;
        let response = loop {
            match answer(&request, &site, Client::default(), crate::http_time::HttpTime::now(), &mut findings) {
                Ok(response) => break response,
                Err(errand) => findings.take(errand.run_here()),
            }
            errands += 1;
        };
        assert_eq!((response.status, errands >= 2), (Status::NotFound, true));
        assert!(response.fields.content_encoding.is_some());
        assert!(response.cause.unwrap().to_string().contains("leads out of the root"));
    }
}
