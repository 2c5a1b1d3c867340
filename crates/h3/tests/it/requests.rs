//! Frames of request streams (RFC 9114 §4.1 and §7).

use sealion_h3::{By, ErrorCode, Limits, Opened};

use crate::support::*;

#[test]
fn a_request_has_its_content_and_trailers() {
    let mut server = Server::new(Limits::default());
    server.open(0).unwrap();
    let head = post_with(&[("content-length", "5"), ("x-a", "1")]);
    let fields = |fields: &[(&str, &str)]| fields.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    let expected = Seen::Request { stream: 0, end: false, fields: fields(&[("content-length", "5"), ("x-a", "1")]) };
    assert_eq!(server.receive(0, &head), Ok(vec![expected]));
    let rest = [frame(DATA, b"he"), frame(RESERVED, b"ignored"), frame(DATA, b"llo"), headers(&[("x-sum", "2")])];
    let events = vec![
        data(0, b"he", false),
        data(0, b"llo", false),
        Seen::Trailers { stream: 0, fields: fields(&[("x-sum", "2")]) },
    ];
    assert_eq!(server.receive(0, &rest.concat()), Ok(events));
    assert_eq!(server.finish(0, &frame(RESERVED, &[])), Ok(vec![]));
    assert_eq!((server.commands(), server.connection.open_streams()), (vec![], 1));
}

#[test]
fn the_end_is_told_with_what_it_ends_or_alone() {
    for (content, fin_alone) in [(&b""[..], false), (b"", true), (b"abc", false), (b"abc", true)] {
        let mut server = Server::new(Limits::default());
        server.open(0).unwrap();
        let body = if content.is_empty() { Vec::new() } else { frame(DATA, content) };
        let bytes = [headers(&POST), body].concat();
        let is_empty = content.is_empty();
        let mut expected = vec![request(0, is_empty && !fin_alone)];
        expected.extend((!is_empty).then(|| data(0, content, !fin_alone)));
        assert_eq!(server.read(0, &bytes, !fin_alone), Ok(expected), "{content:?} {fin_alone}");
        let last = if fin_alone { vec![data(0, b"", true)] } else { vec![] };
        assert_eq!(server.finish(0, &[]), Ok(last), "{content:?} {fin_alone}");
        assert_eq!(server.finish(0, &[]), Ok(vec![]), "once");
    }
}

#[test]
fn malformed_requests_end_their_stream_only() {
    let code = ErrorCode::H3_MESSAGE_ERROR;
    for bytes in [
        headers(&[(":method", "GET")]),
        headers(&[(":method", "GET"), (":scheme", "https"), (":path", "/"), (":method", "GET")]),
        get_with(&[(":path", "/")]),
        get_with(&[("connection", "close")]),
        get_with(&[("transfer-encoding", "chunked")]),
        get_with(&[("te", "gzip")]),
        get_with(&[("x", "a\nb")]),
        get_with(&[("content-length", "a")]),
        headers(&[
            (":method", "CONNECT"),
            (":authority", "a"),
            (":scheme", "https"),
            (":path", "/"),
            (":protocol", "x"),
        ]),
        frame(HEADERS, b"\0\0\xd1\xd7\x50\x01a\xc1\x21X\x01a"),
    ] {
        let mut server = Server::new(Limits::default());
        server.open(0).unwrap();
        assert_eq!(server.receive(0, &bytes), Ok(vec![Seen::Malformed(0)]), "{}", bytes.escape_ascii());
        assert_eq!(server.commands(), [reset(0, code), stop(0, code)]);
        assert!(server.connection.is_idle());
        assert_eq!(server.finish(0, &get()), Ok(vec![]), "what was under way is dropped");
        server.get(4);
    }
}

