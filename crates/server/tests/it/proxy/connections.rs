//! Connections to servers, between requests.

use sealion_testkit::http;

use super::{post, serve};
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, wait_until};

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
