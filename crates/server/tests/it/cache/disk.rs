//! Stored responses on the disk: what a restart, a crash, a damage or a full disk does to them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::process::Signal;
use sealion_testkit::server::Server;
use sealion_testkit::{Suite, http};

use super::{Cached, answer, counting, status};
use crate::support::http2::{Ended, Http2, INITIAL_WINDOW_SIZE, window_update};
use crate::support::upstream::Upstream;
use crate::support::{PROGRAM, Tmpfs, is_loaded, messages, tool, wait_for_cache, wait_for_message, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\n";

/// The files of objects.
pub(super) fn objects(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for outer in below(directory).filter(|path| path.file_name().is_some_and(|name| name.len() == 3)) {
        found.extend(below(&outer));
    }
    found
}

#[track_caller]
pub(super) fn wait_for_objects(cached: &Cached, count: usize) {
    wait_until("the objects are on the disk", || objects(&cached.directory).len() == count);
}

#[test]
fn a_restart_keeps_what_is_stored() {
    let mut cached = Cached::new(counting(FRESH));
    let bodies: Vec<_> = (0..10).map(|n| cached.get(&format!("/{n}"), &[]).body).collect();
    wait_for_objects(&cached, 10);
    cached.restart();
    for (n, body) in bodies.iter().enumerate() {
        let again = cached.get(&format!("/{n}"), &[]);
        assert_eq!((&again.body, status(&again).as_str()), (body, "hit"));
    }
    assert_eq!(cached.fetches(), 10);
}

#[test]
fn a_server_that_was_killed_keeps_what_was_stored() {
    let mut cached = Cached::new(counting(FRESH));
    let body = cached.get("/a", &[]).body;
    wait_for_objects(&cached, 1);
    let mut server = cached.server.take().unwrap();
    server.signal(Signal::KILL);
    server.wait();
    fs::write(cached.directory.join("temporary/left"), "half").unwrap();
    cached.restart();
    assert_eq!(cached.get("/a", &[]).body, body);
    assert_eq!(cached.fetches(), 1);
    assert!(!cached.directory.join("temporary/left").exists());
}

#[test]
fn purges_that_cannot_be_read_make_everything_stale() {
    let mut cached = Cached::with(counting(FRESH), "", "purge_from = ['127.0.0.1']");
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    wait_for_objects(&cached, 1);
    assert_eq!(cached.ask("PURGE", "/a", &[]).status, 200);
    let mut server = cached.server.take().unwrap();
    server.signal(Signal::TERM);
    server.wait();
    let purges = cached.directory.join("purges");
    fs::remove_file(&purges).unwrap();
    fs::create_dir(&purges).unwrap();
    cached.restart_without_waiting();
    let message = "the purges cannot be read, all objects are validated";
    wait_for_message(cached.server(), message);
    assert_eq!(cached.get("/a", &[]).body, b"body 1");
}

/// Nothing can be appended to a directory, nor read from it.
#[test]
fn purges_that_cannot_be_written_or_read_are_said_once_until_they_can() {
    let cached = Cached::with(counting(FRESH), "", "");
    let write = |n: usize| {
        let target = format!("/{n}");
        wait_until_stored(&cached, &target);
        assert_eq!(cached.ask("POST", &target, &[]).status, 200);
    };
    let purges = cached.directory.join("purges");
    // The server writes a file that is missing again: the two change places at once.
    let aside = cached.directory.join("aside");
    write(0);
    let before = messages(cached.server(), "WARN");
    for round in 1..=2 {
        fs::create_dir(&aside).unwrap();
        renameat_with(CWD, &aside, CWD, &purges, RenameFlags::EXCHANGE).unwrap();
        fs::remove_file(&aside).unwrap();
        (1..5).for_each(write);
        wait_for_message(cached.server(), "purges cannot be read");
        // The file is looked at twice a second.
        thread::sleep(Duration::from_millis(1200));
        fs::remove_dir(&purges).unwrap();
        write(5);
        for end in ["purges are written again", "purges can be read again"] {
            cached.server().wait_for_lines(round, end, |line| line.text.contains(end));
        }
        let warnings = ["cannot write purges", "purges cannot be read"];
        assert_eq!(warnings.map(|warning| messages(cached.server(), warning)), [round; 2]);
        assert_eq!(messages(cached.server(), "WARN"), before + 2 * round, "{:#?}", cached.server().lines());
    }
    // The disk seems to hang.
    let before = messages(cached.server(), "WARN");
    let held = fs::File::open(&purges).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    (1..5).for_each(write);
    wait_for_message(cached.server(), "the disk does not write purges");
    drop(held);
    wait_for_message(cached.server(), "the disk writes purges again");
    assert_eq!(messages(cached.server(), "the disk does not write purges"), 1);
    assert_eq!(messages(cached.server(), "WARN"), before + 1, "{:#?}", cached.server().lines());
}

#[test]
fn a_damaged_object_is_not_sent() {
    let mut cached = Cached::new(counting(FRESH));
    let mut fetches = 0;
    for damage in [
        (|bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2)) as fn(&mut Vec<u8>),
        |bytes| bytes[0] ^= 1,
        |bytes| {
            let end = bytes.len();
            bytes[end - 1] ^= 1;
        },
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x80;
        },
        |bytes| bytes.clear(),
        |bytes| bytes.extend_from_slice(&[0; 64]),
    ] {
        let expected = format!("body {fetches}");
        assert_eq!(cached.get("/a", &[]).body, expected.as_bytes());
        wait_for_objects(&cached, 1);
        let mut server = cached.server.take().unwrap();
        server.signal(Signal::TERM);
        server.wait();
        let object = objects(&cached.directory).remove(0);
        let mut bytes = fs::read(&object).unwrap();
        damage(&mut bytes);
        fs::write(&object, bytes).unwrap();
        cached.restart();
        fetches += 1;
        assert_eq!(cached.get("/a", &[]).body, format!("body {fetches}").as_bytes());
        assert_eq!(cached.ask("DELETE", "/a", &[]).status, 200);

        wait_until("it is fetched again", || status(&cached.get("/a", &[])) == "hit");
        assert_eq!(cached.ask("DELETE", "/a", &[]).status, 200);
        fetches = cached.fetches();
        for object in objects(&cached.directory) {
            // The server removes what was invalidated, too.
            if let Err(error) = fs::remove_file(object) {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            }
        }
    }
}

