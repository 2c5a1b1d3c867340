//! The end of a connection: in order, by its age, to make room; and what comes between two requests.

use std::time::Duration;

use sealion_testkit::server::Signal;
use sealion_testkit::{Suite, pattern};

use super::{assert_serves, connect, connect_slow_reader, serve};
use crate::support::http2::{
    CANCEL, DATA, END_STREAM, Ended, Http2, INITIAL_WINDOW_SIZE, MAX_WINDOW, NO_ERROR, PING, block, frame, headers,
    window_update,
};
use crate::support::upstream::{Upstream, ok};
use crate::support::{LARGE, Site, Successor, access_line, access_lines, wait_for_message, wait_until};

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

/// Nothing that it could still do would bring these streams to their end.
#[test]
fn a_client_that_sends_no_more_is_waited_for_no_longer() {
    let upstream = Upstream::start(|accepted| {
        accepted.request();
        accepted.read_to_end();
    });
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let server = site
        .config(&format!("route = [{{ path = '/app/', proxy = {{ to = '{}' }} }}]", upstream.url()))
        .serve_from_user_space();
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
    let (stalled, waiting) = (http.get("/large"), http.get("/app/x"));
    http.read_until("a head", |http| http.streams.contains_key(&stalled));
    wait_until("the request is forwarded", || upstream.requests().len() == 1);
    http.client.close_notify().expect("it leaves");
    let how = http.read_to_end();
    for stream in [stalled, waiting] {
        assert_eq!(http.streams.get(&stream).and_then(|got| got.ended), Some(Ended::Reset(CANCEL)), "{how}");
    }
    let lines = access_lines(&server, 2);
    let statuses: Vec<_> = lines.iter().map(|line| line.get("status").to_owned()).collect();
    assert!(statuses.contains(&"499".to_owned()) && statuses.contains(&"200".to_owned()), "{statuses:?}");
}

/// 499 stands in the log for a client that left. Some servers answer it.
#[test]
fn a_server_may_answer_499() {
    let upstream = Upstream::answering(|_| b"HTTP/1.1 499 Token Required\r\nContent-Length: 5\r\n\r\ntoken".to_vec());
    let site = Site::new();
    let server = site.config(&format!("proxy = {{ to = '{}' }}", upstream.url())).serve_from_user_space();
    assert_eq!(connect(&site, &server, &[]).fetch("/"), (499, b"token".to_vec()));
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
fn small_responses_to_requests_that_came_together_share_a_record() {
    let site = Site::new();
    site.add_pattern("small", 1000);
    let server = site.serve_from_user_space(&[]);
    let mut http = connect(&site, &server, &[]);
    // From now on the file is in memory.
    http.fetch("/small");
    http.ping();
    let streams: Vec<u32> = (0..12).map(|_| http.stream()).collect();
    let requests = streams.iter().map(|stream| headers(*stream, true, &block("GET", "/small", &[])));
    let requests = requests.collect::<Vec<_>>().concat();
    let from = http.client.received().len();
    http.send(&requests);
    for stream in &streams {
        let (status, body) = http.response(*stream).whole();
        assert_eq!(status, 200);
        pattern::assert_equal(body, 0..1000);
    }
    let lengths = http.client.data_lengths(from);
    assert_eq!(lengths.len(), 1, "{lengths:?}");
    assert_eq!(access_lines(&server, 13).iter().filter(|line| line.get("bytes") == "1000").count(), 13);
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
fn an_old_process_finishes_its_streams_and_its_connections_go_on_elsewhere() {
    let (site, mut server) = serve(&[]);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    let mut idle = connect(&site, &server, &[]);
    idle.fetch("/f");
    let stream = http.get("/large");
    http.read_until("its head", |http| http.streams.contains_key(&stream));
    let _successor = Successor::of(&server);
    pattern::assert_equal(http.response(stream).whole().1, 0..LARGE);
    assert_serves(&site, &server);
    // Both go on in the new process.
    assert_eq!(server.wait().code(), Some(0));
    for http in [&mut http, &mut idle] {
        assert_eq!(http.fetch("/f").0, 200);
        assert_eq!(http.go_aways, []);
    }
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

/// Its place is promised to another connection in the middle of a head. The response then arrives, however slowly it reads.
#[test]
fn a_connection_that_asked_while_it_made_room_gets_the_whole_response() {
    let (site, server) = serve(&["--max-connections", "1", "--workers", "1"]);
    let mut http = connect_slow_reader(&site, &server, &[(INITIAL_WINDOW_SIZE, MAX_WINDOW)]);
    http.send(&window_update(0, 1 << 30));
    http.fetch("/f");
    // A connection that was used a moment ago makes no room.
    std::thread::sleep(Duration::from_millis(1100));
    let stream = http.stream();
    let request = headers(stream, true, &block("GET", "/large", &[]));
    http.send(&request[..20]);
    let other = std::net::TcpStream::connect(server.address()).expect("a connection");
    std::thread::sleep(Duration::from_millis(500));
    http.send(&request[20..]);
    http.read_until("the beginning", |http| http.streams.get(&stream).is_some_and(|got| got.body.len() > 10_000));
    // More than the time that an idle connection has to close.
    std::thread::sleep(Duration::from_millis(1500));
    let (status, body) = http.response(stream).whole();
    assert_eq!(status, 200);
    pattern::assert_equal(body, 0..LARGE);
    assert_eq!(http.closed(), NO_ERROR);
    drop(other);
}

/// The content that came before was discarded, as no rule forwarded the request.
#[test]
fn a_request_is_answered_by_the_settings_that_it_began_under() {
    let upstream = Upstream::answering(|_| ok(b"forwarded"));
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("").serve_from_user_space();
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("PUT", "/f", &[], false);
    http.send(&frame(DATA, 0, stream, b"first half"));
    http.ping();
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n", upstream.url());
    site.config("proxy = { to = 'app' }").table(&table).write();
    server.signal(Signal::HUP);
    wait_until("the new rule holds", || http.fetch("/f").1 == b"forwarded");
    let before = upstream.requests().len();
    http.send(&frame(DATA, END_STREAM, stream, b"second half"));
    assert_eq!(http.response(stream).whole().0, 405);
    assert_eq!(upstream.requests().len(), before);
}

#[test]
fn a_reload_takes_effect_between_two_requests_of_a_connection() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("").serve_from_user_space();
    let mut http = connect(&site, &server, &[]);
    assert_eq!(http.fetch("/f").0, 200);
    site.config("route = [{ path = '= /f', access = { deny = ['127.0.0.0/8'] } }]").write();
    server.signal(Signal::HUP);
    wait_until("the new rule holds", || http.fetch("/f").0 == 403);
    assert!(http.go_aways.is_empty());
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
