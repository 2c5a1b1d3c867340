//! The PROXY protocol to servers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use sealion_testkit::http;

use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, curl, wait_until};

/// An upstream that reads a header of so many bytes (0: a line) before the first request, and all headers.
fn reading(octets: usize) -> (Upstream, Arc<Mutex<Vec<Vec<u8>>>>) {
    let headers = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&headers);
    let upstream = Upstream::start(move |accepted| {
        let header = match octets {
            0 => {
                let mut line = Vec::new();
                while !line.ends_with(b"\r\n") {
                    let Some(octet) = accepted.read(1) else { return };
                    line.extend(octet);
                }
                line
            }
            octets => match accepted.read(octets) {
                Some(header) => header,
                None => return,
            },
        };
        all.lock().expect("no panic").push(header);
        while accepted.request().is_some() {
            accepted.write(&ok(b"page"));
        }
    });
    (upstream, headers)
}

fn serve(site: &Site, upstream: &Upstream, keys: &str) -> sealion_testkit::server::Server {
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n{keys}\n", upstream.url());
    site.config(
        "proxy = { to = 'app' }\nroute = [{ path = '/in/', forward_auth = { upstream = 'app', to = '/verify' } }]",
    )
    .table(&table)
    .serve_from_user_space()
}

#[test]
fn each_connection_names_its_client() {
    let (upstream, headers) = reading(0);
    let site = Site::new();
    let server = serve(&site, &upstream, "proxy_protocol = 'v1'");
    let mut client = site.connect(&server);
    for target in ["/", "/", "/in/"] {
        assert_eq!(http::request(&mut client, "GET", target, &[]).expect("a response").body, b"page");
    }
    assert_eq!(curl::get(&site.pki, server.address(), "/", &["--http2"]).body, b"page");
    let headers = headers.lock().expect("no panic").clone();
    let parse = |header: &Vec<u8>| {
        let line = String::from_utf8(header.clone()).expect("text");
        let words: Vec<_> = line.trim_end().split(' ').collect();
        let ["PROXY", "TCP4", from, to, from_port, to_port] = words[..] else { panic!("{line}") };
        let address = |ip: &str, port: &str| -> SocketAddr { format!("{ip}:{port}").parse().expect("an address") };
        assert_eq!(address(to, to_port), server.address());
        address(from, from_port)
    };
    let clients: Vec<_> = headers.iter().map(parse).collect();
    let [first, second, asked, third, other] = clients[..] else { panic!("{clients:?}") };
    assert_eq!([first, second, asked], [third; 3]);
    assert!(other.port() != first.port() && other.ip() == first.ip(), "{clients:?}");
}

#[test]
fn a_health_check_names_no_client() {
    const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for (version, octets, expected) in [("v1", 0, &b"PROXY UNKNOWN\r\n"[..]), ("v2", 16, LOCAL)] {
        let (upstream, headers) = reading(octets);
        let site = Site::new();
        let keys = format!("proxy_protocol = '{version}'\nhealth = {{ path = '/healthz' }}");
        let _server = serve(&site, &upstream, &keys);
        wait_until("it is checked", || !upstream.requests().is_empty());
        assert_eq!(headers.lock().expect("no panic")[0], expected);
    }
}

#[test]
fn a_client_is_named_in_binary() {
    let (upstream, headers) = reading(28);
    let site = Site::new();
    let server = serve(&site, &upstream, "proxy_protocol = 'v2'");
    assert_eq!(curl::get(&site.pki, server.address(), "/", &[]).body, b"page");
    let header = headers.lock().expect("no panic")[0].clone();
    assert_eq!(header[..24], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01");
    assert_eq!(header[26..], server.address().port().to_be_bytes());
}

#[test]
fn one_connection_for_many_clients_cannot_name_one() {
    let site = Site::new();
    let table = "[[upstream]]\nname = 'app'\nservers = [{ url = 'http://127.0.0.1:1' }]\nprotocol = 'http2'\nproxy_protocol = 'v2'\n";
    let problems = site.config("proxy = { to = 'app' }").table(table).problems();
    assert!(problems.contains("upstream.proxy_protocol: names one client for a connection"), "{problems}");
}
