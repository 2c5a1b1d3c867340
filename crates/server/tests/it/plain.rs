//! Listeners that serve without TLS, for a proxy in front at which TLS ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use sealion_testkit::http::{self, Response};
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{PATIENCE, pattern};

use crate::support::config::Config;
use crate::support::port::free_port;
use crate::support::upstream::{Upstream, ok};
use crate::support::{
    PROGRAM, Site, Successor, access_line, access_lines, built_program, curl, wait_for_cache, wait_for_message,
    wait_until,
};

const PLAIN: &str = "address = '127.0.0.1:0'\ntls = false\nplain = 'serve'\n";

/// Options of curl for either protocol.
const PROTOCOLS: [&str; 2] = ["--http1.1", "--http2-prior-knowledge"];

/// A site whose only listener has no TLS, with these keys of the listener and of the site.
#[track_caller]
fn serve(site: &Site, listener: &str, keys: &str) -> Server {
    config(site, listener, keys).serve()
}

fn config(site: &Site, listener: &str, keys: &str) -> Config {
    Config::within(site.outside()).listen(&format!("{PLAIN}http2 = true\n{listener}")).site(site.root(), &[], keys)
}

#[track_caller]
fn get(site: &Site, server: &Server, target: &str, options: &[&str]) -> Response {
    curl::get_plain(&site.pki, server.address(), target, options)
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("the kernel accepts it");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client
}

/// Sends `bytes` and reads until the connection ends. `Err`: it ended otherwise than by FIN, after these bytes.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Result<Vec<u8>, (Vec<u8>, ErrorKind)> {
    let mut client = connect(address);
    client.write_all(bytes).expect("the request leaves");
    read_to_end(&mut client)
}

fn read_to_end(client: &mut TcpStream) -> Result<Vec<u8>, (Vec<u8>, ErrorKind)> {
    let mut received = Vec::new();
    match client.read_to_end(&mut received) {
        Ok(_) => Ok(received),
        Err(error) => Err((received, error.kind())),
    }
}

const LAST: &[(&str, &str)] = &[("Connection", "close")];

const SIZES: [u64; 9] = [0, 1, 1000, 16_383, 16_385, 131_072, 131_073, 1 << 20, (8 << 20) + 3];

#[test]
fn responses_are_those_of_a_listener_with_tls() {
    let site = Site::new();
    for len in SIZES {
        site.add_pattern(&len.to_string(), len);
    }
    let keys = "headers = { set = { 'X-Own' = 'value' } }";
    let config = site.config(keys).listen("address = '127.0.0.1:0'");
    let plain = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listener = PLAIN.replace("127.0.0.1:0", &plain.to_string());
    let server = config.listen(&format!("{listener}http2 = true")).serve_from_user_space();
    let mut requests = 0;
    let mut same = |target: &str, options: &[&str]| {
        let with = |of: fn(&_, _, &str, &[&str]) -> Response, address, protocol| {
            let mut response = of(&site.pki, address, target, &[&[protocol], options].concat());
            response.fields.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
            response.fields.retain(|(name, _)| !["connection", "date", "keep-alive"].contains(&name.as_str()));
            response.fields.sort();
            response.reason = String::new();
            response
        };
        let expected = with(curl::get, server.address(), "--http1.1");
        for protocol in PROTOCOLS {
            let got = with(curl::get_plain, plain, protocol);
            assert!(got == expected, "{protocol} {target} {options:?}: {:?} {:?}", got.fields, expected.fields);
        }
        requests += 3;
        expected
    };
    for len in SIZES {
        let target = format!("/{len}");
        let got = same(&target, &[]);
        pattern::assert_equal(&got.body, 0..len);
        let tag = format!("If-None-Match: {}", got.field("etag").expect("a tag"));
        assert_eq!(same(&target, &["-H", &tag]).status, 304);
        same(&target, &["--head"]);
        if len > 1000 {
            for range in ["0-0", "7-16390", "-1000"] {
                assert_eq!(same(&target, &["--range", range]).status, 206);
            }
        }
    }
    assert_eq!(same("/none", &[]).status, 404);
    assert_eq!(same("/%00", &[]).status, 400);
    assert_eq!(same("/1", &["-X", "DELETE"]).status, 405);
    let lines = access_lines(&server, requests);
    let (sealed, plain): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.get("tls") != "-");
    assert_eq!(plain.len(), 2 * sealed.len());
    for line in plain {
        assert_eq!(line.way(), ("plain", "no-tls"));
        assert_eq!(["suite", "group", "resumed"].map(|name| line.get(name)), ["-"; 3]);
    }
}

