//! Responses over HTTP/3 equal those over HTTP/1.1.

use std::io::Read;
use std::net::UdpSocket;
use std::process::Command;

use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;
use sealion_testkit::{Connector, Suite, http, pattern};

use super::client::{Http3, Options, config, request};
use super::stop::slow;
use crate::support::config::Config;
use crate::support::http2_upstream::{connect, run};
use crate::support::port::free_port;
use crate::support::sites::Sites;
use crate::support::upstream::{Upstream, ok};
use crate::support::{
    PROGRAM, Site, access_line, access_lines, exchange, wait_for_cache, wait_for_message, wait_until,
};

#[test]
fn files_of_any_length_come_whole() {
    let site = Site::new();
    let lengths = [0, 1, 1000, 1_000_000, 10_000_000];
    for length in lengths {
        site.add_pattern(&length.to_string(), length);
    }
    let fields = "[access_log]\nfields = ['protocol', 'bytes', 'path', 'why']";
    let server = config(&site, "").table(fields).serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    for length in lengths {
        let answer = client.get(&format!("/{length}"), &[]);
        assert_eq!((answer.status.as_u16(), &answer.error), (200, &None), "{length}");
        assert_eq!(answer.field("content-length"), length.to_string());
        assert_eq!(answer.body.len() as u64, length);
        pattern::assert_equal(&answer.body, 0..length);
    }
    for length in lengths {
        let line = format!("protocol=HTTP/3 bytes={length} path=user why=quic");
        server.wait_for(&line, |other| other.text == line);
    }
}

#[test]
fn ranges_heads_conditions_and_errors_are_answered_as_over_other_versions() {
    let site = Site::new();
    site.add("f", "0123456789");
    let server = config(&site, "").serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let whole = client.get("/f", &[]);
    let tag = whole.field("etag").to_owned();
    let part = client.get("/f", &[("range", "bytes=2-4")]);
    assert_eq!((part.status.as_u16(), &part.body[..], part.field("content-range")), (206, &b"234"[..], "bytes 2-4/10"));
    let head = client.ask("HEAD", "/f", &[], None);
    assert_eq!((head.status.as_u16(), head.body.len(), head.field("content-length")), (200, 0, "10"));
    let unchanged = client.get("/f", &[("if-none-match", &tag)]);
    assert_eq!((unchanged.status.as_u16(), unchanged.body.len()), (304, 0));
    let none = client.get("/none", &[]);
    assert_eq!((none.status.as_u16(), &none.body[..]), (404, &b"404 Not Found\n"[..]));
    let several = client.get("/f", &[("range", "bytes=0-1, 5-6")]);
    assert_eq!(several.status.as_u16(), 206);
    assert!(several.field("content-type").starts_with("multipart/byteranges"));
    assert_eq!(several.field("content-length"), several.body.len().to_string());
    // Its content is discarded.
    let posted = client.ask("POST", "/f", &[], Some(vec![b'x'; 100_000]));
    assert_eq!(posted.status.as_u16(), 405);
}

#[test]
fn many_requests_share_a_connection() {
    let site = Site::new();
    site.add_pattern("large", 300_000);
    let server = config(&site, "").serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let streams: Vec<_> = (0..50).map(|_| client.send(super::client::request("GET", "/large", &[]), None)).collect();
    for stream in streams {
        let answer = client.receive(stream);
        assert_eq!(answer.error, None);
        pattern::assert_equal(&answer.body, 0..300_000);
    }
}

#[test]
fn what_is_forwarded_comes_and_goes_whole() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(&request.body));
    let keys = format!("proxy = {{ to = '{}' }}", upstream.url());
    let server = config(&site, &keys).serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    for length in [0, 1, 1_000_000] {
        let answer = client.ask("POST", "/echo", &[], Some(pattern::bytes(0..length)));
        assert_eq!((answer.status.as_u16(), &answer.error), (200, &None));
        pattern::assert_equal(&answer.body, 0..length);
    }
    let plain = client.get("/echo", &[]);
    assert_eq!((plain.status.as_u16(), plain.body.len(), plain.trailers), (200, 0, None));
    assert!(access_lines(&server, 4).iter().all(|line| line.find("upstream").is_some() && line.way().1 == "quic"));
}

