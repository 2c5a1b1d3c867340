//! Unix sockets, and clients that a proxy speaks for.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Client, Suite, http, pattern};

use crate::support::port::free_port;
use crate::support::{Site, Successor, access_line, exchange, tool, wait_for_message};

const ANY_PORT: &str = "address = '127.0.0.1:0'";

#[test]
fn a_unix_socket_carries_tls() {
    const LEN: u64 = 3_000_001;
    let site = Site::new();
    site.add_pattern("large", LEN);
    let path = site.outside().join("s.sock");
    // The socket of an earlier process.
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

/// A reload ignores the order of the list: a listener stays what it was at the start.
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
    wait_for_message(&untrusted, "is not in trusted_proxies");
}

#[test]
fn believing_everybody_is_an_error() {
    let site = Site::new();
    let output = site.config("").listen("address = '127.0.0.1:0'\nproxy_protocol = true").check();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("sealion.toml:3: listen.proxy_protocol: "), "{said}");
}

/// The status of a request for `host` on a connection to this port.
#[track_caller]
fn status(site: &Site, address: &str, host: &str) -> u16 {
    let address = address.parse().expect("an address");
    let mut client = site.connector(Suite::TLS13).connect(address);
    http::request(&mut client, "GET", "/f", &[("Host", host)]).expect("an answer").status
}

