//! The cache of a process that ends: after a signal, or because another one has taken over.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use sealion_testkit::Client;
use sealion_testkit::http::{self, Response};
use sealion_testkit::server::Signal;
use sealion_testkit::service::Service;

use super::sharing::{LENGTH, body, in_halves, second_half};
use super::{Cached, answer, counting, status};
use crate::support::PROGRAM;
use crate::support::process::wait_until_it_rests;
use crate::support::upstream::Upstream;
use crate::support::{begin, messages, wait_for_cache, wait_for_message, wait_until};

#[test]
fn a_purge_at_the_process_that_took_over_reaches_the_one_before() {
    let keys = "[limits]\ngrace = '1h'\nrequest_timeout = '1h'\n";
    let mut cached = Cached::with(counting(FRESH), keys, PURGE_FROM);
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

/// The process before leaves its directories a moment after another has taken over.
#[test]
fn an_order_right_behind_an_upgrade_waits_for_the_directories() {
    let mut cached = Cached::with(counting(FRESH), "[limits]\ngrace = '1h'\n", "");
    let service = Service { first: cached.server.take().expect("it runs") };
    let mut client = cached.site.connect(&service.first);
    assert_eq!(http::get(&mut client, "/a").expect("an answer").body, b"body 0");
    for count in 1..4 {
        service.upgrade();
        let pid = service.newest().as_raw_nonzero().to_string();
        let order = Command::new(PROGRAM).args(["purge", "--all", "--pid", &pid]).output().expect("the program runs");
        assert!(order.status.success(), "{order:?}");
        let mut client = cached.site.connect(&service.first);
        let body = http::get(&mut client, "/a").expect("of the new process").body;
        assert_eq!(body, format!("body {count}").as_bytes());
    }
}

/// A server whose directory is the first one of those that are left to its successor.
struct Moving {
    cached: Cached,
    service: Service,
    /// Connections that stay with the first process: each has sent the first letter of a method.
    begun: Vec<Client>,
}

impl Moving {
    fn start(mut cached: Cached, letter: &str) -> Self {
        cached.restart();
        let service = Service { first: cached.server.take().expect("it runs") };
        let mut begun: Vec<_> = (0..4).map(|_| cached.site.connect(&service.first)).collect();
        for client in &mut begun {
            http::get(client, "/idle").expect("an answer");
            client.send(letter.as_bytes()).expect("it leaves");
        }
        wait_until_it_rests(&service.first);
        Self { cached, service, begun }
    }

    /// By the first process.
    #[track_caller]
    fn ask_first(&mut self, method: &str, target: &str) -> Response {
        let mut client = self.begun.pop().expect("a connection is left");
        client.send(&http::head(method, target, &[]).as_bytes()[1..]).expect("the request leaves");
        http::read_response(&mut client, method).expect("an answer")
    }

    /// By the newest process.
    #[track_caller]
    fn get(&self, target: &str) -> Response {
        ask(&mut self.cached.site.connect(&self.service.first), "GET", target)
    }

    /// Until the newest process has it stored.
    #[track_caller]
    fn store(&self, target: &str) {
        wait_until("the response is stored", || status(&self.get(target)) == "hit");
    }
}

#[track_caller]
fn ask(client: &mut Client, method: &str, target: &str) -> Response {
    client.send(http::head(method, target, &[]).as_bytes()).expect("the request leaves");
    http::read_response(client, method).expect("an answer")
}

const FRESH: &str = "Cache-Control: max-age=1000\r\n";
const PURGE_FROM: &str = "purge_from = ['127.0.0.1']";

#[test]
fn a_purge_at_the_process_before_reaches_one_with_other_directories() {
    let keys =
        "[limits]\ngrace = '1h'\nrequest_timeout = '1h'\n[privileges]\nno_new_privileges = true\nseccomp = 'refuse'\n";
    let mut moving = Moving::start(Cached::stopped(counting(FRESH), keys, PURGE_FROM), "P");
    moving.cached.directory.set_file_name("other");
    moving.cached.config().write();
    moving.service.upgrade();
    wait_for_message(&moving.service.first, "no new connections");
    wait_for_cache(&moving.service.first, &moving.cached.directory);
    for (method, target) in [("PURGE", "/a"), ("POST", "/b")] {
        moving.store(target);
        assert_eq!(moving.ask_first(method, target).status, 200);
        assert_ne!(status(&moving.get(target)), "hit", "after {method}");
    }
    // A process that is gone does not count as one that has purged.
    let pid = moving.service.newest();
    moving.service.signal(Signal::KILL);
    wait_until("the newest process takes no orders", || {
        let sockets = fs::read_to_string("/proc/net/unix").expect("the sockets");
        !sockets.lines().any(|line| line.ends_with(&format!("-{pid}")))
    });
    for _ in 0..2 {
        assert_eq!(moving.ask_first("PURGE", "/a").status, 500);
    }
    wait_for_message(&moving.service.first, "order them there again");
    assert_eq!(messages(&moving.service.first, "order them there again"), 1);
}

/// The one that took over takes no orders any more, and the purge file of their directory has the purge.
#[test]
fn a_purge_reaches_the_process_after_the_next_by_a_directory_of_both() {
    let mut moving = Moving::start(
        Cached::stopped(counting(FRESH), "[limits]\ngrace = '1h'\nrequest_timeout = '1h'\n", PURGE_FROM),
        "P",
    );
    moving.store("/a");
    moving.service.upgrade();
    // The second process has told its directories.
    assert_eq!(moving.ask_first("PURGE", "/b").status, 200);
    // A request that has begun keeps the second process.
    let mut second = moving.cached.site.connect(&moving.service.first);
    http::get(&mut second, "/a").expect("an answer");
    second.send(b"G").expect("it leaves");
    moving.service.upgrade();
    moving.store("/a");
    assert_eq!(moving.ask_first("PURGE", "/a").status, 200);
    wait_until("the purge arrives", || status(&moving.get("/a")) != "hit");
    assert_eq!(messages(&moving.service.first, "order them there again"), 0);
}

/// The process before does not know what the one that took over has stored.
#[test]
fn a_withdrawal_that_the_process_before_learns_of_reaches_the_one_that_took_over() {
    let is_withdrawn = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&is_withdrawn);
    let origin = Upstream::answering(move |_| {
        let control = if is_over.load(Ordering::Relaxed) { "no-store" } else { "max-age=1000" };
        answer(200, &format!("Cache-Control: {control}\r\n"), b"page")
    });
    let mut moving =
        Moving::start(Cached::stopped(origin, "[limits]\ngrace = '1h'\nrequest_timeout = '1h'\n", ""), "G");
    moving.service.upgrade();
    wait_for_message(&moving.service.first, "no new connections");
    moving.store("/page");
    is_withdrawn.store(true, Ordering::Relaxed);
    assert_ne!(status(&moving.ask_first("GET", "/page")), "hit");
    wait_until("the page is withdrawn", || status(&moving.get("/page")) != "hit");
}

