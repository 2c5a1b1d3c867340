//! Requests that wait for the same response.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use sealion_testkit::{Suite, http};

use super::{Cached, answer};
use crate::support::http2::{CANCEL, Http2, INITIAL_WINDOW_SIZE, block, headers, reset};
use crate::support::upstream::{Accepted, Upstream};
use crate::support::{access_lines, begin, get, wait_for_cache, wait_until};

/// Bytes of a body that comes in two halves.
pub(super) const LENGTH: usize = 600_000;

pub(super) fn body() -> Vec<u8> {
    (0..LENGTH).map(|at| (at % 251) as u8).collect()
}

/// An origin that sends the first half of its body, and the second half, or what `end` does, when the test says so. Its connection ends if that
/// returns `false`.
pub(super) fn in_halves(
    cache_control: &'static str,
    end: impl Fn(&mut Accepted) -> bool + Send + Sync + 'static,
) -> (Upstream, mpsc::Sender<()>) {
    let (go_on, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let origin = Upstream::start(move |accepted| {
        while accepted.request().is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nCache-Control: {cache_control}\r\nContent-Length: {LENGTH}\r\n\r\n");
            accepted.write(head.as_bytes());
            accepted.write(&body()[..LENGTH / 2]);
            wait.lock().expect("no panic").recv().expect("the test goes on");
            if !end(accepted) {
                return;
            }
        }
    });
    (origin, go_on)
}

pub(super) fn second_half(accepted: &mut Accepted) -> bool {
    accepted.write(&body()[LENGTH / 2..]);
    true
}

#[test]
fn equal_requests_share_one_fetch_and_read_it_as_it_comes() {
    let (origin, go_on) = in_halves("max-age=1000", second_half);
    let cached = Arc::new(Cached::new(origin));
    let (first_octets, came) = mpsc::channel();
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let (cached, first_octets) = (Arc::clone(&cached), first_octets.clone());
            thread::spawn(move || {
                let mut client = cached.site.connect(cached.server());
                begin(&mut client, "/a");
                let mut body = client.read(1000).expect("octets");
                first_octets.send(()).expect("the test listens");
                body.extend_from_slice(&client.read(LENGTH - 1000).expect("the rest"));
                body
            })
        })
        .collect();
    // Each has bytes before the origin has sent all.
    for _ in 0..20 {
        came.recv().expect("octets");
    }
    go_on.send(()).expect("the origin waits");
    for reader in readers {
        assert!(reader.join().expect("no panic") == body());
    }
    assert_eq!(cached.fetches(), 1);
}

/// Half of them by HTTP/1.1, a connection each, the others by HTTP/2, a stream each.
#[test]
fn a_thousand_clients_of_one_cold_response_are_one_fetch() {
    let (origin, go_on) = in_halves("max-age=1000", second_half);
    // One connection after the other opens its window, and a machine that compiles takes its time.
    let cached = Cached::with(origin, "[limits]\nstall_timeout = '10m'\n", "");
    let mut clients: Vec<_> = (0..500).map(|_| cached.site.connect(cached.server())).collect();
    clients.iter_mut().for_each(|client| client.send(get("/a").as_bytes()).expect("the request leaves"));
    let mut connections: Vec<_> = (0..5)
        .map(|_| {
            let window = [(INITIAL_WINDOW_SIZE, 1 << 20)];
            let connector = cached.site.connector(Suite::TLS13);
            let mut http = Http2::connect(connector, cached.server().address(), &window);
            // The server waits for the acknowledgement of its own for ten seconds.
            http.read_until("settings of both", |http| !http.settings.is_empty() && http.acknowledged == 1);
            let streams: Vec<_> = (0..100).map(|_| http.get("/a")).collect();
            (http, streams)
        })
        .collect();
    // All have bytes before the origin has sent all.
    for client in &mut clients {
        client.read_until(b"\r\n\r\n").expect("a head");
        assert!(client.read(1000).expect("octets") == body()[..1000]);
    }
    for (http, streams) in &mut connections {
        http.read_until("each stream has octets", |http| {
            streams.iter().all(|stream| http.streams.get(stream).is_some_and(|got| !got.body.is_empty()))
        });
    }
    assert_eq!(cached.fetches(), 1);
    go_on.send(()).expect("the origin waits");
    for client in &mut clients {
        assert!(client.read(LENGTH - 1000).expect("the rest") == body()[1000..]);
    }
    for (http, streams) in &mut connections {
        for stream in streams {
            let (status, got) = http.response(*stream).whole();
            assert!(status == 200 && got == body());
        }
    }
    assert_eq!(cached.fetches(), 1);
}

