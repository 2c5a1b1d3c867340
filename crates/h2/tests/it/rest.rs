//! A connection at rest that another process continues answers as one that went on.

use sealion_h2::{Connection, Limits};

use crate::support::{Server, frame, get, get_with, post, reset, window_update};

/// The server, continued from bytes.
fn continued(server: &mut Server) {
    // The driver counts them before it waits.
    server.connection.take_resets();
    let rest = server.connection.to_rest().expect("it is at rest");
    let bytes = postcard::to_allocvec(&rest).expect("it is written to memory");
    server.connection = Connection::resume(postcard::from_bytes(&bytes).expect("it was written so"));
}

/// A server whose client has acknowledged the settings.
fn greeted() -> Server {
    let mut server = Server::new(Limits::default());
    server.receive(&frame(4, 1, 0, b"")).expect("an acknowledgement");
    server
}

#[test]
fn a_connection_that_is_continued_after_each_response_answers_as_one_that_went_on() {
    // A field for the table of HPACK, and then its number (RFC 7541 sections 6.2.1 and 6.1).
    let with_field =
        |stream| frame(1, 5, stream, &[&[0x82, 0x87, 0x84, 0x01, 1, b'a', 0x40, 1, b'x'][..], &[1, b'1']].concat());
    let by_number = |stream| frame(1, 5, stream, &[0x82, 0x87, 0x84, 0x01, 1, b'a', 0xbe]);
    let steps: Vec<Vec<u8>> = vec![
        get(1),
        with_field(3),
        by_number(5),
        get_with(7, &[("cookie", "a=b"), ("user-agent", "test")]),
        [get(9), reset(9)].concat(),
        [post(11), frame(0, 1, 11, b"content")].concat(),
        [window_update(0, 70_000), by_number(13)].concat(),
        // On a stream that was reset, and one that was ended.
        [window_update(9, 1), by_number(15)].concat(),
        get(17),
    ];
    let run = |between: fn(&mut Server)| {
        let mut server = greeted();
        let mut seen = Vec::new();
        for (step, input) in steps.iter().enumerate() {
            seen.push(format!("{:?}", server.receive(input)));
            let stream = 2 * step as u32 + 1;
            match stream {
                9 => server.connection.release(server.id(9)),
                _ => server.respond(stream, 1000),
            }
            seen.push(format!("{:?}", server.content()));
            seen.push(format!("{:?}", server.control()));
            between(&mut server);
        }
        seen
    };
    assert_eq!(run(continued), run(|_| {}));
}

#[test]
fn a_connection_with_something_under_way_is_not_at_rest() {
    assert!(Server::new(Limits::default()).connection.to_rest().is_none(), "its settings are not acknowledged");
    let mut server = greeted();
    assert!(server.connection.to_rest().is_some());
    server.receive(&get(1)).expect("a request");
    let rest = server.connection.to_rest().expect("its stream goes along");
    assert!(Connection::resume(rest).to_rest().is_some());
    server.complete(1);
    assert!(server.connection.to_rest().is_some());
    server.receive(&frame(6, 0, 0, b"12345678")).expect("a PING");
    assert!(server.connection.to_rest().is_none(), "a reply that waits");
    server.control();
    server.receive(&get(3)[..5]).expect("half a frame");
    assert!(server.connection.to_rest().is_none(), "half a frame");
    server.receive(&get(3)[5..]).expect("the rest");
    server.complete(3);
    server.connection.drain();
    server.control();
    assert!(server.connection.to_rest().is_none(), "it ends");
}
