//! Priorities as signalled by clients (RFC 9218). The scheduler's own tests cover the order.

use sealion_h2::{Limits, Priority};

use crate::support::*;

fn update(stream: u32, value: &str) -> Vec<u8> {
    frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes(), value.as_bytes()].concat())
}

fn order(server: &mut Server) -> Vec<u32> {
    let mut order: Vec<u32> = server.content().iter().map(|(stream, ..)| *stream).collect();
    order.dedup();
    order
}

#[test]
fn the_field_and_its_update_decide_the_order() {
    let mut server = Server::new(Limits::default());
    server.receive_all(&[get_with(1, &[("priority", "u=5")]), get_with(3, &[("priority", "u=1")]), get(5)]).unwrap();
    for stream in [1, 3, 5] {
        server.respond(stream, 10_000);
    }
    assert_eq!(order(&mut server), [3, 5, 1]);

    server.receive_all(&[get_with(7, &[("priority", "u=5")]), get_with(9, &[("priority", "u=1")])]).unwrap();
    let priority = Priority { urgency: 0, incremental: true };
    assert_eq!(server.receive(&update(7, "u=0, i")).unwrap(), [Seen::PriorityChanged(7, priority)]);
    assert_eq!(server.connection.priority(server.id(7)), priority);
    server.respond(9, 10_000);
    server.respond(7, 10_000);
    assert_eq!(order(&mut server), [7, 9]);
}

#[test]
fn a_client_that_gives_no_priority_has_none() {
    let mut server = Server::new(Limits::default());
    server.receive(&get(1)).unwrap();
    assert!(!server.connection.has_priorities());
    server.receive(&update(1, "u=5")).unwrap();
    assert!(server.connection.has_priorities());
    server.respond(1, 10);
    server.content();
    server.receive_all(&[get(3)]).unwrap();
    assert!(!server.connection.has_priorities(), "its response has ended");
    server.receive_all(&[get_with(5, &[("priority", "u=0")])]).unwrap();
    assert!(server.connection.has_priorities());
}

#[test]
fn an_update_may_come_before_its_request() {
    let mut server = Server::new(Limits::default());
    assert_eq!(server.receive_all(&[update(3, "u=6"), update(3, "u=0"), update(7, "u=7")]).unwrap(), []);
    server.receive_all(&[get(1), get_with(3, &[("priority", "u=7")]), get(7), get(9)]).unwrap();
    let urgency = |stream| server.connection.priority(server.id(stream)).urgency;
    assert_eq!([1, 3, 7, 9].map(urgency), [3, 0, 7, 3]);
}

#[test]
fn a_server_may_know_better() {
    let mut server = Server::new(Limits::default());
    server.receive_all(&[get(1), get(3)]).unwrap();
    server.connection.set_priority(server.id(3), Priority { urgency: 0, incremental: false });
    server.respond(1, 10_000);
    server.respond(3, 10_000);
    assert_eq!(order(&mut server), [3, 1]);
}

#[test]
fn an_urgent_response_overtakes_a_large_one_at_the_next_frame() {
    let mut server = Server::new(Limits::default());
    server
        .receive_all(&[window_update(0, 1 << 30), get_with(1, &[("priority", "u=5")]), window_update(1, 1 << 30)])
        .unwrap();
    server.respond(1, 64 << 20);
    for _ in 0..10 {
        assert_eq!(server.connection.next_frame(RECORD).unwrap().stream.get(), 1);
    }
    server.receive(&get_with(3, &[("priority", "u=1")])).unwrap();
    server.respond(3, 10_000);
    let frame = server.connection.next_frame(RECORD).unwrap();
    assert_eq!((frame.stream.get(), frame.length, frame.end), (3, 10_000, true));
}
