//! Unix sockets, and clients that a proxy speaks for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Suite, http, pattern};

use crate::support::port::free_port;
use crate::support::{Site, Successor, access_line, tool, wait_for_message};

const ANY_PORT: &str = "address = '127.0.0.1:0'";

#[test]
fn a_unix_socket_carries_tls() {
    const LEN: u64 = 3_000_001;
    let site = Site::new();
    site.add_pattern("large", LEN);
    let path = site.outside().join("s.sock");
    // What an earlier process left.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    let unix = format!("address = 'unix:{}'\nmode = '0600'", path.display());
    let server = site.config("").listen(ANY_PORT).listen(&unix).serve();
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    let body = site.outside().join("body");
    let arguments = ["-sS", "--fail", "--unix-socket", path.to_str().expect("text"), "--cacert"];
    let certificate = site.pki.certificate_file();
    tool(
        "curl",
        arguments.map(std::ffi::OsStr::new).into_iter().chain([
            certificate.as_ref(),
            "-o".as_ref(),
            body.as_os_str(),
            "https://localhost/large".as_ref(),
        ]),
    );
    pattern::assert_equal(&std::fs::read(&body).expect("it was fetched"), 0..LEN);
    let line = access_line(&server, 1);
    assert_eq!((line.get("peer"), line.get("path")), ("[::]:0", "user"));
}

/// What is where in the list is no matter of a reload: a listener stays what it was at the start.
#[test]
fn listeners_that_change_places_stay_what_they_are() {
    let site = Site::new();
    site.add("f", "content");
    let (tls, plain) = (free_port(), free_port());
    let tls = format!("address = '127.0.0.1:{tls}'");
    let plain = format!("address = '127.0.0.1:{plain}'\ntls = false");
    let server = site.config("").listen(&tls).listen(&plain).serve();
    site.config("").listen(&plain).listen(&tls).write();
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    assert_eq!(http::get(&mut site.connect(&server), "/f").expect("an answer").body, b"content");
}

#[test]
fn an_upgrade_changes_who_may_connect_to_a_unix_socket() {
    let site = Site::new();
    let path = site.outside().join("s.sock");
    let config = |mode| {
        let unix = format!("address = 'unix:{}'\nmode = '{mode}'", path.display());
        site.config("").listen(ANY_PORT).listen(&unix)
    };
    let server = config("0666").serve();
    config("0600").write();
    let _successor = Successor::of(&server);
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
}

const PROXIED: &str = "address = '127.0.0.1:0'\nproxy_protocol = true\ntrusted_proxies = ['127.0.0.0/30']";

/// A connection of a proxy that says `header` first.
fn behind_proxy(site: &Site, server: &Server, header: &[u8]) -> sealion_testkit::Client {
    let connector = site.connector(Suite::TLS13);
    let mut io = connector.open(server.address()).expect("a connection");
    io.write_all(header).expect("the header leaves");
    connector.handshake(io).expect("a handshake")
}

#[test]
fn the_client_behind_a_proxy_is_the_one_in_the_log() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("").listen(PROXIED).serve();
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    v2.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    v2.extend([0; 16]);
    v2.extend([0x1f, 0x90, 1, 187]);
    let cases: [(&[u8], &str); 2] =
        [(b"PROXY TCP4 192.0.2.7 198.51.100.1 8080 443\r\n", "192.0.2.7:8080"), (&v2, "[2001:db8::9]:8080")];
    for (n, (header, client)) in cases.into_iter().enumerate() {
        let got = http::get(&mut behind_proxy(&site, &server, header), "/f").expect("an answer");
        assert_eq!(got.body, b"content");
        assert_eq!(access_line(&server, n + 1).get("peer"), client);
    }
    let unknown = behind_proxy(&site, &server, b"PROXY UNKNOWN\r\n");
    let own = unknown.socket().local_addr().expect("an address").to_string();
    let mut unknown = unknown;
    http::get(&mut unknown, "/f").expect("an answer");
    assert_eq!(access_line(&server, 3).get("peer"), own);
}

#[test]
fn who_is_no_proxy_is_refused() {
    let site = Site::new();
    let server = site.config("").listen(PROXIED).table("[server]\nlog = 'debug'").serve();
    site.connector(Suite::TLS13).try_connect(server.address()).map(drop).expect_err("TLS without a header");
    wait_for_message(&server, "does not begin with a PROXY protocol header");
    let config = site.config("").listen(&PROXIED.replace("127.0.0.0/30", "192.0.2.0/24"));
    let untrusted = config.table("[server]\nlog = 'debug'").serve();
    let mut io = TcpStream::connect(untrusted.address()).expect("the kernel accepts it");
    io.write_all(b"PROXY TCP4 192.0.2.7 198.51.100.1 8080 443\r\n").expect("it leaves");
    assert_eq!(io.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed");
    wait_for_message(&untrusted, "in none of the trusted_proxies");
}

#[test]
fn believing_everybody_is_an_error() {
    let site = Site::new();
    let output = site.config("").listen("address = '127.0.0.1:0'\nproxy_protocol = true").check();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("sealion.toml:3: listen.proxy_protocol: "), "{said}");
}