#[test]
fn content_that_differs_from_content_length_resets_the_stream() {
    let code = ErrorCode::H3_MESSAGE_ERROR;
    let failed = || Seen::Reset { stream: 0, code, by: By::Server };
    for (content, expected) in [
        (frame(DATA, b"abcd"), vec![failed()]),
        (frame(DATA, b"ab"), vec![data(0, b"ab", false), failed()]),
        ([frame(DATA, b"ab"), headers(&[("x", "1")])].concat(), vec![data(0, b"ab", false), failed()]),
        (frame(DATA, b""), vec![failed()]),
        (
            [frame(DATA, b"abc"), headers(&[("Connection", "1")].map(|(_, v)| ("connection", v)))].concat(),
            vec![data(0, b"abc", false), failed()],
        ),
    ] {
        let mut server = Server::new(Limits::default());
        server.open(0).unwrap();
        assert_eq!(server.receive(0, &post_with(&[("content-length", "3")])).unwrap().len(), 1);
        assert_eq!(server.finish(0, &content), Ok(expected));
        let commands = server.commands();
        assert_eq!(commands[0], reset(0, code));
        assert_eq!(server.connection.open_streams(), 1, "the slot stays");
        server.release(0);
        assert!(server.connection.is_idle() && server.commands().is_empty());
    }
    let mut server = Server::new(Limits::default());
    server.open(0).unwrap();
    assert_eq!(server.finish(0, &get_with(&[("content-length", "1")])), Ok(vec![Seen::Malformed(0)]));
}

#[test]
fn a_stream_without_a_whole_request_is_incomplete() {
    for bytes in [Vec::new(), frame(RESERVED, b"abc")] {
        let mut server = Server::new(Limits::default());
        server.open(0).unwrap();
        assert_eq!(server.connection.awaiting_heads().count(), 1);
        assert_eq!(server.finish(0, &bytes), Ok(vec![Seen::Malformed(0)]));
        assert_eq!(server.commands(), [reset(0, ErrorCode::H3_REQUEST_INCOMPLETE)]);
        assert!(server.connection.is_idle());
    }
}

/// RFC 9114 §7.1: a connection error.
#[test]
fn a_stream_that_ends_within_a_frame_ends_the_connection() {
    let whole = [get(), frame(DATA, b"abc"), headers(&[("x", "1")]), frame(RESERVED, b"ab")].concat();
    let mut ends = vec![0];
    for part in [get(), frame(DATA, b"abc"), headers(&[("x", "1")]), frame(RESERVED, b"ab")] {
        ends.push(ends.last().unwrap() + part.len());
    }
    for end in 0..=whole.len() {
        let mut server = Server::new(Limits::default());
        server.open(0).unwrap();
        match server.finish(0, &whole[..end]) {
            Ok(_) => assert!(ends.contains(&end), "{end}"),
            Err(error) => assert_eq!((error.code, ends.contains(&end)), (ErrorCode::H3_FRAME_ERROR, false), "{end}"),
        }
    }
}

#[test]
fn frames_at_a_wrong_place_end_the_connection() {
    let after_get = |bytes: Vec<u8>| [get(), bytes].concat();
    let after_trailers = |bytes: Vec<u8>| [get(), headers(&[("x", "1")]), bytes].concat();
    let connect = headers(&[(":method", "CONNECT"), (":authority", "a:1")]);
    for bytes in [
        frame(DATA, b"a"),
        after_trailers(frame(DATA, b"")),
        after_trailers(headers(&[("x", "1")])),
        after_get(frame(SETTINGS, &[])),
        frame(SETTINGS, &[]),
        after_get(frame(GOAWAY, &[0])),
        after_get(frame(MAX_PUSH_ID, &[0])),
        after_get(frame(CANCEL_PUSH, &[0])),
        after_get(frame(PUSH_PROMISE, &[0, 0, 0])),
        after_get(priority_update(0, "u=1")),
        after_get(frame(PRIORITY_UPDATE_OF_PUSH, &[0])),
        frame(2, &[0; 5]),
        after_get(frame(6, &[0; 8])),
        after_get(frame(8, &[0; 4])),
        after_get(frame(9, &[])),
        [connect, frame(DATA, b"a"), headers(&[("x", "1")])].concat(),
    ] {
        let mut server = Server::new(Limits::default());
        server.open(0).unwrap();
        let error = server.receive(0, &bytes).expect_err(&format!("{}", bytes.escape_ascii()));
        assert_eq!(error.code, ErrorCode::H3_FRAME_UNEXPECTED, "{}", bytes.escape_ascii());
        assert_eq!(server.receive(0, &[]), Err(error), "and stays ended");
        assert_eq!(server.open(4), Err(error));
    }
}

