//! Memory of the process that clients can pin, and that it goes back to the system when they leave.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Response;
use sealion_testkit::{Suite, pattern};

use crate::proxy::serve_config;
use crate::support::config::Config;
use crate::support::fastcgi::{end, read_request, stdout};
use crate::support::http2::Http2;
use crate::support::http2_upstream::Http2Upstream;
use crate::support::process::{mappings, memory};
use crate::support::upstream::Upstream;
use crate::support::{LARGE, SMALL_WINDOW, Site, begin, get, messages, wait_for_message};

/// Readers that stop; half of them after they have read a response at full speed, so that the server has learned how much they take.
const READERS: u64 = 100;

/// Pages that the kernel has looked at to free memory (/proc/vmstat).
fn pages_scanned() -> u64 {
    let vmstat = std::fs::read_to_string("/proc/vmstat").expect("Linux tells it");
    let scans = vmstat.lines().filter(|line| line.starts_with("pgscan_"));
    scans.filter_map(|line| line.split(' ').nth(1)?.parse::<u64>().ok()).sum()
}

/// One test at a time. All together fill the memory that the kernel has for TCP (tcp_mem in tcp(7)): a socket then takes less than it said it has room for, and
/// what is sealed waits in the server.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the kernel is short of memory, a socket takes less than it said it has room for, and what is sealed waits in memory: that says nothing of readers.
#[test]
fn readers_that_stop_pin_little_memory_and_none_when_they_are_gone() {
    let _alone = alone();
    for _ in 0..5 {
        let before = pages_scanned();
        match std::panic::catch_unwind(pinned_by_readers_that_stop) {
            Ok(()) => return,
            Err(_) if pages_scanned() != before => println!("memory was short meanwhile: once more"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    panic!("memory is short for too long to measure it");
}

fn pinned_by_readers_that_stop() {
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
    let before = memory(&server);
    for reader in &mut readers {
        begin(reader, "/large");
    }
    let stopped = memory(&server);
    let mappings = mappings(&server);
    drop(readers);
    crate::support::access_lines(&server, (READERS + READERS / 2) as usize);
    let after = memory(&server);
    let each = stopped.saturating_sub(before) / READERS;
    let seen = format!("{before} bytes idle, {stopped} stopped, {after} after: {each} bytes a reader");
    println!("{seen}");
    assert!(each <= 64 << 10, "readers that stopped take too much: {seen}\n{mappings}");
    assert!(after.saturating_sub(before) <= 3 << 20, "too much stays with the process: {seen}");
}

/// Connections of HTTP/2 whose streams cannot send.
const STALLED: u64 = 8;

const STREAMS: u32 = 128;

const INITIAL_WINDOW_SIZE: u16 = 4;

/// The behaviour of clients whose streams cannot send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// They read heads.
    Reads,
    /// They read heads that a library reads by itself, whose first burst is not bounded.
    ReadsAnyHead,
    /// They read nothing.
    IsSilent,
}

/// Memory that a connection pins whose streams have closed windows: each asks for a response of `config`, which has 400 kB.
#[track_caller]
fn assert_bounded(site: &Site, config: &Config, client: Client) {
    let _alone = alone();
    let server = config.serve_from_user_space();
    let connect = |settings: &[_]| {
        let connector = site.connector(Suite::TLS13);
        let connector = if client == Client::IsSilent { connector.receive_buffer(SMALL_WINDOW) } else { connector };
        Http2::connect(connector, server.address(), settings)
    };
    for _ in 0..20 {
        assert_eq!(connect(&[]).fetch("/warm").1.len(), LENGTH);
    }
    let before = memory(&server);
    let stalled: Vec<_> = (0..STALLED)
        .map(|_| {
            let mut http = connect(&[(INITIAL_WINDOW_SIZE, 0)]);
            let streams: Vec<u32> = (0..STREAMS).map(|_| http.get("/")).collect();
            if client != Client::IsSilent {
                let has_head = |http: &Http2, id| http.streams.get(id).is_some_and(|got| got.status == 200);
                http.read_until("all heads", |http| streams.iter().all(|id| has_head(http, id)));
            }
            http
        })
        .collect();
    let each = memory(&server).saturating_sub(before) / STALLED;
    println!("{each} bytes a connection");
    // Requests that wait for their heads take more memory than their responses.
    let bound = if client == Client::Reads { 2 << 20 } else { 3 << 20 };
    assert!(each <= bound, "{each} bytes a connection whose streams are stalled");
    drop(stalled);
}

const LENGTH: usize = 400_000;

/// Names and values of 55 kB.
fn large_fields() -> Vec<(String, String)> {
    (0..50).map(|n| (format!("x-{n}"), "v".repeat(1100))).collect()
}

fn large_lines() -> String {
    large_fields().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

/// A server of HTTP/1.1 whose responses have these lines too.
fn over_http1(site: &Site, lines: &str) -> (Config, Upstream) {
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n{lines}\r\n{}", "x".repeat(LENGTH));
    let upstream = Upstream::answering(move |_| response.clone().into_bytes());
    (serve_config(site, &[&upstream.url()], ""), upstream)
}

fn over_http2(site: &Site, fields: Vec<(String, String)>) -> (Config, Http2Upstream) {
    let upstream = Http2Upstream::start(move |_, mut respond| {
        let mut head = Response::builder();
        for (name, value) in &fields {
            head = head.header(name, value);
        }
        Box::pin(async move {
            let mut body = respond.send_response(head.body(()).expect("a head"), false)?;
            body.send_data(Bytes::from(vec![b'x'; LENGTH]), true)
        })
    });
    (serve_config(site, &[&upstream.url()], "protocol = 'http2'"), upstream)
}

/// A server of FastCGI: its content has no length.
fn over_fastcgi(site: &Site, lines: &str) -> (Config, Upstream) {
    let response = stdout(format!("Content-Type: text/plain\r\n{lines}\r\n{}", "x".repeat(LENGTH)));
    let response = [response, end()].concat();
    let upstream = Upstream::start(move |accepted| {
        if read_request(accepted).is_some() {
            accepted.write(&response);
        }
    });
    let url = upstream.url().replace("http://", "fastcgi://");
    let table = format!("[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{{ url = '{url}' }}]\n");
    std::fs::write(site.root().join("index.php"), "").expect("a script");
    let rule = "proxy = { to = 'php', fastcgi = { front = '/index.php', only_front = true } }";
    (site.config(rule).table(&table), upstream)
}

#[test]
fn stalled_streams_over_http1_pin_little_memory() {
    let site = Site::new();
    let (config, _upstream) = over_http1(&site, "");
    assert_bounded(&site, &config, Client::Reads);
}

#[test]
fn stalled_streams_over_http2_pin_little_memory() {
    let site = Site::new();
    let (config, _upstream) = over_http2(&site, Vec::new());
    assert_bounded(&site, &config, Client::Reads);
}

#[test]
fn stalled_streams_over_fastcgi_pin_little_memory() {
    let site = Site::new();
    let (config, _upstream) = over_fastcgi(&site, "");
    assert_bounded(&site, &config, Client::Reads);
}

/// Stored bodies are not kept in memory for clients that do not take them.
#[test]
fn stalled_streams_of_stored_responses_pin_little_memory() {
    // With more, places for responses run short.
    const CLIENTS: u64 = 6;
    let _alone = alone();
    let site = Site::new();
    let response = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: 126000\r\n\r\n{}",
        "x".repeat(126_000)
    );
    let upstream = Upstream::answering(move |_| response.clone().into_bytes());
    let cache = site.outside().join("cache");
    let url = upstream.url();
    let table =
        format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{url}' }}]\n[cache]\ndirectories = [{cache:?}]\n");
    let server = site.config("proxy = { to = 'app', cache = {} }").table(&table).serve_from_user_space();
    let connect =
        |window| Http2::connect(site.connector(Suite::TLS13), server.address(), &[(INITIAL_WINDOW_SIZE, window)]);
    let target = |client: u64, n: u32| format!("/{client}/{n}");
    let mut quick = connect(65_535);
    for (client, n) in (0..CLIENTS).flat_map(|client| (0..STREAMS).map(move |n| (client, n))) {
        assert_eq!(quick.fetch(&target(client, n)).1.len(), 126_000);
    }
    let before = memory(&server);
    let stalled: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let mut http = connect(0);
            let streams: Vec<u32> = (0..STREAMS).map(|n| http.get(&target(client, n))).collect();
            let has_head = |http: &Http2, id| http.streams.get(id).is_some_and(|got| got.status == 200);
            http.read_until("all heads", |http| streams.iter().all(|id| has_head(http, id)));
            http
        })
        .collect();
    let each = memory(&server).saturating_sub(before) / CLIENTS;
    println!("{each} bytes a connection");
    assert!(each <= 3 << 20, "{each} bytes a connection whose streams are stalled");
    drop(stalled);
}

#[test]
fn large_heads_over_http1_pin_little_memory() {
    let site = Site::new();
    let (config, _upstream) = over_http1(&site, &large_lines());
    assert_bounded(&site, &config, Client::Reads);
}

#[test]
fn large_heads_over_http2_pin_little_memory() {
    let site = Site::new();
    let (config, _upstream) = over_http2(&site, large_fields());
    assert_bounded(&site, &config, Client::ReadsAnyHead);
}

#[test]
fn large_heads_over_fastcgi_pin_little_memory() {
    let site = Site::new();
    let (config, _upstream) = over_fastcgi(&site, &large_lines());
    assert_bounded(&site, &config, Client::Reads);
}

#[test]
fn large_heads_over_http1_that_no_client_reads_pin_little_memory() {
    let site = Site::new();
    let (config, _upstream) = over_http1(&site, &large_lines());
    assert_bounded(&site, &config, Client::IsSilent);
}

#[test]
fn large_heads_over_fastcgi_that_no_client_reads_pin_little_memory() {
    let site = Site::new();
    let (config, _upstream) = over_fastcgi(&site, &large_lines());
    assert_bounded(&site, &config, Client::IsSilent);
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
