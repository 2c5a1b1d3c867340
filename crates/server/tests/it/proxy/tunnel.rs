//! Connections that become tunnels (WebSocket).

use sealion_testkit::{Client, http};

use super::connect::accept_of;
use super::{is_orderly, serve};
use crate::support::upstream::Upstream;
use crate::support::{Site, access_line, wait_for_message};

/// The key of RFC 6455 §1.3, and the reply to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const ASKS: [(&str, &str); 3] =
    [("Connection", "keep-alive, Upgrade"), ("Upgrade", "WebSocket"), ("Sec-WebSocket-Key", KEY)];

/// A server that echoes what comes behind the upgrade, and ends with the client.
fn echo() -> Upstream {
    Upstream::start(|accepted| {
        let Some(request) = accepted.request() else { return };
        if request.all("upgrade") != ["WebSocket"] {
            return accepted.write(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n");
        }
        assert_eq!((request.field("connection"), request.field("sec-websocket-key")), ("upgrade", KEY));
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\
             X-Own: 1\r\n\r\nhello",
            accept_of(&request)
        );
        accepted.write(head.as_bytes());
        while let Some(octet) = accepted.read(1) {
            accepted.write(&octet);
        }
        accepted.write(b"bye");
    })
}

#[track_caller]
fn open(client: &mut Client) -> String {
    client.send(http::head("GET", "/chat", &ASKS).as_bytes()).expect("it leaves");
    String::from_utf8(client.read_until(b"\r\n\r\n").expect("a head")).expect("text")
}

#[test]
fn a_tunnel_passes_octets_in_both_directions_up_to_the_end_of_each() {
    let site = Site::new();
    let upstream = echo();
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    let head = open(&mut client).to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 switching protocols\r\n"), "{head}");
    let accept = format!("\r\nsec-websocket-accept: {}\r\n", ACCEPT.to_ascii_lowercase());
    for field in ["\r\nupgrade: websocket\r\n", "\r\nconnection: upgrade\r\n", "\r\nx-own: 1\r\n", &accept] {
        assert!(head.contains(field), "{head}");
    }
    assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
    assert_eq!(client.read(5).expect("what came with the head"), b"hello");
    for length in [1, 1000, 100_000] {
        let octets = sealion_testkit::pattern::bytes(0..length as u64);
        for piece in octets.chunks(16_000) {
            client.send(piece).expect("it leaves");
        }
        assert!(client.read(length).expect("the echo") == octets);
    }
    client.close_notify().expect("it leaves");
    let ending = client.read_to_end().expect("an end");
    assert_eq!(ending.data, b"bye");
    ending.assert_orderly();
    let line = access_line(&server, 1);
    assert_eq!((line.get("status"), line.get("upstream_status")), ("101", "101"));
    assert_eq!(line.get("bytes"), (5 + 101_001 + 3).to_string());
}

#[test]
fn a_server_may_refuse_the_tunnel_and_the_connection_goes_on() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_vec());
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    let response = http::request(&mut client, "GET", "/chat", &ASKS).expect("a response");
    assert_eq!((response.status, response.body.as_slice()), (403, &b"no"[..]));
    // Bytes that a client sent before the server agreed are a request, never a part of a tunnel.
    assert_eq!(http::get(&mut client, "/next").expect("a response").status, 403);
    assert_eq!(upstream.last().line(), "GET /next");
}

/// A server that does not know WebSocket may be made to say 101, and would take the following bytes for requests.
#[test]
fn a_tunnel_for_websocket_needs_the_reply_to_the_clients_key() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        let Some(request) = accepted.request() else { return };
        let reply = request.all("x-reply").join("\r\n");
        let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{reply}\r\n\r\n");
        accepted.write(head.as_bytes());
        assert_eq!(accepted.read_to_end(), b"", "nothing passes");
    });
    let rule = format!("proxy = {{ to = '{}', upgrade = ['websocket', 'echo'] }}", upstream.url());
    let server = site.config(&rule).serve_from_user_space();
    let right = format!("Sec-WebSocket-Accept: {ACCEPT}");
    let websocket = "Upgrade: websocket";
    let wrong = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOp=";
    for (asked, keys, replies, status) in [
        ("websocket", &[KEY][..], &[websocket, &right][..], 101),
        ("websocket", &[KEY], &[websocket], 502),
        ("websocket", &[KEY], &[websocket, wrong], 502),
        ("websocket", &[KEY], &[websocket, &right, wrong], 502),
        ("websocket", &[], &[websocket, &right], 502),
        ("websocket", &[KEY, "a"], &[websocket, &right], 502),
        ("echo", &[], &["Upgrade: echo"], 101),
        ("echo", &[], &[websocket, &right], 502),
    ] {
        let mut fields = vec![("Connection", "Upgrade"), ("Upgrade", asked)];
        fields.extend(keys.iter().map(|key| ("Sec-WebSocket-Key", *key)));
        fields.extend(replies.iter().map(|reply| ("X-Reply", *reply)));
        let mut client = site.connect(&server);
        client.send(http::head("GET", "/chat", &fields).as_bytes()).expect("it leaves");
        let head = String::from_utf8(client.read_until(b"\r\n\r\n").expect("a head")).expect("text");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{asked} {keys:?} {replies:?}: {head}");
    }
    wait_for_message(&server, "its Sec-WebSocket-Accept does not fit the request's Sec-WebSocket-Key");
}

/// By h2c a client could send requests that no rule has seen.
#[test]
fn only_protocols_that_the_rule_names_become_tunnels() {
    let site = Site::new();
    let upstream = echo();
    let server = serve(&site, &upstream, "");
    let mut client = site.connect(&server);
    for protocol in ["h2c", "echo", "websocket, h2c", "h2c, websocket"] {
        let asks = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", protocol), ("HTTP2-Settings", "AAMAAABk")];
        let response = http::request(&mut client, "GET", "/", &asks).expect("a response");
        assert_eq!(response.status, 426, "{protocol}");
        assert_eq!(upstream.last().all("http2-settings"), [""; 0]);
    }
}

#[test]
fn upgrade_without_connection_asks_for_nothing() {
    let site = Site::new();
    let upstream = echo();
    let server = serve(&site, &upstream, "");
    let response =
        http::request(&mut site.connect(&server), "GET", "/", &[("Upgrade", "WebSocket")]).expect("a response");
    assert_eq!(response.status, 426);
}

#[test]
fn a_silent_tunnel_is_closed() {
    let site = Site::new();
    let upstream = echo();
    let server = serve(&site, &upstream, "tunnel_timeout = '200ms'");
    let mut client = site.connect(&server);
    open(&mut client);
    assert!(client.read_to_end().map_or(true, |ending| !is_orderly(&ending)));
    assert!(access_line(&server, 1).get("aborted").contains("silent for 0.2 s"));
}