/// Over both protocols: a client that is served while the file becomes unreadable notices, and none does afterwards.
#[test]
fn an_object_that_cannot_be_read_any_more_is_fetched_again() {
    let body: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let sent = body.clone();
    let cached = Cached::new(Upstream::answering(move |_| answer(200, FRESH, &sent)));
    for over_http2 in [false, true] {
        assert!(wait_until_stored(&cached, "/a") == body);
        let fetches = cached.fetches();
        let truncate = || {
            let object = objects(&cached.directory).remove(0);
            fs::File::options().write(true).open(object).unwrap().set_len(100_000).unwrap();
        };
        // The first request has the worker of the connection open the file.
        if over_http2 {
            let settings = [(INITIAL_WINDOW_SIZE, 1 << 20)];
            let mut http = Http2::connect(cached.site.connector(Suite::TLS13), cached.server().address(), &settings);
            http.send(&window_update(0, 1 << 20));
            assert!(http.fetch("/a").1 == body);
            truncate();
            let stream = http.get("/a");
            assert!(matches!(http.response(stream).ended, Some(Ended::Reset(_))));
        } else {
            let mut client = cached.site.connect(cached.server());
            assert!(http::get(&mut client, "/a").unwrap().body == body);
            truncate();
            assert!(http::get(&mut client, "/a").is_err());
        }
        assert_eq!(cached.fetches(), fetches);
        // Another worker may have it open too.
        wait_until("it is fetched again", || {
            let again = http::get(&mut cached.site.connect(cached.server()), "/a");
            again.is_ok_and(|response| response.body == body) && cached.fetches() > fetches
        });
        for _ in 0..10 {
            assert!(cached.get("/a", &[]).body == body);
        }
    }
}

