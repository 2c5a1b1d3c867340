use Framing::{Chunked, Length};

use super::*;

const LIMITS: HeadLimits = HeadLimits { request_line: 60, head: 300, fields: 8 };

#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it lives as long as a test")]
enum Parsed<'a> {
    Incomplete,
    Head { head: RequestHead<'a>, len: usize },
}

fn parse<'a>(buf: &'a [u8], limits: &HeadLimits) -> Result<Parsed<'a>, Reject> {
    let Some(span) = find(buf, limits)? else { return Ok(Parsed::Incomplete) };
    let head = RequestHead::parse(buf, span)?;
    let copy = &buf[span.start..span.end];
    assert_eq!(RequestHead::parse(copy, span.from_start()).as_ref(), Ok(&head), "a copy of the head says the same");
    Ok(Parsed::Head { head, len: span.end })
}

/// Parses `input` as it would arrive byte by byte, and checks that each prefix has the same result as the whole.
fn parse_split<'a>(input: &'a [u8], limits: &HeadLimits) -> Result<Parsed<'a>, Reject> {
    let whole = parse(input, limits);
    for end in 0..input.len() {
        let prefix = parse(&input[..end], limits);
        let decided_later = prefix == Ok(Parsed::Incomplete);
        assert!(decided_later || prefix == whole, "{} of {}: {prefix:?}", end, input.escape_ascii());
    }
    let mut longer = input.to_vec();
    longer.extend_from_slice(b"\r\n\0 GET");
    if whole != Ok(Parsed::Incomplete) {
        assert_eq!(parse(&longer, limits), whole, "more after {}", input.escape_ascii());
    }
    whole
}

fn accepted(text: &str) -> RequestHead<'_> {
    match parse_split(text.as_bytes(), &LIMITS) {
        Ok(Parsed::Head { head, len }) => {
            assert_eq!(len, text.len(), "{text:?}");
            head
        }
        other => panic!("{text:?}: {other:?}"),
    }
}

fn rejected(text: &str) -> (u16, &'static str) {
    match parse_split(text.as_bytes(), &LIMITS) {
        Err(Reject { status, why }) => (status.code(), why),
        other => panic!("{text:?}: {other:?}"),
    }
}

