//! Files beneath the root, opened so that no path and no symbolic link leads out of it (openat2(2)).

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::time::{ClockId, clock_gettime};
use sealion_http::{Coding, Status};
use sealion_http::content_type::ContentType;
use sealion_http::date::HttpTime;
use sealion_http::etag::EntityTag;

use crate::files::media_types::MediaTypes;

/// The directory that is served: what its path names, looked at again every second, so that one that is replaced, or a symbolic
/// link that is turned, is followed.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    directory: ArcSwap<OwnedFd>,
    opened: Instant,
    /// Milliseconds after `opened` when the path was looked at last.
    looked: AtomicU64,
    /// What an operator says of extensions.
    media_types: Option<Arc<MediaTypes>>,
}

/// What a path names.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    /// A regular file.
    File(Arc<SiteFile>),
    /// A directory, asked for without the slash at its end.
    Directory,
}

/// A file ready to be sent, as it was when it was opened.
#[derive(Debug)]
pub(crate) struct SiteFile {
    /// Where its bytes are.
    pub content: Content,
    /// In bytes.
    pub len: u64,
    /// Last modification, to the second; `None` if an HTTP-date cannot say it (before 1970 or after 9999).
    pub modified: Option<HttpTime>,
    /// Made of device, inode, size, modification and change time, to the nanosecond as the file system has them.
    ///
    /// So a file that is replaced by one of equal size and modification time gets another tag, and so does one
    /// rewritten in place, unless that happens twice within the file system's time stamp granularity (a timer tick,
    /// before Linux 6.13). The same content on another machine has another tag.
    pub etag: EntityTag,
    /// By the extension of its name; of a file in a coding, that of the original.
    pub content_type: ContentType,
    /// The coding of its bytes.
    pub coding: Option<Coding>,
    /// Whether it is one of several representations, of which Accept-Encoding selects.
    pub varies: bool,
    state: State,
    /// The time of file systems before its bytes were read, in seconds and nanoseconds.
    read_at: [u64; 2],
}

/// Where the bytes of a file are.
#[derive(Debug)]
pub(crate) enum Content {
    /// In the file, open for reading. Reads by offset only: the position is shared.
    File(Arc<File>),
    /// All of them, in memory, as they were at the moment of the validators.
    Memory(Box<[u8]>),
}

/// Whether a call may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Yes: for threads that serve nobody else.
    Yes,
    /// No: [`NotOpened::Waits`] instead.
    No,
}

/// Why there is nothing to serve.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// It takes a disk to tell, and the caller did not want to wait.
    Waits,
    /// The path cannot be served.
    Unresolved(Unresolved),
}

/// Why a path cannot be served.
#[derive(Debug)]
pub(crate) struct Unresolved {
    /// 403, 404, 500 or 503.
    pub status: Status,
    /// What an operator should know; `None` if there is just no such file.
    pub cause: Option<io::Error>,
}

impl Root {
    /// Opens the directory to serve and checks that openat2(2) works there.
    pub(crate) fn open(path: &Path) -> Result<Self, RootError> {
        let fail = |errno: Errno| RootError { path: path.to_owned(), errno };
        let directory = openat(CWD, path, DIRECTORY, Mode::empty()).map_err(fail)?;
        openat2(&directory, ".", DIRECTORY, Mode::empty(), RESOLVE).map_err(fail)?;
        Ok(Root {
            path: path.to_owned(),
            directory: ArcSwap::from_pointee(directory),
            opened: Instant::now(),
            looked: AtomicU64::new(0),
            media_types: None,
        })
    }

    /// The same, with an operator's types of some extensions.
    pub(crate) fn with_media_types(self, media_types: Option<Arc<MediaTypes>>) -> Self {
        Root { media_types, ..self }
    }

    /// The type of a file of this name.
    fn content_type(&self, name: &[u8]) -> ContentType {
        let own = self.media_types.as_ref().and_then(|types| types.of_name(name));
        own.unwrap_or_else(|| ContentType::of_name(name))
    }

