//! Contents in both directions, and the connections to the server.

use std::io::ErrorKind;
use std::thread;

use sealion_testkit::server::Signal;
use sealion_testkit::{Suite, http, pattern};

use super::{post, serve};
use crate::support::http2::Http2;
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, access_line, curl, exchange, get, parse_responses, wait_until};

#[test]
fn a_request_arrives_as_it_was_sent_and_the_answer_comes_back() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let body = format!("{} {}", request.line(), request.body.len());
        let status = if request.line().contains("missing") { "404 Not Here" } else { "200 OK" };
        let fields = "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nDate: Mon, 07 Nov 1994 08:49:37 GMT\r\nServer: app\r\nConnection: X-Hop\r\nX-Hop: 1";
        format!("HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    let response = http::get(&mut client, "/a%2Fb/%7Ec?x=1&y=%20").expect("a response");
    assert_eq!((response.status, response.body.as_slice()), (200, &b"GET /a%2Fb/%7Ec?x=1&y=%20 0"[..]));
    let cookies: Vec<_> = response.fields.iter().filter(|(name, _)| name == "set-cookie").collect();
    assert_eq!(cookies.len(), 2);
    assert_eq!(response.field("date"), Some("Mon, 07 Nov 1994 08:49:37 GMT"));
    assert_eq!((response.field("server"), response.field("x-hop")), (Some("app"), None));
    let received = upstream.last();
    assert_eq!(received.field("host"), "localhost");
    assert_eq!(received.field("x-forwarded-for"), "127.0.0.1");
    assert_eq!(received.field("x-forwarded-proto"), "https");
    assert_eq!(received.field("forwarded"), "for=127.0.0.1;host=\"localhost\";proto=https");
    assert_eq!(received.all("content-length"), [""; 0]);
    let response = post(&mut client, "/missing", &[("Content-Length", "3"), ("X-Forwarded-For", "10.0.0.1")], b"abc");
    assert_eq!((response.status, response.body.as_slice()), (404, &b"POST /missing 3"[..]));
    let received = upstream.last();
    assert_eq!((received.body.as_slice(), received.field("x-forwarded-for")), (&b"abc"[..], "127.0.0.1"));
    for (method, length) in
        [("PUT", &["0"][..]), ("DELETE", &[]), ("OPTIONS", &[]), ("PATCH", &["0"]), ("PROPFIND", &[])]
    {
        let response = http::request(&mut client, method, "/", &[]).expect("a response");
        assert_eq!(response.body, format!("{method} / 0").into_bytes());
        assert_eq!(upstream.last().all("content-length"), length, "{method}");
    }
    assert_eq!(http::request(&mut client, "TRACE", "/", &[]).expect("a response").status, 405);
    assert_eq!(upstream.connections(), 1, "the connection is kept");
    let line = access_line(&server, 8);
    assert_eq!((line.get("status"), line.find("upstream")), ("405", None));
    let line = &crate::support::access_lines(&server, 8)[1];
    assert_eq!((line.get("upstream"), line.get("upstream_status")), (&*upstream.url(), "404"));
    assert_eq!(line.find("tries"), None);
}

#[test]
fn contents_of_all_lengths_pass_in_both_directions_however_they_are_framed() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        if request.line().ends_with("chunked") {
            let mut response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for piece in request.body.chunks(7000) {
                response.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                response.extend_from_slice(piece);
                response.extend_from_slice(b"\r\n");
            }
            response.extend_from_slice(b"0\r\n\r\n");
            return response;
        }
        ok(&request.body)
    });
    let server = serve(&site, &upstream, "");
    for length in [0, 1, 1000, 16_384, 65_537, 3_000_000] {
        let file = site.add_pattern("upload", length as u64);
        let expected = pattern::bytes(0..length as u64);
        let upload = format!("@{}", file.display());
        for target in ["/length", "/chunked"] {
            for (protocol, framing) in [
                ("--http1.1", "X-Framing: length"),
                ("--http1.1", "Transfer-Encoding: chunked"),
                ("--http2", "X-Framing: length"),
            ] {
                let options = ["--data-binary", &upload, "-H", "Expect:", "-H", framing, protocol];
                let response = curl::get(&site.pki, server.address(), target, &options);
                assert_eq!(response.status, 200);
                assert!(response.body == expected, "{length} {target} {protocol} {framing}");
                assert!(upstream.last().body == expected, "{length} {target} {protocol} {framing}");
            }
        }
    }
}

#[test]
fn a_connection_is_kept_however_the_answer_was_framed() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| match request.line() {
        "GET /chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec(),
        _ => ok(b"abc"),
    });
    let server = serve(&site, &upstream, "");
    for protocol in ["--http1.1", "--http2"] {
        for target in ["/chunked", "/length", "/chunked"] {
            assert_eq!(curl::get(&site.pki, server.address(), target, &[protocol]).body, b"abc");
        }
    }
    // A worker has its own connections, and a client one worker.
    let mut client = site.connect(&server);
    http::get(&mut client, "/length").expect("a response");
    let before = upstream.connections();
    for _ in 0..5 {
        client.send(get("/chunked").as_bytes()).expect("it leaves");
        client.read_until(b"0\r\n\r\n").expect("the end");
    }
    assert_eq!(upstream.connections(), before);
}

