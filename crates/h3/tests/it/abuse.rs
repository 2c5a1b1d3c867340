//! Clients that cause more work than they do (RFC 9114 §10.5).

use sealion_h3::{
    ConnectionError, ErrorCode, Flood, Limits, MAX_EMPTY_DATA, MAX_IDLE_FRAMES, MAX_PRIORITY_UPDATES,
    MAX_UNKNOWN_STREAMS, Opened,
};

use crate::support::*;

/// The number of times that `step` succeeds, and the limit that ends it.
fn count(mut step: impl FnMut(u64) -> Result<(), ConnectionError>) -> (u32, Option<Flood>) {
    for number in 0..100_000 {
        if let Err(error) = step(number) {
            assert_eq!(error.code, ErrorCode::H3_EXCESSIVE_LOAD);
            return (number as u32, error.flood);
        }
    }
    panic!("no limit");
}

/// CVE-2023-44487.
#[test]
fn rapid_resets_end_the_connection() {
    let mut server = Server::new(Limits { resets: 50, ..Limits::default() });
    let cancelled = count(|number| {
        server.open(number * 4)?;
        server.finish(number * 4, &get())?;
        server.cancelled(number * 4)?;
        server.release(number * 4);
        server.commands();
        Ok(())
    });
    assert_eq!(cancelled, (50, Some(Flood::Resets)));
}

#[test]
fn cancelled_heads_malformed_requests_and_refused_ones_count_as_resets() {
    for kind in 0..3 {
        let mut server = Server::new(Limits { resets: 50, streams: 1, ..Limits::default() });
        if kind == 2 {
            server.get(0);
        }
        let cancelled = count(|number| {
            let stream = 4 + number * 4;
            let opened = server.open(stream)?;
            assert_eq!(opened == Opened::Refused, kind == 2);
            match kind {
                0 => server.cancelled(stream).map(|event| assert_eq!(event, None)),
                1 => server.receive(stream, &headers(&[("x", "1")])).map(|_| ()),
                _ => Ok(()),
            }
        });
        assert_eq!(cancelled, (50, Some(Flood::Resets)), "{kind}");
    }
}

#[test]
fn frames_without_effect_are_counted() {
    let mut server = Server::new(Limits::default());
    server.open(0).unwrap();
    server.receive(0, &headers(&POST)).unwrap();
    let mut on_request = |bytes: Vec<u8>| count(|_| server.receive(0, &bytes).map(|_| ()));
    assert_eq!(on_request(frame(DATA, b"")), (MAX_EMPTY_DATA, Some(Flood::EmptyData)));
    let fresh = |bytes: Vec<u8>| {
        let mut server = Server::new(Limits::default());
        count(|_| server.receive(CONTROL, &bytes).map(|_| ()))
    };
    let idle = Some(Flood::IdleFrames);
    assert_eq!(fresh(frame(RESERVED, b"a")), (MAX_IDLE_FRAMES, idle));
    assert_eq!(fresh(frame(MAX_PUSH_ID, &[9])), (MAX_IDLE_FRAMES, idle));
    assert_eq!(fresh(frame(GOAWAY, &[9])), (MAX_IDLE_FRAMES, idle));
    assert_eq!(fresh(priority_update(0, "u=1")), (MAX_PRIORITY_UPDATES, Some(Flood::PriorityUpdates)));
    for (kind, instruction) in [(2, 0x20), (3, 0x40)] {
        let mut server = Server::new(Limits::default());
        server.open(UNI).unwrap();
        server.receive(UNI, &[kind]).unwrap();
        assert_eq!(count(|_| server.receive(UNI, &[instruction]).map(|_| ())), (MAX_IDLE_FRAMES, idle));
    }
    let mut server = Server::new(Limits::default());
    server.open(0).unwrap();
    assert_eq!(count(|_| server.receive(0, &frame(RESERVED, &[])).map(|_| ())), (MAX_IDLE_FRAMES, idle));
}

#[test]
fn completed_requests_refill_what_they_may_need() {
    let mut server = Server::new(Limits::default());
    for number in 0..2000 {
        server.receive(CONTROL, &[frame(RESERVED, b""), priority_update(number * 4, "u=1")].concat()).unwrap();
        server.get(number * 4);
        server.complete(number * 4);
        server.commands();
    }
}

#[test]
fn streams_of_unknown_types_are_counted() {
    let mut server = Server::new(Limits::default());
    let opened = count(|number| {
        let stream = UNI + number * 4;
        server.open(stream)?;
        server.finish(stream, &[0x40, 0x54])?;
        server.commands();
        Ok(())
    });
    assert_eq!(opened, (MAX_UNKNOWN_STREAMS, Some(Flood::UnknownStreams)));
}

/// A frame may be as long as 2^62: what is skipped is counted.
#[test]
fn bytes_without_use_are_bounded() {
    let mut server = Server::new(Limits::default());
    server.open(0).unwrap();
    server.receive(0, &[varint(RESERVED), varint((1 << 62) - 1)].concat()).unwrap();
    let (pieces, flood) = count(|_| server.receive(0, &[0; 1000]).map(|_| ()));
    assert_eq!(flood, Some(Flood::Overhead));
    assert!((8000..9000).contains(&pieces), "{pieces}");
}

/// CVE-2025-64702: each byte refers to the longest field of the static table.
#[test]
fn a_bomb_is_defused_while_it_is_decoded() {
    let limits = Limits::default();
    let mut server = Server::new(limits.clone());
    server.open(0).unwrap();
    let bomb = [[0, 0].as_slice(), &[0xff, 85 - 63].repeat(16_000)].concat();
    assert!(bomb.len() <= limits.head);
    let error = server.receive(0, &frame(HEADERS, &bomb)).unwrap_err();
    assert_eq!(error.flood, Some(Flood::HeaderBomb));
    assert!(server.head.memory() < 5 * limits.head, "{}", server.head.memory());
    // In trailers, too.
    let mut server = Server::new(limits);
    server.open(0).unwrap();
    server.receive(0, &get()).unwrap();
    assert_eq!(server.receive(0, &frame(HEADERS, &bomb)).unwrap_err().flood, Some(Flood::HeaderBomb));
}

#[test]
fn incomplete_heads_of_many_streams_are_bounded_together() {
    let limits = Limits { head: 10_000, ..Limits::default() };
    let mut server = Server::new(limits);
    let begun = [varint(HEADERS), varint(10_000), vec![0; 5000]].concat();
    let streams = count(|number| {
        server.open(number * 4)?;
        server.receive(number * 4, &begun).map(|_| ())
    });
    assert_eq!(streams, (8, Some(Flood::PartialHeads)));
}
