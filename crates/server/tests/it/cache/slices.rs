//! Large responses in slices (`slice` of a rule): what is asked of the origin, and what becomes of a response whose slices do not belong together.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use rustix::process::Signal;
use sealion_testkit::{Suite, http};

use super::disk::{objects, wait_for_objects};
use super::{Cached, answer, has_field, status};
use crate::support::http2::{Ended, Http2, INITIAL_WINDOW_SIZE, window_update};
use crate::support::upstream::{Received, Upstream};
use crate::support::{access_lines, begin, get, read_until_cut, wait_for_message, wait_until};

const SLICE: usize = 64 << 10;
const RULE: &str = "slice = '64KiB', purge_from = ['127.0.0.1']";
const FRESH: &str = "Cache-Control: max-age=1000\r\n";

/// Three slices and a short one.
const LENGTH: usize = 200_000;

/// The body of a version of the representation.
fn body(version: usize) -> Vec<u8> {
    (0..LENGTH).map(|at| ((at + at / SLICE + version) % 251) as u8).collect()
}

/// The answer of an origin that serves ranges. `fields`: further ones.
fn of_version(request: &Received, version: usize, fields: &str) -> Vec<u8> {
    of_body(request, version, &body(version), fields)
}

fn of_body(request: &Received, version: usize, body: &[u8], fields: &str) -> Vec<u8> {
    let (tag, length) = (format!("\"{version}\""), body.len());
    let fields = format!("{fields}ETag: {tag}\r\n");
    if request.all("if-none-match") == [&*tag] {
        return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
    }
    let range = match request.all("range")[..] {
        [range] if request.all("if-range").iter().all(|own| *own == tag) => range.trim_start_matches("bytes="),
        _ => return answer(200, &fields, body),
    };
    let (first, last) = range.split_once('-').expect("one range");
    let first: usize = first.parse().expect("a number");
    if first >= length {
        return answer(416, &format!("Content-Range: bytes */{length}\r\n"), b"");
    }
    let end = last.parse().map_or(length, |last: usize| (last + 1).min(length));
    let fields = format!("{fields}Content-Range: bytes {first}-{}/{length}\r\n", end - 1);
    answer(206, &fields, &body[first..end])
}

/// An origin whose representation has the version of the counter.
fn versions(fields: &'static str) -> (Upstream, Arc<AtomicUsize>) {
    let version = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&version);
    (Upstream::answering(move |request| of_version(request, now.load(Ordering::Relaxed), fields)), version)
}

/// An origin that answers each request when the test says so.
fn waiting(fields: &'static str) -> (Upstream, Sender<()>, Arc<AtomicUsize>) {
    let version = Arc::new(AtomicUsize::new(0));
    let (go_on, wait) = channel();
    let (now, wait) = (Arc::clone(&version), Mutex::new(wait));
    let origin = Upstream::answering(move |request| {
        // The end of the test ends the waiting.
        let _ = wait.lock().expect("no panic").recv();
        of_version(request, now.load(Ordering::Relaxed), fields)
    });
    (origin, go_on, version)
}

/// The ranges that were asked for, in order.
fn ranges(cached: &Cached) -> Vec<String> {
    let requests = cached.origin.requests();
    requests.iter().map(|request| request.all("range").concat().trim_start_matches("bytes=").to_owned()).collect()
}

const ALL: [&str; 4] = ["0-65535", "65536-131071", "131072-196607", "196608-199999"];

fn has_all(cached: &Cached, path: &str, version: usize) {
    let response = cached.get(path, &[]);
    assert_eq!(response.status, 200);
    assert!(response.body == body(version), "the whole of version {version}");
    assert_eq!(response.field("content-range"), None);
}

#[test]
fn a_large_response_is_fetched_and_stored_in_slices() {
    let (origin, _) = versions(FRESH);
    let mut cached = Cached::with(origin, "", RULE);
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached), ALL);
    // Those behind the first one name its representation.
    assert!(cached.origin.requests()[1..].iter().all(|request| request.field("if-range") == "\"0\""));
    wait_for_objects(&cached, 4);
    for restarts in [false, true] {
        if restarts {
            cached.restart();
        }
        for _ in 0..3 {
            let again = cached.get("/a", &[]);
            assert!(again.body == body(0) && again.field("etag") == Some("\"0\""));
            assert_eq!(status(&again), "hit");
        }
        let head = cached.ask("HEAD", "/a", &[]);
        assert_eq!((head.status, head.field("content-length")), (200, Some("200000")));
        assert_eq!(cached.get("/a", &[("If-None-Match", "\"0\"")]).status, 304);
    }
    assert_eq!(cached.fetches(), 4);
}