    /// Looks where the path leads now, once in a while. Where it leads nowhere, the directory stays what it was: empty, if it was
    /// removed.
    fn look_again(&self, wait: Wait) -> Result<(), NotOpened> {
        let now = self.opened.elapsed().as_millis() as u64;
        let last = self.looked.load(Ordering::Relaxed);
        if now.saturating_sub(last) < LOOK_AGAIN_MS
            || self.looked.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Ok(());
        }
        let cached = if wait == Wait::No { ResolveFlags::CACHED } else { ResolveFlags::empty() };
        let directory = match openat2(CWD, &self.path, DIRECTORY, Mode::empty(), cached) {
            Ok(directory) => directory,
            Err(Errno::AGAIN | Errno::INVAL) if wait == Wait::No => {
                // Whoever may wait looks in its place.
                self.looked.store(last, Ordering::Relaxed);
                return Err(NotOpened::Waits);
            }
            Err(_) => return Ok(()),
        };
        let identity = |fd: &OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        if identity(&directory) != identity(&self.directory.load()) {
            tracing::info!(
                "{} leads to another directory than before, which is served from now on",
                self.path.display()
            );
            self.directory.store(Arc::new(directory));
        }
        Ok(())
    }

    /// Opens the file or directory called `name` beneath the root. A file of at most `keep` bytes is read into memory.
    ///
    /// Symbolic links are followed as long as they stay beneath the root; an absolute one does not, wherever it
    /// points to. What is not a regular file (FIFO, device, socket) is not found.
    ///
    /// | errno | meaning | status |
    /// |---|---|---|
    /// | ENOENT, ENOTDIR, ENAMETOOLONG | no such file | 404 |
    /// | ENXIO, ENODEV | a socket, or a device without driver | 404 with cause |
    /// | EXDEV | a symbolic link leads out of the root | 404 with cause |
    /// | ELOOP | too many symbolic links, or one of /proc's magic ones | 404 with cause |
    /// | EACCES, EPERM | the server's user may not read it | 403 with cause |
    /// | EMFILE, ENFILE, ENOMEM | too many open files, or no memory | 503 with cause |
    /// | EAGAIN | renamed directories around a `..` in a link, or a lease that is being broken, again and again | 503 with cause |
    /// | EAGAIN, or EINVAL before Linux 5.12, if not to wait | a name that is not in the kernel's cache | waits |
    /// | others | a broken file system | 500 with cause |
    pub(crate) fn resolve(&self, name: &[u8], keep: u64, wait: Wait) -> Result<Found, NotOpened> {
        // Without O_NONBLOCK, opening a FIFO waits for a writer. On a regular file it has no effect.
        const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
        let file = File::from(self.open_beneath(name, FLAGS, wait)?);
        let read_at = time_of_files();
        let metadata = file.metadata().map_err(Unresolved::broken)?;
        if metadata.is_dir() {
            return Ok(Found::Directory);
        }
        if !metadata.is_file() {
            return Err(Unresolved::not_found(Some(io::Error::other("not a regular file"))).into());
        }
        let state = State::of(&metadata);
        let kept = if metadata.len() <= keep { read_whole(&file, &state, wait)? } else { None };
        Ok(Found::File(Arc::new(SiteFile {
            len: metadata.len(),
            modified: metadata.modified().ok().and_then(HttpTime::new),
            etag: state.entity_tag(),
            content_type: self.content_type(name),
            coding: None,
            varies: false,
            content: kept.map_or_else(|| Content::File(Arc::new(file)), Content::Memory),
            state,
            read_at,
        })))
    }

    /// Whether `name` still names `file`, and nobody has written to it.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(crate) fn is_unchanged(&self, name: &[u8], file: &SiteFile, wait: Wait) -> Result<bool, NotOpened> {
        let now = File::from(self.open_beneath(name, OFlags::PATH | OFlags::CLOEXEC, wait)?);
        Ok(State::of(&now.metadata().map_err(Unresolved::broken)?) == file.state)
    }

    /// The state of what is called `name`; `None` if there is nothing, or it cannot be told.
    ///
    /// # Errors
    /// [`NotOpened::Waits`] alone.
    pub(crate) fn state(&self, name: &[u8], wait: Wait) -> Result<Option<State>, NotOpened> {
        match self.open_beneath(name, OFlags::PATH | OFlags::CLOEXEC, wait) {
            Ok(fd) => Ok(File::from(fd).metadata().ok().as_ref().map(State::of)),
            Err(NotOpened::Waits) => Err(NotOpened::Waits),
            Err(NotOpened::Unresolved(_)) => Ok(None),
        }
    }

    /// Opens the directory called `name` beneath the root to read its entries. Waits for disks.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(crate) fn open_directory(&self, name: &[u8]) -> Result<OwnedFd, NotOpened> {
        self.open_beneath(name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Wait::Yes)
    }

    /// What `name` beneath the root is, symbolic links followed. Waits for disks.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(crate) fn metadata(&self, name: &[u8]) -> Result<Metadata, NotOpened> {
        let file = File::from(self.open_beneath(name, OFlags::PATH | OFlags::CLOEXEC, Wait::Yes)?);
        Ok(file.metadata().map_err(Unresolved::broken)?)
    }

    fn open_beneath(&self, name: &[u8], flags: OFlags, wait: Wait) -> Result<OwnedFd, NotOpened> {
        let resolve = match wait {
            Wait::Yes => RESOLVE,
            Wait::No => RESOLVE.union(ResolveFlags::CACHED),
        };
        let name = if name.is_empty() { b"." } else { name };
        self.look_again(wait)?;
        let directory = self.directory.load();
        let mut tries = 0;
        loop {
            match openat2(&**directory, name, flags, Mode::empty(), resolve) {
                Ok(fd) => return Ok(fd),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::INVAL) if wait == Wait::No => return Err(NotOpened::Waits),
                Err(Errno::AGAIN) if tries < MOST_RETRIES => tries += 1,
                Err(errno) => return Err(Unresolved::from(errno).into()),
            }
        }
    }
}

