//! Clients that make more work than they do.

use super::{assert_serves, connect, serve};
use crate::support::access_lines;
use crate::support::http2::{
    ACK, CANCEL, COMPRESSION_ERROR, CONTINUATION, DATA, ENHANCE_YOUR_CALM, HEADERS, Http2, INITIAL_WINDOW_SIZE,
    MAX_WINDOW, PING, PRIORITY_UPDATE, SETTINGS, block, frame, headers, literal, reset, window_update,
};
use crate::support::process::memory;

/// Sends `attack` again and again until the server ends the connection, at most `most` times. Returns the codes of GOAWAY.
#[track_caller]
fn until_refused(http: &mut Http2, most: usize, mut attack: impl FnMut(&mut Http2) -> Vec<u8>) -> u32 {
    for _ in 0..most {
        let octets = attack(http);
        if http.client.send(&octets).is_err() {
            break;
        }
    }
    let how = http.read_to_end();
    let (_, code) = *http.go_aways.last().unwrap_or_else(|| panic!("no GOAWAY, but {how}"));
    code
}

#[test]
fn a_client_that_resets_its_requests_is_sent_away() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 10)]);
    http.credit = 0;
    let code = until_refused(&mut http, 1000, |http| {
        let stream = http.stream();
        [headers(stream, true, &block("GET", "/large", &[])), reset(stream, CANCEL)].concat()
    });
    assert_eq!(code, ENHANCE_YOUR_CALM);
    assert_serves(&site, &server);
}

#[test]
fn a_client_that_provokes_resets_is_sent_away() {
    let (site, server) = serve(&[]);
    for bad in [window_update as fn(u32, u32) -> Vec<u8>, |stream, _| window_update(stream, MAX_WINDOW)] {
        let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 10)]);
        http.credit = 0;
        let code = until_refused(&mut http, 1000, |http| {
            let stream = http.stream();
            [headers(stream, true, &block("GET", "/large", &[])), bad(stream, 0)].concat()
        });
        assert_eq!(code, ENHANCE_YOUR_CALM);
    }
    assert_serves(&site, &server);
}

#[test]
fn header_blocks_without_end_are_refused() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[]);
    http.send(&frame(HEADERS, 0, 1, &block("GET", "/f", &[])));
    let code = until_refused(&mut http, 1000, |_| {
        let mut more = Vec::new();
        literal(&mut more, "x", &"y".repeat(1000));
        frame(CONTINUATION, 0, 1, &more)
    });
    assert_eq!(code, ENHANCE_YOUR_CALM);
    // Empty ones.
    let mut http = connect(&site, &server, &[]);
    http.send(&frame(HEADERS, 0, 1, &block("GET", "/f", &[])));
    assert_eq!(until_refused(&mut http, 1000, |_| frame(CONTINUATION, 0, 1, &[])), ENHANCE_YOUR_CALM);
    assert_serves(&site, &server);
}

/// An entry of 4000 bytes in the dynamic table, named 10,000 times by one byte each.
#[test]
fn a_header_block_that_decodes_to_megabytes_is_refused() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[]);
    let mut bomb = block("GET", "/f", &[]);
    let mut entry = Vec::new();
    literal(&mut entry, "x", &"y".repeat(4000));
    entry[0] = 0x40;
    bomb.extend(entry);
    bomb.resize(bomb.len() + 10_000, 0x80 | 62);
    http.send(&headers(1, true, &bomb));
    assert_eq!(http.closed(), ENHANCE_YOUR_CALM);
    let mut http = connect(&site, &server, &[]);
    http.send(&headers(1, true, &[0x80 | 70]));
    assert_eq!(http.closed(), COMPRESSION_ERROR);
    // Many fields, or long ones, are answered.
    let many: Vec<(String, String)> = (0..150).map(|n| (format!("x-{n}"), "y".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("GET", "/f", &many, true);
    assert_eq!(http.response(stream).whole().0, 431);
    assert_eq!(http.fetch("/f").0, 200);
    assert_eq!(access_lines(&server, 2)[0].get("status"), "431");
    assert_serves(&site, &server);
}

#[test]
fn frames_without_use_end_the_connection() {
    let (site, server) = serve(&[]);
    let mut http = connect(&site, &server, &[]);
    let stream = http.request("POST", "/f", &[], false);
    assert_eq!(until_refused(&mut http, 1000, |_| frame(DATA, 0, stream, &[])), ENHANCE_YOUR_CALM);
    for attack in
        [frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]), frame(PING, ACK, 0, b"12345678")]
    {
        let mut http = connect(&site, &server, &[]);
        let many: Vec<u8> = (0..900).flat_map(|_| attack.clone()).collect();
        assert_eq!(until_refused(&mut http, 1000, |_| many.clone()), ENHANCE_YOUR_CALM);
    }
    let mut http = connect(&site, &server, &[]);
    let priorities: Vec<u8> = (0..900).flat_map(|_| frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1")).collect();
    assert_eq!(until_refused(&mut http, 10, |_| priorities.clone()), ENHANCE_YOUR_CALM);
    assert_serves(&site, &server);
}

