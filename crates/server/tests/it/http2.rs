//! HTTP/2: responses equal those of HTTP/1.1, streams share a connection, and no client harms another.

use std::fs;
use std::process::Command;
use std::time::Duration;

use sealion_testkit::http::Response;
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Suite, pattern};
use sealion_tls::record::ContentType;

use crate::support::configured::Configured;
use crate::support::http2::{
    ACK, CANCEL, COMPRESSION_ERROR, CONTINUATION, DATA, END_STREAM, ENHANCE_YOUR_CALM, Ended, FLOW_CONTROL_ERROR,
    HEADERS, Http2, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MAX_WINDOW, NO_ERROR, PING, PREFACE, PRIORITY_UPDATE,
    PROTOCOL_ERROR, REFUSED_STREAM, SETTINGS, SETTINGS_TIMEOUT, block, frame, headers, literal, reset, settings_frame,
    window_update,
};
use crate::support::watch::Watched;
use crate::support::{LARGE, Site, Successor, access_line, access_lines, built_program, wait_for_message, wait_until};

#[track_caller]
fn connect(site: &Site, server: &Server, settings: &[(u16, u32)]) -> Http2 {
    Http2::connect(site.connector(Suite::TLS13), server.address(), settings)
}

#[track_caller]
fn connect_slow_reader(site: &Site, server: &Server, settings: &[(u16, u32)]) -> Http2 {
    let connector = site.connector(Suite::TLS13).receive_buffer(crate::support::SMALL_WINDOW);
    Http2::connect(connector, server.address(), settings)
}

/// A server in user space with `f`, which says "content", and `large`.
fn serve(options: &[&str]) -> (Site, Server) {
    let site = Site::new();
    site.add("f", "content");
    site.add_pattern("large", LARGE);
    let server = site.serve_from_user_space(options);
    (site, server)
}

/// Another client is answered.
#[track_caller]
fn assert_serves(site: &Site, server: &Server) {
    assert_eq!(connect(site, server, &[]).fetch("/f"), (200, b"content".to_vec()));
}

