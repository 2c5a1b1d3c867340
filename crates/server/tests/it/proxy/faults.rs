//! Servers that fail: the client is told so, nothing incomplete looks complete, and the next request is clean.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sealion_testkit::http;
use sealion_testkit::server::Signal;

use super::{is_orderly, post, serve, serve_config, serve_to};
use crate::support::upstream::{Accepted, Upstream, ok};
use crate::support::watch::Watched;
use crate::support::{Site, access_line, get, read_until_cut, wait_for_message, wait_until};

/// A port that refuses connections.
fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

#[test]
fn each_fault_before_the_answer_has_its_status_and_the_connection_goes_on() {
    type Fault = fn(&mut Accepted);
    let faults: [(&str, Fault, u16); 11] = [
        (
            "/coded",
            |accepted| {
                accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
            },
            502,
        ),
        ("/closes", |_| {}, 502),
        ("/resets", |accepted| accepted.reset(), 502),
        ("/silent", |accepted| drop(accepted.read_to_end()), 504),
        ("/half-a-head", |accepted| accepted.write(b"HTTP/1.1 200 OK\r\nContent-Le"), 502),
        ("/no-http", |accepted| accepted.write(b"SSH-2.0-OpenSSH_9.2\r\n"), 502),
        ("/bad-status", |accepted| accepted.write(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"), 502),
        (
            "/two-lengths",
            |accepted| accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            502,
        ),
        (
            "/longer-than-any-file",
            |accepted| accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\nab"),
            502,
        ),
        (
            "/long-head",
            |accepted| {
                accepted.write(b"HTTP/1.1 200 OK\r\n");
                for n in 0..1000 {
                    accepted.write(format!("X-{n}: {}\r\n", "x".repeat(100)).as_bytes());
                }
                accepted.write(b"Content-Length: 0\r\n\r\n");
            },
            502,
        ),
        (
            "/switches",
            |accepted| accepted.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
            502,
        ),
    ];
    let site = Site::new();
    let upstream = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            match faults.iter().find(|(target, ..)| request.line().ends_with(target)) {
                Some((_, fault, _)) => return fault(accepted),
                None => accepted.write(&ok(request.line().as_bytes())),
            }
        }
    });
    let server = serve(&site, &upstream, "answer_timeout = '2s'\ntries = 1");
    let mut client = site.connect(&server);
    let mut lines = 0;
    for (target, _, status) in faults {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!(response.status, status, "{target}");
        assert_eq!(http::get(&mut client, "/good").expect("a response").body, b"GET /good", "after {target}");
        lines += 2;
        let line = &crate::support::access_lines(&server, lines)[lines - 2];
        assert_eq!((line.get("upstream"), line.get("status")), (&*upstream.url(), &*status.to_string()), "{target}");
    }
    // Those within a second of another have no line.
    for (target, status) in [("/coded", 502), ("/silent", 504)] {
        wait_for_message(&server, &format!("{target}: answered {status}: {}: ", upstream.url()));
    }
}

#[test]
fn an_answer_that_breaks_off_never_ends_as_if_it_were_complete() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        let Some(request) = accepted.request() else { return };
        accepted.write(match request.line() {
            "GET /short" => b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
            "GET /chunk" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
            "GET /no-last-chunk" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "GET /bad-chunk" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
            _ => b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab",
        });
        match request.line() {
            "GET /stalls" => drop(accepted.read_to_end()),
            "GET /resets" => accepted.reset(),
            _ => {}
        }
    });
    let server = serve(&site, &upstream, "stall_timeout = '200ms'");
    for (n, target) in
        ["/short", "/chunk", "/no-last-chunk", "/bad-chunk", "/stalls", "/resets"].into_iter().enumerate()
    {
        let mut client = site.connect(&server);
        client.send(get(target).as_bytes()).expect("it leaves");
        match read_until_cut(&mut client) {
            Ok(ending) => assert!(!ending.data.ends_with(b"0\r\n\r\n") && !is_orderly(&ending), "{target}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof),
        }
        let line = access_line(&server, n + 1);
        assert!(line.get("aborted").contains(&upstream.url()), "{}", line.text);
    }
}

/// Bytes behind the response belong to no request.
#[test]
fn a_server_that_sends_too_much_answers_no_other_request() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        while let Some(request) = accepted.request() {
            let mut response = ok(request.line().as_bytes());
            if request.line().ends_with("more") {
                response.extend_from_slice(&ok(b"stolen"));
            }
            accepted.write(&response);
        }
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    for _ in 0..20 {
        assert_eq!(http::get(&mut client, "/more").expect("a response").body, b"GET /more");
        assert_eq!(http::get(&mut client, "/next").expect("a response").body, b"GET /next");
    }
}