#[test]
fn a_second_process_says_that_it_stores_nothing() {
    let cached = Cached::new(counting(FRESH));
    let second = cached.config().serve_from_user_space();
    wait_for_message(&second, "another process uses the directory");
    assert_eq!(messages(cached.server(), "another process"), 0);
}

/// A smaller cache in its configuration, and what it takes for damaged, are no reason to remove files of the owner.
#[test]
fn a_process_that_does_not_own_the_directory_only_reads() {
    let body = vec![b'x'; 200_000];
    let origin = Upstream::answering(move |_| answer(200, FRESH, &body));
    let mut cached = Cached::new(origin);
    for n in 0..40 {
        wait_until_stored(&cached, &format!("/{n}"));
    }
    cached.keys = ("size = '1MiB'", "");
    let mut second = cached.config().serve_from_user_space();
    wait_for_message(&second, "another process uses the directory");
    let damaged = objects(&cached.directory).remove(7);
    fs::File::options().write(true).open(&damaged).unwrap().set_len(100).unwrap();
    let fetches = cached.fetches();
    for n in 0..40 {
        let got = http::get(&mut cached.site.connect(&second), &format!("/{n}")).expect("a response");
        assert_eq!(got.body.len(), 200_000);
    }
    assert!(cached.fetches() <= fetches + 1, "all others are hits");
    // It removes what it is about to before it ends.
    second.signal(Signal::TERM);
    second.wait();
    assert_eq!(objects(&cached.directory).len(), 40);
}

#[test]
fn purges_survive_a_restart() {
    let mut cached = Cached::with(counting(FRESH), "", "purge_from = ['127.0.0.1']");
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    wait_for_objects(&cached, 1);
    assert_eq!(cached.ask("PURGE", "/a", &[]).status, 200);
    cached.restart();
    assert_eq!(cached.get("/a", &[]).body, b"body 1");
}

#[test]
fn what_is_stored_stays_within_the_size_that_is_set() {
    let body = vec![b'x'; 100_000];
    let origin = Upstream::answering(move |_| answer(200, FRESH, &body));
    let cached = Cached::with(origin, "size = '1MiB'", "");
    for n in 0..50 {
        assert_eq!(cached.get(&format!("/{n}"), &[]).body.len(), 100_000);
    }
    wait_until("old objects are removed", || {
        let size: u64 = objects(&cached.directory).iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum();
        size <= 1 << 20
    });
}

/// Bytes on the disk of deleted files that the server has open.
fn deleted_octets(cached: &Cached) -> u64 {
    let is_deleted = |path: &PathBuf| {
        fs::read_link(path)
            .is_ok_and(|to| to.starts_with(&cached.directory) && to.to_string_lossy().ends_with(" (deleted)"))
    };
    let open = fs::read_dir(format!("/proc/{}/fd", cached.server().pid())).expect("it is ours");
    let deleted = open.flatten().map(|entry| entry.path()).filter(is_deleted);
    deleted.filter_map(|path| Some(path.metadata().ok()?.blocks() * 512)).sum()
}

#[test]
fn files_that_were_evicted_are_closed_without_a_further_request() {
    let body = vec![b'x'; 200_000];
    let origin = Upstream::answering(move |_| answer(200, FRESH, &body));
    let cached = Cached::with(origin, "size = '4MiB'", "");
    for n in 0..60 {
        // From the origin, then until a worker keeps it.
        for _ in 0..4 {
            assert_eq!(cached.get(&format!("/{n}"), &[]).body.len(), 200_000);
        }
    }
    wait_until("old objects are removed", || objects(&cached.directory).len() <= 20);
    wait_until("they are closed", || deleted_octets(&cached) == 0);
}

