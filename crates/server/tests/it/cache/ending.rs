//! The cache of a process that ends: after a signal, or because another one has taken over.

use std::thread;
use std::time::Duration;

use sealion_testkit::http;
use sealion_testkit::server::Signal;

use super::sharing::{LENGTH, body, in_halves, second_half};
use super::{Cached, counting, status};
use crate::support::{begin, wait_for_message};
use crate::upgrade::Service;

#[test]
fn a_purge_at_the_process_that_took_over_reaches_the_one_before() {
    let keys = "[limits]\ngrace = '1h'\n";
    let mut cached = Cached::with(counting("Cache-Control: max-age=1000\r\n"), keys, "purge_from = ['127.0.0.1']");
    let service = Service { first: cached.server.take().expect("it runs") };
    let mut idle: Vec<_> = (0..30).map(|_| cached.site.connect(&service.first)).collect();
    for client in &mut idle {
        assert_eq!(http::get(client, "/a").expect("an answer").body, b"body 0");
    }
    service.upgrade();
    wait_for_message(&service.first, "no new connections");
    let mut client = cached.site.connect(&service.first);
    client.send(http::head("PURGE", "/a", &[]).as_bytes()).expect("the request leaves");
    assert_eq!(http::read_response(&mut client, "PURGE").expect("of the new process").status, 200);
    // Each connection of the old process has one more answer.
    while status(&http::get(&mut idle.pop().expect("the purge arrives"), "/a").expect("of the old process")) == "hit" {
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_stop_waits_for_a_fetch_that_a_client_of_another_worker_reads() {
    let (origin, go_on) = in_halves("max-age=1000", second_half);
    let cached = Cached::with(origin, "[server]\nworkers = 8\n", "");
    let mut first = cached.site.connect(cached.server());
    begin(&mut first, "/a");
    drop(first);
    // At another worker, but for one time in eight.
    let mut second = cached.site.connect(cached.server());
    begin(&mut second, "/a");
    assert!(second.read(LENGTH / 2).expect("the first half") == body()[..LENGTH / 2]);
    cached.server().signal(Signal::TERM);
    wait_for_message(cached.server(), "no new connections");
    // A worker that has nothing to do has ended by then.
    thread::sleep(Duration::from_millis(500));
    go_on.send(()).expect("the origin waits");
    assert!(second.read(LENGTH / 2).expect("the second half") == body()[LENGTH / 2..]);
}
