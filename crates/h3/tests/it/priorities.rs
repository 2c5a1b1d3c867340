//! Priorities (RFC 9218), as levels of the transport.

use sealion_h3::{Limits, Priority, StreamId};

use crate::support::*;

fn open(server: &mut Server, stream: u64, priority: &str) {
    server.open(stream).unwrap();
    server.finish(stream, &get_with(&[("priority", priority)])).unwrap();
}

#[test]
fn requests_without_priority_share_and_need_no_order() {
    let mut server = Server::new(Limits::default());
    (0..5).for_each(|number| server.get(number * 4));
    assert_eq!(server.commands(), []);
}

#[test]
fn responses_that_are_not_incremental_follow_each_other() {
    let mut server = Server::new(Limits::default());
    open(&mut server, 0, "u=3");
    open(&mut server, 4, "u=3");
    open(&mut server, 8, "u=0, i");
    assert_eq!(server.commands(), [prioritize(4, -1), prioritize(8, 12)]);
    server.respond(0);
    let (id, mut out) = (StreamId::new(0), Vec::new());
    server.connection.data(id, 100_000, true, &mut out).unwrap();
    server.connection.sent(id, 50_000);
    assert_eq!(server.commands(), []);
    server.connection.sent(id, 40_000);
    assert_eq!(server.commands(), [prioritize(0, 1), prioritize(4, 0)], "the rest is short");
    server.connection.sent(id, 10_000);
    server.release(0);
    assert_eq!(server.commands(), []);
}

#[test]
fn a_priority_update_counts_before_and_after_its_request() {
    let mut server = Server::new(Limits::default());
    // Before the stream, before its head, after it.
    assert_eq!(server.receive(CONTROL, &priority_update(4, "u=1")), Ok(vec![]));
    assert_eq!(server.receive(CONTROL, &priority_update(4, "u=2, i")), Ok(vec![]));
    server.open(0).unwrap();
    assert_eq!(server.receive(CONTROL, &priority_update(0, "u=6")), Ok(vec![]));
    server.finish(0, &get_with(&[("priority", "u=0")])).unwrap();
    open(&mut server, 4, "u=0");
    let priority = |urgency, incremental| Priority { urgency, incremental };
    assert_eq!(server.connection.priority(StreamId::new(0)), priority(6, false));
    assert_eq!(server.connection.priority(StreamId::new(4)), priority(2, true));
    assert_eq!(server.commands(), [prioritize(0, -12), prioritize(4, 4)]);
    let changed = Seen::PriorityChanged(0, priority(7, true));
    assert_eq!(server.receive(CONTROL, &priority_update(0, "u=7, i")), Ok(vec![changed]));
    assert_eq!(server.commands(), [prioritize(0, -16)]);
    server.connection.set_priority(StreamId::new(0), priority(3, true));
    assert_eq!(server.commands(), [prioritize(0, 0)]);
    server.complete(0);
    assert_eq!(server.receive(CONTROL, &priority_update(0, "u=1")), Ok(vec![]), "it is too late");
}

#[test]
fn few_priorities_wait_for_their_streams() {
    let mut server = Server::new(Limits::default());
    for number in 0..20 {
        server.receive(CONTROL, &priority_update(number * 4, "u=1")).unwrap();
    }
    (0..20).for_each(|number| server.get(number * 4));
    let urgent = (0..20).filter(|number| server.connection.priority(StreamId::new(number * 4)).urgency == 1).count();
    assert_eq!(urgent, 8);
}
