//! Faults around a server: it goes on, and serves again by itself when they are over.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Client, Suite, http};

use crate::support::namespace::Namespace;
use crate::support::{LARGE, PROGRAM, Site, access_lines, begin, messages, wait_for_message, wait_until};

/// Held by a test with hundreds of connections: two of them at a time, and the tests beside them, would need more open files
/// than the usual soft limit of 1024.
static CROWD: Mutex<()> = Mutex::new(());

fn pid(server: &Server) -> Pid {
    Pid::from_raw(server.pid() as i32).expect("a process has a number")
}

#[test]
fn service_resumes_by_itself_after_descriptors_ran_out() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve(&["--workers", "1"]);
    // Signals are answered when the start is over: from then on the server opens no more descriptors by itself.
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    let mut first = site.connect(&server);
    http::get(&mut first, "/f").expect("an answer");
    let used = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it is ours").count() as u64;
    let few = Rlimit { current: Some(used + 3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(Some(pid(&server)), Resource::Nofile, few).expect("the limit is lowered");
    let crowd: Vec<_> = (0..20).map(|_| TcpStream::connect(server.address()).expect("the queue takes it")).collect();
    wait_for_message(&server, "cannot accept connections");
    assert_eq!(http::get(&mut first, "/f").expect("who is in is served").body, b"content");
    // The limit stays; those that crowd it go.
    drop(crowd);
    let mut again = site.connect(&server);
    assert_eq!(http::get(&mut again, "/f").expect("service resumes").body, b"content");
    wait_for_message(&server, "accepting connections again");
    assert_eq!(messages(&server, "cannot accept connections"), 1, "told once, however many are turned away");
    prlimit(Some(pid(&server)), Resource::Nofile, before).expect("the limit is restored");
}

#[test]
fn connections_that_never_say_enough_are_closed_and_keep_nobody_out() {
    let _crowd = CROWD.lock();
    let site = Site::new();
    site.add("f", "content");
    let server =
        site.serve(&["--handshake-timeout", "700ms", "--request-timeout", "700ms", "--max-connections", "150"]);
    // Half of a ClientHello, nothing at all, and half of a request.
    let mut halves: Vec<TcpStream> = (0..200)
        .map(|n| {
            let mut io = TcpStream::connect(server.address()).expect("the queue takes it");
            io.set_read_timeout(Some(sealion_testkit::PATIENCE)).expect("a timeout");
            if n % 2 == 0 {
                io.write_all(b"\x16\x03\x01\x02\x00\x01\x00").expect("it leaves");
            }
            io
        })
        .collect();
    let mut half: Client = site.connect(&server);
    half.send(b"GET /f HTTP/1.1\r\nHost: local").expect("it leaves");
    assert_eq!(http::get(&mut site.connect(&server), "/f").expect("a place is free in time").body, b"content");
    for io in &mut halves {
        // An end or a reset: nothing of use, and no wait for ever.
        let mut rest = Vec::new();
        match io.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
    let refused = http::read_response(&mut half, "GET").expect("an answer to half a request");
    assert_eq!(refused.status, 408);
}

#[test]
fn a_root_that_goes_and_comes_back_is_served_again_by_a_reload() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve(&["--file-cache-age", "0s"]);
    let get = || http::get(&mut site.connect(&server), "/f").expect("an answer");
    assert_eq!(get().body, b"content");
    std::fs::remove_dir_all(site.root()).expect("the root is removed");
    assert_eq!(get().status, 404);
    server.signal(Signal::HUP);
    wait_for_message(&server, "the one before stays in use");
    assert_eq!(get().status, 404);
    std::fs::create_dir(site.root()).expect("the root is restored");
    site.add("f", "new");
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    assert_eq!(get().body, b"new");
}

/// As /proc has it (TCP_LISTEN of linux/tcp_states.h).
const LISTENING: &str = "0A";

/// No FIN and no reset comes, and what is sent is not acknowledged: only deadlines end such connections.
#[test]
fn connections_whose_peers_have_vanished_end_by_themselves() {
    let namespace = Namespace::new("vanished");
    let address = format!("{}:8443", namespace.link());
    let site = Site::new();
    site.add("f", "content");
    site.add_pattern("large", LARGE);
    let timeouts = ["idle", "handshake", "request", "stall", "linger"].map(|name| format!("--{name}-timeout=1s"));
    let mut command = namespace.command(PROGRAM);
    command.args(site.arguments_at(&address, &["--ktls", "never", "--file-cache-age", "0s"])).args(&timeouts);
    let server = Server::spawn(command);
    // proc_pid_net(5): what the process has closed, and the kernel still tries to end, has no inode.
    let open = || {
        let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", server.pid())).expect("it runs");
        let lines: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_ascii_whitespace().collect()).collect();
        lines.iter().filter(|line| line[1].ends_with(":20FB") && line[3] != LISTENING && line[9] != "0").count()
    };

    let silent = TcpStream::connect(server.address()).expect("a connection");
    let mut idle = site.connect(&server);
    http::get(&mut idle, "/f").expect("an answer");
    let mut half = site.connect(&server);
    half.send(b"GET /f HTTP/1.1\r\nHost: local").expect("it leaves");
    let mut reader = site.connect_slow_reader(&server);
    begin(&mut reader, "/large");
    assert!(open() > 0, "it sees what is open");
    namespace.cut();
    wait_until("all connections are closed", || open() == 0);
    let lines = access_lines(&server, 3);
    let aborted: Vec<_> = lines.iter().filter_map(|line| Some((line.get("target"), line.find("aborted")?))).collect();
    assert_eq!(aborted, [("/large", "the peer read nothing for 1 s")]);
    drop((silent, idle, half, reader));
}