#[test]
fn answers_without_content_end_with_their_head() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let status = match request.line().split_once(' ').expect("a target") {
            ("HEAD", _) => "200 OK\r\nContent-Length: 5",
            (_, "/none") => "204 No Content",
            (_, "/not-modified") => "304 Not Modified\r\nETag: \"a\"",
            _ => "200 OK\r\nContent-Length: 0",
        };
        format!("HTTP/1.1 {status}\r\n\r\n").into_bytes()
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    for (method, target, status, length) in [
        ("HEAD", "/", 200, Some("5")),
        ("GET", "/none", 204, None),
        ("GET", "/not-modified", 304, None),
        ("GET", "/", 200, Some("0")),
    ] {
        let response = http::request(&mut client, method, target, &[]).expect("a response");
        assert_eq!((response.status, response.field("content-length")), (status, length), "{method} {target}");
    }
    // One for HEAD, and one for all others.
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn pieces_are_passed_on_as_they_come() {
    let site = Site::new();
    let (to_server, from_test) = std::sync::mpsc::channel::<()>();
    let from_test = std::sync::Mutex::new(from_test);
    let upstream = Upstream::start(move |accepted| {
        accepted.request();
        accepted.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..3 {
            accepted.write(b"8\r\ndata: 1\n\r\n");
            // The next piece comes when the client has this one.
            from_test.lock().expect("no panic").recv().expect("the test goes on");
        }
        accepted.write(b"0\r\n\r\n");
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    client.send(get("/events").as_bytes()).expect("it leaves");
    client.read_until(b"\r\n\r\n").expect("a head");
    for _ in 0..3 {
        client.read_until(b"data: 1\n\r\n").expect("a piece");
        to_server.send(()).expect("the server goes on");
    }
    assert_eq!(client.read_until(b"0\r\n\r\n").expect("the end"), b"0\r\n\r\n");
}

/// The client is read only as fast as the server takes its content.
#[test]
fn a_server_that_does_not_read_holds_the_client_back() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.head();
        // Until the proxy gives up.
        thread::park_timeout(sealion_testkit::PATIENCE);
    });
    let server = serve(&site, &upstream, "answer_timeout = '60s'");
    let mut client = site.connect(&server);
    client.send(http::head("POST", "/", &[("Content-Length", "1000000000")]).as_bytes()).expect("it leaves");
    client.socket().set_write_timeout(Some(std::time::Duration::from_millis(300))).expect("a timeout");
    let piece = [b'x'; 16_384];
    let sent = (0..4000).take_while(|_| client.send(&piece).is_ok()).count();
    // As many records as fit into the buffers of both connections.
    assert!((1..2000).contains(&sent), "{sent} records were taken");
}

#[test]
fn content_is_asked_for_when_the_server_has_the_head() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    let fields = [("Content-Length", "3"), ("Expect", "100-continue")];
    client.send(http::head("POST", "/", &fields).as_bytes()).expect("it leaves");
    assert_eq!(client.read_until(b"\r\n\r\n").expect("an answer"), b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"abc").expect("it leaves");
    assert_eq!(http::read_response(&mut client, "POST").expect("a response").body, b"abc");
    assert_eq!(upstream.last().all("expect"), [""; 0]);
    assert_eq!(http::get(&mut client, "/next").expect("a response").status, 200);
}

#[test]
fn an_answer_before_the_end_of_the_content_is_passed_on_and_ends_the_connection() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.head();
        accepted.write(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\n\r\nno");
        accepted.read_to_end();
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    client.send(http::head("POST", "/", &[("Content-Length", "100000")]).as_bytes()).expect("it leaves");
    client.send(&[b'x'; 1000]).expect("it leaves");
    let response = http::read_response(&mut client, "POST").expect("a response");
    assert_eq!((response.status, response.field("connection")), (413, Some("close")));
    assert_eq!(response.body, b"no");
    client.read_to_end().expect("an end").assert_orderly();
}

/// Two streams at once: neither waits for the other's end.
#[test]
fn a_server_may_answer_while_it_reads() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.head();
        accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n");
        for _ in 0..3 {
            let Some(piece) = accepted.read(10) else { return };
            accepted.write(&piece);
        }
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    client.send(http::head("POST", "/", &[("Content-Length", "30")]).as_bytes()).expect("it leaves");
    client.read_until(b"\r\n\r\n").expect("a head");
    for piece in ["0123456789", "abcdefghij", "ABCDEFGHIJ"] {
        client.send(piece.as_bytes()).expect("it leaves");
        assert_eq!(client.read(10).expect("the echo"), piece.as_bytes());
    }
}