/// A request whose field lines after Host are `fields`.
fn with(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

#[test]
fn a_whole_request() {
    let text = "GET /a%20b?c HTTP/1.1\r\nHost: localhost:8443\r\nRange:\t bytes=0-1 \t\r\nIf-None-Match: \"x\"\r\n\
                IF-RANGE: \"é\"\r\nAccept:\r\n\r\n";
    let head = accepted(text);
    let request = head.request;
    assert_eq!(request.method, Method::Get);
    assert_eq!(request.target, Target::Path { path: "/a%20b", query: Some("c") });
    assert_eq!(request.raw_target, "/a%20b?c");
    assert_eq!(request.authority, Some("localhost:8443"));
    assert_eq!(request.conditions.range.value(), Some(&b"bytes=0-1"[..]));
    assert_eq!(request.conditions.if_range.value(), Some("\"é\"".as_bytes()));
    assert!(request.conditions.if_none_match.is_present());
    assert!(!request.conditions.if_match.is_present());
    assert_eq!((head.version, head.keep_alive), (Version::Http11, true));
    assert_eq!((head.framing, head.expect_continue), (Framing::None, false));
}

#[test]
fn pipelined_requests_and_content_are_left_in_the_buffer() {
    let first = "\r\n\r\nPOST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    let all = format!("{first}abcGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    let Ok(Parsed::Head { head, len }) = parse_split(all.as_bytes(), &LIMITS) else { panic!() };
    assert_eq!((head.framing, len), (Length(3), first.len()));
    let Ok(Parsed::Head { head, len }) = parse(&all.as_bytes()[first.len() + 3..], &LIMITS) else { panic!() };
    assert_eq!((head.request.raw_target, len), ("/2", all.len() - first.len() - 3));
}

#[test]
fn persistence_as_in_rfc_9112_section_9_3() {
    for (version, connection, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "connection: foo ,CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: a\r\nConnection: close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection:\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Connection: close\r\nConnection: keep-alive\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
        assert_eq!(accepted(&text).keep_alive, keep_alive, "{text:?}");
    }
}

#[test]
fn framing_as_in_rfc_9112_section_6_3() {
    for (fields, framing) in [
        ("", Framing::None),
        ("Content-Length: 0\r\n", Framing::None),
        ("content-length:5\r\n", Length(5)),
        ("Content-Length: 0005\r\n", Length(5)),
        ("Content-Length: 9223372036854775807\r\n", Length(i64::MAX as u64)),
        ("Transfer-Encoding: chunked\r\n", Chunked),
        ("transfer-encoding: CHUNKED \r\n", Chunked),
    ] {
        assert_eq!(accepted(&with(fields)).framing, framing, "{fields:?}");
    }
}

#[test]
fn ambiguous_framing_is_refused() {
    const NUMBER: &str = "Content-Length is not one number below 2^63";
    const MALFORMED: &str = "Transfer-Encoding is malformed";
    const NOT_LAST: &str = "chunked is not the last transfer coding";
    const OTHER: &str = "a transfer coding other than chunked";
    const BOTH: &str = "both Transfer-Encoding and Content-Length";
    const TOKEN: &str = "a field name is not a token";
    const CONTROL: &str = "a control character in a field value";
    for (fields, expected) in [
        ("Content-Length: 5\r\nContent-Length: 5\r\n", (400, "Content-Length is repeated")),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", (400, "Content-Length is repeated")),
        ("Content-Length: 0\r\nContent-Length: 0\r\n", (400, "Content-Length is repeated")),
        ("Content-Length: 5, 5\r\n", (400, NUMBER)),
        ("Content-Length: 5,6\r\n", (400, NUMBER)),
        ("Content-Length:\r\n", (400, NUMBER)),
        ("Content-Length: +5\r\n", (400, NUMBER)),
        ("Content-Length: -5\r\n", (400, NUMBER)),
        ("Content-Length: 0x5\r\n", (400, NUMBER)),
        ("Content-Length: 5 5\r\n", (400, NUMBER)),
        ("Content-Length: 5.0\r\n", (400, NUMBER)),
        ("Content-Length: \"5\"\r\n", (400, NUMBER)),
        ("Content-Length: 9223372036854775808\r\n", (400, NUMBER)),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", (400, BOTH)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", (400, BOTH)),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", (400, BOTH)),
        ("Transfer-Encoding: gzip, chunked\r\n", (501, OTHER)),
        ("Transfer-Encoding: gzip;q=1\r\nTransfer-Encoding: chunked\r\n", (501, OTHER)),
        ("Transfer-Encoding: identity\r\n", (400, NOT_LAST)),
        ("Transfer-Encoding: gzip\r\n", (400, NOT_LAST)),
        ("Transfer-Encoding: xchunked\r\n", (400, NOT_LAST)),
        ("Transfer-Encoding: chunked;a=b\r\n", (400, NOT_LAST)),
        ("Transfer-Encoding: chunked, gzip\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: chunked, identity\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: chunked, chunked\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: gzip, chunked, gzip\r\n", (400, MALFORMED)),
        ("Transfer-Encoding:\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: ,chunked\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: chunked,\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: \"chunked\"\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: chun ked\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: ;\r\n", (400, MALFORMED)),
        ("Transfer-Encoding: \x0bchunked\r\n", (400, CONTROL)),
        ("Transfer-Encoding: chunked\0\r\n", (400, CONTROL)),
        ("Transfer-Encoding : chunked\r\n", (400, TOKEN)),
        ("Transfer-Encoding\t: chunked\r\n", (400, TOKEN)),
        ("Transfer\0-Encoding: chunked\r\n", (400, TOKEN)),
        ("Content-Length : 5\r\n", (400, TOKEN)),
        ("(Content-Length): 5\r\n", (400, TOKEN)),
        (": 5\r\n", (400, TOKEN)),
        ("Content-Length\r\n", (400, TOKEN)),
        ("X: a\x7f\r\n", (400, CONTROL)),
        ("X: a\x1bb\r\n", (400, CONTROL)),
        ("X: a\n", (400, "LF without CR")),
        ("X: a\nTransfer-Encoding: chunked\r\n", (400, "LF without CR")),
        ("X: a\rTransfer-Encoding: chunked\r\n", (400, "CR without LF")),
        ("X: a\r\r\n", (400, "CR without LF")),
        ("Transfer-Encoding:\r\n chunked\r\n", (400, "a field line begins with whitespace")),
        ("X: a\r\n\tb\r\n", (400, "a field line begins with whitespace")),
        (" Content-Length: 5\r\n", (400, "a field line begins with whitespace")),
        (" \r\n", (400, "a field line begins with whitespace")),
    ] {
        assert_eq!(rejected(&with(fields)), expected, "{fields:?}");
    }
    let http10 = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(rejected(http10), (400, "Transfer-Encoding in HTTP/1.0"));
    // An underscore in a name is not an alias of a hyphen.
    assert_eq!(accepted(&with("Transfer_Encoding: chunked\r\nContent_Length: 5\r\n")).framing, Framing::None);
}