#[test]
fn a_site_answers_on_its_listeners_only() {
    let site = Site::new();
    site.add("f", "content");
    let (port, plain) = (free_port(), free_port());
    let at = |host: &str, port: u16| format!("{host}:{port}");
    let (outer, inner) = (at("0.0.0.0", port), at("127.0.0.1", port));
    let (plain_outer, plain_inner) = (at("127.0.0.2", plain), at("127.0.0.1", plain));
    let mut config = site.config(&format!(
        "names = ['inner.example']\ndefault = true\nlisten = ['{inner}', '{plain_inner}']\n\
         error_pages = {{ 400 = '/f' }}\nserver_header = false\n"
    ));
    config = config.site("root", &[], "names = ['outer.example']\n").listen(&format!("address = '{outer}'"));
    config = config.listen(&format!("address = '{inner}'"));
    for plain in [&plain_outer, &plain_inner] {
        config = config.listen(&format!("address = '{plain}'\ntls = false"));
    }
    let _server = config.serve_from_user_space();
    let outer = at("127.0.0.2", port);
    for (address, host, expected) in [
        (&inner, "inner.example", 200),
        (&inner, "INNER.example.:443", 200),
        (&inner, "outer.example", 200),
        // The default site.
        (&inner, "other.example", 200),
        (&outer, "outer.example", 200),
        (&outer, "inner.example", 421),
        (&outer, "INNER.example.:443", 421),
        (&outer, "other.example", 421),
        (&outer, "127.0.0.1", 421),
    ] {
        assert_eq!(status(&site, address, host), expected, "{host} at {address}");
    }
    let said = |address: &str, bytes: &[u8]| {
        let mut client: Client = site.connector(Suite::TLS13).connect(address.parse().expect("an address"));
        String::from_utf8(exchange(&mut client, bytes).data).expect("text")
    };
    let without_host = b"GET /f HTTP/1.0\r\n\r\n";
    assert!(said(&inner, without_host).ends_with("content"));
    assert!(said(&outer, without_host).starts_with("HTTP/1.1 421 "));
    let absolute = b"GET https://inner.example/f HTTP/1.1\r\nHost: outer.example\r\nConnection: close\r\n\r\n";
    assert!(said(&outer, absolute).starts_with("HTTP/1.1 421 "));
    // A request that cannot be read shows nothing of the site either.
    assert!(said(&inner, b"GET /f HTTP/1.1\r\nbroken\r\n\r\n").ends_with("content"));
    assert!(!said(&outer, b"GET /f HTTP/1.1\r\nbroken\r\n\r\n").contains("content"));
    let redirect = |address: &str, host: &str| {
        let mut io = TcpStream::connect(address).expect("a connection");
        io.write_all(format!("GET /f HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
            .expect("it leaves");
        let mut said = String::new();
        io.read_to_string(&mut said).expect("an answer");
        said[9..12].to_owned()
    };
    for (address, host, expected) in [
        (&plain_inner, "inner.example", "308"),
        (&plain_inner, "outer.example", "308"),
        (&plain_inner, "other.example", "421"),
        (&plain_outer, "outer.example", "308"),
        (&plain_outer, "inner.example", "421"),
        (&plain_outer, "other.example", "421"),
    ] {
        assert_eq!(redirect(address, host), expected, "{host} at {address}");
    }
}

#[test]
fn a_site_names_listeners_that_exist() {
    let site = Site::new();
    let said = site.config("listen = ['127.0.0.1:1']").listen(ANY_PORT).problems();
    assert!(said.contains("site.listen: no [[listen]] has the address \"127.0.0.1:1\""), "{said}");
    let said = site.config("listen = []").listen(ANY_PORT).problems();
    assert!(said.contains("site.listen: is empty"), "{said}");
}

#[test]
fn trusted_proxies_name_the_client_in_a_field() {
    let site = Site::new();
    site.add("f", "content");
    site.add("office/f", "content");
    let (trusting, others) = (free_port(), free_port());
    let keys = "route = [{ path = '/office/', access = { allow = ['192.0.2.7', '2001:db8::/32'] } }]\n\
                [site.limits]\nrequests_per_second = 1\nburst = 2\n";
    let server = site
        .config(keys)
        .table("[limits]\nmax_connections_per_address = 2\n")
        .listen(&format!("address = '127.0.0.1:{trusting}'\ntrusted_proxies = ['127.0.0.0/8', '10.0.0.0/8']\nclient_address = 'X-Forwarded-For'"))
        .listen(&format!("address = '127.0.0.1:{others}'\ntrusted_proxies = ['192.0.2.0/24']\nclient_address = 'x-forwarded-for'"))
        .serve_from_user_space();
    let connect = |port: u16| site.connector(Suite::TLS13).connect(([127, 0, 0, 1], port).into());
    let mut client = connect(trusting);
    let mut count = 0;
    for (lines, status, address) in [
        (&["192.0.2.7"][..], 200, "192.0.2.7"),
        (&["192.0.2.8"], 403, "192.0.2.8"),
        // A forged entry stands to the left of the client's own address.
        (&["192.0.2.7, 192.0.2.9"], 403, "192.0.2.9"),
        (&["192.0.2.7", "192.0.2.10"], 403, "192.0.2.10"),
        (&["203.0.113.1, 192.0.2.7, 10.1.2.3"], 200, "192.0.2.7"),
        (&["[2001:db8::7]:4711"], 200, "2001:db8::7"),
        (&["192.0.2.7, unknown"], 403, "127.0.0.1"),
    ] {
        let fields: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
        let answer = http::request(&mut client, "GET", "/office/f", &fields).expect("an answer");
        count += 1;
        assert_eq!(answer.status, status, "{lines:?}");
        let peer: std::net::SocketAddr = access_line(&server, count).get("peer").parse().expect("an address");
        assert_eq!(peer.ip().to_string(), address, "{lines:?}");
    }
    // Each client has requests of its own. The requests of a proxy are not one client's, nor are its connections.
    let ask = |client: &mut Client, address: &str| {
        http::request(client, "GET", "/f", &[("X-Forwarded-For", address)]).expect("an answer").status
    };
    for n in 0..20 {
        assert_eq!(ask(&mut client, &format!("198.51.100.{n}")), 200);
    }
    assert!((0..20).any(|_| ask(&mut client, "198.51.100.77") == 429));
    let more: Vec<_> = (0..4).map(|_| connect(trusting)).collect();
    drop(more);
    // The field of an untrusted peer is ignored.
    let mut forger = connect(others);
    let forged =
        http::request(&mut forger, "GET", "/office/f", &[("X-Forwarded-For", "192.0.2.7")]).expect("an answer");
    assert_eq!(forged.status, 403);
}

/// A filter that bans addresses by the log must not ban the proxy for what its clients send.
#[test]
fn the_client_of_a_head_that_is_refused_is_the_one_in_its_field() {
    let site = Site::new();
    let listen = "address = '127.0.0.1:0'\ntrusted_proxies = ['127.0.0.0/8']\nclient_address = 'x-forwarded-for'";
    let server = site.config("").listen(listen).serve_from_user_space();
    const FIELD: &str = "X-Forwarded-For: 192.0.2.7\r\n";
    for (count, (head, status, address)) in [
        (format!("GET / HTTP/1.1\r\n{FIELD}\r\n"), "400", "192.0.2.7"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n{FIELD}\r\n"), "400", "192.0.2.7"),
        (format!("GET / HTTP/2.0\r\nHost: a\r\n{FIELD}\r\n"), "505", "192.0.2.7"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n{FIELD}\r\n"), "400", "192.0.2.7"),
        // Proxies may read such lines otherwise.
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{FIELD}X-Forwarded-For : 192.0.2.8\r\n\r\n"), "400", "127.0.0.1"),
        // The head has no end.
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{FIELD}X: \n"), "400", "127.0.0.1"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = site.connect(&server);
        client.send(head.as_bytes()).expect("it leaves");
        client.read_to_end().expect("the server closes").assert_orderly();
        drop(client);
        let line = access_line(&server, count + 1);
        let peer: std::net::SocketAddr = line.get("peer").parse().expect("an address");
        assert_eq!((line.get("status"), peer.ip().to_string().as_str()), (status, address), "{head}");
    }
}

/// The field would name what clients choose.
#[test]
fn a_field_that_carries_no_address_names_no_client() {
    let site = Site::new();
    for field in ["host", "User-Agent", "x-forwarded-host", "authorization"] {
        let listen = format!("address = '127.0.0.1:0'\ntrusted_proxies = ['10.0.0.0/8']\nclient_address = '{field}'");
        let said = site.config("").listen(&listen).problems();
        assert!(said.contains("listen.client_address: names a field that carries no address"), "{field}: {said}");
    }
}
