//! HTTP/1.1 through the shipped binary: what every status promises, framing, limits, and whole bodies.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sealion_testkit::http::{self, Response};
use sealion_testkit::pki::Pki;
use sealion_testkit::{Client, Suite, pattern};
use sealion_tls::record::ContentType;

use crate::support::multipart::{self, Part};
use crate::support::{PROGRAM, Site, access_line, curl, exchange, get, parse_responses, wait_for_message};

type FieldList = &'static [(&'static str, &'static str)];

#[track_caller]
fn ask(client: &mut Client, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    http::request(client, method, target, fields).unwrap_or_else(|e| panic!("{method} {target} {fields:?}: {e}"))
}

/// Asserts that this is answered once, with `status` and `Connection: close`, and nothing behind it read as a request.
#[track_caller]
fn refused(site: &Site, server: &sealion_testkit::server::Server, bytes: &[u8], status: u16) {
    let canary = get("/canary");
    let ending = exchange(&mut site.connect(server), &[bytes, canary.as_bytes()].concat());
    let shown = bytes[..bytes.len().min(200)].escape_ascii().to_string();
    let responses = parse_responses(&ending.data);
    let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [status], "{shown}");
    assert_eq!(responses[0].field("connection"), Some("close"), "{shown}");
    ending.assert_orderly();
}

#[test]
fn a_file_and_its_head() {
    let site = Site::new();
    site.add_pattern("picture.png", 70_001);
    let server = site.serve_from_user_space(&[]);
    let got = curl::get(&site.pki, server.address(), "/picture.png", &[]);
    assert_eq!((got.status, got.reason.as_str()), (200, "OK"));
    pattern::assert_equal(&got.body, 0..70_001);
    assert_eq!(got.field("content-type"), Some("image/png"));
    assert_eq!(got.field("content-length"), Some("70001"));
    assert_eq!(got.field("accept-ranges"), Some("bytes"));
    let etag = got.field("etag").expect("an entity tag");
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag} is strong");
    for date in ["date", "last-modified"] {
        let value = got.field(date).expect(date);
        assert!(httpdate::parse_http_date(value).is_ok(), "{date}: {value}");
    }

    let head = curl::get(&site.pki, server.address(), "/picture.png", &["--head"]);
    assert!(head.body.is_empty());
    let without_date = |response: &Response| {
        let mut fields = response.fields.clone();
        fields.retain(|(name, _)| name != "Date");
        fields
    };
    assert_eq!(without_date(&head), without_date(&got));
}