#[test]
fn a_later_minor_version_is_http_1_1() {
    let text = |version: &str| format!("GET /a?b HTTP/{version}\r\nHost: h\r\nRange: bytes=0-1\r\n\r\n");
    let usual = text("1.1");
    let usual = accepted(&usual);
    for version in ["1.2", "1.9"] {
        assert_eq!(accepted(&text(version)), usual);
    }
}

#[test]
fn request_lines() {
    const LINE: &str = "the request line is not method, target and version";
    const TARGET: &str = "the target has a fragment or is not ASCII";
    const FORM: &str = "the target is neither a path nor an http URI";
    for (line, expected) in [
        ("GET / HTTP/2.0", (505, "the version is not HTTP/1")),
        ("GET /\u{e9} HTTP/1.2", (400, LINE)),
        ("GET / HTTP/1.2 ", (400, LINE)),
        ("G@T / HTTP/1.2", (400, LINE)),
        ("GET / HTTP/0.9", (505, "the version is not HTTP/1")),
        // The preface of HTTP/2 (RFC 9113 §3.4).
        ("PRI * HTTP/2.0", (505, "the version is not HTTP/1")),
        ("GET / HTTP/11", (400, LINE)),
        ("GET / HTTP/1", (400, LINE)),
        ("GET / HTTP/1.10", (400, "the head is malformed")),
        ("GET / http/1.1", (400, LINE)),
        ("GET / HTTPS/1.1", (400, LINE)),
        ("GET /", (400, LINE)),
        ("GET", (400, LINE)),
        ("GET  / HTTP/1.1", (400, LINE)),
        ("GET /  HTTP/1.1", (400, LINE)),
        ("GET\t/ HTTP/1.1", (400, LINE)),
        ("GET /a b HTTP/1.1", (400, LINE)),
        ("GET / HTTP/1.1 ", (400, "the head is malformed")),
        ("GET / HTTP/1.1 HTTP/1.1", (400, "the head is malformed")),
        ("GE(T / HTTP/1.1", (400, LINE)),
        ("GET /\x7f HTTP/1.1", (400, LINE)),
        ("GET /\0 HTTP/1.1", (400, LINE)),
        ("GET /é HTTP/1.1", (400, TARGET)),
        ("GET /#a HTTP/1.1", (400, TARGET)),
        ("GET https://a/#b HTTP/1.1", (400, TARGET)),
        ("GET a HTTP/1.1", (400, FORM)),
        ("GET ?a HTTP/1.1", (400, FORM)),
        ("GET a.example:443 HTTP/1.1", (400, FORM)),
        ("GET ftp://a/ HTTP/1.1", (400, FORM)),
        ("GET https:/a HTTP/1.1", (400, FORM)),
        ("GET * HTTP/1.1", (400, FORM)),
        ("GET https:/// HTTP/1.1", (400, "the host is invalid")),
        ("GET https://u@a/ HTTP/1.1", (400, "the host is invalid")),
        ("CONNECT a:443 HTTP/1.1", (405, "CONNECT: not a proxy")),
        ("CONNECT / HTTP/1.1", (405, "CONNECT: not a proxy")),
        (" GET / HTTP/1.1", (400, "not an HTTP request")),
        ("\x16\x03\x01\x02", (400, "not an HTTP request")),
        ("\0", (400, "not an HTTP request")),
        ("GET / HTTP/1.1\rX", (400, "CR without LF")),
        ("\n", (400, "LF without CR")),
        ("GET / HTTP/1.1\nHost: a\n\n", (400, "LF without CR")),
    ] {
        assert_eq!(rejected(&format!("{line}\r\nHost: a\r\n\r\n")), expected, "{line:?}");
    }
}

