use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, mknodat};
use sealion_http::request::FieldLines;

use super::*;
use crate::files::cache::{CacheLimits, FileCache, Files};

struct Site {
    outside: tempfile::TempDir,
    files: Files,
}

impl Site {
    /// A root called `site` beside a file called `secret`.
    fn new() -> Self {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        fs::create_dir(outside.path().join("site")).unwrap();
        let root = Root::open(&outside.path().join("site")).unwrap();
        let nothing_kept = CacheLimits { age: Duration::ZERO, ..CacheLimits::default() };
        Site { outside, files: Files::new(root, "index.html".into(), &FileCache::new(nothing_kept)) }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.outside.path().join("site").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    /// A file of three bytes, dated 1994. Each call opens it again.
    fn file_written(&self, name: &str) -> Arc<SiteFile> {
        self.write(name, "abc");
        let modified = UNIX_EPOCH + Duration::from_secs(784_111_777);
        File::options().write(true).open(self.path(name)).unwrap().set_modified(modified).unwrap();
        self.file(&format!("/{name}"))
    }

    fn resolve(&self, path: &str) -> Result<Found, Unresolved> {
        self.files.find_for_tests(path, &FieldLines::default(), Instant::now())
    }

    fn file(&self, path: &str) -> Arc<SiteFile> {
        match self.resolve(path) {
            Ok(Found::File(file)) => file,
            other => panic!("{path}: {other:?}"),
        }
    }
}

fn content(file: &SiteFile) -> String {
    String::from_utf8(file.read(0..file.len)).unwrap()
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
        ("/", "root", ContentType::Text("text/html")),
        ("/index.html", "root", ContentType::Text("text/html")),
        ("/a/", "index of a", ContentType::Text("text/html")),
        ("/a/b.css", "b", ContentType::Text("text/css")),
        ("/empty/x", "", ContentType::Plain("application/octet-stream")),
        ("/%ff.png", "not UTF-8", ContentType::Plain("image/png")),
    ] {
        let file = site.file(path);
        assert_eq!((content(&file).as_str(), &file.content_type), (expected, &content_type), "{path}");
    }
    for path in ["/a", "/empty", "/odd/index.html"] {
        assert!(matches!(site.resolve(path), Ok(Found::Directory)), "{path}");
    }
    let long = format!("/{}", "x".repeat(256));
    let longer = "/x".repeat(4096);
    for path in ["/b", "/a/c", "/empty/", "/b/", "/index.html/", "/a/b.css/c", "/odd/", "/%0d", &long, &longer] {
        let unresolved = site.resolve(path).unwrap_err();
        assert_eq!((unresolved.status, unresolved.cause.is_some()), (Status::NOT_FOUND, false), "{path}");
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
        assert_eq!((unresolved.status, unresolved.cause.is_some()), (Status::NOT_FOUND, true), "{path}");
    }
    link("dangling", Path::new("nowhere"));
    assert!(site.resolve("/dangling").unwrap_err().cause.is_none());
}