#[test]
fn text_has_its_charset() {
    let site = Site::new();
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    for (name, content_type) in [
        ("a.html", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.bin", "application/octet-stream"),
        ("none", "application/octet-stream"),
    ] {
        site.add(name, "x");
        let got = ask(&mut client, "GET", &format!("/{name}"), &[]);
        assert_eq!(got.field("content-type"), Some(content_type), "{name}");
    }
}

/// RFC 9110 §9.3.2; an empty line before the request does not hide its method.
#[test]
fn a_refusal_of_head_has_no_body() {
    let site = Site::new();
    let server = site.serve_from_user_space(&[]);
    for bad in ["HEAD / HTTP/1.1\r\n\r\n", "\r\nHEAD / HTTP/1.1\r\nA: b\n\r\n", "\r\n\r\nHEAD / HTTP/1.1\r\n\r\n"] {
        let ending = exchange(&mut site.connect(&server), bad.as_bytes());
        let text = String::from_utf8(ending.data).expect("text");
        assert!(text.starts_with("HTTP/1.1 400 ") && text.ends_with("\r\n\r\n"), "{bad:?}: {text}");
    }
}

/// RFC 9110 §2.5 and §6.2: a later minor version is handled as the highest that the server has.
#[test]
fn a_later_minor_version_is_served_as_http_1_1() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let requests = [
        "GET /f HTTP/1.2\r\nHost: localhost\r\n\r\n",
        "HEAD /f?q HTTP/1.9\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ];
    let ending = exchange(&mut site.connect(&server), requests.concat().as_bytes());
    ending.assert_orderly();
    let text = String::from_utf8(ending.data).expect("text");
    let heads: Vec<_> = text.match_indices("HTTP/1.1 200 OK\r\n").collect();
    assert_eq!(
        (heads.len(), text.matches("content\r\n").count() + text.matches("contentHTTP").count()),
        (2, 1),
        "{text}"
    );
    for bad in [
        "GET /f HTTP/1.2\r\n\r\n",
        "GET /f HTTP/1.2\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET /\u{e9} HTTP/1.2\r\nHost: localhost\r\n\r\n",
        "GET /f HTTP/1.2 \r\nHost: localhost\r\n\r\n",
        "GET /f HTTP/1.2\r\nHost: localhost\r\nA b: c\r\n\r\n",
    ] {
        refused(&site, &server, bad.as_bytes(), 400);
    }
}

#[test]
fn methods() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "QUERY"] {
        let got = ask(&mut client, method, "/f", &[]);
        assert_eq!((got.status, got.field("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    for method in ["BREW", "get", "GETX"] {
        assert_eq!(ask(&mut client, method, "/f", &[]).status, 501, "{method}");
    }
    assert_eq!(ask(&mut client, "OPTIONS", "*", &[]).status, 405);
    let head = ask(&mut client, "HEAD", "/f", &[]);
    assert_eq!((head.status, head.field("content-length")), (200, Some("7")));
    assert_eq!(ask(&mut client, "GET", "/f", &[]).body, b"content");
    refused(&site, &server, b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405);
}

#[test]
fn conditional_requests() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    let first = ask(&mut client, "GET", "/f", &[]);
    let etag = first.field("etag").expect("an entity tag").to_owned();
    let weak = format!("W/{etag}");
    let date = first.field("last-modified").expect("a date").to_owned();
    let early = "Sun, 06 Nov 1994 08:49:37 GMT";
    let list = format!("\"a\", {etag}");
    const INM: &str = "If-None-Match";
    const IM: &str = "If-Match";
    const IMS: &str = "If-Modified-Since";
    const IUS: &str = "If-Unmodified-Since";
    let rows: &[(u16, &[(&str, &str)])] = &[
        (304, &[(INM, &etag)]),
        (304, &[(INM, &weak)]),
        (304, &[(INM, &list)]),
        (304, &[(INM, "*")]),
        (200, &[(INM, "\"a\"")]),
        (304, &[(IMS, &date)]),
        (200, &[(IMS, early)]),
        (200, &[(INM, "\"a\""), (IMS, &date)]),
        (200, &[(IM, &etag)]),
        (412, &[(IM, &weak)]),
        (412, &[(IM, "\"a\"")]),
        (200, &[(IUS, &date)]),
        (412, &[(IUS, early)]),
        (200, &[(IM, &etag), (IUS, early)]),
        (304, &[(IM, &etag), (INM, &etag)]),
        (412, &[(IM, "\"a\""), (INM, &etag)]),
        // Preconditions come before the range (RFC 9110 §13.2.2).
        (304, &[(INM, &etag), ("Range", "bytes=0-0")]),
        (206, &[("If-Range", &etag), ("Range", "bytes=0-0")]),
        (200, &[("If-Range", "\"a\""), ("Range", "bytes=0-0")]),
        (206, &[("If-Range", &date), ("Range", "bytes=0-0")]),
        (200, &[("If-Range", early), ("Range", "bytes=0-0")]),
    ];
    for (status, fields) in rows {
        let got = ask(&mut client, "GET", "/f", fields);
        assert_eq!(got.status, *status, "{fields:?}");
        if got.status == 304 {
            assert_eq!(got.field("etag"), Some(etag.as_str()), "{fields:?}");
            assert_eq!(got.field("content-length"), None, "{fields:?}");
        }
        if got.status == 200 {
            assert_eq!(got.body, b"content", "{fields:?}");
        }
    }
    let options = ["--header", &format!("If-None-Match: {etag}")].map(str::to_owned);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    assert_eq!(curl::get(&site.pki, server.address(), "/f", &options).status, 304);
}

#[test]
fn ranges_at_odd_offsets() {
    const LEN: u64 = 100_003;
    let site = Site::new();
    site.add_pattern("f", LEN);
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    for (value, range) in [
        ("bytes=0-0", 0..1),
        ("bytes=1-16385", 1..16_386),
        ("bytes=16383-16384", 16_383..16_385),
        ("bytes=4095-65537", 4095..65_538),
        ("bytes=-1", LEN - 1..LEN),
        ("bytes=-70001", LEN - 70_001..LEN),
        ("bytes=-500000", 0..LEN),
        ("bytes=99999-", 99_999..LEN),
        ("bytes=50001-500000", 50_001..LEN),
        ("bytes=0-", 0..LEN),
    ] {
        let got = ask(&mut client, "GET", "/f", &[("Range", value)]);
        assert_eq!(got.status, 206, "{value}");
        let content_range = format!("bytes {}-{}/{LEN}", range.start, range.end - 1);
        assert_eq!(got.field("content-range"), Some(content_range.as_str()), "{value}");
        pattern::assert_equal(&got.body, range.clone());
        let spec = value.strip_prefix("bytes=").expect("its unit");
        let got = curl::get(&site.pki, server.address(), "/f", &["--range", spec]);
        assert_eq!(got.status, 206, "{value}");
        pattern::assert_equal(&got.body, range);
    }
    for value in ["bytes=100003-", "bytes=200000-200001", "bytes=-0"] {
        let got = ask(&mut client, "GET", "/f", &[("Range", value)]);
        assert_eq!((got.status, got.field("content-range")), (416, Some("bytes */100003")), "{value}");
    }
    let seventeen = format!("bytes={}", (0..17).map(|n| format!("{n}-{n}")).collect::<Vec<_>>().join(","));
    for value in ["bytes=2-1", "bytes=x", "lines=0-1", "bytes=0-99999,0-99999", &seventeen] {
        let got = ask(&mut client, "GET", "/f", &[("Range", value)]);
        assert_eq!(got.status, 200, "{value}");
        pattern::assert_equal(&got.body, 0..LEN);
    }
    assert_eq!(ask(&mut client, "HEAD", "/f", &[("Range", "bytes=0-0")]).status, 200);
}

#[test]
fn several_ranges_are_multipart() {
    const LEN: u64 = 100_003;
    let site = Site::new();
    site.add_pattern("f.txt", LEN);
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    let asked = [7..8, 16_383..49_999, 3..5, LEN - 33..LEN];
    let value = "bytes=7-7, 16383-49998,3-4 ,-33";
    let got = ask(&mut client, "GET", "/f.txt", &[("Range", value)]);
    assert_eq!(got.status, 206);
    let parts = multipart::parts(&got);
    let expected = asked.map(|range| Part {
        content_range: format!("bytes {}-{}/{LEN}", range.start, range.end - 1),
        content_type: "text/plain; charset=utf-8".to_owned(),
        bytes: pattern::bytes(range),
    });
    assert_eq!(parts, expected);
    // The connection is in step.
    assert_eq!(ask(&mut client, "GET", "/f.txt", &[("Range", "bytes=9-9")]).body, pattern::bytes(9..10));
}

#[test]
fn directories_and_their_index() {
    let site = Site::new();
    site.add("index.html", "top");
    site.add("a dir/index.html", "inner");
    site.add("empty/x/f", "");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    assert_eq!(ask(&mut client, "GET", "/", &[]).body, b"top");
    let got = ask(&mut client, "GET", "/a%20dir?q=1", &[]);
    assert_eq!((got.status, got.field("location")), (301, Some("/a%20dir/?q=1")));
    let got = ask(&mut client, "GET", "//a%20dir", &[]);
    assert_eq!((got.status, got.field("location")), (301, Some("/a%20dir/")));
    assert_eq!(ask(&mut client, "GET", "/a%20dir/", &[]).body, b"inner");
    for target in ["/empty/", "/empty/x/f/", "/none", "/none/", "/index.html/"] {
        assert_eq!(ask(&mut client, "GET", target, &[]).status, 404, "{target}");
    }
    let followed = curl::get(&site.pki, server.address(), "/a%20dir", &["-L"]);
    assert_eq!((followed.status, followed.body.as_slice()), (200, &b"inner"[..]));
}

#[test]
fn nothing_outside_the_root_and_nothing_hidden_is_served() {
    let site = Site::new();
    site.add("index.html", "top");
    site.add("dir/f", "inside");
    site.add(".git/config", "secret");
    site.add("dir/.env", "secret");
    site.add(".well-known/security.txt", "contact");
    std::fs::write(site.outside().join("secret"), "secret").expect("the file is written");
    site.link("relative", "../secret");
    site.link("absolute", "/etc/passwd");
    site.link("up", "..");
    site.link("proc", "/proc/self/fd/0");
    site.link("within", "dir/f");
    site.link("loop", "loop");
    mknodat(CWD, site.root().join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a FIFO");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    for target in [
        "/../secret",
        "/dir/../../secret",
        "/..",
        "/%2e%2e/secret",
        "/.%2E/secret",
        "/dir/%2e%2e/%2e%2e/secret",
        "/..%2fsecret",
        "/%2e%2e%2fsecret",
        "/dir%2f..%2f..%2fsecret",
        "/dir/..%5c..%5csecret",
        "/..\\secret",
        "/%252e%252e/secret",
        "/..;/secret",
        "/....//secret",
        "/%c0%ae%c0%ae/secret",
        "/%00",
        "/index.html%00.png",
        "/%zz",
        "//etc/passwd",
        "///../secret",
        "/relative",
        "/absolute",
        "/up/secret",
        "/proc",
        "/loop",
        "/fifo",
        "/.git/config",
        "/%2egit/config",
        "/dir/.env",
        "/dir/./f",
    ] {
        let got = ask(&mut client, "GET", target, &[]);
        assert!(matches!(got.status, 400 | 404), "{target}: {}", got.status);
        assert!(got.body.starts_with(got.status.to_string().as_bytes()), "{target} shows something");
        let got = curl::get(&site.pki, server.address(), target, &["--globoff"]);
        assert!(matches!(got.status, 400 | 404), "curl {target}: {}", got.status);
    }
    wait_for_message(&server, "symbolic link leads out of the root");
    assert_eq!(ask(&mut client, "GET", "/within", &[]).body, b"inside");
    assert_eq!(ask(&mut client, "GET", "/.well-known/security.txt", &[]).body, b"contact");
}

#[test]
fn forms_of_the_target() {
    let site = Site::new();
    site.add("f", "content");
    site.add("index.html", "top");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    for (target, body) in [
        ("/f?query", &b"content"[..]),
        ("/%66", b"content"),
        ("https://localhost/f", b"content"),
        ("HTTP://other:80/f", b"content"),
        ("https://localhost", b"top"),
        ("https://localhost?q", b"top"),
    ] {
        let got = ask(&mut client, "GET", target, &[]);
        assert_eq!((got.status, got.body.as_slice()), (200, body), "{target}");
    }
    for target in ["f", "*", "ftp://localhost/f", "https:///f", "/f#fragment", "/\u{e9}"] {
        refused(&site, &server, http::head("GET", target, &[]).as_bytes(), 400);
    }
}

#[test]
fn http_1_0() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let ending = exchange(&mut site.connect(&server), b"GET /f HTTP/1.0\r\n\r\n");
    let responses = parse_responses(&ending.data);
    assert_eq!(responses[0].body, b"content");
    assert_eq!(responses[0].field("connection"), Some("close"));
    ending.assert_orderly();

    let mut client = site.connect(&server);
    let request = b"GET /f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    for _ in 0..3 {
        client.send(request).expect("the request leaves");
        let got = http::read_response(&mut client, "GET").expect("the connection persists");
        assert_eq!((got.field("connection"), got.body.as_slice()), (Some("keep-alive"), &b"content"[..]));
    }
    exchange(&mut client, b"GET /f HTTP/1.0\r\n\r\n").assert_orderly();
    let got = curl::get(&site.pki, server.address(), "/f", &["--http1.0"]);
    assert_eq!(got.body, b"content");
}

