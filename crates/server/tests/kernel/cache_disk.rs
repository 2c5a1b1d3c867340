//! Stored responses on a disk that loses its last writes, fails, or becomes read-only. In guests, because it takes such a disk.

use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use sealion_testkit::generations::{Generations, Load, Tally};
use sealion_testkit::random::Random;
use sealion_testkit::server::Server;
use sealion_testkit::{Suite, http};

use crate::support::disk::{Disk, drop_caches};
use crate::support::often::{progress, times};
use crate::support::upstream::Upstream;
use crate::support::{PROGRAM, Site, content, messages, tool, wait_until};

fn serve(site: &Site, origin: &Upstream, directory: &Path) -> Server {
    let tables = format!(
        "[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = ['{}']\nsize = '16MB'\nfree = '0B'\n",
        origin.url(),
        directory.display()
    );
    let rule = "proxy = { to = 'app', cache = { purge_from = ['127.0.0.1'] } }";
    site.config(rule).table(&tables).serve()
}

/// Has a file read as another one until dropped.
struct Instead(&'static str);

impl Instead {
    fn of(path: &'static str, other: &Path) -> Self {
        tool("busybox", ["mount".as_ref(), "--bind".as_ref(), other.as_os_str(), path.as_ref()]);
        Self(path)
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        tool("busybox", ["umount", self.0]);
    }
}

/// Has the machine look as if it had been started again.
fn another_boot(site: &Site, n: usize) -> Instead {
    let path = site.outside().join(format!("boot-{n}"));
    fs::write(&path, format!("another boot: {n}\n")).expect("the file is written");
    Instead::of("/proc/sys/kernel/random/boot_id", &path)
}

/// Each setting of the kernel as it was, when dropped.
struct Settings(Vec<(&'static str, String)>);

impl Settings {
    fn set(settings: &[(&'static str, &str)]) -> Self {
        let before = settings.iter().map(|(path, _)| (*path, fs::read_to_string(path).expect("a setting"))).collect();
        settings.iter().for_each(|(path, value)| fs::write(path, value).expect("a guest's root may"));
        Self(before)
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.0.iter().for_each(|(path, value)| fs::write(path, value).expect("a guest's root may"));
    }
}

/// `SEALION_TIMES_LOST=100 cargo xtask guest --kernel 6.1 --timeout 3000 -p sealion -- cache_disk::` for more of them.
#[test]
fn a_loss_of_power_leaves_no_wrong_or_cut_body_and_forgets_no_purge() {
    let losses = times("SEALION_TIMES_LOST", 3);
    let site = Site::new();
    // The worst that ext4 does: lengths of files reach the disk before their content.
    let options = "noatime,commit=1,data=writeback,nodelalloc";
    let disk = Disk::with(&site.outside().join("disk"), &site.outside().join("image"), "has_journal", options);
    let directory = site.outside().join("disk/cache");
    // Some is written back at once, some never.
    let _settings = Settings::set(&[
        ("/proc/sys/vm/dirty_writeback_centisecs", "5"),
        ("/proc/sys/vm/dirty_expire_centisecs", "20"),
    ]);
    let generations = Generations::new();
    let origin = generations.origin();
    let connector = site.connector(Suite::TLS13);
    let (began, mut random) = (Instant::now(), Random::new());
    // Of early moments alone, hardly anything would be stored before.
    let is_enough = |tally: &Tally| tally.stored > 5 * losses as u64 && tally.purged > losses as u64;
    let mut n = 0;
    while n < losses || !is_enough(&generations.tally()) {
        assert!(n < 10 * losses, "hardly anything was tried: {:?}", generations.tally());
        let _boot = another_boot(&site, n);
        let mut server = serve(&site, &origin, &directory);
        generations.sweep(&connector, server.address()).expect("a sweep");
        let time = Duration::from_millis(random.below(2000) as u64);
        let load = Load::new(&connector, &server, PROGRAM.as_ref());
        generations.load_until_killed(&load, &mut server, time, || disk.lose_writes()).expect("a load");
        disk.start_again();
        n += 1;
        progress(began, n, losses, generations.tally());
    }
    let _boot = another_boot(&site, n);
    let server = serve(&site, &origin, &directory);
    generations.sweep(&connector, server.address()).expect("a sweep");
    drop(server);
    println!("{n} losses of power in {} s: {:?}", began.elapsed().as_secs(), generations.tally());
}

/// Blocks reach a disk in any order: the footer's may be written before the body's.
#[test]
fn a_large_body_of_which_a_block_was_lost_is_fetched_again() {
    let (site, origin) = (Site::new(), lengths());
    let directory = site.outside().join("cache");
    let length = 1_000_000;
    let first_boot = another_boot(&site, 0);
    let server = serve(&site, &origin, &directory);
    wait_until("it is stored", || {
        ask(&site, &server, length);
        stored(&directory, length).is_some()
    });
    drop(server);
    let object = stored(&directory, length).expect("it is there");
    let file = fs::File::options().write(true).open(object).expect("the file is opened");
    file.write_all_at(&[0; 4096], 400 << 10).expect("it is written to");
    drop(first_boot);
    let _second_boot = another_boot(&site, 1);
    let server = serve(&site, &origin, &directory);
    let fetches = origin.requests().len();
    ask(&site, &server, length);
    assert_eq!(origin.requests().len(), fetches + 1);
    assert_eq!(messages(&server, "a damaged object was removed"), 1);
}

/// An origin of contents: of `/N` there are N bytes.
fn lengths() -> Upstream {
    Upstream::answering(|request| {
        let length: u64 =
            request.line().rsplit_once('/').and_then(|(_, length)| length.parse().ok()).expect("a length");
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: {length}\r\n\r\n");
        [head.into_bytes(), content::bytes(0..length)].concat()
    })
}

/// The object below the directory of the cache whose body has so many bytes.
fn stored(directory: &Path, length: u64) -> Option<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().find_map(|entry| match entry.metadata() {
        // Files that are being written.
        _ if entry.file_name() == "temporary" => None,
        Ok(metadata) if metadata.is_dir() => stored(&entry.path(), length),
        Ok(metadata) => (length + 1..length + 1000).contains(&metadata.len()).then(|| entry.path()),
        Err(_) => None,
    })
}

fn ask(site: &Site, server: &Server, length: u64) {
    try_to_ask(site, server, length).expect("a response");
}

/// The response may be cut, but not as if it were whole.
fn try_to_ask(site: &Site, server: &Server, length: u64) -> io::Result<()> {
    let response = http::get(&mut site.connect(server), &format!("/{length}"))?;
    assert_eq!(response.status, 200);
    content::assert_equal(&response.body, 0..length);
    Ok(())
}

/// The server serves on while the disk has a fault, says so once, and stores again when the fault is over.
fn a_fault_costs_hits(site: &Site, fault: impl FnOnce(&dyn Fn())) {
    let directory = site.outside().join("disk/cache");
    let origin = lengths();
    let server = serve(site, &origin, &directory);
    let next = AtomicUsize::new(0);
    // Not kept in memory.
    let new_length = || 200_000 + 10_000 * next.fetch_add(1, Ordering::Relaxed) as u64;
    let old: Vec<_> = (0..4).map(|_| new_length()).collect();
    for length in &old {
        wait_until("it is stored", || {
            ask(site, &server, *length);
            stored(&directory, *length).is_some()
        });
    }
    let requests = AtomicUsize::new(0);
    let meanwhile = || {
        for length in old.iter().copied().chain([new_length(), new_length(), 1000]) {
            // A file that was open already may be found unreadable when the head of the response was chosen. Then it is forgotten.
            if try_to_ask(site, &server, length).is_err() {
                assert!(old.contains(&length), "{length}");
                ask(site, &server, length);
            }
            requests.fetch_add(1, Ordering::Relaxed);
        }
    };
    fault(&meanwhile);
    wait_until("it stores again", || {
        let length = new_length();
        ask(site, &server, length);
        stored(&directory, length).is_some()
    });
    // A response that is cut has a line of its own.
    let warnings = messages(&server, "WARN") - messages(&server, "the file cannot be read");
    assert!(
        (1..4).contains(&warnings),
        "{} requests, {warnings} warnings: {:#?}",
        requests.into_inner(),
        server.lines()
    );
}

#[test]
fn a_disk_that_fails_costs_hits_until_it_works_again() {
    let site = Site::new();
    // With a journal, ext4 would be read-only until it is mounted again.
    let disk = Disk::with(&site.outside().join("disk"), &site.outside().join("image"), "^has_journal", "noatime");
    a_fault_costs_hits(&site, |meanwhile| {
        let broken = disk.break_it();
        drop_caches();
        meanwhile();
        meanwhile();
        drop(broken);
    });
}

#[test]
fn a_disk_that_is_read_only_costs_no_hits_and_stores_nothing_until_it_is_writable() {
    let site = Site::new();
    let disk = Disk::mount(&site.outside().join("disk"), &site.outside().join("image"));
    a_fault_costs_hits(&site, |meanwhile| {
        disk.make_read_only();
        meanwhile();
        meanwhile();
        disk.make_writable();
    });
}

/// Responses that are not in memory are fetched from the origin, whole, and the disk is used again.
#[test]
fn a_disk_that_stands_still_costs_hits_until_it_moves() {
    const LENGTH: u64 = 300_000;
    let site = Site::new();
    let disk = Disk::mount(&site.outside().join("disk"), &site.outside().join("image"));
    let directory = site.outside().join("disk/cache");
    let origin = lengths();
    let server = serve(&site, &origin, &directory);
    let is_stored = |length| {
        wait_until("it is stored", || {
            ask(&site, &server, length);
            stored(&directory, length).is_some()
        });
    };
    is_stored(LENGTH);
    let object = fs::File::open(stored(&directory, LENGTH).expect("it is there")).expect("the file is opened");
    let mut still = None;
    wait_until("nothing of it is in memory", || {
        drop(still.take());
        drop_caches();
        still = Some(disk.stand_still());
        // The kernel keeps pages that it is using.
        (0..LENGTH).step_by(4096).all(|at| is_cold(&object, at))
    });
    // Later hits of a second rely on the look of its first one.
    let second = || SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970").as_secs();
    let last = second();
    wait_until("another second has begun", || second() > last);
    for _ in 0..3 {
        let fetches = origin.requests().len();
        ask(&site, &server, LENGTH);
        assert_eq!(origin.requests().len(), fetches + 1);
    }
    drop(still);
    server.wait_for("the disk is used again", |line| line.text.contains("the disk answers again"));
    is_stored(LENGTH + 1);
    assert_eq!(messages(&server, "it is bypassed until it does"), 1);
}

/// Whether a byte of a file is not in memory.
fn is_cold(file: &fs::File, at: u64) -> bool {
    let read = preadv2(file, &mut [IoSliceMut::new(&mut [0])], at, ReadWriteFlags::NOWAIT);
    read == Err(Errno::AGAIN)
}