#[test]
fn h2spec_finds_no_violation() {
    let site = Site::new();
    site.add("index.html", "content");
    let server = site.serve_from_user_space(&[]);
    let mut command = Command::new(built_program("h2spec"));
    command.args(["--tls", "--insecure", "--strict", "--timeout", "20", "--host", "127.0.0.1", "--port"]);
    let output = command.arg(server.address().port().to_string()).output().expect("h2spec starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(" 0 failed"), "{text}");
    assert!(text.contains("146 tests, 146 passed"), "{text}");
}

// ---- the same as HTTP/1.1

/// Asks with curl over both versions, and returns the second response.
#[track_caller]
fn same(served: &Configured, target: &str, options: &[&str]) -> Response {
    let [one, two] = ["--http1.1", "--http2"].map(|version| served.get(target, &[&[version], options].concat()));
    let fields = |response: &Response| {
        let mut fields: Vec<_> =
            response.fields.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
        // What belongs to one version, or to the moment; and the boundary between parts.
        fields.retain(|(name, _)| !["connection", "date", "transfer-encoding", "keep-alive"].contains(&name.as_str()));
        fields.sort();
        fields
    };
    assert_eq!(two.status, one.status, "{target} {options:?}");
    assert_eq!(fields(&two), fields(&one), "{target} {options:?}");
    assert!(two.body == one.body, "{target} {options:?}: {} and {} octets", two.body.len(), one.body.len());
    let is_lower = |(name, _): &(String, String)| name.bytes().all(|octet| !octet.is_ascii_uppercase());
    assert!(two.fields.iter().all(is_lower), "{:?}", two.fields);
    two
}

const SIZES: [u64; 12] = [0, 1, 1000, 16_374, 16_375, 16_376, 16_384, 65_535, 65_536, 131_073, 1 << 20, (8 << 20) + 3];

#[test]
fn files_of_every_size_and_their_ranges_are_the_same_as_over_http_1() {
    let site = Site::new();
    for len in SIZES {
        site.add_pattern(&len.to_string(), len);
    }
    let served = Configured::serve(site, "");
    for len in SIZES {
        let target = format!("/{len}");
        let got = same(&served, &target, &[]);
        pattern::assert_equal(&got.body, 0..len);
        let tag = format!("If-None-Match: {}", got.field("etag").expect("a tag"));
        assert_eq!(same(&served, &target, &["-H", &tag]).status, 304);
        same(&served, &target, &["--head"]);
        if len > 1000 {
            for (range, start, end) in [("0-0", 0, 1), ("7-16390", 7, 16_391.min(len)), ("-1000", len - 1000, len)] {
                let got = same(&served, &target, &["--range", range]);
                assert_eq!(got.status, 206);
                pattern::assert_equal(&got.body, start..end);
            }
            assert_eq!(same(&served, &target, &["--range", "99999999-"]).status, 416);
        }
    }
}

/// Several ranges: the boundary differs from response to response.
#[test]
fn several_ranges_come_in_parts() {
    let site = Site::new();
    site.add_pattern("f", (1 << 20) + 7);
    let served = Configured::serve(site, "");
    let got = served.get("/f", &["--http2", "--range", "3-3,16383-200001,-70001"]);
    assert_eq!(got.status, 206);
    let parts = crate::support::multipart::parts(&got);
    for (part, range) in parts.iter().zip([3..4, 16_383..200_002, (1 << 20) + 7 - 70_001..(1 << 20) + 7]) {
        pattern::assert_equal(&part.bytes, range);
    }
    assert_eq!(parts.len(), 3);
}

#[test]
fn everything_a_site_does_is_the_same_as_over_http_1() {
    let site = Site::new();
    let text: String = (0..5000).map(|line| format!("line {line} of a text that can be compressed\n")).collect();
    for name in ["index.html", "style.css", "in/x", "closed/x", "listed/a", "listed/b"] {
        site.add(name, &text);
    }
    site.add("sibling.css", &text);
    let output =
        Command::new("gzip").args(["-k"]).arg(site.root().join("sibling.css")).status().expect("gzip is needed");
    assert!(output.success());
    site.add("missing.html", "nothing here");
    let hash = bcrypt::hash_with_result("right", 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
    fs::write(site.outside().join("users"), format!("ada:{hash}\n")).expect("written");
    let served = Configured::serve(
        site,
        "precompressed = ['gzip']\nerror_pages = { 404 = '/missing.html' }\n\
         redirects = [{ path = '/old', to = '/style.css' }]\n\
         basic_auth = [{ path = '/in/', realm = 'inside', users = 'users' }]\n\
         access = [{ path = '/closed/', deny = ['127.0.0.0/8'] }]\n\
         [site.listing]\nenabled = true\n[site.compress]\n",
    );
    for (target, options, status) in [
        ("/", &[][..], 200),
        ("/style.css", &["-H", "Accept-Encoding: zstd"], 200),
        ("/style.css", &["-H", "Accept-Encoding: gzip", "--head"], 200),
        ("/sibling.css", &["-H", "Accept-Encoding: gzip"], 200),
        ("/sibling.css", &["-H", "Accept-Encoding: gzip, br", "--range", "5-90"], 206),
        ("/none", &[], 404),
        ("/none", &["--head"], 404),
        ("/old", &[], 308),
        ("/listed", &[], 301),
        ("/listed/", &[], 200),
        ("/listed/", &["-H", "Accept: application/json"], 200),
        ("/in/x", &[], 401),
        ("/in/x", &["-u", "ada:wrong"], 401),
        ("/in/x", &["-u", "ada:right"], 200),
        ("/%69n/x", &[], 401),
        ("//in//x", &[], 401),
        ("/closed/x", &[], 403),
        ("//closed/x", &[], 403),
        ("/%63losed/x", &[], 403),
        ("/in/../closed/x", &[], 400),
        ("/closed//x?y=z", &[], 403),
        ("/closed%2fx", &[], 404),
        ("/closed/x%00", &[], 400),
        ("/..%2f..%2fusers", &[], 404),
        ("/../users", &[], 400),
        ("/f", &["-X", "DELETE"], 405),
        ("/style.css", &["-d", "some content"], 405),
        ("/style.css", &["-X", "GET", "-d", "some content"], 200),
        ("/", &["-X", "OPTIONS"], 405),
        ("/", &["-H", "Host: other.example"], 200),
    ] {
        let response = same(&served, target, options);
        assert_eq!(response.status, status, "{target} {options:?}");
        assert!(status < 400 || !response.body.starts_with(b"line"), "{target}");
    }
    let coded = same(&served, "/style.css", &["-H", "Accept-Encoding: zstd"]);
    assert_eq!(coded.field("content-encoding"), Some("zstd"));
}

#[test]
fn a_request_whose_host_and_authority_differ_is_refused() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("GET", "/f", &[("host", "other.example")], true);
    let got = http.response(stream);
    assert!(got.status == 400 || got.ended == Some(Ended::Reset(PROTOCOL_ERROR)), "{got:?}");
    let stream = http.request("GET", "/f", &[("host", "localhost")], true);
    assert_eq!(http.response(stream).whole(), (200, &b"content"[..]));
}

#[test]
fn content_that_is_too_long_is_answered_and_not_wanted() {
    let (site, server) = serve(&["--max-body", "10KiB"]);
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("POST", "/f", &[], false);
    http.send(&frame(DATA, 0, stream, &[b'x'; 16_000]));
    assert_eq!(http.response(stream).whole().0, 405);
    let stream = http.request("POST", "/f", &[("content-length", "20")], false);
    http.send(&frame(DATA, 0, stream, &[b'x'; 10]));
    http.ping();
    assert!(!http.streams.contains_key(&stream), "its content has not ended");
    http.send(&frame(DATA, END_STREAM, stream, &[b'x'; 10]));
    assert_eq!(http.response(stream).whole().0, 405);
    assert_eq!(http.fetch("/f").0, 200);
}

#[test]
fn http_2_can_be_turned_off_and_its_streams_be_limited() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("[http2]\nenabled = false\n").serve_from_user_space();
    let client = site.connector(Suite::TLS13).alpn(&[b"h2", b"http/1.1"]).connect(server.address());
    assert_eq!(client.info().alpn.as_deref(), Some(&b"http/1.1"[..]));
    let server = site.config("[http2]\nmax_streams = 3\n").serve_from_user_space();
    let mut http = connect(&site, &server, &[]);
    let streams: Vec<u32> = (0..4).map(|_| http.request("POST", "/f", &[], false)).collect();
    assert_eq!(http.response(streams[3]).ended, Some(Ended::Reset(REFUSED_STREAM)));
    assert!(http.settings.contains(&(MAX_CONCURRENT_STREAMS, 3)), "{:?}", http.settings);
    for stream in &streams[..3] {
        http.send(&frame(DATA, END_STREAM, *stream, b""));
        assert_eq!(http.response(*stream).whole().0, 405);
    }
    assert_eq!(http.fetch("/f").0, 200);
}

