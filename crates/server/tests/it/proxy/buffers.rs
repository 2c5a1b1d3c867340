//! Contents that wait here for the slower side.

use std::thread;
use std::time::Duration;

use sealion_testkit::http;

use super::{is_orderly, post};
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, Tmpfs, get, messages, read_until_cut, wait_for_message, wait_until};

/// Bytes that no socket's buffer takes.
const LONG: usize = 32 << 20;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn rule(site: &Site, upstream: &Upstream, keys: &str) -> sealion_testkit::server::Server {
    let rule = format!("proxy = {{ to = '{}', {keys} }}", upstream.url());
    site.config(&rule).serve_from_user_space()
}

#[test]
fn a_slow_client_does_not_hold_the_server() {
    let site = Site::new();
    let spool = tempfile::tempdir().expect("a directory");
    let upstream = Upstream::start(|accepted| {
        accepted.request();
        accepted.write(&ok(&content(LONG)));
    });
    let keys = format!("buffer = {{ memory = '1MiB', disk = '1GiB', directory = '{}' }}", spool.path().display());
    let server = rule(&site, &upstream, &keys);
    let mut client = site.connect_slow_reader(&server);
    client.send(get("/").as_bytes()).expect("it leaves");
    // The client has read nothing so far.
    wait_until("the server is done", || upstream.has_ended(1));
    let response = http::read_response(&mut client, "GET").expect("a response");
    assert!(response.body == content(LONG), "{} octets", response.body.len());
    assert_eq!(std::fs::read_dir(spool.path()).expect("it is there").count(), 0, "the files have no names");
}

#[test]
fn an_answer_that_breaks_off_is_cut_here_too() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        accepted.request();
        accepted.write(&ok(&content(3 << 20))[..2 << 20]);
    });
    let server = rule(&site, &upstream, "buffer = { memory = '64MiB' }");
    let mut client = site.connect(&server);
    client.send(get("/").as_bytes()).expect("it leaves");
    if let Ok(ending) = read_until_cut(&mut client) {
        assert!(!is_orderly(&ending) && ending.data.len() < 3 << 20);
    }
}

#[test]
fn what_does_not_fit_holds_the_server_up_and_arrives_whole() {
    let site = Site::new();
    let spool = tempfile::tempdir().expect("a directory");
    let upstream = Upstream::answering(|_| ok(&content(LONG)));
    let disk = format!("buffer = {{ memory = '64KiB', disk = '1MiB', directory = '{}' }}", spool.path().display());
    for keys in ["buffer = { memory = '64KiB' }", &disk] {
        let server = rule(&site, &upstream, keys);
        let mut client = site.connect_slow_reader(&server);
        for _ in 0..2 {
            let response = http::get(&mut client, "/").expect("a response");
            assert!(response.body == content(LONG), "{keys}: {} octets", response.body.len());
        }
    }
}

#[test]
fn a_full_disk_is_said_once_and_the_answer_arrives_whole() {
    let site = Site::new();
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Tmpfs::mount(&directory.path().join("small"), "2m");
    let upstream = Upstream::answering(|_| ok(&content(LONG)));
    let keys = format!("buffer = {{ memory = '64KiB', disk = '1GiB', directory = '{}' }}", disk.0.display());
    let server = rule(&site, &upstream, &keys);
    for _ in 0..3 {
        let mut client = site.connect_slow_reader(&server);
        let response = http::get(&mut client, "/").expect("a response");
        assert!(response.body == content(LONG), "{} octets", response.body.len());
    }
    wait_for_message(&server, "cannot keep contents");
    assert_eq!(messages(&server, "cannot keep contents"), 1);
}

#[test]
fn what_exceeds_the_memory_of_all_contents_holds_servers_up_and_arrives_whole() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| ok(&content(LONG)));
    let rule = format!("proxy = {{ to = '{}', buffer = {{ memory = '1GiB' }} }}", upstream.url());
    let server = site.config(&rule).table("[limits]\nmax_buffered = '256KiB'\n").serve_from_user_space();
    let mut clients: Vec<_> = (0..4).map(|_| site.connect_slow_reader(&server)).collect();
    for client in &mut clients {
        client.send(get("/").as_bytes()).expect("it leaves");
    }
    for client in &mut clients {
        let response = http::read_response(client, "GET").expect("a response");
        assert!(response.body == content(LONG), "{} octets", response.body.len());
    }
}