#[test]
fn a_write_to_another_url_leaves_a_fetch_shared() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            if !request.head.starts_with("GET /a ") {
                accepted.write(&answer(200, "Cache-Control: max-age=1000\r\n", b"other"));
                continue;
            }
            accepted.write(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: 2\r\n\r\n1");
            wait.lock().expect("no panic").recv().expect("the test goes on");
            accepted.write(b"2");
        }
    });
    let cached = Cached::new(origin);
    assert_eq!(cached.get("/b", &[]).body, b"other");
    wait_until("it is stored", || super::status(&cached.get("/b", &[])) == "hit");
    let before = cached.fetches();
    let mut clients = [(); 2].map(|()| cached.site.connect(cached.server()));
    for client in &mut clients {
        begin(client, "/a");
        assert_eq!(client.read(1).expect("an octet"), b"1");
        assert_eq!(cached.ask("POST", "/b", &[]).status, 200);
    }
    assert_eq!(cached.fetches() - before, 3, "one GET, two POST");
    go_on.send(()).expect("the origin waits");
    for client in &mut clients {
        assert_eq!(client.read(1).expect("an octet"), b"2");
    }
}

#[test]
fn a_fetch_goes_on_when_its_first_client_leaves() {
    let (origin, go_on) = in_halves("max-age=1000", second_half);
    let cached = Cached::new(origin);
    let mut first = cached.site.connect(cached.server());
    begin(&mut first, "/a");
    drop(first);
    go_on.send(()).expect("the origin waits");
    assert!(cached.get("/a", &[]).body == body());
    assert_eq!(cached.fetches(), 1);
}

#[test]
fn a_body_that_breaks_off_ends_no_response_as_if_it_were_whole_and_is_not_stored() {
    let (origin, go_on) = in_halves("max-age=1000", |accepted| {
        accepted.reset();
        false
    });
    let cached = Arc::new(Cached::new(origin));
    for _ in 0..2 {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let cached = Arc::clone(&cached);
                thread::spawn(move || {
                    let mut client = cached.site.connect(cached.server());
                    client.send(http::head("GET", "/a", &[]).as_bytes()).expect("the request leaves");
                    // The head may not have come either.
                    http::read_response(&mut client, "GET").map_or(true, |response| response.status == 502)
                })
            })
            .collect();
        // One fetch, or more where a reader came after it had ended.
        let goes_on: Vec<_> = (0..3).map(|_| go_on.send(())).collect();
        drop(goes_on);
        for reader in readers {
            assert!(reader.join().expect("no panic"), "a cut body was complete");
        }
    }
}

#[test]
fn a_response_on_its_way_is_not_shared_if_a_stored_one_could_not_be() {
    for cache_control in ["max-age=1000, no-cache\r\nETag: \"a\"", "max-age=0\r\nETag: \"a\""] {
        let (origin, go_on) = in_halves(cache_control, second_half);
        let cached = Cached::new(origin);
        let mut clients = [(); 2].map(|()| cached.site.connect(cached.server()));
        for client in &mut clients {
            begin(client, "/a");
            assert_eq!(client.read(1000).expect("octets"), body()[..1000]);
        }
        assert_eq!(cached.fetches(), 2, "{cache_control}");
        clients.iter().for_each(|_| go_on.send(()).expect("the origin waits"));
        for client in &mut clients {
            assert!(client.read(LENGTH - 1000).expect("the rest") == body()[1000..]);
        }
    }
}

