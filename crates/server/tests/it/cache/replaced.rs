//! Stored responses that the origin has made uncacheable, or has replaced by a response that is not stored: they are not sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use sealion_testkit::http::{self, Response};
use sealion_testkit::server::Server;

use super::disk::{objects, wait_for_objects};
use super::{Cached, answer, has_field, status};
use crate::support::upstream::{Received, Upstream};
use crate::support::{Site, wait_until};

/// Stale on arrival.
const STALE: &str = "Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"one\"\r\n";
const FRESH: &str = "Cache-Control: max-age=1000\r\nETag: \"one\"\r\n";
const OLD: &[u8] = b"the old body";
const NEW: &[u8] = b"the new body";
/// Any age is accepted.
const MAX_STALE: (&str, &str) = ("Cache-Control", "max-stale");

/// Responses by which an origin withdraws a page.
const WITHDRAWN: [(u16, &str); 14] = [
    (200, "Cache-Control: no-store\r\n"),
    (200, "Cache-Control: private, max-age=60\r\nSet-Cookie: session=1\r\n"),
    (200, "Cache-Control: max-age=60\r\nSet-Cookie: session=1\r\n"),
    (200, "Cache-Control: max-age=60\r\nVary: *\r\n"),
    (200, "Cache-Control: max-age=0\r\n"),
    (404, ""),
    (410, "Cache-Control: no-store\r\n"),
    (302, "Location: /login\r\n"),
    (307, "Location: /login\r\nCache-Control: private\r\n"),
    (401, "WWW-Authenticate: Basic\r\n"),
    (403, ""),
    (451, ""),
    (206, "Cache-Control: no-store\r\nContent-Range: bytes 0-11/12\r\n"),
    (206, "Cache-Control: private\r\nContent-Range: bytes 0-11/20\r\n"),
];

/// An origin whose answer the test changes: the old page, the withdrawal with this number, or `Self::BROKEN`.
struct Origin(Arc<AtomicUsize>);

impl Origin {
    const OLD: usize = usize::MAX;
    const BROKEN: usize = usize::MAX - 1;

    fn new(fields: &'static str) -> (Upstream, Self) {
        Self::answering(move |_| answer(200, fields, OLD))
    }

    /// `old`: makes the old page.
    fn answering(old: impl Fn(&Received) -> Vec<u8> + Send + Sync + 'static) -> (Upstream, Self) {
        let state = Arc::new(AtomicUsize::new(Self::OLD));
        let own = Arc::clone(&state);
        let origin = Upstream::answering(move |request| match state.load(Ordering::Relaxed) {
            Self::OLD => old(request),
            Self::BROKEN => answer(503, "", b"broken"),
            n => answer(WITHDRAWN[n].0, WITHDRAWN[n].1, NEW),
        });
        (origin, Origin(own))
    }

    fn becomes(&self, state: usize) {
        self.0.store(state, Ordering::Relaxed);
    }
}

/// Asks until the new page comes, then over connections to all workers: the old one is not sent any more.
#[track_caller]
fn only_the_new_one_is_sent(cached: &Cached, target: &str, fields: &[(&str, &str)]) {
    wait_until("the new page is sent", || cached.get(target, fields).body == NEW);
    for _ in 0..20 {
        assert_eq!(cached.get(target, fields).body, NEW, "{target}");
    }
}

#[test]
fn a_page_that_was_withdrawn_is_not_sent_while_it_would_be_revalidated() {
    let (upstream, origin) = Origin::new(STALE);
    let cached = Cached::with(upstream, "", "stale_while_revalidate = '1d', stale_if_error = '1d'");
    for (n, (code, fields)) in WITHDRAWN.iter().enumerate() {
        let target = format!("/{n}");
        origin.becomes(Origin::OLD);
        assert_eq!(cached.get(&target, &[]).body, OLD);
        for _ in 0..20 {
            assert_eq!(cached.get(&target, &[]).body, OLD);
        }
        origin.becomes(n);
        only_the_new_one_is_sent(&cached, &target, &[]);
        assert_eq!(cached.get(&target, &[]).status, *code, "{fields}");
        assert_eq!(cached.get(&target, &[MAX_STALE]).body, NEW, "{code} {fields}");
        origin.becomes(Origin::BROKEN);
        assert_eq!(cached.get(&target, &[]).body, b"broken", "{code} {fields}");
    }
}