#[test]
fn a_range_has_the_slices_fetched_that_it_needs() {
    let (origin, _) = versions(FRESH);
    let cached = Cached::with(origin, "", RULE);
    let mut expected: Vec<&str> = Vec::new();
    for (range, first, last, fetched) in [
        ("bytes=70000-70099", 70_000, 70_099, &ALL[1..2]),
        ("bytes=65536-131071", 65_536, 131_071, &[]),
        ("bytes=-10", LENGTH - 10, LENGTH - 1, &ALL[3..]),
        ("bytes=0-0", 0, 0, &ALL[..1]),
        ("bytes=60000-140000", 60_000, 140_000, &ALL[2..3]),
        ("bytes=1-", 1, LENGTH - 1, &[]),
    ] {
        let response = cached.get("/a", &[("Range", range)]);
        let content_range = format!("bytes {first}-{last}/{LENGTH}");
        assert_eq!((response.status, response.field("content-range")), (206, Some(&*content_range)), "{range}");
        assert!(response.body == body(0)[first..=last], "{range}");
        expected.extend(fetched);
        assert_eq!(ranges(&cached), expected, "{range}");
        let word = if expected.len() == 1 && !fetched.is_empty() {
            "uri-miss"
        } else if fetched.is_empty() {
            "hit"
        } else {
            "partial"
        };
        assert_eq!(status(&response), word, "{range}");
        wait_for_objects(&cached, expected.len());
    }
    assert_eq!(cached.get("/a", &[("Range", "bytes=200000-")]).status, 416);
    // Several ranges, or of another representation: the whole.
    for fields in [&[("Range", "bytes=0-0,9-9")][..], &[("Range", "bytes=0-0"), ("If-Range", "\"x\"")]] {
        assert!(cached.get("/a", fields).body == body(0));
    }
    assert_eq!(cached.fetches(), 4);
}

#[test]
fn a_range_beyond_the_end_of_an_unknown_response_is_the_origins_to_refuse() {
    let (origin, _) = versions(FRESH);
    let cached = Cached::with(origin, "", RULE);
    let refused = cached.get("/a", &[("Range", "bytes=900000-")]);
    assert_eq!((refused.status, refused.field("content-range")), (416, Some("bytes */200000")));
    has_all(&cached, "/a", 0);
    has_all(&cached, "/a", 0);
    assert_eq!(cached.fetches(), 5);
}

#[test]
fn a_range_beyond_the_end_says_nothing_to_other_clients() {
    let origin = Upstream::answering(|request| match request.all("range")[..] {
        ["bytes=851968-917503"] => answer(416, &format!("{FRESH}Content-Range: bytes */200000\r\n"), b""),
        _ => of_version(request, 0, FRESH),
    });
    let cached = Cached::with(origin, "", RULE);
    assert_eq!(cached.get("/a", &[("Range", "bytes=900000-")]).status, 416);
    has_all(&cached, "/a", 0);
}

#[test]
fn a_response_that_has_become_shorter_than_the_slice_that_tells_is_fetched_whole() {
    let has_shrunk = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&has_shrunk);
    let origin = Upstream::answering(move |request| match now.load(Ordering::Relaxed) {
        0 => of_version(request, 0, "Cache-Control: no-cache\r\n"),
        _ => of_body(request, 1, b"short", "Cache-Control: no-cache\r\n"),
    });
    let cached = Cached::with(origin, "", RULE);
    assert_eq!(cached.get("/a", &[("Range", "bytes=131072-131080")]).status, 206);
    wait_for_objects(&cached, 1);
    has_shrunk.store(1, Ordering::Relaxed);
    for _ in 0..3 {
        let response = cached.get("/a", &[]);
        assert_eq!((response.status, &*response.body), (200, &b"short"[..]));
    }
}

