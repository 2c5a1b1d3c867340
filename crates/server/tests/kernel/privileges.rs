//! A confined server on a kernel that has kernel TLS: the move, sendfile and key updates are among the listed system calls, Landlock
//! holds, and a clock that jumps disturbs no client.
//!
//! These tests fail, and never skip, where kernel TLS or Landlock is missing.

use std::fs;
use std::path::Path;

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};
use sealion_testkit::http;
use sealion_testkit::server::{Line, Signal};

use crate::support::config::Config;
use crate::support::{LARGE, Site, access_line, content, messages, wait_for_message};

#[test]
fn the_kernel_path_works_with_the_listed_system_calls_alone() {
    let site = Site::new();
    site.add_large("large", LARGE);
    let server = site.serve(&["--landlock", "true", "--seccomp", "kill"]);
    assert_eq!(messages(&server, "privileges.landlock: this kernel has no Landlock"), 0);
    let mut client = site.connect(&server);
    content::assert_equal(&http::get(&mut client, "/large").expect("an answer").body, 0..LARGE);
    assert_eq!(access_line(&server, 1).way(), ("kernel", "moved"));
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    // The successor tests the kernel again, on loopback.
    server.signal(Signal::USR2);
    wait_for_message(&server, " has taken over");
    content::assert_equal(&http::get(&mut site.connect(&server), "/large").expect("of the new one").body, 0..LARGE);
    assert_eq!(access_line(&server, 2).way(), ("kernel", "moved"));
}

#[test]
fn files_that_are_not_named_are_refused_by_the_kernel() {
    let site = Site::new();
    site.add("f", "content");
    let elsewhere = tempfile::tempdir().expect("a directory");
    fs::write(elsewhere.path().join("f"), "elsewhere").expect("a file");
    // The directory of the file may be read: not the one above the root.
    let directory = site.outside().join("etc");
    fs::create_dir(&directory).expect("a directory");
    let config = |root: &Path, landlock: bool, keys: &str| {
        let privileges = format!("[privileges]\nlandlock = {landlock}");
        Config::within(&directory).site(root, &[&site.pki], keys).table(&privileges)
    };

    // Without Landlock another root is taken over: its permissions allow it.
    let free = config(&site.root(), false, "").serve();
    config(elsewhere.path(), false, "").write();
    free.signal(Signal::HUP);
    wait_for_message(&free, "configuration 1 is in use");
    drop(free);

    let confined = config(&site.root(), true, "").serve();
    config(elsewhere.path(), true, "").write();
    confined.signal(Signal::HUP);
    wait_for_message(&confined, "site.root: Landlock keeps this process from");
    config(&site.root(), true, &format!("route = [{{ path = '/m/', alias = {:?} }}]", elsewhere.path())).write();
    confined.signal(Signal::HUP);
    let twice = |line: &Line| line.text.contains("Landlock keeps this process from");
    confined.wait_for_lines(2, "word of a mount that is out of reach", twice);
    assert_eq!(http::get(&mut site.connect(&confined), "/f").expect("the old root").body, b"content");
}

#[test]
fn a_clock_that_jumps_ends_no_connection_and_shows_in_the_date() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve(&["--idle-timeout", "20s"]);
    let mut client = site.connect(&server);
    let before = clock_gettime(ClockId::Realtime);
    for hours in [48, -24] {
        let now = clock_gettime(ClockId::Realtime);
        clock_settime(ClockId::Realtime, Timespec { tv_sec: now.tv_sec + hours * 3600, ..now })
            .expect("root sets the clock of a guest");
        let got = http::get(&mut client, "/f").expect("the connection goes on");
        assert_eq!(got.body, b"content");
        let date = got.field("date").expect("a date").to_owned();
        let said = httpdate_seconds(&date);
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        assert!((said - now).abs() <= 60, "{date} at {now}");
    }
    clock_settime(ClockId::Realtime, before).expect("root sets the clock of a guest");
}

/// Seconds since 1970 of an HTTP date, by the tool that knows.
fn httpdate_seconds(date: &str) -> i64 {
    let since =
        httpdate::parse_http_date(date).expect("a date").duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    since.as_secs() as i64
}
