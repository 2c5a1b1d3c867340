//! The answers to probes: whether the server works on, and whether one more connection would be served.

use std::io::{Read, Write};
use std::net::TcpStream;

use sealion_testkit::http;
use sealion_testkit::server::Signal;

use crate::support::watch::Watched;
use crate::support::{LARGE, Site, begin, messages, wait_until};

#[test]
fn health_knows_draining() {
    let site = Site::new();
    site.add_pattern("large", LARGE);
    let mut watched = Watched::serve(&site, &[]);
    assert_eq!(watched.get("/health"), (200, "serving\n".to_owned()));
    assert_eq!(watched.get("/ready"), (200, "ready\n".to_owned()));
    let mut client = site.connect_slow_reader(&watched.server);
    begin(&mut client, "/large");
    watched.server.signal(Signal::TERM);
    wait_until("the server drains", || watched.get("/health") == (503, "draining\n".to_owned()));
    assert_eq!(watched.get("/ready").0, 503);
    assert_eq!(watched.scrape().get("sealion_draining"), 1.0);
    client.read_to_end().expect("the response goes on").assert_orderly();
    drop(client);
    assert_eq!(watched.server.wait().code(), Some(0));
}

#[test]
fn a_server_without_a_free_place_is_healthy_and_not_ready() {
    let site = Site::new();
    site.add("f", "content");
    site.add_pattern("large", LARGE);
    let watched = Watched::serve(&site, &["--max-connections", "1"]);
    let mut idle = site.connect(&watched.server);
    http::get(&mut idle, "/f").expect("an answer");
    wait_until("it would make room", || watched.get("/ready").0 == 200);
    let mut busy = site.connect_slow_reader(&watched.server);
    begin(&mut busy, "/large");
    assert_eq!((watched.get("/health").0, watched.get("/ready").0), (200, 503));
    drop(busy);
    wait_until("the place is free", || watched.get("/ready").0 == 200);
}

#[test]
fn numbers_need_the_token_and_probes_do_not() {
    let site = Site::new();
    let token = site.outside().join("token");
    std::fs::write(&token, "s3cret\nmore\n").expect("it is written");
    let watched = Watched::serve(&site, &["--metrics-token-file", token.to_str().expect("a name")]);
    for path in ["/metrics", "/top"] {
        assert_eq!(watched.get(path).0, 401);
        assert_eq!(watched.get_with(path, "Authorization: Bearer s3cre\r\n").0, 401);
        assert_eq!(watched.get_with(path, "authorization: Bearer s3cret\r\n").0, 200);
    }
    assert_eq!((watched.get("/health").0, watched.get("/ready").0), (200, 200));
    assert_eq!(watched.get("/").0, 404);
}

#[test]
fn who_reads_slowly_or_nonsense_holds_up_nobody() {
    let site = Site::new();
    let watched = Watched::serve(&site, &[]);
    // Four times as many as are read from at a time.
    let silent: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(watched.address).expect("it listens")).collect();
    assert_eq!(watched.get("/health").0, 200);
    for (bytes, answer, field) in [
        (&b"\x16\x03\x01 nonsense\r\n\r\n"[..], "HTTP/1.1 400 ", "\r\n"),
        (b"POST / HTTP/1.1\r\n\r\n", "HTTP/1.1 405 ", "\r\nAllow: GET, HEAD\r\n"),
    ] {
        let mut stream = TcpStream::connect(watched.address).expect("it listens");
        stream.write_all(bytes).expect("it is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert!(text.starts_with(answer) && text.contains(field), "{text}");
    }
    let mut endless = TcpStream::connect(watched.address).expect("it listens");
    // It is cut off, at the latest when its buffers are full.
    let cut = (0..10_000).any(|_| endless.write_all(&[b'x'; 1024]).is_err());
    assert!(cut, "a head of 10 MB is taken");
    drop(silent);
}

#[test]
fn probes_are_answered_while_others_connect_without_end() {
    let site = Site::new();
    let watched = Watched::serve(&site, &[]);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut silent = std::collections::VecDeque::new();
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    silent.extend(TcpStream::connect(watched.address));
                    if silent.len() > 100 {
                        silent.pop_front();
                    }
                }
            });
        }
        let probe = |_| -> std::io::Result<String> {
            let mut stream = TcpStream::connect(watched.address)?;
            stream.set_read_timeout(Some(sealion_testkit::PATIENCE))?;
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let unanswered = (0..100).map(probe).filter(|answer| !answer.as_ref().is_ok_and(|text| text.contains(" 200 ")));
        let unanswered: Vec<_> = unanswered.collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(unanswered.is_empty(), "{} of 100: {:?}", unanswered.len(), unanswered[0]);
    });
}

#[test]
fn head_gets_the_head_of_the_answer() {
    let site = Site::new();
    let watched = Watched::serve(&site, &[]);
    for (path, status) in
        [("/health", "200 OK"), ("/ready", "200 OK"), ("/metrics", "200 OK"), ("/none", "404 Not Found")]
    {
        let mut stream = TcpStream::connect(watched.address).expect("it listens");
        stream.write_all(format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("it is sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {head}");
        assert!(!head.contains("Content-Length: 0") && body.is_empty(), "{path}: {text}");
    }
}

#[test]
fn a_public_listener_is_pointed_out() {
    let site = Site::new();
    let open = ["--metrics", "0.0.0.0:0", "--access-log", "off"];
    let watched = Watched::of(site.serve_from_user_space(&open));
    wait_until("the warning", || messages(&watched.server, "any client that reaches 0.0.0.0") == 1);
}
