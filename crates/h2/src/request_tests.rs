use sealion_http::multiplexed::Priority;
use sealion_http::request::{Method, Target};

use super::*;
use crate::hpack::HeaderBlock;

/// A block of literal fields with arbitrary names.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for string in [name, value] {
            assert!(string.len() < 127);
            block.push(string.len() as u8);
            block.extend_from_slice(string.as_bytes());
        }
    }
    block
}

fn read(kind: Kind, fields: &[(&str, &str)], limits: &Limits) -> (Section, HeadBuffer) {
    let mut buffer = HeadBuffer::default();
    let section = decode(kind, &mut Decoder::new(), &block(fields), &mut buffer, limits).unwrap();
    (section, buffer)
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/b?c")];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    GET.iter().chain(more).copied().collect()
}

/// GET with the pseudo-header fields `changed`; an empty value removes a field.
fn changed<'a>(changed: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields: Vec<_> =
        GET.iter().filter(|(name, _)| changed.iter().all(|(other, _)| other != name)).copied().collect();
    fields.extend(changed.iter().filter(|(_, value)| !value.is_empty()));
    fields
}

#[test]
fn a_request_has_its_parts() {
    let fields = with(&[
        ("content-length", "12"),
        ("cookie", "a=1"),
        ("x-y", "z \u{e4}"),
        ("cookie", "b=2"),
        ("priority", "u=1"),
        ("te", "trailers"),
        ("if-none-match", "\"e\""),
        ("cookie", "c=3"),
    ]);
    let (section, buffer) = read(Kind::Request, &fields, &Limits::default());
    assert_eq!(section, Section::Good);
    let head = buffer.request();
    assert_eq!((head.method, head.scheme, head.protocol), ("GET", Some("https"), None));
    assert_eq!((head.authority, head.path), (Some("a.example"), Some("/b?c")));
    assert_eq!((head.content_length, head.priority), (Some(12), Some(Priority { urgency: 1, incremental: false })));
    let names: Vec<_> = head.fields.iter().map(|(name, _)| std::str::from_utf8(name).unwrap()).collect();
    assert_eq!(names, ["content-length", "x-y", "priority", "te", "if-none-match", "cookie"]);
    assert_eq!(head.fields.first("cookie"), Some(&b"a=1; b=2; c=3"[..]));
    assert_eq!(head.fields.first("x-y"), Some("z \u{e4}".as_bytes()));

    let request = head.to_request().unwrap();
    assert_eq!((request.method, request.authority), (Method::Get, Some("a.example")));
    assert_eq!(request.target, Target::Path { path: "/b", query: Some("c") });
    assert!(request.conditions.if_none_match.is_present());
}

#[test]
fn a_request_without_fields_and_one_with_cookies_only() {
    let (section, buffer) = read(Kind::Request, &GET, &Limits::default());
    assert_eq!((section, buffer.fields().iter().count()), (Section::Good, 0));
    let (section, buffer) = read(Kind::Request, &with(&[("cookie", "a"), ("cookie", "b")]), &Limits::default());
    assert_eq!((section, buffer.fields().iter().next()), (Section::Good, Some((&b"cookie"[..], &b"a; b"[..]))));
    assert_eq!(buffer.fields().iter().count(), 1);
}

#[test]
fn host_stands_in_for_a_missing_authority() {
    let mut fields = changed(&[(":authority", "")]);
    fields.push(("host", "b.example"));
    let (section, buffer) = read(Kind::Request, &fields, &Limits::default());
    assert_eq!((section, buffer.request().authority), (Section::Good, Some("b.example")));
}