/// All streams, each with a response that waits for a window, and heads as long as they may be.
#[test]
fn clients_that_open_all_their_streams_and_no_window_pin_little_memory() {
    const CLIENTS: u64 = 10;
    let (site, server) = serve(&[]);
    let long = "z".repeat(8000);
    connect(&site, &server, &[]).fetch("/large");
    let before = memory(&server);
    let clients: Vec<Http2> = (0..CLIENTS)
        .map(|_| {
            let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
            http.credit = 0;
            let streams: Vec<u32> = (0..128).map(|_| http.request("GET", "/large", &[("x", &long)], true)).collect();
            http.read_until("all heads", |http| streams.iter().all(|stream| http.streams.contains_key(stream)));
            http
        })
        .collect();
    let each = memory(&server).saturating_sub(before) / CLIENTS;
    println!("{each} octets a connection of 128 streams that wait");
    assert!(each < 4 << 20, "{each} octets a connection");
    assert_serves(&site, &server);
    drop(clients);
}

/// An entry of 4000 bytes in the dynamic table, named nine times by each request. Their answers wait for windows.
#[test]
fn heads_that_are_too_large_are_kept_no_more_than_others() {
    const CLIENTS: u64 = 10;
    let (site, server) = serve(&[]);
    let mut entry = Vec::new();
    literal(&mut entry, "x", &"y".repeat(4000));
    entry[0] = 0x40;
    connect(&site, &server, &[]).fetch("/large");
    let before = memory(&server);
    let clients: Vec<Http2> = (0..CLIENTS)
        .map(|_| {
            let mut http = connect(&site, &server, &[(INITIAL_WINDOW_SIZE, 0)]);
            let mut first = block("GET", "/f", &[]);
            first.extend(&entry);
            let requests: Vec<(u32, Vec<u8>)> = (0..120)
                .map(|_| {
                    let mut block = std::mem::replace(&mut first, block("GET", "/f", &[]));
                    block.resize(block.len() + 9, 0x80 | 62);
                    let stream = http.stream();
                    (stream, headers(stream, true, &block))
                })
                .collect();
            requests.iter().for_each(|(_, octets)| http.send(octets));
            http.read_until("all heads", |http| {
                requests.iter().all(|(stream, _)| http.streams.get(stream).is_some_and(|got| got.status == 431))
            });
            http
        })
        .collect();
    let each = memory(&server).saturating_sub(before) / CLIENTS;
    println!("{each} octets a connection of 120 heads that are too large");
    assert!(each < 4 << 20, "{each} octets a connection");
    drop(clients);
}

#[test]
fn an_idle_connection_gives_back_what_many_streams_took() {
    // The first connections bring the allocator to its size.
    const BEFORE: usize = 60;
    const MEASURED: usize = 200;
    let (site, server) = serve(&["--idle-timeout", "1h"]);
    let burst = |http: &mut Http2| {
        let requests: Vec<u8> = (0..100)
            .flat_map(|_| {
                let stream = http.stream();
                headers(stream, true, &block("GET", "/f", &[]))
            })
            .collect();
        http.send(&requests);
        http.read_until("all", |http| http.streams.values().filter(|got| got.ended.is_some()).count() == 100);
    };
    let mut clients: Vec<Http2> = (0..BEFORE + MEASURED).map(|_| connect(&site, &server, &[])).collect();
    clients.iter_mut().for_each(Http2::ping);
    clients[..BEFORE].iter_mut().for_each(burst);
    clients.iter_mut().for_each(Http2::ping);
    let before = memory(&server);
    clients[BEFORE..].iter_mut().for_each(burst);
    clients.iter_mut().for_each(Http2::ping);
    let each = memory(&server).saturating_sub(before) / MEASURED as u64;
    println!("{each} octets more an idle connection after 100 streams");
    assert!(each < 8 << 10, "{each} octets a connection");
}
