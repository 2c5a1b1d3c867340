//! Which responses are sent again, and to which requests.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

use sealion_testkit::http;

use super::{Cached, answer, counting, has_field, status};
use crate::support::upstream::Upstream;
use crate::support::{get, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\nETag: \"one\"\r\n";
/// Stale on arrival, with a validator.
const STALE: &str = "Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"one\"\r\n";

#[test]
fn a_fresh_response_is_sent_again_without_the_origin() {
    let cached = Cached::new(counting(FRESH));
    let first = cached.get("/a", &[]);
    assert_eq!((first.status, first.body.as_slice(), status(&first).as_str()), (200, &b"body 0"[..], "uri-miss"));
    for _ in 0..3 {
        let again = cached.get("/a", &[]);
        assert_eq!((again.status, again.body.as_slice(), status(&again).as_str()), (200, &b"body 0"[..], "hit"));
        assert_eq!(again.field("etag"), Some("\"one\""));
        assert!(again.field("age").is_some());
    }
    assert_eq!(cached.get("/b", &[]).body, b"body 1");
    assert_eq!(cached.get("/a?b", &[]).body, b"body 2");
    assert_eq!(cached.fetches(), 3);
}

#[test]
fn what_must_not_be_stored_is_fetched_for_each_request() {
    let long = "Cache-Control: max-age=1000\r\n";
    let rows: &[(&'static str, &[(&str, &str)])] = &[
        ("Cache-Control: no-store\r\n", &[]),
        ("Cache-Control: private, max-age=1000\r\n", &[]),
        // Malformed, but clear enough.
        ("Cache-Control: public; no-store; max-age=1000\r\n", &[]),
        ("Cache-Control: max-age=1000, x=\"private\r\n", &[]),
        ("Cache-Control: max-age=1000\r\nCDN-Cache-Control: max-age=1000; no-store\r\n", &[]),
        ("Cache-Control: max-age=1000\r\nSet-Cookie: a=1\r\n", &[]),
        ("Cache-Control: max-age=1000\r\nVary: *\r\n", &[]),
        (long, &[("Authorization", "Basic eDp5")]),
        (long, &[("Cache-Control", "no-store")]),
        // Nobody says for how long, and the request names a user.
        ("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", &[("Cookie", "session=1")]),
    ];
    for (fields, request) in rows {
        let cached = Cached::new(counting(fields));
        for n in 0..3 {
            let expected = format!("body {n}");
            assert_eq!(cached.get("/a", request).body, expected.as_bytes(), "{fields:?} {request:?}");
        }
    }
}

#[test]
fn a_stale_response_is_validated_and_keeps_its_body() {
    let origin = Upstream::answering(|request| match has_field(request, "if-none-match") {
        true => {
            b"HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nX-New: 1\r\nCache-Control: max-age=1000\r\n\r\n".to_vec()
        }
        false => answer(200, STALE, b"the body"),
    });
    let cached = Cached::new(origin);
    assert_eq!(cached.get("/a", &[]).body, b"the body");
    let validated = cached.get("/a", &[]);
    assert_eq!((validated.status, validated.body.as_slice()), (200, &b"the body"[..]));
    assert_eq!((status(&validated).as_str(), validated.field("x-new")), ("stale", Some("1")));
    let hit = cached.get("/a", &[]);
    assert_eq!((status(&hit).as_str(), hit.body.as_slice(), hit.field("x-new")), ("hit", &b"the body"[..], Some("1")));
    assert_eq!(cached.fetches(), 2);
}

#[test]
fn a_stale_response_is_replaced_by_a_new_one() {
    let cached = Cached::new(counting(STALE));
    for n in 0..3 {
        assert_eq!(cached.get("/a", &[]).body, format!("body {n}").as_bytes());
    }
}

/// It is older by its Age, and asked for later.
#[test]
fn a_response_of_another_cache_takes_the_place_of_an_older_one() {
    let count = AtomicUsize::new(0);
    let cached = Cached::new(Upstream::answering(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => answer(200, "Cache-Control: max-age=0\r\nETag: \"old\"\r\n", b"old"),
        _ => answer(200, "Cache-Control: max-age=1000\r\nAge: 40\r\n", b"new"),
    }));
    assert_eq!(cached.get("/a", &[]).body, b"old");
    super::disk::wait_for_objects(&cached, 1);
    assert_eq!(cached.get("/a", &[]).body, b"new");
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    let fetches = cached.fetches();
    assert_eq!(cached.get("/a", &[]).body, b"new");
    assert_eq!(cached.fetches(), fetches);
}

/// The response to a request that cannot be shared is under way: a write must reach it.
#[test]
fn a_write_reaches_a_fetch_that_is_not_shared() {
    let (go_on, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let count = AtomicUsize::new(0);
    let origin = Upstream::answering(move |request| {
        match (request.line().starts_with("POST"), count.fetch_add(1, Ordering::Relaxed)) {
            (true, _) => answer(204, "", b""),
            (_, 0) => answer(200, "Cache-Control: private\r\n", b"private"),
            (_, 1) => {
                wait.lock().expect("no panic").recv().expect("the test goes on");
                answer(200, FRESH, b"before")
            }
            _ => answer(200, FRESH, b"after"),
        }
    });
    let cached = Cached::new(origin);
    assert_eq!(cached.get("/a", &[]).body, b"private");
    let mut client = cached.site.connect(cached.server());
    client.send(get("/a").as_bytes()).expect("it leaves");
    wait_until("it is under way", || cached.fetches() == 2);
    assert_eq!(cached.ask("POST", "/a", &[]).status, 204);
    go_on.send(()).expect("the origin waits");
    assert_eq!(http::read_response(&mut client, "GET").expect("a response").body, b"before");
    assert_eq!(cached.get("/a", &[]).body, b"after");
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    assert_eq!(cached.get("/a", &[]).body, b"after");
}

#[test]
fn a_stale_response_is_sent_while_it_is_fetched_again() {
    let cached = Cached::new(counting("Cache-Control: max-age=10, stale-while-revalidate=1000\r\nAge: 20\r\n"));
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    wait_until("the new one is there", || cached.get("/a", &[]).body != b"body 0");
}

#[test]
fn head_has_a_stale_response_fetched_again_with_its_body() {
    let origin = Upstream::answering(|request| {
        let fields = "Cache-Control: max-age=10, stale-while-revalidate=1000\r\nAge: 20\r\nContent-Length: 4";
        let body = if request.line().starts_with("HEAD") { "" } else { "body" };
        format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}").into_bytes()
    });
    let cached = Cached::new(origin);
    assert_eq!(cached.get("/a", &[]).body, b"body");
    assert_eq!(cached.ask("HEAD", "/a", &[]).status, 200);
    wait_until("it was fetched again", || cached.fetches() == 2);
    assert_eq!(cached.get("/a", &[]).body, b"body");
}

#[test]
fn what_asks_for_the_state_of_the_origin_is_answered_by_it() {
    let origin = Upstream::answering(|request| {
        let is_other = request.all("if-match").iter().any(|value| *value != "\"two\"");
        let status = if is_other { 412 } else { 200 };
        answer(status, "Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"two\"\r\n", b"0123456789")
    });
    let cached = Cached::new(origin);
    for _ in 0..2 {
        let other = cached.get("/a", &[("If-Match", "\"one\""), ("Range", "bytes=5-")]);
        assert_eq!(other.status, 412);
        // The second time, a stale one is there.
        assert_eq!(cached.get("/a", &[]).body, b"0123456789");
    }
    assert_eq!(cached.get("/a", &[("If-Match", "\"two\"")]).status, 200);
}

#[test]
fn a_response_that_no_disk_takes_is_not_said_to_be_stored() {
    let cached = Cached::with(counting("Cache-Control: max-age=1000\r\n"), "free = '900TB'", "");
    wait_until("the room was looked at", || {
        let target = format!("/{}", cached.fetches());
        cached.get(&target, &[]).field("cache-status") == Some("sealion; fwd=uri-miss")
    });
}

#[test]
fn a_stale_response_is_sent_if_the_origin_fails_and_allows_it() {
    for (allowance, expected) in [(", stale-if-error=1000", 200), ("", 503), (", must-revalidate", 503)] {
        let fails = std::sync::Arc::new(AtomicBool::new(false));
        let fails_now = std::sync::Arc::clone(&fails);
        let origin = Upstream::answering(move |_| match fails_now.load(Ordering::Relaxed) {
            true => answer(503, "", b"down"),
            false => answer(200, &format!("Cache-Control: max-age=10{allowance}\r\nAge: 20\r\n"), b"the body"),
        });
        let cached = Cached::new(origin);
        assert_eq!(cached.get("/a", &[]).status, 200);
        fails.store(true, Ordering::Relaxed);
        assert_eq!(cached.get("/a", &[]).status, expected, "{allowance}");
    }
}

#[test]
fn vary_tells_the_responses_of_a_url_apart() {
    let origin = Upstream::answering(|request| {
        answer(200, "Cache-Control: max-age=1000\r\nVary: X-Lang\r\n", request.all("x-lang").concat().as_bytes())
    });
    let cached = Cached::new(origin);
    let requests: [&[(&str, &str)]; 3] = [&[("X-Lang", "de")], &[("X-Lang", "en")], &[]];
    for request in requests {
        let expected = request.first().map_or("", |(_, language)| language);
        wait_until("it is stored", || {
            let response = cached.get("/a", request);
            assert_eq!(response.body, expected.as_bytes());
            status(&response) == "hit"
        });
    }
    let fetches = cached.fetches();
    for request in requests {
        assert_eq!(status(&cached.get("/a", request)), "hit");
    }
    assert_eq!(cached.fetches(), fetches);
}

#[test]
fn ranges_preconditions_and_head_are_answered_from_the_store() {
    let cached = Cached::new(counting(FRESH));
    // The origin is asked for the whole.
    let part = cached.get("/a", &[("Range", "bytes=1-3")]);
    assert_eq!((part.status, part.body.as_slice()), (206, &b"ody"[..]));
    assert_eq!(part.field("content-range"), Some("bytes 1-3/6"));
    assert!(!has_field(&cached.origin.last(), "range"));
    let part = cached.get("/a", &[("Range", "bytes=-2")]);
    assert_eq!((part.status, part.body.as_slice()), (206, &b" 0"[..]));
    assert_eq!(cached.get("/a", &[("Range", "bytes=6-")]).status, 416);
    assert_eq!(cached.get("/a", &[("Range", "bytes=1-3"), ("If-Range", "\"two\"")]).status, 200);
    let unchanged = cached.get("/a", &[("If-None-Match", "\"one\"")]);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(unchanged.field("etag"), Some("\"one\""));
    assert_eq!(cached.get("/a", &[("If-None-Match", "\"two\"")]).status, 200);
    let head = cached.ask("HEAD", "/a", &[]);
    assert_eq!((head.status, head.field("content-length")), (200, Some("6")));
    assert_eq!(cached.fetches(), 1);
}

/// Hits of one second share their field lines: each has the Age of its own second, and parts and 304 have fields of their own.
#[test]
fn each_hit_has_the_age_of_its_second() {
    let cached = Cached::new(counting("Cache-Control: max-age=1000\r\nAge: 100\r\nETag: \"one\"\r\n"));
    cached.get("/a", &[]);
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    let first = age(&cached.get("/a", &[]));
    wait_until("a later second", || {
        let part = cached.get("/a", &[("Range", "bytes=1-3")]);
        assert_eq!((part.status, part.field("content-range")), (206, Some("bytes 1-3/6")));
        assert_eq!(cached.get("/a", &[("If-None-Match", "\"one\"")]).status, 304);
        for _ in 0..8 {
            let whole = cached.get("/a", &[]);
            assert_eq!((whole.status, whole.body.as_slice()), (200, &b"body 0"[..]));
            let ages = whole.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("age"));
            assert_eq!((whole.field("content-range"), ages.count()), (None, 1));
            let ttl = 1000 - age(&whole);
            assert_eq!(whole.field("cache-status"), Some(format!("sealion; hit; ttl={ttl}").as_str()));
        }
        age(&cached.get("/a", &[])) > first
    });
}