#[test]
fn well_formed_requests_are_accepted() {
    let connect = Limits { connect_protocol: true, ..Limits::default() };
    for (fields, limits) in [
        (changed(&[(":method", "OPTIONS"), (":path", "*")]), Limits::default()),
        (changed(&[(":method", "BREW"), (":scheme", "coffee")]), Limits::default()),
        (changed(&[(":method", "CONNECT"), (":scheme", ""), (":path", "")]), Limits::default()),
        (changed(&[(":method", "CONNECT"), (":protocol", "websocket")]), connect),
        (with(&[("host", "A.example")]), Limits::default()),
        (with(&[("content-length", "7"), ("content-length", "7")]), Limits::default()),
        (with(&[("x", "")]), Limits::default()),
        (with(&[("x", "a\tb")]), Limits::default()),
        (with(&[("!#$%&'*+-.^_`|~0z", "1")]), Limits::default()),
    ] {
        assert_eq!(read(Kind::Request, &fields, &limits).0, Section::Good, "{fields:?}");
    }
}

#[test]
fn malformed_requests_are_found() {
    let connect = Limits { connect_protocol: true, ..Limits::default() };
    let good = Limits::default;
    for (fields, limits) in [
        (changed(&[(":method", "")]), good()),
        (changed(&[(":scheme", "")]), good()),
        (changed(&[(":path", "")]), good()),
        (with(&[(":method", "GET")]), good()),
        (with(&[(":path", "/")]), good()),
        (with(&[(":authority", "a.example")]), good()),
        (with(&[(":status", "200")]), good()),
        (with(&[(":unknown", "1")]), good()),
        (with(&[(":", "1")]), good()),
        (with(&[("x", "1"), (":protocol", "websocket")]), connect.clone()),
        (with(&[("cookie", "1"), (":protocol", "websocket")]), connect.clone()),
        (changed(&[(":method", "GE T")]), good()),
        (changed(&[(":path", "b")]), good()),
        (changed(&[(":path", "*")]), good()),
        (changed(&[(":path", "/a b")]), good()),
        (changed(&[(":path", "/\u{e4}")]), good()),
        (changed(&[(":scheme", "1")]), good()),
        (changed(&[(":authority", "user@a.example")]), good()),
        (with(&[("host", "b.example")]), good()),
        ([changed(&[(":authority", "")]), vec![("host", "user@b.example")]].concat(), good()),
        ([changed(&[(":authority", "")]), vec![("host", "b example")]].concat(), good()),
        ([changed(&[(":authority", "")]), vec![("host", "")]].concat(), good()),
        (with(&[("host", "a.example"), ("host", "a.example")]), good()),
        (changed(&[(":method", "CONNECT")]), good()),
        (changed(&[(":method", "CONNECT"), (":scheme", ""), (":path", ""), (":authority", "")]), good()),
        (changed(&[(":method", "CONNECT"), (":protocol", "websocket")]), good()),
        (with(&[(":protocol", "websocket")]), connect.clone()),
        (changed(&[(":method", "CONNECT"), (":protocol", "websocket"), (":path", "")]), connect.clone()),
        (changed(&[(":method", "CONNECT"), (":protocol", "websocket"), (":authority", "")]), connect),
        (with(&[("X", "1")]), good()),
        (with(&[("", "1")]), good()),
        (with(&[("a b", "1")]), good()),
        (with(&[("a:b", "1")]), good()),
        (with(&[("a\r\nb", "1")]), good()),
        (with(&[("x", "a\r\nb: c")]), good()),
        (with(&[("x", "a\nb")]), good()),
        (with(&[("x", "a\0")]), good()),
        (with(&[("x", "a\u{7f}")]), good()),
        (with(&[("x", " a")]), good()),
        (with(&[("x", "a\t")]), good()),
        (with(&[("cookie", "a\r\n")]), good()),
        (with(&[("connection", "close")]), good()),
        (with(&[("keep-alive", "1")]), good()),
        (with(&[("proxy-connection", "close")]), good()),
        (with(&[("transfer-encoding", "chunked")]), good()),
        (with(&[("upgrade", "h2c")]), good()),
        (with(&[("te", "trailers, gzip")]), good()),
        (with(&[("te", "")]), good()),
        (with(&[("content-length", "1"), ("content-length", "2")]), good()),
        (with(&[("content-length", "+1")]), good()),
        (with(&[("content-length", "")]), good()),
        (with(&[("content-length", "18446744073709551616")]), good()),
    ] {
        let (section, _) = read(Kind::Request, &fields, &limits);
        assert!(matches!(section, Section::Malformed(_)), "{fields:?}: {section:?}");
    }
}