#[test]
fn both_protocols_are_known_by_their_first_octets() {
    let site = Site::new();
    site.add("f", "content");
    let server = serve(&site, "", "");
    let address = server.address();
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    // Byte by byte.
    let mut client = connect(address);
    for octet in PREFACE.iter().chain(SETTINGS) {
        client.write_all(&[*octet]).expect("it leaves");
    }
    let mut head = [0; 9];
    client.read_exact(&mut head).expect("a frame comes");
    assert_eq!(head[3], 4, "SETTINGS: {head:?}");
    let request = http::head("GET", "/f", LAST);
    let mut client = connect(address);
    for octet in request.as_bytes() {
        client.write_all(&[*octet]).expect("it leaves");
    }
    assert!(read_to_end(&mut client).expect("FIN").ends_with(b"\r\n\r\ncontent"));
    // Bytes that only begin like the preface are a request that cannot be read.
    for wrong in [&b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..], b"PRI * HTTP/1.1\r\nHost: a\r\n\r\n", b"P\r\n\r\n"] {
        let refused = exchange(address, wrong).expect("FIN");
        assert!(refused.starts_with(b"HTTP/1.1 ") && refused[9] != b'2', "{}", refused.escape_ascii());
    }
    // Behind a request, the preface begins no other protocol.
    let mut smuggled = http::head("GET", "/f", &[]).into_bytes();
    smuggled.extend([PREFACE, SETTINGS].concat());
    let answered = exchange(address, &smuggled).expect("FIN");
    let (first, rest) = curl::parse_response(&answered);
    assert_eq!((first.status, &rest[..7]), (200, &b"content"[..]));
    assert_eq!(&rest[7..16], b"HTTP/1.1 ");
}

