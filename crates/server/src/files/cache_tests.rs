use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use sealion_http::Status;

use super::worker::{in_memory, is_open};
use super::*;
use crate::files::resolve::Content;

/// A root called `site`, a file called `secret` beside it, and a clock that only the test advances.
struct Site {
    outside: tempfile::TempDir,
    files: Files,
    now: Instant,
}

impl Site {
    fn new(limits: CacheLimits) -> Self {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        fs::create_dir(outside.path().join("site")).unwrap();
        let root = Root::open(&outside.path().join("site")).unwrap();
        Site { outside, files: Files::new(root, "index.html".into(), &FileCache::new(limits)), now: Instant::now() }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.outside.path().join("site").join(name)
    }

    /// Replaces a file atomically, by rename. Returns when the file may be cached.
    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let new = self.outside.path().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.path(name)).unwrap();
        self.settle(name);
    }

    /// Waits out the tick of the clock in which the file changed.
    fn settle(&self, name: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let file = match self.files.root.resolve(name.as_bytes(), 0, Wait::Yes) {
                Ok(Found::File(file)) => file,
                other => panic!("{name}: {other:?}"),
            };
            if file.is_settled() {
                return;
            }
            assert!(Instant::now() < deadline, "the file system clock stands still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ask(&self, path: &str) -> Result<Found, Unresolved> {
        let path = SitePath::parse(path, true).unwrap();
        let found = match self.files.try_find(&path, &FieldLines::default(), None, self.now) {
            Err(Missing::WouldBlock(task)) => {
                self.files.try_find(&path, &FieldLines::default(), Some(run(task)), self.now)
            }
            found => found,
        };
        found.map_err(|missing| match missing {
            Missing::Unresolved(unresolved) => unresolved,
            Missing::WouldBlock(_) => panic!("{path:?}: still not found after the blocking task"),
        })
    }

    fn file(&self, path: &str) -> Arc<SiteFile> {
        match self.ask(path) {
            Ok(Found::File(file)) => file,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn status(&self, path: &str) -> Status {
        self.ask(path).unwrap_err().status
    }

    /// Entries in the cache, and their bytes in memory. Checks the running totals against sums.
    fn kept(&self) -> (usize, usize) {
        let cache = self.files.cache.workers.get().unwrap().borrow();
        let memory = cache
            .entries
            .iter()
            .map(|(_, entry)| entry.opened.files().map(|file| in_memory(file)).sum::<usize>())
            .sum();
        let files = || cache.entries.iter().flat_map(|(_, entry)| entry.opened.files());
        let names =
            cache.entries.iter().map(|(name, entry)| name.len() + entry.opened.memory_of_variants()).sum::<usize>();
        assert_eq!(cache.memory, memory + names + files().count() * OVERHEAD, "running total of memory");
        assert_eq!(cache.open, files().filter(|file| is_open(file)).count(), "running total of open files");
        (cache.entries.len(), memory)
    }
}

fn limits() -> CacheLimits {
    CacheLimits { age: AGE, ..CacheLimits::default() }
}

const AGE: Duration = Duration::from_secs(1);

const MOMENT: Duration = Duration::from_millis(1);

fn all(file: &SiteFile) -> Vec<u8> {
    file.read(0..file.len)
}

#[test]
fn a_replaced_file_in_memory_is_served_unchanged_until_its_age() {
    for len in [10, KEPT_IN_MEMORY as usize] {
        let mut site = Site::new(limits());
        site.put("f", vec![b'1'; len]);
        let old = site.file("/f");
        site.put("f", vec![b'2'; len]);
        site.now += AGE - MOMENT;
        let kept = site.file("/f");
        assert!(Arc::ptr_eq(&old, &kept), "{len}");
        assert_eq!((all(&kept), kept.etag), (vec![b'1'; len], old.etag), "{len}");
        site.now += MOMENT;
        let new = site.file("/f");
        assert_eq!(all(&new), vec![b'2'; len], "{len}");
        assert_ne!(new.etag, old.etag, "{len}");
        assert!(Arc::ptr_eq(&new, &site.file("/f")), "{len}: the new one is kept too");
    }
}

/// Removing the last link changes the file itself. A file with another name stays until its age is over.
#[test]
fn a_replaced_file_on_the_disk_is_noticed_at_once() {
    let mut site = Site::new(limits());
    let len = KEPT_IN_MEMORY as usize + 1;
    site.put("f", vec![b'1'; len]);
    let old = site.file("/f");
    assert!(matches!(old.content, Content::File(_)));
    assert!(Arc::ptr_eq(&old, &site.file("/f")));
    site.put("f", vec![b'2'; len]);
    let new = site.file("/f");
    assert_eq!((all(&new), all(&old)), (vec![b'2'; len], vec![b'1'; len]));
    // A link that is redirected to another file leaves the first file unchanged.
    site.put("g", vec![b'3'; len]);
    symlink("f", site.path("link")).unwrap();
    let linked = site.file("/link");
    symlink("g", site.path("other")).unwrap();
    fs::rename(site.path("other"), site.path("link")).unwrap();
    assert!(Arc::ptr_eq(&linked, &site.file("/link")));
    site.now += AGE;
    assert_eq!(all(&site.file("/link")), vec![b'3'; len]);
}

/// Revalidation renews the age; requests do not.
#[test]
fn the_age_counts_from_the_last_revalidation() {
    let mut site = Site::new(limits());
    site.put("f", "1");
    let old = site.file("/f");
    site.now += AGE;
    assert!(Arc::ptr_eq(&old, &site.file("/f")), "unchanged: the same file, revalidated");
    site.put("f", "2");
    for _ in 0..9 {
        site.now += AGE / 10;
        assert!(Arc::ptr_eq(&old, &site.file("/f")));
    }
    site.now += AGE / 10;
    assert_eq!(all(&site.file("/f")), b"2");
}

#[test]
fn a_file_on_the_disk_modified_in_place_is_noticed_at_once() {
    let site = Site::new(limits());
    let len = KEPT_IN_MEMORY as usize + 1;
    site.put("f", vec![b'1'; len]);
    let old = site.file("/f");
    assert!(matches!(old.content, Content::File(_)));
    let writer = fs::File::options().write(true).open(site.path("f")).unwrap();
    writer.write_all_at(b"2", 0).unwrap();
    site.settle("f");
    assert!(!old.is_intact());
    let new = site.file("/f");
    assert_ne!(new.etag, old.etag);
    assert_eq!(new.read(0..2), b"21");
    // Now short enough to be kept in memory.
    writer.set_len(5).unwrap();
    site.settle("f");
    let short = site.file("/f");
    assert!(matches!(short.content, Content::Memory(_)));
    assert_eq!(all(&short), b"21111");
}

#[test]
fn a_file_in_memory_modified_in_place_stays_whole_until_its_age() {
    let mut site = Site::new(limits());
    site.put("f", "before");
    let old = site.file("/f");
    assert!(matches!(old.content, Content::Memory(_)));
    fs::write(site.path("f"), "now").unwrap();
    let kept = site.file("/f");
    assert_eq!((all(&kept).as_slice(), kept.len, kept.etag), (&b"before"[..], 6, old.etag));
    site.now += AGE;
    let new = site.file("/f");
    assert_eq!((all(&new).as_slice(), new.len), (&b"now"[..], 3));
    assert_ne!(new.etag, old.etag);
}

/// Two changes within a tick can have equal time stamps. If the content was read between them, the second change would
/// never be noticed.
#[test]
fn a_file_that_changed_within_the_tick_is_not_cached() {
    let deadline = Instant::now() + Duration::from_secs(10);
    let (site, young) = loop {
        // A new cache each time, because a file that was read after its tick stays in the cache.
        let site = Site::new(limits());
        fs::write(site.path("f"), "just now").unwrap();
        let file = site.file("/f");
        if !file.is_settled() {
            break (site, file);
        }
        assert!(Instant::now() < deadline, "a tick of the file system clock passes each time");
    };
    assert_eq!(site.kept(), (0, 0));
    assert_eq!(all(&young), b"just now");
    site.settle("f");
    let kept = site.file("/f");
    assert!(Arc::ptr_eq(&kept, &site.file("/f")));
    assert_eq!(site.kept(), (1, 8));
}

#[test]
fn a_deleted_file_is_gone_after_its_age() {
    let mut site = Site::new(limits());
    site.put("f", "1");
    site.put("large", vec![b'1'; KEPT_IN_MEMORY as usize + 1]);
    site.file("/f");
    site.file("/large");
    fs::remove_file(site.path("f")).unwrap();
    fs::remove_file(site.path("large")).unwrap();
    assert_eq!(all(&site.file("/f")), b"1");
    assert_eq!(site.status("/large"), Status::NOT_FOUND, "removing the last link changed it");
    site.now += AGE;
    assert_eq!(site.status("/f"), Status::NOT_FOUND);
    assert_eq!(site.kept(), (0, 0), "a deleted file is not cached");
}

#[test]
fn a_link_that_begins_to_lead_out_of_the_root_is_refused_after_its_age() {
    let mut site = Site::new(limits());
    site.put("f", "inside");
    symlink("f", site.path("link")).unwrap();
    assert_eq!(all(&site.file("/link")), b"inside");
    symlink("../secret", site.path("out")).unwrap();
    fs::rename(site.path("out"), site.path("link")).unwrap();
    assert_eq!(all(&site.file("/link")), b"inside");
    site.now += AGE;
    let refused = site.ask("/link").unwrap_err();
    assert_eq!((refused.status, refused.cause.is_some()), (Status::NOT_FOUND, true));
    assert_eq!(site.kept(), (0, 0));
}

/// The same through a directory above the file.
#[test]
fn a_directory_that_begins_to_lead_out_of_the_root_is_refused_after_its_age() {
    let mut site = Site::new(limits());
    fs::create_dir(site.path("d")).unwrap();
    site.put("d/secret", "inside");
    assert_eq!(all(&site.file("/d/secret")), b"inside");
    fs::rename(site.path("d"), site.path("moved")).unwrap();
    symlink("..", site.path("d")).unwrap();
    site.now += AGE;
    assert!(site.ask("/d/secret").unwrap_err().cause.is_some());
    assert_eq!(all(&site.file("/moved/secret")), b"inside");
}

#[test]
fn a_file_that_appears_is_served_at_once() {
    let site = Site::new(limits());
    assert_eq!(site.status("/f"), Status::NOT_FOUND);
    assert_eq!(site.status("/"), Status::NOT_FOUND);
    site.put("f", "here");
    site.put("index.html", "index");
    assert_eq!(all(&site.file("/f")), b"here");
    assert_eq!(all(&site.file("/")), b"index");
}

#[test]
fn directories_are_not_kept() {
    let site = Site::new(limits());
    fs::create_dir(site.path("d")).unwrap();
    assert!(matches!(site.ask("/d"), Ok(Found::Directory)));
    fs::remove_dir(site.path("d")).unwrap();
    site.put("d", "a file");
    assert_eq!(all(&site.file("/d")), b"a file");
}

#[test]
fn nothing_is_kept_with_an_age_of_zero() {
    let site = Site::new(CacheLimits { age: Duration::ZERO, ..limits() });
    site.put("f", "1");
    let old = site.file("/f");
    assert!(matches!(old.content, Content::File(_)));
    site.put("f", "2");
    assert_eq!(all(&site.file("/f")), b"2");
    assert!(site.files.cache.workers.get().is_none());
    fs::remove_file(site.path("f")).unwrap();
    assert_eq!(site.status("/f"), Status::NOT_FOUND);
}

/// The memory of a file of one byte with a name of one byte.
const ONE_BYTE: usize = OVERHEAD + 6;

#[test]
fn the_least_recently_used_files_are_evicted_first() {
    let site = Site::new(CacheLimits { memory: 3 * ONE_BYTE, ..limits() });
    for name in ["a", "b", "c", "d"] {
        site.put(name, name);
    }
    let [a, b, c] = ["/a", "/b", "/c"].map(|path| site.file(path));
    assert!(Arc::ptr_eq(&a, &site.file("/a")));
    site.file("/d");
    assert!(Arc::ptr_eq(&b, &site.file("/b")), "a file that missed once pushes out nothing");
    let [a, c] = [("/a", a), ("/c", c)].map(|(path, file)| {
        assert!(Arc::ptr_eq(&file, &site.file(path)));
        file
    });
    let d = site.file("/d");
    assert!(Arc::ptr_eq(&d, &site.file("/d")), "the second miss keeps it");
    assert_eq!(site.kept(), (3, 3));
    assert!(Arc::ptr_eq(&a, &site.file("/a")) && Arc::ptr_eq(&c, &site.file("/c")));
    assert!(!Arc::ptr_eq(&b, &site.file("/b")));
    assert_eq!(site.kept(), (3, 3));
}

/// Files in memory hold no descriptor.
#[test]
fn open_files_have_a_bound_of_their_own() {
    let site = Site::new(CacheLimits { open: 2, ..limits() });
    let large = vec![b'x'; KEPT_IN_MEMORY as usize + 1];
    for n in 0..9 {
        site.put(&format!("small{n}"), "small");
        site.put(&format!("large{n}"), &large);
        for _ in 0..2 {
            site.file(&format!("/small{n}"));
            site.file(&format!("/large{n}"));
        }
        let cache = site.files.cache.workers.get().unwrap().borrow();
        assert!(cache.open <= 2, "{}", cache.open);
    }
    assert!(matches!(site.file("/large8").content, Content::File(_)));
    let small = site.file("/small8");
    assert!(Arc::ptr_eq(&small, &site.file("/small8")));
}

/// Otherwise a popular file would be read again after each deployment.
#[test]
fn a_changed_file_of_a_full_cache_is_kept_at_once() {
    let mut site = Site::new(CacheLimits { memory: ONE_BYTE, ..limits() });
    site.put("f", "1");
    site.file("/f");
    site.put("f", "2");
    site.now += AGE;
    let new = site.file("/f");
    assert_eq!(all(&new), b"2");
    assert!(Arc::ptr_eq(&new, &site.file("/f")));
}

/// It is sent from disk without a copy.
#[test]
fn a_file_that_is_not_kept_stays_out_of_memory() {
    let site = Site::new(CacheLimits { memory: ONE_BYTE, ..limits() });
    site.put("f", "1");
    site.put("g", "2");
    site.file("/f");
    let once = site.file("/g");
    assert!(matches!(once.content, Content::File(_)));
    assert_eq!((all(&once).as_slice(), site.kept()), (&b"2"[..], (1, 1)));
    assert!(matches!(site.file("/g").content, Content::Memory(_)));
}

#[test]
fn memory_stays_within_its_bound() {
    const MEMORY: usize = 1000 + OVERHEAD + 6;
    let mut site = Site::new(CacheLimits { memory: MEMORY, ..limits() });
    for (n, len) in [1, 999, 1000, 400, 600, 601, 0, 1007, 300].into_iter().enumerate() {
        let name = format!("f{n}");
        site.put(&name, vec![b'x'; len]);
        // A cache that is nearly full keeps a file the second time.
        site.file(&format!("/{name}"));
        let file = site.file(&format!("/{name}"));
        assert_eq!(in_memory(&file), if len <= 1000 { len } else { 0 });
        assert!(site.kept().1 <= 1000, "{len}: {:?}", site.kept());
        assert!(Arc::ptr_eq(&file, &site.file(&format!("/{name}"))), "{len}: the newest is kept");
    }
    // The same again, with each file replaced by one of another length.
    site.now += AGE;
    for n in 0..9 {
        let name = format!("f{n}");
        site.put(&name, vec![b'y'; 130 * n]);
        assert_eq!(all(&site.file(&format!("/{name}"))), vec![b'y'; 130 * n]);
        assert!(site.kept().1 <= 1000, "{:?}", site.kept());
    }
}

#[test]
fn unused_files_are_evicted() {
    let mut site = Site::new(limits());
    for name in ["used", "unused"] {
        site.put(name, name);
    }
    let unused = Arc::downgrade(&site.file("/unused"));
    site.file("/used");
    let end = site.now + INACTIVE;
    while site.now < end {
        site.now += AGE;
        site.file("/used");
    }
    assert_eq!(site.kept().0, 2, "it was requested exactly {INACTIVE:?} ago");
    site.now += INACTIVE / 4 + MOMENT;
    site.file("/used");
    assert_eq!(site.kept(), (1, 4));
    assert!(unused.upgrade().is_none(), "the file is closed");
}

/// Without requests, no lookup would ever evict it.
#[test]
fn a_deleted_file_is_closed_although_nothing_is_requested() {
    let site = Site::new(limits());
    site.put("deleted", "gone");
    let deleted = Arc::downgrade(&site.file("/deleted"));
    let cache = &site.files.cache;
    cache.sweep(site.now + INACTIVE);
    assert!(deleted.upgrade().is_some(), "it was requested exactly {INACTIVE:?} ago");
    cache.sweep(site.now + INACTIVE + SWEEP + MOMENT);
    assert!(deleted.upgrade().is_none(), "the file is closed");
    assert_eq!(site.kept(), (0, 0));
}

/// A name that was never looked up is not in the kernel's cache.
#[test]
fn disk_lookups_run_in_a_blocking_task() {
    let site = Site::new(limits());
    let path = SitePath::parse("/never-looked-up", true).unwrap();
    let Err(Missing::WouldBlock(task)) = site.files.try_find(&path, &FieldLines::default(), None, site.now) else {
        panic!("answered without the disk")
    };
    let result = std::thread::spawn(|| run(task)).join().unwrap();
    match site.files.try_find(&path, &FieldLines::default(), Some(result), site.now) {
        Err(Missing::Unresolved(unresolved)) => assert_eq!(unresolved.status, Status::NOT_FOUND),
        other => panic!("{other:?}"),
    }
    // The result is cached: while it is fresh, it is not looked up again.
    site.put("f", "content");
    let path = SitePath::parse("/f", true).unwrap();
    let root = Arc::clone(&site.files.root);
    let task = BlockingTask(Task::Open { root, coder: None, name: (*b"f").into(), keep: limits().keep() });
    let Ok(Found::File(file)) = site.files.try_find(&path, &FieldLines::default(), Some(run(task)), site.now) else {
        panic!("not found")
    };
    assert!(Arc::ptr_eq(&file, &site.file("/f")));
    assert_eq!((site.kept(), all(&file).as_slice()), ((1, 7), &b"content"[..]));
}

/// Files of /proc always need a blocking task, because their names are created on lookup.
#[test]
fn a_file_that_needs_a_blocking_task_is_found() {
    let files =
        Files::new(Root::open(Path::new("/proc/self")).unwrap(), "index.html".into(), &FileCache::new(limits()));
    let path = SitePath::parse("/attr/current", true).unwrap();
    let now = Instant::now();
    let Err(Missing::WouldBlock(task)) = files.try_find(&path, &FieldLines::default(), None, now) else {
        panic!("answered without asking")
    };
    assert!(matches!(files.try_find(&path, &FieldLines::default(), Some(run(task)), now), Ok(Found::File(_))));
    assert!(matches!(files.find_for_tests("/attr/current", &FieldLines::default(), now), Ok(Found::File(_))));
}

/// Runs a task on this thread.
fn run(task: BlockingTask) -> TaskResult {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task.run()).unwrap()
}