#[test]
fn a_request_is_repeated_only_where_that_is_safe() {
    let site = Site::new();
    // Each connection answers one request, and closes when it gets another one.
    let upstream = Upstream::start(|accepted| {
        if let Some(request) = accepted.request() {
            accepted.write(&ok(request.line().as_bytes()));
            accepted.request();
        }
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    assert_eq!(http::get(&mut client, "/1").expect("a response").status, 200);
    let response = http::get(&mut client, "/2").expect("a response");
    assert_eq!((response.status, response.body.as_slice()), (200, &b"GET /2"[..]));
    assert_eq!(access_line(&server, 2).get("tries"), "2");
    let response = post(&mut client, "/3", &[("Content-Length", "3")], b"abc");
    assert_eq!(response.status, 502, "it may have had an effect");
    let sent = upstream.requests();
    assert_eq!(
        sent.iter().map(|request| request.line()).collect::<Vec<_>>(),
        ["GET /1", "GET /2", "GET /2", "POST /3"]
    );
}

#[test]
fn a_request_is_not_repeated_once_its_answer_has_begun() {
    let site = Site::new();
    for begin in [
        "H",
        "HTTP/1.1 200 OK\r\nContent-",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    ] {
        let upstream = Upstream::start(move |accepted| {
            if accepted.request().is_some() {
                accepted.write(begin.as_bytes());
            }
        });
        let server = serve(&site, &upstream, "");
        let mut client = site.connect(&server);
        assert_eq!(http::get(&mut client, "/").expect("a response").status, 502, "{begin:?}");
        assert_eq!(upstream.requests().len(), 1, "{begin:?}");
    }
}

/// A connection that the server has closed meanwhile costs nothing, whatever the method.
#[test]
fn a_kept_connection_that_was_closed_is_not_used() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        if let Some(request) = accepted.request() {
            accepted.write(&ok(&request.body));
        }
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    for n in 1..=20 {
        assert_eq!(post(&mut client, "/", &[("Content-Length", "3")], b"abc").body, b"abc");
        wait_until("the connection is closed", || upstream.has_ended(n));
    }
    assert!(crate::support::access_lines(&server, 20).iter().all(|line| line.find("tries").is_none()));
}

#[test]
fn another_server_is_asked_where_one_refuses_and_that_one_is_left_out() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let closed = closed_port();
    let server = serve_to(&site, &[&closed, &upstream.url()], "max_fails = 2\nfail_time = '1h'");
    let mut client = site.connect(&server);
    for _ in 0..8 {
        assert_eq!(post(&mut client, "/", &[("Content-Length", "3")], b"abc").body, b"abc");
    }
    let repeated = crate::support::access_lines(&server, 8).iter().filter(|line| line.find("tries").is_some()).count();
    assert_eq!(repeated, 2);
    wait_for_message(&server, &format!("upstream app: {closed} is left out for 1h: cannot connect"));
}

#[test]
fn all_servers_refuse() {
    let site = Site::new();
    let server = serve_to(&site, &[&closed_port(), &closed_port()], "tries = 4");
    let mut client = site.connect(&server);
    for n in 1..=3 {
        assert_eq!(http::get(&mut client, "/").expect("a response").status, 502);
        assert_eq!(access_line(&server, n).get("tries"), "4");
    }
}

#[test]
fn a_server_whose_health_check_fails_is_left_out_until_it_succeeds() {
    let site = Site::new();
    let is_healthy = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_healthy);
    let first = Upstream::answering(move |request| match (request.line(), asked.load(Ordering::Relaxed)) {
        ("GET /healthz", false) => b"HTTP/1.1 500 Ill\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok(b"first"),
    });
    let second = Upstream::answering(|_| ok(b"second"));
    let keys = "balance = 'first'\nslow_start = '0s'\nhealth = { path = '/healthz', every = '100ms' }";
    let server = serve_to(&site, &[&first.url(), &second.url()], keys);
    let mut client = site.connect(&server);
    wait_for_message(
        &server,
        &format!("{} is left out until its health check succeeds: /healthz is answered with 500", first.url()),
    );
    assert_eq!(http::get(&mut client, "/").expect("a response").body, b"second");
    is_healthy.store(true, Ordering::Relaxed);
    wait_for_message(&server, &format!("{} is healthy again", first.url()));
    assert_eq!(http::get(&mut client, "/").expect("a response").body, b"first");
}

