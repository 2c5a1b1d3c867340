//! No bytes of a client make two requests of one: the server gets one request for each answer, by any reading of it.

use std::sync::{Arc, Mutex};

use super::serve_config;
use crate::support::Site;
use crate::support::upstream::{Upstream, ok};

/// Requests as an indulgent server reads them: lines may end with LF alone, names may have blanks around them, the last framing wins,
/// and a malformed number is 0.
fn count_indulgently(mut octets: &[u8]) -> usize {
    let mut count = 0;
    while !octets.is_empty() {
        let mut length = 0;
        let mut chunked = false;
        loop {
            let end = octets.iter().position(|octet| *octet == b'\n').map_or(octets.len(), |end| end + 1);
            let (line, rest) = octets.split_at(end);
            octets = rest;
            let line = String::from_utf8_lossy(line).trim().to_ascii_lowercase().replace('_', "-");
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            match name.trim() {
                "content-length" => length = value.trim().trim_start_matches('+').parse().unwrap_or(0),
                "transfer-encoding" => chunked = value.contains("chunked"),
                _ => {}
            }
        }
        count += 1;
        while chunked {
            let end = octets.iter().position(|octet| *octet == b'\n').map_or(octets.len(), |end| end + 1);
            let (line, rest) = octets.split_at(end);
            let line = String::from_utf8_lossy(line);
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
            octets = &rest[(size + 2).min(rest.len())..];
            chunked = size > 0;
        }
        octets = &octets[length.min(octets.len())..];
    }
    count
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const FIELDS: &[&str] = &[
    "Content-Length: 5",
    "Content-Length: 0",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length: 5,6",
    "Content-Length : 5",
    "Content-Length: 0x5",
    "Content_Length: 40",
    "content-length:\t5",
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer_Encoding: chunked",
    "X: y\r\n Transfer-Encoding: chunked",
    "X: y\nTransfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "X: \0",
    "Connection: Content-Length",
    "Connection: Transfer-Encoding, close",
    "Connection: Host, X-Forwarded-For",
    "Expect: 100-continue",
    "Upgrade: h2c",
    "Host: a",
    "Trailer: Content-Length",
    "TE: chunked",
    "X: GET / HTTP/1.1",
];

const BODIES: &[&str] = &[
    "",
    "abcde",
    "0\r\n\r\n",
    "5\r\nabcde\r\n0\r\n\r\n",
    "5;ext=\"\r\nabcde\r\n0\r\n\r\n",
    "5\nabcde\n0\n\n",
    "0\r\nContent-Length: 9\r\n\r\n",
    "1\r\nZ\r\nQ\r\n\r\n",
    "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n",
];

const LINES: &[&str] = &[
    "GET / HTTP/1.1",
    "POST / HTTP/1.1",
    "POST / HTTP/1.0",
    "PUT /a?b HTTP/1.1",
    "GET  / HTTP/1.1",
    "GET / HTTP/1.1 ",
    "GET /\tx HTTP/1.1",
    "GET http://localhost/x HTTP/1.1",
    "GET /x\x7f HTTP/1.1",
    "HEAD / HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "CONNECT a:1 HTTP/1.1",
];

#[test]
fn each_answer_belongs_to_one_request_however_a_server_reads_what_it_gets() {
    let site = Site::new();
    // Every connection's bytes, as they came.
    let connections: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let all = Arc::clone(&connections);
    let upstream = Upstream::start(move |accepted| {
        let index = {
            let mut all = all.lock().expect("no panic");
            all.push(Vec::new());
            all.len() - 1
        };
        while let Some((raw, _)) = accepted.raw_request() {
            all.lock().expect("no panic")[index].extend_from_slice(&raw);
            accepted.write(&ok(b"x"));
        }
    });
    let urls = [&*upstream.url()];
    let config = serve_config(&site, &urls, "answer_timeout = '5s'");
    let server = config.table("[limits]\nrequest_timeout = '100ms'\nlinger_timeout = '1ms'").serve_from_user_space();
    let mut random = Random(0x5ea1_1044);
    let mut answers = 0;
    for _ in 0..2000 {
        let mut request = format!("{}\r\nHost: localhost\r\n", random.of(LINES));
        for _ in 0..random.below(4) {
            request.push_str(random.of(FIELDS));
            request.push_str("\r\n");
        }
        request.push_str("\r\n");
        request.push_str(random.of(BODIES));
        let mut bytes = request.into_bytes();
        for _ in 0..random.below(3) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, b"\r\n \t:;,\x0b0"[random.below(9)]),
                2 => bytes[at] = b"\r\n \t:;,\x000"[random.below(9)],
                _ => bytes[at] ^= 0x20,
            }
        }
        // The server closes behind the last one, or with what it refuses, or because the last one was content.
        bytes.extend_from_slice(b"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut client = site.connect(&server);
        client.send(&bytes).expect("it leaves");
        let data = client.read_to_end().map(|ending| ending.data).unwrap_or_default();
        // A 100 has no content, and belongs to the answer behind it.
        let data = String::from_utf8_lossy(&data).replace("HTTP/1.1 100 Continue\r\n\r\n", "");
        let forwarded = data.matches("HTTP/1.1 200 OK\r\n").count();
        answers += forwarded;
    }
    drop(server);
    let (mut strict, mut indulgent) = (0, 0);
    for octets in connections.lock().expect("no panic").iter() {
        let counted = count_indulgently(octets);
        indulgent += counted;
        strict += upstream_count(octets);
        assert_eq!(counted, upstream_count(octets), "{}", octets.escape_ascii());
    }
    assert_eq!(strict, indulgent);
    assert!(answers > 200 && answers <= strict, "{answers} answers to {strict} requests");
}

/// Requests as a strict server reads them: by the lines that begin one.
fn upstream_count(octets: &[u8]) -> usize {
    let text = String::from_utf8_lossy(octets);
    text.matches("x-request-id: ").count()
}
