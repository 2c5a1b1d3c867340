//! The memory of a connection.

use sealion_h2::Limits;

use crate::support::*;

/// The first request of a browser, with a cookie.
const BROWSER: [(&str, &str); 14] = [
    ("sec-ch-ua", "\"Chromium\";v=\"138\", \"Not)A;Brand\";v=\"8\""),
    ("sec-ch-ua-mobile", "?0"),
    ("sec-ch-ua-platform", "\"Linux\""),
    ("upgrade-insecure-requests", "1"),
    (
        "user-agent",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36",
    ),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8"),
    ("sec-fetch-site", "none"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-user", "?1"),
    ("sec-fetch-dest", "document"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-GB,en;q=0.9"),
    ("cookie", "session=0123456789abcdef0123456789abcdef; theme=dark; consent=1"),
    ("priority", "u=0, i"),
];

/// A request whose fields are all added to the dynamic table.
fn indexed(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = GET.to_vec();
    for (name, value) in fields {
        block.push(0x40);
        for string in [name, value] {
            assert!(string.len() < 127);
            block.push(string.len() as u8);
            block.extend_from_slice(string.as_bytes());
        }
    }
    frame(HEADERS, END, stream, &block)
}

#[test]
fn an_idle_connection_behind_a_browsers_request_takes_little() {
    let mut server = Server::new(Limits::default());
    let fresh = server.connection.memory();
    server.receive_all(&[indexed(1, &BROWSER), window_update(0, 1 << 20)]).unwrap();
    server.respond(1, 10_000);
    server.content();
    server.control();
    server.connection.shrink();
    let idle = server.connection.memory();
    let of_fields: usize = BROWSER.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(idle <= 2600, "{idle} bytes for {of_fields} of fields, {fresh} before the request");
}

#[test]
fn a_connection_takes_no_more_than_its_table_and_its_streams() {
    let mut server = Server::new(Limits::default());
    for at in 0..128 {
        let (name, value) = (format!("x-{at}"), format!("{at}").repeat(30));
        server.receive(&indexed(2 * at + 1, &[(&name, &value)])).unwrap();
    }
    let full = server.connection.memory();
    assert!(full < 22_000, "{full}");
    (0..128).for_each(|at| server.complete(2 * at + 1));
    server.control();
    server.connection.shrink();
    let idle = server.connection.memory();
    assert!(idle <= 7000, "{idle}");
}

#[test]
fn half_a_frame_is_kept_only_while_it_is_half() {
    let mut server = Server::new(Limits::default());
    let fresh = server.connection.memory();
    let request = frame(
        HEADERS,
        END,
        1,
        &[GET, &[0x82; 5000][..0], b"\x00\x01x\x7f\x80\x1e", &[b'v'; 0x7f + (0x1e << 7)]].concat(),
    );
    server.receive(&request[..3000]).unwrap();
    assert!(server.connection.is_within_frame() && server.connection.memory() < fresh + 6500);
    server.receive(&request[3000..]).unwrap();
    assert!(!server.connection.is_within_frame());
    server.complete(1);
    server.connection.shrink();
    // Room for a few streams stays.
    assert!(server.connection.memory() <= fresh + 512);
}
