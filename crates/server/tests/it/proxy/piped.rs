//! Responses of servers that pass from socket to socket by a pipe. Here the client's connection has no TLS; the guest tests have the same where the kernel
//! seals.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;

use sealion_testkit::PATIENCE;
use sealion_testkit::server::Server;
use sealion_testkit::service::Service;

use crate::support::by_length::{self, READ_FIRST};
use crate::support::config::Config;
use crate::support::curl::parse_response;
use crate::support::watch::{Scrape, Watched, scrape};
use crate::support::{LARGE, SMALL_WINDOW, Site, access_line, access_lines, content, get, wait_until};

const LENGTHS: [u64; 6] = [1, (1 << 20) + 7, 16_385, 256 << 10, 0, (64 << 10) + READ_FIRST];

/// A site without TLS in front of the server at `url`, with these keys of the rule.
fn before(site: &Site, url: &str, keys: &str) -> Watched {
    let listen = "address = '127.0.0.1:0'\ntls = false\nplain = 'serve'";
    let rule = format!("proxy = {{ to = '{url}', {keys} }}");
    let config = Config::within(site.outside()).listen(listen).site("root", &[&site.pki], &rule);
    Watched::of(config.serve_with(&["--workers", "1", "--metrics", "127.0.0.1:0", "--grace", "1h"]))
}

fn piped(scrape: &Scrape) -> u64 {
    scrape.sum("sealion_upstream_piped_bytes_total") as u64
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("the kernel accepts it");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client
}

/// A client that takes little before it reads, with a response under way.
fn begin(server: &Server) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(SMALL_WINDOW).expect("an option");
    socket.connect(&server.address().into()).expect("the kernel accepts it");
    let mut client = TcpStream::from(socket);
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.write_all(get(&format!("/{LARGE}")).as_bytes()).expect("it leaves");
    client
}

/// Asks for a target, and reads the response.
fn fetch(client: &mut TcpStream, target: &str) -> Vec<u8> {
    client.write_all(get(target).as_bytes()).expect("it leaves");
    read_response(client)
}

fn read_response(client: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut octet).expect("a head");
        head.push(octet[0]);
    }
    let length = parse_response(&head).0.field("content-length").map(|length| length.parse().expect("a length"));
    let mut body = vec![0; length.expect("a length")];
    client.read_exact(&mut body).expect("a body");
    body
}

#[test]
fn bodies_of_every_length_are_whole() {
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream.url(), "");
    let mut client = connect(watched.server.address());
    for length in LENGTHS {
        content::assert_equal(&fetch(&mut client, &format!("/{length}")), 0..length);
    }
    let least: u64 = LENGTHS.iter().map(|length| length.saturating_sub(READ_FIRST)).sum();
    let piped = piped(&watched.scrape());
    assert!(piped >= least && piped <= LENGTHS.iter().sum(), "{piped} of at least {least} bytes");
    for (line, length) in access_lines(&watched.server, LENGTHS.len()).iter().zip(LENGTHS) {
        assert_eq!((line.get("path"), line.get("bytes")), ("plain", &*length.to_string()), "{}", line.text);
    }
    assert_eq!(upstream.connections(), 1, "a connection is kept behind a response that passed by a pipe");
}

#[test]
fn a_server_on_a_unix_socket_has_pipes_too() {
    let site = Site::new();
    let path = site.outside().join("app.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let app = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        let mut lines = BufReader::new(&stream).lines();
        let mut requests = 0;
        while let Some(Ok(line)) = lines.next() {
            if let Some(line) = line.strip_suffix(" HTTP/1.1") {
                (&stream).write_all(&by_length::answer(line).0).expect("it leaves");
                requests += 1;
            }
        }
        requests
    });
    let watched = before(&site, &format!("unix:{}", path.display()), "");
    let mut client = connect(watched.server.address());
    for length in LENGTHS {
        content::assert_equal(&fetch(&mut client, &format!("/{length}")), 0..length);
    }
    assert!(piped(&watched.scrape()) > 1 << 20);
    drop(watched);
    assert_eq!(app.join().expect("no panic"), LENGTHS.len());
}

/// A step that wants the bytes gets them.
#[test]
fn content_that_waits_in_memory_is_read() {
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream.url(), "buffer = {}");
    content::assert_equal(&fetch(&mut connect(watched.server.address()), "/1000000"), 0..1_000_000);
    assert_eq!(piped(&watched.scrape()), 0);
}

#[test]
fn a_response_that_breaks_off_is_cut_and_leaves_no_byte_for_another_client() {
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream.url(), "");
    for n in 0..3 {
        let mut client = connect(watched.server.address());
        client.write_all(get("/2000000/1000001").as_bytes()).expect("it leaves");
        let mut received = Vec::new();
        let ended = client.read_to_end(&mut received).map_err(|error| error.kind());
        assert_eq!(ended, Err(io::ErrorKind::ConnectionReset), "FIN would say that nothing is missing");
        let line = access_line(&watched.server, 2 * n + 1);
        assert_eq!(line.get("bytes"), "1000001", "{}", line.text);
        assert!(line.get("aborted").contains("closed before its end"), "{}", line.text);
        content::assert_equal(&fetch(&mut connect(watched.server.address()), "/500000"), 0..500_000);
        access_lines(&watched.server, 2 * n + 2);
    }
}

/// The bytes that the pipes hold are closed with them.
#[test]
fn clients_that_leave_take_their_bytes_along() {
    const CLIENTS: u64 = 40;
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream.url(), "");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| begin(&watched.server)).collect();
    clients.iter_mut().for_each(|client| client.read_exact(&mut [0]).expect("a response"));
    let open = || std::fs::read_dir(format!("/proc/{}/fd", watched.server.pid())).expect("it is ours").count() as u64;
    wait_until("each has a connection to the server, and most have a pipe", || open() > 3 * CLIENTS + 20);
    let full = open();
    drop(clients);
    assert!(access_lines(&watched.server, CLIENTS as usize).iter().all(|line| line.find("aborted").is_some()));
    wait_until("the descriptors are free", || open() <= full - 2 * CLIENTS - 30);
    for _ in 0..CLIENTS {
        content::assert_equal(&fetch(&mut connect(watched.server.address()), "/700000"), 0..700_000);
    }
}

/// The bytes in the pipe go along.
#[test]
fn a_response_that_waits_for_its_client_goes_on_in_the_new_process() {
    let site = Site::new();
    let upstream = by_length::serve();
    let Watched { server, address } = before(&site, &upstream.url(), "");
    let mut clients: Vec<_> = (0..3).map(|_| begin(&server)).collect();
    wait_until("their pipes are full", || piped(&scrape(address)) > 3 << 20);
    let mut service = Service { first: server };
    service.upgrade();
    wait_until("the connections have passed", || scrape(address).get("sealion_connections_taken_over_total") == 3.0);
    for client in &mut clients {
        content::assert_equal(&read_response(client), 0..LARGE);
    }
    for line in access_lines(&service.first, 3) {
        assert!(line.find("aborted").is_none() && line.get("bytes") == LARGE.to_string(), "{}", line.text);
    }
    assert!(service.first.wait().success(), "nothing is left to do");
}