fn age(response: &http::Response) -> u64 {
    response.field("age").expect("Age").parse().expect("a number")
}

#[test]
fn a_write_invalidates_what_is_stored_with_all_variants() {
    let cached = Cached::new(counting("Cache-Control: max-age=1000\r\nVary: X-Lang\r\n"));
    assert_eq!(cached.get("/a", &[("X-Lang", "de")]).body, b"body 0");
    assert_eq!(cached.get("/a", &[("X-Lang", "en")]).body, b"body 1");
    assert_eq!(cached.ask("DELETE", "/a", &[]).body, b"body 2");
    assert_eq!(cached.get("/a", &[("X-Lang", "de")]).body, b"body 3");
    assert_eq!(cached.get("/a", &[("X-Lang", "en")]).body, b"body 4");
}

#[test]
fn an_unsafe_method_that_fails_invalidates_nothing() {
    let origin = Upstream::answering(|request| match request.line().starts_with("GET") {
        true => answer(200, FRESH, b"the body"),
        false => answer(403, "", b"no"),
    });
    let cached = Cached::new(origin);
    cached.get("/a", &[]);
    assert_eq!(cached.ask("DELETE", "/a", &[]).status, 403);
    assert_eq!(status(&cached.get("/a", &[])), "hit");
}

#[test]
fn purge_is_for_named_networks_alone() {
    let cached = Cached::with(counting(FRESH), "", "purge_from = ['127.0.0.0/8']");
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    assert_eq!(cached.ask("PURGE", "/a", &[]).status, 200);
    assert_eq!(cached.get("/a", &[]).body, b"body 1");
    let cached = Cached::with(counting(FRESH), "", "purge_from = ['192.0.2.0/24']");
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    assert_eq!(cached.ask("PURGE", "/a", &[]).status, 403);
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
}