// ---- flow control

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

// ---- the end of a connection

#[test]
fn a_client_that_sends_no_more_gets_the_responses_to_what_it_sent() {
    let (site, server) = serve(&[]);
    for path in ["/f", "/none", "/"] {
        let mut http = connect(&site, &server, &[]);
        http.ping();
        // A file that was not asked for before is looked for on another thread.
        site.add("f", "content");
        let upload = http.stream();
        let stream = http.stream();
        http.send(
            &[headers(upload, false, &block("POST", "/f", &[])), headers(stream, true, &block("GET", path, &[]))]
                .concat(),
        );
        http.client.close_notify().expect("it leaves");
        let how = http.read_to_end();
        let got = http.streams.get(&stream).unwrap_or_else(|| panic!("{path}: no response, but {how}"));
        assert_eq!(got.ended, Some(Ended::Whole), "{path}: {how}");
        assert_eq!(http.streams[&upload].ended, Some(Ended::Reset(CANCEL)), "{path}: {how}");
    }
}

#[test]
fn a_long_response_begins_with_a_short_record_and_goes_on_with_full_ones() {
    let site = Site::new();
    site.add_pattern("one", 100_000);
    let server = site.serve_from_user_space(&[]);
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    http.send(&window_update(0, 1 << 20));
    for _ in 0..3 {
        http.ping();
        let from = http.client.received().len();
        pattern::assert_starts(&http.fetch("/one").1, 0);
        let lengths = http.client.data_lengths(from);
        assert_eq!(lengths[..6], [4096, 16_384, 16_384, 16_384, 16_384, 16_384], "{lengths:?}");
        assert_eq!(lengths.len(), 7, "{lengths:?}");
    }
}

