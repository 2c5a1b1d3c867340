//! No-Vary-Search: responses that answer several queries.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use sealion_testkit::http;

use super::sharing::{LENGTH, body, in_halves, second_half};
use super::{Cached, answer, counting, status};
use crate::support::begin;
use crate::support::upstream::Upstream;

const UTM: &str = "Cache-Control: max-age=1000\r\nNo-Vary-Search: params=(\"utm\")\r\n";
const ON: &str = "no_vary_search = true";

#[test]
fn a_response_answers_queries_that_differ_in_ignored_parameters() {
    let cached = Cached::with(counting(UTM), "", ON);
    assert_eq!(cached.get("/p?a=1&utm=x", &[]).body, b"body 0");
    for query in ["a=1&utm=x", "utm=y&a=1", "a=1", "%61=1&&utm", "a=1&utm=x&utm=y"] {
        let again = cached.get(&format!("/p?{query}"), &[]);
        assert_eq!((again.body.as_slice(), status(&again).as_str()), (&b"body 0"[..], "hit"), "{query}");
        assert_eq!(again.field("no-vary-search"), Some("params=(\"utm\")"));
    }
    let head = cached.ask("HEAD", "/p?utm=z&a=1", &[]);
    assert_eq!((head.status, status(&head).as_str()), (200, "hit"));
    let part = cached.get("/p?utm=z&a=1", &[("Range", "bytes=0-3")]);
    assert_eq!((part.status, part.body.as_slice()), (206, &b"body"[..]));
    assert_eq!(cached.fetches(), 1);
    for (n, target) in ["/p?a=2", "/p", "/p?a=1&b=1", "/p?b=1&a=1", "/P?a=1"].into_iter().enumerate() {
        assert_eq!(cached.get(target, &[]).body, format!("body {}", n + 1).as_bytes(), "{target}");
    }
    // Without any parameter that counts it is the URL without query.
    assert_eq!(cached.get("/p?utm=1", &[]).body, b"body 2");
}

#[test]
fn the_order_of_parameters_counts_unless_the_field_says_otherwise() {
    let cached = Cached::with(counting("Cache-Control: max-age=1000\r\nNo-Vary-Search: key-order\r\n"), "", ON);
    assert_eq!(cached.get("/p?a=1&b=2", &[]).body, b"body 0");
    assert_eq!(cached.get("/p?b=2&a=1", &[]).body, b"body 0");
    assert_eq!(cached.get("/p?b=2&b=3&a=1", &[]).body, b"body 1");
    assert_eq!(cached.get("/p?a=1&b=3&b=2", &[]).body, b"body 2");
    assert_eq!(cached.get("/p?a=1&b=2&b=3", &[]).body, b"body 1");
}

#[test]
fn a_rule_that_does_not_say_so_and_an_invalid_field_tell_all_queries_apart() {
    let wrong = "Cache-Control: max-age=1000\r\nNo-Vary-Search: params=(\"utm\"), except=(\"a\")\r\n";
    for (fields, rule) in [(UTM, ""), (wrong, ON)] {
        let cached = Cached::with(counting(fields), "", rule);
        for (n, target) in ["/p?utm=1", "/p?utm=2", "/p"].into_iter().enumerate() {
            assert_eq!(cached.get(target, &[]).body, format!("body {n}").as_bytes(), "{fields} {rule}");
        }
        let again = cached.get("/p?utm=1", &[]);
        assert_eq!((again.body.as_slice(), status(&again).as_str()), (&b"body 0"[..], "hit"), "{fields} {rule}");
    }
}

#[test]
fn hosts_fields_and_cookies_of_the_key_and_variants_stay_apart() {
    let fields = "Cache-Control: max-age=1000\r\nNo-Vary-Search: except=()\r\nVary: X-Lang\r\n";
    let rule =
        "no_vary_search = true, key_headers = ['X-User'], key_cookies = ['session'], key_values = ['{query.token}']";
    let cached = Cached::with(counting(fields), "", rule);
    let rows: &[(&str, &[(&str, &str)])] = &[
        ("/p?x=", &[]),
        ("/p?x=", &[("Host", "other.example")]),
        ("/p?x=", &[("X-User", "ada")]),
        ("/p?x=", &[("X-User", "bob")]),
        ("/p?x=", &[("Cookie", "session=1")]),
        ("/p?x=", &[("X-Lang", "de")]),
        ("/q?x=", &[]),
        // A rule that has a parameter in its key knows better than the field.
        ("/p?token=1&x=", &[]),
        ("/p?token=2&x=", &[]),
    ];
    for round in 0..3 {
        for (n, (target, fields)) in rows.iter().enumerate() {
            let got = cached.get(&format!("{target}{round}"), fields);
            assert_eq!(got.body, format!("body {n}").as_bytes(), "{target}{round} {fields:?}");
        }
    }
    assert_eq!(cached.fetches(), rows.len());
}