#[test]
fn trailers_are_fields_only() {
    let (section, buffer) = read(Kind::Trailers, &[("x-sum", "1"), ("content-length", "9")], &Limits::default());
    assert_eq!((section, buffer.fields().first("x-sum")), (Section::Good, Some(&b"1"[..])));
    for fields in [&[(":path", "/")][..], &[("x", "1"), ("connection", "close")], &[("X", "1")]] {
        assert!(matches!(read(Kind::Trailers, fields, &Limits::default()).0, Section::Malformed(_)), "{fields:?}");
    }
}

#[test]
fn a_hundred_fields_are_the_limit_and_crumbs_are_one() {
    let limits = Limits::default();
    let fields = |count| with(&vec![("x", "1"); count]);
    assert_eq!(read(Kind::Request, &fields(100), &limits).0, Section::Good);
    let (section, buffer) = read(Kind::Request, &fields(101), &limits);
    assert_eq!(section, Section::TooLarge);
    assert_eq!((buffer.request().path, buffer.fields().iter().count()), (Some("/b?c"), 100));
    assert_eq!(read(Kind::Request, &with(&vec![("cookie", "a=1"); 500]), &limits).0, Section::Good);
}

#[test]
fn a_section_too_large_is_read_to_its_end() {
    let limits = Limits { head: 200, ..Limits::default() };
    let long = "v".repeat(100);
    let mut decoder = Decoder::new();
    let mut buffer = HeadBuffer::default();
    let mut fields = block(&with(&[("a", &long), ("b", &long)]));
    fields.extend_from_slice(b"\x40\x01k\x01v");
    let section = decode(Kind::Request, &mut decoder, &fields, &mut buffer, &limits).unwrap();
    assert_eq!(section, Section::TooLarge);
    let mut fields = block(&GET);
    fields.push(0xbe);
    let section = decode(Kind::Request, &mut decoder, &fields, &mut buffer, &limits).unwrap();
    assert_eq!((section, buffer.fields().first("k")), (Section::Good, Some(&b"v"[..])), "the table is in step");
    // The path itself is too long; the rest of the head can be accessed safely.
    let section = decode(
        Kind::Request,
        &mut decoder,
        &block(&[(":path", &long), (":method", &long), ("host", &long)]),
        &mut buffer,
        &limits,
    );
    assert_eq!((section.unwrap(), buffer.request().method), (Section::TooLarge, ""));
    assert_eq!(buffer.request().to_request(), None);
}

