//! Stored responses from the kernel: as they come from the origin, from the disk, in ranges, over both protocols.

use sealion_testkit::ktls::Counters;
use sealion_testkit::server::Server;
use sealion_testkit::{Suite, http};

use crate::support::http2::{Http2, INITIAL_WINDOW_SIZE};
use crate::support::upstream::Upstream;
use crate::support::{Site, access_lines, content, wait_for_cache};

const SIZES: [u64; 6] = [0, 1000, 16_384, 131_073, 1_048_583, 3_000_001];

fn origin() -> Upstream {
    Upstream::answering(|request| {
        let length: u64 = request.line().trim_start_matches("GET /").parse().expect("a length");
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: {length}\r\n\r\n");
        [head.into_bytes(), content::bytes(0..length)].concat()
    })
}

/// A server that stores what the origin sends. It owns the directory when this returns.
fn serve(site: &Site, origin: &Upstream) -> Server {
    let directory = site.outside().join("cache");
    let tables = format!(
        "[server]\nktls = 'always'\n[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = ['{}']\nfree = '0B'\n",
        origin.url(),
        directory.display()
    );
    let server = site.config("proxy = { to = 'app', cache = {} }").table(&tables).serve();
    wait_for_cache(&server, &directory);
    server
}

#[test]
fn every_suite_gets_stored_responses_from_the_kernel() {
    let (site, origin) = (Site::new(), origin());
    let server = serve(&site, &origin);
    let mut lines = 0;
    for suite in Suite::all() {
        let counters = Counters::now();
        let mut client = site.connector(suite).connect(server.address());
        for length in SIZES {
            for _ in 0..2 {
                let response = http::get(&mut client, &format!("/{length}")).expect("a response");
                assert_eq!(response.status, 200, "{suite}");
                content::assert_equal(&response.body, 0..length);
            }
            if length > 1000 {
                let range = [("Range", "bytes=777-998")];
                let part = http::request(&mut client, "GET", &format!("/{length}"), &range).expect("a response");
                assert_eq!(part.status, 206, "{suite}");
                content::assert_equal(&part.body, 777..999);
            }
        }
        assert_eq!(counters.tx_sw_since(), 1, "{suite}");
        let added = 2 * SIZES.len() + 4;
        lines += added;
        let ways = access_lines(&server, lines).split_off(lines - added);
        assert!(ways.iter().all(|line| line.way().0 == "kernel"), "{suite}: {ways:#?}");
        if suite.has_explicit_nonce() {
            client.tap().assert_nonces_distinct(added);
        }
    }
    assert_eq!(origin.requests().len(), SIZES.len());
}

#[test]
fn http2_gets_stored_responses_from_the_kernel() {
    let (site, origin) = (Site::new(), origin());
    let server = serve(&site, &origin);
    let counters = Counters::now();
    let mut http = Http2::connect(site.connector(Suite::all()[0]), server.address(), &[(INITIAL_WINDOW_SIZE, 1 << 24)]);
    for _ in 0..2 {
        let streams = SIZES.map(|length| (http.get(&format!("/{length}")), length));
        for (stream, length) in streams {
            let (status, body) = http.response(stream).whole();
            assert_eq!(status, 200);
            content::assert_equal(body, 0..length);
        }
    }
    assert_eq!(counters.tx_sw_since(), 1);
    assert_eq!(origin.requests().len(), SIZES.len());
}

/// Before the directory is owned, responses pass; while two clients wait for one, both get it.
#[test]
fn clients_that_come_with_the_start_are_answered() {
    let site = Site::new();
    let origin = origin();
    let directory = site.outside().join("cache");
    let tables = format!(
        "[server]\nworkers = 1\n[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = ['{}']\nfree = '0B'\n",
        origin.url(),
        directory.display()
    );
    let server = site.config("proxy = { to = 'app', cache = {} }").table(&tables).serve_from_user_space();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut client = site.connect(&server);
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let response = http::get(&mut client, "/1000").expect("a response");
                    content::assert_equal(&response.body, 0..1000);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}