/// Decodes by other libraries than the server's, to the end of the coding.
#[track_caller]
fn decode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let decoder: &mut dyn Read = match coding {
        "gzip" => &mut flate2::read::GzDecoder::new(bytes),
        "br" => &mut brotli::Decompressor::new(bytes, 4096),
        _ => &mut zstd::Decoder::new(bytes).expect("a decoder"),
    };
    decoder.read_to_end(&mut decoded).expect("complete content");
    decoded
}

const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

/// The second client takes little before it reads. Each request finds the response being fetched, stored, or in its stored form.
#[test]
fn stored_and_coded_contents_of_any_length_come_whole_to_slow_clients_too() {
    let text = |length: usize| -> Vec<u8> {
        let lines = (0..).flat_map(|n: u64| format!("{n} is followed by {}\n", n * 7919 % 100_003).into_bytes());
        lines.take(length).collect()
    };
    let upstream = Upstream::answering(move |request| {
        let length = request.line().rsplit('/').next().and_then(|digits| digits.parse().ok()).expect("a length");
        let fields = "Content-Type: text/plain\r\nCache-Control: max-age=600\r\nETag: \"v1\"\r\n";
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {length}\r\n\r\n");
        [head.as_bytes(), &text(length)].concat()
    });
    let site = Site::new();
    let directory = site.outside().join("cache");
    std::fs::create_dir(&directory).expect("a directory");
    let keys = format!("compress = true\nproxy = {{ to = '{}', cache = {{}} }}", upstream.url());
    let cache = format!("[cache]\ndirectories = ['{}']\n", directory.display());
    let server = config(&site, &keys).table(&cache).serve_from_user_space();
    wait_for_cache(&server, &directory);
    let fast = Http3::connect(&site, &server);
    let slow = Http3::connect_with(&site, server.address(), slow());
    for mut client in [slow, fast] {
        for length in [0, 1, 1000, 1_000_000] {
            let (target, content) = (format!("/{length}"), text(length));
            let whole = client.get(&target, &[]);
            assert_eq!((&whole.error, whole.field("content-length")), (&None, &*length.to_string()));
            assert!(whole.body == content, "{length}");
            for coding in CODINGS {
                let accept = [("accept-encoding", coding)];
                wait_until("it comes from its stored form", || {
                    let answer = client.get(&target, &accept);
                    let is_coded = answer.fields.contains_key("content-encoding");
                    assert_eq!((&answer.error, is_coded), (&None, length >= 1024), "{length} {coding}");
                    let has_length = answer.fields.contains_key("content-length");
                    let body = if is_coded { decode(coding, &answer.body) } else { answer.body };
                    assert!(body == content, "{length} {coding}");
                    has_length
                });
                let head = client.ask("HEAD", &target, &accept, None);
                assert_eq!((head.status.as_u16(), head.body.len(), head.error), (200, 0, None), "{length} {coding}");
                assert_eq!(head.fields.contains_key("content-encoding"), length >= 1024, "{length} {coding}");
            }
            if length >= 1000 {
                let part = client.get(&target, &[("range", "bytes=7-699"), ("accept-encoding", "gzip")]);
                assert_eq!((part.status.as_u16(), part.fields.get("content-encoding")), (206, None));
                assert!(part.body == content[7..700], "{length}");
            }
        }
        client.close();
    }
    assert_eq!(upstream.requests().len(), 4, "one for each response");
}

#[test]
fn what_an_application_answers_is_compressed_and_is_cut_with_its_origin() {
    let text = "words that come again ".repeat(50_000);
    let own = text.clone();
    let upstream = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n", own.len());
            accepted.write(head.as_bytes());
            if request.line().ends_with("/cut") {
                accepted.write(&own.as_bytes()[..own.len() / 2]);
                return;
            }
            accepted.write(own.as_bytes());
        }
    });
    let site = Site::new();
    let server =
        config(&site, &format!("compress = true\nproxy = {{ to = '{}' }}", upstream.url())).serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    for coding in CODINGS {
        let answer = client.get("/", &[("accept-encoding", coding)]);
        assert_eq!((answer.field("content-encoding"), answer.field("vary")), (coding, "Accept-Encoding"));
        assert_eq!((answer.fields.get("content-length"), answer.error), (None, None));
        assert!(decode(coding, &answer.body) == text.as_bytes(), "{coding}");
        let cut = client.send(super::client::request("GET", "/cut", &[("accept-encoding", coding)]), None);
        assert!(!client.is_complete(cut), "{coding}");
    }
    client.close();
}

