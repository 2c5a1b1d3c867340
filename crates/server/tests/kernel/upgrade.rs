//! Connections that the kernel seals pass to another process: key and sequence number stay in the socket, and the new process goes on with them.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};

use sealion_testkit::ktls::Counters;
use sealion_testkit::service::Service;
use sealion_testkit::{Client, PATIENCE, Suite, content, http, pattern};

use crate::support::http2::{Http2, MAX_WINDOW, window_update};
use crate::support::upstream::{Upstream, ok};
use crate::support::watch::{Watched, scrape};
use crate::support::{LARGE, SMALL_WINDOW, Site, access_lines, begin, wait_for_message, wait_until};

const LEN: u64 = (1 << 20) + 7;

#[test]
fn idle_connections_in_the_kernel_go_on_in_the_new_process() {
    let site = Site::new();
    site.add_large("f", LEN);
    let mut service = Service { first: site.serve(&["--ktls", "always", "--workers", "1"]) };
    let address = service.first.address();
    let counters = Counters::now();
    let mut clients: Vec<_> = Suite::all().into_iter().map(|suite| site.connector(suite).connect(address)).collect();
    let mut http2: Vec<_> =
        Suite::all().into_iter().map(|suite| Http2::connect(site.connector(suite), address, &[])).collect();
    let all = (clients.len() + http2.len()) as i64;
    let mut ask = |reason: &str, lines: usize| {
        for client in &mut clients {
            content::assert_equal(&http::get(client, "/f").expect("an answer").body, 0..LEN);
        }
        for client in &mut http2 {
            content::assert_equal(&client.fetch("/f").1, 0..LEN);
            client.ping();
        }
        let count = clients.len() + http2.len();
        for line in access_lines(&service.first, lines + count).split_off(lines) {
            assert_eq!(line.way(), ("kernel", reason), "{}", line.text);
        }
        lines + count
    };
    let mut lines = ask("moved", 0);
    assert_eq!(counters.tx_sw_since(), all);
    for _ in 0..2 {
        service.upgrade();
        lines = ask("moved-before", lines);
    }
    // The sockets are the same. The self-checks of the new processes moved others meanwhile, which are closed.
    assert_eq!(counters.since("TlsCurrTxSw"), all);
    wait_for_message(&service.first, &format!("{} connections went on in process", all));
    assert!(service.first.wait().success(), "nothing is left to do");
}

/// The bytes of a response that the kernel has, part of a record too, stay in the socket.
#[test]
fn responses_in_the_kernel_go_on_in_the_new_process() {
    let site = Site::new();
    site.add_large("large", LARGE);
    let mut service = Service { first: site.serve(&["--ktls", "always", "--workers", "1", "--stall-timeout", "1h"]) };
    let address = service.first.address();
    let counters = Counters::now();
    let connect = |suite| site.connector(suite).receive_buffer(SMALL_WINDOW).connect(address);
    let mut clients: Vec<_> = Suite::all().into_iter().map(connect).collect();
    for client in &mut clients {
        begin(client, "/large");
    }
    assert_eq!(counters.tx_sw_since(), clients.len() as i64);
    for _ in 0..2 {
        service.upgrade();
    }
    assert!(service.first.wait().success(), "nothing is left to do");
    for client in &mut clients {
        content::assert_equal(&client.read(LARGE as usize).expect("the rest"), 0..LARGE);
    }
    for line in access_lines(&service.first, clients.len()) {
        assert_eq!((line.way(), line.get("bytes")), (("kernel", "moved"), &*LARGE.to_string()), "{}", line.text);
    }
}

/// Frames that the kernel has not taken go along, and so do the streams.
#[test]
fn responses_of_http2_in_the_kernel_go_on_in_the_new_process() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let site = Site::new();
    site.add_large("large", LARGE);
    let mut service = Service { first: site.serve(&["--ktls", "always", "--workers", "1", "--stall-timeout", "1h"]) };
    let mut clients = Vec::new();
    for suite in [Suite::TLS13, Suite::TLS12] {
        let connector = site.connector(suite).receive_buffer(SMALL_WINDOW);
        let mut client = Http2::connect(connector, service.first.address(), &[(INITIAL_WINDOW_SIZE, MAX_WINDOW)]);
        client.ping();
        client.send(&window_update(0, MAX_WINDOW - 65_535));
        client.credit = 0;
        let streams = [client.get("/large"), client.get("/large")];
        client.read_until("a frame of content", |client| !client.data.is_empty());
        clients.push((client, streams));
    }
    for _ in 0..2 {
        service.upgrade();
    }
    assert!(service.first.wait().success(), "nothing is left to do");
    for (client, streams) in &mut clients {
        for stream in streams {
            content::assert_equal(client.response(*stream).whole().1, 0..LARGE);
        }
    }
    for line in access_lines(&service.first, 2 * clients.len()) {
        assert_eq!((line.way().0, line.get("bytes")), ("kernel", &*LARGE.to_string()), "{}", line.text);
    }
}