#[test]
fn a_client_that_leaves_ends_the_request_to_the_server() {
    let site = Site::new();
    let (gone, told) = std::sync::mpsc::channel();
    let gone = std::sync::Mutex::new(gone);
    let upstream = Upstream::start(move |accepted| {
        let body = accepted.head().map(|_| accepted.read_to_end());
        gone.lock().expect("no panic").send(body).expect("the test waits");
    });
    let server = serve(&site, &upstream, "");
    let post = http::head("POST", "/", &[("Content-Length", "10")]) + "12345";
    for (request, way) in [(get("/waits"), "reset"), (post.clone(), "reset"), (get("/waits"), "close"), (post, "close")]
    {
        let mut client = site.connect(&server);
        client.send(request.as_bytes()).expect("it leaves");
        wait_until("the server has the request", || upstream.connections() > 0);
        thread::sleep(std::time::Duration::from_millis(50));
        match way {
            "reset" => client.reset().expect("it closes"),
            _ => {
                client.close_notify().expect("it leaves");
                client.fin().expect("it leaves");
            }
        }
        let body = told.recv_timeout(sealion_testkit::PATIENCE).expect("the server's connection ends");
        assert!(body.is_some_and(|body| b"12345".starts_with(&body) || body == b"12345"));
    }
    for line in crate::support::access_lines(&server, 4) {
        assert!(["499", "400"].contains(&line.get("status")), "{}", line.text);
    }
    let alerts: Vec<_> =
        server.lines().into_iter().filter(|line| line.text.contains("answered with the alert")).collect();
    assert!(alerts.is_empty(), "the server did not fail: {alerts:#?}");
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let server = serve(&site, &upstream, "");
    let post = http::head("POST", "/2", &[("Content-Length", "3")]) + "abc";
    let last = http::head("GET", "/3", &[("Connection", "close")]);
    let ending = exchange(&mut site.connect(&server), [get("/1"), post, last].concat().as_bytes());
    let bodies: Vec<_> = parse_responses(&ending.data).into_iter().map(|response| response.body).collect();
    assert_eq!(bodies, [b"GET /1".to_vec(), b"POST /2".to_vec(), b"GET /3".to_vec()]);
    ending.assert_orderly();
}

/// A content without its end is no content: neither side may take it for one.
#[test]
fn content_that_breaks_off_never_arrives_as_complete() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| while accepted.request().is_some() {});
    let server = serve(&site, &upstream, "");
    let chunked = http::head("POST", "/", &[("Transfer-Encoding", "chunked")]);
    for (request, status) in [
        (chunked.clone() + "3\r\nabc\r\nzz", Some(400)),
        (chunked.clone() + "3\r\nabcd", Some(400)),
        (http::head("POST", "/", &[("Content-Length", "10")]) + "abc", None),
        (chunked + "3\r\nabc\r\n0\r\n", None),
    ] {
        let mut client = site.connect(&server);
        client.send(request.as_bytes()).expect("it leaves");
        match status {
            Some(status) => {
                let response = http::read_response(&mut client, "POST").expect("a response");
                assert_eq!((response.status, response.field("connection")), (status, Some("close")), "{request}");
            }
            None => {
                client.close_notify().expect("it leaves");
                client.fin().expect("it leaves");
                match client.read_to_end() {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof),
                }
            }
        }
    }
    assert!(upstream.requests().is_empty(), "{:?}", upstream.requests());
}

#[test]
fn a_request_that_awaits_its_answer_at_the_end_of_the_grace_time_has_a_line() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.head();
        accepted.read_to_end();
    });
    let config = site.config(&format!("proxy = {{ to = '{}' }}", upstream.url()));
    let mut server = config.table("[limits]\ngrace = '200ms'").serve_from_user_space();
    let mut client = site.connect(&server);
    client.send(get("/waits").as_bytes()).expect("it leaves");
    let mut http2 = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    http2.get("/waits-too");
    wait_until("the server has both", || upstream.connections() == 2);
    server.signal(Signal::TERM);
    server.wait();
    for line in crate::support::access_lines(&server, 2) {
        assert!(line.get("target").starts_with("/waits") && line.find("aborted").is_some(), "{}", line.text);
    }
}

/// The library that speaks with the server would send it as a GET without content.
#[test]
fn content_of_a_get_arrives_and_never_as_none() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let server = serve(&site, &upstream, "");
    let file = site.add_pattern("upload", 10);
    let upload = format!("@{}", file.display());
    for options in [
        ["--http1.1", "-X", "GET", "--data-binary", &upload, "-H", "Transfer-Encoding: chunked"],
        ["--http2", "-X", "GET", "--data-binary", &upload, "-H", "Content-Length:"],
        ["--http2", "-X", "QUERY", "--data-binary", &upload, "-H", "Content-Length:"],
    ] {
        let response = curl::get(&site.pki, server.address(), "/", &options);
        assert_eq!((response.status, response.body.len()), (200, 10), "{options:?}");
    }
    let complete = upstream.requests().len();
    let mut client = site.connect(&server);
    client
        .send((http::head("GET", "/", &[("Transfer-Encoding", "chunked")]) + "5\r\nhe").as_bytes())
        .expect("it leaves");
    client.reset().expect("it closes");
    access_line(&server, 4);
    assert_eq!(upstream.requests().len(), complete);
}