#[test]
fn http_2_is_for_listeners_that_ask_for_it() {
    let site = Site::new();
    site.add("f", "content");
    let server = Config::within(site.outside()).listen(PLAIN).site(site.root(), &[], "").serve();
    let refused = exchange(server.address(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("FIN");
    assert!(refused.starts_with(b"HTTP/1.1 "), "{}", refused.escape_ascii());
    assert_eq!(get(&site, &server, "/f", &[]).body, b"content");
    let upgrade =
        ["-H", "Upgrade: h2c", "-H", "Connection: Upgrade, HTTP2-Settings", "-H", "HTTP2-Settings: AAMAAABkAAQAAP__"];
    assert_eq!(get(&site, &server, "/f", &upgrade).status, 200, "RFC 9113 §3.1: the upgrade is obsolete");
}

#[test]
fn h2spec_finds_no_violation_without_tls() {
    let site = Site::new();
    site.add("index.html", "content");
    let server = serve(&site, "", "");
    let mut command = Command::new(built_program("h2spec"));
    command.args(["--strict", "--timeout", "20", "--host", "127.0.0.1", "--port"]);
    let output = command.arg(server.address().port().to_string()).output().expect("h2spec starts");
    let text = String::from_utf8_lossy(&output.stdout);
    // A wrong preface is a request of HTTP/1 here, and answered as one that cannot be read.
    assert!(text.contains("146 tests, 145 passed") && text.contains("× 2: Sends invalid connection preface"), "{text}");
}

#[test]
fn a_client_that_begins_with_tls_is_told() {
    let site = Site::new();
    let server = config(&site, "", "").table("[server]\nlog = 'debug'").serve();
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let told = exchange(server.address(), hello).expect("FIN");
    let (response, body) = curl::parse_response(&told);
    assert_eq!(response.status, 400);
    assert_eq!(response.field("content-length"), Some(&*body.len().to_string()));
    assert!(body.starts_with(b"This port speaks HTTP: write http://"), "{}", body.escape_ascii());
    wait_for_message(&server, "began with TLS, which this listener does not have");
}

#[test]
fn a_client_that_closed_its_direction_gets_its_answer() {
    const LEN: u64 = 3_000_001;
    let site = Site::new();
    site.add_pattern("large", LEN);
    let server = serve(&site, "", "");
    let mut client = connect(server.address());
    client.write_all(http::head("GET", "/large", &[]).as_bytes()).expect("it leaves");
    client.shutdown(Shutdown::Write).expect("FIN leaves");
    let received = read_to_end(&mut client).expect("FIN");
    let (response, body) = curl::parse_response(&received);
    assert_eq!(response.status, 200);
    pattern::assert_equal(body, 0..LEN);
}

#[test]
fn a_file_that_shrinks_never_ends_as_if_it_were_whole() {
    const LEN: u64 = 64 << 20;
    let site = Site::new();
    let path = site.add_pattern("large", LEN);
    let server = serve(&site, "", "");
    let mut client = connect(server.address());
    client.write_all(http::head("GET", "/large", LAST).as_bytes()).expect("it leaves");
    let mut first = [0; 1000];
    client.read_exact(&mut first).expect("it begins");
    std::fs::File::options().write(true).open(path).expect("it is ours").set_len(LEN - (1 << 20)).expect("shorter");
    let (received, error) = read_to_end(&mut client).expect_err("a reset");
    assert_eq!(error, ErrorKind::ConnectionReset);
    assert!((received.len() as u64) < LEN);
    assert!(access_line(&server, 1).get("aborted").starts_with("the file ended at byte"));
}

/// In HTTP/1.0, only the end of the connection ends a body.
#[test]
fn an_upstream_that_breaks_off_ends_the_connection_by_a_reset() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        if accepted.request().is_some() {
            accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
            accepted.reset();
        }
    });
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]", upstream.url());
    let server = config(&site, "", "proxy = { to = 'app' }").table(&table).serve();
    for request in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let (_, error) = exchange(server.address(), request.as_bytes()).expect_err("a reset");
        assert_eq!(error, ErrorKind::ConnectionReset, "{request}");
    }
    wait_for_message(&server, "broke off: Connection reset by peer (os error 104); the connection was cut");
}

#[test]
fn the_scheme_is_the_one_that_a_trusted_proxy_names() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| ok(b"answer"));
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]", upstream.url());
    let keys = "route = [\n\
          { path = '/app/', proxy = { to = 'app' } },\n\
          { path = '= /old', match = { scheme = 'http' }, redirect = 'https://localhost/old' },\n\
        ]\n[site.hsts]\nmax_age = '1h'";
    let trusting = "client_address = 'x-forwarded-for'\ntrusted_proxies = ['127.0.0.1']";
    let says = ["-H", "X-Forwarded-Proto: https", "-H", "Host: localhost"];
    let silent = ["-H", "Host: localhost"];
    for (listener, options, scheme) in [
        (trusting, &says[..], "https"),
        (trusting, &silent, "http"),
        ("scheme = 'https'", &silent, "https"),
        // Otherwise HSTS would be refused at the start.
        (&*trusting.replace("127.0.0.1", "192.0.2.1"), &says, "http"),
    ] {
        let server = config(&site, listener, keys).table(&table).serve();
        for protocol in PROTOCOLS {
            let get = |target| get(&site, &server, target, &[options, &[protocol]].concat());
            let is_https = scheme == "https";
            let answer = get("/app/");
            assert_eq!(answer.body, b"answer");
            assert_eq!(answer.field("strict-transport-security").is_some(), is_https, "{listener} {options:?}");
            assert_eq!(upstream.last().field("x-forwarded-proto"), scheme, "{listener} {options:?}");
            assert!(upstream.last().field("forwarded").ends_with(&format!("proto={scheme}")));
            // A redirect to where the client is would be one to itself.
            assert_eq!(get("/old").status, if is_https { 404 } else { 308 });
            assert_eq!(get("/%00").field("strict-transport-security").is_some(), is_https);
        }
        let refused = exchange(server.address(), b"nonsense\r\n\r\n").expect("FIN");
        let has_hsts = String::from_utf8_lossy(&refused).contains("Strict-Transport-Security");
        assert_eq!(has_hsts, listener.starts_with("scheme"), "{listener}");
    }
}

