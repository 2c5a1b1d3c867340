//! Each known attack is stopped within a bound.

use sealion_h2::{
    ConnectionError, ErrorCode, Limits, MAX_BLOCK, MAX_CONTINUATIONS, MAX_EMPTY_DATA, MAX_PRIORITY_UPDATES,
    MAX_REPLIES, MAX_SMALL_UPDATES,
};

use crate::support::*;

/// The number of times that `step` succeeds before the connection ends, which must be by ENHANCE_YOUR_CALM.
fn count(most: usize, mut step: impl FnMut(u32) -> Result<(), ConnectionError>) -> usize {
    for at in 0..most {
        if let Err(error) = step(at as u32) {
            assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM, "{error}");
            return at;
        }
    }
    panic!("no end after {most}");
}

/// CVE-2023-44487: HEADERS and RST_STREAM in alternation.
#[test]
fn rapid_resets_end_the_connection() {
    let mut server = Server::new(Limits::default());
    let resets = count(1000, |at| {
        let stream = 2 * at + 1;
        server.receive_all(&[get(stream), reset(stream)])?;
        server.connection.release(server.id(stream));
        Ok(())
    });
    assert_eq!(resets, 256);
}

#[test]
fn a_stream_that_was_reset_keeps_its_slot_until_its_work_has_ended() {
    let mut server = Server::new(Limits { streams: 10, ..Limits::default() });
    for at in 0..10 {
        server.receive_all(&[get(2 * at + 1), reset(2 * at + 1)]).unwrap();
    }
    assert_eq!(server.receive(&get(21)).unwrap(), [Seen::Refused(21)]);
    server.connection.release(server.id(1));
    assert!(matches!(server.receive(&get(23)).unwrap()[..], [Seen::Request { stream: 23, .. }]));
}

/// CVE-2025-8671: the client makes the server reset its streams, in every possible way.
#[test]
fn provoked_resets_count_as_resets() {
    let limits = Limits { stream_window: 10, ..Limits::default() };
    type Provoke = fn(u32) -> Vec<u8>;
    let ways: [Provoke; 8] = [
        |stream| window_update(stream, 0),
        |stream| [window_update(stream, (1 << 31) - 1), window_update(stream, (1 << 31) - 1)].concat(),
        |stream| frame(PRIORITY, 0, stream, &[0; 4]),
        |stream| frame(PRIORITY, 0, stream, &[&stream.to_be_bytes()[..], &[0]].concat()),
        |stream| frame(DATA, 0, stream, &[0; 11]),
        |stream| frame(HEADERS, END, stream, b"\x82"),
        |stream| frame(HEADERS, END_HEADERS, stream, b""),
        |stream| [frame(DATA, END_STREAM, stream, b""), frame(DATA, 0, stream, b"a")].concat(),
    ];
    for (way, provoke) in ways.iter().enumerate() {
        let mut server = Server::new(limits.clone());
        let resets = count(1000, |at| {
            let stream = 2 * at + 1;
            let events = server.receive_all(&[post(stream), provoke(stream)])?;
            assert!(matches!(events.last(), Some(Seen::Reset { .. })), "{events:?}");
            server.connection.release(server.id(stream));
            server.control();
            Ok(())
        });
        assert_eq!(resets, 256, "way {way}");
    }
    // Requests that never get a slot.
    for block in [&b"\x82"[..], b"\x82\x84\x87\x00\x01X\x01y"] {
        let mut server = Server::new(limits.clone());
        assert_eq!(count(1000, |at| server.receive(&frame(HEADERS, END, 2 * at + 1, block)).map(drop)), 256);
    }
    let mut server = Server::new(Limits { streams: 1, ..limits });
    assert_eq!(count(1000, |at| server.receive(&get(2 * at + 1)).map(drop)), 257);
    // Frames on a stream that the client has reset.
    let mut server = Server::new(Limits::default());
    server.receive_all(&[post(1), reset(1)]).unwrap();
    assert_eq!(count(1000, |_| server.receive(&frame(DATA, 0, 1, b"a")).map(drop)), 255);
}