#[test]
fn a_block_that_is_repeated_means_what_the_table_says_now() {
    let limits = Limits::default();
    let (mut repeated, mut decoder, mut buffer) = (Repeated::default(), Decoder::new(), HeadBuffer::default());
    let mut value_of = |repeated: &mut Repeated, block: &[u8], name: &str| {
        let section = decode_request(repeated, &mut decoder, block, &mut buffer, &limits).unwrap();
        assert_eq!((section, buffer.request().path), (Section::Good, Some("/b?c")));
        buffer.fields().first(name).map(<[u8]>::to_vec)
    };
    let with_end = |end: &[u8]| [&block(&GET), end].concat();
    let (inserting, repeating) = (with_end(b"\x40\x01k\x01v"), with_end(b"\xbe"));
    assert_eq!(value_of(&mut repeated, &inserting, "k").as_deref(), Some(&b"v"[..]));
    for time in 0..4 {
        assert_eq!(value_of(&mut repeated, &repeating, "k").as_deref(), Some(&b"v"[..]));
        assert_eq!(repeated.kept.is_some(), time > 0, "{time}");
    }
    // Another one comes between, and the same bytes name another entry.
    assert_eq!(value_of(&mut repeated, &with_end(b"\x00\x01m\x01v"), "m").as_deref(), Some(&b"v"[..]));
    assert_eq!(value_of(&mut repeated, &repeating, "k").as_deref(), Some(&b"v"[..]));
    assert_eq!(value_of(&mut repeated, &with_end(b"\x40\x01n\x01w"), "n").as_deref(), Some(&b"w"[..]));
    for _ in 0..3 {
        assert_eq!(value_of(&mut repeated, &repeating, "k"), None);
        assert_eq!(value_of(&mut repeated, &repeating, "n").as_deref(), Some(&b"w"[..]));
    }
    // A size update empties the table, so that the block is an error.
    assert_eq!(value_of(&mut repeated, &[&b"\x20"[..], &block(&GET)].concat(), "n"), None);
    assert!(decode_request(&mut repeated, &mut decoder, &repeating, &mut buffer, &limits).is_err());
}

#[test]
fn a_block_that_changes_the_table_or_is_long_is_not_kept() {
    let limits = Limits::default();
    let (mut repeated, mut decoder, mut buffer) = (Repeated::default(), Decoder::new(), HeadBuffer::default());
    let long = "v".repeat(100);
    let long = block(&with(&[("k", long.as_str()); MAX_KEPT / 100 + 1]));
    for block in [[&block(&GET)[..], b"\x40\x01k\x01v"].concat(), long] {
        for _ in 0..3 {
            let section = decode_request(&mut repeated, &mut decoder, &block, &mut buffer, &limits).unwrap();
            assert_eq!(section, Section::Good);
        }
        assert!(repeated.kept.is_none() && repeated.memory() == 0);
    }
}

/// CVE-2016-6581, CVE-2026-49975: each byte of the block refers to an entry of the table.
#[test]
fn a_bomb_is_defused_while_it_is_decoded() {
    let limits = Limits::default();
    let mut bomb = b"\x40\x01x\x7f\x80\x1e".to_vec();
    let length = 0x7f + (0x1e << 7);
    bomb.extend(std::iter::repeat_n(b'v', length));
    bomb.extend(std::iter::repeat_n(0xbe, 12_000));
    let (mut decoder, mut buffer) = (Decoder::new(), HeadBuffer::default());
    let error = decode(Kind::Request, &mut decoder, &bomb, &mut buffer, &limits).unwrap_err();
    assert_eq!(error.code, crate::ErrorCode::ENHANCE_YOUR_CALM);
    assert!(buffer.memory() < 2 * (limits.head + 2 * length), "{}", buffer.memory());

    // Short lines, so that their number reaches the limit.
    let lines = vec![0x82; 16_000];
    let error = decode(Kind::Request, &mut Decoder::new(), &lines, &mut buffer, &limits).unwrap_err();
    assert_eq!(error.code, crate::ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn what_the_encoder_writes_is_read() {
    let mut block = HeaderBlock::default();
    GET.iter().for_each(|(name, value)| block.field(name, value.as_bytes()));
    block.field("user-agent", b"Mozilla/5.0 (X11; Linux x86_64)");
    block.field("x-bytes", "\u{fc}\u{ff}~|".as_bytes());
    let mut buffer = HeadBuffer::default();
    let section =
        decode(Kind::Request, &mut Decoder::new(), block.as_bytes(), &mut buffer, &Limits::default()).unwrap();
    assert_eq!(section, Section::Good);
    assert_eq!(buffer.request().path, Some("/b?c"));
    assert_eq!(buffer.fields().first("user-agent"), Some(&b"Mozilla/5.0 (X11; Linux x86_64)"[..]));
    assert_eq!(buffer.fields().first("x-bytes"), Some("\u{fc}\u{ff}~|".as_bytes()));
}
