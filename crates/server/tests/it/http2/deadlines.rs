//! Deadlines of frames, contents, settings and windows.

use std::time::Duration;

use sealion_testkit::Suite;
use sealion_tls::record::ContentType;

use super::{assert_serves, connect, serve};
use crate::proxy::connect::{block_of, echo_pieces, tunnels};
use crate::support::http2::{
    CANCEL, DATA, END_STREAM, ENHANCE_YOUR_CALM, Ended, Got, HEADERS, Http2, INITIAL_WINDOW_SIZE, PING, PREFACE,
    SETTINGS_TIMEOUT, block, frame, headers, reset, settings_frame, window_update,
};
use crate::support::upstream::{Upstream, ok};
use crate::support::{LARGE, Site, access_line};

#[test]
fn a_frame_that_does_not_end_is_waited_for_no_longer_than_a_request() {
    let (site, server) = serve(&["--request-timeout", "300ms", "--idle-timeout", "1h"]);
    for part in [&PREFACE[..10], &[PREFACE, &settings_frame(&[]), &[0, 0, 9]].concat()] {
        let mut http = Http2::silent(site.connector(Suite::TLS13), server.address());
        http.send(part);
        assert_eq!(http.closed(), ENHANCE_YOUR_CALM);
    }
    // A header block whose end does not come.
    let mut http = connect(&site, &server, &[]);
    http.polite = false;
    http.send(&frame(HEADERS, END_STREAM, 1, &block("GET", "/f", &[])));
    assert_eq!(http.closed(), ENHANCE_YOUR_CALM);
}

#[test]
fn settings_that_are_not_acknowledged_are_waited_for_no_longer_than_a_request() {
    let (site, server) = serve(&["--request-timeout", "300ms", "--idle-timeout", "1h", "--stall-timeout", "1h"]);
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
    http.polite = false;
    http.get("/large");
    assert_eq!(http.closed(), SETTINGS_TIMEOUT);
    // A client that acknowledges them may take its time.
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
    let stalled = http.get("/large");
    http.ping();
    std::thread::sleep(Duration::from_millis(600));
    http.ping();
    assert!(http.go_aways.is_empty() && http.streams[&stalled].ended.is_none());
}

/// A client that sends the beginning of a record keeps no other one of its worker waiting.
#[test]
fn a_record_that_does_not_end_is_waited_for_no_longer_than_a_request() {
    let (site, server) = serve(&["--request-timeout", "1s", "--idle-timeout", "1h", "--workers", "1"]);
    let mut http = connect(&site, &server, &[]);
    http.fetch("/f");
    let record = http.client.seal(ContentType::ApplicationData, &frame(PING, 0, 0, b"12345678"));
    http.client.write(&record[..7]).expect("it leaves");
    for _ in 0..3 {
        assert_serves(&site, &server);
    }
    assert_eq!(http.closed(), ENHANCE_YOUR_CALM);
}

/// Content that comes byte by byte, or frame by frame, has the same time as content that does not come.
#[test]
fn content_that_does_not_end_is_answered_with_408() {
    let (site, server) = serve(&["--request-timeout", "500ms"]);
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("POST", "/f", &[("content-length", "1000")], false);
    assert_eq!(http.response(stream).whole().0, 408);
    assert_eq!(access_line(&server, 1).get("status"), "408");
    let stream = http.request("POST", "/f", &[], false);
    let one = frame(DATA, 0, stream, b"x");
    let mut sent = 0;
    http.client.socket().set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    loop {
        // Half of a frame, and then its other half: the client is within a frame, and then it is not.
        for part in [&one[..5], &one[5..]] {
            http.send(part);
            match http.read() {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                }
                Err(error) => panic!("{error}"),
            }
        }
        if http.streams.contains_key(&stream) {
            break;
        }
        sent += 1;
        assert!(sent < 1000, "the deadline is renewed by each frame");
    }
    assert_eq!(http.streams[&stream].status, 408);
}

/// Small requests, PINGs and windows by the byte keep no stream that makes no progress.
#[test]
fn a_window_that_is_not_opened_ends_its_stream_and_no_other() {
    let (site, server) = serve(&["--stall-timeout", "500ms", "--idle-timeout", "1h"]);
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 100)]);
    http.credit = 0;
    let stalled = http.get("/large");
    let mut rounds = 0;
    while http.streams.get(&stalled).is_none_or(|got| got.ended.is_none()) {
        let pings: Vec<u8> = (0..30).flat_map(|_| frame(PING, 0, 0, b"tests000")).collect();
        http.send(&[pings, window_update(stalled, 1), window_update(0, 200)].concat());
        http.ping();
        assert_eq!(http.fetch("/f"), (200, b"content".to_vec()), "other streams go on");
        std::thread::sleep(Duration::from_millis(2));
        rounds += 1;
        assert!(rounds < 5000, "the deadline is renewed");
    }
    assert_eq!(http.streams[&stalled].ended, Some(Ended::Reset(CANCEL)));
    assert!(http.go_aways.is_empty());
    let line = server.wait_for("the line of the stalled stream", |line| line.text.contains("opened no window"));
    assert!(line.text.contains("/large"), "{}", line.text);
}

