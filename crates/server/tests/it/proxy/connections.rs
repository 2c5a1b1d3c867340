//! Connections to servers, between requests.

use std::sync::{Mutex, mpsc};

use sealion_testkit::{Client, http};

use super::{post, serve, serve_config};
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, wait_for_message, wait_until};

/// Answers one request, and ends when the connection is closed.
fn once(finishes: bool) -> Upstream {
    Upstream::start(move |accepted| {
        let Some(request) = accepted.request() else { return };
        accepted.write(&ok(&request.body));
        if finishes {
            accepted.finish();
        }
        assert_eq!(accepted.read_to_end(), b"");
    })
}

#[test]
fn a_connection_is_closed_when_it_was_idle_for_its_time() {
    let site = Site::new();
    let upstream = once(false);
    let server = serve(&site, &upstream, "idle_timeout = '200ms'");
    assert_eq!(http::get(&mut site.connect(&server), "/").expect("a response").status, 200);
    wait_until("the connection is closed", || upstream.has_ended(1));
    // The next one has a time of its own.
    assert_eq!(http::get(&mut site.connect(&server), "/").expect("a response").status, 200);
    wait_until("the second connection is closed", || upstream.has_ended(2));
}

#[test]
fn a_connection_that_its_server_ends_while_it_is_idle_is_closed_without_a_request() {
    let site = Site::new();
    let upstream = once(true);
    let server = serve(&site, &upstream, "idle_timeout = '1h'");
    let mut client = site.connect(&server);
    for n in 1..=3 {
        assert_eq!(post(&mut client, "/", &[("Content-Length", "3")], b"abc").body, b"abc");
        wait_until("the connection is closed", || upstream.has_ended(n));
    }
}

#[test]
fn what_a_server_sends_without_a_request_costs_its_connection_and_answers_nothing() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        let Some(request) = accepted.request() else { return };
        accepted.write(&ok(request.line().as_bytes()));
        accepted.write(&ok(b"unasked"));
        accepted.read_to_end();
    });
    let server = serve(&site, &upstream, "");
    for n in 1..=3 {
        let path = format!("/{n}");
        assert_eq!(
            http::get(&mut site.connect(&server), &path).expect("a response").body,
            format!("GET {path}").as_bytes()
        );
        wait_until("the connection is closed", || upstream.has_ended(n));
    }
}

#[track_caller]
fn head(client: &mut Client, target: &str) -> http::Response {
    http::request(client, "HEAD", target, &[]).expect("a response")
}

#[test]
fn requests_behind_responses_without_content_take_the_same_connection() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let head = match request.line() {
            "HEAD /length" => "200 OK\r\nContent-Length: 5",
            "HEAD /chunked" => "200 OK\r\nTransfer-Encoding: chunked",
            "HEAD /unknown" => "200 OK\r\nX: y",
            "HEAD /missing" => "404 Not Found\r\nContent-Length: 9999999999",
            "GET /same" => "304 Not Modified\r\nContent-Length: 5",
            _ => return ok(request.line().as_bytes()),
        };
        format!("HTTP/1.1 {head}\r\n\r\n").into_bytes()
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    for n in 0..20 {
        for (target, status) in [("/length", 200), ("/chunked", 200), ("/unknown", 200), ("/missing", 404)] {
            assert_eq!(head(&mut client, target).status, status, "{target}");
        }
        assert_eq!(http::get(&mut client, "/same").expect("a response").status, 304);
        let target = format!("/{n}");
        assert_eq!(http::get(&mut client, &target).expect("a response").body, format!("GET {target}").as_bytes());
    }
    // One for HEAD, behind which content could come late, and one for all others.
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn connections_of_head_give_way_to_others() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| match request.line().starts_with("HEAD") {
        true => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec(),
        false => ok(b"all"),
    });
    let one = serve_config(&site, &[&upstream.url()], "max_idle = 1").table("[server]\nworkers = 1\n");
    let server = one.serve_from_user_space();
    let mut client = site.connect(&server);
    assert_eq!(head(&mut client, "/").status, 200);
    for _ in 0..5 {
        assert_eq!(http::get(&mut client, "/").expect("a response").body, b"all");
    }
    assert_eq!(upstream.connections(), 2);
}

/// Sends content behind the head of its response to HEAD: with the head, or once a message has come.
fn unasked() -> (Upstream, mpsc::Sender<()>) {
    let (goes_on, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let upstream = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            let content = ok(b"unasked");
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len());
            match request.line() {
                "HEAD /at-once" => accepted.write(&[head.as_bytes(), &content].concat()),
                "HEAD /later" => {
                    accepted.write(head.as_bytes());
                    waits.lock().expect("no panic").recv().expect("the test goes on");
                    accepted.write(&content);
                }
                "HEAD /none" => accepted.write(head.as_bytes()),
                line => accepted.write(&ok(line.as_bytes())),
            }
        }
    });
    (upstream, goes_on)
}