/// The first listener with TLS serves other sites.
#[test]
fn a_site_of_https_redirects_to_a_listener_of_its_own() {
    let site = Site::new();
    site.add("page", "page");
    let [other, own, plain] = [(); 3].map(|()| free_port());
    let listeners = [plain, own].map(|port| format!("127.0.0.1:{port}"));
    let _server = Config::within(site.outside())
        .listen(&format!("address = '127.0.0.1:{other}'"))
        .listen(&format!("address = '127.0.0.1:{own}'"))
        .listen(&PLAIN.replace(":0", &format!(":{plain}")))
        .site(site.root(), &[&site.pki], "names = ['a.example']")
        .site(site.root(), &[&site.pki], &format!("names = ['b.example']\nhttps_only = true\nlisten = {listeners:?}"))
        .serve();
    let address = SocketAddr::from(([127, 0, 0, 1], plain));
    let response = curl::get_plain(&site.pki, address, "/page", &["-H", "Host: b.example"]);
    assert_eq!(response.field("location"), Some(&*format!("https://b.example:{own}/page")));
}

/// As certbot's webroot plugin writes it, with no key for it in the configuration.
#[test]
fn a_redirecting_listener_sends_the_files_by_which_another_program_validates_a_name() {
    let site = Site::new();
    let token = ".well-known/acme-challenge/evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr_oA";
    site.add(token, "the answer");
    site.add(".well-known/acme-challenge/below/x", "no token");
    site.add("page", "page");
    let (tls, plain) = (free_port(), free_port());
    let _server = Config::within(site.outside())
        .listen(&format!("address = '127.0.0.1:{tls}'"))
        .listen(&format!("address = '127.0.0.1:{plain}'\ntls = false"))
        .site(
            site.root(),
            &[&site.pki],
            "names = ['a.example']\nroute = [{ path = '/.well-known/acme-challenge/closed', deny = true }]",
        )
        .serve();
    let ask = |target: &str, host: &str| {
        let options = ["--path-as-is", "-H", &format!("Host: {host}")];
        curl::get_plain(&site.pki, SocketAddr::from(([127, 0, 0, 1], plain)), target, &options)
    };
    let answer = ask(&format!("/{token}"), "a.example");
    assert_eq!((answer.status, &*answer.body), (200, &b"the answer"[..]));
    assert_eq!(ask("/.well-known/acme-challenge/none", "a.example").status, 404);
    assert_eq!(ask("/.well-known/acme-challenge/closed", "a.example").status, 403, "guards hold");
    for target in [
        "/page",
        "/.well-known/acme-challenge/",
        "/.well-known/acme-challenge/below/x",
        "/.well-known/acme-challenge/../../page",
        "/.well-known/acme-challenge/%2e%2e/%2e%2e/page",
    ] {
        let answer = ask(target, "a.example");
        let to = format!("https://a.example:{tls}{target}");
        assert_eq!((answer.status, answer.field("location")), (308, Some(&*to)), "{target}");
    }
    assert_eq!(ask(&format!("/{token}"), "other.example").status, 200, "the default site has every other name");
}