/// A response that waited for its client once, and waits for the upstream now, is not late.
#[test]
fn a_window_that_was_opened_is_not_waited_for_any_more() {
    let upstream = Upstream::start(|accepted| {
        accepted.request();
        accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        accepted.write(&[b'x'; 200]);
        // The rest never comes.
        accepted.read_to_end();
    });
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let rule = format!("route = [{{ path = '/app/', proxy = {{ to = '{}' }} }}]", upstream.url());
    let server = site.config(&rule).table("[limits]\nstall_timeout = '500ms'").serve_from_user_space();
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 100)]);
    http.credit = 0;
    let has = |http: &Http2, stream, len| http.streams.get(&stream).is_some_and(|got: &Got| got.body.len() == len);
    let waited = http.get("/app/x");
    http.read_until("its window is used", |http| has(http, waited, 100));
    http.send(&window_update(waited, 1000));
    http.read_until("the rest of what there is", |http| has(http, waited, 200));
    let stalled = http.get("/large");
    assert_eq!(http.response(stalled).ended, Some(Ended::Reset(CANCEL)));
    assert_eq!(http.streams[&waited].ended, None, "it waits for the upstream, not for the client");
}

/// A WebSocket that is silent, and a download that waits for its turn, beside one that uses the connection's window up again and again.
#[test]
fn a_connections_window_that_others_use_up_ends_no_stream() {
    let upstream = tunnels(|accepted| echo_pieces(accepted, 1));
    let site = Site::new();
    site.add_pattern("large", 64 << 20);
    let rule = format!("route = [{{ path = '/app/', proxy = {{ to = '{}' }} }}]", upstream.url());
    let server = site.config(&rule).table("[limits]\nstall_timeout = '500ms'").serve_from_user_space();
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
    http.credit = 0;
    let tunnel = http.stream();
    http.send(&headers(tunnel, false, &block_of("/app/chat", "websocket", &[])));
    http.send(&window_update(tunnel, 1000));
    let downloads = [http.get("/large"), http.get("/large")];
    for stream in downloads {
        http.send(&window_update(stream, 1 << 30));
    }
    let came = |http: &Http2| http.data.iter().map(|(_, length)| length).sum::<usize>();
    let mut window = 65_535;
    http.read_until("the connection's window is used up", |http| came(http) == window);
    // It ends when all who wait since then would.
    let stalled = http.get("/large");
    while !http.has_ended(stalled) {
        http.send(&window_update(0, 16_384));
        window += 16_384;
        http.read_until("the next piece", |http| came(http) == window || http.has_ended(stalled));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(http.streams[&stalled].ended, Some(Ended::Reset(CANCEL)));
    http.ping();
    assert!(!downloads.iter().any(|stream| http.has_ended(*stream)), "{:?}", http.streams.keys());
    for stream in downloads {
        http.send(&reset(stream, CANCEL));
    }
    http.send(&[window_update(0, 1 << 20), frame(DATA, 0, tunnel, b"x")].concat());
    http.read_until("the echo", |http| http.has_ended(tunnel) || !http.streams[&tunnel].body.is_empty());
    assert_eq!((http.streams[&tunnel].ended, &*http.streams[&tunnel].body), (None, &b"x"[..]));
}

#[test]
fn the_time_of_a_window_begins_when_it_closes() {
    let upstream = tunnels(|accepted| echo_pieces(accepted, 200));
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let rule = format!("route = [{{ path = '/app/', proxy = {{ to = '{}' }} }}]", upstream.url());
    let server = site.config(&rule).table("[limits]\nstall_timeout = '500ms'").serve_from_user_space();
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 100)]);
    http.credit = 0;
    let tunnel = http.stream();
    http.send(&headers(tunnel, false, &block_of("/app/chat", "websocket", &[])));
    let came = |http: &Http2| http.streams.get(&tunnel).map_or(0, |got| got.body.len());
    for round in 1..4 {
        // Half of what the server says waits for the window.
        http.send(&frame(DATA, 0, tunnel, &[b'x'; 200]));
        http.read_until("the window is used", |http| http.has_ended(tunnel) || came(http) == round * 200 - 100);
        http.ping();
        http.send(&window_update(tunnel, 100));
        http.read_until("the rest", |http| http.has_ended(tunnel) || came(http) == round * 200);
        assert_eq!(http.streams[&tunnel].ended, None, "round {round}");
        // As long as a window is waited for.
        let mut other = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
        let stalled = other.get("/large");
        assert_eq!(other.response(stalled).ended, Some(Ended::Reset(CANCEL)));
        http.send(&window_update(tunnel, 100));
    }
}

/// Responses of a server, with a length and without: nothing of them is asked for while the window is closed.
#[test]
fn a_forwarded_response_waits_no_longer_for_its_window_than_a_file() {
    let upstream = Upstream::start(|accepted| {
        while let Some(request) = accepted.request() {
            let framing =
                if request.line().contains("long") { "Content-Length: 400000" } else { "Transfer-Encoding: chunked" };
            accepted.write(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n").as_bytes());
            let body = vec![b'x'; 400_000];
            match request.line().contains("long") {
                true => accepted.write(&body),
                false => accepted.write(&[b"61a80\r\n", &body[..], b"\r\n0\r\n\r\n"].concat()),
            }
        }
    });
    let site = Site::new();
    let rule = format!("proxy = {{ to = '{}' }}", upstream.url());
    let server = site.config(&rule).table("[limits]\nstall_timeout = '300ms'").serve_from_user_space();
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
    for path in ["/long", "/chunked"] {
        let stalled = http.get(path);
        assert_eq!(http.response(stalled).ended, Some(Ended::Reset(CANCEL)), "{path}");
    }
    server.wait_for_lines(2, "lines of stalled streams", |line| line.text.contains("opened no window"));
}

/// The end of a response needs no window.
#[test]
fn a_forwarded_response_that_fills_its_window_ends() {
    let upstream = Upstream::answering(|_| ok(&[b'x'; 1000]));
    let site = Site::new();
    let server = site.config(&format!("proxy = {{ to = '{}' }}", upstream.url())).serve_from_user_space();
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 1000)]);
    http.credit = 0;
    assert_eq!(http.fetch("/"), (200, vec![b'x'; 1000]));
}