#[test]
fn an_answer_for_one_request_only_is_given_to_no_other() {
    let origin = Upstream::answering(|request| {
        answer(200, "Cache-Control: private\r\n", request.all("x-user").concat().as_bytes())
    });
    let cached = Arc::new(Cached::new(origin));
    let readers: Vec<_> = (0..20)
        .map(|n| {
            let cached = Arc::clone(&cached);
            thread::spawn(move || {
                let user = format!("user {n}");
                assert_eq!(cached.get("/a", &[("X-User", &user)]).body, user.as_bytes());
            })
        })
        .collect();
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    assert_eq!(cached.fetches(), 20);
}

#[test]
fn a_response_to_a_cookie_does_not_keep_others_from_sharing() {
    let (go_on, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let origin = Upstream::answering(move |request| {
        if !request.all("cookie").is_empty() {
            return answer(200, "Cache-Control: private\r\n", b"one user's");
        }
        wait.lock().expect("no panic").recv().expect("the test goes on");
        answer(200, "Cache-Control: max-age=1000\r\n", b"for all")
    });
    let cached = Cached::new(origin);
    assert_eq!(cached.get("/a", &[("Cookie", "user=1")]).body, b"one user's");
    let mut clients: Vec<_> = (0..8).map(|_| cached.site.connect(cached.server())).collect();
    clients.iter_mut().for_each(|client| client.send(get("/a").as_bytes()).expect("the request leaves"));
    (0..8).for_each(|_| go_on.send(()).expect("the origin waits"));
    for client in &mut clients {
        assert_eq!(http::read_response(client, "GET").expect("a response").body, b"for all");
    }
    assert_eq!(cached.fetches(), 2);
}

#[test]
fn requests_of_different_variants_do_not_share_although_they_wait_together() {
    let origin = Upstream::answering(|request| {
        thread::yield_now();
        answer(200, "Cache-Control: max-age=1000\r\nVary: X-Lang\r\n", request.all("x-lang").concat().as_bytes())
    });
    let cached = Arc::new(Cached::new(origin));
    for round in 0..10 {
        let readers: Vec<_> = (0..8)
            .map(|n| {
                let cached = Arc::clone(&cached);
                thread::spawn(move || {
                    let language = ["de", "en"][n % 2];
                    let response = cached.get(&format!("/{round}"), &[("X-Lang", language)]);
                    assert_eq!(response.body, language.as_bytes());
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    }
    wait_until("all are stored", || cached.get("/0", &[("X-Lang", "de")]).body == b"de");
}

#[test]
fn requests_that_accept_the_same_codings_share_a_fetch_while_those_of_others_are_under_way() {
    let (origin, go_on) = in_halves("max-age=1000\r\nVary: Accept-Encoding", second_half);
    let cached = Cached::new(origin);
    let spellings =
        ["gzip", "br, gzip", "gzip;q=0.5,br", "GZIP", "x-gzip, x-other", "br;q=1, gzip", "zstd", "zstd, identity"];
    let mut clients = spellings.map(|accepted| {
        let mut client = cached.site.connect(cached.server());
        let head = http::head("GET", "/a", &[("Accept-Encoding", accepted)]);
        client.send(head.as_bytes()).expect("the request leaves");
        client.read_until(b"\r\n\r\n").expect("the head comes");
        assert!(client.read(1000).expect("octets") == body()[..1000]);
        client
    });
    assert_eq!(cached.fetches(), 3, "gzip, br and gzip, zstd");
    (0..3).for_each(|_| go_on.send(()).expect("the origin waits"));
    for client in &mut clients {
        assert!(client.read(LENGTH - 1000).expect("the rest") == body()[1000..]);
    }
}

#[test]
fn a_request_that_the_cache_may_answer_gets_no_interim_responses() {
    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    let navigate = ("Sec-Fetch-Mode", "navigate");
    let origin = Upstream::answering(|_| [HINTS, &answer(200, "Cache-Control: max-age=60\r\n", b"page")].concat());
    let cached = Cached::new(origin);
    for _ in 0..3 {
        assert_eq!(cached.get("/", &[navigate]).status, 200);
    }
    assert_eq!(cached.fetches(), 1);
}

/// Fetches that the limits of a server with `max_connections = 1` allow: one, and 16 for streams of HTTP/2.
const MAX_FETCHES: usize = 17;

/// Streams of one connection that may have a response at a time there: its own place, and an eighth of the 16.
const AT_ONCE: usize = 3;

#[test]
fn requests_that_come_together_begin_no_more_fetches_than_are_allowed() {
    // Nothing is answered before all have come.
    let origin = Upstream::start(|accepted| {
        let Some(request) = accepted.request() else { return };
        if request.line().starts_with("GET /held") {
            accepted.read_to_end();
        } else {
            accepted.write(&answer(200, "Cache-Control: max-age=1000\r\n", b"body"));
        }
    });
    let cached = Cached::stopped(origin, "", "");
    let config = cached.config().table("[server]\nworkers = 1\n[limits]\nmax_connections = 1\n");
    let server = config.serve_from_user_space();
    wait_for_cache(&server, &cached.directory);
    let mut http = Http2::connect(cached.site.connector(Suite::TLS13), server.address(), &[]);
    let mut held = 0;
    while held + AT_ONCE <= MAX_FETCHES {
        let streams: Vec<_> = (0..AT_ONCE).map(|n| http.get(&format!("/held/{}", held + n))).collect();
        held += AT_ONCE;
        wait_until("the fetches have begun", || cached.fetches() == held);
        // The fetches go on.
        streams.iter().for_each(|stream| http.send(&reset(*stream, CANCEL)));
        access_lines(&server, held);
    }
    let together: Vec<_> = (0..AT_ONCE).map(|n| (http.stream(), block("GET", &format!("/{n}"), &[]))).collect();
    http.send(&together.iter().flat_map(|(stream, block)| headers(*stream, true, block)).collect::<Vec<_>>());
    for (stream, _) in together {
        assert_eq!(http.response(stream).whole().0, 200);
    }
    access_lines(&server, held + AT_ONCE);
    let refused = server.lines().into_iter().filter(|line| line.text.contains("no-descriptor")).count();
    assert_eq!(refused, held + AT_ONCE - MAX_FETCHES);
}

#[test]
fn a_fetch_under_way_is_joined_where_no_other_may_begin() {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let origin = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            if request.line().starts_with("GET /held") {
                let _ = held.lock().expect("no panic").recv();
            }
            accepted.write(&answer(200, "Cache-Control: max-age=1000\r\n", b"body"));
        }
    });
    let cached = Cached::stopped(origin, "", "");
    let config = cached.config().table("[server]\nworkers = 1\n[limits]\nmax_connections = 1\n");
    let server = config.serve_from_user_space();
    wait_for_cache(&server, &cached.directory);
    let mut http = Http2::connect(cached.site.connector(Suite::TLS13), server.address(), &[]);
    for held in 0..MAX_FETCHES {
        let stream = http.get(&format!("/held/{held}"));
        wait_until("the fetch has begun", || cached.fetches() == held + 1);
        // It goes on.
        http.send(&reset(stream, CANCEL));
        access_lines(&server, held + 1);
    }
    let joined = http.get("/held/0");
    // It is asked for behind the other one, and passes.
    let other = http.get("/other");
    assert_eq!(http.response(other).whole(), (200, &b"body"[..]));
    assert_eq!(cached.fetches(), MAX_FETCHES + 1);
    drop(release);
    assert_eq!(http.response(joined).whole(), (200, &b"body"[..]));
    assert_eq!(cached.fetches(), MAX_FETCHES + 1);
}