#[test]
fn forms_of_the_target() {
    let path = |path, query| Target::Path { path, query };
    for (line, target, authority) in [
        ("GET /a?b", path("/a", Some("b")), "host"),
        ("GET //a", path("//a", None), "host"),
        ("GET https://other/a?b", path("/a", Some("b")), "other"),
        ("GET HTTPS://other:8443/", path("/", None), "other:8443"),
        ("GET http://other", path("/", None), "other"),
        ("GET https://other?a/b", path("/", Some("a/b")), "other"),
        ("GET https://other/?", path("/", Some("")), "other"),
        ("GET https://[::1]:8443/a", path("/a", None), "[::1]:8443"),
        ("OPTIONS *", Target::Asterisk, "host"),
        ("OPTIONS /", path("/", None), "host"),
        ("BREW /pot", path("/pot", None), "host"),
    ] {
        let text = format!("{line} HTTP/1.1\r\nHost: host\r\n\r\n");
        let request = accepted(&text).request;
        assert_eq!((request.target, request.authority), (target, Some(authority)), "{line}");
    }
}

#[test]
fn host() {
    for (host, valid) in [
        ("a", true),
        ("A.example.", true),
        ("localhost:8443", true),
        ("127.0.0.1:1", true),
        ("a:", true),
        ("[::1]", true),
        ("[::ffff:1.2.3.4]:65535", true),
        ("a_b", true),
        ("%c3%a9", true),
        ("", false),
        (":443", false),
        ("a:b", false),
        ("a:65536", false),
        ("a:-1", false),
        ("a:1:2", false),
        ("a b", false),
        ("a, b", false),
        ("a/b", false),
        ("a?b", false),
        ("a#b", false),
        ("u@a", false),
        ("[::1", false),
        ("[]", false),
        ("[::1]a", false),
        ("[v1.x]", false),
        ("::1", false),
        ("é", false),
    ] {
        let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        match valid {
            true => assert_eq!(accepted(&text).request.authority, Some(host)),
            false => assert!(rejected(&text).1.contains("host is invalid"), "{host:?}"),
        }
    }
    assert_eq!(rejected("GET / HTTP/1.1\r\n\r\n"), (400, "Host is missing"));
    assert_eq!(rejected("GET https://a/ HTTP/1.1\r\n\r\n"), (400, "Host is missing"));
    assert_eq!(rejected(&with("host: a\r\n")), (400, "Host is repeated"));
    assert_eq!(accepted("GET / HTTP/1.0\r\n\r\n").request.authority, None);
}

