//! Responses of servers that pass from socket to socket by a pipe: the kernel seals them, and the server never reads them.

use sealion_testkit::ktls::Counters;
use sealion_testkit::service::Service;
use sealion_testkit::{Client, Suite, content, http};
use sealion_tls::AlertDescription;

use crate::support::by_length::{self, READ_FIRST};
use crate::support::upstream::Upstream;
use crate::support::watch::{Scrape, Watched, scrape};
use crate::support::{LARGE, Site, access_line, access_lines, begin, get, wait_until};

const MIB: u64 = 1 << 20;

/// Lengths of responses, in the order in which a connection asks for them.
const SIZES: [u64; 8] = [1, MIB + 7, 16_385, 256 << 10, 0, (64 << 10) + READ_FIRST, 3 * MIB, 100];

/// A server of ours in front of `upstream`, with one worker.
fn before(site: &Site, upstream: &Upstream, options: &[&str]) -> Watched {
    let limits = "[limits]\ngrace = '1h'\nrequest_timeout = '1h'\nstall_timeout = '1h'\n";
    let table =
        format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\nstall_timeout = '1h'\n", upstream.url());
    let config = site.config("proxy = { to = 'app' }").table(&table).table(limits);
    Watched::of(config.serve_with(&[&["--workers", "1", "--metrics", "127.0.0.1:0"], options].concat()))
}

fn piped(scrape: &Scrape) -> u64 {
    scrape.sum("sealion_upstream_piped_bytes_total") as u64
}

fn connect_slow_reader(site: &Site, suite: Suite, watched: &Watched) -> Client {
    site.connector(suite).receive_buffer(crate::support::SMALL_WINDOW).connect(watched.server.address())
}

#[test]
fn bodies_of_every_length_are_whole_with_every_suite() {
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream, &["--ktls", "always"]);
    let mut lines = 0;
    for suite in Suite::all() {
        let counters = Counters::now();
        let before = piped(&watched.scrape());
        let mut client = site.connector(suite).connect(watched.server.address());
        for length in SIZES {
            let got = http::get(&mut client, &format!("/{length}")).expect("an answer");
            content::assert_equal(&got.body, 0..length);
            lines += 1;
            let line = access_line(&watched.server, lines);
            assert_eq!((line.get("path"), line.get("bytes")), ("kernel", &*length.to_string()), "{}", line.text);
        }
        assert_eq!(counters.tx_sw_since(), 1, "{suite}");
        let piped = piped(&watched.scrape()) - before;
        let least: u64 = SIZES.iter().map(|length| length.saturating_sub(READ_FIRST)).sum();
        assert!(piped >= least && piped <= SIZES.iter().sum(), "{suite}: {piped} of at least {least} bytes");
    }
    assert_eq!(upstream.connections(), 1, "a connection is kept behind a response that passed by a pipe");
}

#[test]
fn a_connection_that_stays_in_user_space_has_no_pipe() {
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream, &["--ktls", "never"]);
    let mut client = site.connect(&watched.server);
    content::assert_equal(&http::get(&mut client, "/1000000").expect("an answer").body, 0..1_000_000);
    assert_eq!(piped(&watched.scrape()), 0);
}

#[test]
fn a_response_that_breaks_off_is_cut_and_leaves_no_byte_for_another_client() {
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream, &["--ktls", "always"]);
    for (n, suite) in [Suite::TLS13, Suite::TLS12].into_iter().enumerate() {
        let mut client = site.connector(suite).connect(watched.server.address());
        client.send(get(&format!("/{}/{}", 2 * MIB, MIB + 7)).as_bytes()).expect("it leaves");
        let ending = client.read_to_end().expect("an alert");
        ending.assert_alert(AlertDescription::INTERNAL_ERROR);
        let line = access_line(&watched.server, 2 * n + 1);
        assert_eq!((line.get("path"), line.get("bytes")), ("kernel", &*(MIB + 7).to_string()), "{}", line.text);
        assert!(line.get("aborted").contains("closed before its end"), "{}", line.text);
        let mut other = site.connector(suite).connect(watched.server.address());
        content::assert_equal(&http::get(&mut other, "/500000").expect("an answer").body, 0..500_000);
    }
}

/// The bytes in a pipe are closed with it.
#[test]
fn a_client_that_leaves_takes_its_bytes_along() {
    const CLIENTS: usize = 12;
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream, &["--ktls", "always"]);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect_slow_reader(&site, Suite::TLS13, &watched)).collect();
    for client in &mut clients {
        begin(client, &format!("/{LARGE}"));
    }
    wait_until("their pipes are full", || piped(&watched.scrape()) > 0);
    let open = watched.scrape().get("process_open_fds");
    for client in clients {
        client.reset().expect("it leaves");
    }
    assert!(access_lines(&watched.server, CLIENTS).iter().all(|line| line.find("aborted").is_some()));
    // A client's connection, one to the server, and a pipe.
    wait_until("the descriptors are free", || watched.scrape().get("process_open_fds") <= open - 2.0 * CLIENTS as f64);
    for _ in 0..CLIENTS {
        let mut client = site.connect(&watched.server);
        content::assert_equal(&http::get(&mut client, "/700000").expect("an answer").body, 0..700_000);
    }
}

/// The bytes in the pipe go along.
#[test]
fn a_response_that_waits_for_its_client_goes_on_in_the_new_process() {
    let site = Site::new();
    let upstream = by_length::serve();
    let watched = before(&site, &upstream, &["--ktls", "always"]);
    let mut clients: Vec<_> =
        Suite::all().into_iter().map(|suite| connect_slow_reader(&site, suite, &watched)).collect();
    for client in &mut clients {
        begin(client, &format!("/{LARGE}"));
    }
    let Watched { server, address } = watched;
    wait_until("their pipes are full", || piped(&scrape(address)) > clients.len() as u64 * MIB);
    let mut service = Service { first: server };
    service.upgrade();
    wait_until("the connections have passed", || {
        scrape(address).get("sealion_connections_taken_over_total") == clients.len() as f64
    });
    for client in &mut clients {
        content::assert_equal(&client.read(LARGE as usize).expect("the rest"), 0..LARGE);
    }
    for line in access_lines(&service.first, clients.len()) {
        assert!(line.find("aborted").is_none() && line.get("bytes") == LARGE.to_string(), "{}", line.text);
    }
    assert!(service.first.wait().success(), "nothing is left to do");
}
