//! Requests that share a connection of HTTP/2: the wait of one for the others has an end, and is no client's fault.

use std::future::pending;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use http::Response;
use sealion_testkit::Suite;

use crate::support::http2::{DATA, END_STREAM, Http2, frame};
use crate::support::http2_upstream::{Http2Upstream, answer};
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, wait_until};

/// Requests in flight, above which the server reads heads sparingly.
const AHEAD: usize = 8;

/// Heads of 58 kB for which a connection has room.
const LARGE_HEADS: usize = 5;

/// The head of its first response tells how large the others are likely to be, which never come.
fn with_large_head() -> Http2Upstream {
    Http2Upstream::start(|request, mut respond| {
        Box::pin(async move {
            if request.uri().path() != "/large/first" {
                return pending().await;
            }
            let fields = (0..50).map(|n| (format!("x-{n}"), "v".repeat(1100)));
            let head = fields.fold(Response::builder(), |head, (name, value)| head.header(name, value));
            respond.send_response(head.body(()).expect("a head"), true).map(drop)
        })
    })
}

fn other() -> Http2Upstream {
    Http2Upstream::start(|_, mut respond| Box::pin(async move { answer(&mut respond, &[], "other").await }))
}

#[test]
fn a_request_waits_for_the_room_of_large_heads_no_longer_than_for_its_response() {
    let site = Site::new();
    let (large, other) = (with_large_head(), other());
    let tables = format!(
        "[[upstream]]
        name = 'large'
        protocol = 'http2'
        servers = [{{ url = '{}' }}]
        [[upstream]]
        name = 'other'
        protocol = 'http2'
        answer_timeout = '100ms'
        servers = [{{ url = '{}' }}]
        ",
        large.url(),
        other.url()
    );
    let rules =
        "route = [{ path = '/large/', proxy = { to = 'large' } }, { path = '/other/', proxy = { to = 'other' } }]";
    let server = site.config(rules).table(&tables).serve_from_user_space();
    let mut http = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    assert_eq!(http.fetch("/large/first").0, 200);
    assert_eq!(http.fetch("/other").0, 200);
    let held = AHEAD + LARGE_HEADS;
    let streams: Vec<u32> = (0..held).map(|_| http.get("/large/held")).collect();
    wait_until("the room is taken", || large.requests() == 1 + held);
    assert_eq!(http.fetch("/other").0, 503);
    assert_eq!(other.requests(), 1);
    assert!(!streams.iter().any(|stream| http.has_ended(*stream)));
}

#[test]
fn requests_that_wait_for_a_place_at_their_server_take_no_room_for_heads() {
    let site = Site::new();
    let (large, other) = (with_large_head(), other());
    let tables = format!(
        "[[upstream]]
        name = 'large'
        protocol = 'http2'
        max_connections = 1
        connect_timeout = '10m'
        servers = [{{ url = '{}' }}]
        [[upstream]]
        name = 'other'
        protocol = 'http2'
        answer_timeout = '300ms'
        servers = [{{ url = '{}' }}]
        ",
        large.url(),
        other.url()
    );
    let rules =
        "route = [{ path = '/large', proxy = { to = 'large' } }, { path = '/other', proxy = { to = 'other' } }]";
    let server = site.config(rules).table(&tables).serve_from_user_space();
    let mut http = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    assert_eq!(http.fetch("/large/first").0, 200);
    let first = http.get("/large/held");
    wait_until("the only place is taken", || large.requests() == 2);
    let waiting: Vec<u32> = (0..AHEAD + LARGE_HEADS).map(|_| http.get("/large/held")).collect();
    http.ping();
    assert_eq!(http.fetch("/other").0, 200);
    assert_eq!(large.requests(), 2);
    assert!(!waiting.iter().chain([&first]).any(|stream| http.has_ended(*stream)));
}

