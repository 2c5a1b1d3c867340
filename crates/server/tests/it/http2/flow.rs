//! Windows, resets and priorities.

use std::net::TcpListener;

use sealion_testkit::pattern;

use super::{assert_serves, connect, connect_slow_reader, serve};
use crate::support::http2::{
    CANCEL, DATA, END_STREAM, Ended, FLOW_CONTROL_ERROR, Http2, INITIAL_WINDOW_SIZE, MAX_WINDOW, PRIORITY_UPDATE,
    block, frame, headers, reset, settings_frame, window_update,
};
use crate::support::upstream::Upstream;
use crate::support::{LARGE, Site, access_lines};

#[test]
fn interleaved_streams_with_windows_of_any_size_are_whole() {
    let site = Site::new();
    let sizes: [u64; 6] = [0, 1, 16_375, 70_001, 200_000, 1 << 20];
    for len in sizes {
        site.add_pattern(&len.to_string(), len);
    }
    let server = site.serve_from_user_space(&[]);
    for (window, most) in [(1, 1), (100, 16_375), (16_384, 1 << 20), (65_535, 1 << 20), (MAX_WINDOW, 1 << 20)] {
        let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, window)]);
        http.credit = if window == MAX_WINDOW { 1 } else { window };
        if window == MAX_WINDOW {
            http.send(&window_update(0, MAX_WINDOW - 65_535));
        }
        let asked: Vec<u64> = sizes.into_iter().filter(|len| *len <= most).collect();
        let streams: Vec<(u32, u64)> = asked.iter().map(|len| (http.get(&format!("/{len}")), *len)).collect();
        for (stream, len) in streams {
            let (status, body) = http.response(stream).whole();
            assert_eq!(status, 200);
            pattern::assert_equal(body, 0..len);
        }
    }
}

#[test]
fn settings_that_change_in_the_middle_of_a_stream_change_its_window() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 5000)]);
    http.credit = 0;
    http.send(&window_update(0, 1 << 30));
    let stream = http.get("/large");
    http.read_until("the window is used", |http| http.streams.get(&stream).is_some_and(|got| got.body.len() == 5000));
    // Negative, and then so large that half of the file is let through.
    http.send(&settings_frame(&[(INITIAL_WINDOW_SIZE, 0)]));
    http.send(&window_update(stream, 4000));
    http.ping();
    assert_eq!(http.streams[&stream].body.len(), 5000, "the window is -1000");
    let half = LARGE as usize / 2;
    http.send(&settings_frame(&[(INITIAL_WINDOW_SIZE, half as u32)]));
    let more = half + 4000;
    http.read_until("half of it", |http| http.streams[&stream].body.len() == more);
    http.send(&window_update(stream, MAX_WINDOW - half as u32));
    let got = http.response(stream).clone();
    pattern::assert_equal(got.whole().1, 0..LARGE);
    assert_eq!(http.acknowledged, 3);
}

#[test]
fn a_window_that_overflows_is_an_error_of_the_stream_or_of_the_connection() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 10)]);
    http.credit = 0;
    let stream = http.get("/large");
    http.send(&[window_update(stream, MAX_WINDOW), window_update(stream, MAX_WINDOW)].concat());
    assert_eq!(http.response(stream).ended, Some(Ended::Reset(FLOW_CONTROL_ERROR)));
    let stream = http.get("/f");
    assert_eq!(http.response(stream).whole().1, b"content");
    http.send(&window_update(0, MAX_WINDOW));
    assert_eq!(http.closed(), FLOW_CONTROL_ERROR);
    assert_serves(&site, &server);
}

#[test]
fn a_stream_can_be_reset_in_every_state() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 100)]);
    http.credit = 0;
    // Half closed by us, with a response that waits for a window; open, with content to come; closed.
    let held_back = http.get("/large");
    http.read_until("its head", |http| http.streams.get(&held_back).is_some_and(|got| got.body.len() == 100));
    http.send(&reset(held_back, CANCEL));
    let open = http.request("POST", "/f", &[], false);
    http.send(&reset(open, CANCEL));
    let with_content = http.request("POST", "/f", &[("content-length", "9")], false);
    http.send(&[frame(DATA, 0, with_content, b"1234"), reset(with_content, CANCEL)].concat());
    let closed = http.get("/f");
    http.response(closed).whole();
    http.send(&reset(closed, CANCEL));
    // At once with its request, as in Rapid Reset.
    let stream = http.stream();
    http.send(&[headers(stream, true, &block("GET", "/large", &[])), reset(stream, CANCEL)].concat());
    http.ping();
    assert_eq!(http.fetch("/f"), (200, b"content".to_vec()));
    assert!(http.go_aways.is_empty());
    let lines = access_lines(&server, 4);
    let aborted: Vec<_> = lines.iter().filter_map(|line| line.find("aborted")).collect();
    assert!(aborted.iter().all(|why| why.contains("CANCEL") || why.contains("closed")), "{lines:#?}");
    assert_eq!(aborted.len(), 2, "{lines:#?}");
}