/// Bytes of memory that belong to the process alone.
pub(crate) fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells");
    line.trim().strip_suffix(" kB").and_then(|text| text.parse::<u64>().ok()).expect("a number") << 10
}

/// MEASURED: 5 to 6 kB, see docs/capacity.md. This bound includes the memory that the allocator keeps of handshakes.
const MOST_PER_IDLE_CONNECTION: u64 = 12 << 10;

#[test]
fn idle_connections_take_little_memory() {
    let _crowd = CROWD.lock();
    let connections: u64 = std::env::var("SEALION_TEST_IDLE").map_or(600, |text| text.parse().expect("a number"));
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve(&["--workers", "2", "--idle-timeout", "10m", "--access-log", "off"]);
    let connector = site.connector(Suite::TLS13);
    // The first ones pay for what all share.
    let mut idle: Vec<_> = (0..100).map(|_| connector.connect(server.address())).collect();
    idle.iter_mut().for_each(|client| drop(http::get(client, "/f").expect("an answer")));
    let before = resident(&server);
    let more: Vec<_> = (0..connections)
        .map(|_| {
            let mut client = connector.connect(server.address());
            http::get(&mut client, "/f").expect("an answer");
            client
        })
        .collect();
    let each = (resident(&server) - before) / connections;
    eprintln!("{each} bytes for each of {connections} idle connections");
    assert!(each <= MOST_PER_IDLE_CONNECTION, "{each} bytes for each idle connection");
    drop((idle, more));
}

/// A process that ends with the test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Unread messages are dropped and counted; workers do not wait for them.
#[test]
fn an_unread_standard_error_stops_no_worker() {
    use std::io::{BufRead, BufReader};
    let site = Site::new();
    site.add("f", "content");
    let mut command = std::process::Command::new(PROGRAM);
    command.args(site.arguments(&["--ktls", "never", "--workers", "1", "--log", "debug", "--access-log", "off"]));
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    let stderr = child.stderr.take().expect("it is piped");
    let mut child = Killed(child);
    let mut lines = BufReader::with_capacity(64, stderr).lines();
    let port = lines.find_map(|line| {
        let line = line.expect("text");
        let (_, rest) = line.split_once("https://localhost:").or_else(|| line.split_once("https://127.0.0.1:"))?;
        rest.split(['/', ' ']).next()?.parse::<u16>().ok()
    });
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port.expect("it says where it listens")));
    // More than the pipe holds, a line each.
    for _ in 0..6000 {
        let mut plain = TcpStream::connect(address).expect("it listens");
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it leaves");
        plain.set_read_timeout(Some(sealion_testkit::PATIENCE)).expect("a timeout");
        plain.read_to_end(&mut Vec::new()).expect("the worker goes on");
    }
    let mut client = site.connector(Suite::TLS13).connect(address);
    assert_eq!(http::get(&mut client, "/f").expect("an answer").body, b"content");
    rustix::process::kill_process(Pid::from_child(&child.0), Signal::TERM).expect("it runs");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert!(child.0.wait().expect("it ends").success());
    assert!(rest.iter().any(|line| line.contains("messages were lost")), "{:?}", rest.last());
}

/// One line for each connection that fails would let anyone fill the log.
#[test]
fn a_failed_connection_is_no_line_unless_asked_for() {
    let site = Site::new();
    for (level, expected) in [("info", 0), ("debug", 1)] {
        let mut server = site.serve(&["--log", level, "--linger-timeout", "1ms"]);
        let mut plain = TcpStream::connect(server.address()).expect("it listens");
        plain.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it leaves");
        plain.read_to_end(&mut Vec::new()).expect("it is closed");
        drop(plain);
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        wait_for_message(&server, "no new connections");
        assert_eq!(messages(&server, "plain HTTP"), expected, "{level}");
    }
}