#[test]
fn content_that_breaks_off_never_ends_as_if_it_were_complete() {
    let site = Site::new();
    // It closes behind the first part, once the client has that.
    let (close, closes) = std::sync::mpsc::channel::<()>();
    let closes = std::sync::Mutex::new(closes);
    let upstream = Upstream::start(move |accepted| {
        if accepted.request().is_some() {
            accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this");
            let _ = closes.lock().expect("no panic").recv();
        }
    });
    let keys = format!("proxy = {{ to = '{}' }}", upstream.url());
    let server = config(&site, &keys).serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let stream = client.send(super::client::request("GET", "/", &[]), None);
    let stream = client.begin(stream);
    drop(close);
    client.rest(stream).expect_err("the response is incomplete");
    assert!(access_line(&server, 1).find("aborted").is_some());
}

#[test]
fn other_versions_announce_it_and_listeners_without_it_do_not() {
    let site = Site::new();
    site.add("f", "content");
    let with = config(&site, "").serve_from_user_space();
    let mut client = site.connect(&with);
    let answer = exchange(&mut client, http::head("GET", "/f", &[("Connection", "close")]).as_bytes());
    let text = String::from_utf8_lossy(&answer.data).into_owned();
    let expected = format!("\r\nAlt-Svc: h3=\":{}\"; ma=86400\r\n", with.address().port());
    assert!(text.contains(&expected), "{text}");
    let without = site.serve_from_user_space(&[]);
    let mut client = site.connect(&without);
    let answer = exchange(&mut client, http::head("GET", "/f", &[("Connection", "close")]).as_bytes());
    assert!(!String::from_utf8_lossy(&answer.data).contains("Alt-Svc"));
}

#[test]
fn a_stream_ends_without_a_response_and_others_go_on() {
    let site = Site::new();
    site.add("f", "content");
    let server = config(&site, "route = [{ path = '= /none', respond = 'close' }]").serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let stream = client.send(request("GET", "/none", &[]), None);
    let said = client.failure(stream);
    assert!(said.contains("H3_INTERNAL_ERROR"), "{said}");
    assert_eq!(client.get("/f", &[]).body, b"content");
    let lines = access_lines(&server, 2);
    assert_eq!([lines[0].get("status"), lines[0].get("bytes")], ["444", "0"]);
}

#[test]
fn sites_and_routes_stay_on_tcp() {
    let pki = Pki::for_names(&["localhost", "app.test", "files.test"]);
    let sites = Sites::new();
    let server = sites
        .config()
        .listen("address = '127.0.0.1:0'\nhttp3 = true")
        .site("root", &[&pki], "names = ['app.test']\nroute = [{ path = '/large/', announce_http3 = false }]")
        .site("root", &[], "names = ['files.test']\nhttp3 = false")
        .serve_from_user_space();
    let over_http1 = |name: &str, path: &str| {
        let mut client = Connector::trusting(&[&pki], Suite::TLS13, None, false).name(name).connect(server.address());
        let answer = http::request(&mut client, "GET", path, &[("Host", name)]).expect("a response");
        answer.field("alt-svc").is_some()
    };
    let over_http2 = |name: &str, path: &str| {
        run(async {
            let mut client = connect(server.address(), &pki).await;
            let request = ::http::Request::get(format!("https://{name}{path}")).body(()).expect("a request");
            let (response, _) = client.send_request(request, true).expect("it leaves");
            response.await.expect("a response").headers().contains_key("alt-svc")
        })
    };
    for (name, path, expected) in [
        ("app.test", "/name", true),
        ("app.test", "/none", true),
        ("app.test", "/large/name", false),
        ("files.test", "/name", false),
        ("files.test", "/none", false),
        ("files.test", "/%", false),
    ] {
        assert_eq!(over_http1(name, path), expected, "{name}{path}");
        assert_eq!(over_http2(name, path), expected, "{name}{path} over HTTP/2");
    }
    let mut client = Http3::try_connect(server.address(), Options::new(&pki, "app.test")).expect("a connection");
    for (name, status) in [("app.test", 200), ("files.test", 421)] {
        let request = ::http::Request::get(format!("https://{name}/name")).body(()).expect("a request");
        let stream = client.send(request, None);
        assert_eq!(client.receive(stream).status, status, "{name}");
    }
}