#[test]
fn content_behind_a_response_to_head_costs_the_connection_and_answers_nothing() {
    for target in ["/later", "/at-once"] {
        let site = Site::new();
        let (upstream, goes_on) = unasked();
        let server = serve(&site, &upstream, "idle_timeout = '1h'");
        // A client has one worker, and so one set of connections.
        let mut client = site.connect(&server);
        assert_eq!(head(&mut client, target).status, 200);
        if target == "/later" {
            goes_on.send(()).expect("the server waits");
        }
        wait_until("the connection is closed", || upstream.has_ended(1));
        assert_eq!(http::get(&mut client, "/next").expect("a response").body, b"GET /next");
        let line = wait_for_message(&server, "bytes follow a response that has no content");
        assert!(line.contains(&upstream.url()), "{line}");
        // The server is not trusted with a connection again, behind a response that has no content.
        for connections in [2, 3] {
            assert_eq!(head(&mut client, "/none").status, 200);
            wait_until("the connection is closed", || upstream.has_ended(connections));
        }
        for _ in 0..3 {
            assert_eq!(http::get(&mut client, "/next").expect("a response").body, b"GET /next");
        }
        assert_eq!(upstream.connections(), 4);
    }
}

/// Sends `late` behind a response 204, when the next request has come. The response to that comes with it, or once a message has come.
fn late(late: Vec<u8>) -> (Upstream, mpsc::Sender<()>) {
    let (goes_on, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let upstream = Upstream::start(move |accepted| {
        let mut owes = false;
        while let Some(request) = accepted.request() {
            let line = request.line();
            let mut response = match line {
                "GET /none" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
                _ => ok(line.as_bytes()),
            };
            if std::mem::replace(&mut owes, line == "GET /none") {
                if line == "GET /later" {
                    accepted.write(&late);
                    waits.lock().expect("no panic").recv().expect("the test goes on");
                } else {
                    response = [&late[..], &response].concat();
                }
            }
            accepted.write(&response);
        }
    });
    (upstream, goes_on)
}

#[track_caller]
fn assert_distrusted(client: &mut Client, upstream: &Upstream, ended: usize) {
    for more in 1..=3 {
        assert_eq!(http::get(client, "/none").expect("a response").status, 204);
        wait_until("the connection is closed", || upstream.has_ended(ended + more));
    }
}

#[test]
fn a_server_whose_late_content_became_a_response_is_distrusted() {
    for target in ["/at-once", "/later"] {
        let site = Site::new();
        let (upstream, goes_on) = late(ok(b"late"));
        let server = serve(&site, &upstream, "idle_timeout = '1h'");
        let mut client = site.connect(&server);
        assert_eq!(http::get(&mut client, "/none").expect("a response").status, 204);
        // The race is lost.
        assert_eq!(http::get(&mut client, target).expect("a response").body, b"late");
        if target == "/later" {
            goes_on.send(()).expect("the server waits");
        }
        wait_until("the connection is closed", || upstream.has_ended(1));
        wait_for_message(&server, "bytes follow a response that has no content");
        assert_distrusted(&mut client, &upstream, 1);
    }
}

#[test]
fn a_server_whose_late_content_is_no_response_is_distrusted() {
    let site = Site::new();
    let (upstream, _goes_on) = late(b"<!DOCTYPE html>".to_vec());
    let server = serve(&site, &upstream, "idle_timeout = '1h'");
    let mut client = site.connect(&server);
    assert_eq!(http::get(&mut client, "/none").expect("a response").status, 204);
    assert_eq!(http::get(&mut client, "/at-once").expect("a response").status, 502);
    wait_until("the connection is closed", || upstream.has_ended(1));
    assert_distrusted(&mut client, &upstream, 1);
}

#[test]
fn all_workers_distrust_a_server_together() {
    let site = Site::new();
    let (upstream, goes_on) = unasked();
    let config = serve_config(&site, &[&upstream.url()], "idle_timeout = '1h'").table("[server]\nworkers = 2");
    let server = config.serve_from_user_space();
    // The kernel spreads them over both workers.
    let mut clients: Vec<_> = (0..24).map(|_| site.connect(&server)).collect();
    assert_eq!(head(&mut clients[0], "/later").status, 200);
    goes_on.send(()).expect("the server waits");
    wait_for_message(&server, "bytes follow a response that has no content");
    wait_until("the connection is closed", || upstream.has_ended(1));
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(head(client, "/none").status, 200);
        wait_until("the connection is closed", || upstream.has_ended(n + 2));
    }
}

#[test]
fn interim_responses_without_end_are_bounded_by_the_answers_time() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        if accepted.request().is_some() {
            let many = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100);
            while accepted.try_write(many.as_bytes()) {}
        }
    });
    let server = serve(&site, &upstream, "answer_timeout = '300ms'");
    assert_eq!(http::get(&mut site.connect(&server), "/").expect("a response").status, 504);
}

#[test]
fn each_request_on_a_kept_connection_has_its_own_timeout() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        // The second request of a connection gets no answer.
        if accepted.request().is_some() {
            accepted.write(&ok(b"first"));
            accepted.request();
            accepted.read_to_end();
        }
    });
    let server = serve(&site, &upstream, "answer_timeout = '300ms'");
    let mut client = site.connect(&server);
    for connections in 1..=2 {
        assert_eq!(http::get(&mut client, "/").expect("a response").body, b"first");
        assert_eq!(http::get(&mut client, "/").expect("a response").status, 504);
        wait_until("the connection is closed", || upstream.has_ended(connections));
        assert_eq!(upstream.requests().len(), 2 * connections);
    }
}