/// Its slices could not be put together.
#[test]
fn a_response_whose_validator_is_not_stored_is_fetched_whole() {
    let (origin, _) = versions("Cache-Control: max-age=1000, no-cache=\"ETag\"\r\n");
    let cached = Cached::with(origin, "", RULE);
    for _ in 0..3 {
        has_all(&cached, "/a", 0);
    }
    assert_eq!(ranges(&cached)[..2], ["0-65535", ""]);
}

#[test]
fn the_digest_of_a_slice_is_not_sent_for_other_octets() {
    let (origin, _) =
        versions("Cache-Control: max-age=1000\r\nContent-Digest: sha-256=:AAAA:\r\nContent-MD5: AAAA\r\n");
    let cached = Cached::with(origin, "", RULE);
    for fields in [&[][..], &[("Range", "bytes=70000-70005")]] {
        let response = cached.get("/a", fields);
        assert_eq!((response.field("content-digest"), response.field("content-md5")), (None, None));
    }
}

/// Only what says something of the response removes its slices.
#[test]
fn a_client_that_is_refused_a_slice_removes_none() {
    let origin = Upstream::answering(|request| match request.all("user-agent")[..] {
        ["blocked"] => answer(429, FRESH, b"no"),
        _ => of_version(request, 0, FRESH),
    });
    let cached = Cached::with(origin, "", RULE);
    assert_eq!(cached.get("/a", &[("Range", "bytes=0-99")]).status, 206);
    wait_for_objects(&cached, 1);
    let mut client = cached.site.connect(cached.server());
    let fields = [("Range", "bytes=65536-65540"), ("User-Agent", "blocked")];
    client.send(http::head("GET", "/a", &fields).as_bytes()).expect("it leaves");
    // It is cut.
    let _ = read_until_cut(&mut client);
    assert_eq!(cached.fetches(), 2);
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached), ["0-65535", "65536-131071", "65536-131071", "131072-196607", "196608-199999"]);
}

/// As for a page that is stored whole.
#[test]
fn a_page_that_the_response_to_a_further_slice_withdraws_is_not_sent_again() {
    let no_store = "Cache-Control: no-store\r\n";
    for (code, fields) in
        [(401, ""), (403, FRESH), (404, ""), (410, no_store), (302, "Location: /b\r\n"), (206, no_store)]
    {
        let is_withdrawn = Arc::new(AtomicBool::new(false));
        let withdrawn = Arc::clone(&is_withdrawn);
        let origin = Upstream::answering(move |request| {
            if !withdrawn.load(Ordering::Relaxed) {
                return of_version(request, 0, FRESH);
            }
            if code == 206 { of_version(request, 0, fields) } else { answer(code, fields, b"no") }
        });
        let cached = Cached::with(origin, "", RULE);
        assert_eq!(cached.get("/a", &[("Range", "bytes=0-99")]).status, 206);
        wait_for_objects(&cached, 1);
        is_withdrawn.store(true, Ordering::Relaxed);
        let further = [("Range", "bytes=65536-65540")];
        if code == 206 {
            assert_eq!(cached.get("/a", &further).body, body(0)[65536..65541]);
        } else {
            let mut client = cached.site.connect(cached.server());
            client.send(http::head("GET", "/a", &further).as_bytes()).expect("it leaves");
            let _ = read_until_cut(&mut client);
        }
        wait_until("the page is gone", || objects(&cached.directory).is_empty());
        let before = cached.fetches();
        // A response for one client reaches it whole.
        let expected = if code == 206 { 200 } else { code };
        assert_eq!(cached.get("/a", &[("Range", "bytes=0-99")]).status, expected, "{code}");
        assert!(cached.fetches() > before, "{code}: the origin is asked");
    }
}

/// The rule of the reload shares the fetch of the one before it, and gets a slice of that one's size.
#[test]
fn a_validation_under_way_at_a_reload_makes_no_bare_part() {
    let (origin, go_on, _) = waiting("Cache-Control: no-cache\r\n");
    let mut cached = Cached::with(origin, "", RULE);
    let answer_up_to = |requests: usize| (0..requests).for_each(|_| go_on.send(()).expect("the origin waits"));
    answer_up_to(4);
    has_all(&cached, "/a", 0);
    wait_for_objects(&cached, 4);
    let mut clients = [(); 2].map(|()| cached.site.connect(cached.server()));
    clients[0].send(get("/a").as_bytes()).expect("it leaves");
    wait_until("it is validated", || cached.fetches() == 5);
    cached.keys.1 = "slice = '100KiB'";
    cached.config().write();
    cached.server().signal(Signal::HUP);
    wait_for_message(cached.server(), "configuration 1 is in use");
    clients[1].send(get("/a").as_bytes()).expect("it leaves");
    thread::sleep(std::time::Duration::from_millis(100));
    answer_up_to(50);
    for client in &mut clients {
        let response = http::read_response(client, "GET").expect("a response");
        assert!(response.status == 200 && response.body == body(0), "{} {}", response.status, response.body.len());
    }
    for _ in 0..3 {
        has_all(&cached, "/a", 0);
    }
}

