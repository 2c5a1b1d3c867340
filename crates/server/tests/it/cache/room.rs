//! The room that a disk has: a full one removes what is worth least, and purged files go.

use std::fs;
use std::path::Path;

use rustix::fs::statvfs;
use rustix::process::Signal;

use super::disk::{objects, wait_until_stored};
use super::orders::{order, succeeds};
use super::{Cached, answer, counting, status};
use crate::support::upstream::Upstream;
use crate::support::{Tmpfs, messages, tool, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\n";
const FILE_SYSTEM: &str = "16m";
/// In a file, not in the memory of a worker.
const BODY: usize = 200_000;

fn origin() -> Upstream {
    let body = vec![b'x'; BODY];
    Upstream::answering(move |_| answer(200, FRESH, &body))
}

/// A server whose cache may be larger than its file system.
fn on_a_small_disk(origin: Upstream, table: &'static str) -> (Tmpfs, Cached) {
    let mut cached = Cached::stopped(origin, table, "");
    let mounted = Tmpfs::mount(&cached.directory, FILE_SYSTEM);
    cached.restart();
    (mounted, cached)
}

/// Bytes that are free on the file system.
fn free(directory: &Path) -> u64 {
    let stat = statvfs(directory).expect("it is mounted");
    stat.f_bavail * stat.f_frsize
}

/// Stores a part of the file system's size more than there is room for.
fn overfill(cached: &Cached) {
    for n in 0..120 {
        assert_eq!(cached.get(&format!("/{n}"), &[]).body.len(), BODY);
    }
}

#[test]
fn a_full_disk_removes_what_is_worth_least_and_stores_on() {
    let (mounted, mut cached) = on_a_small_disk(origin(), "size = '100MB'\nfree = '0B'");
    overfill(&cached);
    for n in 0..3 {
        wait_until_stored(&cached, &format!("/later/{n}"));
    }
    assert!(objects(&cached.directory).len() > 40, "not all of it went");
    let warning = "the responses that are worth least are removed";
    wait_until("it says so", || messages(cached.server(), warning) == 1);
    cached.server = None;
    drop(mounted);
}

#[test]
fn a_disk_that_is_full_at_the_start_stores_again() {
    let (mounted, mut cached) = on_a_small_disk(origin(), "size = '100MB'\nfree = '0B'");
    for n in 0..20 {
        wait_until_stored(&cached, &format!("/{n}"));
    }
    let mut server = cached.server.take().unwrap();
    server.signal(Signal::TERM);
    server.wait();
    // Not a byte is left.
    tool("sh", ["-c", &format!("cat /dev/zero > {}/filler 2> /dev/null; true", cached.directory.display())]);
    assert_eq!(free(&cached.directory), 0);
    cached.restart();
    wait_until_stored(&cached, "/later");
    cached.server = None;
    drop(mounted);
}

#[test]
fn what_is_to_stay_free_is_freed_again() {
    let (mounted, mut cached) = on_a_small_disk(origin(), "size = '100MB'\nfree = '4MiB'");
    for n in 0..40 {
        wait_until_stored(&cached, &format!("/{n}"));
    }
    // Another program takes room, more than is free beyond that.
    assert!(free(&cached.directory) < (4 << 20) + (6 << 20));
    fs::write(cached.directory.join("of-another"), vec![0; 6 << 20]).unwrap();
    wait_until("it is free again", || free(&cached.directory) >= 4 << 20);
    wait_until_stored(&cached, "/later");
    // The room of what is stored is made free behind it.
    wait_until("it is free once more", || free(&cached.directory) >= 4 << 20);
    // It leaves: there is room for more again.
    fs::remove_file(cached.directory.join("of-another")).unwrap();
    let before = objects(&cached.directory).len();
    let mut n = 0;
    wait_until("more is stored than before", || {
        n += 1;
        cached.get(&format!("/more/{n}"), &[]);
        objects(&cached.directory).len() > before + 10
    });
    cached.server = None;
    drop(mounted);
}

/// The first request for a large response asks for the room, and a later one finds it.
#[test]
fn a_large_response_gets_its_room() {
    let small = vec![b'x'; BODY];
    let large = vec![b'y'; 3 << 20];
    let origin = Upstream::answering(move |request| match request.line().contains("large") {
        true => answer(200, FRESH, &large),
        false => answer(200, FRESH, &small),
    });
    let (mounted, mut cached) = on_a_small_disk(origin, "size = '100MB'\nfree = '0B'");
    overfill(&cached);
    assert_eq!(wait_until_stored(&cached, "/large").len(), 3 << 20);
    cached.server = None;
    drop(mounted);
}

/// A response that can never be stored costs no other.
#[test]
fn a_response_larger_than_the_disk_removes_nothing() {
    let small = vec![b'x'; BODY];
    let large = vec![b'y'; 20 << 20];
    let origin = Upstream::answering(move |request| match request.line().contains("large") {
        true => answer(200, FRESH, &large),
        false => answer(200, FRESH, &small),
    });
    let (mounted, mut cached) = on_a_small_disk(origin, "size = '100MB'\nfree = '0B'");
    for n in 0..40 {
        wait_until_stored(&cached, &format!("/{n}"));
    }
    for _ in 0..3 {
        assert_eq!(cached.get("/large", &[]).body.len(), 20 << 20);
    }
    for n in 0..40 {
        assert_eq!(status(&cached.get(&format!("/{n}"), &[])), "hit");
    }
    cached.server = None;
    drop(mounted);
}

#[test]
fn a_purge_of_all_frees_the_disk_and_says_that_it_is_about_to() {
    let (mounted, mut cached) = on_a_small_disk(origin(), "size = '100MB'\nfree = '0B'");
    let empty = free(&cached.directory);
    overfill(&cached);
    wait_until("it is nearly full", || free(&cached.directory) < empty / 2);
    let said = succeeds(&cached, &["purge", "--all"]);
    assert!(said.starts_with("everything is purged: ") && said.contains("which are removed from the disk"), "{said}");
    wait_until("the disk is free", || {
        objects(&cached.directory).is_empty() && free(&cached.directory) > empty * 9 / 10
    });
    wait_until_stored(&cached, "/later");
    cached.server = None;
    drop(mounted);
}

/// The order says that it does not last. Then it does, without another one.
#[test]
fn a_purge_that_found_no_room_is_written_when_there_is_some() {
    let (mounted, mut cached) = on_a_small_disk(origin(), "size = '100MB'\nfree = '0B'");
    let filler = cached.directory.join("filler");
    tool("sh", ["-c", &format!("cat /dev/zero > {} 2> /dev/null; true", filler.display())]);
    assert_eq!(free(&cached.directory), 0);
    // It takes more than a page.
    let url = format!("https://localhost/{}", "x".repeat(5000));
    let output = order(&cached, &["purge", &url]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("does not last"), "{said}");
    fs::remove_file(filler).unwrap();
    wait_until("it is written", || {
        fs::read_to_string(cached.directory.join("purges")).is_ok_and(|lines| lines.contains(&url))
    });
    wait_until("it says so", || messages(cached.server(), "purges are written again") == 1);
    cached.server = None;
    drop(mounted);
}

#[test]
fn files_of_what_was_purged_go_and_others_stay() {
    let fields = "Cache-Control: max-age=1000\r\nCache-Tag: news\r\n";
    let tagged = Upstream::answering(move |request| match request.line().contains("/tag") {
        true => answer(200, fields, b"tagged"),
        false => answer(200, "Cache-Control: max-age=1000\r\nVary: X-Lang\r\n", b"other"),
    });
    let cached = Cached::with(tagged, "", "");
    let host = ("Host", "localhost");
    // A list and two variants; two with the tag; one that stays.
    cached.get("/varies", &[host, ("X-Lang", "de")]);
    cached.get("/varies", &[host, ("X-Lang", "en")]);
    cached.get("/tag/1", &[host]);
    cached.get("/tag/2", &[host]);
    super::disk::wait_for_objects(&cached, 5);
    succeeds(&cached, &["purge", "--tag", "news"]);
    super::disk::wait_for_objects(&cached, 3);
    succeeds(&cached, &["purge", "--all", "--soft"]);
    succeeds(&cached, &["purge", "--all"]);
    super::disk::wait_for_objects(&cached, 0);
}

#[test]
fn files_of_what_was_purged_go_after_a_restart_too() {
    let mut cached = Cached::new(counting(FRESH));
    for n in 0..20 {
        cached.get(&format!("/{n}"), &[]);
    }
    super::disk::wait_for_objects(&cached, 20);
    let mut server = cached.server.take().unwrap();
    server.signal(Signal::KILL);
    server.wait();
    // As an order leaves it whose process is killed before the files are gone.
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let line = format!("\n{{\"kind\":\"everything\",\"soft\":false,\"at\":{at}}}\n");
    fs::write(cached.directory.join("purges"), line).unwrap();
    cached.restart();
    super::disk::wait_for_objects(&cached, 0);
}
