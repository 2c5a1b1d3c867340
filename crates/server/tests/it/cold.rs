//! Files whose pages are on the disk and not in memory. The site lies in the build's directory: a disk is needed, whose file
//! system can tell what it holds in memory (RWF_NOWAIT).

use std::fs::{self, File};
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use sealion_testkit::http;
use sealion_testkit::server::Server;

use crate::support::process::threads;
use crate::support::{Site, content, tool};

const DISK: &str = env!("CARGO_TARGET_TMPDIR");

/// Several turns of a worker, and an end within a page.
const LEN: u64 = (5 << 20) + 7;

/// Writes the file out and has the kernel forget its pages.
///
/// # Panics
/// Where the kernel cannot: there the tests would say nothing.
#[track_caller]
fn make_cold(path: &Path) {
    let file = File::open(path).expect("it opens");
    if let Err(error) = preadv2(&file, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT)
        && error != Errno::AGAIN
    {
        panic!("{}: {error}: {NEEDED}", path.display());
    }
    // A page that is being written back stays in memory.
    for _ in 0..100 {
        file.sync_all().expect("it is written out");
        fadvise(&file, 0, None, Advice::DontNeed).expect("the advice is taken");
        // Not asked by reading, which would begin to read ahead.
        let arguments = ["--bytes", "--noheadings", "--output", "RES"].map(AsRef::as_ref);
        if tool("fincore", arguments.into_iter().chain([path.as_os_str()])).trim() == "0" {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{}: its pages stay in memory: {NEEDED}", path.display());
}

const NEEDED: &str = "these tests need a build directory (CARGO_TARGET_DIR) on a disk whose file system knows RWF_NOWAIT, \
                      such as ext4, XFS or btrfs";

/// Bytes that the threads of the server have had read from disks in all. They count for the thread that asks the disk, which
/// need not be the thread that waits for it.
fn read_from_disk(server: &Server) -> u64 {
    let read = |path: PathBuf| {
        let io = fs::read_to_string(path.join("io")).expect("the kernel accounts for input and output");
        let bytes = io.lines().find_map(|line| line.strip_prefix("read_bytes: ")).expect("bytes that were read");
        bytes.parse::<u64>().expect("a number")
    };
    threads(server).into_iter().map(read).sum()
}

/// How many threads there are that wait for others.
fn waiting_threads(server: &Server) -> usize {
    let name = |path: &PathBuf| fs::read_to_string(path.join("comm")).expect("a thread has a name");
    let names: Vec<String> = threads(server).iter().map(name).collect();
    let count = |prefix| names.iter().filter(|name| name.starts_with(prefix)).count();
    assert_eq!(count("worker-"), 1, "{names:?}");
    count("tokio-") + count("disk")
}

#[test]
fn what_is_in_memory_takes_no_other_thread() {
    let site = Site::beneath(Path::new(DISK));
    let files = [("/large", LEN), ("/small", 30_000)];
    files.iter().for_each(|(name, len)| drop(site.add_large(&name[1..], *len)));
    let server = site.serve_from_user_space(&["--workers", "1"]);
    let mut client = site.connect(&server);
    for _ in 0..2 {
        for (target, len) in files {
            content::assert_equal(&http::get(&mut client, target).expect("an answer").body, 0..len);
        }
    }
    assert_eq!(waiting_threads(&server), 0);
}

#[test]
fn a_body_on_the_disk_comes_by_another_thread() {
    let site = Site::beneath(Path::new(DISK));
    for (n, range) in [0..LEN, LEN - 100..LEN, 1_000_001..3_000_000].into_iter().enumerate() {
        let path = site.add_large(&format!("f{n}"), LEN);
        let server = site.serve_from_user_space(&["--workers", "1"]);
        let mut client = site.connect(&server);
        let target = format!("/f{n}");
        assert_eq!(http::request(&mut client, "HEAD", &target, &[]).expect("an answer").status, 200);
        assert_eq!(waiting_threads(&server), 0, "the name is known");
        make_cold(&path);
        let before = read_from_disk(&server);
        let value = format!("bytes={}-{}", range.start, range.end - 1);
        let got = http::request(&mut client, "GET", &target, &[("Range", &value)]).expect("an answer");
        content::assert_equal(&got.body, range.clone());
        assert_ne!(waiting_threads(&server), 0, "{range:?}");
        let read = read_from_disk(&server) - before;
        assert!(read >= range.end - range.start, "{range:?}: {read} bytes were read from the disk");
        // The bytes that it fetched are there now.
        let again = http::request(&mut client, "GET", &target, &[("Range", &value)]).expect("an answer");
        content::assert_equal(&again.body, range);
    }
}

/// One that is to be kept in memory is read before the response begins.
#[test]
fn a_small_file_on_the_disk_comes_by_another_thread() {
    const LEN: u64 = 30_000;
    let site = Site::beneath(Path::new(DISK));
    let path = site.add_large("f", LEN);
    let server = site.serve_from_user_space(&["--workers", "1"]);
    make_cold(&path);
    let before = read_from_disk(&server);
    let mut client = site.connect(&server);
    content::assert_equal(&http::get(&mut client, "/f").expect("an answer").body, 0..LEN);
    assert_ne!(waiting_threads(&server), 0);
    assert!(read_from_disk(&server) - before >= LEN);
    // From memory, whatever the disk has.
    make_cold(&path);
    let before = read_from_disk(&server);
    content::assert_equal(&http::get(&mut client, "/f").expect("an answer").body, 0..LEN);
    assert_eq!(read_from_disk(&server), before);
}
