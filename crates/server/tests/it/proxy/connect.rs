//! WebSocket over HTTP/2: CONNECT with a protocol (RFC 8441), an Upgrade at the server.

use std::sync::{Mutex, mpsc};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sealion_testkit::server::Server;
pub(super) use sealion_testkit::websocket::accept_of;
pub(crate) use sealion_testkit::websocket::connect_block as block_of;
use sealion_testkit::websocket::switch;
use sealion_testkit::{Suite, pattern};

use super::serve;
use crate::support::http2::{CANCEL, DATA, END_STREAM, Ended, Http2, PROTOCOL_ERROR, frame, headers, reset};
use crate::support::upstream::{Accepted, Upstream, ok};
use crate::support::{Site, access_line, wait_until};

/// SETTINGS_ENABLE_CONNECT_PROTOCOL
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

#[track_caller]
fn connect(site: &Site, server: &Server) -> Http2 {
    Http2::connect(site.connector(Suite::TLS13), server.address(), &[])
}

/// Asks for a tunnel to `path`.
#[track_caller]
fn open(http: &mut Http2, path: &str, protocol: &str, fields: &[(&str, &str)]) -> u32 {
    let stream = http.stream();
    http.send(&headers(stream, false, &block_of(path, protocol, fields)));
    stream
}

/// Reads until so many bytes of the stream have come.
#[track_caller]
fn read(http: &mut Http2, stream: u32, octets: usize) -> Vec<u8> {
    http.read_until("octets", |http| http.streams.get(&stream).is_some_and(|got| got.body.len() >= octets));
    std::mem::take(&mut http.streams.get_mut(&stream).expect("a stream").body)
}

#[track_caller]
fn assert_status(http: &mut Http2, stream: u32, status: u16) {
    http.read_until("a head", |http| http.streams.get(&stream).is_some_and(|got| got.status != 0));
    assert_eq!(http.streams[&stream].status, status);
}

/// Opens each tunnel, and continues with `inside`.
pub(crate) fn tunnels(inside: impl Fn(&mut Accepted) + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |accepted| {
        let Some(request) = accepted.request() else { return };
        accepted.write(switch(&request).as_bytes());
        inside(accepted);
    })
}

/// Echoes pieces of this length, up to the end of what the client sends.
pub(crate) fn echo_pieces(accepted: &mut Accepted, length: usize) {
    while let Some(piece) = accepted.read(length) {
        accepted.write(&piece);
    }
}

/// Greets, echoes all that the client sends, and takes leave.
fn echo() -> Upstream {
    tunnels(|accepted| {
        accepted.write(b"hello");
        echo_pieces(accepted, 1);
        accepted.write(b"bye");
    })
}

#[test]
fn a_tunnel_passes_octets_in_both_directions_up_to_the_end_of_each() {
    let site = Site::new();
    let upstream = echo();
    let server = serve(&site, &upstream, "");
    let mut http = connect(&site, &server);
    let forged = [("sec-websocket-key", "mine"), ("content-length", "131000"), ("origin", "https://localhost")];
    let stream = open(&mut http, "/chat?a=b", "websocket", &forged);
    assert_status(&mut http, stream, 200);
    assert!(http.settings.contains(&(ENABLE_CONNECT_PROTOCOL, 1)), "{:?}", http.settings);
    let request = upstream.last();
    assert_eq!(request.line(), "GET /chat?a=b");
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "chat"),
        ("origin", "https://localhost"),
        ("host", "localhost"),
    ] {
        assert_eq!(request.field(name), value, "{name}");
    }
    assert_eq!(STANDARD.decode(request.field("sec-websocket-key")).expect("base64").len(), 16);
    assert_eq!((request.all("content-length"), request.all("transfer-encoding")), (vec![], vec![]));
    assert_eq!(read(&mut http, stream, 5), b"hello", "what the server says first");
    let octets = pattern::bytes(0..131_000);
    for piece in octets.chunks(10_000) {
        http.send(&frame(DATA, 0, stream, piece));
        assert!(read(&mut http, stream, piece.len()) == piece, "the echo");
    }
    http.send(&frame(DATA, END_STREAM, stream, &[]));
    assert_eq!(http.response(stream).whole(), (200, &b"bye"[..]));
    let line = access_line(&server, 1);
    assert_eq!((line.get("method"), line.get("status"), line.get("upstream_status")), ("CONNECT", "200", "101"));
    assert_eq!(line.get("bytes"), (5 + 131_000 + 3).to_string());
    // The connection goes on.
    let stream = open(&mut http, "/", "WebSocket", &[]);
    assert_eq!(read(&mut http, stream, 5), b"hello");
}

