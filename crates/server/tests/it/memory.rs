//! Memory of the process that clients can pin, and that it goes back to the system when they leave.

use bytes::Bytes;
use http::Response;
use sealion_testkit::server::Server;
use sealion_testkit::{Suite, pattern};

use crate::proxy::serve_config;
use crate::support::http2::Http2;
use crate::support::http2_upstream::Http2Upstream;
use crate::support::upstream::{Upstream, ok};
use crate::support::{LARGE, Site, begin, get, messages, wait_for_message, wait_until};

/// Readers that stop; half of them after they have read a response at full speed, so that the server has learned how much they take.
const READERS: u64 = 100;

/// Bytes of the process that are in memory, once they no longer change.
fn resident(server: &Server) -> u64 {
    let read = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    let (mut last, mut equal) = (read(), 0);
    wait_until("the memory in use settles", || {
        let now = read();
        equal = if now == last { equal + 1 } else { 0 };
        last = now;
        equal == 20
    });
    last
}

#[test]
fn readers_that_stop_pin_little_memory_and_none_when_they_are_gone() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    site.add_pattern("warm", 1 << 20);
    let server = site.serve_from_user_space(&[]);
    let mut readers: Vec<_> = (0..READERS).map(|_| site.connect_slow_reader(&server)).collect();
    for reader in readers.iter_mut().step_by(2) {
        reader.send(get("/warm").as_bytes()).expect("the request leaves");
        reader.read_until(b"\r\n\r\n").expect("the head comes");
        pattern::assert_equal(&reader.read(1 << 20).expect("the body comes"), 0..1 << 20);
    }
    let before = resident(&server);
    for reader in &mut readers {
        begin(reader, "/large");
    }
    let stopped = resident(&server);
    drop(readers);
    crate::support::access_lines(&server, (READERS + READERS / 2) as usize);
    let after = resident(&server);
    let each = stopped.saturating_sub(before) / READERS;
    println!("{before} idle, {stopped} stopped, {after} after: {each} bytes a reader");
    assert!(each <= 64 << 10, "{each} bytes a reader that stopped");
    let kept = after.saturating_sub(before);
    assert!(kept <= 3 << 20, "{kept} bytes stay with the process");
}

/// Connections of HTTP/2 whose streams cannot send.
const STALLED: u64 = 8;

const STREAMS: u32 = 128;

const INITIAL_WINDOW_SIZE: u16 = 4;

/// Memory that a connection pins whose streams have closed windows: each asks for a response of `url`, which has 400 kB.
#[track_caller]
fn assert_bounded(url: &str, keys: &str) {
    let site = Site::new();
    let server = serve_config(&site, &[url], keys).serve_from_user_space();
    let connect = |settings: &[_]| Http2::connect(site.connector(Suite::TLS13), server.address(), settings);
    for _ in 0..20 {
        assert_eq!(connect(&[]).fetch("/warm").1.len(), 400_000);
    }
    let before = resident(&server);
    let stalled: Vec<_> = (0..STALLED)
        .map(|_| {
            let mut http = connect(&[(INITIAL_WINDOW_SIZE, 0)]);
            let streams: Vec<u32> = (0..STREAMS).map(|_| http.get("/")).collect();
            let has_head = |http: &Http2, id| http.streams.get(id).is_some_and(|got| got.status == 200);
            http.read_until("all heads", |http| streams.iter().all(|id| has_head(http, id)));
            http
        })
        .collect();
    let each = resident(&server).saturating_sub(before) / STALLED;
    assert!(each <= 2 << 20, "{each} bytes a connection whose streams are stalled");
    drop(stalled);
}

#[test]
fn stalled_streams_over_http1_pin_little_memory() {
    let upstream = Upstream::answering(|_| ok(&vec![b'x'; 400_000]));
    assert_bounded(&upstream.url(), "");
}

#[test]
fn stalled_streams_over_http2_pin_little_memory() {
    let upstream = Http2Upstream::start(|_, mut respond| {
        Box::pin(async move {
            let mut body = respond.send_response(Response::new(()), false)?;
            body.send_data(Bytes::from(vec![b'x'; 400_000]), true)
        })
    });
    assert_bounded(&upstream.url(), "protocol = 'http2'");
}

#[test]
fn the_heap_has_no_huge_pages() {
    let site = Site::new();
    let server = site.serve_from_user_space(&[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).expect("Linux 5.0 or newer says");
    assert_eq!(line.trim(), "0");
}

#[test]
fn all_caches_together_keep_a_bound() {
    let site = Site::new();
    site.add("f", "content");
    let start = |options: &[&str]| site.serve_from_user_space(&[&["--workers", "2"], options].concat());
    let server = start(&["--cache-memory", "1MiB"]);
    wait_for_message(
        &server,
        "caches of each worker: 512KiB for files, 0B for responses, because server.cache_memory is 1MiB",
    );
    assert_eq!(messages(&start(&["--cache-memory", "1GiB"]), "caches of each worker"), 0);
}
