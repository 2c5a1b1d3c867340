//! The memory of contents that are collected for scripts.

use sealion_testkit::server::Server;
use sealion_testkit::{Suite, http, pattern};

use super::fastcgi::{FILES_FIRST, IN_MEMORY, answering, serve, url};
use super::post;
use crate::support::fastcgi::{PhpFpm, end, stdout};
use crate::support::http2::{DATA, END_STREAM, Http2, frame};
use crate::support::upstream::Upstream;
use crate::support::{Site, messages, wait_for_message, wait_until};

/// Waits until the server has read what its clients sent.
#[track_caller]
fn wait_until_read(server: &Server) {
    let port = format!(":{:04X}", server.address().port());
    // Established connections of the server, with bytes in their queues.
    let is_read = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().take(5).collect();
        !matches!(fields[..], [_, local, _, "01", queues] if local.ends_with(&port) && !queues.ends_with(":00000000"))
    };
    let table = || std::fs::read_to_string("/proc/net/tcp").expect("a table of sockets");
    wait_until("the server has read it", || table().lines().all(is_read));
}

/// A server that answers with the length of the content that it got, and the table of its upstream `php`.
pub(super) fn counting() -> (Upstream, String) {
    let (upstream, _) = answering(|accepted, request| {
        let answer = format!("Content-Type: text/plain\r\n\r\n{}", request.content.len());
        accepted.write(&[stdout(answer), end()].concat());
    });
    let table =
        format!("[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{{ url = '{}' }}]\n", url(&upstream));
    (upstream, table)
}

/// Waiting for others, each of many contents could hold a part of the memory, and none would be whole.
#[test]
fn a_content_for_which_all_memory_is_taken_is_refused_and_later_has_its_place() {
    let site = Site::new();
    site.add("x.php", "");
    site.add("large/x.php", "");
    let (_upstream, php) = counting();
    let server = site
        .config(&format!(
            "proxy = {{ to = 'php', buffer_request = {{}}, fastcgi = {{}} }}\nroute = [{{ path = '/large/', proxy = {{ to = 'php', fastcgi = {{}}, buffer_request = {{ disk = '1MiB', directory = '{}' }} }} }}]",
            site.outside().display()
        ))
        .table(&php)
        .table("[limits]\nmax_buffered = '256KiB'\n")
        .serve_from_user_space();
    let send = |body: &[u8]| post(&mut site.connect(&server), "/x.php", &[("Content-Length", "100000")], body);
    let body = vec![7; 250_000];
    let mut slow = site.connect(&server);
    let head = http::head("POST", "/x.php", &[("Content-Length", "250000")]);
    slow.send(&[head.as_bytes(), &body[..200_000]].concat()).expect("it leaves");
    wait_until_read(&server);
    wait_until("the memory is taken", || send(&body[..100_000]).status == 503);
    wait_for_message(&server, "limits.max_buffered");
    // Where there is a disk, it takes what has no memory.
    assert_eq!(
        post(&mut site.connect(&server), "/large/x.php", &[("Content-Length", "100000")], &body[..100_000]).status,
        200
    );
    slow.send(&body[200_000..]).expect("it leaves");
    assert_eq!(http::read_response(&mut slow, "POST").expect("a response").body, b"250000");
    let response = send(&body[..100_000]);
    assert_eq!((response.status, &response.body[..]), (200, &b"100000"[..]));
}