/// Frames on streams that the server has reset are dropped, and each of them counts.
#[test]
fn frames_on_streams_that_were_reset_end_the_connection() {
    for forgotten in [false, true] {
        let opened = || {
            let mut server = Server::new(Limits::default());
            server.receive(&post(1)).unwrap();
            server.complete(1);
            for at in 1..=20 {
                server.receive(&get(2 * at + 1)).unwrap();
                if forgotten {
                    server.complete(2 * at + 1);
                }
            }
            server.control();
            server
        };
        // Header blocks, which have to be decoded: as many as resets, plus the trailers that may have been in flight.
        let mut server = opened();
        assert_eq!(count(1000, |_| server.receive(&frame(HEADERS, END, 1, GET)).map(drop)), 257);
        let mut server = opened();
        let empty = frame(DATA, 0, 1, b"");
        assert_eq!(count(1000, |_| server.receive(&empty).map(drop)), MAX_EMPTY_DATA as usize);
        // Content beyond the amount that may have been in flight counts as useless.
        for content in [frame(DATA, 0, 1, b"a"), frame(DATA, 0, 1, &[0; 16_384]), frame(DATA, END_STREAM, 1, b"")] {
            let mut server = opened();
            let frames = count(1_000_000, |_| {
                server.receive(&content)?;
                server.control();
                Ok(())
            });
            let bytes = frames * content.len();
            assert!(bytes < (8 << 20) + 8 * 66_000 + 8 * 1024 + content.len(), "{bytes}");
        }
    }
}

#[test]
fn a_browser_may_leave_pages_for_ever() {
    let mut server = Server::new(Limits::default());
    for at in 0..10_000 {
        let stream = 4 * at + 1;
        server.receive_all(&[get(stream), get(stream + 2), reset(stream)]).unwrap();
        server.connection.release(server.id(stream));
        server.complete(stream + 2);
    }
}

/// CVE-2024-27316 and similar attacks.
#[test]
fn a_header_block_has_few_frames_and_bytes() {
    let begin =
        |server: &mut Server, length| server.receive(&frame(HEADERS, END_STREAM, 1, &vec![0x82; length])).map(drop);
    let mut server = Server::new(Limits::default());
    begin(&mut server, 1).unwrap();
    let frames = count(10, |_| server.receive(&frame(CONTINUATION, 0, 1, b"")).map(drop));
    assert_eq!(frames, MAX_CONTINUATIONS as usize);

    for (first, second, is_good) in
        [(MAX_BLOCK, 0, true), (MAX_BLOCK, 1, false), (1, MAX_BLOCK - 1, true), (1, MAX_BLOCK, false)]
    {
        let mut server = Server::new(Limits::default());
        begin(&mut server, first).unwrap();
        let result = server.receive(&frame(CONTINUATION, 0, 1, &vec![0x82; second]));
        assert_eq!(result.err().map(|error| error.code), (!is_good).then_some(ErrorCode::ENHANCE_YOUR_CALM));
        assert!(server.connection.memory() < 2 * MAX_BLOCK + 2000, "{}", server.connection.memory());
    }
}

/// CVE-2026-49975 and CVE-2016-6581: a block of a few kilobytes that decodes to megabytes.
#[test]
fn a_bomb_ends_the_connection_in_the_middle() {
    let mut server = Server::new(Limits::default());
    let entry = [&b"\x40\x01x\x7f\x80\x1e"[..], &[b'v'; 0x7f + (0x1e << 7)]].concat();
    let bomb = [GET, &entry, &[0xbe; 12_000]].concat();
    assert_eq!(count(1, |_| server.receive(&frame(HEADERS, END, 1, &bomb)).map(drop)), 0);
    assert!(server.head.memory() < 128 * 1024, "{}", server.head.memory());
    // Below the hard limit only the request fails, and the connection continues.
    let mut server = Server::new(Limits::default());
    let large = [GET, &entry, &[0xbe; 10]].concat();
    assert_eq!(server.receive(&frame(HEADERS, END, 1, &large)).unwrap(), [Seen::TooLarge(1)]);
    assert!(matches!(server.receive(&get(3)).unwrap()[..], [Seen::Request { stream: 3, .. }]));
}