#[test]
fn a_response_without_the_field_answers_its_own_query_alone() {
    let count = AtomicUsize::new(0);
    let origin = Upstream::answering(move |request| {
        let fields = if request.line().contains("plain") { "Cache-Control: max-age=1000\r\n" } else { UTM };
        answer(200, fields, format!("body {}", count.fetch_add(1, Ordering::Relaxed)).as_bytes())
    });
    let cached = Cached::with(origin, "", ON);
    assert_eq!(cached.get("/p?a=1&utm=1", &[]).body, b"body 0");
    assert_eq!(cached.get("/p?plain=1", &[]).body, b"body 1");
    // It is not the page of another query, whichever field was known of the path when it was asked for.
    assert_eq!(cached.get("/p?plain=1&utm=2", &[]).body, b"body 2");
    assert_eq!(cached.get("/p?plain=1", &[]).body, b"body 1");
    assert_eq!(cached.get("/p?plain=1&utm=2", &[]).body, b"body 2");
    assert_eq!(cached.get("/p?a=2&utm=2", &[]).body, b"body 3");
    assert_eq!(cached.get("/p?a=2&utm=3", &[]).body, b"body 3");
    assert_eq!(cached.get("/p?plain=1&utm=4", &[]).body, b"body 4");
}

#[test]
fn a_purge_or_a_write_to_one_of_the_urls_removes_what_answers_it() {
    let rule = "no_vary_search = true, purge_from = ['127.0.0.1']";
    let mut cached = Cached::with(counting(UTM), "", rule);
    let mut n = 0;
    for (method, target) in [("PURGE", "/p?a=1&utm=9"), ("POST", "/p?utm=8&a=1"), ("PURGE", "/p?a=1")] {
        assert_eq!(cached.get("/p?a=1&utm=1", &[]).body, format!("body {n}").as_bytes(), "{method}");
        assert_eq!(cached.get("/p?a=1&utm=2", &[]).body, format!("body {n}").as_bytes(), "{method}");
        assert_eq!(cached.ask(method, target, &[]).status, 200);
        // The answer to POST is counted by the origin.
        n += if method == "POST" { 2 } else { 1 };
        assert_eq!(cached.get("/p?a=1&utm=1", &[]).body, format!("body {n}").as_bytes(), "{method}");
    }
    // Purges of another path leave it, also after a restart.
    assert_eq!(cached.ask("PURGE", "/q?a=1", &[]).status, 200);
    assert_eq!(cached.get("/p?a=1&utm=3", &[]).body, format!("body {n}").as_bytes());
    super::disk::wait_for_objects(&cached, 1);
    assert_eq!(cached.ask("PURGE", "/p?utm=7&a=1", &[]).status, 200);
    cached.restart();
    assert_ne!(cached.get("/p?a=1&utm=1", &[]).body, format!("body {n}").as_bytes());
}

/// Writes come by a rule of their own, without the key, and their responses name further URLs.
#[test]
fn a_write_by_another_rule_removes_the_responses_to_all_queries_of_the_path() {
    let count = AtomicUsize::new(0);
    let origin = Upstream::answering(move |request| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        match request.line() {
            "POST /w" => answer(201, "Location: /p?a=1\r\nContent-Location: /q\r\n", b""),
            _ => answer(200, UTM, format!("body {n}").as_bytes()),
        }
    });
    let mut cached = Cached::stopped(origin, "", "no_vary_search = true");
    cached.more = "{ path = '/', match = { method = ['POST'] }, proxy = { to = 'app', cache = {} } }";
    cached.restart();
    for (target, write) in [("/p?a=1&utm=1", "/p?a=1"), ("/p?a=1&utm=1", "/w"), ("/q?a=1&utm=1", "/w")] {
        let before = cached.get(target, &[]);
        assert_eq!(status(&cached.get(&format!("{target}&utm=2"), &[])), "hit", "{write}");
        assert!(cached.ask("POST", write, &[]).status < 300);
        let after = cached.get(&format!("{target}&utm=2"), &[]);
        assert!(status(&after) != "hit" && after.body != before.body, "{target} {write}");
    }
}

#[test]
fn values_that_are_no_text_have_responses_of_their_own() {
    let cached = Cached::with(counting(UTM), "", ON);
    assert_eq!(cached.get("/p?id=%f5&utm=1", &[]).body, b"body 0");
    assert_eq!(cached.get("/p?id=%f6&utm=1", &[]).body, b"body 1");
    assert_eq!(cached.get("/p?id=%F5&utm=2", &[]).body, b"body 0");
}

