use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use sealion_http::request::Conditions;
use sealion_http::{ContentEncoding, FieldSection, Fields, Target};

use super::*;
use crate::files::coding::config::CompressConfig;
use crate::files::coding::encoder::tests::decode;
use crate::limits::{BufferBudget, LimitsConfig};
use crate::response::{BodyStream, Piece, Source};
use crate::upstream::Upstreams;
use crate::values::{Mutex, Problems, Size};

const LONG: usize = 100_000;

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"a text of words that come again. "[at * 7 % 33]).collect()
}

fn compression(keys: &str, limits: &LimitsConfig) -> Compression {
    let config: CompressConfig = toml::from_str(keys).unwrap();
    let mut problems = Problems::of_file("f".as_ref(), keys);
    let settings = config.build("compress", &mut problems);
    assert_eq!(problems.to_string(), "");
    let upstreams = Upstreams::build(&[], Vec::new(), &mut problems);
    let upstreams = upstreams.with_limits(limits, &Arc::<BufferBudget>::default());
    Compression::new(settings, &upstreams.waiting)
}

/// A request with these lines of fields.
fn with_request<T>(method: Method<'_>, lines: &str, ask: impl FnOnce(&Request<'_>) -> T) -> T {
    let fields = FieldSection::from_lines(lines.as_bytes());
    let mut conditions = Conditions::default();
    fields.iter().for_each(|(name, value)| conditions.add(std::str::from_utf8(name).unwrap(), value));
    let target = Target::Path { path: "/", query: None };
    ask(&Request { method, target, raw_target: "/", authority: None, conditions, fields })
}

/// The response of an application.
fn response(status: u16, lines: &[(&str, &str)], body: Body) -> Response {
    let mut fields = Fields { forwarded: true, ..Fields::default() };
    lines.iter().for_each(|(name, value)| fields.extra.add(name, value));
    Response::new(Status::new(status).unwrap(), fields, body)
}

fn of_length(length: usize) -> Body {
    Body::Bytes(Cow::Owned(text(length)))
}

/// Status, Content-Encoding, Vary added, length known, and all other fields.
fn summary(response: &Response) -> String {
    let coding = response.fields.content_encoding.map_or("-", ContentEncoding::token);
    let vary = if response.fields.varies { "vary" } else { "-" };
    let length = if response.body.len().is_some() { "length" } else { "-" };
    let fields: Vec<_> = response
        .fields
        .extra
        .iter()
        .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)))
        .collect();
    format!("{coding} {vary} {length} {}", fields.join(" "))
}