#[test]
fn a_page_that_was_withdrawn_is_not_sent_if_the_origin_fails_later() {
    let (upstream, origin) = Origin::new(STALE);
    let cached = Cached::with(upstream, "", "stale_if_error = '1d'");
    for (n, (code, fields)) in WITHDRAWN.iter().enumerate() {
        let target = format!("/{n}");
        origin.becomes(Origin::OLD);
        assert_eq!(cached.get(&target, &[]).body, OLD);
        wait_until("it is stored", || {
            origin.becomes(Origin::BROKEN);
            let sent = cached.get(&target, &[]).body == OLD;
            origin.becomes(Origin::OLD);
            if !sent {
                cached.get(&target, &[]);
            }
            sent
        });
        origin.becomes(n);
        assert_eq!(cached.get(&target, &[]).body, NEW, "{code} {fields}");
        origin.becomes(Origin::BROKEN);
        assert_eq!(cached.get(&target, &[]).status, 503, "{code} {fields}");
        assert_eq!(cached.get(&target, &[MAX_STALE]).status, 503, "{code} {fields}");
    }
}

/// A client that has a fresh response fetched again learns that it was withdrawn, and so do the others.
#[test]
fn a_fresh_page_goes_when_its_validation_shows_that_it_was_withdrawn() {
    let (upstream, origin) = Origin::new(FRESH);
    let cached = Cached::new(upstream);
    for n in 0..WITHDRAWN.len() {
        let target = format!("/{n}");
        origin.becomes(Origin::OLD);
        wait_until("it is stored", || status(&cached.get(&target, &[])) == "hit");
        origin.becomes(n);
        assert_eq!(cached.get(&target, &[("Cache-Control", "no-cache")]).body, NEW);
        for _ in 0..20 {
            assert_eq!(cached.get(&target, &[]).body, NEW, "{target}");
        }
    }
}