#[test]
fn a_client_is_not_late_while_the_window_of_its_connection_is_closed() {
    let site = Site::new();
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let busy = Upstream::start(move |accepted| {
        while accepted.request().is_some() {
            let _ = held.lock().expect("no panic").recv();
            accepted.write(&ok(b"busy"));
        }
    });
    let app = Upstream::start(|accepted| {
        let Some(head) = accepted.head() else { return };
        if head.starts_with("GET") {
            accepted.read_to_end();
        } else if let Some(content) = accepted.read(4) {
            accepted.write(&ok(&content));
        }
    });
    let tables = format!(
        "[[upstream]]
        name = 'busy'
        max_connections = 1
        connect_timeout = '10m'
        servers = [{{ url = '{}' }}]
        [[upstream]]
        name = 'app'
        answer_timeout = '300ms'
        servers = [{{ url = '{}' }}]
        [limits]
        max_buffered = '32KiB'
        ",
        busy.url(),
        app.url()
    );
    let rules = "route = [{ path = '/busy/', proxy = { to = 'busy' } }, { path = '/app/', proxy = { to = 'app' } }]";
    let server = site.config(rules).table(&tables).serve_from_user_space();
    let mut http = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    let first = http.get("/busy");
    wait_until("the only place is taken", || busy.requests().len() == 1);
    // Their contents wait with them, and take the window of the connection: no memory is left for a larger one.
    let waiting = [(); 2].map(|()| http.request("POST", "/busy", &[("content-length", "65535")], false));
    for stream in waiting {
        for length in [16_384, 16_384, 16_384, 16_383] {
            let end = if length == 16_383 { END_STREAM } else { 0 };
            http.send(&frame(DATA, end, stream, &vec![b'x'; length]));
        }
    }
    let upload = http.request("POST", "/app", &[("content-length", "4")], false);
    http.ping();
    let of_connection = |http: &Http2| http.granted.get(&0).copied();
    assert_eq!(of_connection(&http), Some(65_535), "content that has ended and waits takes the window too");
    // It is asked for later, and has as much time.
    let silent = http.get("/app");
    assert_eq!(http.response(silent).status, 504);
    assert!(!http.has_ended(upload), "it is {}", http.streams[&upload].status);
    drop(release);
    for stream in [first, waiting[0], waiting[1]] {
        assert_eq!(http.response(stream).whole(), (200, &b"busy"[..]));
    }
    http.read_until("the window is open", |http| of_connection(http) >= Some(2 * 65_535));
    http.send(&frame(DATA, END_STREAM, upload, b"sent"));
    assert_eq!(http.response(upload).whole(), (200, &b"sent"[..]));
}

/// Uploads over one connection.
const UPLOADS: usize = 8;

/// Bytes of each: more than the connection's window holds of all.
const UPLOAD: usize = 1_000_000;

#[test]
fn uploads_that_wait_for_a_server_leave_the_window_to_those_that_it_takes() {
    let site = Site::new();
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let upstream = Upstream::start(move |accepted| {
        while accepted.head().is_some() {
            // All uploads have filled their windows before the server takes the first one.
            let _ = held.lock().expect("no panic").recv();
            let Some(content) = accepted.read(UPLOAD) else { return };
            accepted.write(&ok(&content));
        }
    });
    let table = format!(
        "[[upstream]]
        name = 'app'
        max_connections = 1
        connect_timeout = '10m'
        servers = [{{ url = '{}' }}]
        ",
        upstream.url()
    );
    let server = site.config("proxy = { to = 'app' }").table(&table).serve_from_user_space();
    let mut http = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    let length = UPLOAD.to_string();
    let contents: Vec<(u32, Vec<u8>)> = (0..UPLOADS)
        .map(|seed| {
            let stream = http.request("POST", "/", &[("content-length", &length)], false);
            (stream, (0..UPLOAD).map(|at| (at * 7 + at / 251 + seed) as u8).collect())
        })
        .collect();
    let mut sent = [0; UPLOADS];
    // Sends as much as the windows allow, the last stream first: those that wait are served first. Returns whether anything was sent.
    let mut send = |http: &mut Http2| {
        let mut has_sent = false;
        for (index, (stream, content)) in contents.iter().enumerate().rev() {
            let window = |id| 65_535 + http.granted.get(&id).map_or(0, |bytes| *bytes as usize);
            let of_connection = window(0) - sent.iter().sum::<usize>();
            let length = (window(*stream) - sent[index]).min(of_connection).min(UPLOAD - sent[index]);
            for piece in content[sent[index]..sent[index] + length].chunks(16_384) {
                sent[index] += piece.len();
                let end = if sent[index] == UPLOAD { END_STREAM } else { 0 };
                http.send(&frame(DATA, end, *stream, piece));
                has_sent = true;
            }
        }
        has_sent
    };
    wait_until("the server has the first", || upstream.connections() == 1);
    // Grants that come behind a PING were made before the reply to it.
    loop {
        let has_sent = send(&mut http);
        http.ping();
        if !has_sent && !send(&mut http) {
            break;
        }
    }
    drop(release);
    while !contents.iter().all(|(stream, _)| http.has_ended(*stream)) {
        if !send(&mut http) {
            http.read().expect("the connection goes on");
        }
    }
    for (stream, content) in &contents {
        let got = http.response(*stream);
        assert_eq!((got.status, got.body.len()), (200, UPLOAD));
        assert!(got.body == *content, "stream {stream} has another content");
    }
}
