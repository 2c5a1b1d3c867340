//! Opens files below a root with openat2(2), so that no path and no symbolic link can leave it.

mod site_file;
mod state;

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use schemars::JsonSchema;
use sealion_http::content_type::ContentType;
use sealion_http::date::HttpTime;
use sealion_http::etag::EntityTag;
use sealion_http::path::BOUNDARY;
use sealion_http::{Coding, Status};
use serde::{Deserialize, Serialize};

use crate::files::media_types::MediaTypes;
use site_file::read_whole;
use state::file_system_time;

pub(crate) use state::State;

/// The served directory. Its path is re-opened every second, to notice a replaced directory or a changed symbolic link.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    directory: ArcSwap<OwnedFd>,
    opened: Instant,
    /// When the path was last re-opened, in milliseconds after `opened`.
    checked_ms: AtomicU64,
    /// The operator's content types by extension.
    media_types: Option<Arc<MediaTypes>>,
    tags: EntityTags,
    /// Suffixes of names that are not served.
    hidden: Arc<[Box<str>]>,
}

/// The metadata that make the entity tags of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EntityTags {
    /// Size and modification time. Equal on all replicas that preserve modification times.
    #[default]
    Modified,
    /// Device, inode, size, modification and change time. Changes with every replacement, even one of equal size and
    /// time.
    Inode,
}

/// The object at a path.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    File(Arc<SiteFile>),
    /// A directory, requested without a trailing slash.
    Directory,
}

/// An opened file, with its metadata at that time.
#[derive(Debug)]
pub(crate) struct SiteFile {
    /// The bytes, or the file that contains them.
    pub content: Content,
    /// Length in bytes.
    pub len: u64,
    /// Last modification, to the second. `None`: before 1970 or after 9999, where no HTTP-date exists.
    pub modified: Option<HttpTime>,
    /// The entity tag, made according to the site's [`EntityTags`]. It is weak while its time is within the current
    /// tick of the file system's clock (a timer tick before Linux 6.13), because the file could change again without a
    /// change of the time.
    pub etag: EntityTag,
    /// The type by file name extension; for a precompressed file, the type of the original.
    pub content_type: ContentType,
    /// The content coding of the bytes.
    pub coding: Option<Coding>,
    /// Whether it is a precompressed file, found beside its original.
    pub is_sibling: bool,
    /// Whether there are several representations, among which Accept-Encoding selects.
    pub varies: bool,
    state: State,
    /// The file system clock before the bytes were read, in seconds and nanoseconds.
    read_at: [u64; 2],
    /// Whether a response was cut short because this could not be read.
    is_unreadable: AtomicBool,
    /// Dropped when the content is no longer being sent.
    _until_closed: Option<Arc<dyn fmt::Debug + Send + Sync>>,
}

/// The content of a file.
#[derive(Debug)]
pub(crate) enum Content {
    /// An open file. It is read by offset only, because the position is shared.
    File(Arc<File>),
    /// All bytes in memory, as described by the validators.
    Memory(Box<[u8]>),
}

/// Whether a call may block on disk I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It may block: for threads of the blocking pool.
    Yes,
    /// It must not block, but returns [`NotOpened::Waits`].
    No,
}

/// The reason why a file was not opened.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// The call would have blocked, and the caller passed [`Wait::No`].
    Waits,
    /// The path cannot be served.
    Unresolved(Unresolved),
}

/// The reason why a path cannot be served.
#[derive(Debug)]
pub(crate) struct Unresolved {
    /// 403, 404, 500 or 503.
    pub status: Status,
    /// The error for the log. `None`: the file does not exist.
    pub cause: Option<io::Error>,
}

impl Root {
    /// Opens the directory to serve and checks that openat2(2) works there.
    pub(crate) fn open(path: &Path) -> Result<Self, RootError> {
        let fail = |errno: Errno| RootError { path: path.to_owned(), errno };
        let directory = openat(CWD, path, DIRECTORY, Mode::empty()).map_err(fail)?;
        openat2(&directory, ".", DIRECTORY, Mode::empty(), RESOLVE).map_err(fail)?;
        Ok(Self::of(path.to_owned(), directory))
    }

    /// A directory that is always empty, for a site without files.
    pub(crate) fn empty() -> Result<Self, RootError> {
        // A file has no entries (ENOTDIR). A confined process can open this file too, and the path cannot be created.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = openat(CWD, "/dev/null", flags, Mode::empty())
            .map_err(|errno| RootError { path: "/dev/null".into(), errno })?;
        Ok(Self::of(EMPTY.into(), file))
    }

    /// Whether it is a directory, and not [`Self::empty`].
    pub(crate) fn has_files(&self) -> bool {
        self.path != Path::new(EMPTY)
    }

    fn of(path: PathBuf, directory: OwnedFd) -> Self {
        Root {
            path,
            directory: ArcSwap::from_pointee(directory),
            opened: Instant::now(),
            checked_ms: AtomicU64::new(0),
            media_types: None,
            tags: EntityTags::default(),
            hidden: Arc::from([]),
        }
    }

