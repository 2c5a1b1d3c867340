//! Windows of the client (RFC 9113 §6.9).

use sealion_h2::{By, ErrorCode, HEADER_LEN, HeaderBlock, Limits, RECORD_PAYLOAD, Window};

use crate::support::*;

const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MOST: u32 = (1 << 31) - 1;

fn sum(content: &[(u32, usize, bool)]) -> usize {
    content.iter().map(|(_, length, _)| length).sum()
}

fn stalled(server: &Server) -> Vec<(u32, Window)> {
    server.connection.stalled().map(|(stream, window)| (stream.get(), window)).collect()
}

#[test]
fn content_stays_within_the_windows_of_stream_and_connection() {
    let mut server = Server::new(Limits::default());
    server.receive_all(&[get(1), get(3)]).unwrap();
    server.respond(1, 100_000);
    server.respond(3, 100_000);
    assert_eq!(sum(&server.content()), 65_535, "of the connection");
    assert_eq!(stalled(&server), [(1, Window::Connection), (3, Window::Connection)]);
    let progress = [1, 3].map(|stream| server.connection.progress(server.id(stream)));
    assert_eq!(progress[0].stream + progress[1].stream, 65_535);
    assert_eq!(progress.map(|progress| progress.by(Window::Connection)), [65_535; 2]);
    assert_eq!(server.connection.window_without_room(server.id(3)), Some(Window::Stream), "more is ready than it has");
    assert_eq!(server.receive(&window_update(0, 200_000)).unwrap(), [Seen::WindowOpened(None)]);
    assert_eq!(sum(&server.content()), 65_535, "of both streams");
    assert_eq!(stalled(&server), [(1, Window::Stream), (3, Window::Stream)]);
    assert_eq!(server.receive(&window_update(3, 1023)).unwrap(), [], "too little for a frame");
    assert!(!server.connection.has_frame());
    assert_eq!(server.receive(&window_update(3, 1)).unwrap(), [Seen::WindowOpened(Some(3))]);
    assert_eq!(server.content(), [(3, 1024, false)]);
    assert_eq!(server.receive(&window_update(3, 1 << 20)).unwrap(), [Seen::WindowOpened(Some(3))]);
    let content = server.content();
    assert_eq!((sum(&content), content.last().map(|last| last.2)), (100_000 - 65_535 - 1024, Some(true)));
}

#[test]
fn a_whole_response_takes_from_the_windows_or_is_not_written() {
    let mut server = Server::with_settings(Limits::default(), &[(INITIAL_WINDOW_SIZE, 20_000)]);
    server.receive_all(&[get(1), get(3), get(5), get(7), get(9)]).unwrap();
    let (block, content) = (HeaderBlock::response(200), [b'a'; 20_000]);
    let whole = |server: &mut Server, stream: u32, length: usize| {
        let (id, mut out) = (server.id(stream), Vec::new());
        let written = server.connection.respond_whole(id, &[block.as_bytes()], &content[..length], &mut out);
        (written, frames(&out))
    };
    // More than a record, though the windows have room.
    assert_eq!(whole(&mut server, 1, RECORD_PAYLOAD + 1), (Ok(false), vec![]));
    for stream in [1, 3, 5, 7] {
        let (written, sent) = whole(&mut server, stream, 16_000);
        assert_eq!((written, sent.len()), (Ok(true), 2), "{stream}");
        assert_eq!((sent[0].kind, sent[0].flags, sent[0].stream), (HEADERS, END_HEADERS, stream));
        assert_eq!((sent[1].kind, sent[1].flags, sent[1].stream), (DATA, END_STREAM, stream));
        assert_eq!(sent[1].payload, content[..16_000]);
    }
    assert_eq!(server.connection.progress(server.id(3)).stream, 16_000);
    // The connection has 65,535 - 64,000 bytes left.
    assert_eq!(whole(&mut server, 9, 1536), (Ok(false), vec![]));
    let (written, sent) = whole(&mut server, 9, 1535);
    assert_eq!((written, sent.len()), (Ok(true), 2));
    assert!(whole(&mut server, 9, 1).0.is_err(), "it has a response");
    for stream in [1, 3, 5, 7, 9] {
        server.connection.release(server.id(stream));
    }
    assert_eq!((server.control(), server.connection.is_idle()), (vec![], true), "all ended in order");
}

#[test]
fn a_whole_response_stays_within_the_window_of_its_stream() {
    let mut server = Server::with_settings(Limits::default(), &[(INITIAL_WINDOW_SIZE, 1000)]);
    server.receive_all(&[get(1), get(3), reset(3)]).unwrap();
    let (block, mut out) = (HeaderBlock::response(200), Vec::new());
    let id = server.id(1);
    assert_eq!(server.connection.respond_whole(id, &[block.as_bytes()], &[b'a'; 1001], &mut out), Ok(false));
    let reset = server.id(3);
    server.connection.respond_whole(reset, &[block.as_bytes()], b"a", &mut out).unwrap_err();
    assert!(out.is_empty());
    server.respond(1, 1001);
    assert_eq!(server.content(), [(1, 1000, false)], "the response goes on in turns");
}

#[test]
fn a_stall_is_told_by_its_progress() {
    let mut server = Server::with_settings(Limits::default(), &[(INITIAL_WINDOW_SIZE, 1)]);
    server.receive(&get(1)).unwrap();
    server.respond(1, 1_000_000);
    for byte in 1..100 {
        assert_eq!(server.content(), [(1, 1, false)]);
        assert_eq!(stalled(&server), [(1, Window::Stream)]);
        assert_eq!(server.connection.progress(server.id(1)).stream, byte);
        assert_eq!(server.receive(&window_update(1, 1)).unwrap(), [Seen::WindowOpened(Some(1))]);
    }
}