#[test]
fn what_is_no_slice_is_stored_whole() {
    let small = |request: &Received| match request.all("range")[..] {
        ["bytes=0-65535"] => {
            answer(206, "Cache-Control: max-age=1000\r\nContent-Range: bytes 0-4/5\r\nETag: \"a\"\r\n", b"small")
        }
        _ => answer(200, FRESH, b"not asked so"),
    };
    let cached = Cached::with(Upstream::answering(small), "", RULE);
    for word in ["uri-miss", "hit"] {
        let response = cached.get("/a", &[]);
        assert_eq!((response.status, &*response.body), (200, &b"small"[..]));
        assert_eq!((response.field("content-range"), status(&response).as_str()), (None, word));
    }
    assert_eq!(cached.get("/a", &[("Range", "bytes=1-2")]).body, b"ma");
    assert_eq!(cached.fetches(), 1);
    // An origin that ignores Range, and one whose 206 cannot be put together: with a weak tag, a range of its own choice, several parts, or an unknown length.
    let ignores = Upstream::answering(|_| answer(200, FRESH, &body(0)));
    let cached = Cached::with(ignores, "", RULE);
    has_all(&cached, "/a", 0);
    wait_for_objects(&cached, 1);
    has_all(&cached, "/a", 0);
    assert_eq!(cached.fetches(), 1);
    for part in [
        "ETag: W/\"0\"\r\nContent-Range: bytes 0-65535/200000\r\n",
        "Content-Range: bytes 0-65535/200000\r\n",
        "ETag: \"0\"\r\nContent-Range: bytes 0-32767/200000\r\n",
        "ETag: \"0\"\r\nContent-Range: bytes 0-65535/*\r\n",
        "ETag: \"0\"\r\nContent-Type: multipart/byteranges; boundary=x\r\n",
    ] {
        let origin = Upstream::answering(move |request| match has_field(request, "range") {
            true => answer(206, &format!("{FRESH}{part}"), &body(0)[..65_536]),
            false => answer(200, FRESH, &body(0)),
        });
        let cached = Cached::with(origin, "", RULE);
        has_all(&cached, "/a", 0);
        wait_for_objects(&cached, 1);
        has_all(&cached, "/a", 0);
        assert_eq!(cached.fetches(), 2, "{part}");
    }
    // An empty response has no part.
    let empty = Upstream::answering(|request| match has_field(request, "range") {
        true => answer(416, "Content-Range: bytes */0\r\n", b""),
        false => answer(200, FRESH, b""),
    });
    let cached = Cached::with(empty, "", RULE);
    assert_eq!(cached.get("/a", &[]).status, 200);
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
}

#[test]
fn what_is_for_one_client_reaches_it_whole_and_is_not_stored() {
    let (origin, _) = versions("Cache-Control: private\r\n");
    let cached = Cached::with(origin, "", RULE);
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached), ["0-65535", ""]);
    // For a minute nothing is fetched in vain.
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached), ["0-65535", "", ""]);
    assert!(objects(&cached.directory).is_empty());
    let (origin, _) = versions(FRESH);
    let cached = Cached::with(origin, "", "slice = '64KiB', max_object = '100KiB'");
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached), ["0-65535", ""]);
    assert!(objects(&cached.directory).is_empty());
}