/// The refusal says nothing to other clients.
#[test]
fn what_is_refused_for_the_request_or_by_a_failure_removes_nothing() {
    let origin = Upstream::start(|accepted| {
        while let Some(request) = accepted.request() {
            match request.all("x-test")[..] {
                ["cut"] => {
                    return accepted
                        .write(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=9\r\nContent-Length: 99\r\n\r\ncut");
                }
                ["broken"] => return accepted.write(b"no response at all\r\n\r\n"),
                [code] => {
                    accepted.write(&answer(code.parse().expect("a status"), "Cache-Control: no-store\r\n", b"no"))
                }
                _ if has_field(&request, "authorization") || has_field(&request, "cookie") => {
                    accepted.write(&answer(200, "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", b"of a user"));
                }
                _ => accepted.write(&answer(200, FRESH, OLD)),
            }
        }
    });
    let cached = Cached::new(origin);
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    let fetched_again = ("Cache-Control", "no-cache");
    for (fields, code) in [
        (("Authorization", "Basic eDp5"), 200),
        (("Cookie", "session=1"), 200),
        (("X-Test", "400"), 400),
        (("X-Test", "413"), 413),
        (("X-Test", "429"), 429),
        (("X-Test", "431"), 431),
        (("X-Test", "500"), 500),
        (("X-Test", "503"), 503),
        (("X-Test", "broken"), 502),
    ] {
        assert_eq!(cached.get("/a", &[fetched_again, fields]).status, code, "{fields:?}");
        let again = cached.get("/a", &[]);
        assert_eq!((again.body.as_slice(), status(&again).as_str()), (OLD, "hit"), "{fields:?}");
    }
    for code in ["401", "403"] {
        let wrong_password = [fetched_again, ("Authorization", "Basic eDp5"), ("X-Test", code)];
        assert_eq!(cached.get("/a", &wrong_password).status.to_string(), code);
        assert_eq!(status(&cached.get("/a", &[])), "hit", "{code}");
    }
    // The response to another request would be stored.
    assert_eq!(cached.get("/a", &[("Cache-Control", "no-cache, no-store")]).status, 200);
    assert_eq!(status(&cached.get("/a", &[])), "hit");
    let mut client = cached.site.connect(cached.server());
    client.send(http::head("GET", "/a", &[fetched_again, ("X-Test", "cut")]).as_bytes()).expect("the request leaves");
    // It is an error in either case: 502, or an incomplete response.
    assert!(http::read_response(&mut client, "GET").map_or(true, |response| response.status == 502));
    assert_eq!((cached.get("/a", &[]).body, status(&cached.get("/a", &[])).as_str()), (OLD.to_vec(), "hit"));
}

/// Behind passwords, each request has Authorization.
#[test]
fn a_page_that_was_withdrawn_from_users_goes_too() {
    let (upstream, origin) = Origin::new("Cache-Control: public, max-age=10\r\nAge: 20\r\nETag: \"one\"\r\n");
    let cached = Cached::with(upstream, "", "stale_while_revalidate = '1d'");
    let user = ("Authorization", "Basic eDp5");
    for (n, _) in WITHDRAWN.iter().enumerate().filter(|(_, (code, _))| ![401, 403].contains(code)) {
        let target = format!("/{n}");
        origin.becomes(Origin::OLD);
        for _ in 0..20 {
            assert_eq!(cached.get(&target, &[user]).body, OLD);
        }
        origin.becomes(n);
        only_the_new_one_is_sent(&cached, &target, &[user]);
    }
}

#[test]
fn a_variant_that_was_withdrawn_leaves_the_others() {
    let (upstream, origin) = Origin::answering(|request| {
        let body = if request.all("x-lang") == ["de"] { OLD } else { b"another variant" };
        answer(200, &format!("{FRESH}Vary: X-Lang\r\n"), body)
    });
    let cached = Cached::new(upstream);
    let [de, fr] = [("X-Lang", "de"), ("X-Lang", "fr")];
    for lang in [de, fr] {
        wait_until("it is stored", || status(&cached.get("/a", &[lang])) == "hit");
    }
    origin.becomes(0);
    assert_eq!(cached.get("/a", &[de, ("Cache-Control", "no-cache")]).body, NEW);
    only_the_new_one_is_sent(&cached, "/a", &[de, MAX_STALE]);
    for _ in 0..20 {
        let other = cached.get("/a", &[fr]);
        assert_eq!((other.body.as_slice(), status(&other).as_str()), (&b"another variant"[..], "hit"));
    }
}

/// A request finds the new list of variants, and with the old one the variant that was replaced.
#[test]
fn a_variant_that_was_replaced_under_another_key_is_gone() {
    let turn = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&turn);
    let origin = Upstream::answering(move |_| match own.load(Ordering::Relaxed) {
        0 => answer(200, &format!("{FRESH}Vary: X-Lang\r\n"), OLD),
        1 => answer(200, &format!("{FRESH}Vary: X-Other\r\n"), NEW),
        _ => answer(200, &format!("{FRESH}Vary: X-Lang\r\n"), NEW),
    });
    let cached = Cached::new(origin);
    let [de, fr] = [("X-Lang", "de"), ("X-Lang", "fr")];
    wait_until("it is stored", || status(&cached.get("/a", &[de])) == "hit");
    turn.store(1, Ordering::Relaxed);
    assert_eq!(cached.get("/a", &[de, ("Cache-Control", "no-cache")]).body, NEW);
    wait_until("it is stored", || status(&cached.get("/a", &[de])) == "hit");
    turn.store(2, Ordering::Relaxed);
    // The list has the first names again.
    let other = ("X-Other", "1");
    assert_eq!(cached.get("/a", &[fr, other]).body, NEW);
    wait_until("it is stored", || status(&cached.get("/a", &[fr, other])) == "hit");
    for _ in 0..20 {
        assert_eq!(cached.get("/a", &[de]).body, NEW);
    }
}

/// The disk takes none of the new response; the stored one is out of date all the same.
#[test]
fn a_response_that_is_too_large_to_be_stored_takes_the_place_of_the_stored_one() {
    let large = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&large);
    let chunked = [
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=9\r\nTransfer-Encoding: chunked\r\n\r\n4000\r\n",
        &[b'x'; 0x4000][..],
        b"\r\n0\r\n\r\n",
    ]
    .concat();
    let origin = Upstream::answering(move |_| match own.load(Ordering::Relaxed) {
        0 => answer(200, FRESH, OLD),
        1 => chunked.clone(),
        _ => answer(200, FRESH, &[b'x'; 0x4000]),
    });
    let cached = Cached::with(origin, "", "max_object = '8KiB'");
    for n in 1..3 {
        large.store(0, Ordering::Relaxed);
        let target = format!("/{n}");
        wait_until("it is stored", || status(&cached.get(&target, &[])) == "hit");
        large.store(n, Ordering::Relaxed);
        assert_eq!(cached.get(&target, &[("Cache-Control", "no-cache")]).body.len(), 0x4000);
        for _ in 0..20 {
            assert_eq!(cached.get(&target, &[]).body.len(), 0x4000, "{n}");
        }
    }
}