impl SiteFile {
    /// Whether every later change shows in the time of change. Within a tick of the clock it need not: what was read
    /// between two changes then looks like what the second made.
    pub(crate) fn is_settled(&self) -> bool {
        let [seconds, nanoseconds] = self.state.changed();
        // Some file systems keep whole seconds.
        let latest = if nanoseconds == 0 { [seconds + 1, 0] } else { [seconds, nanoseconds] };
        latest < self.read_at
    }

    /// Whether its bytes are still those that the validators speak of. What is in memory is so by itself.
    pub(crate) fn is_intact(&self) -> bool {
        match &self.content {
            Content::Memory(_) => true,
            Content::File(file) => file.metadata().is_ok_and(|metadata| State::of(&metadata) == self.state),
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// All bytes, as they were at the moment of the validators. May wait for a disk.
    ///
    /// # Errors
    /// The file cannot be read, or is another one by now.
    pub(crate) fn read_as_it_was(&self) -> io::Result<Cow<'_, [u8]>> {
        match &self.content {
            Content::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
            Content::File(file) => match read_whole(file, &self.state, Wait::Yes) {
                Ok(Some(bytes)) => Ok(Cow::Owned(bytes.into_vec())),
                Ok(None) => Err(io::Error::other("it changed while it was read")),
                Err(NotOpened::Unresolved(Unresolved { cause: Some(cause), .. })) => Err(cause),
                Err(error) => Err(io::Error::other(format!("{error:?}"))),
            },
        }
    }

    /// What was made of this file in `coding`. Its tag is a digest of the bytes: strong, whatever the encoder does.
    pub(crate) fn encoded(&self, bytes: Box<[u8]>, coding: Coding) -> Arc<Self> {
        Arc::new(SiteFile {
            len: bytes.len() as u64,
            modified: self.modified,
            etag: hashed_tag(&bytes),
            content_type: self.content_type.clone(),
            coding: Some(coding),
            varies: true,
            content: Content::Memory(bytes),
            state: self.state,
            read_at: self.read_at,
        })
    }
}

#[cfg(test)]
impl SiteFile {
    pub(crate) fn read(&self, range: std::ops::Range<u64>) -> Vec<u8> {
        match &self.content {
            Content::Memory(bytes) => bytes[range.start as usize..range.end as usize].to_vec(),
            Content::File(file) => {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                std::os::unix::fs::FileExt::read_exact_at(&**file, &mut bytes, range.start).unwrap();
                bytes
            }
        }
    }

    pub(crate) fn of(file: File) -> Arc<Self> {
        let state = State::of(&file.metadata().unwrap());
        Arc::new(SiteFile {
            content: Content::File(Arc::new(file)),
            len: state.len(),
            modified: None,
            etag: state.entity_tag(),
            content_type: ContentType::of_name(b""),
            coding: None,
            varies: false,
            state,
            read_at: time_of_files(),
        })
    }
}

/// All of the file's bytes; `None` if it changes meanwhile.
fn read_whole(file: &File, state: &State, wait: Wait) -> Result<Option<Box<[u8]>>, NotOpened> {
    let flags = if wait == Wait::No { ReadWriteFlags::NOWAIT } else { ReadWriteFlags::empty() };
    let mut bytes = vec![0; state.len() as usize].into_boxed_slice();
    let mut read = 0;
    while read < bytes.len() {
        match preadv2(file, &mut [IoSliceMut::new(&mut bytes[read..])], read as u64, flags) {
            Ok(0) => return Ok(None),
            Ok(more) => read += more,
            Err(Errno::INTR) => {}
            // Some file systems cannot promise not to wait.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) if wait == Wait::No => return Err(NotOpened::Waits),
            Err(errno) => return Err(Unresolved::broken(errno.into()).into()),
        }
    }
    let after = file.metadata().map_err(Unresolved::broken)?;
    Ok((State::of(&after) == *state).then_some(bytes))
}

impl Unresolved {
    pub(crate) fn not_found(cause: Option<io::Error>) -> Self {
        Unresolved { status: Status::NOT_FOUND, cause }
    }

