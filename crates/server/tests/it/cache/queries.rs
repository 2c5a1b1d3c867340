//! The method QUERY (RFC 10008): forwarded with its content, and stored by it where a rule says so.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sealion_testkit::http::{self, Response};

use super::{Cached, answer, status};
use crate::support::upstream::Upstream;
use crate::support::{Site, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\nETag: \"one\"\r\nAccept-Query: \"application/json\"\r\n";
const ON: &str = "query_content = '1KiB'";
const JSON: (&str, &str) = ("Content-Type", "application/json");

/// An origin that answers with a number, and with the request that it got.
fn counting(fields: &'static str) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::answering(move |request| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        answer(200, fields, format!("{n} {} {}", request.line(), String::from_utf8_lossy(&request.body)).as_bytes())
    })
}

#[track_caller]
fn query(cached: &Cached, target: &str, fields: &[(&str, &str)], content: &str) -> Response {
    let mut client = cached.site.connect(cached.server());
    let length = content.len().to_string();
    let fields = [fields, &[("Content-Length", &*length)]].concat();
    let request = [http::head("QUERY", target, &fields).as_bytes(), content.as_bytes()].concat();
    client.send(&request).expect("the request leaves");
    http::read_response(&mut client, "QUERY").expect("a response")
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).expect("text")
}

#[test]
fn a_query_is_stored_by_its_content() {
    let cached = Cached::with(counting(FRESH), "", ON);
    let first = query(&cached, "/a", &[JSON], "{1}");
    assert_eq!((text(&first), status(&first).as_str()), ("0 QUERY /a {1}", "uri-miss"));
    for _ in 0..2 {
        let again = query(&cached, "/a", &[JSON], "{1}");
        assert_eq!((text(&again), status(&again).as_str()), ("0 QUERY /a {1}", "hit"));
        assert_eq!(again.field("accept-query"), Some("\"application/json\""));
    }
    let unchanged = query(&cached, "/a", &[JSON, ("If-None-Match", "\"one\"")], "{1}");
    assert_eq!(unchanged.status, 304);
    let whole = query(&cached, "/a", &[JSON, ("Range", "bytes=0-1")], "{1}");
    assert_eq!((whole.status, text(&whole)), (200, "0 QUERY /a {1}"));
    assert_eq!(cached.fetches(), 1);
    // Another content, type, coding, URL or method is another response.
    assert_eq!(text(&query(&cached, "/a", &[JSON], "{2}")), "1 QUERY /a {2}");
    assert_eq!(text(&query(&cached, "/a", &[("Content-Type", "text/plain")], "{1}")), "2 QUERY /a {1}");
    assert_eq!(text(&query(&cached, "/a", &[JSON, ("Content-Encoding", "gzip")], "{1}")), "3 QUERY /a {1}");
    assert_eq!(text(&query(&cached, "/b", &[JSON], "{1}")), "4 QUERY /b {1}");
    assert_eq!(text(&cached.get("/a", &[])), "5 GET /a ");
    assert_eq!(text(&query(&cached, "/a", &[JSON], "{1}")), "0 QUERY /a {1}");
    assert_eq!(text(&cached.get("/a", &[])), "5 GET /a ");
}

#[test]
fn a_query_is_forwarded_where_it_is_not_to_be_stored() {
    let long = "x".repeat(1025);
    type Fields = &'static [(&'static str, &'static str)];
    const COOKIE: (&str, &str) = ("Cookie", "session=1");
    let rows: [(&str, Fields, &str); 5] = [
        ("", &[JSON], "{1}"),
        (ON, &[JSON], &long),
        (ON, &[JSON], ""),
        ("query_content = '1KiB', bypass_cookies = ['session']", &[JSON, COOKIE], "{1}"),
        (ON, &[JSON, ("Authorization", "Basic eDp5")], "{1}"),
    ];
    for (rule, fields, content) in rows {
        let cached = Cached::with(counting(FRESH), "", rule);
        for n in 0..3 {
            let got = query(&cached, "/a", fields, content);
            assert_eq!(text(&got), format!("{n} QUERY /a {content}"), "{rule} {fields:?}");
        }
        let request = cached.origin.requests().pop().expect("it came");
        assert_eq!(request.field("content-type"), "application/json");
    }
}

#[test]
fn a_write_and_a_purge_remove_what_was_stored_for_queries_of_the_url() {
    let cached = Cached::with(counting(FRESH), "", "query_content = '1KiB', purge_from = ['127.0.0.1']");
    assert_eq!(text(&query(&cached, "/a", &[JSON], "{1}")), "0 QUERY /a {1}");
    assert_eq!(cached.ask("POST", "/a", &[]).status, 200);
    assert_eq!(text(&query(&cached, "/a", &[JSON], "{1}")), "2 QUERY /a {1}");
    assert_eq!(cached.ask("PURGE", "/a", &[]).status, 200);
    assert_eq!(text(&query(&cached, "/a", &[JSON], "{1}")), "3 QUERY /a {1}");
    // QUERY is safe: it removes nothing.
    assert_eq!(text(&cached.get("/a", &[])), "4 GET /a ");
    query(&cached, "/a", &[JSON], "{2}");
    assert_eq!(text(&cached.get("/a", &[])), "4 GET /a ");
}