#[test]
fn the_cache_takes_no_more_descriptors_than_there_are() {
    let body = vec![b'x'; 200_000];
    let origin = Upstream::answering(move |_| answer(200, FRESH, &body));
    let mut cached = Cached::stopped(origin, "[server]\nworkers = 1\n", "");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 300; exec \"$@\"", "sh", PROGRAM, "serve", "--ktls=never", "--config"]);
    limited.arg(cached.config().write());
    cached.server = Some(Server::spawn(limited));
    wait_for_cache(cached.server(), &cached.directory);
    let mut client = cached.site.connect(cached.server());
    // From the origin, then from the disk: the worker keeps open what it has read there. While the disk is slow, a fetch may find no descriptor, and its
    // response is not stored.
    for n in 0..400 {
        wait_until("it is stored", || {
            let response = http::get(&mut client, &format!("/{n}")).expect("a response");
            assert_eq!(response.body.len(), 200_000);
            status(&response) == "hit"
        });
    }
    assert_eq!(messages(cached.server(), "Too many open files"), 0, "{:#?}", cached.server().lines());
}

#[test]
fn a_full_disk_has_responses_pass_whole_and_says_so() {
    let body: Vec<u8> = (0..3_000_000).map(|at| (at % 251) as u8).collect();
    let sent = body.clone();
    let origin = Upstream::answering(move |request| match request.line().contains("chunked") {
        false => answer(200, FRESH, &sent),
        true => {
            let head = format!("HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n", sent.len());
            [head.as_bytes(), &sent, b"\r\n0\r\n\r\n"].concat()
        }
    });
    let mut cached = Cached::stopped(origin, "free = '0B'", "");
    let mounted = Tmpfs::mount(&cached.directory, "1m");
    cached.restart();
    for _ in 0..2 {
        for target in ["/a", "/chunked"] {
            assert!(cached.get(target, &[]).body == body, "{target}");
        }
    }
    assert_eq!(cached.fetches(), 4);
    let mut server = cached.server.take().unwrap();
    server.wait_for("a warning", |line| line.text.contains("without being stored"));
    server.signal(Signal::TERM);
    server.wait();
    drop(mounted);
}

/// Removes a directory that the server makes again at once. It is moved first, so that no new file appears in it.
fn remove(directory: &Path) {
    let away = directory.with_extension("away");
    fs::rename(directory, &away).unwrap();
    fs::remove_dir_all(&away).unwrap();
}

#[test]
fn a_directory_that_vanishes_costs_hits_and_no_response() {
    let cached = Cached::new(counting(FRESH));
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    wait_for_objects(&cached, 1);
    remove(&cached.directory);
    for n in 0..5 {
        assert_eq!(cached.get(&format!("/{n}"), &[]).status, 200);
    }
}

/// Operators empty the directory of another server to purge it.
#[test]
fn emptying_the_directory_purges_what_the_workers_keep_in_memory() {
    let cached = Cached::new(counting(FRESH));
    let empty: [fn(&str) -> bool; 3] = [|_| true, |name| name.len() == 3, |name| !["lock", "purges"].contains(&name)];
    for (n, is_removed) in empty.into_iter().enumerate() {
        let target = format!("/{n}");
        let before = wait_until_stored(&cached, &target);
        // All workers have it.
        for _ in 0..40 {
            assert_eq!(cached.get(&target, &[]).body, before);
        }
        for entry in fs::read_dir(&cached.directory).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                _ if !is_removed(&entry.file_name().to_string_lossy()) => {}
                true => drop(fs::remove_dir_all(path)),
                false => drop(fs::remove_file(path)),
            }
        }
        cached.server().wait_for_lines(n + 1, "it begins again", |line| line.text.contains("it begins again"));
        wait_until("it is fetched again", || cached.get(&target, &[]).body != before);
        for _ in 0..40 {
            assert_ne!(cached.get(&target, &[]).body, before, "{n}");
        }
        cached.server().wait_for_lines(n + 2, "it is loaded", |line| is_loaded(line, &cached.directory));
    }
}