#[test]
fn a_section_that_cannot_be_decoded_ends_the_connection() {
    for section in [&[][..], &[0], &[2, 0], &[0, 0, 0x80], &[0, 0, 0x10], &[0, 0, 0xff, 0x24], &[0, 0, 0x51, 9]] {
        let mut server = Server::new(Limits::default());
        server.open(0).unwrap();
        let error = server.receive(0, &frame(HEADERS, section)).unwrap_err();
        assert_eq!(error.code, ErrorCode::QPACK_DECOMPRESSION_FAILED, "{section:x?}");
    }
}

#[test]
fn a_head_too_large_is_answered() {
    let limits = Limits { head: 1000, ..Limits::default() };
    // By its encoded length, by its decoded length, by the number of its fields.
    let many = vec![("x", "1"); 101];
    for (fields, limits) in [
        (vec![("x", "\u{fc}".repeat(600))], limits.clone()),
        (vec![("x", "0".repeat(980))], limits),
        (many.iter().map(|(n, v)| (*n, v.to_string())).collect(), Limits::default()),
    ] {
        for fin in [false, true] {
            let mut server = Server::new(limits.clone());
            server.open(0).unwrap();
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let mut events = server.read(0, &get_with(&fields), fin).unwrap();
            assert!(matches!(events.remove(0), Seen::TooLarge { stream: 0, .. }));
            if !fin {
                events = server.finish(0, &frame(DATA, b"abc")).unwrap();
                assert_eq!(events, [data(0, b"abc", true)]);
            } else {
                assert!(events.is_empty() || events == [data(0, b"", true)]);
            }
            server.complete(0);
            assert!(server.commands().is_empty());
        }
    }
}

#[test]
fn a_client_that_cancels_ends_the_work() {
    let code = ErrorCode::H3_REQUEST_CANCELLED;
    let mut server = Server::new(Limits::default());
    server.get(0);
    assert_eq!(server.cancelled(0), Ok(Some(Seen::Reset { stream: 0, code, by: By::Client })));
    assert_eq!(server.cancelled(0), Ok(None), "STOP_SENDING and RESET_STREAM come together");
    assert_eq!(server.commands(), [reset(0, code)]);
    assert_eq!(server.connection.open_streams(), 1);
    server.release(0);
    // Within the content; within the head.
    server.open(4).unwrap();
    server.receive(4, &headers(&POST)).unwrap();
    assert!(server.cancelled(4).unwrap().is_some());
    assert_eq!(server.commands(), [reset(4, code), stop(4, code)]);
    server.open(8).unwrap();
    server.receive(8, &get()[..3]).unwrap();
    assert_eq!((server.cancelled(8), server.connection.open_streams()), (Ok(None), 1));
    assert_eq!(server.commands(), [reset(8, code), stop(8, code)]);
    assert_eq!(server.cancelled(8), Ok(None));
    let counts = server.connection.take_resets().unwrap();
    assert_eq!(counts.by(By::Client).iter().sum::<u32>(), 3);
    assert_eq!(server.connection.take_resets(), None);
}

#[test]
fn no_more_requests_than_the_limit_have_slots() {
    let mut server = Server::new(Limits { streams: 2, ..Limits::default() });
    let code = ErrorCode::H3_REQUEST_REJECTED;
    server.get(0);
    server.get(4);
    assert!(server.cancelled(4).unwrap().is_some());
    server.commands();
    assert_eq!(server.open(8), Ok(Opened::Refused), "a cancelled request keeps its slot");
    assert_eq!(server.commands(), [reset(8, code), stop(8, code)]);
    assert_eq!(server.finish(8, &get()), Ok(vec![]));
    server.release(4);
    server.get(12);
}

#[test]
fn extended_connect_is_a_setting() {
    let fields =
        [(":method", "CONNECT"), (":scheme", "https"), (":authority", "a"), (":path", "/"), (":protocol", "websocket")];
    let mut server = Server::new(Limits { connect_protocol: true, ..Limits::default() });
    server.open(0).unwrap();
    assert_eq!(server.receive(0, &headers(&fields)), Ok(vec![request(0, false)]));
    assert_eq!((server.head.protocol(), server.head.request().path), (Some("websocket"), Some("/")));
    assert_eq!(server.receive(0, &frame(DATA, b"ab")), Ok(vec![data(0, b"ab", false)]));
}