#[test]
fn close_is_honoured() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let request = http::head("GET", "/f", &[("Connection", "x, Close")]);
    let ending = exchange(&mut site.connect(&server), [request, get("/f")].concat().as_bytes());
    let responses = parse_responses(&ending.data);
    assert_eq!(responses.len(), 1);
    assert_eq!(responses[0].field("connection"), Some("close"));
    ending.assert_orderly();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = Site::new();
    for n in 0..20u64 {
        site.add_pattern(&n.to_string(), n * 4_001);
    }
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    let requests: String = (0..20).map(|n| get(&format!("/{n}"))).collect();
    client.send(requests.as_bytes()).expect("they leave in one record");
    for n in 0..20u64 {
        let got = http::read_response(&mut client, "GET").expect("a response each");
        pattern::assert_equal(&got.body, 0..n * 4_001);
    }
}

/// Each read of the server finds the rest of one request and the beginning of the next, so that its buffer is never empty.
#[test]
fn endless_pipelining_takes_no_more_memory() {
    let site = Site::new();
    site.add("a", "a");
    let server = site.serve_from_user_space(&["--access-log", "off"]);
    let mut client = site.connect(&server);
    let request = http::head("GET", "/a", &[("X-Padding", &"x".repeat(8000))]).into_bytes();
    let (beginning, rest) = request.split_at(100);
    let piece = [rest, beginning].concat();
    client.send(beginning).expect("it leaves");
    let mut send = |requests: usize| {
        for _ in 0..requests {
            client.send(&piece).expect("it leaves");
            assert_eq!(http::read_response(&mut client, "GET").expect("a response each").body, b"a");
        }
    };
    send(100);
    let before = resident_pages(server.pid());
    send(4000);
    let grown = resident_pages(server.pid()).saturating_sub(before) * 4096;
    assert!(grown < 8 << 20, "32 MB of requests, and {grown} bytes more in memory");
}