/// The file that is written holds the directory as it was, with its lock.
#[test]
fn a_directory_that_begins_again_stores_while_a_response_of_before_is_written() {
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            if request.line().contains("/slow") {
                accepted.write(format!("HTTP/1.1 200 OK\r\n{FRESH}Content-Length: 400000\r\n\r\n").as_bytes());
                accepted.write(&[b'x'; 300_000]);
                let _ = wait.lock().expect("no panic").recv();
                accepted.write(&[b'x'; 100_000]);
            } else {
                accepted.write(&answer(200, FRESH, b"another"));
            }
        }
    });
    let cached = Cached::new(origin);
    wait_until_stored(&cached, "/before");
    let mut slow = cached.site.connect(cached.server());
    slow.send(http::head("GET", "/slow", &[]).as_bytes()).expect("the request leaves");
    let temporary = cached.directory.join("temporary");
    wait_until("it is being written", || fs::read_dir(&temporary).is_ok_and(|mut files| files.next().is_some()));
    let object = objects(&cached.directory).remove(0);
    fs::remove_dir_all(object.parent().expect("a directory")).expect("it is removed");
    cached.server().wait_for("it begins again", |line| line.text.contains("it begins again"));
    wait_until_stored(&cached, "/after");
    go_on.send(()).expect("the origin waits");
    assert_eq!(http::read_response(&mut slow, "GET").expect("a response").body.len(), 400_000);
    // Its file is still there.
    drop(go_on);
    wait_until("it is stored", || status(&cached.get("/slow", &[])) == "hit");
    let requests = cached.origin.requests();
    assert_eq!(requests.iter().filter(|request| request.line().contains("/slow")).count(), 1);
}

/// Asks until the response has a file, and returns its body.
#[track_caller]
pub(super) fn wait_until_stored(cached: &Cached, target: &str) -> Vec<u8> {
    let key = format!("://localhost{target}\n");
    let has_key =
        |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes.windows(key.len()).any(|part| part == key.as_bytes()));
    let mut body = Vec::new();
    wait_until("it is stored", || {
        body = cached.get(target, &[]).body;
        objects(&cached.directory).iter().any(has_key)
    });
    body
}

/// Asks for ever new URLs until one is stored in a file.
#[track_caller]
pub(super) fn wait_until_it_stores_again(cached: &Cached) {
    let before = objects(&cached.directory).len();
    let mut n = 0;
    wait_until("it stores again", || {
        n += 1;
        assert_eq!(cached.get(&format!("/again/{n}"), &[]).status, 200);
        objects(&cached.directory).len() > before
    });
    assert!(messages(cached.server(), "WARN") < 4, "not once for each of {n} requests: {:#?}", cached.server().lines());
}

#[test]
fn a_directory_that_was_removed_is_made_again_and_keeps_purges() {
    let mut cached = Cached::with(counting(FRESH), "", "purge_from = ['127.0.0.1']");
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    wait_for_objects(&cached, 1);
    remove(&cached.directory);
    wait_until_it_stores_again(&cached);
    assert_eq!(cached.ask("PURGE", "/a", &[]).status, 200);
    let before = wait_until_stored(&cached, "/b");
    cached.restart();
    assert_eq!(cached.get("/b", &[]).body, before, "it was stored under a name that is found again");
    assert_ne!(cached.get("/a", &[]).body, b"body 0");
}