#[test]
fn the_server_gets_a_request_when_it_is_whole() {
    let site = Site::new();
    let spool = tempfile::tempdir().expect("a directory");
    let upstream = Upstream::echo();
    let keys =
        format!("buffer_request = {{ memory = '64KiB', disk = '1GiB', directory = '{}' }}", spool.path().display());
    let server = rule(&site, &upstream, &keys);
    let (mut slow, mut other) = (site.connect(&server), site.connect(&server));
    let body = content(1 << 20);
    let head = http::head("POST", "/slow", &[("Content-Length", &body.len().to_string())]);
    slow.send(&[head.as_bytes(), &body[..body.len() - 1]].concat()).expect("it leaves");
    assert_eq!(http::get(&mut other, "/other").expect("a response").status, 200);
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(upstream.connections(), 1, "only the other one");
    slow.send(&body[body.len() - 1..]).expect("it leaves");
    assert!(http::read_response(&mut slow, "POST").expect("a response").body == body);
    // The length is known then.
    let chunks = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let response = post(&mut slow, "/chunked", &[("Transfer-Encoding", "chunked")], chunks);
    assert_eq!(response.body, b"hello world");
    assert_eq!(upstream.last().field("content-length"), "11");
    // Trailers need chunks.
    let chunks = b"5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n";
    let fields = [("Transfer-Encoding", "chunked"), ("Trailer", "X-Sum")];
    assert_eq!(post(&mut slow, "/trailers", &fields, chunks).body, b"hello");
    assert_eq!(upstream.last().field("transfer-encoding"), "chunked");
    // One that breaks off does not arrive at all.
    let before = upstream.requests().len();
    let mut client = site.connect(&server);
    client
        .send(b"POST /broken HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")
        .expect("it leaves");
    assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 400);
    assert_eq!(upstream.requests().len(), before);
}

#[test]
fn a_request_that_does_not_fit_is_passed_on_as_it_comes() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let server = rule(&site, &upstream, "buffer_request = { memory = '64KiB' }");
    let mut client = site.connect(&server);
    let body = content(5 << 20);
    let length = body.len().to_string();
    assert!(post(&mut client, "/", &[("Content-Length", &length)], &body).body == body);
    let mut chunked = Vec::new();
    for part in body.chunks(10_000) {
        chunked.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        chunked.extend_from_slice(part);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert!(post(&mut client, "/", &[("Transfer-Encoding", "chunked")], &chunked).body == body);
}

/// Each piece comes within `request_timeout`.
#[test]
fn a_content_that_drips_is_answered_408_while_it_is_collected() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let rule = format!("proxy = {{ to = '{}', buffer_request = {{}} }}", upstream.url());
    let limits = "[limits]\nrequest_timeout = '1s'\nmin_receive_rate = 1000\nmin_send_rate_window = '1s'\n";
    let server = site.config(&rule).table(limits).serve_from_user_space();
    let mut client = site.connect(&server);
    client.send(http::head("POST", "/", &[("Content-Length", "100000")]).as_bytes()).expect("it leaves");
    let is_refused = || server.lines().iter().any(|line| line.text.contains("status=408"));
    wait_until("it is refused", || {
        let _ = client.send(b"x");
        is_refused()
    });
    assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 408);
    assert_eq!(upstream.connections(), 0);
    // One that is fast enough is not, however long it takes.
    let mut client = site.connect(&server);
    let body = content(20_000);
    client.send(http::head("POST", "/", &[("Content-Length", "20000")]).as_bytes()).expect("it leaves");
    for part in body.chunks(1000) {
        client.send(part).expect("it leaves");
        thread::sleep(Duration::from_millis(100));
    }
    assert!(http::read_response(&mut client, "POST").expect("a response").body == body);
}

#[test]
fn buffers_that_cannot_be_are_refused_at_start() {
    let site = Site::new();
    for (keys, words) in [
        ("buffer = { disk = '1MiB' }", "names no directory"),
        ("buffer_request = { directory = '/tmp' }", "that nothing uses"),
        ("buffer = { disk = '1MiB', directory = '/does/not/exist' }", "no file can be made"),
    ] {
        let rule = format!("proxy = {{ to = 'http://127.0.0.1:1', {keys} }}");
        let problems = site.config(&rule).problems();
        assert!(problems.contains(words), "{keys}: {problems}");
    }
}
