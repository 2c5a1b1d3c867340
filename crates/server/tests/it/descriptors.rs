//! A low limit on open files: clients that stall many streams of HTTP/2 keep no other client out.

use std::fs::File;
use std::process::Command;

use sealion_testkit::server::Server;
use sealion_testkit::{Suite, http};

use crate::proxy::connect::{block_of, tunnels};
use crate::proxy::serve_config;
use crate::support::http2::{Http2, headers, window_update};
use crate::support::upstream::{Upstream, ok};
use crate::support::{PROGRAM, Site, wait_until};

/// Open files of the server. A dozen connections with 128 streams each would need three times as many.
const ALLOWED: usize = 600;

const CONNECTIONS: usize = 12;
const STREAMS: usize = 128;

/// Longer than what is kept in memory, and than what sockets take.
const LENGTH: u64 = 400_000;

const INITIAL_WINDOW_SIZE: u16 = 4;

/// The program with a limit on open files.
fn limited(arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Server {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={ALLOWED}:{ALLOWED}")).arg(PROGRAM).args(arguments);
    Server::spawn(command)
}

fn open_files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it is ours").count()
}

/// Opens connections whose streams cannot send, by `ask` for each stream, and waits until each connection has its first response and the server has
/// read all requests.
fn stall(site: &Site, server: &Server, ask: impl Fn(&mut Http2, usize)) -> Vec<Http2> {
    let connections = (0..CONNECTIONS).map(|n| {
        let connector = site.connector(Suite::TLS13);
        let mut http = Http2::connect(connector, server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
        (0..STREAMS).for_each(|stream| ask(&mut http, n * STREAMS + stream));
        http.read_until("a head", |http| http.streams.values().any(|got| got.status == 200));
        http.ping();
        http
    });
    connections.collect()
}

/// Other clients get files, over both protocols, and descriptors are left.
#[track_caller]
fn assert_serves(site: &Site, server: &Server, path: &str) {
    for _ in 0..20 {
        let (status, body) = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]).fetch(path);
        assert_eq!((status, body.len() as u64), (200, LENGTH));
        let response = http::get(&mut site.connect(server), path).expect("a response");
        assert_eq!((response.status, response.body.len() as u64), (200, LENGTH));
    }
    let open = open_files(server);
    assert!(open < ALLOWED - 50, "{open} files are open");
    let messages: Vec<_> = server.lines().into_iter().filter(|line| line.text.contains("cannot accept")).collect();
    assert!(messages.is_empty(), "{messages:?}");
}

/// The windows of a connection open: each of its streams is answered, those that waited too.
#[track_caller]
fn open_windows(http: &mut Http2) {
    http.send(&window_update(0, i32::MAX as u32 - 65_535));
    let streams: Vec<u32> = (0..STREAMS as u32).map(|n| 2 * n + 1).collect();
    streams.iter().for_each(|stream| http.send(&window_update(*stream, LENGTH as u32)));
    for stream in streams {
        let (status, body) = http.response(stream).whole();
        assert_eq!((status, body.len() as u64), (200, LENGTH), "stream {stream}");
    }
}

#[test]
fn stalled_files_keep_no_other_client_out() {
    let site = Site::new();
    for n in 0..=CONNECTIONS * STREAMS {
        File::create(site.root().join(n.to_string())).and_then(|file| file.set_len(LENGTH)).expect("a file");
    }
    let server = limited(site.arguments(&["--ktls", "never", "--workers", "1", "--stall-timeout", "10m"]));
    let mut stalled = stall(&site, &server, |http, n| {
        http.get(&format!("/{n}"));
    });
    assert_serves(&site, &server, &format!("/{}", CONNECTIONS * STREAMS));
    open_windows(&mut stalled[0]);
}

#[test]
fn a_refusal_waits_for_no_place() {
    let site = Site::new();
    for n in 0..STREAMS {
        File::create(site.root().join(n.to_string())).and_then(|file| file.set_len(LENGTH)).expect("a file");
    }
    let server = limited(site.arguments(&["--ktls", "never", "--workers", "1", "--stall-timeout", "10m"]));
    let connector = site.connector(Suite::TLS13);
    let mut http = Http2::connect(connector, server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let streams: Vec<u32> = (0..STREAMS - 1).map(|n| http.get(&format!("/{n}"))).collect();
    http.ping();
    let refused = http.request("DELETE", "/0", &[], true);
    http.read_until("the refusal", |http| http.streams.get(&refused).is_some_and(|got| got.status > 0));
    assert_eq!(http.streams[&refused].status, 405);
    let answered = streams.iter().filter(|id| http.streams.contains_key(id)).count();
    assert!(answered < streams.len(), "no stream waits");
}

#[test]
fn stalled_responses_of_a_server_keep_no_other_client_out() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| ok(&vec![b'x'; LENGTH as usize]));
    let config = serve_config(&site, &[&upstream.url()], "max_fails = 1").write();
    let config = config.to_str().expect("a path in UTF-8");
    let server = limited(["serve", "--config", config, "--ktls", "never", "--workers", "1", "--stall-timeout", "10m"]);
    let mut stalled = stall(&site, &server, |http, n| {
        http.get(&format!("/{n}"));
    });
    assert_serves(&site, &server, "/other");
    open_windows(&mut stalled[0]);
    wait_until("stalled connections keep what they have", || open_files(&server) < ALLOWED - 50);
}

/// A server of a file, and of tunnels that wait for a byte.
fn serve_tunnels(site: &Site) -> (Server, Upstream) {
    File::create(site.root().join("file")).and_then(|file| file.set_len(LENGTH)).expect("a file");
    let upstream = tunnels(|accepted| drop(accepted.read(1)));
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n", upstream.url());
    let config = site.config("route = [{ path = '/chat/', proxy = { to = 'app' } }]").table(&table).write();
    let config = config.to_str().expect("a path in UTF-8");
    let server = limited(["serve", "--config", config, "--ktls", "never", "--workers", "1", "--stall-timeout", "10m"]);
    (server, upstream)
}

/// Asks for such a tunnel.
fn open_tunnel(http: &mut Http2) -> u32 {
    let stream = http.stream();
    http.send(&headers(stream, false, &block_of("/chat", "websocket", &[])));
    stream
}

#[test]
fn idle_tunnels_keep_no_other_client_out() {
    let site = Site::new();
    let (server, _upstream) = serve_tunnels(&site);
    let _stalled = stall(&site, &server, |http, _| _ = open_tunnel(http));
    assert_serves(&site, &server, "/file");
}

#[test]
fn a_connection_full_of_tunnels_gets_its_responses() {
    let site = Site::new();
    let (server, _upstream) = serve_tunnels(&site);
    let mut http = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    let tunnels: Vec<u32> = (0..STREAMS - 1).map(|_| open_tunnel(&mut http)).collect();
    let status = |http: &Http2, id: &u32| http.streams.get(id).map_or(0, |got| got.status);
    http.read_until("each tunnel is open or refused", |http| {
        tunnels.iter().all(|id| matches!(status(http, id), 200 | 503))
    });
    let open = tunnels.iter().filter(|id| status(&http, id) == 200).count();
    assert!((1..tunnels.len()).contains(&open), "{open} tunnels are open");
    let (status, body) = http.fetch("/file");
    assert_eq!((status, body.len() as u64), (200, LENGTH));
}
