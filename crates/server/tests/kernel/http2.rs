//! HTTP/2 from the kernel: whole bodies of interleaved streams, before, during and after the move.

use std::fs::File;

use sealion_testkit::Suite;
use sealion_testkit::ktls::Counters;
use sealion_testkit::server::Server;
use sealion_tls::record::ContentType;

use crate::awkward::kernel_rekeys;
use crate::support::http2::{
    Ended, Http2, INITIAL_WINDOW_SIZE, INTERNAL_ERROR, NO_ERROR, block, headers, window_update,
};
use crate::support::process::wait_until_it_rests;
use crate::support::{LARGE, SMALL_WINDOW, Site, access_lines, content};

const MIB: u64 = 1 << 20;

const SIZES: [u64; 9] = [0, 1, 1000, 16_374, 16_375, 16_376, 65_536, MIB + 7, 1];

/// The default window, opened as content comes.
const WINDOW: u32 = 65_535;

fn site_with_sizes() -> Site {
    let site = Site::new();
    SIZES.iter().for_each(|len| drop(site.add_large(&len.to_string(), *len)));
    site
}

#[track_caller]
fn connect(site: &Site, server: &Server, suite: Suite, window: u32) -> Http2 {
    Http2::connect(site.connector(suite), server.address(), &[(INITIAL_WINDOW_SIZE, window)])
}

#[track_caller]
fn assert_whole(http: &mut Http2, stream: u32, len: u64) {
    let (status, body) = http.response(stream).whole();
    assert_eq!(status, 200);
    content::assert_equal(body, 0..len);
}

#[test]
fn every_suite_and_size_comes_from_the_kernel() {
    let site = site_with_sizes();
    let server = site.serve(&["--ktls", "always"]);
    let mut lines = 0;
    for suite in Suite::all() {
        let counters = Counters::now();
        let mut http = connect(&site, &server, suite, WINDOW);
        for len in SIZES {
            let stream = http.get(&format!("/{len}"));
            assert_whole(&mut http, stream, len);
        }
        // All at once.
        let streams = SIZES.map(|len| (http.get(&format!("/{len}")), len));
        streams.into_iter().for_each(|(stream, len)| assert_whole(&mut http, stream, len));
        assert_eq!(counters.tx_sw_since(), 1, "{suite}");
        lines += 2 * SIZES.len();
        let ways = access_lines(&server, lines).split_off(lines - 2 * SIZES.len());
        assert_eq!(ways[0].way(), ("kernel", "moved"), "{suite}");
        assert!(ways[1..].iter().all(|line| line.way() == ("kernel", "moved-before")), "{suite}: {ways:#?}");
        if suite.has_explicit_nonce() {
            http.client.tap().assert_nonces_distinct(2 * SIZES.len());
        }
    }
}

/// Frames of the first stream were sealed in user space; what follows of it comes from the kernel.
#[test]
fn a_connection_moves_in_the_middle_of_several_streams() {
    // Two of them are shorter than what moves a connection.
    const PARTS: u64 = 20_000;
    let site = site_with_sizes();
    site.add_large("part", PARTS);
    let server = site.serve(&["--ktls", "auto"]);
    for (n, suite) in Suite::all().into_iter().enumerate() {
        let counters = Counters::now();
        let mut http = connect(&site, &server, suite, 10_000);
        http.credit = 0;
        let parts = [http.get("/part"), http.get("/part")];
        http.read_until("their windows are used", |http| {
            parts.iter().all(|stream| http.streams.get(stream).is_some_and(|got| got.body.len() == 10_000))
        });
        assert_eq!(counters.tx_sw_since(), 0, "{suite}");
        http.send(&window_update(0, 1 << 30));
        let large = http.get(&format!("/{}", MIB + 7));
        http.send(&window_update(large, 1 << 30));
        http.read_until("it has begun", |http| http.streams.get(&large).is_some_and(|got| !got.body.is_empty()));
        parts.iter().for_each(|stream| http.send(&window_update(*stream, 1 << 20)));
        parts.iter().for_each(|stream| assert_whole(&mut http, *stream, PARTS));
        assert_whole(&mut http, large, MIB + 7);
        assert_eq!(counters.tx_sw_since(), 1, "{suite}");
        let lines = access_lines(&server, 3 * (n + 1)).split_off(3 * n);
        let moved = lines.iter().filter(|line| line.way() == ("kernel", "moved")).count();
        assert_eq!(moved, 1, "{suite}: {lines:#?}");
    }
}