/// proc(5): the second number of statm.
fn resident_pages(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("it runs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number")
}

#[test]
fn requests_arrive_in_any_pieces() {
    let site = Site::new();
    site.add("a", "first");
    site.add("b", "second");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    let requests = get("/a") + &http::head("GET", "/b", &[("Content-Length", "4")]) + "body" + &get("/a");
    let expect_three = |client: &mut Client| {
        for body in [&b"first"[..], b"second", b"first"] {
            assert_eq!(http::read_response(client, "GET").expect("a response each").body, body);
        }
    };
    // A record for every byte, all in one segment.
    let pieces: Vec<&[u8]> = requests.as_bytes().chunks(1).collect();
    client.send_records(&pieces).expect("they leave");
    expect_three(&mut client);
    // One record, a segment for every byte.
    let record = client.seal(ContentType::ApplicationData, requests.as_bytes());
    record.chunks(1).for_each(|byte| client.write(byte).expect("it leaves"));
    expect_three(&mut client);
    // Records and segments cut across each other, with empty lines before a request.
    let requests = requests.replace("GET /a", "\r\n\r\nGET /a");
    let records: Vec<u8> =
        requests.as_bytes().chunks(23).flat_map(|piece| client.seal(ContentType::ApplicationData, piece)).collect();
    records.chunks(31).for_each(|piece| client.write(piece).expect("it leaves"));
    expect_three(&mut client);
}

