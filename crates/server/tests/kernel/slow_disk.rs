//! A disk that stands still holds up the requests that need it, and no others on the same worker; a disk that fails ends their
//! responses with an alert. In guests, because it takes a disk that can be stopped.

use sealion_testkit::http;
use sealion_testkit::server::Server;
use sealion_tls::AlertDescription;

use crate::support::disk::Disk;
use crate::support::{Site, access_line, begin, content, exchange, get};

/// Several turns of a worker, and an end within a page.
const LARGE: u64 = (4 << 20) + 7;

/// More than is kept in memory.
const MEDIUM: u64 = 200_000;

const SMALL: u64 = 1000;

/// Answers that others get while the disk stands still: more than could be ready by chance.
const OTHERS: usize = 10;

/// New connections that are served meanwhile: several, so that the worker accepts again after the first.
const NEW: usize = 3;

const USER: [&str; 4] = ["--workers", "1", "--ktls", "never"];
const KERNEL: [&str; 4] = ["--workers", "1", "--ktls", "always"];

/// A site with a directory `disk` that is a disk of its own.
fn site() -> (Site, Disk) {
    let site = Site::new();
    let disk = Disk::mount(&site.root().join("disk"), &site.outside().join("image"));
    for (name, len) in [("disk/large", LARGE), ("disk/medium", MEDIUM), ("disk/small", SMALL)] {
        site.add_large(name, len);
    }
    // Nothing of it is in memory.
    disk.remount();
    (site, disk)
}

/// Asks on other connections to the same worker, an old one for what is `hot` and new ones for what is not there. Returns
/// how many lines that makes in the access log.
#[track_caller]
fn others_are_served(site: &Site, server: &Server, hot: &[(&str, u64)]) -> usize {
    let mut other = site.connect(server);
    for _ in 0..OTHERS {
        for &(target, len) in hot {
            content::assert_equal(&http::get(&mut other, target).expect("an answer").body, 0..len);
        }
    }
    for _ in 0..NEW {
        assert_eq!(http::get(&mut site.connect(server), "/nothing").expect("an answer").status, 404);
    }
    OTHERS * hot.len() + NEW
}

fn a_body_is_waited_for_by_its_reader_alone(options: &[&str], path: &str) {
    let (site, disk) = site();
    let server = site.serve(options);
    let hot = [("/disk/small", SMALL), ("/disk/medium", MEDIUM)];
    let mut client = site.connect(&server);
    // The names are known, and what is hot is read.
    let lines = 1 + others_are_served(&site, &server, &hot);
    assert_eq!(http::request(&mut client, "HEAD", "/disk/large", &[]).expect("an answer").status, 200);
    assert_eq!(access_line(&server, lines).get("path"), path);

    let still = disk.stand_still();
    client.send(get("/disk/large").as_bytes()).expect("it leaves");
    let lines = lines + others_are_served(&site, &server, &hot);
    assert!(!access_line(&server, lines).text.contains("disk/large"), "it waits");
    drop(still);
    let got = http::read_response(&mut client, "GET").expect("an answer");
    content::assert_equal(&got.body, 0..LARGE);
    let line = access_line(&server, lines + 1);
    assert_eq!((line.get("target"), line.get("path")), ("/disk/large", path));
    // In step, and now it is in memory.
    let _still = disk.stand_still();
    content::assert_equal(&http::get(&mut client, "/disk/large").expect("an answer").body, 0..LARGE);
}

fn a_name_is_waited_for_by_its_reader_alone(options: &[&str], path: &str) {
    let (site, disk) = site();
    site.add_large("hot", MEDIUM);
    for name in ["large", "medium", "small", "missing"] {
        let target = format!("/disk/{name}");
        // Nothing of the disk is in memory.
        disk.remount();
        let server = site.serve(options);
        let mut client = site.connect(&server);
        let still = disk.stand_still();
        client.send(get(&target).as_bytes()).expect("it leaves");
        others_are_served(&site, &server, &[("/hot", MEDIUM)]);
        assert!(!server.lines().iter().any(|line| line.text.contains(&target)), "{target}: it waits");
        drop(still);
        let got = http::read_response(&mut client, "GET").expect("an answer");
        match name {
            "missing" => assert_eq!(got.status, 404),
            "large" => content::assert_equal(&got.body, 0..LARGE),
            "medium" => content::assert_equal(&got.body, 0..MEDIUM),
            _ => content::assert_equal(&got.body, 0..SMALL),
        }
        let line = server.wait_for("its line", |line| line.text.contains(&target));
        assert!(line.text.contains(&format!("path={path} ")), "{line:?}");
    }
}

/// A client that leaves while the disk is waited for leaves nothing behind.
fn a_client_that_does_not_wait(options: &[&str]) {
    let (site, disk) = site();
    site.add_large("hot", MEDIUM);
    let server = site.serve(options);
    let still = disk.stand_still();
    for _ in 0..3 {
        let mut client = site.connect(&server);
        client.send(get("/disk/large").as_bytes()).expect("it leaves");
    }
    others_are_served(&site, &server, &[("/hot", MEDIUM)]);
    drop(still);
    let mut client = site.connect(&server);
    let head = begin(&mut client, "/disk/large");
    assert!(head.contains(&format!("Content-Length: {LARGE}\r\n")), "{head}");
    content::assert_equal(&client.read(LARGE as usize).expect("it goes on"), 0..LARGE);
}

/// A disk that fails ends the response with an alert, and no other response.
fn a_body_that_cannot_be_read(options: &[&str], path: &str) {
    let (site, disk) = site();
    let server = site.serve(options);
    let mut client = site.connect(&server);
    let mut other = site.connect(&server);
    assert_eq!(http::request(&mut client, "HEAD", "/disk/large", &[]).expect("an answer").status, 200);
    content::assert_equal(&http::get(&mut other, "/disk/medium").expect("an answer").body, 0..MEDIUM);
    let broken = disk.break_it();
    let ending = exchange(&mut client, get("/disk/large").as_bytes());
    ending.assert_alert(AlertDescription::INTERNAL_ERROR);
    // On either path the head leaves with the beginning of the file.
    assert_eq!(String::from_utf8_lossy(&ending.data), "");
    let line = access_line(&server, 3);
    assert!(line.get("aborted").contains("os error 5"), "{}", line.text);
    assert_eq!((line.get("bytes"), line.get("path")), ("0", path));
    // A file in memory is served.
    content::assert_equal(&http::get(&mut other, "/disk/medium").expect("an answer").body, 0..MEDIUM);
    drop(broken);
    content::assert_equal(&http::get(&mut other, "/disk/large").expect("an answer").body, 0..LARGE);
}

#[test]
fn a_disk_that_fails_user_space() {
    a_body_that_cannot_be_read(&USER, "user");
}

#[test]
fn a_disk_that_fails_the_kernel() {
    a_body_that_cannot_be_read(&KERNEL, "kernel");
}

#[test]
fn a_body_sealed_in_user_space() {
    a_body_is_waited_for_by_its_reader_alone(&USER, "user");
}

#[test]
fn a_body_sealed_by_the_kernel() {
    a_body_is_waited_for_by_its_reader_alone(&KERNEL, "kernel");
}

#[test]
fn a_name_in_user_space() {
    a_name_is_waited_for_by_its_reader_alone(&USER, "user");
}

#[test]
fn a_name_and_the_kernel() {
    a_name_is_waited_for_by_its_reader_alone(&KERNEL, "kernel");
}

#[test]
fn clients_that_do_not_wait() {
    a_client_that_does_not_wait(&USER);
    a_client_that_does_not_wait(&KERNEL);
}
