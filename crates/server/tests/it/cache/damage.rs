//! Bodies in files that are not as they were written.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Signal;
use sealion_testkit::http::{self, Response};

use super::disk::{objects, wait_until_stored};
use super::{Cached, answer, status};
use crate::support::upstream::Upstream;
use crate::support::{messages, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\n";
/// Checked before it is sent.
const SHORT: usize = 300_000;
/// Sent while it is checked.
const LONG: usize = 20_000_000;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn origin(length: usize) -> Upstream {
    let body = content(length);
    Upstream::answering(move |_| answer(200, FRESH, &body))
}

fn stop(cached: &mut Cached) {
    let mut server = cached.server.take().expect("it runs");
    server.signal(Signal::TERM);
    server.wait();
}

/// The only object.
fn object(directory: &Path) -> PathBuf {
    objects(directory).remove(0)
}

fn wait_until_hit(cached: &Cached) {
    wait_until("it is a hit", || status(&cached.get("/a", &[("Range", "bytes=0-0")])) == "hit");
}

fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it is as long");
    file.write_all_at(&[byte[0] ^ 4], at).expect("it is written");
}

fn try_to_get(cached: &Cached, fields: &[(&str, &str)]) -> io::Result<Response> {
    http::request(&mut cached.site.connect(cached.server()), "GET", "/a", fields)
}

#[test]
fn a_short_body_with_a_flipped_bit_is_fetched_again() {
    let mut cached = Cached::new(origin(SHORT));
    for at in [0, 150_000, SHORT as u64 - 1] {
        assert!(wait_until_stored(&cached, "/a") == content(SHORT));
        stop(&mut cached);
        flip(&object(&cached.directory), at);
        cached.restart();
        let fetches = cached.fetches();
        assert!(cached.get("/a", &[]).body == content(SHORT), "byte {at}");
        assert_eq!(cached.fetches(), fetches + 1);
        assert_eq!(messages(cached.server(), "a damaged object was removed"), 1);
        wait_until("it is a hit again", || status(&cached.get("/a", &[])) == "hit");
        assert!(cached.get("/a", &[]).body == content(SHORT));
    }
}

/// A body that the process has written itself is checked when it is asked for first.
#[test]
fn a_bit_that_flips_before_the_first_hit_is_noticed() {
    let cached = Cached::new(origin(SHORT));
    assert!(cached.get("/a", &[]).body == content(SHORT));
    super::disk::wait_for_objects(&cached, 1);
    flip(&object(&cached.directory), 200_000);
    for _ in 0..20 {
        assert!(cached.get("/a", &[]).body == content(SHORT));
    }
    assert_eq!((cached.fetches(), messages(cached.server(), "a damaged object was removed")), (2, 1));
}

/// It may be sent up to its last bytes, which wait for the check.
#[test]
fn a_long_body_with_a_flipped_bit_is_never_complete() {
    let mut cached = Cached::new(origin(LONG));
    let ranges = ["bytes=0-", "bytes=100-199", "bytes=19000000-", "bytes=19999999-19999999"];
    for fields in [None].into_iter().chain(ranges.map(Some)) {
        let fields: Vec<_> = fields.map(|range| ("Range", range)).into_iter().collect();
        let expected = match fields.first() {
            None => content(LONG),
            Some(_) => cached.get("/a", &fields).body,
        };
        wait_until_hit(&cached);
        stop(&mut cached);
        // The last byte of each range is in it.
        flip(&object(&cached.directory), 150);
        flip(&object(&cached.directory), LONG as u64 - 1);
        cached.restart();
        let fetches = cached.fetches();
        // Each may break off; none is whole and wrong.
        let mut is_right = false;
        wait_until("it is fetched again", || {
            if let Ok(response) = try_to_get(&cached, &fields) {
                assert!(response.body == expected, "{fields:?}");
                is_right = true;
            }
            is_right && cached.fetches() > fetches
        });
        assert_eq!(messages(cached.server(), "a damaged object was removed"), 1);
    }
}

/// Bytes that the server has read from files and connections.
fn read(cached: &Cached) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", cached.server().pid())).expect("it runs");
    text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).expect("the kernel tells")
}

/// As after a loss of power.
#[test]
fn a_body_of_an_earlier_boot_is_checked_once_for_all() {
    let mut cached = Cached::new(origin(LONG));
    wait_until_hit(&cached);
    stop(&mut cached);
    let path = object(&cached.directory);
    let mut bytes = fs::read(&path).expect("it is there");
    let footer = bytes.len() - 64;
    bytes[footer + 48] ^= 1;
    let checksum = crc32c::crc32c(&bytes[footer..footer + 60]);
    bytes[footer + 60..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, bytes).expect("it is written");
    cached.restart();
    let before = read(&cached);
    let cached = &cached;
    thread::scope(|scope| {
        for n in 0..30 {
            scope.spawn(move || {
                let range = format!("bytes={n}-{n}");
                let response = try_to_get(cached, &[("Range", &range)]).expect("a response");
                assert_eq!((response.status, response.body), (206, vec![n as u8]));
            });
        }
    });
    let bytes = read(cached) - before;
    assert!((LONG as u64..2 * LONG as u64).contains(&bytes), "{bytes} bytes were read");
    assert_eq!(cached.fetches(), 1);
}