#[test]
fn the_order_that_shows_a_url_finds_the_response_that_answers_it() {
    let cached = Cached::with(counting(UTM), "", ON);
    assert_eq!(cached.get("/p?a=1&utm=1", &[]).body, b"body 0");
    super::disk::wait_for_objects(&cached, 1);
    let shown = super::orders::succeeds(&cached, &["cache", "https://localhost/p?utm=2&a=1"]);
    assert!(shown.contains("status 200, 6 octets"), "{shown}");
    let other = super::orders::order(&cached, &["cache", "https://localhost/p?a=2"]);
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && said.contains("unless by key_headers, key_cookies, No-Vary-Search"), "{said}");
}

#[test]
fn after_a_restart_the_first_response_of_a_path_tells_how_the_others_are_found() {
    let mut cached = Cached::with(counting(UTM), "", ON);
    assert_eq!(cached.get("/p?a=1&utm=1", &[]).body, b"body 0");
    assert_eq!(cached.get("/p?a=2&utm=1", &[]).body, b"body 1");
    super::disk::wait_for_objects(&cached, 2);
    cached.restart();
    assert_eq!(cached.get("/p?a=1&utm=3", &[]).body, b"body 2");
    let found = cached.get("/p?a=2&utm=3", &[]);
    assert_eq!((found.body.as_slice(), status(&found).as_str()), (&b"body 1"[..], "hit"));
}

#[test]
fn requests_whose_ignored_parameters_differ_share_one_fetch() {
    let (origin, go_on) = in_halves("max-age=1000\r\nNo-Vary-Search: params=(\"utm\")", second_half);
    let cached = Arc::new(Cached::with(origin, "", ON));
    go_on.send(()).expect("the origin waits");
    assert!(cached.get("/p?utm=0", &[]).body == body());
    let (first_bytes, came) = mpsc::channel();
    let readers: Vec<_> = (1..6)
        .map(|n| {
            let (cached, first_bytes) = (Arc::clone(&cached), first_bytes.clone());
            thread::spawn(move || {
                let mut client = cached.site.connect(cached.server());
                begin(&mut client, &format!("/p?a=1&utm={n}"));
                let mut body = client.read(1000).expect("bytes");
                first_bytes.send(()).expect("the test listens");
                body.extend_from_slice(&client.read(LENGTH - 1000).expect("the rest"));
                body
            })
        })
        .collect();
    for _ in 0..5 {
        came.recv().expect("bytes");
    }
    assert_eq!(cached.fetches(), 2);
    go_on.send(()).expect("the origin waits");
    for reader in readers {
        assert!(reader.join().expect("no panic") == body());
    }
    assert_eq!(cached.fetches(), 2);
}

/// The origin removes the field by a validation: the stored response answers no other query any more.
#[test]
fn a_validation_without_the_field_ends_what_it_allowed() {
    let count = AtomicUsize::new(0);
    let origin = Upstream::answering(move |request| {
        match request.all("if-none-match").is_empty() {
        true => {
            let fields = "Cache-Control: max-age=10\r\nAge: 20\r\nETag: \"one\"\r\nNo-Vary-Search: params=(\"utm\")\r\n";
            answer(200, fields, format!("body {}", count.fetch_add(1, Ordering::Relaxed)).as_bytes())
        }
        false => b"HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nNo-Vary-Search: key-order\r\nCache-Control: max-age=1000\r\n\r\n"
            .to_vec(),
    }
    });
    let cached = Cached::with(origin, "", ON);
    assert_eq!(cached.get("/p?utm=1", &[]).body, b"body 0");
    assert_eq!(cached.get("/p?utm=1", &[]).body, b"body 0");
    assert_eq!(cached.get("/p?utm=2", &[]).body, b"body 1");
}

#[test]
fn a_path_with_many_fields_is_bounded() {
    let fields = format!("Cache-Control: max-age=1000\r\nNo-Vary-Search: params=(\"{}\")\r\n", "u".repeat(2000));
    let cached = Cached::with(counting(fields.leak()), "", ON);
    let name = "u".repeat(2000);
    assert_eq!(cached.get("/p", &[]).body, b"body 0");
    assert_eq!(cached.get(&format!("/p?{name}=1"), &[]).body, b"body 1");
    let mut client = cached.site.connect(cached.server());
    assert_eq!(http::request(&mut client, "GET", "/p", &[]).expect("a response").body, b"body 0");
}