/// CVE-2019-9512 and CVE-2019-9515.
#[test]
fn replies_wait_in_a_short_queue() {
    for flood in [frame(PING, 0, 0, &[0; 8]), settings(&[])] {
        let mut server = Server::new(Limits::default());
        assert!(server.connection.wants_read());
        let mut queued = 0;
        let replies = count(1000, |_| {
            server.receive(&flood)?;
            queued = server.connection.memory();
            assert!(!server.connection.wants_read(), "the driver writes before it reads on");
            Ok(())
        });
        assert_eq!(replies, MAX_REPLIES as usize);
        assert!(queued < 4000, "{queued}");
    }
}

/// CVE-2019-9518, RUSTSEC-2026-0258.
#[test]
fn empty_data_ends_the_connection() {
    for empty in [frame(DATA, 0, 1, b""), frame(DATA, PADDED, 1, b"\0")] {
        let mut server = Server::new(Limits::default());
        server.receive(&post(1)).unwrap();
        let frames = count(1000, |_| server.receive(&empty).map(drop));
        assert_eq!(frames, MAX_EMPTY_DATA as usize);
    }
}

#[test]
fn tiny_window_updates_end_the_connection() {
    for stream in [0, 1] {
        let mut server = Server::with_settings(Limits::default(), &[(4, 65_535)]);
        server.receive(&get(1)).unwrap();
        server.respond(1, 1 << 20);
        let frames = server.content().len();
        let updates = count(10_000, |_| server.receive(&window_update(stream, 1)).map(drop));
        assert_eq!(updates, MAX_SMALL_UPDATES as usize + 2 * frames);
    }
}

#[test]
fn a_client_that_reads_byte_by_byte_may_announce_each() {
    let mut server = Server::with_settings(Limits::default(), &[(4, 1)]);
    server.receive(&get(1)).unwrap();
    server.respond(1, 5000);
    for byte in 1..=5000 {
        assert_eq!(server.content(), [(1, 1, byte == 5000)]);
        server.receive_all(&[window_update(0, 1), window_update(1, 1)]).unwrap();
    }
}

#[test]
fn priority_floods_end_the_connection() {
    for flood in [frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"), frame(PRIORITY, 0, 9, &[0; 5])] {
        let mut server = Server::new(Limits::default());
        server.receive(&get(1)).unwrap();
        let updates = count(10_000, |_| server.receive(&flood).map(drop));
        assert_eq!(updates, MAX_PRIORITY_UPDATES as usize);
    }
    // Updates for streams that are not open yet use little memory.
    let mut server = Server::new(Limits::default());
    let before = server.connection.memory();
    for at in 0..MAX_PRIORITY_UPDATES {
        server.receive(&frame(PRIORITY_UPDATE, 0, 0, &[&(2 * at + 1).to_be_bytes()[..], b"u=1"].concat())).unwrap();
    }
    assert!(server.connection.memory() <= before + 200);
}

/// All frames that cost more than they carry.
#[test]
fn frames_without_use_end_the_connection_by_their_bytes() {
    for (flood, written) in [
        (frame(PING, 0, 0, &[0; 8]), true),
        (frame(PING, ACK, 0, &[0; 8]), false),
        (frame(99, 0, 1, &[0; 1000]), false),
        (frame(GOAWAY, 0, 0, &[0; 500]), false),
        (settings(&[(6, 1); 32]), true),
        (window_update(1, 2000), false),
        (reset(1), false),
    ] {
        let mut server = Server::new(Limits::default());
        server.receive(&get(1)).unwrap();
        server.complete(1);
        let frames = count(1_000_000, |_| {
            server.receive(&flood)?;
            if written {
                server.control();
            }
            Ok(())
        });
        let bytes = frames * flood.len();
        assert!(bytes < (8 << 20) + 4096, "{bytes}");
    }
    // One byte of content in 10: only the ratio bounds it.
    let mut server = Server::new(Limits::default());
    server.receive(&post(1)).unwrap();
    let tiny = frame(DATA, 0, 1, b"a");
    let frames = count(10_000_000, |_| {
        server.receive(&tiny)?;
        server.connection.consume(server.id(1), 1);
        server.control();
        Ok(())
    });
    assert!(frames < (8 << 20) * 5 / 8, "{frames}");
}
