//! What goes wrong on a machine, and passes: the server goes on by itself.

mod support;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sealion_testkit::http::Response;
use sealion_testkit::server::Server;
use sealion_testkit::{PATIENCE, http};
use support::{PROGRAM, Site, access_lines, tool, wait_for_message};

/// Asks until the answer is as wanted; a file that was replaced is seen a little later.
#[track_caller]
fn wait_for(site: &Site, server: &Server, target: &str, wanted: impl Fn(&Response) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let mut client = site.connect(server);
    loop {
        let response = http::get(&mut client, target).expect("the connection stays");
        if wanted(&response) {
            return;
        }
        assert!(Instant::now() < deadline, "{target} is still answered {}", response.status);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_root_that_is_replaced_removed_and_restored_is_seen() {
    let site = Site::new();
    site.add("f", "one");
    let server = site.serve(&[]);
    wait_for(&site, &server, "/f", |response| response.body == b"one");

    let beside = site.outside().join("beside");
    fs::create_dir(&beside).expect("a directory");
    fs::write(beside.join("f"), "two").expect("a file");
    fs::rename(site.root(), site.outside().join("before")).expect("it moves away");
    fs::rename(&beside, site.root()).expect("another takes its place");
    wait_for(&site, &server, "/f", |response| response.body == b"two");

    fs::remove_dir_all(site.root()).expect("it is removed");
    wait_for(&site, &server, "/f", |response| response.status == 404);
    fs::create_dir(site.root()).expect("it is back");
    site.add("f", "three");
    wait_for(&site, &server, "/f", |response| response.body == b"three");
}

#[test]
fn a_root_that_is_a_symbolic_link_follows_it_when_it_is_turned() {
    let site = Site::new();
    let (current, next) = (site.outside().join("current"), site.outside().join("next"));
    for release in ["1", "2"] {
        fs::create_dir(site.outside().join(release)).expect("a directory");
        fs::write(site.outside().join(release).join("f"), release).expect("a file");
    }
    std::os::unix::fs::symlink("1", &current).expect("a link");
    let (cert, key) = (site.pki.certificate_file(), site.pki.key_file());
    let arguments = ["serve".as_ref(), current.as_os_str(), "--listen".as_ref(), "127.0.0.1:0".as_ref()];
    let pair = ["--cert".as_ref(), cert.as_os_str(), "--key".as_ref(), key.as_os_str()];
    let server = Server::start(Path::new(PROGRAM), arguments.into_iter().chain(pair));
    wait_for(&site, &server, "/f", |response| response.body == b"1");
    std::os::unix::fs::symlink("2", &next).expect("a link");
    fs::rename(&next, &current).expect("the link is turned");
    wait_for(&site, &server, "/f", |response| response.body == b"2");
}

/// prlimit(1): the soft limit on open files of a running process.
fn limit_open_files(server: &Server, soft: u64) {
    tool("prlimit", ["--pid", &server.pid().to_string(), &format!("--nofile={soft}:")]);
}

#[test]
fn descriptors_that_run_out_are_said_once_and_service_resumes_by_itself() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve(&["--file-cache-age", "0s", "--workers", "1"]);
    let mut before = site.connect(&server);
    http::get(&mut before, "/f").expect("an answer");
    // A new descriptor gets the lowest number that is free: with this limit, none does.
    let open: Vec<u64> = fs::read_dir(format!("/proc/{}/fd", server.pid()))
        .expect("it runs")
        .map(|entry| entry.expect("it runs").file_name().to_str().and_then(|n| n.parse().ok()).expect("a number"))
        .collect();
    let free = (0..).find(|number| !open.contains(number)).expect("there is one");
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).expect("it runs");
    let soft: u64 = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
        .expect("a limit");

    limit_open_files(&server, free);
    let waiting = TcpStream::connect(server.address()).expect("the kernel takes it");
    wait_for_message(&server, "cannot accept connections");
    // A connection that is there is served on, as far as that needs no descriptor.
    assert_eq!(http::get(&mut before, "/f").expect("an answer").status, 503);

    limit_open_files(&server, soft);
    assert_eq!(http::get(&mut site.connect(&server), "/f").expect("an answer").body, b"content");
    wait_for_message(&server, "accepting connections again");
    assert_eq!(support::messages(&server, "cannot accept connections"), 1);
    drop(waiting);
}

#[test]
fn clients_that_stop_in_the_middle_of_anything_take_no_place_for_ever() {
    let site = Site::new();
    site.add("f", "content");
    let options = [
        "--handshake-timeout",
        "500ms",
        "--request-timeout",
        "500ms",
        "--idle-timeout",
        "500ms",
        "--max-connections",
        "64",
    ];
    let server = site.serve(&options);
    let mut silent = Vec::new();
    for n in 0..48 {
        let mut socket = TcpStream::connect(server.address()).expect("a place");
        match n % 3 {
            // Nothing at all; a piece of a record's header; a record that never ends.
            0 => {}
            1 => socket.write_all(&[22, 3]).expect("it leaves"),
            _ => socket.write_all(&[22, 3, 1, 2, 0, 1, 0]).expect("it leaves"),
        }
        silent.push(socket);
    }
    let mut half_asked = Vec::new();
    for _ in 0..12 {
        let mut client = site.connect(&server);
        client.send(b"GET /f HTTP/1.1\r\nHost: a\r\n").expect("it leaves");
        half_asked.push(client);
    }
    // More than there are places in all: each gets one because the others lose theirs.
    for _ in 0..32 {
        assert_eq!(http::get(&mut site.connect(&server), "/f").expect("an answer").status, 200);
    }
    let timed_out = access_lines(&server, 44).iter().filter(|line| line.get("status") == "408").count();
    assert_eq!(timed_out, 12);
}

/// The whole process: what idle connections cost is measured by the lab, this is a bound that a leak would break.
#[test]
fn two_thousand_idle_connections_take_no_more_than_stated() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve(&["--workers", "2"]);
    let resident = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    let connect = |count: usize| -> Vec<_> {
        (0..count)
            .map(|_| {
                let mut client = site.connect(&server);
                assert_eq!(http::get(&mut client, "/f").expect("an answer").status, 200);
                client
            })
            .collect()
    };
    let warm = connect(200);
    let before = resident();
    let idle = connect(2000);
    let each = (resident().saturating_sub(before)) * 1024 / 2000;
    // About 5 kB in a release build (BENCHMARKING.md); a debug build's futures are larger.
    assert!(each < 16 << 10, "{each} bytes for each idle connection");
    drop((warm, idle));
}

#[test]
fn a_program_that_is_not_there_any_more_is_not_missed() {
    // A package that is upgraded replaces the file under the running process.
    let site = Site::new();
    site.add("f", "content");
    let program = site.outside().join("sealion");
    fs::copy(PROGRAM, &program).expect("a copy");
    let server = Server::start(&program, site.arguments(&[]));
    fs::remove_file(&program).expect("it goes");
    assert_eq!(http::get(&mut site.connect(&server), "/f").expect("an answer").body, b"content");
    let status = Command::new("kill").arg("-TERM").arg(server.pid().to_string()).status().expect("kill is there");
    assert!(status.success());
}