/// Over both protocols.
#[test]
fn a_response_that_changes_between_its_slices_ends_as_an_incomplete_one() {
    for over_http2 in [false, true] {
        let (origin, version) = versions(FRESH);
        let cached = Cached::with(origin, "", RULE);
        assert_eq!(cached.get("/a", &[("Range", "bytes=0-70000")]).status, 206);
        wait_for_objects(&cached, 2);
        version.store(1, Ordering::Relaxed);
        if over_http2 {
            let settings = [(INITIAL_WINDOW_SIZE, 1 << 20)];
            let mut http = Http2::connect(cached.site.connector(Suite::TLS13), cached.server().address(), &settings);
            http.send(&window_update(0, 1 << 20));
            let stream = http.get("/a");
            let got = http.response(stream);
            assert!(matches!(got.ended, Some(Ended::Reset(_))), "not whole");
            assert!(body(0).starts_with(&got.body) && got.body.len() < LENGTH);
        } else {
            let mut client = cached.site.connect(cached.server());
            assert!(http::get(&mut client, "/a").is_err());
        }
        wait_until("the slices are gone", || objects(&cached.directory).is_empty());
        has_all(&cached, "/a", 1);
        has_all(&cached, "/a", 1);
        wait_for_objects(&cached, 4);
        assert_eq!(ranges(&cached)[3..], ALL);
        let lines = access_lines(cached.server(), 4);
        assert!(lines[1].get("aborted").contains("has changed since"), "{:?}", lines[1]);
    }
}

/// It heeds no `If-Range`, for example: the first slice is one, and the next is the whole.
#[test]
fn an_origin_that_sends_no_further_slice_is_asked_for_the_whole() {
    let origin = Upstream::answering(|request| match request.all("if-range")[..] {
        [] => of_version(request, 0, FRESH),
        _ => answer(200, &format!("{FRESH}ETag: \"0\"\r\n"), &body(0)),
    });
    let cached = Cached::with(origin, "", RULE);
    let mut client = cached.site.connect(cached.server());
    assert!(http::get(&mut client, "/a").is_err());
    has_all(&cached, "/a", 0);
    wait_until("the whole is on the disk", || {
        let mut sizes = objects(&cached.directory).into_iter().flat_map(fs::metadata).map(|object| object.len());
        sizes.any(|size| size > LENGTH as u64)
    });
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached), ["0-65535", "65536-131071", ""]);
    let lines = access_lines(cached.server(), 3);
    assert_eq!((lines[1].get("cache"), lines[2].get("cache")), ("miss", "hit"));
}

#[test]
fn a_stale_response_is_validated_once_for_all_its_slices() {
    let (origin, version) = versions("Cache-Control: no-cache\r\n");
    let cached = Cached::with(origin, "", RULE);
    has_all(&cached, "/a", 0);
    wait_for_objects(&cached, 4);
    has_all(&cached, "/a", 0);
    let requests = cached.origin.requests();
    assert_eq!(requests.len(), 5);
    assert_eq!((requests[4].field("if-none-match"), requests[4].field("range")), ("\"0\"", "bytes=0-65535"));
    // A newer one takes the place of all slices.
    version.store(1, Ordering::Relaxed);
    has_all(&cached, "/a", 1);
    assert_eq!(ranges(&cached)[5..], ALL);
    wait_for_objects(&cached, 4);
    has_all(&cached, "/a", 1);
    assert_eq!(cached.fetches(), 10);
}

#[test]
fn a_purge_is_of_all_slices() {
    const TAGGED: &str = "Cache-Control: max-age=1000\r\nCache-Tag: news\r\n";
    let (origin, _) = versions(TAGGED);
    let cached = Cached::with(origin, "", RULE);
    let url = "https://localhost/a";
    let mut fetches = 0;
    let purges: [&[&str]; 6] =
        [&[url], &["--prefix", "https://localhost/"], &["--tag", "news"], &["--site", "localhost"], &["--all"], &[]];
    for purge in purges {
        has_all(&cached, "/a", 0);
        has_all(&cached, "/a", 0);
        fetches += 4;
        assert_eq!(cached.fetches(), fetches, "{purge:?}");
        match purge {
            [] => assert_eq!(cached.ask("PURGE", "/a", &[]).status, 200),
            arguments => super::orders::purge(&cached, arguments),
        }
    }
    has_all(&cached, "/a", 0);
    assert_eq!(cached.fetches(), fetches + 4);
    // Stale ones are validated by the first.
    super::orders::purge(&cached, &["--all", "--soft"]);
    has_all(&cached, "/a", 0);
    assert_eq!(cached.fetches(), fetches + 5);
}

