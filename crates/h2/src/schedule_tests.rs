use sealion_http::multiplexed::Priority;

use super::*;
use crate::stream::{Receiving, Sending, State};
use crate::windows::{ReceiveWindow, SendWindow};

const ROOM: usize = HEADER_LEN + RECORD_PAYLOAD;
const RECORD: u64 = RECORD_PAYLOAD as u64;

/// A stream of `(urgency, incremental)` with `offered` bytes of content.
fn stream(id: u32, priority: (u8, bool), offered: u64, last: bool) -> Stream {
    Stream {
        id,
        priority: Priority { urgency: priority.0, incremental: priority.1 },
        state: State::Live { receiving: Receiving::Ended, sending: Sending::Content { offered, last } },
        send_window: SendWindow::new(1 << 30),
        receive_window: ReceiveWindow::new(0),
        sent: 0,
    }
}

fn bounds(window: u32) -> Bounds {
    Bounds { window: SendWindow::new(window), max_frame_size: 16_384, initial_window: 65_535 }
}

/// The streams of the next frames, until nothing is left or `most` frames are made.
fn order(streams: &mut [Stream], most: usize) -> Vec<u32> {
    let (mut turns, mut order) = (Turns::default(), Vec::new());
    while order.len() < most
        && let Some(pick) = turns.pick(streams, bounds(1 << 30), ROOM)
    {
        let stream = &mut streams[pick.index];
        turns.took(pick, stream.id);
        order.push(stream.id);
        let Some((offered, last)) = stream.ready() else { panic!("nothing to send") };
        let left = offered - u64::from(pick.length);
        stream.set_sending(if pick.end { Sending::Ended } else { Sending::Content { offered: left, last } });
    }
    order
}

#[test]
fn a_lower_urgency_goes_first() {
    let mut streams = [
        stream(1, (5, true), 10 * RECORD, true),
        stream(3, (1, false), 2 * RECORD, true),
        stream(5, (0, true), RECORD, true),
        stream(7, (7, false), 1, true),
    ];
    assert_eq!(order(&mut streams, 5), [5, 3, 3, 1, 1]);
}

#[test]
fn responses_that_are_not_incremental_go_one_after_the_other() {
    let mut streams = [stream(1, (3, false), 6 * RECORD, true), stream(3, (3, false), 2 * RECORD, true)];
    assert_eq!(order(&mut streams, 99), [1, 1, 1, 1, 1, 1, 3, 3]);
}

#[test]
fn incremental_responses_take_turns() {
    let mut streams = [1, 3, 5].map(|id| stream(id, (3, true), 6 * RECORD, true));
    assert_eq!(order(&mut streams, 99), [1, 1, 1, 1, 3, 3, 3, 3, 5, 5, 5, 5, 1, 1, 3, 3, 5, 5]);
}

#[test]
fn every_stream_of_an_urgency_gets_its_share() {
    let mut streams: Vec<Stream> = (0..100).map(|at| stream(2 * at + 1, (3, true), 1000 * RECORD, true)).collect();
    let order = order(&mut streams, 4000);
    for id in (1..200).step_by(2) {
        assert_eq!(order.iter().filter(|other| **other == id).count(), 40);
    }
}

#[test]
fn a_response_that_ends_within_a_frame_overtakes_within_its_urgency() {
    let mut streams = [
        stream(1, (3, true), 9 * RECORD, true),
        stream(3, (3, true), RECORD, true),
        stream(5, (3, true), 10, true),
        stream(7, (2, true), 2 * RECORD, true),
    ];
    assert_eq!(order(&mut streams, 5), [7, 7, 3, 5, 1]);
}

#[test]
fn the_first_sequential_response_that_can_be_sent_shares_with_the_incremental_ones() {
    let mut streams = [
        stream(1, (3, false), 0, false),
        stream(3, (3, false), 9 * RECORD, false),
        stream(5, (3, false), 9 * RECORD, false),
        stream(7, (3, true), 9 * RECORD, false),
    ];
    assert_eq!(order(&mut streams, 12), [3, 3, 3, 3, 7, 7, 7, 7, 3, 3, 3, 3]);
}

#[test]
fn a_frame_has_at_most_the_room_the_windows_and_the_content() {
    let turns = Turns::default();
    let pick = |offered, last, window, room| {
        let streams = [stream(1, (3, true), offered, last)];
        turns.pick(&streams, bounds(window), room).map(|pick| (pick.length, pick.end))
    };
    assert_eq!(pick(20_000, true, 1 << 20, usize::MAX), Some((16_375, false)));
    assert_eq!(pick(16_375, true, 1 << 20, ROOM), Some((16_375, true)));
    assert_eq!(pick(16_376, true, 1 << 20, ROOM), Some((16_375, false)));
    assert_eq!(pick(20_000, true, 5000, ROOM), Some((5000, false)));
    assert_eq!(pick(20_000, true, 1 << 20, 109), Some((100, false)));
    assert_eq!(pick(50, true, 1 << 20, 109), Some((50, true)));
    assert_eq!(pick(50, false, 1 << 20, 109), Some((50, false)));
    for room in [0, 8, 9] {
        assert_eq!(pick(50, true, 1 << 20, room), None);
    }
    assert_eq!(pick(0, true, 0, 9), Some((0, true)), "an end needs no window");
    assert_eq!(pick(0, false, 1 << 20, ROOM), None);
}

#[test]
fn a_window_that_was_used_up_waits_for_a_kilobyte_unless_less_takes_all() {
    let pick = |offered, opened, initial_window| {
        let mut streams = [stream(1, (3, true), offered, true)];
        streams[0].send_window = SendWindow::new(0);
        streams[0].send_window.grow(opened).unwrap();
        let bounds = Bounds { initial_window, ..bounds(1 << 20) };
        assert_eq!(bounds.hold_back(&streams[0]).is_some(), Turns::default().pick(&streams, bounds, ROOM).is_none());
        Turns::default().pick(&streams, bounds, ROOM).map(|pick| (pick.length, pick.end))
    };
    assert_eq!(pick(5000, 1023, 65_535), None);
    assert_eq!(pick(5000, 1024, 65_535), Some((1024, false)));
    assert_eq!(pick(1000, 1000, 65_535), Some((1000, true)));
    assert_eq!(pick(5000, 499, 1000), None);
    assert_eq!(pick(5000, 500, 1000), Some((500, false)), "half of a small initial window");
    assert_eq!(pick(5000, 1, 1), Some((1, false)));
    assert_eq!(pick(5000, 0, 0), None);
}

#[test]
fn a_stream_whose_window_is_closed_does_not_stop_the_others() {
    let mut streams = [stream(1, (0, false), 9 * RECORD, true), stream(3, (7, true), 2 * RECORD, true)];
    streams[0].send_window = SendWindow::new(0);
    assert_eq!(order(&mut streams, 9), [3, 3]);
}
