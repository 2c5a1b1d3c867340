//! `sealion purge` and `sealion cache`.

use std::process::{Command, Output};

use super::{Cached, answer, counting, status};
use crate::support::PROGRAM;
use crate::support::upstream::Upstream;
use crate::support::wait_until;

const TAGGED: &str = "Cache-Control: max-age=1000\r\nCache-Tag: news, front\r\nETag: \"one\"\r\n";

/// Runs a command for the server of the test.
pub(super) fn order(cached: &Cached, arguments: &[&str]) -> Output {
    let pid = cached.server().pid().to_string();
    let mut command = Command::new(PROGRAM);
    command.args(arguments).args(["--pid", &pid]).output().expect("the program runs")
}

#[track_caller]
pub(super) fn succeeds(cached: &Cached, arguments: &[&str]) -> String {
    let output = order(cached, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
pub(super) fn purge(cached: &Cached, arguments: &[&str]) {
    succeeds(cached, &[&["purge"], arguments].concat());
}

#[test]
fn a_purge_reaches_what_it_names_and_nothing_else() {
    let rows: [(&[&str], bool); 10] = [
        (&["https://localhost/a?b"], true),
        (&["https://LOCALHOST/a?b"], true),
        (&["https://localhost/a"], false),
        (&["https://other.example/a?b", "https://localhost/a?b"], true),
        (&["--prefix", "https://localhost/a"], true),
        (&["--prefix", "https://localhost/b"], false),
        (&["--tag", "news"], true),
        (&["--tag", "new"], false),
        (&["--site", "localhost"], true),
        (&["--all"], true),
    ];
    for (arguments, reaches) in rows {
        let cached = Cached::new(counting(TAGGED));
        let host = [("Host", "localhost")];
        assert_eq!(cached.get("/a?b", &host).body, b"body 0");
        if !reaches {
            // A fetch under way may have what is purged.
            super::disk::wait_for_objects(&cached, 1);
        }
        succeeds(&cached, &[&["purge"], arguments].concat());
        let expected = if reaches { &b"body 1"[..] } else { b"body 0" };
        assert_eq!(cached.get("/a?b", &host).body, expected, "{arguments:?}");
    }
}

#[test]
fn a_purge_reaches_a_url_however_the_rule_stores_its_query() {
    for (rule, stored, purged) in [
        ("query = 'sorted'", "/a?d=2&c=1", "/a?d=2&c=1"),
        ("query = 'sorted'", "/a?d=2&&c=1&", "/a?c=1&d=2"),
        ("query = 'sorted'", "/a?%62=1&c=2&a=2", "/a?b=1&c=2&a=2"),
        ("query = 'none'", "/a?c=1", "/a?d"),
        ("drop_parameters = ['utm_*']", "/a?c=1&utm_a=2", "/a?c=1"),
        ("drop_parameters = ['utm_*']", "/a?utm%5Fa=2&c=1", "/a?c=1&utm_b=3"),
        ("drop_parameters = ['caf%c3%a9', 'a%5Fb']", "/a?caf%C3%A9=1&c=1&a_b=2", "/a?c=1"),
    ] {
        let cached = Cached::with(counting(TAGGED), "", rule);
        assert_eq!(cached.get(stored, &[]).body, b"body 0");
        purge(&cached, &[&format!("https://localhost{purged}")]);
        assert_eq!(cached.get(stored, &[]).body, b"body 1", "{rule} {stored}");
    }
}

#[test]
fn a_purge_follows_the_rule_of_its_own_url_alone() {
    let other = "[[site]]\nnames = ['other.test']\nproxy = { to = 'http://127.0.0.1:9', cache = { query = 'none' } }\n";
    let cached = Cached::with(counting(TAGGED), other, "");
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    purge(&cached, &["https://localhost/a?x"]);
    assert_eq!(cached.get("/a", &[]).body, b"body 0");
    purge(&cached, &["https://localhost/a"]);
    assert_eq!(cached.get("/a", &[]).body, b"body 1");
}

#[test]
fn a_soft_purge_has_the_response_validated() {
    let origin = Upstream::answering(|request| match super::has_field(request, "if-none-match") {
        true => b"HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nCache-Control: max-age=1000\r\n\r\n".to_vec(),
        false => answer(200, TAGGED, b"the body"),
    });
    let cached = Cached::new(origin);
    cached.get("/a", &[]);
    assert_eq!(status(&cached.get("/a", &[])), "hit");
    succeeds(&cached, &["purge", "--tag", "front", "--soft"]);
    let validated = cached.get("/a", &[]);
    assert_eq!((status(&validated).as_str(), validated.body.as_slice()), ("stale", &b"the body"[..]));
    assert_eq!(status(&cached.get("/a", &[])), "hit");
    assert_eq!(cached.fetches(), 2);
}

#[test]
fn a_response_of_another_cache_that_is_older_than_a_purge_is_not_kept() {
    // That cache has not been purged, or not yet.
    let cached = Cached::new(counting("Cache-Control: max-age=1000\r\nAge: 10\r\n"));
    let host = [("Host", "localhost")];
    for _ in 0..2 {
        assert_eq!(cached.get("/a", &host).body, b"body 0");
    }
    succeeds(&cached, &["purge", "https://localhost/a"]);
    for n in 1..4 {
        assert_eq!(cached.get("/a", &host).body, format!("body {n}").as_bytes());
    }
}

#[test]
fn what_is_no_url_is_refused_with_an_example() {
    let cached = Cached::new(counting(TAGGED));
    let output = order(&cached, &["purge", "/a"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("https://example.org/news"), "{output:?}");
    assert!(!order(&cached, &["purge"]).status.success());
}

#[test]
fn the_cache_shows_what_is_stored_and_why_something_is_not() {
    let origin = Upstream::answering(|request| match request.line() {
        "GET /private" => answer(200, "Cache-Control: private\r\n", b"mine"),
        "GET /vary" => answer(200, "Cache-Control: max-age=1000\r\nVary: X-Lang\r\n", b"a"),
        _ => answer(200, TAGGED, b"the body"),
    });
    let cached = Cached::new(origin);
    let host = [("Host", "localhost")];
    for target in ["/a", "/private", "/vary"] {
        cached.get(target, &host);
    }
    wait_until("all are stored", || succeeds(&cached, &["cache"]).contains(": 3 responses"));
    let shown = succeeds(&cached, &["cache", "https://localhost/a"]);
    assert!(shown.contains("status 200, 8 octets") && shown.contains("etag: "), "{shown}");
    let shown = succeeds(&cached, &["cache", "https://localhost/vary"]);
    assert!(shown.contains("variants by x-lang: 1\n  x-lang: status 200, 1 octets"), "{shown}");
    let output = order(&cached, &["cache", "https://localhost/private"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("was not stored: private"), "{output:?}");
}

#[test]
fn the_cache_shows_what_a_purge_by_tag_has_removed() {
    let cached = Cached::new(counting(TAGGED));
    cached.get("/a", &[]);
    let shown = || succeeds(&cached, &["cache", "https://localhost/a"]);
    wait_until("it is stored", || order(&cached, &["cache", "https://localhost/a"]).status.success());
    assert!(!shown().contains("purge"), "{}", shown());
    succeeds(&cached, &["purge", "--tag", "front", "--soft"]);
    assert!(shown().contains("made stale by a purge"), "{}", shown());
    succeeds(&cached, &["purge", "--tag", "news"]);
    wait_until("its file is gone", || {
        let output = order(&cached, &["cache", "https://localhost/a"]);
        let is_gone = !output.status.success();
        assert!(is_gone || String::from_utf8_lossy(&output.stdout).contains("PURGED"), "{output:?}");
        is_gone
    });
}

#[test]
fn the_variants_of_a_url_are_bounded() {
    let origin = Upstream::answering(|request| {
        answer(200, "Cache-Control: max-age=1000\r\nVary: X-Lang\r\n", request.all("x-lang").concat().as_bytes())
    });
    let cached = Cached::with(origin, "", "variants = 3");
    for n in 0..10 {
        let language = n.to_string();
        assert_eq!(cached.get("/a", &[("X-Lang", &language)]).body, language.as_bytes());
        let last = format!("x-lang:{n}: status 200");
        wait_until("it is listed", || {
            let output = order(&cached, &["cache", "https://localhost/a"]);
            String::from_utf8_lossy(&output.stdout).contains(&last)
        });
    }
    let shown = succeeds(&cached, &["cache", "https://localhost/a"]);
    assert!(shown.contains("variants by x-lang: 3\n") && shown.lines().count() == 4, "{shown}");
    // Three and their list.
    wait_until("the others are removed", || super::disk::objects(&cached.directory).len() == 4);
    for (language, expected) in [("9", "hit"), ("7", "hit"), ("6", "vary-miss")] {
        assert_eq!(status(&cached.get("/a", &[("X-Lang", language)])), expected, "{language}");
    }
    // A write removes all of them, and of those on their way it removes no file.
    let is_listed = || succeeds(&cached, &["cache", "https://localhost/a"]).contains("x-lang:6: ");
    wait_until("the last one is listed", is_listed);
    assert_eq!(cached.ask("POST", "/a", &[]).status, 200);
    wait_until("all are removed", || super::disk::objects(&cached.directory).is_empty());
}

#[test]
fn a_purge_of_a_url_says_what_it_found() {
    let cached = Cached::new(counting("Cache-Control: max-age=1000\r\nVary: X-Lang\r\n"));
    for lang in ["de", "fr"] {
        cached.get("/a", &[("X-Lang", lang)]);
    }
    cached.get("/%7Ebob", &[]);
    cached.get("/c~d", &[]);
    super::disk::wait_for_objects(&cached, 7);
    let nothing = "nothing was stored for it, unless by key_headers, key_cookies, No-Vary-Search, a rewrite to a script or another spelling";
    let url = "https://localhost/a";
    assert_eq!(succeeds(&cached, &["purge", url]), format!("{url} is purged: 2 responses\n"));
    assert_eq!(succeeds(&cached, &["purge", url]), format!("{url} is purged: {nothing}\n"));
    assert_eq!(
        succeeds(&cached, &["purge", "--soft", "https://localhost/%7Ebob"]),
        "https://localhost/%7Ebob is stale: 1 response\n"
    );
    // Every spelling of a URL is reached; the one of the order and the usual one are counted.
    assert_eq!(
        succeeds(&cached, &["purge", "https://localhost/%63%7Ed"]),
        "https://localhost/%63%7Ed is purged: 1 response\n"
    );
    let fetches = cached.fetches();
    assert_eq!(
        succeeds(&cached, &["purge", "https://LOCALHOST:443/~bob"]),
        format!("https://LOCALHOST:443/~bob is purged: {nothing}\n")
    );
    cached.get("/%7Ebob", &[]);
    assert_eq!(cached.fetches(), fetches + 1);
    let all = succeeds(&cached, &["purge", "--all"]);
    assert!(
        all.starts_with("everything is purged: ")
            && all.ends_with(" files, which are removed from the disk from now on\n"),
        "{all}"
    );
    assert_eq!(
        succeeds(&cached, &["purge", "--prefix", "https://localhost/"]),
        "everything beneath https://localhost/ is purged\n"
    );
}

#[test]
fn a_check_looks_at_the_directories() {
    let cached = Cached::stopped(counting(TAGGED), "", "");
    let warnings = |cached: &Cached| {
        let output = cached.config().check();
        assert!(output.status.success(), "{output:?}");
        let lines = String::from_utf8(output.stdout).expect("text");
        lines.lines().filter(|line| line.contains("cache.")).map(str::to_owned).collect::<Vec<_>>()
    };
    let missing = warnings(&cached);
    assert!(missing.len() == 1 && missing[0].contains("does not exist: the start makes it"), "{missing:?}");
    std::fs::create_dir(&cached.directory).expect("a directory");
    assert_eq!(warnings(&cached), [""; 0]);
    let large = Cached { keys: ("size = '1000TB'", ""), ..cached };
    let large = warnings(&large);
    assert!(large.len() == 1 && large[0].contains("more than the whole file system"), "{large:?}");
}