#[test]
fn each_side_ends_a_tunnel_for_the_other() {
    let site = Site::new();
    let upstream = tunnels(|accepted| {
        let octet = accepted.read(1);
        if octet.as_deref() == Some(b"r") {
            accepted.reset();
        }
        if octet.as_deref() == Some(b"w") {
            assert_eq!(accepted.read_to_end(), b"");
        }
    });
    let server = serve(&site, &upstream, "");
    let mut http = connect(&site, &server);
    for (octet, ended) in [(b"e", Ended::Whole), (b"r", Ended::Reset(CANCEL))] {
        let stream = open(&mut http, "/", "websocket", &[]);
        assert_status(&mut http, stream, 200);
        http.send(&frame(DATA, 0, stream, octet));
        assert_eq!(http.response(stream).ended, Some(ended), "{octet:?}");
    }
    let stream = open(&mut http, "/", "websocket", &[]);
    assert_status(&mut http, stream, 200);
    http.send(&[frame(DATA, 0, stream, b"w"), reset(stream, CANCEL)].concat());
    wait_until("the server sees the end", || upstream.has_ended(3));
    assert!(access_line(&server, 3).get("aborted").contains("reset the stream"));
}

/// The content of an answer without a tunnel is not the tunnel's.
#[test]
fn what_is_no_tunnel_is_refused_on_its_stream_alone() {
    let site = Site::new();
    site.add("f", "a file");
    site.add("501.html", "the page of 501");
    let upstream = Upstream::answering(|request| match request.line() {
        "GET /app/plain" => ok(b"no tunnel"),
        "GET /app/wrong" => switch(request).replace("Accept: ", "Accept: x").into_bytes(),
        "GET /app/other" => switch(request).replace("Upgrade: websocket", "Upgrade: other").into_bytes(),
        _ => b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_vec(),
    });
    let url = upstream.url();
    let keys = format!(
        "error_pages = {{ 501 = '/501.html' }}\nroute = [{{ path = '/app/denied/', access = {{ deny = ['127.0.0.1'] }} }}, {{ path = '= /old', redirect = '/new' }},\
           {{ path = '/app/none/', proxy = {{ to = '{url}', upgrade = [] }} }}, {{ path = '/app/post/', proxy = {{ to = '{url}', methods = ['POST'] }} }}, {{ path = '/app/', proxy = {{ to = '{url}', files_first = true }} }}]"
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut http = connect(&site, &server);
    for (path, protocol, status, asked) in [
        ("/f", "websocket", 501, 0),
        ("/none", "websocket", 404, 0),
        ("/old", "websocket", 308, 0),
        ("/app/x", "connect-udp", 501, 0),
        ("/app/denied/x", "websocket", 403, 0),
        ("/app/%64enied/x", "websocket", 403, 0),
        ("/app/post", "websocket", 405, 0),
        ("/app/x", "websocket", 403, 1),
        ("/app/none", "websocket", 403, 1),
        ("/app/plain", "websocket", 501, 1),
        ("/app/wrong", "websocket", 502, 1),
        ("/app/other", "websocket", 502, 1),
    ] {
        let before = upstream.requests().len();
        let stream = open(&mut http, path, protocol, &[]);
        let got = http.response(stream);
        assert_eq!((got.status, got.ended), (status, Some(Ended::Whole)), "{path}");
        assert!(!got.body.windows(9).any(|octets| octets == b"no tunnel"), "{path}");
        assert_eq!(got.body == b"the page of 501", status == 501, "{path}");
        assert_eq!(upstream.requests().len() - before, asked, "{path}");
    }
    let none = upstream.requests().into_iter().find(|request| request.line() == "GET /app/none").expect("it came");
    assert_eq!((none.all("upgrade"), none.all("sec-websocket-key")), (vec![], vec![]), "an ordinary request");
    assert_eq!(http.fetch("/f"), (200, b"a file".to_vec()));
}

#[test]
fn a_password_is_asked_for_a_tunnel_too() {
    let site = Site::new();
    let upstream = echo();
    std::fs::write(site.outside().join("users"), "user:$2y$04$abcdefghijklmnopqrstuuZ0Zf5QnWcOQYpGQ0X8lE0gY3mDkQ5jm\n")
        .expect("a file");
    let keys = format!(
        "proxy = {{ to = '{}' }}\nbasic_auth = {{ users = '{}', realm = 'r' }}",
        upstream.url(),
        site.outside().join("users").display()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut http = connect(&site, &server);
    let stream = open(&mut http, "/", "websocket", &[]);
    assert_eq!(http.response(stream).status, 401);
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn without_a_rule_that_permits_websocket_it_is_not_announced() {
    let site = Site::new();
    let upstream = echo();
    let keys = format!("proxy = {{ to = '{}', upgrade = ['echo'] }}", upstream.url());
    let server = site.config(&keys).serve_from_user_space();
    let mut http = connect(&site, &server);
    let stream = open(&mut http, "/", "websocket", &[]);
    assert_eq!(http.response(stream).ended, Some(Ended::Reset(PROTOCOL_ERROR)));
    assert!(http.settings.iter().all(|(id, _)| *id != ENABLE_CONNECT_PROTOCOL), "{:?}", http.settings);
}

#[test]
fn a_silent_tunnel_is_reset() {
    let site = Site::new();
    let upstream = echo();
    let server = serve(&site, &upstream, "tunnel_timeout = '200ms'");
    let mut http = connect(&site, &server);
    let stream = open(&mut http, "/", "websocket", &[]);
    assert_eq!(http.response(stream).ended, Some(Ended::Reset(CANCEL)));
    assert!(access_line(&server, 1).get("aborted").contains("silent for 0.2 s"));
}

/// A client owes a tunnel nothing.
#[test]
fn a_tunnel_outlives_the_time_for_requests() {
    let site = Site::new();
    let upstream = echo();
    let url = upstream.url();
    let config = site.config(&format!("proxy = {{ to = '{url}' }}"));
    let server = config.table("[limits]\nrequest_timeout = '200ms'").serve_from_user_space();
    let mut http = connect(&site, &server);
    let stream = open(&mut http, "/", "websocket", &[]);
    assert_eq!(read(&mut http, stream, 5), b"hello");
    std::thread::sleep(std::time::Duration::from_millis(600));
    http.send(&frame(DATA, END_STREAM, stream, b"x"));
    assert_eq!(http.response(stream).whole(), (200, &b"xbye"[..]));
}

#[test]
fn tunnels_that_are_reset_at_once_leave_nothing() {
    const STREAMS: usize = 100;
    let site = Site::new();
    let upstream = echo();
    let server = serve(&site, &upstream, "");
    let mut http = connect(&site, &server);
    let all: Vec<u32> = (0..STREAMS).map(|_| open(&mut http, "/", "websocket", &[])).collect();
    for stream in &all {
        assert_status(&mut http, *stream, 200);
    }
    all.iter().for_each(|stream| http.send(&reset(*stream, CANCEL)));
    wait_until("all connections end", || upstream.has_ended(STREAMS));
    // The head and the reset in one record: the tunnel may have been asked for, or not.
    for _ in 0..STREAMS {
        let stream = http.stream();
        http.send(&[headers(stream, false, &block_of("/", "websocket", &[])), reset(stream, CANCEL)].concat());
    }
    http.ping();
    wait_until("all connections end", || upstream.has_ended(upstream.connections()));
    let stream = open(&mut http, "/", "websocket", &[]);
    assert_eq!(read(&mut http, stream, 5), b"hello");
}

/// The server takes nothing of what the client sent.
#[test]
fn a_tunnel_that_is_reset_leaves_no_connection() {
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let upstream = tunnels(move |_| {
        let _ = ended.lock().expect("no panic").recv();
    });
    let site = Site::new();
    let server = serve(&site, &upstream, "stall_timeout = '1h'");
    let mut http = connect(&site, &server);
    let stream = open(&mut http, "/", "websocket", &[]);
    assert_status(&mut http, stream, 200);
    let (mut sent, mut quiet) = (0, 0);
    // Until windows stay closed.
    while quiet < 50 {
        let window = |id| 65_535 + http.granted.get(&id).copied().unwrap_or(0);
        let room = window(stream).min(window(0)) - sent;
        vec![0; room as usize].chunks(16_384).for_each(|piece| http.send(&frame(DATA, 0, stream, piece)));
        (sent, quiet) = (sent + room, if room == 0 { quiet + 1 } else { 0 });
        http.ping();
    }
    let port = format!(":{:04X}", upstream.address().port());
    let is_connected = || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table of sockets");
        table.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().take(4).collect();
            matches!(fields[..], [_, _, remote, "01"] if remote.ends_with(&port))
        })
    };
    assert!(is_connected());
    http.send(&reset(stream, CANCEL));
    wait_until("the connection to the server is closed", || !is_connected());
    drop(end);
}