#[test]
fn a_site_of_https_redirects_beside_one_that_is_served() {
    let site = Site::new();
    site.add("page", "page");
    let (tls, keys) = (free_port(), "route = [{ path = '/closed/', access = { deny = ['127.0.0.0/8'] } }]");
    let trusting = "client_address = 'x-forwarded-for'\ntrusted_proxies = ['127.0.0.1']";
    let plain = free_port();
    let listener = PLAIN.replace(":0", &format!(":{plain}"));
    let server = Config::within(site.outside())
        .listen(&format!("address = '127.0.0.1:{tls}'"))
        .listen(&format!("{listener}http2 = true\n{trusting}"))
        .site(site.root(), &[&site.pki], &format!("names = ['a.example']\nhttps_only = true\n{keys}"))
        .site(site.root(), &[], "names = ['b.example']\ndefault = true")
        .serve();
    let address = SocketAddr::from(([127, 0, 0, 1], plain));
    for protocol in PROTOCOLS {
        let ask = |host: &str, target: &str, more: &[&str]| {
            let host = format!("Host: {host}");
            curl::get_plain(&site.pki, address, target, &[&["-H", &host, protocol], more].concat())
        };
        let to = |target: &str| format!("https://a.example:{tls}{target}");
        // Before it says what there is.
        for target in ["/page", "/page?x=%20", "/none", "/closed", "/.well-known/x"] {
            let answer = ask("a.example", target, &[]);
            assert_eq!((answer.status, answer.field("location")), (308, Some(&*to(target))), "{protocol} {target}");
            assert!(answer.field("strict-transport-security").is_none());
        }
        let post = ask("a.example", "/page", &["--data", "x"]);
        assert_eq!((post.status, post.field("location")), (308, Some(&*to("/page"))), "{protocol}");
        // It came by HTTPS.
        let answer = ask("a.example", "/page", &["-H", "X-Forwarded-Proto: https"]);
        assert_eq!((answer.status, &*answer.body), (200, &b"page"[..]), "{protocol}");
        let answer = ask("b.example", "/page", &[]);
        assert_eq!((answer.status, &*answer.body), (200, &b"page"[..]), "{protocol}");
    }
    // Without Host the default site answers.
    let answer = exchange(address, b"GET /page HTTP/1.0\r\n\r\n").expect("FIN");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    drop(server);

    // One that would need another name in the redirect has none.
    let server = config(&site, trusting, "https_only = true").serve();
    let answer = exchange(server.address(), b"GET /page HTTP/1.0\r\n\r\n").expect("FIN");
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_site_of_https_without_a_way_to_https_is_refused() {
    let site = Site::new();
    let problems = config(&site, "", "https_only = true").problems();
    assert!(problems.contains("site.https_only: no listener of the site has HTTPS"), "{problems}");

    // Beside a listener with TLS on which another site answers, and with that one too.
    let [tls, plain] = [(); 2].map(|()| format!("127.0.0.1:{}", free_port()));
    let answering_on = |listeners: &[&str]| {
        Config::within(site.outside())
            .listen(&format!("address = '{tls}'"))
            .listen(&format!("address = '{plain}'\ntls = false\nplain = 'serve'"))
            .site(site.root(), &[&site.pki], "names = ['a.example']")
            .site(
                site.root(),
                &[&site.pki],
                &format!("names = ['b.example']\nhttps_only = true\nlisten = {listeners:?}"),
            )
            .check()
    };
    let refused = answering_on(&[&plain]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("site.https_only"), "{refused:?}");
    let checked = answering_on(&[&plain, &tls]);
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn hsts_without_a_way_to_https_is_refused() {
    let site = Site::new();
    let problems = config(&site, "", "[site.hsts]\nmax_age = '1h'").problems();
    assert!(problems.contains("must not be sent over plain HTTP"), "{problems}");
}

#[test]
fn the_cache_keeps_the_schemes_apart() {
    let site = Site::new();
    let origin = Upstream::answering(|request| {
        let body = request.field("x-forwarded-proto");
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body.as_bytes()].concat()
    });
    let directory = site.outside().join("cache");
    let tables = format!(
        "[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = [{directory:?}]",
        origin.url()
    );
    let keys = "proxy = { to = 'app', cache = {} }";
    let trusting = "client_address = 'x-forwarded-for'\ntrusted_proxies = ['127.0.0.1']";
    let server = config(&site, trusting, keys).table(&tables).serve();
    wait_for_cache(&server, &directory);
    for protocol in PROTOCOLS {
        for scheme in ["http", "https"] {
            let field = format!("X-Forwarded-Proto: {scheme}");
            let got = get(&site, &server, "/x", &["-H", &field, "-H", "Host: a", protocol]);
            assert_eq!(got.body, scheme.as_bytes(), "{protocol}");
        }
        let got = get(&site, &server, "/x", &["-H", "Host: a", protocol]);
        assert_eq!(got.body, b"http", "{protocol}");
    }
    assert!(origin.requests().len() <= 3, "the second protocol is answered from the cache");
}

#[test]
fn guards_that_need_tls_are_refused_at_the_start() {
    let site = Site::new();
    let roots = site.pki.certificate_file();
    let keys = format!("names = ['a.example']\n[site.client_auth]\nroots = {roots:?}");
    let both = |named: &str| {
        Config::within(site.outside())
            .listen("address = '127.0.0.1:10443'")
            .listen(&PLAIN.replace(":0", ":10080"))
            .site(site.root(), &[&site.pki], &format!("{named}\n{keys}"))
    };
    let problems = both("").problems();
    assert!(problems.contains("the site answers on 127.0.0.1:10080 too, which has no TLS"), "{problems}");
    let check = both("listen = ['127.0.0.1:10443']").check();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn passwords_that_cross_a_network_without_tls_are_warned_of() {
    let site = Site::new();
    std::fs::write(site.outside().join("users"), "a:$2y$04$abcdefghijklmnopqrstuuBIOb4bZfLoQTbWKhwMRPdVBPxqRrBGe\n")
        .expect("written");
    let warned = |listener: &str| {
        let keys = "basic_auth = { realm = 'a', users = 'users' }";
        let check = Config::within(site.outside()).listen(listener).site(site.root(), &[], keys).check();
        assert!(check.status.success(), "{check:?}");
        String::from_utf8_lossy(&check.stdout).contains("passwords of basic_auth cross the network readable")
    };
    let anywhere = PLAIN.replace("127.0.0.1", "0.0.0.0");
    assert!(warned(&anywhere));
    assert!(!warned(PLAIN), "loopback");
    assert!(!warned(&format!("{anywhere}scheme = 'https'")));
    assert!(!warned(&format!("{anywhere}client_address = 'x-forwarded-for'\ntrusted_proxies = ['10.0.0.0/8']")));
}

#[test]
fn the_client_behind_a_proxy_is_the_one_in_the_log() {
    let site = Site::new();
    site.add("f", "content");
    let server = serve(&site, "proxy_protocol = true\ntrusted_proxies = ['127.0.0.0/30']", "");
    let request = format!("PROXY TCP4 192.0.2.7 198.51.100.1 8080 80\r\n{}", http::head("GET", "/f", LAST));
    assert!(exchange(server.address(), request.as_bytes()).expect("FIN").ends_with(b"content"));
    assert_eq!(access_line(&server, 1).get("peer"), "192.0.2.7:8080");
}

#[test]
fn a_unix_socket_serves_without_tls() {
    const LEN: u64 = 3_000_001;
    let site = Site::new();
    site.add_pattern("large", LEN);
    let path = site.outside().join("plain.sock");
    let unix = PLAIN.replace("127.0.0.1:0", &format!("unix:{}", path.display()));
    let server = config(&site, "", "").listen(&format!("{unix}http2 = true")).serve();
    for protocol in PROTOCOLS {
        let socket = ["--unix-socket", path.to_str().expect("text"), protocol];
        pattern::assert_equal(&get(&site, &server, "/large", &socket).body, 0..LEN);
    }
}

/// A Unix socket has no reset: a response that ends with its connection could not be told from one that is cut.
#[test]
fn over_a_unix_socket_no_response_to_http_1_0_lacks_a_length() {
    let site = Site::new();
    site.add("f", "content");
    let upstream = Upstream::answering(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n\r\n".to_vec()
    });
    let path = site.outside().join("plain.sock");
    let unix = PLAIN.replace("127.0.0.1:0", &format!("unix:{}", path.display()));
    let table = format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]", upstream.url());
    let rule = "route = [{ path = '/app/', proxy = { to = 'app' } }]\nheaders = { set = { X-Site = 'a' } }";
    let server = config(&site, "", rule).listen(&unix).table(&table).serve();
    for (target, version, status, end) in
        [("/app/", "1.0", "505", "\n"), ("/app/", "1.1", "200", "0\r\n\r\n"), ("/f", "1.0", "200", "content")]
    {
        let mut client = UnixStream::connect(&path).expect("it listens");
        write!(client, "GET {target} HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it leaves");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("an end");
        assert!(
            response.contains(&format!(" {status} ")) && response.ends_with(end),
            "{target} {version}: {response:?}"
        );
    }
    wait_for_message(&server, "proxy_http_version 1.1");
    // A request that has an effect is refused before it has it.
    let before = upstream.requests().len();
    for (version, status) in [("1.0", "505"), ("1.1", "200")] {
        let mut client = UnixStream::connect(&path).expect("it listens");
        let fields = "Host: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
        write!(client, "POST /app/ HTTP/{version}\r\n{fields}").expect("it leaves");
        let mut response = String::new();
        client.read_to_string(&mut response).expect("an end");
        assert!(response.contains(&format!(" {status} ")), "{version}: {response:?}");
        assert!(response.contains("X-Site: a"), "{version}: {response:?}");
    }
    assert_eq!(upstream.requests().len(), before + 1);
}