/// A response that depends on a field outside the key would be sent to all clients.
#[test]
fn fields_of_a_client_that_are_no_part_of_the_key_do_not_reach_the_origin() {
    let origin = Upstream::answering(|request| {
        let mut seen = String::new();
        for name in ["x-forwarded-host", "x-forwarded-proto", "x-original-url", "x-host", "forwarded"] {
            seen.push_str(&format!("{name}={} ", request.all(name).concat()));
        }
        answer(200, FRESH, seen.as_bytes())
    });
    let cached = Cached::new(origin);
    let evil =
        [("X-Forwarded-Host", "evil.example"), ("X-Forwarded-Proto", "gopher"), ("Forwarded", "host=evil.example")];
    let body = cached.get("/a", &evil).body;
    let body = String::from_utf8(body).unwrap();
    assert!(!body.contains("evil") && !body.contains("gopher"), "{body}");
}

/// The content of a GET is no part of the key, and an origin may heed it.
#[test]
fn a_get_with_content_is_neither_stored_nor_answered_from_the_store() {
    let count = AtomicUsize::new(0);
    let origin = Upstream::answering(move |request| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        answer(200, FRESH, format!("{n} {}", String::from_utf8_lossy(&request.body)).as_bytes())
    });
    let cached = Cached::new(origin);
    let mut client = cached.site.connect(cached.server());
    let mut ask = |bytes: &[u8]| {
        client.send(bytes).expect("the request leaves");
        http::read_response(&mut client, "GET").expect("a response").body
    };
    let with_content = [http::head("GET", "/a", &[("Content-Length", "4")]).as_bytes(), b"evil"].concat();
    let without = http::head("GET", "/a", &[]);
    assert_eq!(ask(&with_content), b"0 evil");
    assert_eq!(ask(without.as_bytes()), b"1 ");
    assert_eq!(ask(&with_content), b"2 evil");
    // The content was read: the next request on the connection is understood.
    assert_eq!(ask(without.as_bytes()), b"1 ");
}

