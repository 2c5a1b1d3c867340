//! Files beneath the root, opened so that no path and no symbolic link leads out of it (openat2(2)).

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use httpdate::HttpDate;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use crate::etag::EntityTag;
use crate::mime::ContentType;
use crate::response::Status;
use crate::target::SitePath;

/// The directory that is served.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
}

/// What a path names.
#[derive(Debug, Clone)]
pub enum Found {
    /// A regular file.
    File(OpenFile),
    /// A directory, asked for without the slash at its end.
    Directory,
}

/// A file ready to be sent. Its validators are those of the moment it was opened.
#[derive(Debug, Clone)]
pub struct OpenFile {
    /// Open for reading. Reads by offset only: clones share the position.
    pub file: Arc<File>,
    /// In bytes.
    pub len: u64,
    /// Last modification, to the second; `None` if HTTP-date cannot say it (before 1970 or after 9999).
    pub modified: Option<HttpDate>,
    /// Made of inode, size, modification and change time, to the nanosecond as the file system has them.
    ///
    /// So a file that is replaced by one of equal size and modification time gets another tag, and so does one
    /// rewritten in place, unless that happens twice within the file system's time stamp granularity (a timer tick,
    /// before Linux 6.13). The same content on another machine has another tag.
    pub etag: EntityTag,
    /// By the extension of its name.
    pub content_type: ContentType,
}

/// Why a path cannot be served.
#[derive(Debug)]
pub struct Unresolved {
    /// 403, 404, 500 or 503.
    pub status: Status,
    /// What an operator should know; `None` if there is just no such file.
    pub cause: Option<io::Error>,
}