#[test]
fn a_download_is_finished_before_the_server_ends() {
    let (site, mut server) = serve(&[]);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    let stream = http.get("/large");
    http.read_until("its head", |http| http.streams.contains_key(&stream));
    server.signal(Signal::TERM);
    wait_for_message(&server, "no new connections; responses under way have 30 s");
    pattern::assert_equal(http.response(stream).whole().1, 0..LARGE);
    assert_eq!(http.closed(), NO_ERROR);
    assert_eq!(http.go_aways, [(MAX_WINDOW, NO_ERROR), (stream, NO_ERROR)]);
    drop(http);
    let line = access_line(&server, 1);
    assert_eq!((line.get("bytes"), line.find("aborted")), (LARGE.to_string().as_str(), None));
    assert_eq!(server.wait().code(), Some(0));
}

/// Also one whose client does not reply to PING, and one whose client has sent nothing at all.
#[test]
fn idle_connections_are_closed_at_once_when_the_server_ends() {
    let (site, mut server) = serve(&["--idle-timeout", "1h", "--grace", "1h", "--request-timeout", "1h"]);
    let mut polite = connect(&site, &server, &[]);
    polite.fetch("/f");
    let mut mute = connect(&site, &server, &[]);
    mute.polite = false;
    mute.fetch("/f");
    let mut silent = Http2::silent(site.connector(Suite::TLS13), server.address());
    silent.read_until("the server's preface", |http| !http.settings.is_empty());
    server.signal(Signal::TERM);
    for http in [&mut polite, &mut mute, &mut silent] {
        assert_eq!(http.closed(), NO_ERROR);
    }
    drop((polite, mute, silent));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn an_old_process_finishes_its_streams_and_sends_new_ones_elsewhere() {
    let (site, mut server) = serve(&[]);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    let mut idle = connect(&site, &server, &[]);
    idle.fetch("/f");
    let stream = http.get("/large");
    http.read_until("its head", |http| http.streams.contains_key(&stream));
    let _successor = Successor::of(&server);
    pattern::assert_equal(http.response(stream).whole().1, 0..LARGE);
    assert_eq!(http.closed(), NO_ERROR);
    // An idle one is answered once more, and then ends.
    assert_eq!(idle.fetch("/f").0, 200);
    assert_eq!(idle.closed(), NO_ERROR);
    assert_serves(&site, &server);
    drop((http, idle));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn the_last_request_of_a_connection_announces_its_end() {
    let (site, server) = serve(&["--max-requests", "3"]);
    let mut http = connect(&site, &server, &[]);
    for _ in 0..3 {
        assert_eq!(http.fetch("/f").0, 200);
    }
    assert_eq!(http.closed(), NO_ERROR);
    assert_eq!(http.go_aways, [(MAX_WINDOW, NO_ERROR), (5, NO_ERROR)]);
    // A client that goes on, and never acknowledges the PING between the two GOAWAYs, is stopped.
    let mut http = connect(&site, &server, &[]);
    http.polite = false;
    let mut answered = 0;
    while http.go_aways.len() < 2 {
        let stream = http.get("/f");
        http.read_until("an answer or the end", |http| {
            http.go_aways.len() == 2 || http.streams.get(&stream).is_some_and(|got| got.ended.is_some())
        });
        answered += 1;
        assert!(answered < 1000, "requests are answered without end");
    }
    assert_eq!(http.closed(), NO_ERROR);
}

#[test]
fn an_idle_connection_is_closed_after_its_time() {
    let (site, server) = serve(&["--idle-timeout", "200ms"]);
    let mut http = connect(&site, &server, &[]);
    http.fetch("/f");
    assert_eq!(http.closed(), NO_ERROR);
    // Before the first request too.
    let mut http = Http2::silent(site.connector(Suite::TLS13), server.address());
    assert_eq!(http.closed(), NO_ERROR);
}

#[test]
fn an_idle_connection_makes_room_for_a_new_one() {
    let (site, server) = serve(&["--max-connections", "2", "--workers", "1"]);
    let mut idle: Vec<Http2> = (0..2).map(|_| connect(&site, &server, &[])).collect();
    for http in &mut idle {
        http.fetch("/f");
    }
    assert_serves(&site, &server);
    let oldest = &mut idle[0];
    assert_eq!(oldest.closed(), NO_ERROR);
}

#[test]
fn a_reload_takes_effect_between_two_requests_of_a_connection() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("").serve_from_user_space();
    let mut http = connect(&site, &server, &[]);
    assert_eq!(http.fetch("/f").0, 200);
    site.config("access = [{ path = '/f', deny = ['127.0.0.0/8'] }]").write();
    server.signal(Signal::HUP);
    wait_until("the new rule holds", || http.fetch("/f").0 == 403);
    assert!(http.go_aways.is_empty());
}

// ---- deadlines

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

/// Content that comes octet by octet, or frame by frame, has the same time as content that does not come.
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

/// Small requests, PINGs and windows by the octet keep no stream that makes no progress.
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

// ---- abuse

/// Sends `attack` again and again until the server ends the connection, at most `most` times. Returns the codes of GOAWAY.
#[track_caller]
fn until_refused(http: &mut Http2, most: usize, mut attack: impl FnMut(&mut Http2) -> Vec<u8>) -> u32 {
    for _ in 0..most {
        let octets = attack(http);
        if http.client.send(&octets).is_err() {
            break;
        }
    }
    let how = http.read_to_end();
    let (_, code) = *http.go_aways.last().unwrap_or_else(|| panic!("no GOAWAY, but {how}"));
    code
}

#[test]
fn a_client_that_resets_its_requests_is_sent_away() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 10)]);
    http.credit = 0;
    let code = until_refused(&mut http, 1000, |http| {
        let stream = http.stream();
        [headers(stream, true, &block("GET", "/large", &[])), reset(stream, CANCEL)].concat()
    });
    assert_eq!(code, ENHANCE_YOUR_CALM);
    assert_serves(&site, &server);
}