#[test]
fn parameters_that_are_dropped_are_dropped_for_the_origin_too() {
    let origin = Upstream::answering(|request| answer(200, FRESH, request.line().as_bytes()));
    let cached = Cached::with(origin, "", "query = 'sorted', drop_parameters = ['utm_*']");
    assert_eq!(cached.get("/a?b=2&utm_source=evil&a=1", &[]).body, b"GET /a?a=1&b=2");
    assert_eq!(status(&cached.get("/a?a=1&b=2", &[])), "hit");
    assert_eq!(cached.get("/a?utm_x=1", &[]).body, b"GET /a");
    assert_eq!(cached.fetches(), 2);
}

#[test]
fn bodies_of_all_lengths_are_sent_whole_from_the_origin_and_from_the_store() {
    let body = |target: &str| {
        let length: usize = target.trim_start_matches('/').parse().unwrap();
        (0..length).map(|at| (at * 31 % 251) as u8).collect::<Vec<u8>>()
    };
    for is_chunked in [false, true] {
        let origin = Upstream::answering(move |request| {
            let target = request.line().strip_prefix("GET ").unwrap();
            let body = body(target);
            match is_chunked {
                false => answer(200, FRESH, &body),
                true => {
                    let mut bytes =
                        format!("HTTP/1.1 200 OK\r\n{FRESH}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
                    for part in body.chunks(70_001) {
                        bytes.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                        bytes.extend_from_slice(part);
                        bytes.extend_from_slice(b"\r\n");
                    }
                    bytes.extend_from_slice(b"0\r\n\r\n");
                    bytes
                }
            }
        });
        let mut cached = Cached::new(origin);
        let lengths = [0, 1, 16_383, 16_384, 131_071, 131_072, 131_073, 1_048_583, 5_000_001];
        for _ in 0..2 {
            for length in lengths {
                let target = format!("/{length}");
                for _ in 0..2 {
                    let response = cached.get(&target, &[]);
                    assert!(response.body == body(&target), "{length}, chunked: {is_chunked}");
                }
                if length > 1000 {
                    let part = cached.get(&target, &[("Range", "bytes=777-998")]);
                    assert_eq!((part.status, part.body.as_slice()), (206, &body(&target)[777..999]));
                }
            }
            cached.restart();
        }
        assert_eq!(cached.fetches(), lengths.len(), "chunked: {is_chunked}");
    }
}

#[test]
fn a_response_by_who_asks_is_given_to_nobody_else() {
    for name in ["X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Request-Id"] {
        let count = AtomicUsize::new(0);
        let origin = Upstream::answering(move |_| {
            let n = count.fetch_add(1, Ordering::Relaxed);
            answer(200, &format!("Cache-Control: max-age=1000\r\nVary: {name}\r\n"), format!("{n}").as_bytes())
        });
        let cached = Cached::new(origin);
        for n in 0..3 {
            assert_eq!(cached.get("/a", &[]).body, format!("{n}").as_bytes(), "{name}");
        }
    }
}

#[test]
fn a_field_that_the_origin_does_not_get_as_it_was_sent_selects_no_response() {
    let origin = Upstream::answering(|request| {
        let seen = [request.all("x-lang"), request.all("x_lang")].concat().concat();
        answer(200, "Cache-Control: max-age=1000\r\nVary: X-Lang\r\n", seen.as_bytes())
    });
    let cached = Cached::with(origin, "", "key_headers = ['x-country']");
    let hidden = [("Connection", "close, x-lang"), ("X-Lang", "de")];
    assert_eq!(cached.get("/a", &hidden).body, b"");
    assert_eq!(cached.get("/a", &[("X-Lang", "de")]).body, b"de");
    assert_eq!(cached.get("/b", &[("X_Lang", "de")]).body, b"");
    assert_eq!(cached.get("/b", &[]).body, b"");
    let hidden = [("Connection", "x-country"), ("X-Country", "de")];
    cached.get("/c", &hidden);
    assert_ne!(status(&cached.get("/c", &[("X-Country", "de")])), "hit");
}

#[test]
fn a_request_that_may_not_be_stored_removes_nothing_that_is() {
    let origin = Upstream::answering(|request| match has_field(request, "if-none-match") {
        true => b"HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\n\r\n".to_vec(),
        false => answer(200, FRESH, b"the body"),
    });
    let cached = Cached::new(origin);
    cached.get("/a", &[]);
    super::disk::wait_for_objects(&cached, 1);
    assert_eq!(status(&cached.get("/a", &[])), "hit");
    let forced = cached.get("/a", &[("Authorization", "x"), ("Cache-Control", "no-cache")]);
    assert_eq!((forced.status, forced.body.as_slice()), (200, &b"the body"[..]));
    assert_eq!(status(&cached.get("/a", &[])), "hit");
}

#[test]
fn a_purge_and_a_write_reach_the_url_as_the_key_has_it() {
    let cached =
        Cached::with(counting(FRESH), "", "query = 'sorted', drop_parameters = ['utm_*'], purge_from = ['127.0.0.1']");
    let target = "/a?b=2&utm_source=x&a=1";
    assert_eq!(cached.get(target, &[]).body, b"body 0");
    assert_eq!(cached.ask("PURGE", target, &[]).status, 200);
    assert_eq!(cached.get(target, &[]).body, b"body 1");
    assert_eq!(cached.ask("DELETE", target, &[]).body, b"body 2");
    assert_eq!(cached.get(target, &[]).body, b"body 3");
}

#[test]
fn cookies_are_found_in_every_spelling() {
    let cached = Cached::with(counting(FRESH), "", "bypass_cookies = ['session', 'wp_*']");
    for cookie in ["session=1", "a=b;session=1", "a=b ; session =1", "wp_login= 2", "\tsession\t= 1"] {
        assert_eq!(status(&cached.get("/a", &[("Cookie", cookie)])), "bypass", "{cookie}");
    }
    assert_eq!(status(&cached.get("/a", &[("Cookie", "sessions=1; my_session=2; xwp_=3")])), "uri-miss");
}

#[test]
fn a_response_that_comes_from_the_origin_has_its_age() {
    for (fields, expected) in [
        ("Cache-Control: max-age=1000\r\n", None),
        ("Cache-Control: max-age=1000\r\nAge: 20\r\n", Some("20")),
        ("Cache-Control: max-age=1000\r\nAge: 20, 30\r\n", Some("20, 30")),
    ] {
        let cached = Cached::new(counting(fields));
        assert_eq!(cached.get("/a", &[]).field("age"), expected);
        assert!(cached.get("/a", &[]).field("age").is_some(), "of a hit");
    }
}

#[test]
fn fields_that_are_not_stored_reach_the_client_whose_request_was_answered() {
    let fields = "Cache-Control: max-age=1000, no-cache=\"Set-Cookie\", private=\"X-User\"\r\nSet-Cookie: a=1\r\nX-User: u\r\nX-All: 1\r\n";
    let cached = Cached::new(counting(fields));
    let names = ["set-cookie", "x-user", "x-all"];
    let first = cached.get("/a", &[]);
    assert_eq!(names.map(|name| first.field(name)), [Some("a=1"), Some("u"), Some("1")]);
    let again = cached.get("/a", &[]);
    assert_eq!(names.map(|name| again.field(name)), [None, None, Some("1")]);
    assert_eq!(cached.fetches(), 1);
}

#[test]
fn the_origin_learns_that_surrogate_control_is_heeded() {
    let cached = Cached::new(counting("Surrogate-Control: max-age=1000;sealion\r\nCache-Control: no-store\r\n"));
    cached.get("/a", &[]);
    assert_eq!(status(&cached.get("/a", &[])), "hit");
    let requests = cached.origin.requests();
    assert_eq!(requests[0].all("surrogate-capability"), ["sealion=\"Surrogate/1.0\""]);
}

#[test]
fn a_validation_that_changes_vary_makes_no_response_for_others() {
    let origin = Upstream::answering(|request| {
        let user = request.all("x-user").concat();
        match has_field(request, "if-none-match") {
            true => format!("HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nVary: X-User\r\nX-For: {user}\r\nCache-Control: max-age=1000\r\n\r\n").into_bytes(),
            false => answer(200, &format!("{STALE}X-For: {user}\r\n"), b"the body"),
        }
    });
    let cached = Cached::new(origin);
    for user in ["1", "2", "3", "2"] {
        assert_eq!(cached.get("/a", &[("X-User", user)]).field("x-for"), Some(user));
    }
}

#[test]
fn a_304_that_nobody_asked_for_is_no_answer() {
    let origin = Upstream::answering(|_| b"HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\n\r\n".to_vec());
    let cached = Cached::new(origin);
    assert_eq!(cached.get("/a", &[]).status, 502);
}

#[test]
fn spellings_of_accept_encoding_share_a_response_by_the_codings_they_accept() {
    let cached = Cached::new(counting("Cache-Control: max-age=1000\r\nVary: Accept-Encoding\r\n"));
    let rows: [(&[&str], &str); 5] = [
        (&["gzip, br", "br;q=1, gzip", "GZIP;q=0.1,br,x-1", "deflate, gzip, br, x-2;q=0.3"], "br, gzip"),
        (&["identity", "deflate", "x-3", "", "br;q=0"], "identity"),
        (&["*", "br, gzip, zstd", "zstd, br, x-gzip"], "br, gzip, zstd"),
        (&["gzip, identity;q=0", "*;q=0, gzip"], "gzip, identity;q=0"),
        (&["dcz, gzip"], "dcz, gzip"),
    ];
    for (fetches, (spellings, sent)) in rows.into_iter().enumerate() {
        for accepted in spellings {
            let body = cached.get("/a", &[("Accept-Encoding", accepted)]).body;
            assert_eq!(body, format!("body {fetches}").as_bytes(), "{accepted}");
        }
        assert_eq!(cached.origin.last().all("accept-encoding"), [sent]);
    }
    // A request without the field gets no answer to one that has it.
    cached.get("/a", &[]);
    assert_eq!((cached.fetches(), cached.origin.last().all("accept-encoding").len()), (rows.len() + 1, 0));
}

#[test]
fn clients_learn_why_a_response_is_not_stored() {
    for (fields, request, expected) in [
        ("Cache-Control: private\r\n", &[][..], "sealion; fwd=uri-miss; detail=private"),
        (
            "Cache-Control: max-age=10\r\n",
            &[("Cache-Control", "no-store")],
            "sealion; fwd=uri-miss; detail=request-no-store",
        ),
        ("Cache-Control: max-age=10\r\n", &[("Connection", "X-A")], "sealion; fwd=bypass; detail=connection"),
    ] {
        let cached = Cached::new(counting(fields));
        assert_eq!(cached.get("/a", request).field("cache-status"), Some(expected));
    }
    let cached = Cached::new(counting(""));
    assert_eq!(cached.ask("POST", "/a", &[]).field("cache-status"), Some("sealion; fwd=method; detail=method"));
}