#[test]
fn request_bodies_are_drained_or_end_the_connection() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&["--max-discarded-body", "1000"]);
    let mut client = site.connect(&server);
    let content = "x".repeat(1000);
    let chunked = format!("1f4;ext=1\r\n{}\r\n0\r\nTrailer: x\r\n\r\n", &content[..500]);
    let kept: &[(&str, FieldList, &str, u16)] = &[
        ("POST", &[("Content-Length", "1000")], &content, 405),
        ("GET", &[("Content-Length", "5")], "GET /", 200),
        ("GET", &[("Content-Length", "0")], "", 200),
        ("POST", &[("Transfer-Encoding", "chunked")], &chunked, 405),
        ("GET", &[("Transfer-Encoding", "Chunked")], "0\r\n\r\n", 200),
    ];
    for (method, fields, body, status) in kept {
        let both = http::head(method, "/f", fields) + body + &get("/f");
        client.send(both.as_bytes()).expect("they leave");
        let got = http::read_response(&mut client, method).expect("an answer");
        assert_eq!((got.status, got.field("connection")), (*status, None), "{method} {fields:?}");
        let got = http::read_response(&mut client, "GET").expect("the connection is in step");
        assert_eq!((got.status, got.body.as_slice()), (200, &b"content"[..]), "behind {method} {fields:?}");
    }

    let endless = format!("ffff\r\n{content}");
    let closed: &[(FieldList, &str, u16)] = &[
        (&[("Content-Length", "1001")], &content, 405),
        (&[("Content-Length", "9223372036854775807")], "", 405),
        (&[("Transfer-Encoding", "chunked")], &endless, 405),
        (&[("Transfer-Encoding", "chunked")], "5\r\nabcdeX\r\n0\r\n\r\n", 400),
        (&[("Transfer-Encoding", "chunked")], "xyz\r\n", 400),
        (&[("Transfer-Encoding", "chunked")], "5\nabcde\n0\n\n", 400),
        // Whether the body comes is unknown, and no 100 is sent.
        (&[("Content-Length", "5"), ("Expect", "100-continue")], "", 405),
    ];
    for (fields, body, status) in closed {
        refused(&site, &server, (http::head("POST", "/f", fields) + body).as_bytes(), *status);
    }
    refused(&site, &server, http::head("GET", "/f", &[("Expect", "a-miracle")]).as_bytes(), 417);
    // curl sends Expect with a large body and takes the final answer.
    let large = site.outside().join("large");
    pattern::file(&large, 2 << 20);
    let upload = large.display().to_string();
    assert_eq!(curl::get(&site.pki, server.address(), "/f", &["--upload-file", &upload]).status, 405);
}

