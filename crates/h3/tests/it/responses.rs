//! The bytes that the server writes (RFC 9114 §4.1).

use sealion_h3::{ErrorCode, HeaderBlock, Limits, StreamClosed, StreamId};

use crate::support::*;

#[test]
fn a_response_is_headers_data_and_trailers() {
    let mut server = Server::new(Limits::default());
    server.get(0);
    let (id, mut out) = (StreamId::new(0), Vec::new());
    let early = HeaderBlock::response(103);
    server.connection.informational(id, &[early.as_bytes()], &mut out).unwrap();
    let mut block = HeaderBlock::response(200);
    block.field("x", b"~");
    let (first, second) = block.as_bytes().split_at(1);
    server.connection.respond(id, &[first, second], false, &mut out).unwrap();
    server.connection.data(id, 100_000, false, &mut out).unwrap();
    assert_eq!(out, b"\x01\x03\0\0\xd8\x01\x07\0\0\xd9\x21x\x01~\x00\x80\x01\x86\xa0");
    assert_eq!(server.connection.missing(id), 100_000);
    for bytes in [99_999, 1] {
        assert_eq!(server.connection.data(id, 1, true, &mut out), Err(StreamClosed), "the frame is incomplete");
        assert_eq!(server.connection.trailers(id, &[], &mut out), Err(StreamClosed));
        server.connection.sent(id, bytes);
    }
    out.clear();
    let mut trailers = HeaderBlock::default();
    trailers.field("x", b"~");
    server.connection.trailers(id, &[trailers.as_bytes()], &mut out).unwrap();
    assert_eq!(out, b"\x01\x06\0\0\x21x\x01~");
    assert_eq!(server.connection.data(id, 1, true, &mut out), Err(StreamClosed));
    server.release(0);
    assert_eq!(server.commands(), []);
}

/// A response that is not whole is reset, whatever ends the driver's work.
#[test]
fn an_incomplete_response_never_ends_as_if_it_were_complete() {
    let failed = [reset(0, ErrorCode::H3_INTERNAL_ERROR)];
    for (step, expected) in [(0, &failed[..]), (1, &failed), (2, &failed), (3, &failed), (4, &[]), (5, &[])] {
        let mut server = Server::new(Limits::default());
        server.get(0);
        let (id, mut out) = (StreamId::new(0), Vec::new());
        if step > 0 {
            server.respond(0);
        }
        if step > 1 {
            server.connection.data(id, if step == 5 { 0 } else { 10 }, true, &mut out).unwrap();
        }
        if step > 2 {
            server.connection.sent(id, if step == 3 { 9 } else { 10 });
        }
        server.release(0);
        assert_eq!(server.commands(), expected, "{step}");
    }
}

#[test]
fn content_that_a_response_does_not_need_is_stopped() {
    let mut server = Server::new(Limits::default());
    server.open(0).unwrap();
    server.receive(0, &headers(&POST)).unwrap();
    server.complete(0);
    assert_eq!(server.commands(), [stop(0, ErrorCode::H3_NO_ERROR)]);
    assert_eq!(server.receive(0, &frame(DATA, b"late")), Ok(vec![]));
}

#[test]
fn nothing_is_written_for_a_request_that_was_cancelled() {
    let mut server = Server::new(Limits::default());
    let (mut out, id) = (Vec::new(), StreamId::new(0));
    assert_eq!(server.connection.respond(id, &[], false, &mut out), Err(StreamClosed), "there is none");
    server.open(0).unwrap();
    assert_eq!(server.connection.respond(id, &[], false, &mut out), Err(StreamClosed), "its head is incomplete");
    server.finish(0, &get()).unwrap();
    server.respond(0);
    assert_eq!(server.connection.respond(id, &[], false, &mut out), Err(StreamClosed), "once");
    assert_eq!(server.connection.informational(id, &[], &mut out), Err(StreamClosed));
    server.connection.reset(id, ErrorCode::H3_REQUEST_CANCELLED);
    server.connection.reset(id, ErrorCode::H3_INTERNAL_ERROR);
    assert_eq!(server.commands(), [reset(0, ErrorCode::H3_REQUEST_CANCELLED)]);
    assert_eq!(server.connection.data(id, 1, false, &mut out), Err(StreamClosed));
    assert!(out.is_empty());
    server.release(0);
    assert_eq!(server.commands(), []);
}
