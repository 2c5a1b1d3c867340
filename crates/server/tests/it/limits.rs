//! The limits of a client and of a site: connections, requests a second, bandwidth.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use sealion_testkit::{Suite, http};

use crate::support::http2::Http2;
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, tool};

#[test]
fn a_client_with_too_many_connections_is_closed_before_the_handshake() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("[limits]\nmax_connections_per_address = 2\n").serve();
    let mut first = site.connect(&server);
    let second = site.connect(&server);
    let mut third = TcpStream::connect(server.address()).expect("the kernel accepts it");
    assert_eq!(third.read(&mut [0; 1]).unwrap_or(0), 0, "nothing is said to it");
    assert_eq!(http::get(&mut first, "/f").expect("it has its place").body, b"content");
    drop(second);
    // The place is free once the server has seen the end; until then connections go on being closed.
    let again = (0..1000).find_map(|_| {
        let mut client = site.connector(Suite::TLS13).try_connect(server.address()).ok()?;
        http::get(&mut client, "/f").ok()
    });
    assert_eq!(again.expect("there is a place again").body, b"content");
}

#[test]
fn requests_above_the_rate_are_told_when_to_come_again_and_the_connection_stays() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("[site.limits]\nrequests_per_second = 1\nburst = 3\n").serve();
    let mut client = site.connect(&server);
    let statuses: Vec<u16> =
        (0..20).map(|_| http::get(&mut client, "/f").expect("the connection stays").status).collect();
    assert_eq!(statuses[..3], [200; 3]);
    assert!(statuses.contains(&429), "{statuses:?}");
    let refused = (0..20).map(|_| http::get(&mut client, "/f").expect("it stays")).find(|r| r.status == 429);
    assert!(refused.expect("there are no 20 tokens").field("retry-after").is_some());
}

#[test]
fn requests_in_progress_hold_places_on_their_route_until_they_end() {
    let site = Site::new();
    site.add("f", "content");
    let ((arrived, arrivals), (release, released)) = (channel(), channel());
    let released = Mutex::new(released);
    let upstream = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            if request.line() == "GET /app/held" {
                arrived.send(()).expect("the test goes on");
                released.lock().expect("no panic").recv().expect("the test goes on");
            }
            accepted.write(&ok(request.line().as_bytes()));
        }
    });
    let keys = format!(
        "[[site.route]]\npath = '/app/'\nproxy = {{ to = '{}' }}\nlimits = {{ concurrent = [{{ requests = 1 }}, {{ requests = 9, key = 'all' }}] }}",
        upstream.url()
    );
    let server = site.config(&keys).serve();
    let mut held = site.connect(&server);
    held.send(b"GET /app/held HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it leaves");
    arrivals.recv().expect("it is in progress");
    let mut other = site.connect(&server);
    assert_eq!(http::get(&mut other, "/app/x").expect("an answer").status, 503);
    let over_http2 = || Http2::connect(site.connector(Suite::TLS13), server.address(), &[]).fetch("/app/x").0;
    assert_eq!(over_http2(), 503);
    assert_eq!(http::get(&mut other, "/f").expect("an answer").status, 200, "another route");
    release.send(()).expect("the server waits");
    assert_eq!(http::read_response(&mut held, "GET").expect("an answer").status, 200);
    let again = (0..1000).any(|_| http::get(&mut other, "/app/x").expect("an answer").status == 200);
    assert!(again, "the place is not given back");
    assert_eq!(over_http2(), 200);
}

#[test]
fn a_site_with_all_its_connections_taken_answers_503() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.config("[site.limits]\nconnections = 1\n").serve();
    let (mut first, mut second) = (site.connect(&server), site.connect(&server));
    assert_eq!(http::get(&mut first, "/f").expect("an answer").status, 200);
    assert_eq!(http::get(&mut first, "/f").expect("an answer").status, 200);
    assert_eq!(http::get(&mut second, "/f").expect("an answer").status, 503);
    drop(first);
    let again = (0..1000).any(|_| http::get(&mut second, "/f").expect("an answer").status == 200);
    assert!(again, "the place is not given back");
}

#[test]
fn the_bandwidth_of_a_connection_is_what_tcp_is_told() {
    let site = Site::new();
    site.add("f", "content");
    let server = site
        .config("default = true\n[site.limits]\nbandwidth = '1MiB'")
        .site("root", &[], "names = ['free.test']")
        .serve();
    let mut client = site.connect(&server);
    http::get(&mut client, "/f").expect("an answer");
    // ss(8) prints the bound of each socket as `pacing_rate …/<bound>`, in bits a second.
    let port = server.address().port();
    let is_bounded = || {
        let sockets = tool("ss", ["-tinH", &format!("sport = :{port}")]);
        sockets.contains("/8388608bps") || sockets.contains("/8.39Mbps")
    };
    assert!(is_bounded());
    // The other site of this connection has no bounds at all.
    http::request(&mut client, "GET", "/f", &[("Host", "free.test")]).expect("an answer");
    assert!(!is_bounded());
}

/// HEAD gets no body, whatever its head promises: the body would be the beginning of the next response.
#[test]
fn whatever_refuses_head_sends_no_body_and_what_the_site_says_goes_along() {
    let site = Site::new();
    site.add("f", "content");
    site.add("busy.html", "later");
    let server = site
        .config(
            "names = ['localhost']\nserver_header = false\nerror_pages = { 429 = '/busy.html' }\n\
             headers = { set = { X-Own = '1' } }\n[site.limits]\nrequests_per_second = 1\nburst = 1",
        )
        .site("root", &[&site.pki], "names = ['plain.test']\n[site.limits]\nconnections = 1")
        .serve();
    let mut client = site.connect(&server);
    let mut ask = |method: &str, host: &str| {
        http::request(&mut client, method, "/f", &[("Host", host)]).expect("a response where one begins")
    };
    assert_eq!(ask("GET", "localhost").status, 200);
    for method in ["HEAD", "GET", "HEAD", "HEAD"] {
        let refused = ask(method, "localhost");
        // The bucket may have a token again.
        if refused.status == 429 {
            assert_eq!(refused.body, if method == "GET" { b"later".as_slice() } else { b"" });
            assert_eq!((refused.field("x-own"), refused.field("server")), (Some("1"), None));
            assert!(refused.field("retry-after").is_some());
        }
        let elsewhere = ask("HEAD", "no.test");
        assert_eq!((elsewhere.status, elsewhere.field("server")), (421, None));
    }
    assert_eq!(ask("GET", "plain.test").status, 200);
    let mut second = site.connect(&server);
    for method in ["HEAD", "GET", "HEAD"] {
        let full = http::request(&mut second, method, "/f", &[("Host", "plain.test")]).expect("a response");
        assert_eq!(full.status, 503);
    }
}
