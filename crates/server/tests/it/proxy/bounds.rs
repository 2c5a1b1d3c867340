//! Bounds on what a server is asked: requests at a time, requests that wait, requests asked again, time in all.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use sealion_testkit::http::{self, Response};

use super::{is_orderly, serve, serve_to};
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, access_lines, get, wait_until};

#[test]
fn requests_beyond_the_bound_wait_for_their_turn_and_those_beyond_the_queue_are_refused() {
    let site = Site::new();
    let (go_on, told) = channel::<()>();
    let told = Mutex::new(told);
    let upstream = Upstream::answering(move |_| {
        told.lock().expect("no panic").recv().expect("the test goes on");
        ok(b"x")
    });
    let server = serve(&site, &upstream, "max_connections = 1\nqueue = 1\nconnect_timeout = '30s'");
    let ask = || {
        let mut client = site.connect(&server);
        thread::spawn(move || http::get(&mut client, "/").expect("a response"))
    };
    let first = ask();
    wait_until("the server has the first", || upstream.requests().len() == 1);
    // Of the others, one waits, whichever it is.
    let others = [ask(), ask(), ask()];
    wait_until("two are refused", || others.iter().filter(|other| other.is_finished()).count() == 2);
    assert_eq!((upstream.connections(), upstream.requests().len()), (1, 1));
    go_on.send(()).expect("the server goes on");
    go_on.send(()).expect("the server goes on");
    assert_eq!(first.join().expect("no panic").status, 200);
    let mut others: Vec<Response> = others.into_iter().map(|other| other.join().expect("no panic")).collect();
    others.sort_by_key(|response| response.status);
    assert_eq!(others.iter().map(|response| response.status).collect::<Vec<_>>(), [200, 503, 503]);
    assert_eq!(others[1].field("retry-after"), Some("1"));
    assert_eq!(upstream.requests().len(), 2);
    let lines = access_lines(&server, 4);
    let refused = lines.iter().find(|line| line.get("status") == "503").expect("a line");
    assert_eq!((refused.get("upstream"), refused.find("tries")), (&*upstream.url(), None));
}

#[test]
fn a_request_waits_for_its_turn_as_long_as_for_a_connection() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.request();
        accepted.read_to_end();
    });
    let server = serve(&site, &upstream, "max_connections = 1\nconnect_timeout = '200ms'");
    let mut first = site.connect(&server);
    first.send(get("/").as_bytes()).expect("it leaves");
    wait_until("the server has the first", || upstream.requests().len() == 1);
    let mut second = site.connect(&server);
    assert_eq!(http::get(&mut second, "/").expect("a response").status, 503);
    // The place of a client that leaves is free.
    first.reset().expect("it closes");
    wait_until("the connection is closed", || upstream.has_ended(1));
    second.send(get("/").as_bytes()).expect("it leaves");
    wait_until("the server has the next", || upstream.requests().len() == 2);
}

#[test]
fn another_server_is_asked_where_one_has_no_place() {
    let site = Site::new();
    let busy = Upstream::start(|accepted| {
        accepted.request();
        accepted.read_to_end();
    });
    let other = Upstream::answering(|_| ok(b"other"));
    let keys = "balance = 'first'\nmax_connections = 1\nqueue = 0";
    let server = serve_to(&site, &[&busy.url(), &other.url()], keys);
    let mut first = site.connect(&server);
    first.send(get("/").as_bytes()).expect("it leaves");
    wait_until("the server has the first", || busy.requests().len() == 1);
    assert_eq!(http::get(&mut site.connect(&server), "/").expect("a response").body, b"other");
}

/// Each request of its own would be asked three times.
#[test]
fn few_requests_are_asked_again_where_many_fail() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| drop(accepted.head()));
    let server = serve(&site, &upstream, "tries = 3");
    let mut client = site.connect(&server);
    for _ in 0..40 {
        assert_eq!(http::get(&mut client, "/").expect("a response").status, 502);
    }
    let tries = access_lines(&server, 40);
    let tries: usize = tries.iter().map(|line| line.find("tries").map_or(1, |n| n.parse().expect("a number"))).sum();
    assert!((45..=64).contains(&tries), "{tries} tries");
}

#[test]
fn a_request_has_a_time_in_all() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        let Some(request) = accepted.request() else { return };
        if request.line().ends_with("/silent") {
            accepted.read_to_end();
            return;
        }
        accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        // Without a pause that any other time-out would notice.
        for _ in 0..600 {
            accepted.write(b"1\r\nx\r\n");
            thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    let server = serve(&site, &upstream, "timeout = '300ms'");
    assert_eq!(http::get(&mut site.connect(&server), "/silent").expect("a response").status, 504);
    let mut client = site.connect(&server);
    client.send(get("/").as_bytes()).expect("it leaves");
    assert!(client.read_to_end().map_or(true, |ending| !is_orderly(&ending)));
    assert!(access_lines(&server, 2)[1].get("aborted").contains("did not end within 0.3 s"));
}

#[test]
fn an_answer_is_cut_whose_chunks_are_sizes_and_extensions_above_all() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        while let Some(request) = accepted.request() {
            accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let extension =
                if request.line().ends_with("/long") { ";e=".to_owned() + &"e".repeat(1000) } else { String::new() };
            let chunk = format!("1{extension}\r\nx\r\n");
            if !(0..100).all(|_| accepted.try_write(chunk.repeat(1000).as_bytes())) {
                return;
            }
            accepted.write(b"0\r\n\r\n");
        }
    });
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    assert!(http::get(&mut client, "/").expect("a response").body == [b'x'; 100_000]);
    client.send(get("/long").as_bytes()).expect("it leaves");
    assert!(client.read_to_end().map_or(true, |ending| !is_orderly(&ending)));
    let lines = access_lines(&server, 2);
    let aborted = lines[1].get("aborted");
    assert!(aborted.contains("too long sizes and extensions"), "{aborted}");
}

#[test]
fn a_content_is_refused_whose_chunks_are_sizes_and_extensions_above_all() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        while accepted.head().is_some() {
            let mut chunks = Vec::new();
            while !chunks.ends_with(b"\r\n0\r\n\r\n") {
                let Some(octet) = accepted.read(1) else { return };
                chunks.extend(octet);
            }
            accepted.write(&ok(chunks.len().to_string().as_bytes()));
        }
    });
    let server = serve(&site, &upstream, "");
    let post = |chunk: &str| {
        let head = http::head("POST", "/", &[("Transfer-Encoding", "chunked")]);
        let mut client = site.connect(&server);
        // The answer may come before the end.
        let _ = client.send((head + &chunk.repeat(10_000) + "0\r\n\r\n").as_bytes());
        http::read_response(&mut client, "POST").expect("an answer")
    };
    let passed = post("1\r\nx\r\n");
    let octets: usize = String::from_utf8(passed.body).expect("text").parse().expect("a number");
    assert!((10_000..12_000).contains(&octets), "{octets} octets for 10,000: not a chunk for each");
    assert_eq!(post(&format!("1;{}\r\nx\r\n", "e".repeat(1000))).status, 400);
}

#[test]
fn a_queue_needs_a_bound() {
    let table = "[[upstream]]\nname = 'a'\nservers = [{ url = 'http://a' }]\nqueue = 1";
    let problems = Site::new().config("").table(table).problems();
    assert!(problems.contains("upstream.queue: has no effect without max_connections"), "{problems}");
}