#[test]
fn the_server_gets_the_query_of_the_key() {
    let cached = Cached::with(counting(FRESH), "", "query_content = '1KiB', drop_parameters = ['utm']");
    assert_eq!(text(&query(&cached, "/a?x=1&utm=2", &[JSON], "{1}")), "0 QUERY /a?x=1 {1}");
    assert_eq!(text(&query(&cached, "/a?x=1", &[JSON], "{1}")), "0 QUERY /a?x=1 {1}");
    let long = "x".repeat(1025);
    assert_eq!(text(&query(&cached, "/a?x=1&utm=2", &[JSON], &long)), format!("1 QUERY /a?x=1 {long}"));
}

#[test]
fn a_stale_query_is_validated_with_its_content() {
    let seen = Mutex::new(Vec::new());
    let origin = Upstream::answering(move |request| {
        let mut seen = seen.lock().expect("no panic");
        seen.push(String::from_utf8_lossy(&request.body).into_owned());
        match request.all("if-none-match").is_empty() {
            true => answer(200, "Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"one\"\r\n", b"the body"),
            false => {
                assert_eq!(seen.last().map(String::as_str), Some("{1}"));
                b"HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nCache-Control: max-age=1000\r\n\r\n".to_vec()
            }
        }
    });
    let cached = Cached::with(origin, "", ON);
    assert_eq!(query(&cached, "/a", &[JSON], "{1}").body, b"the body");
    assert_eq!(query(&cached, "/a", &[JSON], "{1}").body, b"the body");
    assert_eq!(status(&query(&cached, "/a", &[JSON], "{1}")), "hit");
    let methods: Vec<_> = cached.origin.requests().iter().map(|request| request.line().to_owned()).collect();
    assert_eq!(methods, ["QUERY /a", "QUERY /a"]);
}

/// The content is at hand: another try has it, and the client's is not used up.
#[test]
fn a_query_is_sent_again_with_its_content() {
    let tries = AtomicUsize::new(0);
    let origin = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                return;
            }
            accepted.write(&answer(200, FRESH, &request.body));
        }
    });
    let cached = Cached::with(origin, "", ON);
    let got = query(&cached, "/a", &[JSON], "{1}");
    assert_eq!((got.status, text(&got)), (200, "{1}"));
    assert_eq!(cached.fetches(), 2);
}

#[test]
fn a_client_that_sends_less_than_it_announced_gets_no_response_stored() {
    let cached = Cached::with(counting(FRESH), "", ON);
    let mut client = cached.site.connect(cached.server());
    let fields = [JSON, ("Content-Length", "4")];
    client.send(&[http::head("QUERY", "/a", &fields).as_bytes(), b"{1}"].concat()).expect("the request leaves");
    drop(client);
    assert_eq!(text(&query(&cached, "/a", &[JSON], "{1}")), "0 QUERY /a {1}");
    assert_eq!(cached.fetches(), 1);
}

/// Half of `max_buffered` is for contents that need not wait.
#[test]
fn a_content_without_room_is_forwarded_and_its_response_is_not_stored() {
    let cached = Cached::with(counting(FRESH), "[limits]\nmax_buffered = '4KiB'", "query_content = '4KiB'");
    let (short, long) = ("s".repeat(500), "l".repeat(2100));
    for n in 0..2 {
        assert_eq!(text(&query(&cached, "/a", &[JSON], &long)), format!("{n} QUERY /a {long}"));
    }
    // The memory of one is free again for the next.
    for n in 2..20 {
        let target = format!("/b{n}");
        for expected in ["uri-miss", "hit"] {
            let got = query(&cached, &target, &[JSON], &short);
            assert_eq!(text(&got), format!("{n} QUERY {target} {short}"));
            assert_eq!(status(&got), expected, "{target}");
        }
    }
}

/// Each byte comes within `request_timeout`, and the server's `answer_timeout` is a minute.
#[test]
fn a_content_that_drips_is_answered_408_before_a_server_is_asked() {
    let limits = "[limits]\nrequest_timeout = '1s'\nmin_receive_rate = 1000\nmin_send_rate_window = '1s'\n";
    let cached = Cached::with(counting(FRESH), limits, ON);
    let mut client = cached.site.connect(cached.server());
    client.send(http::head("QUERY", "/a", &[JSON, ("Content-Length", "1000")]).as_bytes()).expect("it leaves");
    wait_until("it is refused", || {
        let _ = client.send(b"x");
        cached.server().lines().iter().any(|line| line.text.contains("status=408"))
    });
    assert_eq!(http::read_response(&mut client, "QUERY").expect("a response").status, 408);
    assert_eq!(cached.fetches(), 0);
}

#[test]
fn a_rule_that_does_not_forward_the_method_cannot_store_its_responses() {
    let problems = |methods: &str| {
        let rule = format!("proxy = {{ to = 'http://127.0.0.1:1', {methods}cache = {{ query_content = '1KiB' }} }}");
        Site::new().config(&rule).table("[cache]\ndirectories = ['cache']\n").problems()
    };
    let words = "proxy.cache.query_content: has no effect: the rule does not forward QUERY";
    assert!(problems("methods = ['GET'], ").contains(words), "{}", problems("methods = ['GET'], "));
    for methods in ["", "methods = ['GET', 'QUERY'], "] {
        assert!(!problems(methods).contains("query_content"), "{methods}");
    }
}
