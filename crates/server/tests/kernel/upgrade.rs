//! Connections that the kernel seals pass to another process: key and sequence number stay in the socket, and the new process goes on with them.

use sealion_testkit::ktls::Counters;
use sealion_testkit::service::Service;
use sealion_testkit::{Suite, content, http};

use crate::support::http2::{Http2, MAX_WINDOW, window_update};
use crate::support::{LARGE, SMALL_WINDOW, Site, access_lines, begin, wait_for_message};

const LEN: u64 = (1 << 20) + 7;

#[test]
fn idle_connections_in_the_kernel_go_on_in_the_new_process() {
    let site = Site::new();
    site.add_large("f", LEN);
    let mut service = Service { first: site.serve(&["--ktls", "always", "--workers", "1"]) };
    let address = service.first.address();
    let counters = Counters::now();
    let mut clients: Vec<_> = Suite::all().into_iter().map(|suite| site.connector(suite).connect(address)).collect();
    let mut http2: Vec<_> =
        Suite::all().into_iter().map(|suite| Http2::connect(site.connector(suite), address, &[])).collect();
    let all = (clients.len() + http2.len()) as i64;
    let mut ask = |reason: &str, lines: usize| {
        for client in &mut clients {
            content::assert_equal(&http::get(client, "/f").expect("an answer").body, 0..LEN);
        }
        for client in &mut http2 {
            content::assert_equal(&client.fetch("/f").1, 0..LEN);
            client.ping();
        }
        let count = clients.len() + http2.len();
        for line in access_lines(&service.first, lines + count).split_off(lines) {
            assert_eq!(line.way(), ("kernel", reason), "{}", line.text);
        }
        lines + count
    };
    let mut lines = ask("moved", 0);
    assert_eq!(counters.tx_sw_since(), all);
    for _ in 0..2 {
        service.upgrade();
        lines = ask("moved-before", lines);
    }
    // The sockets are the same. The self-checks of the new processes moved others meanwhile, which are closed.
    assert_eq!(counters.since("TlsCurrTxSw"), all);
    wait_for_message(&service.first, &format!("{} connections went on in process", all));
    assert!(service.first.wait().success(), "nothing is left to do");
}

/// The bytes of a response that the kernel has, part of a record too, stay in the socket.
#[test]
fn responses_in_the_kernel_go_on_in_the_new_process() {
    let site = Site::new();
    site.add_large("large", LARGE);
    let mut service = Service { first: site.serve(&["--ktls", "always", "--workers", "1", "--stall-timeout", "1h"]) };
    let address = service.first.address();
    let counters = Counters::now();
    let connect = |suite| site.connector(suite).receive_buffer(SMALL_WINDOW).connect(address);
    let mut clients: Vec<_> = Suite::all().into_iter().map(connect).collect();
    for client in &mut clients {
        begin(client, "/large");
    }
    assert_eq!(counters.tx_sw_since(), clients.len() as i64);
    for _ in 0..2 {
        service.upgrade();
    }
    assert!(service.first.wait().success(), "nothing is left to do");
    for client in &mut clients {
        content::assert_equal(&client.read(LARGE as usize).expect("the rest"), 0..LARGE);
    }
    for line in access_lines(&service.first, clients.len()) {
        assert_eq!((line.way(), line.get("bytes")), (("kernel", "moved"), &*LARGE.to_string()), "{}", line.text);
    }
}

/// Frames that the kernel has not taken go along, and so do the streams.
#[test]
fn responses_of_http2_in_the_kernel_go_on_in_the_new_process() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let site = Site::new();
    site.add_large("large", LARGE);
    let mut service = Service { first: site.serve(&["--ktls", "always", "--workers", "1", "--stall-timeout", "1h"]) };
    let mut clients = Vec::new();
    for suite in [Suite::TLS13, Suite::TLS12] {
        let connector = site.connector(suite).receive_buffer(SMALL_WINDOW);
        let mut client = Http2::connect(connector, service.first.address(), &[(INITIAL_WINDOW_SIZE, MAX_WINDOW)]);
        client.ping();
        client.send(&window_update(0, MAX_WINDOW - 65_535));
        client.credit = 0;
        let streams = [client.get("/large"), client.get("/large")];
        client.read_until("a frame of content", |client| !client.data.is_empty());
        clients.push((client, streams));
    }
    for _ in 0..2 {
        service.upgrade();
    }
    assert!(service.first.wait().success(), "nothing is left to do");
    for (client, streams) in &mut clients {
        for stream in streams {
            content::assert_equal(client.response(*stream).whole().1, 0..LARGE);
        }
    }
    for line in access_lines(&service.first, 2 * clients.len()) {
        assert_eq!((line.way().0, line.get("bytes")), ("kernel", &*LARGE.to_string()), "{}", line.text);
    }
}