#[test]
fn clients_of_one_slice_share_its_fetch() {
    let (origin, go_on, _) = waiting(FRESH);
    let cached = Arc::new(Cached::with(origin, "", RULE));
    let clients: Vec<_> = (0..10)
        .map(|n| {
            let cached = Arc::clone(&cached);
            thread::spawn(move || match n % 2 {
                0 => has_all(&cached, "/a", 0),
                _ => {
                    let part = cached.get("/a", &[("Range", "bytes=10-70000")]);
                    assert!(part.status == 206 && part.body == body(0)[10..=70_000]);
                }
            })
        })
        .collect();
    for n in 0..4 {
        wait_until("the slice is asked for", || cached.fetches() > n);
        go_on.send(()).expect("the origin waits");
    }
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
    assert_eq!(ranges(&cached), ALL);
}

#[test]
fn no_slice_is_fetched_that_nobody_waits_for() {
    let (origin, go_on, _) = waiting(FRESH);
    let cached = Cached::with(origin, "", RULE);
    go_on.send(()).expect("the origin waits");
    let mut client = cached.site.connect(cached.server());
    begin(&mut client, "/a");
    client.read(SLICE).expect("the first slice");
    wait_until("the second one is asked for", || cached.fetches() == 2);
    // A client that only closes its side may still read on, so this one resets the connection.
    client.reset().expect("it leaves");
    go_on.send(()).expect("the origin waits");
    wait_for_objects(&cached, 2);
    assert_eq!(ranges(&cached), ALL[..2]);
    let response = cached.get("/a", &[("Cache-Control", "only-if-cached")]);
    assert_eq!(response.status, 504);
    let part = [("Cache-Control", "only-if-cached"), ("Range", "bytes=5-131071")];
    assert_eq!(cached.get("/a", &part).body, body(0)[5..131_072]);
    assert_eq!(cached.fetches(), 2);
}

#[test]
fn a_purge_in_the_middle_costs_the_response_nothing_but_its_next_slices_are_fetched() {
    let (origin, go_on, _) = waiting(FRESH);
    let cached = Cached::with(origin, "", RULE);
    go_on.send(()).expect("the origin waits");
    let mut client = cached.site.connect(cached.server());
    begin(&mut client, "/a");
    let mut got = client.read(SLICE).expect("the first slice");
    wait_until("the second one is asked for", || cached.fetches() == 2);
    assert_eq!(cached.ask("PURGE", "/a", &[]).status, 200);
    for _ in 0..3 {
        go_on.send(()).expect("the origin waits");
    }
    got.extend(client.read(LENGTH - SLICE).expect("the rest"));
    assert!(got == body(0));
    // The two slices that were asked for before are fetched again.
    for _ in 0..2 {
        go_on.send(()).expect("the origin waits");
    }
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached)[4..], ALL[..2]);
}

#[test]
fn an_origin_that_fails_between_slices_cuts_the_response_and_the_next_one_goes_on() {
    let is_down = Arc::new(AtomicUsize::new(0));
    let down = Arc::clone(&is_down);
    let origin = Upstream::answering(move |request| match down.load(Ordering::Relaxed) {
        0 => of_version(request, 0, FRESH),
        _ => answer(503, "", b"busy"),
    });
    let cached = Cached::with(origin, "", RULE);
    assert_eq!(cached.get("/a", &[("Range", "bytes=0-9")]).status, 206);
    wait_for_objects(&cached, 1);
    is_down.store(1, Ordering::Relaxed);
    assert!(http::get(&mut cached.site.connect(cached.server()), "/a").is_err());
    is_down.store(0, Ordering::Relaxed);
    has_all(&cached, "/a", 0);
    // The first slice was not fetched again.
    assert_eq!(ranges(&cached), ["0-65535", ALL[1], ALL[1], ALL[2], ALL[3]]);
}

#[test]
fn a_slice_that_is_damaged_is_fetched_again() {
    let (origin, _) = versions(FRESH);
    let mut cached = Cached::with(origin, "", RULE);
    has_all(&cached, "/a", 0);
    wait_for_objects(&cached, 4);
    let mut server = cached.server.take().expect("it runs");
    server.signal(Signal::TERM);
    server.wait();
    for object in objects(&cached.directory) {
        let mut octets = fs::read(&object).expect("an object");
        octets[1000] ^= 1;
        fs::write(&object, octets).expect("a damaged object");
    }
    cached.restart();
    has_all(&cached, "/a", 0);
    assert_eq!(cached.fetches(), 8);
}