#[test]
fn a_withdrawn_response_in_slices_leaves_none_of_them() {
    const LENGTH: usize = 200_000;
    let (upstream, origin) = Origin::answering(|request| {
        let range = request.all("range").concat();
        let fields = format!("{FRESH}X-Range: {range}\r\n");
        let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
            return answer(200, &fields, &[b'o'; LENGTH]);
        };
        let first: usize = first.parse().expect("a number");
        let end = last.parse().map_or(LENGTH, |last: usize| (last + 1).min(LENGTH));
        let fields = format!("{fields}Content-Range: bytes {first}-{}/{LENGTH}\r\n", end - 1);
        answer(206, &fields, &[b'o'; LENGTH][first..end])
    });
    let cached = Cached::with(upstream, "", "slice = '64KiB'");
    wait_until("it is stored", || {
        let sent = cached.get("/a", &[]);
        sent.body.len() == LENGTH && status(&sent) == "hit"
    });
    wait_for_objects(&cached, 4);
    origin.becomes(0);
    assert_eq!(cached.get("/a", &[("Cache-Control", "no-cache")]).body, NEW);
    only_the_new_one_is_sent(&cached, "/a", &[MAX_STALE]);
    assert_eq!(cached.get("/a", &[MAX_STALE, ("Range", "bytes=70000-70009")]).body, NEW);
    wait_until("the slices are removed", || objects(&cached.directory).is_empty());
}

/// While one process takes over from another, both have the responses of one directory.
#[test]
fn another_process_with_the_same_directory_learns_of_it() {
    let (upstream, origin) = Origin::new(STALE);
    let cached = Cached::with(upstream, "", "stale_while_revalidate = '1d'");
    for (n, [asked, other]) in [[0, 1], [1, 0]].into_iter().enumerate() {
        let target = format!("/{n}");
        let second = cached.config().serve_from_user_space();
        origin.becomes(Origin::OLD);
        assert_eq!(cached.get(&target, &[]).body, OLD);
        wait_for_objects(&cached, 1);
        let servers = [cached.server(), &second];
        let get = |server: usize, fields: &[(&str, &str)]| ask(&cached.site, servers[server], &target, fields);
        for _ in 0..20 {
            assert_eq!(get(other, &[MAX_STALE]).body, OLD);
        }
        origin.becomes(0);
        wait_until("one has the new page", || get(asked, &[]).body == NEW);
        // Such a request never has the response validated.
        wait_until("the other has it too", || get(other, &[MAX_STALE]).body == NEW);
        for _ in 0..20 {
            assert_eq!(get(other, &[MAX_STALE]).body, NEW);
        }
        wait_until("it is removed", || objects(&cached.directory).is_empty());
    }
}

#[track_caller]
fn ask(site: &Site, server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    let mut client = site.connect(server);
    client.send(http::head("GET", target, fields).as_bytes()).expect("the request leaves");
    http::read_response(&mut client, "GET").expect("a response")
}

#[test]
fn a_withdrawn_page_is_not_back_after_the_server_was_killed() {
    let (upstream, origin) = Origin::new(STALE);
    let mut cached = Cached::with(upstream, "", "stale_while_revalidate = '1d'");
    assert_eq!(cached.get("/a", &[]).body, OLD);
    wait_for_objects(&cached, 1);
    origin.becomes(0);
    wait_until("the new page is sent", || cached.get("/a", &[]).body == NEW);
    let written = || std::fs::read_to_string(cached.directory.join("purges")).is_ok_and(|lines| !lines.is_empty());
    wait_until("it is written down", written);
    let mut server = cached.server.take().expect("it runs");
    server.signal(Signal::KILL);
    server.wait();
    cached.restart();
    assert_eq!(cached.get("/a", &[MAX_STALE]).body, NEW);
}

/// A validation that forbids to store the response further.
#[test]
fn a_304_that_makes_a_response_private_has_it_removed_everywhere() {
    let turn = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&turn);
    let origin = Upstream::answering(move |request| match own.load(Ordering::Relaxed) {
        0 => answer(200, STALE, OLD),
        _ if has_field(request, "if-none-match") => {
            b"HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nCache-Control: private\r\n\r\n".to_vec()
        }
        _ => answer(200, "Cache-Control: private\r\n", NEW),
    });
    let cached = Cached::with(origin, "", "stale_while_revalidate = '1d'");
    assert_eq!(cached.get("/a", &[]).body, OLD);
    for _ in 0..20 {
        assert_eq!(cached.get("/a", &[]).body, OLD);
    }
    turn.store(1, Ordering::Relaxed);
    // Such a request has it validated; one with max-stale never does.
    only_the_new_one_is_sent(&cached, "/a", &[]);
    only_the_new_one_is_sent(&cached, "/a", &[MAX_STALE]);
}