#[test]
fn special_files_are_not_found_and_do_not_block() {
    let site = Site::new();
    mknodat(CWD, site.path("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _listener = UnixListener::bind(site.path("socket")).unwrap();
    for path in ["/fifo", "/socket"] {
        let unresolved = site.resolve(path).unwrap_err();
        assert_eq!((unresolved.status, unresolved.cause.is_some()), (Status::NOT_FOUND, true), "{path}");
    }
}

#[test]
fn entity_tag_changes_with_the_file() {
    let site = Site::new();
    let second = UNIX_EPOCH + Duration::from_secs(784_111_777);
    let write = |name: &str, content: &str, modified: SystemTime| {
        site.write(name, content);
        File::options().write(true).open(site.path(name)).unwrap().set_modified(modified).unwrap();
    };
    write("a", "one", second);
    let first = site.file("/a");
    assert_eq!(first.modified.unwrap().as_bytes(), b"Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(site.file("/a").etag, first.etag, "unchanged");

    write("b", "two", second);
    fs::rename(site.path("b"), site.path("a")).unwrap();
    let replaced = site.file("/a");
    assert_eq!(replaced.etag, first.etag, "size and date are those of the one before, as on a replica");
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
fn entity_tag_depends_on_every_part_of_the_state() {
    let now = [10, 0];
    for (tags, members) in [(EntityTags::Inode, 0..7), (EntityTags::Modified, 2..5)] {
        let tag = State([3; 7]).entity_tag(tags, now);
        for changed in 0..7 {
            let mut state = [3; 7];
            state[changed] = 4;
            assert_eq!(State(state).entity_tag(tags, now) != tag, members.contains(&changed), "{tags:?} {changed}");
        }
        assert!(!tag.is_weak());
    }
    let site = Site::new();
    site.write("a", "abc");
    let metadata = fs::metadata(site.path("a")).unwrap();
    let seconds = metadata.modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
    let State([dev, ino, len, mtime, mtime_nsec, ..]) = State::of(&metadata);
    assert_eq!((dev, ino, len), (metadata.dev(), metadata.ino(), 3));
    assert_eq!((mtime, mtime_nsec), (seconds.as_secs(), seconds.subsec_nanos().into()));
}

#[test]
fn an_entity_tag_is_weak_while_the_file_may_change_without_a_change_of_time() {
    let modified = |time: [u64; 2], now| State([9, 9, 9, time[0], time[1], 8, 8]).entity_tag(EntityTags::Modified, now);
    for (time, now, weak) in [
        ([100, 5], [100, 6], false),
        ([100, 5], [100, 5], true),
        ([100, 6], [100, 5], true),
        // Whole seconds.
        ([100, 0], [100, 999], true),
        ([100, 0], [101, 0], true),
        ([100, 0], [101, 1], false),
        ([-5_i64 as u64, 0], [100, 0], false),
    ] {
        let tag = modified(time, now);
        assert_eq!(tag.is_weak(), weak, "{time:?} at {now:?}");
        assert_eq!(tag.opaque(), modified(time, [1 << 40, 0]).opaque(), "only the weakness changes with time");
    }
}

#[test]
fn a_date_that_all_files_share_makes_no_entity_tag() {
    for date in [0, 1] {
        let of_inode = |inode| State([9, inode, 9, date, 0, 8, 8]).entity_tag(EntityTags::Modified, [100, 0]);
        assert_ne!(of_inode(1), of_inode(2), "{date}");
    }
}

#[test]
fn replicas_share_entity_tags_and_a_change_of_permissions_keeps_them() {
    let (one, other) = (Site::new(), Site::new());
    let second = UNIX_EPOCH + Duration::new(784_111_777, 5);
    for site in [&one, &other] {
        site.write("a", "one");
        File::options().write(true).open(site.path("a")).unwrap().set_modified(second).unwrap();
    }
    let tag = one.file("/a").etag;
    assert_eq!(other.file("/a").etag, tag);
    fs::set_permissions(one.path("a"), std::os::unix::fs::PermissionsExt::from_mode(0o644 & !0o022)).unwrap();
    assert_eq!(one.file("/a").etag, tag);
}

#[test]
fn a_sibling_of_equal_size_and_time_has_a_tag_of_its_own() {
    let site = Site::new();
    let original = site.file_written("a.txt");
    let mut tags = vec![original.etag];
    for coding in Coding::ALL {
        let mut sibling = site.file_written("a.txt");
        Arc::get_mut(&mut sibling).unwrap().become_sibling(&original, coding);
        assert!(!tags.contains(&sibling.etag) && !sibling.etag.is_weak(), "{coding:?}");
        tags.push(sibling.etag);
    }
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
fn root_errors_name_path_and_remedy() {
    let site = Site::new();
    for (name, remedy) in [("nowhere", "create it"), ("../secret", "name a directory")] {
        let path = site.path(name);
        let message = Root::open(&path).unwrap_err().to_string();
        assert!(message.contains(path.to_str().unwrap()) && message.contains(remedy), "{message}");
    }
}