#[test]
fn an_urgent_small_response_overtakes_a_large_one() {
    let (site, server) = serve(&[]);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    http.send(&window_update(0, 1 << 30));
    let large = http.request("GET", "/large", &[("priority", "u=5")], true);
    http.read_until("it has begun", |http| http.streams.get(&large).is_some_and(|got| !got.body.is_empty()));
    let urgent = http.request("GET", "/f", &[("priority", "u=1")], true);
    http.response(urgent).whole();
    assert_eq!(http.streams[&large].ended, None, "the large response came first");
    // And by PRIORITY_UPDATE: what comes later overtakes.
    let second = http.request("GET", "/large", &[("priority", "u=6")], true);
    let update = [&second.to_be_bytes()[..], b"u=0"].concat();
    http.send(&frame(PRIORITY_UPDATE, 0, 0, &update));
    http.response(second).whole();
    assert_eq!(http.streams[&large].ended, None, "the first large response came first");
    pattern::assert_equal(http.response(large).whole().1, 0..LARGE);
}

/// TCP paces the connection, and measures that rate: few bytes of a large response wait in the socket.
#[test]
fn an_urgent_response_waits_for_few_bytes_on_a_slow_connection() {
    let site = Site::new();
    site.add("f", "content");
    site.add_pattern("large", LARGE);
    let server = site.config("[site.limits]\nbandwidth = '4MB'\n").serve_from_user_space();
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    let waited_for = http.overtake("/large", LARGE as usize / 2, "/f");
    assert!(waited_for < 1 << 19, "{waited_for} bytes of the large response came before");
}

/// Contents that a server does not take leave room for others on the connection. Where they leave none, no client is late: it may not send.
#[test]
fn uploads_that_wait_hold_up_no_other() {
    // No handshake follows.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().map(|address| (silent, address)).expect("an address");
    let upstream = Upstream::echo();
    let site = Site::new();
    site.add("f", "content");
    let rules = format!(
        "route = [{{ path = '/silent/', proxy = {{ to = 'silent' }} }}, {{ path = '/echo/', proxy = {{ to = '{}' }} }}]",
        upstream.url()
    );
    let servers = format!("servers = [{{ url = 'https://{}' }}]", silent.1);
    let table = format!("[[upstream]]\nname = 'silent'\n{servers}\nconnect_timeout = '10m'");
    let config = site.config(&rules).table(&table).table("[limits]\nrequest_timeout = '1s'\nmax_buffered = '512KiB'");
    let server = config.serve_from_user_space();
    let mut http = connect(&site, &server, &[]);
    let wait = |http: &mut Http2, length: usize| {
        let stream = http.request("POST", "/silent/", &[], false);
        vec![b'x'; length].chunks(16_384).for_each(|piece| http.send(&frame(DATA, 0, stream, piece)));
        http.ping();
        stream
    };
    let window = |http: &Http2| 65_535 + http.granted.get(&0).map_or(0, |bytes| *bytes as usize);
    let mut waiting = vec![wait(&mut http, 65_535), wait(&mut http, 65_535)];
    let mut sent = 2 * 65_535 + 100;
    let other = http.request("POST", "/echo/", &[], false);
    http.send(&frame(DATA, END_STREAM, other, &[b'y'; 100]));
    assert_eq!(http.response(other).whole(), (200, &[b'y'; 100][..]));
    // Until `max_buffered` leaves the connection no window.
    while let length @ 1.. = window(&http).saturating_sub(sent).min(65_535) {
        waiting.push(wait(&mut http, length));
        sent += length;
    }
    let (forwarded, discarded) = (http.request("POST", "/echo/", &[], false), http.request("POST", "/f", &[], false));
    http.ping();
    // Later than they would be.
    let mut late = connect(&site, &server, &[]);
    for _ in 0..2 {
        let stream = late.request("POST", "/f", &[], false);
        assert_eq!(late.response(stream).whole().0, 408);
    }
    http.ping();
    assert!(!http.has_ended(forwarded) && !http.has_ended(discarded));
    waiting.iter().for_each(|stream| http.send(&reset(*stream, CANCEL)));
    http.ping();
    http.send(&[frame(DATA, END_STREAM, forwarded, b"abc"), frame(DATA, END_STREAM, discarded, b"abc")].concat());
    assert_eq!(http.response(forwarded).whole(), (200, &b"abc"[..]));
    assert_eq!(http.response(discarded).whole().0, 405);
}