#[test]
fn a_directory_whose_content_was_removed_is_used_again() {
    let mut cached = Cached::new(counting(FRESH));
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    wait_for_objects(&cached, 1);
    for entry in fs::read_dir(&cached.directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    wait_until("it is noticed", || cached.directory.join("sealion-cache").exists());
    let body = wait_until_stored(&cached, "/b");
    cached.restart();
    assert_eq!(cached.get("/b", &[]).body, body, "it was stored under a name that is found again");
}

#[test]
fn a_file_system_without_inodes_costs_hits_until_it_has_some() {
    let mut cached = Cached::stopped(counting(FRESH), "free = '0B'", "");
    let mounted = Tmpfs::mount(&cached.directory, "10m,nr_inodes=16");
    cached.restart();
    // Objects make room for others, until all inodes are directories.
    let mut n = 0;
    wait_until("it says so", || {
        assert_eq!(cached.get(&format!("/{n}"), &[]).body, format!("body {n}").as_bytes());
        n += 1;
        messages(cached.server(), "without being stored") > 0
    });
    let stored = objects(&cached.directory).len();
    assert!(stored < 6, "{stored} objects");
    tool("mount", ["-o", "remount,nr_inodes=10000", cached.directory.to_str().unwrap()]);
    wait_until_it_stores_again(&cached);
    cached.server = None;
    drop(mounted);
}

#[test]
fn what_lies_beneath_an_unmounted_disk_is_not_filled_and_the_disk_is_used_again() {
    let mut cached = Cached::stopped(counting(FRESH), "free = '0B'", "");
    let elsewhere = cached.directory.with_file_name("elsewhere");
    let mounted = Tmpfs::mount(&elsewhere, "10m");
    fs::create_dir(&cached.directory).unwrap();
    let paths = [&elsewhere, &cached.directory].map(|path| path.to_str().unwrap().to_owned());
    tool("mount", ["--bind", &paths[0], &paths[1]]);
    cached.restart();
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    wait_for_objects(&cached, 1);
    tool("umount", ["-l", &paths[1]]);
    wait_until("it says so", || messages(cached.server(), "restart the server") > 0);
    for n in 0..5 {
        assert_eq!(cached.get(&format!("/b/{n}"), &[]).status, 200);
    }
    assert_eq!(fs::read_dir(&cached.directory).unwrap().count(), 0);
    tool("mount", ["--bind", &paths[0], &paths[1]]);
    wait_until_it_stores_again(&cached);
    cached.server = None;
    tool("umount", ["-l", &paths[1]]);
    drop(mounted);
}

/// As btrfs, which reports no inodes at all.
#[test]
fn a_file_system_without_a_bound_on_inodes_is_used() {
    let mut cached = Cached::stopped(counting(FRESH), "free = '0B'", "");
    let mounted = Tmpfs::mount(&cached.directory, "10m,nr_inodes=0");
    cached.restart();
    wait_until_it_stores_again(&cached);
    cached.server = None;
    drop(mounted);
}

#[test]
fn a_full_file_system_costs_hits_until_it_has_room() {
    let body = vec![b'x'; 100_000];
    let origin = Upstream::answering(move |_| answer(200, FRESH, &body));
    let mut cached = Cached::stopped(origin, "free = '0B'", "");
    let mounted = Tmpfs::mount(&cached.directory, "1m");
    cached.restart();
    for n in 0..20 {
        assert_eq!(cached.get(&format!("/{n}"), &[]).body.len(), 100_000);
    }
    wait_until("it says so", || messages(cached.server(), "worth least are removed") > 0);
    tool("mount", ["-o", "remount,size=100m", cached.directory.to_str().unwrap()]);
    wait_until_it_stores_again(&cached);
    cached.server = None;
    drop(mounted);
}

#[test]
fn validations_do_not_make_a_file_grow_without_bound() {
    let long = "x".repeat(6000);
    let head = format!("Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"one\"\r\nX-Long: {long}\r\n");
    let origin = Upstream::answering(move |request| match super::has_field(request, "if-none-match") {
        true => format!("HTTP/1.1 304 Not Modified\r\n{head}\r\n").into_bytes(),
        false => answer(200, &head, b"the body"),
    });
    let cached = Cached::new(origin);
    for _ in 0..40 {
        assert_eq!(cached.get("/a", &[]).body, b"the body");
    }
    assert!(cached.fetches() == 40);
    let size = objects(&cached.directory).remove(0).metadata().expect("it is there").len();
    assert!(size < 100_000, "{size} octets");
}

#[test]
fn nothing_is_stored_where_the_file_system_has_less_room_than_is_to_stay_free() {
    let mut cached = Cached::stopped(counting(FRESH), "free = '2MiB'", "");
    let mounted = Tmpfs::mount(&cached.directory, "1m");
    cached.restart();
    let server = cached.server.take().unwrap();
    server.wait_for("a warning", |line| line.text.contains("less free than cache.free"));
    cached.server = Some(server);
    for n in 0..3 {
        assert_eq!(cached.get("/a", &[]).body, format!("body {n}").as_bytes());
    }
    assert_eq!(objects(&cached.directory).len(), 0);
    cached.server = None;
    drop(mounted);
}