/// Bytes of each part of an exchange that a server feeds.
const PART: u64 = 300_001;

/// Upgrades of the exchanges that a server feeds.
const UPGRADES: u64 = 2;

/// A server that sends `/stream` in parts as the test says, makes a tunnel of `/chat`, and gives other contents back.
fn serving(parts: Receiver<u64>) -> Upstream {
    let parts = Mutex::new(parts);
    Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            match request.line() {
                "GET /stream" => {
                    let length = PART * (UPGRADES + 1);
                    accepted.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes());
                    while let Ok(part) = parts.lock().expect("no panic").recv_timeout(PATIENCE) {
                        accepted.write(&pattern::bytes(part * PART..(part + 1) * PART));
                    }
                }
                "GET /chat" => {
                    accepted.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n");
                    while let Some(bytes) = accepted.read(PART as usize) {
                        accepted.write(&bytes);
                    }
                    return;
                }
                _ => accepted.write(&ok(&request.body)),
            }
        }
    })
}

/// Asks for a stream, an upload and a tunnel, each on a connection of its own.
fn ask(site: &Site, service: &Service, suite: Suite) -> [Client; 3] {
    let length = (PART * (UPGRADES + 1)).to_string();
    let tunnel = [("Connection", "Upgrade"), ("Upgrade", "echo")];
    let content = [("Content-Length", &*length)];
    let asked = [("GET", "/stream", &[][..]), ("POST", "/upload", &content), ("GET", "/chat", &tunnel)];
    asked.map(|(method, target, fields)| {
        let mut client = site.connector(suite).connect(service.first.address());
        client.send(http::head(method, target, fields).as_bytes()).expect("it leaves");
        client
    })
}

fn send_part(client: &mut Client, part: u64) {
    for piece in pattern::bytes(part * PART..(part + 1) * PART).chunks(10_000) {
        client.send(piece).expect("it leaves");
    }
}

/// The process before keeps the connections to the server.
#[test]
fn exchanges_that_a_server_feeds_go_on_in_the_kernel_through_upgrades() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let site = Site::new();
        let (step, parts) = channel();
        let upstream = serving(parts);
        // An emulated machine needs minutes for the upgrades.
        let limits = "[limits]\ngrace = '1h'\nrequest_timeout = '1h'\nstall_timeout = '1h'\n";
        let table =
            format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\nstall_timeout = '1h'\n", upstream.url());
        let config = site.config("proxy = { to = 'app', upgrade = ['echo'] }").table(&table).table(limits);
        let options = ["--ktls", "always", "--workers", "1", "--metrics", "127.0.0.1:0"];
        let Watched { server, address } = Watched::of(config.serve_with(&options));
        let mut service = Service { first: server };
        let counters = Counters::now();
        let [mut stream, mut upload, mut tunnel] = ask(&site, &service, suite);
        for client in [&mut stream, &mut tunnel] {
            client.read_until(b"\r\n\r\n").expect("a head");
        }
        for part in 0..=UPGRADES {
            let range = part * PART..(part + 1) * PART;
            step.send(part).expect("the server waits");
            pattern::assert_equal(&stream.read(PART as usize).expect("a part"), range.clone());
            send_part(&mut upload, part);
            send_part(&mut tunnel, part);
            pattern::assert_equal(&tunnel.read(PART as usize).expect("the echo"), range);
            if part < UPGRADES {
                service.upgrade();
                wait_until("the connections have passed", || {
                    scrape(address).get("sealion_connections_taken_over_total") == 3.0
                });
            }
        }
        let answer = http::read_response(&mut upload, "POST").expect("an answer");
        pattern::assert_equal(&answer.body, 0..PART * (UPGRADES + 1));
        assert_eq!(counters.since("TlsCurrTxSw"), 3, "{suite:?}");
        tunnel.close_notify().expect("it leaves");
        tunnel.read_to_end().expect("an end").assert_orderly();
        drop(step);
        assert!(service.first.wait().success(), "nothing is left to do");
        for line in access_lines(&service.first, 3) {
            assert!(line.way().0 == "kernel" && line.find("aborted").is_none(), "{}", line.text);
        }
    }
}