/// A client that holds its share of the memory by contents that never end.
#[test]
fn one_client_leaves_memory_for_the_contents_of_others() {
    let site = Site::new();
    site.add("x.php", "");
    let (_upstream, php) = counting();
    let server = site
        .config("proxy = { to = 'php', buffer_request = {}, fastcgi = {} }")
        .listen("address = '127.0.0.1:0'\ntrusted_proxies = ['127.0.0.0/8']\nclient_address = 'x-forwarded-for'")
        .table(&php)
        .table("[limits]\nmax_buffered = '512KiB'\nmax_buffered_per_address = '256KiB'\n")
        .serve_from_user_space();
    let ask = |address: &str, length: usize| {
        let fields = [("Content-Length", &*length.to_string()), ("X-Forwarded-For", address)];
        post(&mut site.connect(&server), "/x.php", &fields, &vec![7; length]).status
    };
    let mut slow = site.connect(&server);
    let head = http::head("POST", "/x.php", &[("Content-Length", "250000"), ("X-Forwarded-For", "192.0.2.1")]);
    slow.send(&[head.as_bytes(), &[7; 200_000]].concat()).expect("it leaves");
    wait_until_read(&server);
    wait_until("its share is taken", || ask("192.0.2.1", 100_000) == 503);
    wait_for_message(&server, "limits.max_buffered_per_address");
    assert_eq!(ask("192.0.2.2", 200_000), 200);
    slow.send(&[7; 50_000]).expect("it leaves");
    assert_eq!(http::read_response(&mut slow, "POST").expect("a response").body, b"250000");
    assert_eq!(ask("192.0.2.1", 100_000), 200);
}

#[test]
fn contents_that_are_too_long_have_a_line_a_second() {
    let site = Site::new();
    site.add("index.php", "");
    let (upstream, _) = answering(|_, _| {});
    let server = serve(&site, &url(&upstream), IN_MEMORY, "");
    let refuse = || post(&mut site.connect(&server), "/", &[("Content-Length", "1048577")], b"").status;
    for _ in 0..50 {
        assert_eq!(refuse(), 413);
    }
    wait_until("those without a line are counted", || {
        assert_eq!(refuse(), 413);
        messages(&server, " more requests failed since the last such line") > 0
    });
}

const UPLOAD: &str = "<?php
$content = file_get_contents('php://input');
echo strlen($content), '|', hash('sha256', $content), '|', $_SERVER['CONTENT_LENGTH'];
";

/// The recipe of docs/proxy.md sets no bound.
#[test]
fn php_gets_uploads_of_megabytes_without_a_setting() {
    const LENGTH: u64 = 5_000_003;
    let site = Site::new();
    site.add("index.php", UPLOAD);
    let directory = tempfile::tempdir().expect("a directory");
    let php = PhpFpm::start(directory.path());
    let server = serve(&site, &php.url(), FILES_FIRST, "");
    let body = pattern::bytes(0..LENGTH);
    let response = http::Response { status: 0, reason: String::new(), fields: Vec::new(), body: body.clone() };
    let expected = format!("{LENGTH}|{}|{LENGTH}", response.sha256());
    let mut client = site.connect(&server);
    let with_length = post(&mut client, "/", &[("Content-Length", &LENGTH.to_string())], &body);
    assert_eq!((with_length.status, String::from_utf8_lossy(&with_length.body).as_ref()), (200, &*expected));
    let chunks: Vec<u8> = body
        .chunks(100_000)
        .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
        .chain(*b"0\r\n\r\n")
        .collect();
    let chunked = post(&mut site.connect(&server), "/", &[("Transfer-Encoding", "chunked")], &chunks);
    assert_eq!((chunked.status, String::from_utf8_lossy(&chunked.body).as_ref()), (200, &*expected));
    let mut http2 = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    let stream = http2.request("POST", "/", &[], false);
    let (mut left, mut sent) = (&body[..], 0_u64);
    while !left.is_empty() {
        // 65,535 bytes, and what the server has granted since.
        let granted = |http2: &Http2, stream: u32| 65_535 + http2.granted.get(&stream).copied().unwrap_or(0);
        http2.read_until("room", |http2| granted(http2, 0).min(granted(http2, stream)) > sent);
        let room = granted(&http2, 0).min(granted(&http2, stream)) - sent;
        let (piece, rest) = left.split_at(left.len().min(16_384).min(room as usize));
        http2.send(&frame(DATA, if rest.is_empty() { END_STREAM } else { 0 }, stream, piece));
        (left, sent) = (rest, sent + piece.len() as u64);
    }
    let (status, text) = http2.response(stream).whole();
    assert_eq!((status, String::from_utf8_lossy(text).as_ref()), (200, &*expected));
}