/// Accept-Encoding, status and fields of a response, and its [`summary`].
type Row = (&'static str, u16, &'static [(&'static str, &'static str)], &'static str);

#[test]
fn responses_are_coded_or_stay_as_they_are() {
    const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");
    let compression = compression("", &LimitsConfig::default());
    let rows: &[Row] = &[
        // Coded, and its fields.
        ("gzip", 200, &[HTML], "gzip vary - content-type=text/html; charset=utf-8"),
        ("gzip, br", 200, &[("Content-Type", "TEXT/HTML")], "br vary - Content-Type=TEXT/HTML"),
        ("gzip", 404, &[("content-type", "application/json")], "gzip vary - content-type=application/json"),
        ("gzip", 200, &[HTML, ("ETag", "\"a\"")], "gzip vary - content-type=text/html; charset=utf-8 ETag=W/\"a\""),
        ("gzip", 200, &[("etag", "W/\"a\""), HTML], "gzip vary - etag=W/\"a\" content-type=text/html; charset=utf-8"),
        ("zstd", 200, &[HTML, ("Accept-Ranges", "bytes")], "zstd vary - content-type=text/html; charset=utf-8"),
        ("gzip", 200, &[("vary", "Cookie"), HTML], "gzip vary - vary=Cookie content-type=text/html; charset=utf-8"),
        // Vary is not added twice.
        (
            "gzip",
            200,
            &[("vary", "a, Accept-encoding"), ("content-type", "text/x")],
            "gzip - - vary=a, Accept-encoding content-type=text/x",
        ),
        ("gzip", 200, &[("vary", "*"), ("content-type", "text/x")], "gzip - - vary=* content-type=text/x"),
        // The client decides, and may decide otherwise next time.
        ("", 200, &[("content-type", "text/x"), ("etag", "\"a\"")], "- vary length content-type=text/x etag=\"a\""),
        ("gzip;q=0", 200, &[("content-type", "text/x")], "- vary length content-type=text/x"),
        ("identity, gzip;q=0.5", 200, &[("content-type", "text/x")], "- vary length content-type=text/x"),
        ("deflate", 200, &[("content-type", "text/x")], "- vary length content-type=text/x"),
        ("*", 200, &[("content-type", "text/x")], "br vary - content-type=text/x"),
        // Never coded.
        ("gzip", 200, &[], "- - length "),
        ("gzip", 200, &[("content-type", "image/png")], "- - length content-type=image/png"),
        (
            "gzip",
            200,
            &[("content-type", "text/x"), ("content-type", "text/y")],
            "- - length content-type=text/x content-type=text/y",
        ),
        (
            "gzip",
            200,
            &[("content-type", "text/x"), ("content-encoding", "br")],
            "- - length content-type=text/x content-encoding=br",
        ),
        (
            "gzip",
            200,
            &[("content-type", "text/x"), ("cache-control", "public, No-Transform")],
            "- - length content-type=text/x cache-control=public, No-Transform",
        ),
        (
            "gzip",
            200,
            &[("content-type", "text/x"), ("repr-digest", "sha-256=:YQ==:")],
            "- - length content-type=text/x repr-digest=sha-256=:YQ==:",
        ),
        (
            "gzip",
            200,
            &[("content-type", "text/x"), ("Content-MD5", "YQ==")],
            "- - length content-type=text/x Content-MD5=YQ==",
        ),
        (
            "gzip",
            200,
            &[("content-type", "text/x"), ("trailer", "x, Digest")],
            "- - length content-type=text/x trailer=x, Digest",
        ),
        (
            "gzip",
            200,
            &[("content-type", "text/x"), ("content-range", "bytes 0-1/3")],
            "- - length content-type=text/x content-range=bytes 0-1/3",
        ),
        ("gzip", 204, &[("content-type", "text/x")], "- - length content-type=text/x"),
        ("gzip", 205, &[("content-type", "text/x")], "- - length content-type=text/x"),
        ("gzip", 101, &[("content-type", "text/x")], "- - length content-type=text/x"),
        ("gzip", 416, &[("content-type", "text/x")], "- - length content-type=text/x"),
        // A part is of the content without coding.
        ("gzip", 206, &[("content-type", "text/x"), ("etag", "\"a\"")], "- vary length content-type=text/x etag=\"a\""),
        // The validator of a 304 is the one of the coded response.
        ("gzip", 304, &[("etag", "\"a\"")], "- vary length etag=W/\"a\""),
        ("", 304, &[("etag", "\"a\"")], "- vary length etag=\"a\""),
        (
            "gzip",
            304,
            &[("etag", "\"a\""), ("content-type", "image/png")],
            "- - length etag=\"a\" content-type=image/png",
        ),
    ];
    for (accept, status, lines, expected) in rows {
        let mut response = response(*status, lines, of_length(LONG));
        let fields = format!("accept-encoding: {accept}\r\n");
        with_request(Method::Get, &fields, |request| compression.apply(&mut response, request, None));
        assert_eq!(summary(&response), *expected, "{accept} {status} {lines:?}");
    }
}

#[test]
fn length_request_and_origin_decide_too() {
    let compression = compression("min = 1000", &LimitsConfig::default());
    let html = [("content-type", "text/html")];
    let ask = |method, fields: &str, mut response: Response| {
        with_request(method, fields, |request| compression.apply(&mut response, request, None));
        summary(&response)
    };
    let gzip = "accept-encoding: gzip\r\n";
    let unknown = || Body::Stream(BodyStream { length: None, source: Box::pin(Pieces::default()) });
    assert_eq!(ask(Method::Get, gzip, response(200, &html, of_length(999))), "- - length content-type=text/html");
    assert_eq!(ask(Method::Get, gzip, response(200, &html, of_length(1000))), "gzip vary - content-type=text/html");
    assert_eq!(ask(Method::Get, gzip, response(200, &html, unknown())), "gzip vary - content-type=text/html");
    // HEAD has the fields of GET, and no content.
    assert_eq!(ask(Method::Head, gzip, response(200, &html, of_length(1000))), "gzip vary - content-type=text/html");
    assert_eq!(ask(Method::Head, gzip, response(200, &html, of_length(999))), "- - length content-type=text/html");
    let fixed = "accept-encoding: gzip\r\ncache-control: no-transform\r\n";
    assert_eq!(ask(Method::Get, fixed, response(200, &html, of_length(1000))), "- - length content-type=text/html");
    let mut own = response(200, &html, of_length(1000));
    own.fields.forwarded = false;
    assert_eq!(ask(Method::Get, gzip, own), "- - length content-type=text/html");
}

#[test]
fn a_range_is_hidden_where_its_condition_does_not_tell_coded_content_from_other() {
    let compression = compression("", &LimitsConfig::default());
    for (fields, expected) in [
        ("range: bytes=1-\r\naccept-encoding: gzip\r\nif-range: Mon, 23 Nov 2026 10:00:00 GMT\r\n", true),
        ("range: bytes=1-\r\naccept-encoding: gzip\r\nif-range: W/\"a\"\r\n", true),
        ("range: bytes=1-\r\naccept-encoding: gzip\r\nif-range: \"a\"\r\n", false),
        ("range: bytes=1-\r\naccept-encoding: gzip\r\n", false),
        ("range: bytes=1-\r\nif-range: W/\"a\"\r\n", false),
        ("accept-encoding: gzip\r\nif-range: W/\"a\"\r\n", false),
    ] {
        assert_eq!(with_request(Method::Get, fields, |request| compression.hides_range(request)), expected, "{fields}");
    }
}

#[test]
fn without_memory_responses_are_not_coded_and_encoders_give_theirs_back() {
    let limits = LimitsConfig { max_buffered: Size(1 << 20), ..LimitsConfig::default() };
    let compression = compression("", &limits);
    let gzip = |method| {
        let mut response = response(200, &[("content-type", "text/html"), ("etag", "\"a\"")], of_length(LONG));
        with_request(method, "accept-encoding: gzip\r\n", |request| compression.apply(&mut response, request, None));
        response
    };
    let first = gzip(Method::Get);
    assert_eq!(first.fields.content_encoding, Some(Coding::Gzip.into()));
    assert_eq!(summary(&gzip(Method::Get)), "- vary length content-type=text/html etag=\"a\"");
    assert_eq!(gzip(Method::Head).fields.content_encoding, Some(Coding::Gzip.into()), "it takes no memory");
    drop(first);
    assert_eq!(gzip(Method::Get).fields.content_encoding, Some(Coding::Gzip.into()));
}

/// Gives pieces and pauses as told.
#[derive(Default)]
struct Pieces(Mutex<std::collections::VecDeque<Poll<std::io::Result<&'static [u8]>>>>);

impl Source for Pieces {
    fn poll_piece(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Piece>>> {
        match self.0.lock().pop_front() {
            None => Poll::Ready(None),
            Some(Poll::Pending) => Poll::Pending,
            Some(Poll::Ready(piece)) => Poll::Ready(Some(piece.map(|bytes| Piece::Bytes(Bytes::from_static(bytes))))),
        }
    }
}

fn coded(
    coding: Coding,
    length: Option<u64>,
    pieces: impl IntoIterator<Item = Poll<std::io::Result<&'static [u8]>>>,
) -> BodyStream {
    let source = Box::pin(Pieces(Mutex::new(pieces.into_iter().collect())));
    let body = Body::Stream(BodyStream { length, source });
    let mut response = response(200, &[("content-type", "text/plain")], body);
    let fields = format!("accept-encoding: {coding}\r\n");
    let compression = compression("", &LimitsConfig::default());
    with_request(Method::Get, &fields, |request| compression.apply(&mut response, request, None));
    match response.body {
        Body::Stream(stream) => stream,
        _ => panic!("it is coded while it is sent"),
    }
}

fn ask(stream: &mut BodyStream) -> Poll<Option<Result<Vec<u8>, String>>> {
    let piece = stream.source.as_mut().poll_piece(&mut Context::from_waker(Waker::noop()));
    piece.map(|piece| {
        piece.map(|piece| match piece {
            Ok(Piece::Bytes(bytes)) => Ok(bytes.to_vec()),
            Ok(Piece::File { .. }) => panic!("it is in memory"),
            Err(error) => Err(error.to_string()),
        })
    })
}

#[test]
fn an_event_leaves_before_the_next_one_comes() {
    for coding in Coding::ALL {
        let event = |bytes: &'static [u8]| Poll::Ready(Ok(bytes));
        let mut stream = coded(
            coding,
            None,
            [event(b"data: 1\n\n"), Poll::Pending, Poll::Pending, event(b"data: 2\n\n"), Poll::Pending],
        );
        let Poll::Ready(Some(Ok(first))) = ask(&mut stream) else { panic!("{coding}: the first event") };
        assert_eq!(ask(&mut stream), Poll::Pending, "{coding}: nothing new");
        let Poll::Ready(Some(Ok(second))) = ask(&mut stream) else { panic!("{coding}: the second event") };
        let Poll::Ready(Some(Ok(end))) = ask(&mut stream) else { panic!("{coding}: the end") };
        assert_eq!(ask(&mut stream), Poll::Ready(None));
        assert_eq!(begun(coding, &first), b"data: 1\n\n", "{coding}");
        assert_eq!(begun(coding, &[&*first, &second].concat()), b"data: 1\n\ndata: 2\n\n", "{coding}");
        assert_eq!(decode(coding, &[first, second, end].concat()), b"data: 1\n\ndata: 2\n\n", "{coding}");
    }
}

/// Decodes as much as there is.
fn begun(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut reader: Box<dyn Read + '_> = match coding {
        Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 4096)),
        Coding::Zstd => Box::new(zstd::Decoder::new(bytes).unwrap()),
        Coding::Gzip => Box::new(flate2::read::GzDecoder::new(bytes)),
    };
    let (mut decoded, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = reader.read(&mut buffer) {
        decoded.extend_from_slice(&buffer[..read]);
    }
    decoded
}

#[test]
fn an_origin_that_breaks_off_leaves_the_coding_without_its_end() {
    let broken = || Poll::Ready(Err(std::io::Error::other("the origin broke off")));
    for coding in Coding::ALL {
        let mut failing = coded(coding, None, [Poll::Ready(Ok(&b"abc"[..])), Poll::Pending, broken()]);
        let Poll::Ready(Some(Ok(first))) = ask(&mut failing) else { panic!("{coding}: what came before") };
        assert_eq!(ask(&mut failing), Poll::Ready(Some(Err("the origin broke off".to_owned()))));
        assert!(matches!(ask(&mut failing), Poll::Ready(Some(Err(_)))), "{coding}: it has no end");
        assert_eq!(begun(coding, &first), b"abc", "{coding}");
        // Another length than announced.
        let mut short = coded(coding, Some(5000), [Poll::Ready(Ok(&b"abc"[..]))]);
        let Poll::Ready(Some(Err(error))) = ask(&mut short) else { panic!("{coding}: an error") };
        assert_eq!(error, "response body length mismatch: 5000 bytes announced, 3 produced");
    }
}

#[test]
fn a_poll_takes_one_step_and_wakes_for_the_next() {
    let long: &'static [u8] = Box::leak(text(LONG).into_boxed_slice());
    for coding in Coding::ALL {
        let mut stream = coded(coding, Some(LONG as u64), [Poll::Ready(Ok(long))]);
        let (mut out, mut pauses) = (Vec::new(), 0);
        loop {
            match ask(&mut stream) {
                Poll::Pending => pauses += 1,
                Poll::Ready(Some(piece)) => out.extend_from_slice(&piece.unwrap()),
                Poll::Ready(None) => break,
            }
        }
        assert!(decode(coding, &out) == long, "{coding}");
        assert!(pauses >= 5, "{coding}: {pauses} pauses in seven steps");
    }
}