#[test]
fn expect() {
    for (head, expected) in [
        ("POST / HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n", Ok(true)),
        ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-Continue\r\n", Ok(true)),
        ("GET / HTTP/1.1\r\nExpect: 100-continue\r\n", Ok(false)),
        ("GET / HTTP/1.1\r\nExpect:\r\n", Ok(false)),
        ("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n", Ok(false)),
        ("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: x\r\n", Ok(false)),
        ("GET / HTTP/1.1\r\nExpect: x\r\n", Err(417)),
        ("GET / HTTP/1.1\r\nExpect: 100-continue, x\r\n", Err(417)),
        ("GET / HTTP/1.1\r\nExpect: 100-continue\r\nExpect: 200-ok\r\n", Err(417)),
    ] {
        let text = format!("{head}Host: a\r\n\r\n");
        match expected {
            Ok(waits) => assert_eq!(accepted(&text).expect_continue, waits, "{head:?}"),
            Err(status) => assert_eq!(rejected(&text).0, status, "{head:?}"),
        }
    }
}

#[test]
fn sizes() {
    // "GET " and " HTTP/1.1" are 13 bytes.
    let line = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(length - 14));
    accepted(&line(60));
    assert_eq!(rejected(&line(61)), (414, "the request line is too long"));
    assert_eq!(rejected(&"G".repeat(61)), (414, "the request line is too long"));

    let head = |length: usize| with(&format!("X: {}\r\n", "x".repeat(length - 32)));
    assert_eq!(head(300).len(), 300);
    accepted(&head(300));
    assert_eq!(rejected(&head(301)), (431, "the head is too long"));
    assert_eq!(rejected(&head(302)), (431, "the head is too long"));
    assert_eq!(rejected(&head(303)), (431, "the head is too long"));
    assert_eq!(rejected(&format!("GET / HTTP/1.1\r\n{}", "x".repeat(300))), (431, "the head is too long"));

    accepted(&with(&"X: y\r\n".repeat(7)));
    assert_eq!(rejected(&with(&"X: y\r\n".repeat(8))), (431, "too many fields"));

    accepted(&format!("{}{}", "\r\n".repeat(4), with("")));
    assert_eq!(rejected(&"\r\n".repeat(5)), (400, "too many empty lines before the request line"));
}

#[test]
fn number_of_fields_is_bounded_by_the_array() {
    let limits = HeadLimits { request_line: 100, head: 1 << 20, fields: usize::MAX };
    let head = |fields: usize| with(&"X: y\r\n".repeat(fields - 1));
    assert!(matches!(parse(head(HeadLimits::MAX_FIELDS).as_bytes(), &limits), Ok(Parsed::Head { .. })));
    let reject = parse(head(HeadLimits::MAX_FIELDS + 1).as_bytes(), &limits).unwrap_err();
    assert_eq!(reject.status, Status::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

#[test]
fn a_full_buffer_is_never_incomplete() {
    for pattern in ["G", "\r\n", "GET / HTTP/1.1\r\nX: ", "GET / HTTP/1.1\r\nX: y\r\nX: y\r\n", "\r\n\r\n\r\n\r\nGET"] {
        let tail = "x".repeat(LIMITS.buffer());
        let input = &format!("{pattern}{tail}").into_bytes()[..LIMITS.buffer()];
        assert!(parse(input, &LIMITS).is_err(), "{pattern:?}");
    }
    // The longest accepted head after the maximum number of skipped empty lines.
    let longest = format!("{}{}", "\r\n".repeat(4), with(&format!("X: {}\r\n", "x".repeat(268))));
    assert!(longest.len() <= LIMITS.buffer());
    accepted(&longest);
}

#[test]
fn head_limit_below_the_request_line_limit() {
    let limits = HeadLimits { request_line: 1000, head: 40, fields: 8 };
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(100));
    assert_eq!(parse_split(long.as_bytes(), &limits).unwrap_err().status, Status::REQUEST_HEADER_FIELDS_TOO_LARGE);
}