/// Over both protocols: the client that meets it notices, and none does afterwards.
#[test]
fn a_slice_that_cannot_be_read_any_more_is_fetched_again() {
    for over_http2 in [false, true] {
        let body: Vec<u8> = (0..700_000_u32).map(|at| (at % 251) as u8).collect();
        let sent = body.clone();
        let origin = Upstream::answering(move |request| of_body(request, 0, &sent, FRESH));
        // Slices that do not lie in memory.
        let cached = Cached::with(origin, "[server]\nworkers = 1\n", "slice = '256KiB'");
        for _ in 0..2 {
            assert!(cached.get("/a", &[]).body == body);
            wait_for_objects(&cached, 3);
        }
        for object in objects(&cached.directory) {
            fs::File::options().write(true).open(object).expect("an object").set_len(100_000).expect("cut");
        }
        if over_http2 {
            let settings = [(INITIAL_WINDOW_SIZE, 1 << 20)];
            let mut http = Http2::connect(cached.site.connector(Suite::TLS13), cached.server().address(), &settings);
            http.send(&window_update(0, 1 << 20));
            let stream = http.get("/a");
            assert!(matches!(http.response(stream).ended, Some(Ended::Reset(_))));
        } else {
            assert!(http::get(&mut cached.site.connect(cached.server()), "/a").is_err());
        }
        wait_until("they are fetched again", || {
            let again = http::get(&mut cached.site.connect(cached.server()), "/a");
            again.is_ok_and(|response| response.body == body)
        });
        assert!(cached.fetches() > 3);
        assert!(cached.get("/a", &[]).body == body);
    }
}

#[test]
fn variants_have_slices_of_their_own() {
    const VARYING: &str = "Cache-Control: max-age=1000\r\nVary: X-Version\r\n";
    let origin =
        Upstream::answering(|request| of_version(request, request.field("x-version").parse().expect("one"), VARYING));
    let cached = Cached::with(origin, "", RULE);
    for turn in 0..2 {
        for version in 0..2 {
            let field = [("X-Version", ["0", "1"][version])];
            assert!(cached.get("/a", &field).body == body(version), "turn {turn}");
            let part = cached.get("/a", &[field[0], ("Range", "bytes=-100000")]);
            assert!(part.status == 206 && part.body == body(version)[100_000..]);
        }
        // And the list of both.
        wait_for_objects(&cached, 9);
    }
    assert_eq!(cached.fetches(), 8);
}

#[test]
fn where_nothing_is_stored_the_slices_are_passed_on() {
    let (origin, _) = versions(FRESH);
    let cached = Cached::with(origin, "free = '1000TB'", RULE);
    wait_for_message(cached.server(), "has less free than cache.free");
    for _ in 0..2 {
        has_all(&cached, "/a", 0);
        let part = cached.get("/a", &[("Range", "bytes=70000-140000")]);
        assert!(part.status == 206 && part.body == body(0)[70_000..=140_000]);
    }
    assert!(objects(&cached.directory).is_empty());
}

#[test]
fn slices_of_another_size_are_fetched_again() {
    let (origin, _) = versions(FRESH);
    let mut cached = Cached::with(origin, "", RULE);
    has_all(&cached, "/a", 0);
    wait_for_objects(&cached, 4);
    cached.keys.1 = "slice = '100KiB'";
    cached.restart();
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached)[4..], ["0-102399", "102400-199999"]);
    cached.keys.1 = "";
    cached.restart();
    has_all(&cached, "/a", 0);
    assert_eq!(ranges(&cached)[6..], [""]);
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    // A whole response stays one.
    cached.keys.1 = RULE;
    cached.restart();
    assert_eq!(status(&cached.get("/a", &[("Range", "bytes=5-9")])), "hit");
    assert_eq!(cached.fetches(), 7);
}

#[test]
fn slices_of_a_wrong_size_are_refused() {
    for (rule, problem) in
        [("slice = '1KiB'", "write 64KiB or more"), ("slice = '2MiB', max_object = '1MiB'", "not more than max_object")]
    {
        let cached = Cached::stopped(super::counting(FRESH), "", rule);
        let problems = cached.config().problems();
        assert!(problems.contains("cache.slice") && problems.contains(problem), "{rule}: {problems}");
    }
}