impl Root {
    /// Opens the directory to serve and checks that openat2(2) works there.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let fail = |errno: Errno| RootError { path: path.to_owned(), errno };
        let directory =
            openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
        openat2(&directory, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), RESOLVE)
            .map_err(fail)?;
        Ok(Root { directory })
    }

    /// Opens what `path` names; for a directory named with its slash, the file `index` in it.
    ///
    /// Symbolic links are followed as long as they stay beneath the root; an absolute one does not, wherever it
    /// points to. What is not a regular file (FIFO, device, socket) is not found. A directory without index is not
    /// found: there are no listings.
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
    /// | others | a broken file system | 500 with cause |
    pub fn resolve(&self, path: &SitePath<'_>, index: &str) -> Result<Found, Unresolved> {
        let mut name = path.as_bytes();
        let with_index;
        if path.names_directory() {
            with_index =
                if name.is_empty() { index.as_bytes().to_vec() } else { [name, b"/", index.as_bytes()].concat() };
            name = &with_index;
        }
        let file = self.open_beneath(name).map_err(Unresolved::from)?;
        let metadata =
            file.metadata().map_err(|error| Unresolved { status: Status::InternalServerError, cause: Some(error) })?;
        if metadata.is_dir() {
            // An index that is a directory: nothing to show, and no slash would help.
            return if path.names_directory() { Err(Unresolved::not_found(None)) } else { Ok(Found::Directory) };
        }
        if !metadata.is_file() {
            return Err(Unresolved::not_found(Some(io::Error::other("not a regular file"))));
        }
        Ok(Found::File(OpenFile {
            len: metadata.len(),
            modified: metadata.modified().ok().and_then(http_date),
            etag: entity_tag(state(&metadata)),
            content_type: ContentType::of_name(name),
            file: Arc::new(file),
        }))
    }

    fn open_beneath(&self, name: &[u8]) -> Result<File, Errno> {
        // Without O_NONBLOCK, opening a FIFO waits for a writer. On a regular file it has no effect.
        const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
        let mut tries = 0;
        loop {
            match openat2(&self.directory, name, FLAGS, Mode::empty(), RESOLVE) {
                Ok(fd) => return Ok(File::from(fd)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if tries < MOST_RETRIES => tries += 1,
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl Unresolved {
    fn not_found(cause: Option<io::Error>) -> Self {
        Unresolved { status: Status::NotFound, cause }
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
            Errno::LOOP | Errno::NXIO | Errno::NODEV => Status::NotFound,
            Errno::ACCESS | Errno::PERM => Status::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Status::ServiceUnavailable,
            _ => Status::InternalServerError,
        };
        Unresolved { status, cause: Some(errno.into()) }
    }
}

/// Why a directory cannot be served.
#[derive(Debug)]
pub struct RootError {
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

/// The time as an HTTP-date, without its fraction of a second; `None` before 1970 and after 9999, for which there is
/// none.
pub fn http_date(time: SystemTime) -> Option<HttpDate> {
    const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);
    let since_epoch = time.duration_since(UNIX_EPOCH).ok().filter(|duration| *duration < YEAR_10000)?;
    Some(HttpDate::from(UNIX_EPOCH + Duration::from_secs(since_epoch.as_secs())))
}

/// Inode, size, modification time and change time, the times in seconds and nanoseconds.
fn state(metadata: &Metadata) -> [u64; 6] {
    [
        metadata.ino(),
        metadata.len(),
        metadata.mtime() as u64,
        metadata.mtime_nsec() as u64,
        metadata.ctime() as u64,
        metadata.ctime_nsec() as u64,
    ]
}

/// Hashed, because clients have no business with inode numbers.
fn entity_tag(state: [u64; 6]) -> EntityTag {
    let hash = digest(&SHA256, state.map(u64::to_le_bytes).as_flattened());
    let mut fingerprint = [0; 8];
    fingerprint.copy_from_slice(&hash.as_ref()[..8]);
    EntityTag::from_fingerprint(fingerprint)
}

/// Beneath the root without exception, and not by way of /proc/*/fd.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// GUESS: openat2(2) tells the caller to retry; each try loses only to a rename in the meantime.
const MOST_RETRIES: u32 = 8;

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileExt, symlink};
    use std::os::unix::net::UnixListener;

    use rustix::fs::{FileType, mknodat};

    use super::*;

    struct Site {
        outside: tempfile::TempDir,
        root: Root,
    }

    impl Site {
        /// A root called `site` beside a file called `secret`.
        fn new() -> Self {
            let outside = tempfile::tempdir().unwrap();
            fs::write(outside.path().join("secret"), "secret").unwrap();
            fs::create_dir(outside.path().join("site")).unwrap();
            let root = Root::open(&outside.path().join("site")).unwrap();
            Site { outside, root }
        }

        fn path(&self, name: impl AsRef<Path>) -> PathBuf {
            self.outside.path().join("site").join(name)
        }

        fn write(&self, name: &str, content: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), content).unwrap();
        }

        fn resolve(&self, path: &str) -> Result<Found, Unresolved> {
            self.root.resolve(&SitePath::parse(path, true).unwrap(), "index.html")
        }

        fn file(&self, path: &str) -> OpenFile {
            match self.resolve(path) {
                Ok(Found::File(file)) => file,
                other => panic!("{path}: {other:?}"),
            }
        }
    }

    fn content(file: &OpenFile) -> String {
        let mut bytes = vec![0; file.len as usize];
        file.file.read_exact_at(&mut bytes, 0).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn files_and_directories() {
        let site = Site::new();
        site.write("index.html", "root");
        site.write("a/index.html", "index of a");
        site.write("a/b.css", "b");
        site.write("empty/x", "");
        site.write("odd/index.html/x", "");
        fs::write(site.path(OsStr::from_bytes(b"\xff.png")), "not UTF-8").unwrap();
        for (path, expected, content_type) in [
            ("/", "root", ContentType::Utf8("text/html")),
            ("/index.html", "root", ContentType::Utf8("text/html")),
            ("/a/", "index of a", ContentType::Utf8("text/html")),
            ("/a/b.css", "b", ContentType::Utf8("text/css")),
            ("/empty/x", "", ContentType::Plain("application/octet-stream")),
            ("/%ff.png", "not UTF-8", ContentType::Plain("image/png")),
        ] {
            let file = site.file(path);
            assert_eq!((content(&file).as_str(), file.content_type), (expected, content_type), "{path}");
        }
        for path in ["/a", "/empty", "/odd/index.html"] {
            assert!(matches!(site.resolve(path), Ok(Found::Directory)), "{path}");
        }
        let long = format!("/{}", "x".repeat(256));
        let longer = "/x".repeat(4096);
        for path in ["/b", "/a/c", "/empty/", "/b/", "/index.html/", "/a/b.css/c", "/odd/", "/%0d", &long, &longer] {
            let unresolved = site.resolve(path).unwrap_err();
            assert_eq!((unresolved.status, unresolved.cause.is_some()), (Status::NotFound, false), "{path}");
        }
    }

    #[test]
    fn symbolic_links_stay_beneath_the_root() {
        let site = Site::new();
        site.write("a/b", "b");
        let link = |name: &str, target: &Path| symlink(target, site.path(name)).unwrap();
        link("relative", Path::new("a/b"));
        link("a/up", Path::new("../a/b"));
        link("dir", Path::new("a"));
        link("chain", Path::new("relative"));
        for path in ["/relative", "/a/up", "/dir/b", "/chain"] {
            assert_eq!(content(&site.file(path)), "b", "{path}");
        }
        assert!(matches!(site.resolve("/dir"), Ok(Found::Directory)));

        link("out", Path::new("../secret"));
        link("out-and-in", Path::new("../site/a/b"));
        link("parent", Path::new(".."));
        link("absolute", &site.outside.path().join("secret"));
        link("absolute-beneath", &site.path("a/b"));
        link("magic", Path::new("/proc/self/cwd"));
        link("loop", Path::new("loop"));
        for path in ["/out", "/out-and-in", "/parent/secret", "/absolute", "/absolute-beneath", "/magic/x", "/loop"] {
            let unresolved = site.resolve(path).unwrap_err();
            assert_eq!((unresolved.status, unresolved.cause.is_some()), (Status::NotFound, true), "{path}");
        }
        link("dangling", Path::new("nowhere"));
        assert!(site.resolve("/dangling").unwrap_err().cause.is_none());
    }

    #[test]
    fn what_is_not_a_regular_file_is_not_found_and_does_not_block() {
        let site = Site::new();
        mknodat(CWD, site.path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _listener = UnixListener::bind(site.path("socket")).unwrap();
        for path in ["/fifo", "/socket"] {
            let unresolved = site.resolve(path).unwrap_err();
            assert_eq!((unresolved.status, unresolved.cause.is_some()), (Status::NotFound, true), "{path}");
        }
    }

    #[test]
    fn a_file_that_changes_changes_its_tag() {
        let site = Site::new();
        let second = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let write = |name: &str, content: &str, modified: SystemTime| {
            site.write(name, content);
            File::options().write(true).open(site.path(name)).unwrap().set_modified(modified).unwrap();
        };
        write("a", "one", second);
        let first = site.file("/a");
        assert_eq!(first.modified.unwrap().to_string(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(site.file("/a").etag, first.etag, "unchanged");

        write("b", "two", second);
        fs::rename(site.path("b"), site.path("a")).unwrap();
        let replaced = site.file("/a");
        assert_ne!(replaced.etag, first.etag, "replaced, of the same size and date");
        assert_eq!((content(&first).as_str(), content(&replaced).as_str()), ("one", "two"), "the old one stays open");

        write("a", "three", second);
        let grown = site.file("/a");
        assert_ne!(grown.etag, replaced.etag, "grown, of the same date");

        write("a", "THREE", second + Duration::from_nanos(1));
        let rewritten = site.file("/a");
        assert_ne!(rewritten.etag, grown.etag, "of the same size and second");
        assert_eq!(rewritten.modified, grown.modified);
    }

    #[test]
    fn every_part_of_the_state_counts() {
        let tag = entity_tag([1; 6]);
        for changed in 0..6 {
            let mut state = [1; 6];
            state[changed] = 2;
            assert_ne!(entity_tag(state), tag, "{changed}");
        }
        let site = Site::new();
        site.write("a", "abc");
        let metadata = fs::metadata(site.path("a")).unwrap();
        let seconds = metadata.modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
        let [ino, len, mtime, mtime_nsec, ..] = state(&metadata);
        assert_eq!((ino, len), (metadata.ino(), 3));
        assert_eq!((mtime, mtime_nsec), (seconds.as_secs(), seconds.subsec_nanos().into()));
    }

    #[test]
    fn dates_that_http_cannot_say() {
        for (seconds, expected) in [
            (0, Some("Thu, 01 Jan 1970 00:00:00 GMT")),
            (253_402_300_799, Some("Fri, 31 Dec 9999 23:59:59 GMT")),
            (253_402_300_800, None),
        ] {
            let date = http_date(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(999_999_999));
            assert_eq!(date.map(|date| date.to_string()).as_deref(), expected, "{seconds}");
        }
        assert_eq!(http_date(UNIX_EPOCH - Duration::from_nanos(1)), None);
    }

    #[test]
    fn errors_become_the_statuses_of_the_table() {
        for (errno, status, has_cause) in [
            (Errno::NOENT, 404, false),
            (Errno::NOTDIR, 404, false),
            (Errno::NAMETOOLONG, 404, false),
            (Errno::XDEV, 404, true),
            (Errno::LOOP, 404, true),
            (Errno::NXIO, 404, true),
            (Errno::NODEV, 404, true),
            (Errno::ACCESS, 403, true),
            (Errno::PERM, 403, true),
            (Errno::MFILE, 503, true),
            (Errno::NFILE, 503, true),
            (Errno::NOMEM, 503, true),
            (Errno::AGAIN, 503, true),
            (Errno::IO, 500, true),
        ] {
            let unresolved = Unresolved::from(errno);
            assert_eq!((unresolved.status.code(), unresolved.cause.is_some()), (status, has_cause), "{errno}");
        }
    }

    #[test]
    fn a_root_that_cannot_be_served_says_what_to_do() {
        let site = Site::new();
        for (name, remedy) in [("nowhere", "create it"), ("../secret", "name a directory")] {
            let path = site.path(name);
            let message = Root::open(&path).unwrap_err().to_string();
            assert!(message.contains(path.to_str().unwrap()) && message.contains(remedy), "{message}");
        }
    }
}