#[test]
fn a_client_that_provokes_resets_is_sent_away() {
    let (site, server) = serve(&[]);
    for bad in [window_update as fn(u32, u32) -> Vec<u8>, |stream, _| window_update(stream, MAX_WINDOW)] {
        let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 10)]);
        http.credit = 0;
        let code = until_refused(&mut http, 1000, |http| {
            let stream = http.stream();
            [headers(stream, true, &block("GET", "/large", &[])), bad(stream, 0)].concat()
        });
        assert_eq!(code, ENHANCE_YOUR_CALM);
    }
    assert_serves(&site, &server);
}

#[test]
fn header_blocks_without_end_are_refused() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[]);
    http.send(&frame(HEADERS, 0, 1, &block("GET", "/f", &[])));
    let code = until_refused(&mut http, 1000, |_| {
        let mut more = Vec::new();
        literal(&mut more, "x", &"y".repeat(1000));
        frame(CONTINUATION, 0, 1, &more)
    });
    assert_eq!(code, ENHANCE_YOUR_CALM);
    // Empty ones.
    let mut http = connect(&site, &server, &[]);
    http.send(&frame(HEADERS, 0, 1, &block("GET", "/f", &[])));
    assert_eq!(until_refused(&mut http, 1000, |_| frame(CONTINUATION, 0, 1, &[])), ENHANCE_YOUR_CALM);
    assert_serves(&site, &server);
}

/// An entry of 4000 octets in the dynamic table, named 10,000 times by one octet each.
#[test]
fn a_header_block_that_decodes_to_megabytes_is_refused() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[]);
    let mut bomb = block("GET", "/f", &[]);
    let mut entry = Vec::new();
    literal(&mut entry, "x", &"y".repeat(4000));
    entry[0] = 0x40;
    bomb.extend(entry);
    bomb.resize(bomb.len() + 10_000, 0x80 | 62);
    http.send(&headers(1, true, &bomb));
    assert_eq!(http.closed(), ENHANCE_YOUR_CALM);
    let mut http = connect(&site, &server, &[]);
    http.send(&headers(1, true, &[0x80 | 70]));
    assert_eq!(http.closed(), COMPRESSION_ERROR);
    // Many fields, or long ones, are answered.
    let many: Vec<(String, String)> = (0..150).map(|n| (format!("x-{n}"), "y".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("GET", "/f", &many, true);
    assert_eq!(http.response(stream).whole().0, 431);
    assert_eq!(http.fetch("/f").0, 200);
    assert_eq!(access_lines(&server, 2)[0].get("status"), "431");
    assert_serves(&site, &server);
}

#[test]
fn frames_without_use_end_the_connection() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("POST", "/f", &[], false);
    assert_eq!(until_refused(&mut http, 1000, |_| frame(DATA, 0, stream, &[])), ENHANCE_YOUR_CALM);
    for attack in
        [frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]), frame(PING, ACK, 0, b"12345678")]
    {
        let mut http = connect(&site, &server, &[]);
        let many: Vec<u8> = (0..900).flat_map(|_| attack.clone()).collect();
        assert_eq!(until_refused(&mut http, 1000, |_| many.clone()), ENHANCE_YOUR_CALM);
    }
    let mut http = connect(&site, &server, &[]);
    let priorities: Vec<u8> = (0..900).flat_map(|_| frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1")).collect();
    assert_eq!(until_refused(&mut http, 10, |_| priorities.clone()), ENHANCE_YOUR_CALM);
    assert_serves(&site, &server);
}