#[test]
fn a_reload_keeps_the_connections_of_upstreams_that_stay_as_they_are() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    http::get(&mut client, "/1").expect("a response");
    for n in 1..=3 {
        server.signal(Signal::HUP);
        server.wait_for_lines(n, "a reload", |line| {
            line.text.contains("configuration") && line.text.contains("is in use")
        });
        assert_eq!(http::get(&mut client, "/2").expect("a response").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
    // Another setting is another upstream.
    serve_config(&site, &[&upstream.url()], "tries = 2").write();
    server.signal(Signal::HUP);
    server.wait_for_lines(4, "a reload", |line| line.text.contains("configuration") && line.text.contains("is in use"));
    assert_eq!(http::get(&mut client, "/3").expect("a response").status, 200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn what_servers_answer_and_how_they_fail_is_counted() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| match request.line() {
        "GET /404" => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok(b"x"),
    });
    let closed = closed_port();
    let keys = "balance = 'first'\nmax_fails = 1\nfail_time = '1h'";
    let config = serve_config(&site, &[&closed, &upstream.url()], keys).table("[metrics]\nlisten = '127.0.0.1:0'");
    let watched = Watched::of(config.serve_from_user_space());
    let mut client = site.connect(&watched.server);
    for target in ["/", "/", "/404"] {
        http::get(&mut client, target).expect("a response");
    }
    let scrape = watched.scrape();
    let series =
        |name: &str, server: &str, label: &str| format!("{name}{{upstream=\"app\",server=\"{server}\"{label}}}");
    for (series, value) in [
        (series("sealion_upstream_answers_total", &upstream.url(), ",class=\"2xx\""), 2.0),
        (series("sealion_upstream_answers_total", &upstream.url(), ",class=\"4xx\""), 1.0),
        (series("sealion_upstream_failures_total", &closed, ",kind=\"unreachable\""), 1.0),
        (series("sealion_upstream_connections_total", &upstream.url(), ""), 1.0),
        (series("sealion_upstream_up", &upstream.url(), ""), 1.0),
        (series("sealion_upstream_up", &closed, ""), 0.0),
    ] {
        assert_eq!(scrape.get(&series), value, "{series}");
    }
}

#[test]
fn no_client_can_have_a_server_left_out() {
    let site = Site::new();
    // A server that gives up on a request whose content does not come.
    let upstream = Upstream::start(|accepted| {
        while let Some(head) = accepted.head() {
            if head.starts_with("POST") {
                let _ = accepted.read(5);
                return;
            }
            accepted.write(&ok(b"x"));
        }
    });
    let other = Upstream::answering(|_| ok(b"other"));
    let keys = "balance = 'first'\nmax_fails = 1\nfail_time = '1h'";
    let server = serve_to(&site, &[&upstream.url(), &other.url()], keys);
    for request in [
        http::head("POST", "/", &[("Content-Length", "10")]) + "12345",
        http::head("POST", "/", &[("Transfer-Encoding", "chunked")]) + "5\r\n12345\r\nzz",
        get("/a<b>`\"{|}^"),
    ] {
        let mut client = site.connect(&server);
        client.send(request.as_bytes()).expect("it leaves");
        http::read_response(&mut client, "POST").expect("a response");
        let mut client = site.connect(&server);
        assert_eq!(http::get(&mut client, "/").expect("a response").body, b"x", "after {request}");
    }
}

#[test]
fn a_request_that_comes_back_is_answered_and_not_forwarded_again() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    http::request(&mut client, "GET", "/", &[("CDN-Loop", "another")]).expect("a response");
    let sent = upstream.last();
    let passed = sent.field("cdn-loop");
    assert!(passed.starts_with("another, sealion-"), "{passed}");
    // As a server behind it would send it back.
    let response = http::request(&mut client, "GET", "/", &[("CDN-Loop", passed)]).expect("a response");
    assert_eq!(response.status, 508);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_server_that_is_silent_is_asked_once() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.request();
        accepted.read_to_end();
    });
    let server = serve(&site, &upstream, "answer_timeout = '200ms'");
    assert_eq!(http::get(&mut site.connect(&server), "/").expect("a response").status, 504);
    assert_eq!(upstream.requests().len(), 1);
}