#[test]
fn a_new_initial_window_changes_the_windows_of_open_streams() {
    let mut server = Server::with_settings(Limits::default(), &[(INITIAL_WINDOW_SIZE, 3000)]);
    server.receive(&get(1)).unwrap();
    server.respond(1, 10_000);
    assert_eq!(server.content(), [(1, 3000, false)]);
    assert_eq!(server.receive(&settings(&[(INITIAL_WINDOW_SIZE, 1000)])).unwrap(), []);
    assert_eq!(server.control(), frames(&frame(SETTINGS, ACK, 0, &[])));
    assert_eq!(server.receive(&window_update(1, 2000)).unwrap(), [], "from -2000 to 0");
    assert_eq!(server.content(), []);
    assert_eq!(server.receive(&settings(&[(INITIAL_WINDOW_SIZE, 5000)])).unwrap(), [Seen::WindowOpened(None)]);
    assert_eq!(server.content(), [(1, 4000, false)]);
    server.receive(&get(3)).unwrap();
    server.respond(3, 10_000);
    assert_eq!(server.content(), [(3, 5000, false)]);
}

#[test]
fn windows_of_every_size_let_a_whole_response_through() {
    for window in [1, 2, 1023, 1024, 16_374, 16_375, 16_384, 65_535, MOST] {
        for length in [0, 1, 1023, 1024, 16_375, 16_376, 70_000] {
            if window < 1000 && length > 2000 {
                continue;
            }
            let mut server = Server::with_settings(Limits::default(), &[(INITIAL_WINDOW_SIZE, window)]);
            server.receive(&get(1)).unwrap();
            server.respond(1, length as u64);
            let (mut sent, mut ended) = (0, false);
            for _ in 0..3000 {
                for (_, bytes, end) in server.content() {
                    assert!(bytes <= window as usize && !ended);
                    sent += bytes;
                    ended = end;
                    if !end {
                        server.receive_all(&[window_update(0, bytes as u32), window_update(1, bytes as u32)]).unwrap();
                    }
                }
                if ended {
                    break;
                }
            }
            assert_eq!((sent, ended), (length, true), "{length} through {window}");
        }
    }
}

/// Some clients open a window when half of it is consumed, others when all of it is. So a window must be used to its
/// end.
#[test]
fn a_client_may_open_its_window_late() {
    for (initial, opens_at) in [(1500, 750), (1500, 1500), (1024, 1024), (65_535, 65_535), (10, 10)] {
        let mut server = Server::with_settings(Limits::default(), &[(INITIAL_WINDOW_SIZE, initial)]);
        server.receive_all(&[get(1), window_update(0, 1 << 20)]).unwrap();
        server.respond(1, 200_000);
        let (mut sent, mut consumed) = (0, 0);
        while sent < 100_000 {
            let Some(frame) = server.connection.next_frame(HEADER_LEN + 700) else {
                panic!("stuck at {sent}, {initial}")
            };
            sent += frame.length;
            consumed += frame.length as u32;
            if consumed >= opens_at {
                server.receive(&window_update(1, consumed)).unwrap();
                consumed = 0;
            }
        }
    }
}

#[test]
fn windows_do_not_overflow() {
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    server.receive(&window_update(0, MOST - 65_535)).unwrap();
    server.receive(&window_update(1, MOST - 65_535)).unwrap();
    let expected = Seen::Reset { stream: 1, code: ErrorCode::FLOW_CONTROL_ERROR, by: By::Server };
    assert_eq!(server.receive(&window_update(1, 1)).unwrap(), [expected]);
    assert_eq!(server.receive(&window_update(0, 1)).unwrap_err().code, ErrorCode::FLOW_CONTROL_ERROR);

    let mut server = Server::new(Limits::default());
    server.receive_all(&[get(1), window_update(1, MOST - 65_535)]).unwrap();
    let error = server.receive(&settings(&[(INITIAL_WINDOW_SIZE, 65_536)])).unwrap_err();
    assert_eq!(error.code, ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn an_update_by_nothing_costs_the_stream() {
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    let expected = Seen::Reset { stream: 1, code: ErrorCode::PROTOCOL_ERROR, by: By::Server };
    assert_eq!(server.receive(&window_update(1, 0)).unwrap(), [expected]);
    assert_eq!(server.receive(&window_update(1, 0)).unwrap(), [], "it is reset already");
}

#[test]
fn a_larger_frame_of_the_client_does_not_make_a_frame_larger_than_a_record() {
    let mut server =
        Server::with_settings(Limits::default(), &[(MAX_FRAME_SIZE, 1 << 20), (INITIAL_WINDOW_SIZE, 1 << 20)]);
    server.receive(&get(1)).unwrap();
    server.respond(1, 40_000);
    let frame = server.connection.next_frame(usize::MAX).unwrap();
    assert_eq!(frame.length, 16_375);
}

#[test]
fn a_batch_is_filled_from_several_streams() {
    let mut server = Server::with_settings(Limits::default(), &[(INITIAL_WINDOW_SIZE, MOST)]);
    server.receive(&window_update(0, 1 << 30)).unwrap();
    for stream in [1, 3, 5, 7] {
        server.receive(&get(stream)).unwrap();
        server.respond(stream, 150_000);
    }
    let records: Vec<_> = (0..33).map(|_| server.connection.next_frame(RECORD).unwrap()).collect();
    assert!(records.iter().filter(|frame| !frame.end).all(|frame| frame.length == 16_375));
    for stream in [1, 3, 5, 7] {
        assert!(records.iter().filter(|frame| frame.stream.get() == stream).count() >= 4);
    }
}