/// Octets of the process that are in memory.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// All streams, each with a response that waits for a window, and heads as long as they may be.
#[test]
fn clients_that_open_all_their_streams_and_no_window_pin_little_memory() {
    const CLIENTS: u64 = 10;
    let (site, server) = serve(&[]);
    let long = "z".repeat(8000);
    connect(&site, &server, &[]).fetch("/large");
    let before = resident(&server);
    let clients: Vec<Http2> = (0..CLIENTS)
        .map(|_| {
            let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
            http.credit = 0;
            let streams: Vec<u32> = (0..128).map(|_| http.request("GET", "/large", &[("x", &long)], true)).collect();
            http.read_until("all heads", |http| streams.iter().all(|stream| http.streams.contains_key(stream)));
            http
        })
        .collect();
    let each = resident(&server).saturating_sub(before) / CLIENTS;
    println!("{each} octets a connection of 128 streams that wait");
    assert!(each < 4 << 20, "{each} octets a connection");
    assert_serves(&site, &server);
    drop(clients);
}

#[test]
fn an_idle_connection_gives_back_what_many_streams_took() {
    // The first connections bring the allocator to its size.
    const BEFORE: usize = 60;
    const MEASURED: usize = 200;
    let (site, server) = serve(&["--idle-timeout", "1h"]);
    let burst = |http: &mut Http2| {
        let requests: Vec<u8> = (0..100)
            .flat_map(|_| {
                let stream = http.stream();
                headers(stream, true, &block("GET", "/f", &[]))
            })
            .collect();
        http.send(&requests);
        http.read_until("all", |http| http.streams.values().filter(|got| got.ended.is_some()).count() == 100);
    };
    let mut clients: Vec<Http2> = (0..BEFORE + MEASURED).map(|_| connect(&site, &server, &[])).collect();
    clients.iter_mut().for_each(Http2::ping);
    clients[..BEFORE].iter_mut().for_each(burst);
    clients.iter_mut().for_each(Http2::ping);
    let before = resident(&server);
    clients[BEFORE..].iter_mut().for_each(burst);
    clients.iter_mut().for_each(Http2::ping);
    let each = resident(&server).saturating_sub(before) / MEASURED as u64;
    println!("{each} octets more an idle connection after 100 streams");
    assert!(each < 8 << 10, "{each} octets a connection");
}

// ---- truncation, log, metrics

#[test]
fn a_file_that_is_truncated_never_ends_its_stream() {
    let (site, server) = serve(&[]);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
    http.send(&window_update(0, 1 << 30));
    let stream = http.get("/large");
    http.read_until("its head", |http| http.streams.contains_key(&stream));
    let file = fs::File::options().write(true).open(site.root().join("large")).expect("it opens");
    file.set_len(1000).expect("it is truncated");
    let how = http.read_to_end();
    assert!(how.starts_with("Alert(internal_error)"), "{how}");
    let got = &http.streams[&stream];
    assert_eq!(got.ended, None, "{} octets", got.body.len());
    pattern::assert_starts(&got.body, 0);
    let aborted = access_line(&server, 1).get("aborted").to_owned();
    assert!(aborted.contains("were promised"), "{aborted}");
}

