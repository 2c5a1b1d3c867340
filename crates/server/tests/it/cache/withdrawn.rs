//! Pages that the origin withdraws while another fetch of them is under way, or while they cannot be read: they are not sent again.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use sealion_testkit::http;

use super::disk::wait_until_stored;
use super::{Cached, answer, has_field, status};
use crate::support::upstream::Upstream;
use crate::support::{wait_for_message, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\nX-Internal: secret\r\n";
const OLD: &[u8] = b"the old body";
const NEW: &[u8] = b"the new body";
const FETCHED_AGAIN: (&str, &str) = ("Cache-Control", "no-cache");

/// An origin that withdraws its pages when told, and holds back the end of `/held` until told.
struct Origin {
    is_withdrawn: Arc<AtomicBool>,
    /// Bytes of a held response that come at once.
    sent: Arc<AtomicUsize>,
    release: Sender<()>,
}

impl Origin {
    fn new() -> (Upstream, Self) {
        let (release, held) = channel::<()>();
        let origin = Origin { is_withdrawn: Arc::default(), sent: Arc::default(), release };
        let (is_withdrawn, sent, held) = (Arc::clone(&origin.is_withdrawn), Arc::clone(&origin.sent), Mutex::new(held));
        let upstream = Upstream::start(move |accepted| {
            while let Some(request) = accepted.request() {
                if is_withdrawn.load(Ordering::Relaxed) && request.line().starts_with("HEAD") {
                    let fields = format!("Cache-Control: no-store\r\nContent-Length: {}\r\n", NEW.len());
                    accepted.write(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes());
                    continue;
                }
                if is_withdrawn.load(Ordering::Relaxed) {
                    accepted.write(&answer(404, "Cache-Control: no-store\r\n", NEW));
                    continue;
                }
                let whole = answer(200, FRESH, OLD);
                let is_held = request.line().contains("/held");
                let at = if is_held { sent.load(Ordering::Relaxed) } else { whole.len() };
                accepted.write(&whole[..at]);
                if is_held {
                    let _ = held.lock().expect("no panic").recv();
                    accepted.write(&whole[at..]);
                }
            }
        });
        (upstream, origin)
    }

    fn withdraws(&self, withdraws: bool) {
        self.is_withdrawn.store(withdraws, Ordering::Relaxed);
    }
}

#[test]
fn a_response_that_was_withdrawn_while_it_came_is_not_sent_again() {
    let (upstream, origin) = Origin::new();
    let cached = Cached::new(upstream);
    let of_head = answer(200, FRESH, OLD).len() - OLD.len();
    // From the second on no request waits for another, as a response was not shared a moment ago.
    for (round, sent) in [of_head + 4, of_head + 4, 0].into_iter().enumerate() {
        origin.withdraws(false);
        origin.sent.store(sent, Ordering::Relaxed);
        let fetches = cached.fetches();
        let mut first = cached.site.connect(cached.server());
        first.send(http::head("GET", "/held", &[]).as_bytes()).expect("the request leaves");
        wait_until("it is being fetched", || cached.fetches() > fetches);
        origin.withdraws(true);
        assert_eq!(cached.get("/held", &[FETCHED_AGAIN]).body, NEW);
        assert_eq!(cached.get("/held", &[]).body, NEW, "it does not wait for the old one");
        origin.release.send(()).expect("the origin waits");
        assert_eq!(http::read_response(&mut first, "GET").expect("a response").body, OLD);
        // A response that waits to be written is written then.
        origin.withdraws(false);
        wait_until_stored(&cached, &format!("/behind{round}"));
        origin.withdraws(true);
        for _ in 0..20 {
            assert_eq!(cached.get("/held", &[]).body, NEW, "round {round}");
        }
    }
}

/// Such requests share no fetch: they are forwarded as if there were no cache.
#[test]
fn a_response_that_was_withdrawn_from_a_request_that_passes_while_it_came_is_not_sent_again() {
    let (upstream, origin) = Origin::new();
    let cached = Cached::new(upstream);
    let of_head = answer(200, FRESH, OLD).len() - OLD.len();
    let passing = [
        ("GET", ("Cache-Control", "no-store")),
        ("GET", ("If-Match", "\"one\"")),
        ("GET", ("Connection", "X-Hidden")),
        ("HEAD", ("Accept", "*/*")),
    ];
    for (n, (method, field)) in passing.into_iter().enumerate() {
        for sent in [of_head + 4, 0] {
            let target = format!("/held/{n}/{sent}");
            origin.withdraws(false);
            origin.sent.store(sent, Ordering::Relaxed);
            let fetches = cached.fetches();
            let mut first = cached.site.connect(cached.server());
            first.send(http::head("GET", &target, &[]).as_bytes()).expect("the request leaves");
            wait_until("it is being fetched", || cached.fetches() > fetches);
            origin.withdraws(true);
            assert_eq!(cached.ask(method, &target, &[field]).status, if method == "HEAD" { 200 } else { 404 });
            origin.release.send(()).expect("the origin waits");
            assert_eq!(http::read_response(&mut first, "GET").expect("a response").body, OLD);
            // A response that waits to be written is written then.
            origin.withdraws(false);
            wait_until_stored(&cached, &format!("/behind/{n}/{sent}"));
            origin.withdraws(true);
            for _ in 0..20 {
                assert_eq!(cached.get(&target, &[]).body, NEW, "{method} {field:?}, {sent} bytes had come");
            }
        }
    }
}

/// The status says something of the request alone.
#[test]
fn a_precondition_that_fails_withdraws_nothing() {
    let origin = Upstream::answering(|request| match has_field(request, "if-match") {
        true => answer(412, "Cache-Control: no-store\r\n", NEW),
        false => answer(200, FRESH, OLD),
    });
    let cached = Cached::new(origin);
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    let fetches = cached.fetches();
    assert_eq!(cached.get("/a", &[("If-Match", "\"another\"")]).status, 412);
    assert_eq!(cached.get("/a", &[]).body, OLD);
    assert_eq!(cached.fetches(), fetches + 1);
}

/// The file cannot be opened.
#[test]
fn a_page_that_was_withdrawn_while_there_was_no_descriptor_is_not_sent_again() {
    let (upstream, origin) = Origin::new();
    let mut cached = Cached::with(upstream, "[server]\nworkers = 1\n", "");
    assert_eq!(wait_until_stored(&cached, "/a"), OLD);
    cached.restart();
    origin.withdraws(true);
    let mut client = cached.site.connect(cached.server());
    // It has a connection to the origin from then on.
    assert_eq!(http::get(&mut client, "/other").expect("a response").body, NEW);
    let pid = Pid::from_raw(cached.server().pid().try_into().expect("a pid"));
    let none = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(pid, Resource::Nofile, none).expect("the limit is lowered");
    assert_eq!(http::get(&mut client, "/a").expect("a response").body, NEW);
    prlimit(pid, Resource::Nofile, before).expect("the limit is restored");
    for _ in 0..20 {
        assert_eq!(cached.get("/a", &[]).body, NEW);
    }
}

/// Such a request is forwarded as if there were no cache.
#[test]
fn a_page_that_was_withdrawn_from_a_request_that_stores_nothing_is_not_sent_again() {
    let (upstream, origin) = Origin::new();
    let cached = Cached::new(upstream);
    wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
    origin.withdraws(true);
    assert_eq!(cached.get("/a", &[("Cache-Control", "no-cache, no-store")]).body, NEW);
    for _ in 0..20 {
        assert_eq!(cached.get("/a", &[]).body, NEW);
    }
}

/// A part or a 304 says it of the page as a whole response does.
#[test]
fn a_part_that_must_not_be_stored_withdraws_the_page() {
    for (condition, status_of_part) in [(("Range", "bytes=0-2"), 206), (("If-None-Match", "\"x\""), 304)] {
        let is_withdrawn = Arc::new(AtomicBool::new(false));
        let withdrawn = Arc::clone(&is_withdrawn);
        let upstream = Upstream::answering(move |request| {
            let fields = "Cache-Control: no-store\r\nETag: \"x\"\r\n";
            if !withdrawn.load(Ordering::Relaxed) {
                return answer(200, &format!("{FRESH}ETag: \"x\"\r\n"), OLD);
            }
            if !request.all("range").is_empty() {
                let range = format!("Content-Range: bytes 0-2/{}\r\n", NEW.len());
                return answer(206, &format!("{fields}{range}"), &NEW[..3]);
            }
            if !request.all("if-none-match").is_empty() {
                return format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").into_bytes();
            }
            answer(200, fields, NEW)
        });
        let cached = Cached::new(upstream);
        wait_until("it is stored", || status(&cached.get("/a", &[])) == "hit");
        is_withdrawn.store(true, Ordering::Relaxed);
        let passes = [("Cache-Control", "no-cache, no-store"), condition];
        assert_eq!(cached.get("/a", &passes).status, status_of_part);
        assert_eq!(cached.get("/a", &[]).body, NEW, "after {status_of_part}");
    }
}

#[test]
fn fields_that_a_reload_removes_are_not_sent_again_by_a_fetch_that_began_before() {
    let (upstream, origin) = Origin::new();
    let cached = Cached::new(upstream);
    let ask = || {
        let mut client = cached.site.connect(cached.server());
        client.send(http::head("GET", "/held", &[]).as_bytes()).expect("the request leaves");
        client
    };
    let mut before = ask();
    wait_until("it is being fetched", || cached.fetches() == 1);
    let file = cached.config().write();
    let text = fs::read_to_string(&file).expect("it was written");
    let without = "to = 'app', response_headers = [{ name = 'X-Internal', value = '' }], cache";
    fs::write(&file, text.replace("to = 'app', cache", without)).expect("it is written");
    cached.server().signal(Signal::HUP);
    wait_for_message(cached.server(), "configuration 1 is in use");
    let mut after = ask();
    wait_until("it is fetched by the new rule", || cached.fetches() == 2);
    drop(origin.release);
    let read = |client| http::read_response(client, "GET").expect("a response");
    assert_eq!(read(&mut before).field("x-internal"), Some("secret"));
    assert_eq!(read(&mut after).field("x-internal"), None);
    for _ in 0..20 {
        let again = cached.get("/held", &[]);
        assert_eq!((again.body.as_slice(), again.field("x-internal")), (OLD, None));
    }
}
