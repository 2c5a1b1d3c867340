//! A disk that hangs, and one that is in trouble when the server starts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::process::Signal;

use super::disk::{objects, wait_until_it_stores_again, wait_until_stored};
use super::{Cached, answer, counting, status};
use crate::support::frozen::{Ext4, waits_for_disk};
use crate::support::upstream::Upstream;
use crate::support::{PROGRAM, Tmpfs, messages, tool, wait_for_message, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\n";

/// More than is kept in memory.
const LENGTH: usize = 300_000;

/// An origin whose bodies begin with the number of the request.
fn large() -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |_| {
        let mut body = format!("body {:06}", count.fetch_add(1, Ordering::Relaxed)).into_bytes();
        body.resize(LENGTH, b'x');
        answer(200, FRESH, &body)
    })
}

#[test]
fn a_disk_that_hangs_costs_hits_alone_and_gives_back_nothing_that_was_purged() {
    let mut cached = Cached::stopped(large(), "free = '0B'", "");
    let disk = Ext4::mount(&cached.directory);
    cached.restart();
    let [purged, replaced] = ["/purged", "/replaced"].map(|target| wait_until_stored(&cached, target));
    let frozen = disk.freeze();
    let hangs = "it is bypassed until it does";
    // Each of them is to be stored.
    thread::scope(|scope| {
        for n in 0..40 {
            let cached = &cached;
            scope.spawn(move || assert_eq!(cached.get(&format!("/{n}"), &[]).body.len(), LENGTH));
        }
    });
    wait_for_message(cached.server(), hangs);
    wait_until("only the disk's own threads wait for it", || waits_for_disk(cached.server()).is_empty());
    assert_eq!(cached.ask("POST", "/purged", &[]).status, 200);
    for target in ["/purged", "/replaced", "/new"] {
        let fetches = cached.fetches();
        let body = cached.get(target, &[]).body;
        assert!(body.len() == LENGTH && body != purged && body != replaced, "{target}");
        assert_eq!(cached.fetches(), fetches + 1, "{target}: the disk is bypassed");
    }
    drop(frozen);
    wait_for_message(cached.server(), "the disk answers again");
    for (target, old) in [("/purged", &purged), ("/replaced", &replaced)] {
        assert!(cached.get(target, &[]).body != *old, "{target}");
        wait_until_stored(&cached, target);
    }
    assert_eq!(messages(cached.server(), hangs), 1);
    cached.restart();
    for (target, old) in [("/purged", &purged), ("/replaced", &replaced)] {
        assert!(cached.get(target, &[]).body != *old, "{target}");
    }
}

/// Has a directory in trouble, and mends it.
struct Trouble {
    harm: fn(&Path),
    mend: fn(&Path),
    /// The words of the log and of `sealion check`.
    said: [&'static str; 2],
}

fn remount(directory: &Path, how: &str) {
    tool("mount", ["-o", &format!("remount,{how}"), directory.to_str().expect("a path in UTF-8")]);
}

const TROUBLES: [Trouble; 3] = [
    Trouble {
        harm: |directory| remount(directory, "ro"),
        mend: |directory| remount(directory, "rw"),
        said: ["mount the file system so that it can be written", "is read-only"],
    },
    Trouble {
        harm: |directory| {
            // Until there is no room left. The directory counts as empty.
            fs::create_dir(directory.join("lost+found")).expect("a directory");
            let _ = fs::write(directory.join("lost+found/filler"), vec![0; 2 << 20]);
        },
        mend: |directory| fs::remove_file(directory.join("lost+found/filler")).expect("it is there"),
        said: ["make room", "is full"],
    },
    Trouble {
        harm: |directory| fs::write(directory.join("sealion-cache"), "half").expect("it is written"),
        mend: |directory| fs::remove_file(directory.join("sealion-cache")).expect("it is there"),
        said: ["sealion-cache is damaged", "sealion-cache is damaged"],
    },
];

#[test]
fn a_disk_in_trouble_costs_hits_until_it_is_mended_and_no_start() {
    for Trouble { harm, mend, said: [in_log, in_check] } in TROUBLES {
        let mut cached = Cached::stopped(counting(FRESH), "size = '100kB'\nfree = '0B'", "purge_from = ['127.0.0.1']");
        let mounted = Tmpfs::mount(&cached.directory, "1m");
        harm(&cached.directory);
        let check = Command::new(PROGRAM).args(["check", "--config"]).arg(cached.config().write()).output();
        let check = check.expect("it runs");
        let printed = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success() && printed.contains("warning: cache.directories"), "{printed}");
        assert!(printed.contains(in_check), "{printed}");
        cached.restart_without_waiting();
        wait_for_message(cached.server(), in_log);
        for n in 0..2 {
            let response = cached.get("/a", &[]);
            assert_eq!(response.body, format!("body {n}").as_bytes(), "nothing is stored");
            assert_ne!(status(&response), "hit");
        }
        // The directory cannot take the purge.
        assert_ne!(cached.ask("PURGE", "/a", &[]).status, 200);
        assert_eq!(cached.ask("POST", "/a", &[]).status, 200);
        mend(&cached.directory);
        wait_for_message(cached.server(), "the directory is used from now on");
        wait_until_it_stores_again(&cached);
        wait_until("it purges", || cached.ask("PURGE", "/a", &[]).status == 200);
        assert!(!objects(&cached.directory).is_empty());
        cached.server = None;
        drop(mounted);
    }
}

#[test]
fn what_was_withdrawn_while_a_disk_was_not_used_is_not_back_after_the_next_restart() {
    let mut cached = Cached::stopped(counting(FRESH), "free = '0B'", "");
    let mounted = Tmpfs::mount(&cached.directory, "10m");
    cached.restart();
    let old = wait_until_stored(&cached, "/a");
    let mut server = cached.server.take().expect("it runs");
    server.signal(Signal::TERM);
    server.wait();
    remount(&cached.directory, "ro");
    cached.restart_without_waiting();
    wait_for_message(cached.server(), "mount the file system so that it can be written");
    assert_ne!(cached.get("/a", &[]).body, old);
    remount(&cached.directory, "rw");
    wait_for_message(cached.server(), "the directory is used from now on");
    wait_until("it is written down", || cached.directory.join("doubted").exists());
    cached.restart();
    let again = cached.get("/a", &[]);
    assert_ne!(again.body, old, "{}", status(&again));
    cached.server = None;
    drop(mounted);
}