    /// Hides files whose names have these suffixes, in any case: they are programs, and their source is private.
    pub(crate) fn hiding(self, ends: Arc<[Box<str>]>) -> Self {
        Root { hidden: ends, ..self }
    }

    /// The same directory without hidden files, for a look at its content. `None`: it is gone, or hides no files.
    pub(crate) fn unhidden(&self) -> Option<Self> {
        if self.hidden.is_empty() { None } else { Self::open(&self.path).ok() }
    }

    fn is_hidden(&self, name: &[u8]) -> bool {
        // FAT and NTFS open a name without the dots and spaces at its end.
        let dropped = name.iter().rev().take_while(|byte| matches!(byte, b'.' | b' ')).count();
        let name = &name[..name.len() - dropped];
        // A precompressed sibling contains the source too.
        let codings: [&[u8]; 5] = [b".br", b".gz", b".zst", b".dcb", b".dcz"];
        let name = codings.iter().find_map(|coding| name.strip_suffix(*coding)).unwrap_or(name);
        let ends_so = |end: &str| {
            let at = name.len().checked_sub(end.len());
            at.is_some_and(|at| name[at..].eq_ignore_ascii_case(end.as_bytes()))
        };
        self.hidden.iter().any(|end| ends_so(end))
    }

    /// Sets the metadata that make entity tags.
    pub(crate) fn with_entity_tags(self, tags: EntityTags) -> Self {
        Root { tags, ..self }
    }

    /// Sets the operator's content types.
    pub(crate) fn with_media_types(self, media_types: Option<Arc<MediaTypes>>) -> Self {
        Root { media_types, ..self }
    }

    /// The content type for a file name.
    pub(crate) fn content_type(&self, name: &[u8]) -> ContentType {
        let own = self.media_types.as_ref().and_then(|types| types.of_name(name));
        own.unwrap_or_else(|| ContentType::of_name(name))
    }

    /// Re-opens the path of the root if the last check is old enough. If that fails, the old directory stays in use; a
    /// removed directory is empty.
    fn refresh(&self, wait: Wait) -> Result<(), NotOpened> {
        let now = self.opened.elapsed().as_millis() as u64;
        let last = self.checked_ms.load(Ordering::Relaxed);
        if now.saturating_sub(last) < REFRESH_MS
            || self.checked_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Ok(());
        }
        let cached = if wait == Wait::No { ResolveFlags::CACHED } else { ResolveFlags::empty() };
        let directory = match openat2(CWD, &self.path, DIRECTORY, Mode::empty(), cached) {
            Ok(directory) => directory,
            Err(Errno::AGAIN | Errno::INVAL) if wait == Wait::No => {
                // Leaves the check to a call that may block.
                self.checked_ms.store(last, Ordering::Relaxed);
                return Err(NotOpened::Waits);
            }
            Err(_) => return Ok(()),
        };
        let identity = |fd: &OwnedFd| fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        if identity(&directory) != identity(&self.directory.load()) {
            tracing::info!("site root {} was replaced: serving the new directory", self.path.display());
            self.directory.store(Arc::new(directory));
        }
        Ok(())
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file or directory `name` below the root. A file of at most `keep` bytes is read into memory.
    ///
    /// Symbolic links are followed if they stay below the root; absolute links never do. Anything except a regular file
    /// or directory (FIFO, device, socket) is not found.
    ///
    /// | errno | meaning | status |
    /// |---|---|---|
    /// | ENOENT, ENOTDIR, ENAMETOOLONG | no such file | 404 |
    /// | ENXIO, ENODEV | a socket, or a device without driver | 404 with cause |
    /// | EXDEV | a symbolic link leads out of the root, or is absolute | 404 with cause |
    /// | ELOOP | too many symbolic links, or a magic link of /proc | 404 with cause |
    /// | EACCES, EPERM | not readable by the server's user | 403 with cause |
    /// | EMFILE, ENFILE, ENOMEM | too many open files, or out of memory | 503 with cause |
    /// | EAGAIN, repeatedly | concurrent renames around a `..` in a link, or a lease being broken | 503 with cause |
    /// | EAGAIN, or EINVAL before Linux 5.12, with [`Wait::No`] | the name is not in the kernel's cache | waits |
    /// | others | file system error | 500 with cause |
    pub(crate) fn resolve(&self, name: &[u8], keep: u64, wait: Wait) -> Result<Found, NotOpened> {
        // Without O_NONBLOCK, opening a FIFO blocks until a writer opens it. The flag has no effect on regular files.
        const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
        if self.is_hidden(name) {
            return Err(Unresolved::not_found(None).into());
        }
        let file = File::from(self.open_beneath(name, FLAGS, wait)?);
        let read_at = file_system_time();
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
            etag: state.entity_tag(self.tags, read_at),
            content_type: self.content_type(name),
            coding: None,
            is_sibling: false,
            varies: false,
            content: kept.map_or_else(|| Content::File(Arc::new(file)), Content::Memory),
            state,
            read_at,
            is_unreadable: AtomicBool::new(false),
            _until_closed: None,
        })))
    }

    /// Whether `name` still names `file`, unmodified.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(crate) fn is_unchanged(&self, name: &[u8], file: &SiteFile, wait: Wait) -> Result<bool, NotOpened> {
        let now = File::from(self.open_beneath(name, OFlags::PATH | OFlags::CLOEXEC, wait)?);
        Ok(State::of(&now.metadata().map_err(Unresolved::broken)?) == file.state)
    }

    /// The state of the file `name`. `None`: it does not exist, or its metadata cannot be read.
    ///
    /// # Errors
    /// Only [`NotOpened::Waits`].
    pub(crate) fn state(&self, name: &[u8], wait: Wait) -> Result<Option<State>, NotOpened> {
        match self.open_beneath(name, OFlags::PATH | OFlags::CLOEXEC, wait) {
            Ok(fd) => Ok(File::from(fd).metadata().ok().as_ref().map(State::of)),
            Err(NotOpened::Waits) => Err(NotOpened::Waits),
            Err(NotOpened::Unresolved(_)) => Ok(None),
        }
    }

    /// Whether `name` is a regular file below the root.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(crate) fn is_file(&self, name: &[u8], wait: Wait) -> Result<bool, NotOpened> {
        let file = File::from(self.open_beneath(name, OFlags::PATH | OFlags::CLOEXEC, wait)?);
        Ok(file.metadata().map_err(Unresolved::broken)?.is_file())
    }

    /// Opens the directory `name` below the root for reading its entries. May block.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(crate) fn open_directory(&self, name: &[u8]) -> Result<OwnedFd, NotOpened> {
        self.open_beneath(name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Wait::Yes)
    }

    /// The metadata of `name` below the root, following symbolic links.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(crate) fn metadata(&self, name: &[u8], wait: Wait) -> Result<Metadata, NotOpened> {
        let file = File::from(self.open_beneath(name, OFlags::PATH | OFlags::CLOEXEC, wait)?);
        Ok(file.metadata().map_err(Unresolved::broken)?)
    }

    fn open_beneath(&self, name: &[u8], flags: OFlags, wait: Wait) -> Result<OwnedFd, NotOpened> {
        let resolve = match wait {
            Wait::Yes => RESOLVE,
            Wait::No => RESOLVE.union(ResolveFlags::CACHED),
        };
        self.refresh(wait)?;
        let directory = self.directory.load();
        match memchr::memmem::find(name, BOUNDARY) {
            None => open_within(&directory, name, flags, resolve),
            Some(end) => {
                // No link beneath the named directory leads to a directory beside it.
                let named = open_within(&directory, &name[..end], DIRECTORY, resolve)?;
                open_within(&named, &name[end + BOUNDARY.len()..], flags, resolve)
            }
        }
    }
}