    fn broken(cause: io::Error) -> Self {
        Unresolved { status: Status::INTERNAL_SERVER_ERROR, cause: Some(cause) }
    }
}

impl From<Unresolved> for NotOpened {
    fn from(unresolved: Unresolved) -> Self {
        NotOpened::Unresolved(unresolved)
    }
}

impl From<Errno> for Unresolved {
    fn from(errno: Errno) -> Self {
        let status = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => return Unresolved::not_found(None),
            Errno::XDEV => {
                return Unresolved::not_found(Some(io::Error::new(
                    io::ErrorKind::CrossesDevices,
                    "a symbolic link leads out of the root (make it relative, or copy the file)",
                )));
            }
            Errno::LOOP | Errno::NXIO | Errno::NODEV => Status::NOT_FOUND,
            Errno::ACCESS | Errno::PERM => Status::FORBIDDEN,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Status::SERVICE_UNAVAILABLE,
            _ => Status::INTERNAL_SERVER_ERROR,
        };
        Unresolved { status, cause: Some(errno.into()) }
    }
}

/// Why a directory cannot be served.
#[derive(Debug)]
pub(crate) struct RootError {
    path: PathBuf,
    errno: Errno,
}

impl fmt::Display for RootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = match self.errno {
            Errno::NOENT => "create it, or name another directory",
            Errno::NOTDIR => "name a directory",
            Errno::ACCESS => "let the server's user search it and the directories above it",
            Errno::NOSYS => "openat2 is missing: Linux 5.6 or later is needed, and a seccomp filter that lets it pass",
            _ => "see openat2(2)",
        };
        write!(f, "cannot serve {}: {}: {remedy}", self.path.display(), io::Error::from(self.errno))
    }
}

impl std::error::Error for RootError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.errno)
    }
}

/// Device, inode, size, modification time and change time, the times in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State([u64; 7]);

impl State {
    fn of(metadata: &Metadata) -> Self {
        State([
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime() as u64,
            metadata.mtime_nsec() as u64,
            metadata.ctime() as u64,
            metadata.ctime_nsec() as u64,
        ])
    }

    fn len(&self) -> u64 {
        self.0[2]
    }

    fn changed(&self) -> [u64; 2] {
        [self.0[5], self.0[6]]
    }

    /// Hashed, because clients have no business with inode numbers.
    fn entity_tag(&self) -> EntityTag {
        hashed_tag(self.0.map(u64::to_le_bytes).as_flattened())
    }

    /// Whether it was modified before `original`.
    ///
    /// Some tools and archives keep whole seconds, rounded down: such a time is compared in seconds.
    pub(crate) fn is_older_than(&self, original: &State) -> bool {
        let [(ours, ours_ns), (its, its_ns)] = [self, original].map(|state| (state.0[3] as i64, state.0[4]));
        ours < its || ours == its && ours_ns != 0 && ours_ns < its_ns
    }
}

/// The clock that file systems stamp changes by, in seconds and nanoseconds: it advances by ticks.
fn time_of_files() -> [u64; 2] {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    [now.tv_sec as u64, now.tv_nsec as u64]
}

/// Beneath the root without exception, and not by way of /proc/*/fd.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// GUESS: as long as files are taken to be what they were.
const LOOK_AGAIN_MS: u64 = 1000;

/// GUESS: openat2(2) tells the caller to retry; each try loses only to a rename in the meantime.
const MOST_RETRIES: u32 = 8;

/// A strong entity tag from the hash of `bytes`.
fn hashed_tag(bytes: &[u8]) -> EntityTag {
    let hash = digest(&SHA256, bytes);
    let mut fingerprint = [0; 8];
    fingerprint.copy_from_slice(&hash.as_ref()[..8]);
    EntityTag::from_fingerprint(fingerprint)
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