/// TCP paces the connection, and measures that rate: few bytes of a large response wait in the socket. Its bytes keep
/// coming, from the kernel.
#[test]
fn an_urgent_response_waits_for_few_bytes_on_a_slow_connection() {
    let site = Site::new();
    site.add("f", "content");
    site.add_large("large", LARGE);
    // Slow, so that few bytes come in the time that a busy machine takes for a request.
    let server = site.config("[site.limits]\nbandwidth = '1MB'\n").serve_with(&["--ktls", "always"]);
    let mut http = connect(&site, &server, Suite::TLS13, 1 << 30);
    let waited_for = http.overtake("/large", LARGE as usize / 2, "/f");
    assert!(waited_for < 1 << 19, "{waited_for} bytes of the large response came before");
    let large = *http.streams.keys().next().expect("the large response");
    assert_whole(&mut http, large, LARGE);
    assert!(access_lines(&server, 2).iter().all(|line| line.way().0 == "kernel"));
}

/// The server stands in the middle of a frame, whose head has left: the connection ends. Now and then it stands between two batches: the
/// stream is reset, as the next test has it.
#[test]
fn a_file_that_is_truncated_never_ends_its_stream() {
    let site = Site::new();
    let server = site.serve(&["--ktls", "always"]);
    for round in 1..=20 {
        let path = site.add_large(&format!("f{round}"), LARGE);
        let connector = site.connector(Suite::TLS13).receive_buffer(SMALL_WINDOW);
        let mut http = Http2::connect(connector, server.address(), &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
        http.send(&window_update(0, 1 << 30));
        let stream = http.get(&format!("/f{round}"));
        http.read_until("its head", |http| http.streams.contains_key(&stream));
        wait_until_it_rests(&server);
        File::options().write(true).open(&path).expect("it opens").set_len(1000).expect("it is truncated");
        let end = http.end_before(|http| http.has_ended(stream));
        let got = &http.streams[&stream];
        content::assert_starts(&got.body, 0);
        let aborted = access_lines(&server, round)[round - 1].get("aborted").to_owned();
        assert!(aborted.contains("were promised"), "{aborted}");
        match end {
            None => assert_eq!(got.ended, Some(Ended::Reset(INTERNAL_ERROR)), "{} octets", got.body.len()),
            Some(how) => {
                assert!(how.starts_with("Alert(internal_error)"), "{how}");
                assert_eq!(got.ended, None, "{} octets", got.body.len());
                return;
            }
        }
    }
    panic!("no file was truncated in the middle of a frame");
}

/// Frames are announced when their bytes are there: a file that is too short before a batch costs its stream alone.
#[test]
fn a_file_that_is_truncated_between_two_batches_resets_its_stream_and_no_other() {
    let site = Site::new();
    let path = site.add_large("f", LARGE);
    site.add_large("other", LARGE);
    let server = site.serve(&["--ktls", "always"]);
    let connector = site.connector(Suite::TLS13);
    let mut http = Http2::connect(connector, server.address(), &[(INITIAL_WINDOW_SIZE, 40_000)]);
    http.credit = 0;
    let broken = http.get("/f");
    http.read_until("its window is used", |http| http.streams.get(&broken).is_some_and(|got| got.body.len() == 40_000));
    File::options().write(true).open(&path).expect("it opens").set_len(1000).expect("it is truncated");
    http.send(&[window_update(0, 1 << 30), window_update(broken, 40_000)].concat());
    assert_eq!(http.response(broken).ended, Some(Ended::Reset(INTERNAL_ERROR)));
    let other = http.get("/other");
    http.send(&window_update(other, 1 << 30));
    assert_whole(&mut http, other, LARGE);
    assert!(http.go_aways.is_empty());
    let lines = access_lines(&server, 2);
    assert!(lines[0].get("aborted").contains("were promised"), "{}", lines[0].text);
    assert_eq!(lines[1].way(), ("kernel", "moved-before"), "{}", lines[1].text);
}

/// Where the kernel does not change its key, what is under way goes on to its end, and then the connection closes.
#[test]
fn a_key_update_among_streams_cuts_none_of_them() {
    let site = site_with_sizes();
    site.add_large("large", LARGE);
    let server = site.serve(&["--ktls", "always"]);
    let mut http = connect(&site, &server, Suite::TLS13, WINDOW);
    let counters = Counters::now();
    let large = http.get("/large");
    http.read_until("it has begun", |http| http.streams.get(&large).is_some_and(|got| !got.body.is_empty()));
    let other = http.stream();
    let request = headers(other, true, &block("GET", "/1000", &[]));
    let mut sealed = http.client.seal(ContentType::ApplicationData, &request);
    sealed.extend(http.client.seal_key_update(true));
    http.client.write(&sealed).expect("it leaves");
    assert_whole(&mut http, other, 1000);
    assert_whole(&mut http, large, LARGE);
    if kernel_rekeys() {
        assert_eq!((http.client.key_updates(), counters.tx_rekeys_since()), (1, 1));
        let stream = http.get("/1000");
        assert_whole(&mut http, stream, 1000);
    } else {
        assert_eq!((http.closed(), http.client.key_updates()), (NO_ERROR, 0));
    }
}