fn open_within(directory: &OwnedFd, name: &[u8], flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, NotOpened> {
    let name = if name.is_empty() { b"." } else { name };
    let may_wait = !resolve.contains(ResolveFlags::CACHED);
    let mut tries = 0;
    loop {
        match openat2(directory, name, flags, Mode::empty(), resolve) {
            Ok(fd) => return Ok(fd),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::INVAL) if !may_wait => return Err(NotOpened::Waits),
            Err(Errno::AGAIN) if tries < MAX_RETRIES => tries += 1,
            Err(errno) => return Err(Unresolved::from(errno).into()),
        }
    }
}

impl Unresolved {
    pub(crate) fn not_found(cause: Option<io::Error>) -> Self {
        Unresolved { status: Status::NOT_FOUND, cause }
    }

    /// A blocking task panicked.
    pub(crate) fn panicked(error: &dyn std::fmt::Display) -> Self {
        Unresolved::broken(io::Error::other(format!("blocking task panicked: {error}")))
    }

    fn broken(cause: io::Error) -> Self {
        Unresolved { status: Status::INTERNAL_SERVER_ERROR, cause: Some(cause) }
    }
}

impl NotOpened {
    /// The reason, for a call that may block.
    pub(crate) fn unresolved(self) -> Unresolved {
        match self {
            NotOpened::Unresolved(unresolved) => unresolved,
            // Only returned with [`Wait::No`].
            NotOpened::Waits => Unresolved::not_found(None),
        }
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
                    "symbolic link leads out of the root, or is absolute: make it relative (ln -sr), or copy the file",
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

/// The error for a root that cannot be served.
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
            Errno::ACCESS => "give the server's user search permission on it and on its parent directories",
            Errno::NOSYS => {
                "openat2(2) is unavailable: use Linux 5.6 or later, and allow the call in the seccomp filter"
            }
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

/// The path of the entry `name` in `directory`, both without outer slashes.
pub(crate) fn beneath(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Always below the root, and never through magic links such as /proc/*/fd.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The path of a root without files.
const EMPTY: &str = "/dev/null/no-root";

/// The interval for re-opening the root's path: the default interval for revalidating cached files.
const REFRESH_MS: u64 = 1000;

/// openat2(2) asks the caller to retry after EAGAIN. Each retry only fails if another rename occurs in between.
const MAX_RETRIES: u32 = 8;

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