#[test]
fn connections_drain_and_a_successor_takes_the_listener_over() {
    const LEN: u64 = 32 << 20;
    let site = Site::new();
    site.add_pattern("large", LEN);
    site.add("f", "content");
    let server = serve(&site, "", "");
    let mut idle = connect(server.address());
    idle.write_all(http::head("GET", "/f", &[]).as_bytes()).expect("it leaves");
    let mut under_way = connect(server.address());
    under_way.write_all(http::head("GET", "/large", &[]).as_bytes()).expect("it leaves");
    let mut first = [0; 1000];
    under_way.read_exact(&mut first).expect("it begins");
    let successor = Successor::of(&server);
    let head = first.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    let mut rest = vec![0; head + LEN as usize - first.len()];
    under_way.read_exact(&mut rest).expect("it goes on");
    let all = [&first[..], &rest].concat();
    pattern::assert_equal(curl::parse_response(&all).1, 0..LEN);
    // The connection goes on in the successor.
    under_way.write_all(http::head("GET", "/f", &[]).as_bytes()).expect("it leaves");
    assert!(under_way.read(&mut first).expect("a response") > 0);
    assert_eq!(get(&site, &server, "/f", &[]).body, b"content", "of the successor");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(successor.pid() as i32).expect("a number"),
        rustix::process::Signal::TERM,
    )
    .expect("it runs");
    read_to_end(&mut idle).expect("an idle connection ends in order");
}