/// The successor waits for the file of a password before it has its directory.
#[test]
fn a_purge_while_a_process_with_other_directories_starts_reaches_it() {
    let mut cached = Cached::stopped(counting(FRESH), "[limits]\ngrace = '1h'\nrequest_timeout = '1h'\n", PURGE_FROM);
    let first = cached.directory.clone();
    // The other directory has responses from before.
    let other = first.with_file_name("other");
    cached.directory = other.clone();
    cached.restart();
    for target in ["/a", "/b"] {
        wait_until("the response is stored", || status(&cached.get(target, &[])) == "hit");
    }
    cached.directory = first;
    let mut moving = Moving::start(cached, "P");
    let password = other.with_file_name("password");
    rustix::fs::mkfifoat(rustix::fs::CWD, &password, Mode::RUSR | Mode::WUSR).expect("a pipe");
    let keys = format!(
        "purge_stream = 'redis://127.0.0.1:9/purges'\npurge_stream_password = {password:?}\n[limits]\ngrace = '1h'\nrequest_timeout = '1h'\n"
    );
    moving.cached.directory = other;
    moving.cached.keys.0 = keys.leak();
    moving.cached.config().write();
    moving.service.signal(Signal::USR2);
    let mut waits = None;
    wait_until("the successor reads the password", || {
        // Without a reader, a pipe cannot be opened for writing (fifo(7)).
        waits = rustix::fs::open(&password, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
        waits.is_some()
    });
    assert_eq!(moving.ask_first("PURGE", "/a").status, 200);
    drop(waits);
    moving.service.wait_for_upgrades(1);
    moving.store("/b");
    wait_until("the purge arrives", || status(&moving.get("/a")) != "hit");
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