#[test]
fn log_and_metrics_know_what_was_sent_on_each_stream() {
    const FIELDS: &str = "time,method,target,protocol,status,bytes,path,why";
    let site = Site::new();
    site.add("f", "content");
    site.add_pattern("one", 100_000);
    let watched = Watched::of(site.serve_from_user_space(&["--metrics", "127.0.0.1:0", "--access-log-fields", FIELDS]));
    let mut http = connect(&site, &watched.server, &[]);
    let streams = [http.get("/f"), http.get("/one"), http.get("/none"), http.request("HEAD", "/one", &[], true)];
    for stream in streams {
        http.response(stream).whole();
    }
    let lines = access_lines(&watched.server, 4);
    let line = |method: &str, path: &str| {
        let of = |line: &&crate::support::LogLine| line.get("method") == method && line.get("target") == path;
        lines.iter().find(of).unwrap_or_else(|| panic!("no line of {method} {path}: {lines:#?}"))
    };
    for (method, path, status, bytes) in
        [("GET", "/f", "200", "7"), ("GET", "/one", "200", "100000"), ("HEAD", "/one", "200", "0")]
    {
        let line = line(method, path);
        assert_eq!((line.get("status"), line.get("bytes"), line.find("aborted")), (status, bytes, None));
        assert_eq!((line.get("protocol"), line.way()), ("HTTP/2", ("user", "never")), "{}", line.text);
    }
    assert_eq!(line("GET", "/none").get("status"), "404");
    let scrape = watched.scrape();
    assert_eq!(scrape.get("sealion_http_responses_total{code=\"200\"}"), 3.0);
    assert_eq!(scrape.get("sealion_http_responses_total{code=\"404\"}"), 1.0);
    assert_eq!(scrape.get("sealion_responses_total{path=\"user\",reason=\"never\"}"), 4.0);
}

#[test]
fn wrong_passwords_of_a_client_that_does_not_wait_are_logged() {
    let site = Site::new();
    site.add("in/x", "secret");
    let hash = bcrypt::hash_with_result("right", 8).expect("a hash").format_for_version(bcrypt::Version::TwoY);
    fs::write(site.outside().join("users"), format!("ada:{hash}\n")).expect("written");
    let server = site.config("basic_auth = [{ path = '/in/', users = 'users' }]\n").serve_from_user_space();
    // ada:wrong
    let fields = [("authorization", "Basic YWRhOndyb25n")];
    let mut http = connect(&site, &server, &[]);
    let stream = http.stream();
    http.send(&[headers(stream, true, &block("GET", "/in/x", &fields)), reset(stream, CANCEL)].concat());
    http.request("GET", "/in/x", &fields, true);
    http.ping();
    http.client.reset().expect("it is reset");
    for line in access_lines(&server, 2) {
        assert_eq!((line.get("status"), line.find("aborted").is_some()), ("401", true), "{}", line.text);
    }
}

#[test]
fn refused_requests_have_lines_with_what_is_known() {
    let (site, server) = serve(&["--request-timeout", "300ms"]);
    let mut http = connect(&site, &server, &[]);
    let many: Vec<(String, String)> = (0..120).map(|n| (format!("x-{n}"), "y".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let stream = http.request("HEAD", "/f", &many, true);
    assert_eq!(http.response(stream).whole(), (431, &b""[..]), "HEAD has no content");
    let stream = http.request("POST", "/f", &[], false);
    assert_eq!(http.response(stream).whole().0, 408);
    // It is reset before it has a stream.
    let stream = http.request("GET", "/f", &[("connection", "close")], true);
    assert!(matches!(http.response(stream).ended, Some(Ended::Reset(_))));
    let lines = access_lines(&server, 3);
    let shown: Vec<_> = lines.iter().map(|line| (line.get("status"), line.get("method"), line.get("target"))).collect();
    assert_eq!(shown, [("431", "HEAD", "/f"), ("408", "POST", "/f"), ("400", "-", "-")]);
    assert!(lines[2].find("aborted").is_some(), "{}", lines[2].text);
}

#[test]
fn an_idle_connection_stays_idle_whatever_it_sends_but_requests() {
    let (site, server) = serve(&["--idle-timeout", "500ms"]);
    let mut http = connect(&site, &server, &[]);
    http.fetch("/f");
    http.client.socket().set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    for _ in 0..1000 {
        std::thread::sleep(Duration::from_millis(20));
        // The server may have closed already.
        let _ = http.client.send(&frame(PING, 0, 0, b"tests888"));
        let read = http.read();
        if !http.go_aways.is_empty() || read.is_err_and(|error| error.kind() == std::io::ErrorKind::UnexpectedEof) {
            return;
        }
    }
    panic!("PINGs renew the idle time");
}