#[test]
fn what_two_servers_could_read_differently_is_refused() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let lines: &[(&str, u16)] = &[
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
        ("Content-Length: 5\r\nContent-Length: 6", 400),
        ("Content-Length: 5\r\nContent-Length: 5", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: +5", 400),
        ("Content-Length: -5", 400),
        ("Content-Length: 0x5", 400),
        ("Content-Length: 5 5", 400),
        ("Content-Length:", 400),
        ("Content-Length: 18446744073709551616", 400),
        ("Content-Length : 5", 400),
        ("Transfer-Encoding : chunked", 400),
        ("Transfer-Encoding: chunked, identity", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        ("Transfer-Encoding: identity", 400),
        ("Transfer-Encoding: xchunked", 400),
        ("Transfer-Encoding: \"chunked\"", 400),
        ("Transfer-Encoding:\u{b}chunked", 400),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("X: a\r\n folded", 400),
        (" X: before the first field", 400),
        ("X: a\nTransfer-Encoding: chunked", 400),
        ("X: a\rTransfer-Encoding: chunked", 400),
        ("X: a\0b", 400),
        ("no field", 400),
        (": no name", 400),
        ("X\u{e9}: a", 400),
        ("Host: other", 400),
    ];
    for (line, status) in lines {
        let head = format!("GET /f HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n");
        refused(&site, &server, head.as_bytes(), *status);
    }
    let heads: &[(&str, u16)] = &[
        ("GET /f HTTP/1.1\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost:\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET /f HTTP/1.1\r\nHost: user@localhost\r\n\r\n", 400),
        ("GET /f HTTP/1.1\nHost: localhost\n\n", 400),
        ("GET  /f HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /f\r\nHost: localhost\r\n\r\n", 400),
        ("GET /f HTTP/1.1 \r\nHost: localhost\r\n\r\n", 400),
        ("GET /f HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        ("GET /f HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET /f HTTP/0.9\r\nHost: localhost\r\n\r\n", 505),
        ("GET /f http/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /f HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("\r\n\r\n\r\n\r\n\r\n\r\nGET /f HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("\u{16}\u{3}\u{1}\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ];
    for (head, status) in heads {
        refused(&site, &server, head.as_bytes(), *status);
    }
}

#[test]
fn sizes_of_a_head_are_limited() {
    let site = Site::new();
    site.add("f", "content");
    let server = site.serve_from_user_space(&[]);
    let mut client = site.connect(&server);
    let line = |query: usize| get(&format!("/f?{}", "q".repeat(query)));
    let longest = 8192 - "GET /f? HTTP/1.1".len();
    let fields = |count: usize| {
        let more: String = (1..count).map(|n| format!("X-{n}: y\r\n")).collect();
        format!("GET /f HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
    };
    let head = |len: usize| {
        let without = "GET /f HTTP/1.1\r\nHost: localhost\r\nX: \r\n\r\n".len();
        format!("GET /f HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(len - without))
    };
    for allowed in [line(longest), fields(100), head(32 << 10)] {
        client.send(allowed.as_bytes()).expect("it leaves");
        assert_eq!(http::read_response(&mut client, "GET").expect("an answer").body, b"content");
    }
    refused(&site, &server, line(longest + 1).as_bytes(), 414);
    refused(&site, &server, fields(101).as_bytes(), 431);
    refused(&site, &server, head((32 << 10) + 1).as_bytes(), 431);

    let server = site.serve_from_user_space(&["--max-request-line", "300", "--max-head", "400", "--max-fields", "3"]);
    refused(&site, &server, line(300).as_bytes(), 414);
    refused(&site, &server, head(401).as_bytes(), 431);
    refused(&site, &server, fields(4).as_bytes(), 431);
    let server = site.serve_from_user_space(&["--max-ranges", "2"]);
    let mut client = site.connect(&server);
    assert_eq!(ask(&mut client, "GET", "/f", &[("Range", "bytes=0-0,2-2")]).status, 206);
    assert_eq!(ask(&mut client, "GET", "/f", &[("Range", "bytes=0-0,2-2,4-4")]).status, 200);
}

/// Whole bodies from user space with every suite and both kinds of certificate, to our client and to curl.
#[test]
fn bodies_are_whole_with_every_suite() {
    const SIZES: [u64; 11] = [0, 1, 1000, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, (1 << 20) + 7, 0];
    for pki in [Pki::ecdsa(), Pki::rsa()] {
        let site = Site::with(pki);
        for len in SIZES {
            site.add_pattern(&len.to_string(), len);
        }
        let server = site.serve_from_user_space(&[]);
        for suite in Suite::all() {
            let mut client = site.connector(suite).connect(server.address());
            for len in SIZES {
                let got = ask(&mut client, "GET", &format!("/{len}"), &[]);
                pattern::assert_equal(&got.body, 0..len);
            }
        }
        for len in SIZES {
            for version in ["1.2", "1.3"] {
                let options = ["--tls-max", version];
                let got = curl::get(&site.pki, server.address(), &format!("/{len}"), &options);
                pattern::assert_equal(&got.body, 0..len);
            }
        }
    }
}

#[test]
fn the_site_that_comes_along_is_served() {
    let site = Site::new();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/site");
    let mut arguments = site.arguments(&["--ktls", "never"]);
    arguments[1] = root.clone().into();
    let server = sealion_testkit::server::Server::start(PROGRAM.as_ref(), arguments);
    for (target, file) in [("/", "index.html"), ("/waves.png", "waves.png"), ("/s%C3%B8l%C3%B8ve.txt", "søløve.txt")]
    {
        let got = curl::get(&site.pki, server.address(), target, &[]);
        assert_eq!((got.status, got.body), (200, std::fs::read(root.join(file)).expect(file)), "{target}");
    }
}

#[test]
fn plain_http_to_the_port_gets_400_in_words_and_is_named_in_the_log() {
    use std::io::{Read, Write};
    let site = Site::new();
    let server = site.serve_from_user_space(&["--log", "debug"]);
    let mut plain = std::net::TcpStream::connect(server.address()).expect("it connects");
    plain.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it leaves");
    let mut answer = String::new();
    plain.read_to_string(&mut answer).expect("it is closed");
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("write https:// instead of http:// in the address.\n")
    );
    wait_for_message(&server, "the peer spoke plain HTTP to the HTTPS port");
    site.add("f", "content");
    assert_eq!(curl::get(&site.pki, server.address(), "/f", &[]).body, b"content");
    assert_eq!(access_line(&server, 1).get("status"), "200");
}