#[test]
fn a_listener_that_cannot_have_it_is_refused() {
    let site = Site::new();
    for (keys, words) in [
        ("address = '127.0.0.1:0'\ntls = false\nhttp3 = true", "HTTP/3 has TLS always"),
        ("address = 'unix:/nonexistent/s'\nhttp3 = true", "a Unix socket has no UDP"),
        (
            "address = '127.0.0.1:0'\nproxy_protocol = true\ntrusted_proxies = ['127.0.0.1']\nhttp3 = true",
            "the PROXY protocol names no client of UDP",
        ),
    ] {
        let problems = site.config("").listen(keys).problems();
        assert!(problems.contains(words), "{keys}: {problems}");
    }
}

fn announces(site: &Site, server: &Server) -> bool {
    let mut client = site.connect(server);
    let answer = exchange(&mut client, http::head("GET", "/f", &[("Connection", "close")]).as_bytes());
    String::from_utf8_lossy(&answer.data).contains("\r\nAlt-Svc: ")
}

/// A listener on a free port, which has HTTP/3 as one on port 443 has. `keys`: of the listener.
fn by_default(site: &Site, keys: &str) -> Config {
    site.config("").listen(&format!("address = '127.0.0.1:0'\n{keys}")).table("[http3]\nenabled = true")
}

#[test]
fn listeners_with_tls_have_it_by_default() {
    let site = Site::new();
    site.add("f", "content");
    let server = by_default(&site, "").serve_from_user_space();
    assert!(announces(&site, &server));
    assert_eq!(Http3::connect(&site, &server).get("/f", &[]).body, b"content");
    let without = by_default(&site, "http3 = false").serve_from_user_space();
    assert!(!announces(&site, &without));
    // Without a suite of TLS 1.3.
    let old = "[tls]\nsuites = ['TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256']";
    let old = by_default(&site, "").table(old).serve_from_user_space();
    let mut client = site.connector(Suite::TLS12).connect(old.address());
    let answer = http::request(&mut client, "GET", "/f", &[("Host", "localhost")]).expect("a response");
    assert!(answer.field("alt-svc").is_none());
}

#[test]
fn where_udp_is_taken_clients_use_tcp_unless_it_is_required() {
    let site = Site::new();
    site.add("f", "content");
    // TCP on the same port is free of other tests.
    let taken = UdpSocket::bind(("127.0.0.1", free_port())).expect("a socket");
    let address = taken.local_addr().expect("an address");
    let listen = |more: &str| site.config("").listen(&format!("address = '{address}'\n{more}"));
    let server = listen("").table("[http3]\nenabled = true").serve_from_user_space();
    assert!(!announces(&site, &server));
    wait_for_message(&server, &format!("cannot listen on UDP {address} for HTTP/3"));
    drop(server);
    let required = listen("http3 = true").write();
    let refused = Command::new(PROGRAM).args(["serve", "--config"]).arg(required).output().expect("the program starts");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("stop the program that has the port, or remove http3"),
        "{said}"
    );
}

#[test]
fn a_file_that_an_application_authorises_comes_whole() {
    let site = Site::new();
    site.add_pattern("large", 1_000_003);
    let upstream = Upstream::answering(|_| {
        b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /protected/large\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let keys = format!(
        "accel = true\nproxy = {{ to = '{}' }}\nroute = [{{ path = '/protected/', internal = true, files = true, alias = 'root' }}]",
        upstream.url()
    );
    let server = config(&site, &keys).serve_from_user_space();
    let mut client = Http3::connect(&site, &server);
    let whole = client.get("/", &[]);
    assert_eq!((whole.status.as_u16(), &whole.error), (200, &None));
    pattern::assert_equal(&whole.body, 0..1_000_003);
    let part = client.get("/", &[("range", "bytes=7-700000")]);
    assert_eq!(part.status.as_u16(), 206);
    pattern::assert_equal(&part.body, 7..700_001);
    let posted = client.ask("POST", "/", &[], Some(vec![b'x'; 1000]));
    assert_eq!((posted.status.as_u16(), posted.body.len()), (200, 1_000_003));
}