#[test]
fn the_command_line_has_an_option_for_it() {
    let site = Site::new();
    site.add("f", "content");
    let root = site.root();
    let root = root.to_str().expect("text");
    let server = Server::start(PROGRAM.as_ref(), ["serve", root, "--plain", "127.0.0.1:0"]);
    assert_eq!(get(&site, &server, "/f", &[]).body, b"content");
    server.wait_for("the announcement", |line| line.text.contains("on http://localhost:"));
    assert!(!server.lines().iter().any(|line| line.text.contains("certificate")), "none is made");
    let upstream = Upstream::answering(|_| ok(b"answer"));
    let proxy = Server::start(PROGRAM.as_ref(), ["proxy", "--to", &upstream.url(), "--plain", "127.0.0.1:0"]);
    assert_eq!(get(&site, &proxy, "/f", &[]).body, b"answer");
    server.signal(Signal::TERM);
}

/// Ends when the test does: the testkit's server announces an address that it serves, and this one only redirects.
struct Redirecting(Child);

impl Drop for Redirecting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An error of a reload is about the file as it is now.
#[test]
fn a_reload_names_the_line_of_a_listener_in_the_new_file() {
    let site = Site::new();
    let config = |comment: &str, keys: &str| {
        let listener = format!("{comment}address = '127.0.0.1:0'\ntls = false\nplain = 'redirect'");
        Config::within(site.outside()).listen(&listener).site(site.root(), &[], keys)
    };
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--config"]).arg(config("", "listen = ['127.0.0.1:0']").write());
    let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let server = Redirecting(server);
    let reload = || {
        let pid = server.0.id().to_string();
        let output = Command::new(PROGRAM).args(["reload", "--pid", &pid]).output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    wait_until("the server reloads", || reload().contains("is in use"));
    config("# One line,\n# and another one.\n", "").write();
    let refused = reload();
    assert!(refused.contains("sealion.toml:5: listen.tls: no listener has TLS"), "{refused}");
}
